"""Loading models from checkpoints."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nmt.config.plain import component_from_plain
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import VocabularySizes
from nmt.errors import DataError, UsageError
from nmt.hub import checkpoint_at
from nmt.models.ignored import build_model, without_effect
from nmt.storage.arrays import Numbers
from nmt.storage.checkpoints import CheckpointInfo, load_parameters, verify_checkpoint
from nmt.storage.run_folder import CONFIG, MODEL, tokenizer_folder
from nmt.storage.tensor_file import mapped_tensors, read_tensors

if TYPE_CHECKING:
    from nmt.devices import DeviceLike
    from nmt.interface import EncoderDecoder


logger = logging.getLogger("nmt.models")


def architecture(section: Any) -> Any:
    """Return the options of a model that its predictions depend on: all except dropout."""
    if not isinstance(section, dict):
        return section
    return {key: architecture(value) for key, value in section.items() if "dropout" not in key}


class TranslatingModel(Protocol):
    """What an engine reads of a model: one of a folder, or one in memory. Only ``module`` needs torch."""

    @property
    def config(self) -> Any:
        """The options of the model; None: unknown."""

    @property
    def sizes(self) -> VocabularySizes: ...

    @property
    def pair(self) -> LanguagePair: ...

    @property
    def origin(self) -> str:
        """Name of the model, for messages."""

    @property
    def arrays(self) -> Mapping[str, Numbers]:
        """Parameters as arrays, which the engine must not change."""

    @property
    def module(self) -> EncoderDecoder:
        """The module in eval mode, on the device of the engine."""


@dataclass(frozen=True)
class LoadedModel:
    """The model of a checkpoint with its configuration and tokenizers. Only ``module`` needs torch."""

    path: Path  # of the checkpoint
    tree: dict[str, Any]  # the configuration of its training, as a plain tree
    info: CheckpointInfo
    device: DeviceLike  # of the module
    config: Any  # the options of the model
    sizes: VocabularySizes
    pair: LanguagePair

    @property
    def origin(self) -> str:
        """The checkpoint, for messages."""
        return str(self.path)

    @cached_property
    def arrays(self) -> Mapping[str, Numbers]:
        """Parameters as views of the file, which processes share; bfloat16 is widened to float32."""
        return mapped_tensors(self.path / MODEL)

    @cached_property
    def module(self) -> EncoderDecoder:
        """Return the module in eval mode; warn of options that have no effect in it."""
        from nmt.models.building import build_within

        tensors = read_tensors(self.path / MODEL)
        size = sum(tensor.nbytes for tensor in tensors.values())
        build = functools.partial(build_model, self.config, self.sizes)
        model = build_within(build, len(tensors), size, self.origin)
        if model.ignored:
            logger.warning("%s: %s", self.origin, without_effect(model.ignored))
        load_parameters(model, tensors, self.origin)
        return model.to(self.device).eval()


@dataclass(frozen=True)
class CopiedModel:
    """A copy of a model in memory, in eval mode: a model in training translates without being disturbed."""

    module: EncoderDecoder
    pair: LanguagePair
    config: Any
    origin: str = "the model"

    @classmethod
    def of(cls, model: EncoderDecoder, pair: LanguagePair, device: DeviceLike) -> CopiedModel:
        """Copy a model to a device."""
        from nmt.models.building import require_vocabularies, undescribed_part

        require_vocabularies(model, pair.sizes)
        is_described = undescribed_part(model) is None
        config = model.built_from[0] if model.built_from is not None and is_described else None
        return cls(copy.deepcopy(model).to(device).eval(), pair, config)

    @property
    def sizes(self) -> VocabularySizes:
        return self.pair.sizes

    @cached_property
    def arrays(self) -> Mapping[str, Numbers]:
        """Parameters as arrays, in float32; on a CPU they are views of the copy."""
        state = self.module.state_dict().items()
        return {name: (part.float() if part.is_floating_point() else part).cpu().numpy() for name, part in state}


def load_model(path: str | Path, device: DeviceLike) -> LoadedModel:
    """Load the model of a checkpoint or run folder, or of the hub."""
    checkpoint = checkpoint_at(path)
    tree, info = verify_checkpoint(checkpoint)
    tokenizer = tokenizer_folder(checkpoint)
    pair = LanguagePair.load(tokenizer)
    if info.made.get("vocabularies", pair.digest()) != pair.digest():
        raise DataError(
            f"{checkpoint} and {tokenizer} have different vocabularies; restore the tokenizer/ of its run or corpus "
            f"folder"
        )
    return LoadedModel(checkpoint, tree, info, device, _options_of(checkpoint, tree), pair.sizes, pair)


def _options_of(checkpoint: Path, tree: dict[str, Any]) -> Any:
    """Return the model options of a checkpoint."""
    origin = str(checkpoint / CONFIG)
    try:
        return component_from_plain("model", tree.get("model"), origin=origin, user_dir=tree.get("user_dir"))
    except UsageError as error:
        message = str(error)
        raise UsageError(message if message.startswith(origin) else f"{origin}: {message}") from None
