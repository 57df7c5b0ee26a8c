"""The options of nmt-monolingual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.config.checks import require_positive
from nmt.config.choices import InvalidText
from nmt.config.common_options import ReadingOptions, invalid_text_option
from nmt.config.option import FlagKind, flag, option
from nmt.config.roles import CommandConfig

Options = dict[str, Any]


def _options_of(command: str, purpose: str, example: str) -> Any:
    return option({}, help=f"Options of {command} for {purpose}, such as {example}")


@dataclass
class MonolingualConfig(ReadingOptions, CommandConfig):
    """nmt-monolingual: train with monolingual text, by back-translation and denoising pre-training."""

    command: ClassVar[str] = "monolingual"
    recipes: ClassVar[str | None] = "method"
    source_lang: str = flag("", help="Language that the model translates from, also the suffix of its files")
    target_lang: str = flag("", help="Language that the model translates to, also the suffix of its files")
    trainpref: str = flag(
        "", help="Parallel training text: file names without language suffix, comma-separated", kind=FlagKind.joined
    )
    validpref: str = flag("", help="Validation text, as for --trainpref", kind=FlagKind.joined)
    testpref: str | None = flag(
        None, help="Test text to score, as for --trainpref; each of several names is a separate test set; null: none"
    )
    target_text: list[str] = flag([], help="Files of monolingual text in the target language, one sentence per line")
    source_text: list[str] = flag([], help="Files of monolingual text in the source language; empty: none")
    save_dir: str = flag("", help="Folder of all stages; the last forward stage is the run folder of the final model")
    tag: str | None = flag(
        None, help="Token to add to the vocabulary and to put before each synthetic source, such as <bt>; null: none"
    )
    noise: list[str] = flag(
        [], help="Augmentations of the synthetic sources, as for nmt-train --augment, but applied once; empty: none"
    )
    iterations: int = flag(
        1, help="Number of rounds; from the second on, the reverse model also learns from --source-text"
    )
    pretrain: bool = flag(
        False, help="Start all models from a denoising model, which restores noisy sentences of both languages"
    )
    until: str | None = flag(None, help="Last stage to run, with the stages that it needs; null: all stages")
    dry_run: bool = flag(False, help="Check text and options, print stages, states and commands, and run nothing")
    preprocess: Options = _options_of("nmt-preprocess", "the pairs and the vocabulary", "preprocess.vocab_size=8000")
    train: Options = _options_of("nmt-train", "all models", "train.model=transformer_tiny train.model.d_model=64")
    reverse: Options = _options_of("nmt-train", "models from target to source", "reverse.max_update=9000")
    forward: Options = _options_of("nmt-train", "models from source to target", "forward.sampling_weights=[1,1]")
    pretraining: Options = _options_of("nmt-train", "the model of --pretrain", "pretraining.max_update=9000")
    translate: Options = _options_of("nmt-generate", "monolingual text", "translate.search=sampling")
    on_invalid_utf8: InvalidText = invalid_text_option(InvalidText.error, "with the whole pair")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", iterations=self.iterations)
