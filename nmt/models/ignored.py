"""Find options of a model that have no effect in it: a variant replaces the part that reads them, or another option switches
that part off."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from nmt.config.option import default_of
from nmt.models import models

if TYPE_CHECKING:
    from nmt.interface import EncoderDecoder, VocabularySizes


def build_model(config: Any, sizes: VocabularySizes) -> EncoderDecoder:
    """Build a model that knows its options (``built_from``). Its ``ignored`` options include those off their defaults that
    its construction never reads.

    A model that keeps its configuration may read an option later, so none is added for it.
    """
    kind, read = type(config), set[str]()

    def noting(self: Any, name: str) -> Any:
        read.add(name)
        return kind if name == "__class__" else object.__getattribute__(self, name)

    # The copy is of a subclass that records each attribute read. It reports the original class, which ``replace`` calls.
    watched = copy.copy(config)
    object.__setattr__(
        watched, "__class__", type(kind.__name__, (kind,), {"__slots__": (), "__getattribute__": noting})
    )
    model = models.builder(kind)(watched, sizes)
    object.__setattr__(watched, "__class__", kind)
    model.built_from = config, sizes
    if not any(value is watched for module in model.modules() for value in vars(module).values()):
        model.ignored = (*model.ignored, *_unread(config, read))
    return model


def _unread(config: Any, read: set[str]) -> Iterator[str]:
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name not in read and value != default_of(field):
            yield f"model.{field.name}={spelled(value)}"


def without_effect(ignored: Sequence[str]) -> str:
    """Return a sentence about ``EncoderDecoder.ignored``."""
    return f"{', '.join(ignored)} {'has' if len(ignored) == 1 else 'have'} no effect in this model"


def spelled(value: Any) -> str:
    """Return a value of an option as the command line writes it."""
    if isinstance(value, Enum):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)
