"""Which model a request means."""

from __future__ import annotations

import pytest

from nmt.errors import UsageError
from nmt.serving.app import language_names
from nmt.serving.models import Models, ServedModel, names_of
from nmt.serving.refusals import Refused

DE_EN, DE_FR, EN_DE = (ServedModel(f"{a}-{b}", a, b, "beam") for a, b in (("de", "en"), ("de", "fr"), ("en", "de")))
SECOND = ServedModel("second", "de", "en", "greedy")


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a"], ["a"]),
        (["runs/a/", "runs/b"], ["a", "b"]),
        (["x/best", "y/best", "z"], ["x/best", "y/best", "z"]),
        (["runs/a:runs/b", "runs/a"], ["a:b", "a"]),
    ],
)
def test_a_model_is_called_like_its_folder_if_no_other_is(paths: list[str], names: list[str]) -> None:
    assert names_of(paths) == dict(zip(names, paths))


def test_languages_of_one_name_have_their_codes() -> None:
    targets = {"eng_Latn": ["zho_Hans", "zho_Hant", "de_DE"], "de_DE": ["ace_Arab", "slk_Latn", "no"]}
    assert language_names(targets) == {
        "eng_Latn": "English",
        "de_DE": "German",
        "zho_Hans": "Chinese (zho_Hans)",
        "zho_Hant": "Chinese (zho_Hant)",
        "ace_Arab": "ace_Arab",
        "slk_Latn": "Slovak",
        "no": "Norwegian",
    }


@pytest.mark.parametrize(("paths", "sentence"), [([], "name the models"), (["a", "b", "a"], "names a twice")])
def test_no_model_and_the_same_one_twice_are_refused(paths: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        names_of(paths)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("de", "fr", None), DE_FR),
        ((None, "fr", None), DE_FR),
        (("en", None, None), EN_DE),
        (("auto", "fr", None), DE_FR),
        (("de", "en", None), DE_EN),
        ((None, None, "second"), SECOND),
        (("de", "en", "second"), SECOND),
    ],
)
def test_what_a_request_says_chooses_and_the_first_of_a_direction_answers(
    words: tuple[str | None, str | None, str | None], found: ServedModel
) -> None:
    assert Models((DE_EN, DE_FR, EN_DE, SECOND)).find(*words) == found


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (
            ("fr", None, None),
            404,
            "no model translates from fr to any language; available: de to en, de to fr, en to de",
        ),
        ((None, "en", "de-fr"), 404, "model 'de-fr' does not translate from any language to en"),
        ((None, None, "de_fr"), 404, "unknown model 'de_fr' (did you mean 'de-fr'?)"),
        (("de", None, None), 422, "give the source and the target language"),
    ],
)
def test_what_fits_no_model_or_several_directions_is_refused(
    words: tuple[str | None, str | None, str | None], status: int, sentence: str
) -> None:
    with pytest.raises(Refused) as refused:
        Models((DE_EN, DE_FR, EN_DE)).find(*words)
    assert (refused.value.status, sentence in refused.value.sentence) == (status, True)


def test_a_single_direction_needs_no_words() -> None:
    assert Models((DE_EN, SECOND)).find() == DE_EN


def test_the_only_source_is_known_and_several_are_not_guessed() -> None:
    assert Models((DE_EN, DE_FR)).only_source() == "de"
    with pytest.raises(Refused, match="does not detect languages"):
        Models((DE_EN, EN_DE)).only_source()
