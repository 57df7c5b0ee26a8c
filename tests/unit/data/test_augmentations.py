"""What each augmentation makes of a pair, and how they are chosen."""

from __future__ import annotations

from random import Random

import pytest

from nmt.data.augmentations import augmentations, chosen
from nmt.data.augmentations.word_noise import MASK
from nmt.errors import NMTError

PAIR = "The red house is big .", "Das rote Haus ist groß!"


def change(item: str, pair: tuple[str, str] = PAIR, seed: int = 1) -> tuple[str, str]:
    (augment,) = chosen([item])
    return augment.change(*pair, Random(seed))


def test_all_of_them_are_registered() -> None:
    noise = {"drop_words", "mask_words", "shuffle_words", "mask_spans", "shuffle_sentences"}
    names = {"upper_case", "title_case", "typos", "drop_final_punctuation", "noise_lines", *noise}
    assert names <= set(augmentations.names())


@pytest.mark.parametrize("name", augmentations.names())
def test_the_same_numbers_make_the_same_change(name: str) -> None:
    pair = ("The red house is big . It is old .", "Das rote Haus ist groß! Es ist alt.")
    assert change(f"{name}=1", pair, seed=4) == change(f"{name}=1", pair, seed=4) != pair


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


def test_words_are_dropped_and_masked_on_the_side_that_is_named() -> None:
    line = " ".join(map(str, range(400)))
    for name, side in ((name, side) for name in ("drop_words", "mask_words") for side in ("source", "target", "both")):
        source, target = change(f"{name}=1:words=0.25:side={side}", (line, line))
        assert (source != line, target != line) == (side != "target", side != "source")
        for changed in {source, target} - {line}:
            kept = [word for word in changed.split() if word != MASK]
            assert 250 < len(kept) < 350 and kept == sorted(kept, key=int)
            assert len(changed.split()) == (400 if name == "mask_words" else len(kept))
    assert change("drop_words=1:words=1", ("a b", "c")) == ("a b", "c"), "an empty line would have no translation"


def test_words_move_by_the_distance_at_most() -> None:
    line = " ".join(map(str, range(100)))
    moved = [int(word) for word in change("shuffle_words=1:distance=3", (line, "x"))[0].split()]
    assert sorted(moved) == list(range(100)) != moved
    assert max(abs(place - word) for place, word in enumerate(moved)) == 3


def test_spans_become_single_masks() -> None:
    line = " ".join(map(str, range(1000)))
    for words, length in ((0.3, 3.0), (0.5, 1.5), (1.0, 3.0)):
        noisy = change(f"mask_spans=1:words={words}:length={length}", (line, "x"))[0].split()
        kept = [word for word in noisy if word != MASK]
        assert len(kept) == 1000 - words * 1000 and kept == sorted(kept, key=int)
        assert not any(noisy[at] == noisy[at + 1] == MASK for at in range(len(noisy) - 1))
    spans = change("mask_spans=1:words=0.3:length=3", (line, "x"))[0].split().count(MASK)
    assert 60 < spans < 130, "300 words in spans of three words, some of which are neighbors"


def test_sentences_of_a_line_change_places() -> None:
    line = "One is here. Two? 三です。四！Five"
    lines = {change("shuffle_sentences=1", (line, line), seed)[0] for seed in range(100)}
    assert len(lines) > 50 and {tuple(sorted(line.split(" "))) for line in lines} == {
        tuple(sorted(["One", "is", "here.", "Two?", "三です。", "四！", "Five"]))
    }
    assert change("shuffle_sentences=1", (line, line))[1] == line


def test_shares_and_their_order_are_as_given() -> None:
    several = chosen(["typos=0.25", "upper_case=0.05"])
    assert [(augment.name, augment.share) for augment in several] == [("typos", 0.25), ("upper_case", 0.05)]


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ("uper_case=0.1", "did you mean 'upper_case'"),
        ("drop_words=1:words=2", "drop_words.words=2.0 must be above 0 and at most 1"),
        ("mask_spans=1:words=0", "mask_spans.words=0.0 must be above 0"),
        ("mask_words=1:side=left", "side=left"),
        ("typos", "'typos' needs the fraction of pairs .* such as typos=0.05"),
        ("typos=x", "needs the fraction of pairs"),
        ("typos=0", "above 0 and at most 1"),
        ("typos=1.5", "above 0 and at most 1"),
        ("typos=0.1:word=0.2", r"no option 'word' \(did you mean 'words'\?\); it has words"),
        ("typos=0.1:words", "typos needs a value: words=VALUE"),
        ("typos=0.1:words=many", "words=many must be of type float"),
        ("drop_words=0.1:side=left", "side=left must be one of both, source, target"),
        ("typos=0.1:words=2", "typos.words=2.0 must be at least 0 and at most 1"),
        ("upper_case=0.1:words=2", "upper_case has no option 'words'; it has none"),
        ("noise_lines=0.1:words=0", "noise_lines.words=0 must be"),
    ],
)
def test_what_cannot_be_is_refused(item: str, complaint: str) -> None:
    with pytest.raises(NMTError, match=complaint) as refused:
        chosen([item])
    assert refused.value.exit_status == 2
