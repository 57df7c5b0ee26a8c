"""fairseq 0.12.2 on Python 3.11, whose dataclasses refuse an instance as a default.

python fairseq_command.py preprocess|train|generate ARGUMENTS
"""

import dataclasses
import importlib
import sys

_dataclass = dataclasses.dataclass


def _tolerant(cls=None, /, **options):
    """``dataclass``, with a factory in place of a default that is an instance of one."""

    def made(cls):
        for name in cls.__dict__.get("__annotations__", {}):
            default = cls.__dict__.get(name)
            if dataclasses.is_dataclass(default) and not isinstance(default, type):
                setattr(cls, name, dataclasses.field(default_factory=lambda default=default: default))
        return _dataclass(cls, **options)

    return made if cls is None else made(cls)


if __name__ == "__main__":
    dataclasses.dataclass = _tolerant
    command = sys.argv.pop(1)
    sys.argv[0] = f"fairseq-{command}"
    importlib.import_module(f"fairseq_cli.{command}").cli_main()
