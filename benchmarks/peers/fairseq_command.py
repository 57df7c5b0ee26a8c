"""Run fairseq 0.12.2 on Python 3.11, whose dataclasses refuse the unhashable defaults of fairseq.

python fairseq_command.py preprocess|train|generate ARGUMENTS
"""

import dataclasses
import functools
import importlib
import sys

import torch

_dataclass = dataclasses.dataclass


def _tolerant(cls=None, /, **options):
    """Like ``dataclass``, but first give the defaults of ``cls`` a hash by identity."""

    def made(cls):
        for name in cls.__dict__.get("__annotations__", {}):
            default = cls.__dict__.get(name)
            kind = type(default.default if isinstance(default, dataclasses.Field) else default)
            if dataclasses.is_dataclass(kind) and kind.__hash__ is None:
                kind.__hash__ = object.__hash__
        return _dataclass(cls, **options)

    return made if cls is None else made(cls)


if __name__ == "__main__":
    dataclasses.dataclass = _tolerant
    torch.load = functools.partial(torch.load, weights_only=False)  # fairseq's checkpoints contain its configuration
    # In newer versions of torch, the kernel of a whole layer needs the type of its mask: padding.
    torch._transformer_encoder_layer_fwd = functools.partial(torch._transformer_encoder_layer_fwd, mask_type=1)
    command = sys.argv.pop(1)
    sys.argv[0] = f"fairseq-{command}"
    importlib.import_module(f"fairseq_cli.{command}").cli_main()
