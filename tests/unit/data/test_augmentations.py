"""What each augmentation makes of a pair, and how they are chosen."""

from __future__ import annotations

from random import Random

import pytest

from nmt.data.augmentations import augmentations, chosen
from nmt.errors import NMTError

PAIR = "The red house is big .", "Das rote Haus ist groß!"


def change(item: str, pair: tuple[str, str] = PAIR, seed: int = 1) -> tuple[str, str]:
    (augment,) = chosen([item])
    return augment.change(*pair, Random(seed))


def test_all_of_them_are_registered() -> None:
    names = {"upper_case", "title_case", "typos", "drop_final_punctuation", "noise_lines"}
    assert names <= set(augmentations.names())


@pytest.mark.parametrize("name", augmentations.names())
def test_the_same_numbers_make_the_same_change(name: str) -> None:
    assert change(f"{name}=1", seed=3) == change(f"{name}=1", seed=3) != PAIR


def test_capitals() -> None:
    assert change("upper_case=1") == ("THE RED HOUSE IS BIG .", "DAS ROTE HAUS IST GROSS!")
    assert change("title_case=1", ("the  (red) McDonald", "élan  zu\u00a0zweit")) == (
        "The  (red) McDonald",
        "Élan  Zu\u00a0Zweit",
    )


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Big .", "Groß!", ("Big", "Groß")),
        ("Really?! ", "本当ですか？", ("Really", "本当ですか")),
        ("No end", "Ende.", ("No end", "Ende.")),
        ("v1.2", "v1.2", ("v1.2", "v1.2")),
    ],
)
def test_final_punctuation_goes_if_both_sides_have_some(source: str, target: str, expected: tuple[str, str]) -> None:
    assert change("drop_final_punctuation=1", (source, target)) == expected


def test_typos_change_a_word_of_the_source_at_least_and_the_target_never() -> None:
    for seed in range(50):
        source, target = change("typos=1:words=0", ("houses", "Häuser"), seed)
        assert target == "Häuser" and abs(len(source) - 6) <= 1
    assert len({change("typos=1:words=0", ("houses", "Häuser"), seed)[0] for seed in range(200)}) > 15
    one = [change("typos=1:words=0", seed=seed)[0].split(" ") for seed in range(30)]
    assert all(len(set(words) & set(PAIR[0].split(" "))) >= 4 for words in one)
    many = [change("typos=1:words=1", seed=seed)[0].split(" ") for seed in range(30)]
    assert sum(len(set(words) & set(PAIR[0].split(" "))) for words in many) < 30 * 4


def test_noise_is_the_same_on_both_sides_and_has_known_letters() -> None:
    for seed in range(30):
        source, target = change("noise_lines=1:words=3:letters=2", seed=seed)
        words = source.split(" ")
        assert source == target and 1 <= len(words) <= 3 and all(1 <= len(word) <= 2 for word in words)
        assert set("".join(words)) <= set("".join(PAIR))


def test_shares_and_their_order_are_as_given() -> None:
    several = chosen(["typos=0.25", "upper_case=0.05"])
    assert [(augment.name, augment.share) for augment in several] == [("typos", 0.25), ("upper_case", 0.05)]


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ("uper_case=0.1", "did you mean 'upper_case'"),
        ("typos", "'typos' needs the fraction of pairs .* such as typos=0.05"),
        ("typos=x", "needs the fraction of pairs"),
        ("typos=0", "above 0 and at most 1"),
        ("typos=1.5", "above 0 and at most 1"),
        ("typos=0.1:word=0.2", r"no option 'word' \(did you mean 'words'\?\); it has words"),
        ("typos=0.1:words", "no option 'words'|no option ''|did you mean 'words'"),
        ("typos=0.1:words=many", "words=many must be of type float"),
        ("typos=0.1:words=2", "words=2.0 of typos must be at least 0 and at most 1"),
        ("upper_case=0.1:words=2", "upper_case has no option 'words'; it has none"),
        ("noise_lines=0.1:words=0", "noise_lines.words=0 must be"),
    ],
)
def test_what_cannot_be_is_refused(item: str, complaint: str) -> None:
    with pytest.raises(NMTError, match=complaint) as refused:
        chosen([item])
    assert refused.value.exit_status == 2
