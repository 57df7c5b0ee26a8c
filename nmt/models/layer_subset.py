"""Some layers of a model as a smaller model: Fan et al. 2020 (LayerDrop), arXiv:1909.11556, section 3.2."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import replace

from nmt.errors import UsageError
from nmt.models.loading import LoadedModel, options_of

_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.*)")


def with_layers(loaded: LoadedModel, encoder: Sequence[int], decoder: Sequence[int]) -> LoadedModel:
    """Return a model with some of its layers, counted from 1; empty: all."""
    kept = {"encoder": encoder, "decoder": decoder}
    for stack, layers in kept.items():
        if not isinstance(layers, Sequence) or not all(isinstance(layer, int) for layer in layers):
            raise UsageError(
                f"{stack}_layers_to_keep={layers!r} is not a list of layer numbers; give one, such as [1, 3]"
            )
    if not any(kept.values()):
        return loaded
    counts = {"encoder": 0, "decoder": 0}
    for match in filter(None, map(_LAYER.fullmatch, loaded.arrays)):
        counts[match[1]] = max(counts[match[1]], int(match[2]) + 1)
    tree = copy.deepcopy(loaded.tree)
    numbers: dict[tuple[str, int], int] = {}
    for stack, layers in kept.items():
        if layers and tree["model"].get(f"{stack}_layers") != counts[stack]:
            raise UsageError(f"--{stack}-layers-to-keep: the {stack} of {loaded.origin} cannot drop layers; omit it")
        for layer in layers:
            if not 1 <= layer <= counts[stack] or list(layers).count(layer) > 1:
                raise UsageError(
                    f"--{stack}-layers-to-keep {','.join(map(str, layers))}: name each layer once, from 1 to {counts[stack]}"
                )
        chosen = sorted(layers) or range(1, counts[stack] + 1)
        numbers |= {(stack, layer - 1): number for number, layer in enumerate(chosen)}
        if layers:
            tree["model"][f"{stack}_layers"] = len(layers)
    names = {}
    for name in loaded.arrays:
        of_layer = _LAYER.fullmatch(name)
        if of_layer is None:
            names[name] = name
        elif (number := numbers.get((of_layer[1], int(of_layer[2])))) is not None:
            names[f"{of_layer[1]}.layers.{number}.{of_layer[3]}"] = name
    try:
        options = options_of(loaded.path, tree)
    except UsageError as error:
        raise UsageError(
            f"{loaded.origin}: the layers to keep do not form a valid model ({error}); keep other layers"
        ) from None
    info = replace(loaded.info, scores={})  # those of all layers
    return replace(loaded, tree=tree, info=info, config=options, names=names)
