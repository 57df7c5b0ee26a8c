"""The parameters of a low-rank adapter, and of its base model with the adapter (nmt.layers.low_rank)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nmt.errors import DataError
from nmt.storage.arrays import Numbers

ADAPTER = "adapter"  # fact of a manifest: the ``AdapterBase`` of a checkpoint that holds an adapter alone
DOWN, UP = ".lora_down", ".lora_up"  # after the name of an adapted weight: A [rank, inputs], B [outputs, rank]


@dataclass(frozen=True)
class AdapterBase:
    """The model that an adapter was trained on."""

    path: str  # absolute, of its checkpoint, or its name on the hub
    sha256: str  # of its parameters
    alpha: float  # numerator of the scale of the adapter, whose denominator is the rank
    relative: str = ""  # path from the folder of the adapter, to move both together; empty: unknown

    @classmethod
    def of(cls, made: Mapping[str, Any], origin: str) -> AdapterBase | None:
        """Return the base that a manifest names; None: the checkpoint holds a whole model."""
        facts = made.get(ADAPTER)
        if facts is None:
            return None
        try:
            relative = str(facts.get("relative", ""))
            return cls(str(facts["path"]), str(facts["sha256"]), float(facts["alpha"]), relative)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the manifest of {origin} is damaged: {error!r}") from None

    def facts(self) -> dict[str, Any]:
        return {ADAPTER: asdict(self)}


class AdaptedArrays(Mapping[str, Numbers]):
    """The parameters of a base model with those of an adapter: W + scale * B A. Each is computed when it is first read."""

    def __init__(self, base: Mapping[str, Numbers], adapter: Mapping[str, Numbers], alpha: float, origin: str) -> None:
        """``alpha``: numerator of the scale, whose denominator is the rank; ``origin``: the adapter, for messages."""
        self._base, self._adapter, self._alpha = base, adapter, alpha
        self._read = dict[str, Numbers]()
        for name in adapter:
            weight = name.removesuffix(UP).removesuffix(DOWN)
            if weight not in base or (weight == name and adapter[name].shape != base[name].shape):
                raise DataError(
                    f"{origin} has {name}, which its base model lacks; use the base model that it was trained on"
                )
            if weight != name and not self._fits(weight):
                raise DataError(f"{origin}: {name} does not fit the base model; use the one that it was trained on")

    def _fits(self, weight: str) -> bool:
        down, up, shape = self._adapter.get(weight + DOWN), self._adapter.get(weight + UP), self._base[weight].shape
        if down is None or up is None or len(shape) < 2:
            return False
        return (len(up), down.shape[1], len(down)) == (shape[0], int(np.prod(shape[1:])), up.shape[1])

    def __getitem__(self, name: str) -> Numbers:
        if name not in self._adapter and name + UP not in self._adapter:
            return self._base[name]
        if name not in self._read:
            # a copy of a whole parameter: what is mapped is the base model's, for engines that share it
            self._read[name] = self._sum(name) if name + UP in self._adapter else self._adapter[name].copy()
        return self._read[name]

    def _sum(self, name: str) -> Numbers:
        weight = self._adapter.get(name, self._base[name])  # in the adapter if it was trained as well
        down, up = self._adapter[name + DOWN], self._adapter[name + UP]
        wide = np.result_type(weight, np.float32)
        product = (self._alpha / len(down)) * up.astype(wide) @ down.astype(wide)
        result: Numbers = weight + product.reshape(weight.shape)
        return result

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)
