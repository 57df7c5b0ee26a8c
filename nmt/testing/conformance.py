"""The laws that every model obeys, as tests. For a plugin's author:

    from nmt.testing import conformance

    @pytest.mark.parametrize("law", conformance.LAWS, ids=str)
    def test_my_model(law):
        law(conformance.subject("my_model"))        # a registered name, or a preset

or ``conformance.check("my_model")`` for all of them at once. The configuration's ``shrink()`` gives the small sizes.
A model that breaks a law works in some tests and fails in some searches, batches or resumed runs: mend the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nmt.testing import model_laws, search_laws, training_laws
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


def _law(verify: Callable[[Subject], None]) -> Law:
    return Law(verify.__name__, (verify.__doc__ or "").split("\n")[0], verify)


LAWS: tuple[Law, ...] = tuple(
    _law(verify)
    for verify in (
        model_laws.padding_never_matters,
        model_laws.the_future_is_hidden,
        model_laws.steps_equal_teacher_forcing,
        model_laws.rows_commute_with_steps,
        model_laws.attention_is_a_distribution,
        model_laws.a_shortlist_selects_columns,
        model_laws.sentences_have_shortlists_of_their_own,
        search_laws.batch_mates_never_matter,
        search_laws.forced_scoring_equals_search,
        search_laws.a_beam_of_one_is_greedy,
        search_laws.a_wide_beam_is_exhaustive,
        training_laws.a_checkpoint_holds_the_model,
        training_laws.every_parameter_learns,
        training_laws.layers_stand_alone,
        training_laws.layers_can_run_again,
        training_laws.training_resumes_exactly,
        training_laws.parameters_follow_the_pieces,
    )
)


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
