"""Loading models from checkpoints."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from nmt.config.choices import NumberFormat
from nmt.config.plain import component_from_plain
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import VocabularySizes
from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.hub import checkpoint_at, is_hub_name
from nmt.models.ignored import build_model, without_effect
from nmt.storage.adapted import DOWN, UP, AdaptedArrays, AdapterBase
from nmt.storage.arrays import Numbers
from nmt.storage.checkpoints import (
    PACKED,
    CheckpointInfo,
    checksums,
    load_parameters,
    require_parameters,
    verify_checkpoint,
)
from nmt.storage.files import OtherFormat
from nmt.storage.run_folder import CONFIG, MODEL, tokenizer_folder
from nmt.storage.tensor_file import mapped_tensors, read_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.devices import DeviceLike
    from nmt.interface import EncoderDecoder


T = TypeVar("T")
PACKING = 1  # version of packed weights

logger = logging.getLogger("nmt.models")


def architecture(section: Any) -> Any:
    """Return the options of a model that its predictions depend on: all except dropout."""
    if not isinstance(section, dict):
        return section
    return {key: architecture(value) for key, value in section.items() if "dropout" not in key}


class PackedFile(NamedTuple):
    """Weights in the order in which C reads them (nmt/engines/packing.py)."""

    number_format: NumberFormat
    path: Path


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
    base: LoadedModel | None = None  # the model that an adapter changes; None: this is a whole model
    names: Mapping[str, str] | None = None  # parameter name to name in the checkpoint; None: all layers are kept

    @property
    def origin(self) -> str:
        """The checkpoint, for messages."""
        return str(self.path) if self.names is None else f"{self.path} with some of its layers"

    @cached_property
    def checksum(self) -> str:
        """The checksum of its parameters, or of those of its base model; with some of the layers, another one."""
        own = checksums(self.path)[MODEL] if self.base is None else self.base.checksum
        return own if self.names is None else f"{own} {self.names}"

    def is_of_base(self, name: str) -> bool:
        """Whether a parameter is that of the base model, which an adapter does not change; true for a whole model."""
        stored = name if self.names is None else self.names[name]
        return self.base is None or (stored not in self._changed and self.base.is_of_base(stored))

    @cached_property
    def _changed(self) -> frozenset[str]:
        """The names of the parameters that the adapter changes."""
        return frozenset(name.removesuffix(UP).removesuffix(DOWN) for name in mapped_tensors(self.path / MODEL))

    @property
    def packed(self) -> PackedFile | None:
        """The file of weights that nmt-export packed for the native engine; None: the model has parameters."""
        name, version = self.info.made.get(PACKED), self.info.made.get("packing")
        if name is None:
            return None
        if version != PACKING or name not in NumberFormat.__members__:
            raise OtherFormat(f"{self.path} was packed by another version of nmt; export the original model again")
        return PackedFile(NumberFormat[name], self.path / MODEL)

    @cached_property
    def arrays(self) -> Mapping[str, Numbers]:
        """Parameters as views of the file, which processes share; bfloat16 is widened to float32."""
        require_parameters(self.path, self.info)
        return self._kept(self._whole(mapped_tensors(self.path / MODEL)))

    def _kept(self, tensors: Mapping[str, T]) -> Mapping[str, T]:
        if self.names is None:
            return tensors
        return {name: tensors[stored] for name, stored in self.names.items()}

    def _whole(self, stored: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        base = AdapterBase.of(self.info.made, self.origin)
        if base is None or self.base is None:
            return stored
        return AdaptedArrays(self.base.arrays, stored, base.alpha, self.origin)

    def whole(self, stored: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return all parameters of a model, given those that a checkpoint like this one stores: perhaps only an adapter."""
        import torch

        if self.base is None:
            return stored
        arrays = self._whole({name: tensor.numpy() for name, tensor in stored.items()})
        return {name: torch.from_numpy(np.array(arrays[name])) for name in arrays}

    @cached_property
    def module(self) -> EncoderDecoder:
        """Return the module in eval mode; warn of options that have no effect in it."""
        from nmt.models.building import build_within

        require_parameters(self.path, self.info)
        tensors = self._kept(self.whole(read_tensors(self.path / MODEL)))
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
    packed: None = None
    checksum: None = None  # its parameters are in no file

    @classmethod
    def of(cls, model: EncoderDecoder, pair: LanguagePair, device: DeviceLike) -> CopiedModel:
        """Copy a model to a device."""
        from nmt.layers.low_rank import merged
        from nmt.models.building import options_of

        model = merged(model)
        config, _ = options_of(model, pair.sizes)
        return cls(model.to(device).eval(), pair, config)

    @property
    def sizes(self) -> VocabularySizes:
        return self.pair.sizes

    @cached_property
    def arrays(self) -> Mapping[str, Numbers]:
        """Parameters as arrays, in float32; on a CPU they are views of the copy."""
        state = self.module.state_dict().items()
        return {name: (part.float() if part.is_floating_point() else part).cpu().numpy() for name, part in state}


