"""The laws that every model obeys, as tests. For a plugin's author:

    from nmt.testing import conformance

    @pytest.mark.parametrize("law", conformance.LAWS, ids=str)
    def test_my_model(law):
        law(conformance.subject("my_model"))        # a registered name, or a preset

or ``conformance.check("my_model")`` for all of them at once. The configuration's ``shrink()`` gives the small sizes.
A model that breaks a law works in some tests and fails in some searches, batches or resumed runs: mend the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from nmt.testing import model_laws, training_laws
from nmt.testing.subjects import Subject, subject, subjects

__all__ = ["LAWS", "Law", "Subject", "check", "subject", "subjects"]


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
    """Every public function of a module: its name, and the first line of its docstring."""
    functions = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
    return [Law(f.__name__, (f.__doc__ or "").split("\n")[0], f) for f in functions if not f.__name__.startswith("_")]


LAWS = tuple(law for module in (model_laws, training_laws) for law in _laws_of(module))


def check(name: str) -> None:
    """Examine a registered model or a preset under every law; raises AssertionError that lists the broken ones."""
    examined = subject(name)
    broken = []
    for law in LAWS:
        try:
            law(examined)
        except Exception as error:  # a model that stops with an error breaks the law as well
            said = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            broken.append(f"{law}: {law.statement}\n    {said}")
    assert not broken, f"{name} breaks {len(broken)} of {len(LAWS)} laws\n" + "\n".join(broken)
