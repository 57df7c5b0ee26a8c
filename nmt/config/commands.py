"""The options of the commands after training: nmt-generate, nmt-score, nmt-average-checkpoints and nmt-shortlist."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from nmt.config.checks import Refusals, refuse, require_not_negative, require_positive
from nmt.config.choices import (
    InputFormat,
    InvalidText,
    MbrMetric,
    OutputFormat,
    PairedTest,
    ProgressStyle,
    ScoreFormat,
)
from nmt.config.common_options import (
    DeviceOption,
    EngineOptions,
    OutputOption,
    OverwriteOption,
    PluginOption,
    ProgressOption,
    ReadingOptions,
    ThreadsOption,
    invalid_text_option,
)
from nmt.config.option import FlagKind, default_of, flag, keyword_of, not_for_scoring
from nmt.config.roles import CommandConfig
from nmt.config.scored_text import ScoredTextConfig
from nmt.config.sections import DeviceSection
from nmt.config.translation import TranslationOptions


@dataclass
class GenerateConfig(
    DeviceSection,
    OutputOption,
    PluginOption,
    ProgressOption,
    OverwriteOption,
    ReadingOptions,
    EngineOptions,
    TranslationOptions,
    CommandConfig,
):
    """nmt-generate: translate lines of text, or a split of a corpus."""

    command: ClassVar[str] = "generate"
    data: list[str] = flag([], help="Corpus folder with the split to translate; empty: lines of text from --input")
    path: str = flag(
        "",
        help="Run folder, model folder, checkpoint, or hf://OWNER/NAME of the Hugging Face Hub; several joined by ':' "
        "form an ensemble",
    )
    ensemble_weights: list[float] = flag([], help="Weights of the ensemble's models; empty: equal")
    shortlist: str | None = flag(
        None,
        help="Vocabulary shortlist (file of nmt-shortlist) that limits the target tokens of each "
        "sentence; null: full vocabulary",
    )
    gen_subset: str = flag("test", help="Corpus split to translate")
    input: str | None = flag(None, help="File to translate; null or -: standard input")
    input_format: InputFormat = flag(
        InputFormat.text,
        help="Input format: text, tsv (sentence, required phrases, !excluded phrases) or jsonl (text, "
        "prefix, include, exclude, reference, min_length, max_length, source_lang, target_lang)",
    )
    resume_output: bool = flag(
        False,
        help="Make the output resumable: it grows as FILE.partial, and the same command resumes it",
    )
    format: OutputFormat = flag(OutputFormat.text, help="Output format: text, fairseq or jsonl")
    rerank: str | None = flag(
        None,
        help="Reverse model (run folder or checkpoint): rerank by its probability of the source given the "
        "hypothesis; null: none",
    )
    rerank_weight: float = flag(1.0, help="Weight of the reverse model's score relative to the search score")
    cuda_graphs: bool = flag(
        False, help="Record each decoding step as a CUDA graph and replay it, as with --engine graphs; GPU only"
    )
    on_invalid_utf8: InvalidText = invalid_text_option(InvalidText.replace, "as an empty line")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("", rerank_weight=self.rerank_weight)
        if self.input == "-":  # as other programs call standard input
            self.input = None

    def _dependent_options(self) -> Refusals:
        yield from super()._dependent_options()
        yield from self._inputs()
        yield from self._hidden_by_format()
        if self.score_reference:
            yield from self._not_for_scoring()
        yield (
            self.mbr is not MbrMetric.none and self.rerank is not None,
            "--mbr and --rerank exclude each other: each sorts the hypotheses differently; give one",
        )
        yield (
            self.rerank is None and self.rerank_weight != 1.0,
            f"--rerank-weight {self.rerank_weight:g} is for --rerank; name the reverse model",
        )

    def _inputs(self) -> Refusals:
        """Contradictions between inputs."""
        if self.data:
            yield len(self.data) > 1, f"one corpus folder can be translated at a time, not {len(self.data)}"
            yield self.input is not None, f"give a corpus folder ({self.data[0]}) or --input {self.input}, not both"
            yield (
                self.input_format is not InputFormat.text,
                f"--input-format {self.input_format.value} is for lines of text, not for a corpus folder",
            )
        yield (
            self.gen_subset != "test" and not self.data,
            f"--gen-subset {self.gen_subset} is a split of a corpus folder; name the folder too",
        )
        yield (
            self.score_reference and not self.data and self.input_format is InputFormat.text,
            "--score-reference needs references: give a corpus folder, or --input-format tsv or jsonl",
        )

    def _hidden_by_format(self) -> Refusals:
        """Results that the output format does not show."""
        if self.format is OutputFormat.text:
            advice = "add --format jsonl or fairseq to"
            yield self.score_reference, f"--format text shows no scores; {advice} --score-reference"
            yield self.aligns, f"--format text shows no alignments; {advice} --print-alignment"

    def _not_for_scoring(self) -> Refusals:
        """Options that do not apply to scoring references."""
        yield self.shortlist is not None, "--score-reference uses the full vocabulary; omit --shortlist"
        yield self.replace_unk, "--score-reference does not change the scored text; omit --replace-unk"
        for name, field in not_for_scoring(self.search).items():
            flag_name = keyword_of(field).replace("_", "-")
            set_by_user = getattr(self.search, name) != default_of(field)
            yield set_by_user, f"--score-reference does not use --{flag_name}; omit it"

    def for_typed_lines(self) -> GenerateConfig:
        """Return these options for lines typed at a terminal: each is answered before the next, and no bar disturbs
        typing."""
        progress = self.progress if self.progress is ProgressStyle.lines else ProgressStyle.none
        return dataclasses.replace(self, buffer_size=1, progress=progress)

    @property
    def instead_of_standard_input(self) -> str | None:
        return "--input" if self.input is None and not self.data else None

    @property
    def chooses(self) -> bool:
        return super().chooses or self.rerank is not None


@dataclass
class ScoreConfig(ScoredTextConfig):
    """nmt-score: score hypotheses against references; each score has a signature."""

    command: ClassVar[str] = "score"
    src: str | None = flag(
        None,
        help="File of source sentences, one per line, for comet, metricx, --signs and --split-by length; null: none",
    )
    confidence: bool = flag(False, help="Print 95% confidence intervals (bootstrap)")
    sentence: bool = flag(False, help="Print tab-separated scores per line instead of scores of the whole text")
    split_by: str | None = flag(
        None,
        help="Groups of lines to score separately: length (source words, else reference words) or a file of labels; "
        "null: none",
    )
    signs: bool = flag(
        False, help="Count empty, overlong and repetitive hypotheses; with --src also copies and unusual lengths"
    )
    format: ScoreFormat = flag(ScoreFormat.text, help="Output format: text, json, markdown or latex")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(
            (
                self.sentence
                and (self.confidence or self.paired is not PairedTest.none or self.split_by is not None or self.signs),
                "--sentence prints scores of single lines; omit --confidence, --paired, --split-by and --signs",
            ),
            (
                self.paired is not PairedTest.none and len(self.sys) < 2,
                "--paired compares the first system with others; name at least two (--sys A B)",
            ),
            (
                self.resamples is not None and not self.confidence and self.paired is PairedTest.none,
                f"--resamples {self.resamples} is for --confidence and --paired; give one of them",
            ),
            (
                self.src is not None
                and self.split_by != "length"
                and not self.signs
                and not {"comet", "metricx"} & set(self.metrics),
                f"--src {self.src} is for --signs, --split-by length and the metrics comet and metricx; add one of them, or "
                f"leave --src out",
            ),
        )


@dataclass
class AverageConfig(PluginOption, OverwriteOption, ThreadsOption, DeviceOption, CommandConfig):
    """nmt-average-checkpoints: average several checkpoints into one, without training state."""

    command: ClassVar[str] = "average_checkpoints"
    inputs: list[str] = flag([], help="Run folder, or checkpoints", kind=FlagKind.many)
    output: str = flag("", help="Folder for the averaged checkpoint")
    num_update_checkpoints: int | None = flag(
        None, help="Average the last N checkpoints saved by updates or minutes; null: another count, or all checkpoints"
    )
    num_epoch_checkpoints: int | None = flag(
        None, help="Average the last N end-of-epoch checkpoints; null: another count, or all checkpoints"
    )
    num_best_checkpoints: int | None = flag(
        None, help="Average the N best checkpoints by validation score; null: another count, or all checkpoints"
    )
    metric: str | None = flag(
        None, help="Metric for --num-best-checkpoints: loss, bleu, ...; null: best-checkpoint metric of the run"
    )
    checkpoint_upper_bound: int | None = flag(
        None, help="Last update to include, or last epoch with --num-epoch-checkpoints; null: no limit"
    )
    validate: bool = flag(True, help="Score the averaged checkpoint on the validation split")
    data: list[str] = flag([], help="Corpus folders for validation; empty: those of the run")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", num_update_checkpoints=self.num_update_checkpoints)
        require_positive("", num_epoch_checkpoints=self.num_epoch_checkpoints)
        require_positive("", num_best_checkpoints=self.num_best_checkpoints)


@dataclass
class ShortlistConfig(PluginOption, OverwriteOption, CommandConfig):
    """nmt-shortlist: learn a vocabulary shortlist (likely target tokens per source token) from a corpus folder."""

    command: ClassVar[str] = "shortlist"
    data: list[str] = flag([], help="Corpus folder")
    output: str = flag("", help="Shortlist file to write")
    per_piece: int = flag(50, help="Number of target tokens per source token")
    frequent: int = flag(100, help="Number of most frequent target tokens, allowed in every sentence")
    max_pairs: int = flag(100_000, help="Maximum number of sentence pairs to learn from, counted from the first")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", per_piece=self.per_piece, max_pairs=self.max_pairs)
        require_not_negative("", frequent=self.frequent)
