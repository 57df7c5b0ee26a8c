"""Laws that every model must obey, as tests for authors of plugins:

    from nmt.testing import conformance

    def test_my_model():
        conformance.check("my_model")        # a registered model or a preset

The error names every broken law. ``conformance.LAWS`` lists the laws; call each with ``conformance.subject("my_model")``.
The configuration's ``shrink()`` returns small sizes. A model that breaks a law fails in some searches, batches or resumed
runs: correct the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from nmt.testing import model_laws, training_laws
from nmt.testing.subjects import Subject, subject, subjects

__all__ = ["LAWS", "Law", "Subject", "broken_laws", "check", "subject", "subjects"]


@dataclass(frozen=True)
class Law:
    """A property of models; calling it with a subject raises AssertionError if the subject breaks it."""

    name: str
    statement: str
    verify: Callable[[Subject], None]

    def __call__(self, subject: Subject) -> None:
        self.verify(subject)

    def __str__(self) -> str:
        return self.name


def _laws_of(module: ModuleType) -> list[Law]:
    """Return a law for every public function of a module; the statement is the first line of its docstring."""
    functions = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
    return [Law(f.__name__, (f.__doc__ or "").split("\n")[0], f) for f in functions if not f.__name__.startswith("_")]


LAWS = tuple(law for module in (model_laws, training_laws) for law in _laws_of(module))


def broken_laws(examined: Subject) -> dict[Law, str]:
    """Return the broken laws of a subject, each with its error. Any exception breaks the law."""
    broken = {}
    for law in LAWS:
        try:
            law(examined)
        except AssertionError as error:
            broken[law] = str(error)
        except Exception as error:
            broken[law] = f"{type(error).__name__}: {error}"
    return broken


def check(model: str | Subject) -> None:
    """Check a registered model, a preset or a subject by every law; an AssertionError lists the broken laws."""
    examined = subject(model) if isinstance(model, str) else model
    broken = broken_laws(examined)
    lines = [f"{law}: {law.statement}\n    {error}" for law, error in broken.items()]
    assert not broken, "\n".join([f"{examined} breaks {len(broken)} of {len(LAWS)} laws", *lines])
