"""Where in attention alignments are read, and which place is chosen."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nmt
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.data.vocabulary import EOS, Ints
from nmt.engines.model_engine import ModelEngine
from nmt.errors import DataError, DeviceError, UsageError
from nmt.models import models
from nmt.models.recurrent.config import AttentionKind, BridgeKind
from nmt.models.transformer.config import PositionKind
from nmt.scoring import TextOptions, scorers
from nmt.testing.subjects import subject
from nmt.translation import Translator, aligning
from nmt.translation.aligning import MEAN, Aligner, AlignmentHead, HeadChoice, most_attended
from nmt.translation.alignment_choice import agreements, error_rates, read_gold_lines, reversed_gold
from nmt.translation.word_alignment import selection_pairs
from tests.tiny_models import SIZES_WITH_ATTENTION, in_english, some_lines, tiny_pair, write_tiny_model

pytestmark = pytest.mark.slow  # the models take seconds

WRITTEN = AlignmentHead(1, 1, shift=False)
READ = AlignmentHead(1, 1, shift=True)


def maps_of(*heads: list[list[float]]) -> list[torch.Tensor]:
    """One layer of one sentence, [1, H, T, S]."""
    return [torch.tensor([heads])]


def aligned(
    maps: list[torch.Tensor], source: list[range], target: list[range], places: list[AlignmentHead], count: int = 2
) -> list[list[int]]:
    return [row.tolist() for row in most_attended(maps, [source], [target], [count], places)[0]]


ONE, TWO, BOTH, NONE = range(1), range(1, 2), range(2), range(0)
# Rows: two pieces and the end; columns: two pieces and the end.
CROSSED = [[0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]


def test_a_word_is_aligned_to_what_it_attends_to_most_in_the_row_that_is_asked_for() -> None:
    assert aligned(maps_of(CROSSED), [ONE, TWO], [ONE, TWO], [WRITTEN, READ]) == [[1, 0], [0, -1]]


def test_the_mean_of_the_heads_is_a_place_of_its_own() -> None:
    other = [[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]]
    places = [AlignmentHead(1, 1, False), AlignmentHead(1, 2, False), AlignmentHead(1, MEAN, False)]
    assert aligned(maps_of(CROSSED, other), [ONE, TWO], [ONE, TWO], places) == [[1, 0], [0, -1], [0, 0]]


def test_layers_are_counted_from_one() -> None:
    upright = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    maps = [*maps_of(CROSSED), *maps_of(upright)]
    assert aligned(maps, [ONE, TWO], [ONE, TWO], [AlignmentHead(2, 1, False), AlignmentHead(1, 1, False)]) == [
        [0, 1],
        [1, 0],
    ]


def test_pieces_of_a_source_word_are_summed_and_those_of_a_target_word_averaged() -> None:
    weights = [[0.3, 0.3, 0.4, 0.0], [0.0, 0.1, 0.9, 0.0], [0.0, 0.0, 0.0, 1.0]]
    assert aligned(maps_of(weights), [ONE, ONE, TWO], [ONE, TWO], [WRITTEN]) == [[0, 1]]
    assert aligned(maps_of(weights), [ONE, ONE, TWO], [ONE, ONE], [WRITTEN], 1) == [[1]]


def test_what_attends_most_to_no_word_stays_unaligned() -> None:
    weights = [[0.5, 0.4, 0.1], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]]
    assert aligned(maps_of(weights), [NONE, ONE], [ONE, TWO], [WRITTEN]) == [[-1, -1]]
    assert aligned(maps_of(weights), [ONE, TWO], [ONE, TWO], [WRITTEN]) == [[0, -1]]


def test_a_piece_across_words_shares_what_it_is_looked_at() -> None:
    weights = [[0.5, 0.4, 0.1], [0.5, 0.1, 0.4], [0.0, 0.0, 1.0]]
    assert aligned(maps_of(weights), [BOTH, range(2, 3)], [ONE, TWO], [WRITTEN]) == [[2, -1]]
    assert aligned(maps_of(weights), [ONE, TWO], [BOTH, range(2, 3)], [WRITTEN], 3) == [[0, 0, 0]]


def test_words_without_pieces_stay_unaligned() -> None:
    assert aligned(maps_of(CROSSED), [TWO, NONE], [TWO, NONE], [WRITTEN], 3) == [[-1, -1, -1]]
    assert aligned(maps_of(CROSSED), [ONE, TWO], [ONE], [WRITTEN], 3) == [[1, -1, -1]]


# Choosing: six places of two sentences, by hand. Rows: places; columns: target words.
RIGHT, WRONG, LAZY = [[1, 0, 2], [0, 1]], [[0, 1, 2], [1, 0]], [[-1, -1, -1], [-1, -1]]
GOLD = ["0-1 1-0 2-2 2?1", "0-0 1-1"]
PAIRS = [("a b c", "A B C"), ("a b", "A B")]


def places_of(*found: list[list[int]]) -> list[Ints]:
    return [np.array(rows) for rows in zip(*found)]


def test_the_place_that_is_right_has_the_least_error_rate() -> None:
    rates = error_rates(places_of(WRONG, RIGHT, LAZY), read_gold_lines(GOLD, PAIRS, "gold"))
    assert rates.argmin() == 1 and rates[1] == 0.0 and rates[2] == 1.0 and rates[0] == pytest.approx(0.8)


@given(st.lists(st.lists(st.integers(-1, 2), min_size=3, max_size=3), min_size=2, max_size=2))
def test_error_rates_are_those_of_the_metric(found: list[list[int]]) -> None:
    lines = [" ".join(f"{s}-{t}" for t, s in enumerate(row) if s >= 0) for row in found]
    metric = scorers.build(scorers.config_class("aer")(), TextOptions())
    gold = ["0-1 1-0 2-2 2?1", "0-0 1p1 2-2"]
    of_metric = metric(lines, [gold]).value
    pairs = [("a b c", "A B C")] * 2
    assert 100 * error_rates(places_of(found), read_gold_lines(gold, pairs, "gold"))[0] == pytest.approx(of_metric)


def test_the_places_that_agree_are_found() -> None:
    """Of sentences whose words are crossed, the other direction's right place has the same links."""
    back = [[1, 0, 2], [0, 1]]
    f1 = agreements(places_of(WRONG, RIGHT, LAZY), places_of(LAZY, [[2, 0, 1], [1, 1]], back))
    assert np.unravel_index(f1.argmax(), f1.shape) == (1, 2) and f1[1, 2] == 1.0 and f1[2, 0] == 0.0


