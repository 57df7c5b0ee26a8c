"""Loading models from checkpoints."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config.plain import component_from_plain
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import VocabularySizes
from nmt.errors import DataError, UsageError
from nmt.models.ignored import build_model, without_effect
from nmt.storage.arrays import Numbers
from nmt.storage.checkpoints import CheckpointInfo, load_parameters, verify_checkpoint
from nmt.storage.run_folder import CONFIG, MODEL, resolve, tokenizer_folder
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


def load_model(path: str | Path, device: DeviceLike) -> LoadedModel:
    """Load the model of a checkpoint or run folder."""
    checkpoint = resolve(path)
    tree, info = verify_checkpoint(checkpoint)
    tokenizer = tokenizer_folder(checkpoint)
    pair = LanguagePair.load(tokenizer)
    if info.made.get("vocabularies", pair.digest()) != pair.digest():
        raise DataError(
            f"{checkpoint} and {tokenizer} have different vocabularies; restore the tokenizer/ of its run or corpus "
            f"folder"
        )
    sizes = VocabularySizes(len(pair.source.vocabulary), len(pair.target.vocabulary), pair.shared)
    return LoadedModel(checkpoint, tree, info, device, _options_of(checkpoint, tree), sizes, pair)


def _options_of(checkpoint: Path, tree: dict[str, Any]) -> Any:
    """Return the model options of a checkpoint."""
    origin = str(checkpoint / CONFIG)
    try:
        return component_from_plain("model", tree.get("model"), origin=origin, user_dir=tree.get("user_dir"))
    except UsageError as error:
        message = str(error)
        raise UsageError(message if message.startswith(origin) else f"{origin}: {message}") from None