TranslatingModel = LoadedModel | CopiedModel  # what an engine translates with


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
    options, base = options_of(checkpoint, tree), _base_of(checkpoint, info, device)
    return LoadedModel(checkpoint, tree, info, device, options, pair.sizes, pair, base)


def _base_of(checkpoint: Path, info: CheckpointInfo, device: DeviceLike) -> LoadedModel | None:
    """Load the base model of an adapter. None: the checkpoint holds a whole model."""
    base = AdapterBase.of(info.made, str(checkpoint))
    return None if base is None else load_model(find_base(base, checkpoint), device)


def find_base(base: AdapterBase, adapter: Path, *places: str) -> str:
    """Return the path of the model whose checksum ``base`` stores. It is searched in ``places``, at ``base`` in the run
    folder and in the checkpoint's parent folder, and at the two stored paths."""
    own = tokenizer_folder(adapter).parent.resolve()  # the run folder, unless the adapter was copied
    links = [str(folder / "base") for folder in (own, adapter.resolve().parent)]
    moved = [os.path.normpath(own / base.relative)] if base.relative else []
    tried, covered = dict[str, str](), set[str]()
    kind: type[NMTError] = MissingInputError
    for place in (*places, *links, base.path, *moved):
        inside = Path(place, Path(base.path).name)  # of a run folder that has a better checkpoint now
        if os.path.realpath(place) in covered:
            continue
        covered |= {os.path.realpath(place), os.path.realpath(inside)}
        for path in (place, str(inside)) if inside.is_dir() else (place,):
            try:
                stored = checksums(checkpoint_at(path)).get(MODEL)  # of its own file, if it is an adapter too
                if stored == base.sha256:
                    return path
                tried[place], kind = "another model", DataError
            except MissingInputError as error:
                tried.setdefault(place, str(error) if is_hub_name(place) else "no model")
            except NMTError as error:
                tried[place], kind = str(error), DataError
    listed = "; ".join(f"{place}: {outcome}" for place, outcome in tried.items())
    raise kind(
        f"{adapter} is an adapter, and its base model is at none of these places ({listed}); put the model that it was "
        f"trained on, or a link to it, at {links[0]}"
    )


def base_at(path: str, folder: str | Path, alpha: float) -> AdapterBase:
    """Return what an adapter in ``folder`` stores of its base model at ``path``."""
    checkpoint = checkpoint_at(path).resolve()
    sha256 = checksums(checkpoint)[MODEL]
    if is_hub_name(path):
        return AdapterBase(path, sha256, alpha)
    return AdapterBase(str(checkpoint), sha256, alpha, os.path.relpath(checkpoint, os.path.realpath(folder)))


def options_of(checkpoint: Path, tree: dict[str, Any]) -> Any:
    """Return the model options of a checkpoint."""
    origin = str(checkpoint / CONFIG)
    try:
        return component_from_plain("model", tree.get("model"), origin=origin, user_dir=tree.get("user_dir"))
    except UsageError as error:
        message = str(error)
        raise UsageError(message if message.startswith(origin) else f"{origin}: {message}") from None