@given(st.data())
def test_agreement_is_f1_of_the_links(data: st.DataObject) -> None:
    def drawn(words: int, others: int) -> list[list[int]]:
        return data.draw(
            st.lists(st.lists(st.integers(-1, others - 1), min_size=words, max_size=words), min_size=2, max_size=2)
        )

    forward, backward = drawn(4, 3), drawn(3, 4)
    f1 = agreements([np.array(forward)], [np.array(backward)])
    for one, row in enumerate(forward):
        for other, column in enumerate(backward):
            ahead = {(s, t) for t, s in enumerate(row) if s >= 0}
            back = {(s, t) for s, t in enumerate(column) if t >= 0}
            total = len(ahead) + len(back)
            assert f1[one, other] == pytest.approx(2 * len(ahead & back) / total if total else 0.0)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["0-0", "0-2"], "gold:2: the link 0-2 is out of range: the source has 2"),
        (["3?0", "0-0"], "gold:1: the link 3-0 is out of range"),
        (["0-0", "0=0"], "gold:2: '0=0' is not a link"),
    ],
)
def test_given_alignments_are_of_words_that_exist(lines: list[str], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_gold_lines(lines, PAIRS, "gold")


def test_turned_links_are_those_of_the_other_direction() -> None:
    (gold, *_) = read_gold_lines(["0-1 1?0"], PAIRS[:1], "gold")
    assert reversed_gold(gold) == (frozenset({(1, 0)}), frozenset({(1, 0), (0, 1)}))


# Models.

LINES = [*some_lines(40, seed=5, longest=4), ""]
REFERENCES = [in_english(line) for line in LINES]


def aligner(path: Path | str) -> Aligner:
    return Aligner(Translator.load(path, "cpu", engine="torch"), str(path))


def test_every_place_of_a_model_reads_the_weights_that_attention_gives(model: Path) -> None:
    """Another way to the same: the weights of all heads of each sentence alone."""
    one = aligner(model)
    places = one.candidate_heads(HeadChoice())
    assert len(places) == one.num_layers * (one.num_heads + (one.num_heads > 1)) * 2
    found = list(one.align(zip(LINES, REFERENCES), places))
    every = nmt.attention(model, LINES, REFERENCES, device="cpu")
    for sentence, rows in zip(every, found):
        if not sentence.source:
            assert rows.shape == (len(places), 0)
            continue
        for place, row in zip(places, rows):
            heads = sentence.weights["cross"][place.layer - 1]
            weights = heads.mean(0) if place.head == MEAN else heads[place.head - 1]
            weights = weights[1:] if place.shift else weights[:-1]
            best = weights.argmax(1)
            assert row.tolist() == np.where(best == weights.shape[1] - 1, -1, best).tolist(), place


def test_a_learned_model_aligns_words_that_it_translates(transformer: Path) -> None:
    found = nmt.align(transformer, LINES, REFERENCES, device="cpu")
    right = sum((i, i) in links for line, links in zip(LINES, found) for i in range(len(line.split())))
    # 83 of 97 words with one processor that trained the model, at least 88 with another.
    assert right > 0.8 * sum(len(line.split()) for line in LINES)
    assert found[-1] == [] and all(isinstance(number, int) for links in found for link in links for number in link)


def test_neither_order_nor_windows_nor_batches_change_anything(
    transformer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = nmt.align(transformer, LINES, REFERENCES, device="cpu", layer=2, head=3, shift=False)
    monkeypatch.setattr(aligning, "_AT_ONCE", 7)
    assert (
        nmt.align(transformer, LINES, REFERENCES, device="cpu", layer=2, head=3, shift=False, max_tokens=6) == expected
    )
    turned_round = nmt.align(transformer, LINES[::-1], REFERENCES[::-1], device="cpu", layer=2, head=3, shift=False)
    assert turned_round[::-1] == expected


def test_an_ensemble_aligns_by_the_mean_of_its_models(transformer: Path, folder: Path) -> None:
    other = write_tiny_model(folder / "other", model="transformer", seed=2, **SIZES_WITH_ATTENTION["transformer"])
    found = nmt.align(f"{transformer}:{other}", LINES, REFERENCES, device="cpu", layer=3, head=2, shift=False)
    every = nmt.attention(f"{transformer}:{other}", LINES, REFERENCES, device="cpu")
    for sentence, links in zip(every, found):
        weights = sentence.weights["cross"][2, 1, :-1] if sentence.source else np.zeros((0, 1))
        best = weights.argmax(1).tolist()
        assert links == sorted((s, t) for t, s in enumerate(best) if s < weights.shape[1] - 1)


def test_models_of_other_shapes_have_no_mean(transformer: Path, folder: Path) -> None:
    other = write_tiny_model(folder / "lstm-2", model="lstm", updates=2)
    with pytest.raises(
        UsageError,
        match="differ in their numbers of layers or heads, so their attention cannot be averaged; align with one",
    ):
        aligner(f"{transformer}:{other}")


def test_a_model_without_attention_is_refused(folder: Path) -> None:
    plain = write_tiny_model(folder / "plain", updates=2, attention=AttentionKind.none, bridge=BridgeKind.copy)
    with pytest.raises(UsageError, match="has no attention to the source"):
        aligner(plain)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"layer": 4}, r"--layer 4 is out of range for the model .* \(layers that attend to the source: 3\)"),
        ({"head": 5}, r"--head 5 is out of range for the model .* \(heads in a layer: 4\)"),
        ({"layre": 1}, "align has no option 'layre' \\(did you mean 'layer'\\?\\)"),
        ({"symmetrize": "grow-diag"}, "--symmetrize: only with --reverse"),
        ({"symmetrize": "grown"}, "grown"),
        ({"gold": ["0-0"]}, "gold has 1 line, but the text has 41"),
        (
            {"gold": ["0-0"], "validation": (["ein"], ["a", "man"])},
            "1 validation source but 2 validation translations; the numbers must match",
        ),
        ({"gold": ["0-0"], "validation": (["ein"] * 2, ["a", "man"])}, "gold has 1 line, but validation has 2"),
        ({"validation": (["ein"], ["a"])}, "validation pairs select heads only with gold alignments"),
        ({"valid_src": "file"}, "valid_src is an option of nmt-align, which reads and writes files"),
    ],
)
def test_what_cannot_be_is_refused(transformer: Path, wanted: dict[str, object], said: str) -> None:
    with pytest.raises((UsageError, DataError), match=said):
        nmt.align(transformer, LINES, REFERENCES, device="cpu", **wanted)


