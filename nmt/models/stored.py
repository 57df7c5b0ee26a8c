"""Models from disk: what translates, and what others learn from or start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nmt.config.plain import component_from_plain
from nmt.data.language_pair import LanguagePair
from nmt.errors import DataError
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.storage.checkpoints import load_parameters, read_checkpoint, resolve, tokenizer_folder


def architecture(section: Any) -> Any:
    """Of the options of a model, those that its predictions depend on: all but what is dropped in training."""
    if not isinstance(section, dict):
        return section
    return {key: architecture(value) for key, value in section.items() if "dropout" not in key}


@dataclass(frozen=True)
class LoadedModel:
    """The model of a checkpoint, and what it was made by."""

    module: EncoderDecoder  # in eval mode
    config: Any  # its own options
    sizes: VocabularySizes
    pair: LanguagePair
    tree: dict[str, Any]  # the configuration of its training, as a plain tree


def load_model(path: str | Path, device: torch.device) -> LoadedModel:
    """The model of a checkpoint (or run folder)."""
    checkpoint = resolve(path)
    stored = read_checkpoint(checkpoint)
    tokenizer = tokenizer_folder(checkpoint)
    pair = LanguagePair.load(tokenizer)
    if stored.info.made.get("vocabularies", pair.digest()) != pair.digest():
        raise DataError(
            f"{checkpoint} was trained with other vocabularies than those of {tokenizer}; put back the tokenizer/ of "
            f"its run or corpus folder"
        )
    sizes = VocabularySizes(len(pair.source.vocabulary), len(pair.target.vocabulary), pair.shared)
    config = component_from_plain(
        "model",
        stored.config.get("model"),
        origin=str(checkpoint / "config.yaml"),
        user_dir=stored.config.get("user_dir"),
    )
    model = models.build(config, sizes)
    load_parameters(model, stored.model, str(checkpoint))
    return LoadedModel(model.to(device).eval(), config, sizes, pair, stored.config)
