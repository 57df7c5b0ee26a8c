"""Models from disk: what translates, and what others learn from or start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config.plain import component_from_plain
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import VocabularySizes
from nmt.errors import DataError
from nmt.models import models
from nmt.storage.checkpoints import MappedCheckpoint, Numbers, load_parameters, map_checkpoint
from nmt.storage.run_folder import resolve, tokenizer_folder

if TYPE_CHECKING:
    from nmt.devices import Device
    from nmt.interface import EncoderDecoder


def architecture(section: Any) -> Any:
    """Of the options of a model, those that its predictions depend on: all but what is dropped in training."""
    if not isinstance(section, dict):
        return section
    return {key: architecture(value) for key, value in section.items() if "dropout" not in key}


@dataclass(frozen=True)
class LoadedModel:
    """The model of a checkpoint, and what it was made by. Whoever needs no ``module`` needs no torch."""

    checkpoint: MappedCheckpoint
    device: Device  # of the module
    config: Any  # the model's own options
    sizes: VocabularySizes
    pair: LanguagePair

    @property
    def tree(self) -> dict[str, Any]:
        """The configuration of its training, as a plain tree."""
        return self.checkpoint.config

    @property
    def origin(self) -> str:
        """The checkpoint, for messages."""
        return str(self.checkpoint.path)

    @property
    def arrays(self) -> Mapping[str, Numbers]:
        """The parameters by their names in the module's state, mapped from the disk."""
        return self.checkpoint.arrays

    @cached_property
    def module(self) -> EncoderDecoder:
        """In eval mode."""
        model = models.build(self.config, self.sizes)
        load_parameters(model, self.checkpoint.tensors(), self.origin)
        return model.to(self.device).eval()


def load_model(path: str | Path, device: Device) -> LoadedModel:
    """The model of a checkpoint (or run folder)."""
    checkpoint = resolve(path)
    stored = map_checkpoint(checkpoint)
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
    return LoadedModel(stored, device, config, sizes, pair)