def test_single_lines_and_unequal_lists_are_refused(transformer: Path) -> None:
    with pytest.raises(UsageError, match="put a single one in brackets"):
        nmt.align(transformer, "ein mann", "a man")
    with pytest.raises(DataError, match="1 source but 2 translations; the numbers must match"):
        nmt.align(transformer, ["ein"], ["a", "man"])


def test_what_is_fixed_stays_and_the_rest_is_chosen(transformer: Path, caplog: pytest.LogCaptureFixture) -> None:
    gold = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in LINES]
    one = aligner(transformer)
    assert {place.layer for place in one.candidate_heads(HeadChoice(layer=2))} == {2}
    assert {place.head for place in one.candidate_heads(HeadChoice(head=MEAN))} == {MEAN}
    assert one.candidate_heads(HeadChoice(3, 1, True)) == [AlignmentHead(3, 1, True)]
    with caplog.at_level(logging.INFO):
        nmt.align(transformer, LINES, REFERENCES, device="cpu", layer=2, gold=gold, valid_count=30)
    said = next(line for line in caplog.messages if "alignment error rate" in line)
    assert "--layer 2 --head" in said and said.endswith("on the first 30 pairs of the text)")


def test_the_choice_is_the_best_of_all_places(transformer: Path, caplog: pytest.LogCaptureFixture) -> None:
    gold = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in LINES]
    one = aligner(transformer)
    rates = [
        error_rates(
            list(one.align(zip(LINES, REFERENCES), [place])), read_gold_lines(gold, [*zip(LINES, REFERENCES)], "")
        )[0]
        for place in one.candidate_heads(HeadChoice())
    ]
    with caplog.at_level(logging.INFO):
        nmt.align(transformer, LINES, REFERENCES, device="cpu", gold=gold)
    assert f"(alignment error rate {100 * min(rates):.2f} %" in " ".join(caplog.messages)


