"""Parameters in the memory of torch that models of one base share: an adapter changes only some of them."""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch
from torch import nn

from nmt.interface import EncoderDecoder
from nmt.models.loading import TranslatingModel

_shared = WeakValueDictionary[tuple[str, str, torch.device, torch.dtype], nn.Parameter]()


def share_parameters(module: EncoderDecoder, model: TranslatingModel) -> None:
    """Replace the parameters that ``model`` has in common with models in memory by theirs. ``module``: for inference."""
    if model.checksum is None:
        return
    for name, parameter in [*module.named_parameters()]:
        place, _, own_name = name.rpartition(".")
        owner = module.get_submodule(place)
        if isinstance(owner, nn.RNNBase) or not model.is_of_base(
            name
        ):  # cuDNN wants the weights of an RNN in one block
            continue
        key = (model.checksum, name, parameter.device, parameter.dtype)
        shared = _shared.setdefault(key, parameter)
        if shared is not parameter:
            setattr(owner, own_name, shared)