def test_without_anything_to_choose_by_the_log_says_so(transformer: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        usual = nmt.align(transformer, LINES, REFERENCES, device="cpu")
    assert any(
        "--layer 3 --head 0 --no-shift" in line and "--reverse MODEL or --gold FILE" in line for line in caplog.messages
    )
    caplog.clear()
    assert nmt.align(transformer, LINES, REFERENCES, device="cpu", layer=3) == usual
    assert not any("--gold" in line for line in caplog.messages)


def test_a_batch_that_does_not_fit_is_halved(transformer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = nmt.align(transformer, LINES, REFERENCES, device="cpu", layer=1)
    attention = aligning._attention

    def short_of_memory(member, sources, targets):
        if len(sources) > 3:
            raise MemoryError
        return attention(member, sources, targets)

    monkeypatch.setattr(aligning, "_attention", short_of_memory)
    assert nmt.align(transformer, LINES, REFERENCES, device="cpu", layer=1) == expected

    def out_of_memory(member, sources, targets):
        if len(sources[0]) > 1:  # the pair of empty sentences
            raise MemoryError
        return attention(member, sources, targets)

    monkeypatch.setattr(aligning, "_attention", out_of_memory)
    with pytest.raises(
        DeviceError, match=r"line \d+ .* does not fit into the memory of cpu; lower --max-source-length"
    ):
        nmt.align(transformer, LINES, REFERENCES, device="cpu", layer=1)


def test_what_is_cut_off_stays_unaligned(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    positions = {"positions": PositionKind.learned, "max_positions": 6}
    short = write_tiny_model(folder / "short", model="transformer", updates=2, **positions)
    line = "ein mann zwei hunde laufen schnee rot"
    for options, longest in (({}, 5), ({"max_source_length": 2}, 2)):
        caplog.clear()
        one = Aligner(Translator.load(short, "cpu", engine="torch"), str(short), **options)
        (found,) = one.align([(line, in_english(line))], one.candidate_heads(HeadChoice()))
        assert found.shape[1] == 7 and found.max() in range(longest) and (found[:, 5:] == -1).all()
        assert any(f"only its first {longest} are read" in one for one in caplog.messages)


def test_a_translation_is_read_as_far_as_a_source(transformer: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = Aligner(Translator.load(transformer, "cpu", engine="torch"), str(transformer), max_source_length=3)
    (found,) = one.align([("ein mann", "a man " * 500)], one.candidate_heads(HeadChoice()))
    assert found.shape[1] == 1000 and found.max() >= 0 and (found[:, 3:] == -1).all()
    assert any("has 1000 tokens; only the first 3 are read" in line for line in caplog.messages)


def test_no_pairs_have_no_links_and_choose_nothing(transformer: Path) -> None:
    assert nmt.align(transformer, [], [], gold=[]) == []
    with pytest.raises(DataError, match="validation has no pairs"):
        nmt.align(transformer, ["ein"], ["a"], gold=[], validation=([], []))


def test_a_tag_is_no_word(folder: Path) -> None:
    words_and_tags = ("<2en>", "<2fr>", *tiny_pair().source.vocabulary.pieces[4:])
    pair = tiny_pair(words_and_tags).with_tag("en")
    model = write_tiny_model(folder / "tagged", model="transformer", pair=pair, updates=2, num_heads=1)
    one = Aligner(Translator.load(model, "cpu", engine="torch"), str(model), target_lang="fr")
    places = one.candidate_heads(HeadChoice(1, MEAN))
    for line in ("ein mann", "<2en> ein mann"):
        tagged = line.startswith("<")
        (found,) = one.align([(line, "a man")], places)
        assert found.shape == (2, 2) and set(found.ravel().tolist()) <= {-1, *range(tagged, 2 + tagged)}


def test_words_of_pieces_are_those_that_attention_joins(folder: Path) -> None:
    """Another way to the same, which knows words by the marks of their pieces."""
    tokenizer = tokenizers.build(BpeConfig(vocab_size=45)).train(iter([*LINES[:-1], *REFERENCES[:-1]] * 5), 1)
    pair = LanguagePair("de", "en", tokenizer, tokenizer, shared=True)
    model = write_tiny_model(folder / "pieces", model="transformer", pair=pair, updates=5, num_heads=1)
    assert any(len(ids) > len(line.split()) for line, ids in zip(LINES, tokenizer.encode(LINES)))
    found = nmt.align(model, LINES, REFERENCES, device="cpu", layer=1, head=1, shift=False)
    for sentence, links in zip(nmt.attention(model, LINES, REFERENCES, device="cpu"), found):
        weights = sentence.by_words().weights["cross"][0, 0, :-1] if sentence.source else np.zeros((0, 1))
        expected = {(s, t) for t, s in enumerate(weights.argmax(1).tolist()) if s < weights.shape[1] - 1}
        assert set(links) == expected


@pytest.mark.parametrize("name", [*models.names(), "lstm_luong", "lstm_bahdanau", "gnmt_4"])
def test_every_model_says_what_attention_it_has(name: str) -> None:
    """Also of empty sentences, by which its layers and heads are counted."""
    model = subject(name).model()
    engine = ModelEngine(model, "cpu", longest_source=None)
    nothing, something = [np.array([EOS])], [np.array([5, 6, EOS])]
    shapes = [
        [tuple(layer.shape[:2]) for layer in aligning._attention(engine, source, nothing)]
        for source in (nothing, something)
    ]
    assert shapes[0] == shapes[1] and all(shape == shapes[0][0] for shape in shapes[0])
    if name in ("transformer", "lstm_luong", "lstm_bahdanau", "gnmt", "conv_s2s", "lightconv", "transformer_moe"):
        assert shapes[0]


@pytest.mark.parametrize(
    ("count", "called", "words"),
    [(1, None, "on the first 1 pair of the text"), (1, "a and b", "on 1 pair of a and b"), (2, "a", "on 2 pairs of a")],
)
def test_pairs_to_choose_by_are_told_in_words(count: int, called: str | None, words: str) -> None:
    assert selection_pairs([("ein", "a")] * count, None, "gold", called).called == words
