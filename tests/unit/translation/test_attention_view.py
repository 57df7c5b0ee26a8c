"""All attention weights of a model, as plain data."""

from __future__ import annotations

import dataclasses
import html
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nmt
from nmt.data.batching.batch import collate
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.vocabulary import EOS, UNK
from nmt.errors import DataError, DeviceError, UsageError
from nmt.models.recurrent.config import AttentionKind, BridgeKind
from nmt.reporting.attention_page import ShownAttention, attention_page
from nmt.reporting.sentence_attention import KINDS, SentenceAttention
from nmt.search.requests import Request
from nmt.translation import Line, Translator, attention_view
from nmt.translation.attention_view import embeddings, module_of, positions
from nmt.translation.source_windows import SourcePart
from tests.tiny_models import SIZES_WITH_ATTENTION, in_english, some_lines, write_tiny_model

LINES = [*some_lines(6, seed=5, longest=4), ""]


def test_each_row_sums_to_one_and_has_the_pieces_of_both_sides(model):
    translations = [in_english(line) for line in LINES]
    for line, one in zip(LINES, nmt.attention(model, LINES, translations, device="cpu")):
        assert list(one.source[:-1]) == line.split() and list(one.target[:-1]) == in_english(line).split()
        for kind, maps in one.weights.items():
            assert maps.shape[2:] == (len(one.rows(kind)), len(one.columns(kind)))
            np.testing.assert_allclose(maps.sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("transformer", {"encoder": (2, 4), "decoder": (3, 4), "cross": (3, 4)}),
        ("conv_s2s", {"cross": (2, 1)}),
        ("lstm", {"cross": (1, 1)}),
    ],
)
def test_every_layer_and_head_that_a_model_has_is_there(folder, name, shapes):
    path = write_tiny_model(folder / f"shapes-{name}", model=name, **SIZES_WITH_ATTENTION.get(name, {}))
    (one,) = nmt.attention(path, ["ein mann"], device="cpu")
    assert {kind: maps.shape[:2] for kind, maps in one.weights.items()} == shapes


def by_hand(queries, keys, heads, *, causal=False):
    """softmax(Q K^T / sqrt(d)) of projected vectors [T, D], [S, D]"""
    queries, keys = (x.view(len(x), heads, -1).transpose(0, 1) for x in (queries, keys))
    scores = queries @ keys.transpose(1, 2) / queries.size(-1) ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), float("-inf"))
    return scores.softmax(-1)


def test_weights_equal_those_computed_from_each_layers_projections(transformer):
    """The inputs of each attention are overheard; its weights are computed from them by the formula."""
    inputs: dict[str, torch.Tensor] = {}
    module = module_of(Translator.load(transformer, "cpu", engine="torch").members[0])

    def overhear(name):
        def hook(_, given):
            inputs[name] = given[0][0]

        return hook

    for stack in (module.encoder, module.decoder):
        for number, layer in enumerate(stack.layers):
            kind = "encoder" if stack is module.encoder else "decoder"
            layer.self_attention.register_forward_pre_hook(overhear((kind, number)))
            if kind == "decoder":
                layer.cross_attention.register_forward_pre_hook(overhear(("cross", number)))
                layer.cross_attention.memory.register_forward_pre_hook(overhear(("memory", number)))
    pair = Translator.load(transformer, "cpu").pair
    source, target = (
        [np.append(side.encode([text])[0], EOS)]
        for side, text in ((pair.source, "zwei hunde laufen"), (pair.target, "two dogs run"))
    )
    with torch.no_grad():
        module(collate(source, target))
    (one,) = nmt.attention(transformer, ["zwei hunde laufen"], ["two dogs run"], device="cpu")
    heads = 4
    for kind, stack in (("encoder", module.encoder), ("decoder", module.decoder), ("cross", module.decoder)):
        for number, layer in enumerate(stack.layers):
            x = inputs[kind, number]
            if kind == "cross":
                cross = layer.cross_attention
                queries = F.linear(x, cross.query.weight, cross.query.bias)
                states = inputs["memory", number]
                keys = F.linear(states, cross.memory.weight, cross.memory.bias)[:, : queries.size(1)]
            else:
                projection = layer.self_attention.projection
                queries, keys, _ = F.linear(x, projection.weight, projection.bias).chunk(3, -1)
            expected = by_hand(queries, keys, heads, causal=kind == "decoder")
            np.testing.assert_allclose(one.weights[kind][number], expected.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("which", ["transformer", "conv_s2s", "lstm"])
def test_cross_attention_is_what_nmt_generate_prints(folder, which):
    """The last layer's mean over heads; of ConvS2S the mean over layers."""
    path = write_tiny_model(folder / f"printed-{which}", model=which, **SIZES_WITH_ATTENTION.get(which, {}))
    printed = nmt.load(path, device="cpu").translations(LINES[:4], alignment=True)
    for one, other in zip(nmt.attention(path, LINES[:4], device="cpu"), printed):
        cross = one.weights["cross"]
        shown = cross.mean((0, 1)) if which == "conv_s2s" else cross[-1].mean(0)
        np.testing.assert_allclose(shown, other.hypotheses[0].attention, atol=1e-5)


def test_unknown_pieces_of_given_texts_are_shown_by_the_users_words(transformer):
    (one,) = nmt.attention(transformer, [" zwei elefanten "], ["two elephants run"], device="cpu")
    assert list(one.source) == ["zwei", "elefanten", "</s>"]
    assert list(one.target) == ["two", "elephants", "run", "</s>"]
    assert list(one.read) == ["<s>", "two", "elephants", "run"]
    assert (one.source_text, one.target_text) == ("zwei elefanten", "two elephants run")


def test_unknown_pieces_of_a_truncated_line_are_those_of_its_beginning(transformer):
    (one,) = nmt.attention(transformer, ["zwei elefanten und mann"], device="cpu", max_source_length=2)
    assert list(one.source) == ["zwei", "elefanten", "</s>"]


def test_unknown_pieces_of_a_very_long_line_are_those_of_its_beginning(transformer):
    """Only the beginning of such a line is tokenized."""
    (one,) = nmt.attention(transformer, ["zwei elefanten " + "und mann " * 100], device="cpu", max_source_length=2)
    assert list(one.source) == ["zwei", "elefanten", "</s>"]


def test_an_unknown_piece_has_no_text_of_a_tag_before_its_line():
    tokenizer = WordTokenizer(WordsConfig(), ["<2en>", "zwei"])
    tag, two = (tokenizer.encode([text])[0][0] for text in ("<2en>", "zwei"))
    part = SourcePart(0, 0, 0, "zwei elefanten", 0, np.array([tag, two, UNK]), Request(), tags=1, num_text_pieces=2)
    surfaces = attention_view._surfaces_of_source(tokenizer, part)
    assert attention_view._pieces(tokenizer, part.ids.tolist(), surfaces) == ["<2en>", "zwei", "elefanten"]


def test_a_found_translation_has_its_decoded_text(transformer):
    (one,) = nmt.attention(transformer, ["ein mann"], device="cpu")
    assert one.target_text == nmt.load(transformer, device="cpu").translate(["ein mann"])[0]


def test_given_translations_are_looked_at_as_they_are(transformer):
    (one,) = nmt.attention(transformer, ["ein mann"], ["snow red run"], device="cpu")
    assert list(one.target) == ["snow", "red", "run", "</s>"] and list(one.read) == ["<s>", "snow", "red", "run"]


def test_no_written_word_looks_at_what_comes_later(transformer):
    (one,) = nmt.attention(transformer, ["ein mann"], ["snow red run"], device="cpu")
    assert np.triu(one.weights["decoder"], 1).max() == 0.0


def test_sentences_side_by_side_are_as_alone(transformer):
    together = nmt.attention(transformer, LINES, device="cpu")
    for line, one in zip(LINES[:-1], together):
        (alone,) = nmt.attention(transformer, [line], device="cpu")
        for kind in KINDS:
            np.testing.assert_allclose(one.weights[kind], alone.weights[kind], atol=1e-5)


def test_a_batch_that_does_not_fit_is_halved(transformer, monkeypatch):
    of_pairs = attention_view._of_pairs

    def short_of_memory(member, pairs, started):
        if len(pairs) > 1:
            raise MemoryError
        return of_pairs(member, pairs, started)

    expected = nmt.attention(transformer, LINES, device="cpu")
    monkeypatch.setattr(attention_view, "_of_pairs", short_of_memory)
    for one, other in zip(nmt.attention(transformer, LINES, device="cpu"), expected, strict=True):
        assert (one.number, one.source, one.target) == (other.number, other.source, other.target)
        for kind, maps in one.weights.items():
            np.testing.assert_allclose(maps, other.weights[kind], atol=1e-5)


def test_a_line_that_does_not_fit_alone_is_refused(transformer, monkeypatch):
    def out_of_memory(member, pairs, started):
        raise MemoryError

    monkeypatch.setattr(attention_view, "_of_pairs", out_of_memory)
    with pytest.raises(DeviceError, match=r"line 1 \(2 tokens\) does not fit into the memory of cpu; give a shorter"):
        nmt.attention(transformer, ["ein mann"], ["a man"], device="cpu")


def test_an_empty_line_has_no_weights(transformer):
    empty = nmt.attention(transformer, LINES, device="cpu")[-1]
    assert empty == ShownAttention(6, (), (), (), {}, model=str(transformer))


@pytest.mark.slow
def test_an_ensemble_has_the_weights_of_each_model_and_their_mean(folder, transformer):
    other = write_tiny_model(folder / "two", model="transformer", seed=2, **SIZES_WITH_ATTENTION["transformer"])
    (one,) = nmt.attention(f"{transformer}:{other}", ["ein mann"], device="cpu", ensemble_weights=[1.0, 3.0])
    first, second = one.members[str(transformer)], one.members[str(other)]
    for kind in KINDS:
        np.testing.assert_allclose(one.weights[kind], 0.25 * first[kind] + 0.75 * second[kind], atol=1e-6)
    (alone,) = nmt.attention(other, ["ein mann"], [" ".join(one.target[:-1])], device="cpu")
    np.testing.assert_allclose(second["cross"], alone.weights["cross"], atol=1e-5)


def test_models_of_other_shapes_have_no_mean(folder, transformer):
    other = write_tiny_model(folder / "lstm-beside", model="lstm")
    (one,) = nmt.attention(f"{transformer}:{other}", ["ein mann"], device="cpu")
    assert set(one.weights) == {"encoder", "decoder"} and set(one.members[str(other)]) == {"cross"}


@pytest.mark.slow
def test_a_model_without_attention_is_refused(folder):
    path = write_tiny_model(folder / "bare", model="lstm", attention=AttentionKind.none, bridge=BridgeKind.copy)
    with pytest.raises(UsageError, match="has no attention"):
        nmt.attention(path, ["ein mann"], device="cpu")


def test_each_line_needs_its_translation(transformer):
    with pytest.raises(DataError, match="2 lines but 1 translation; give one translation per line"):
        nmt.attention(transformer, ["ein mann", "rot"], ["a man"], device="cpu")


def test_a_single_line_is_refused(transformer):
    with pytest.raises(UsageError, match="in brackets"):
        nmt.attention(transformer, "ein mann")


def test_what_is_asked_of_lines_is_asked_here_too(transformer):
    (one,) = nmt.attention(transformer, [Line("ein mann", prefix="two dogs")], device="cpu")
    assert list(one.target[:2]) == ["two", "dogs"]


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["\u2581un", "believ", "able", "\u2581so", "</s>"], ["unbelievable", "so", "</s>"]),
        (["hau@@", "s", "rot", "</s>"], ["haus", "rot", "</s>"]),
        (["ein", "mann", "</s>"], ["ein", "mann", "</s>"]),
    ],
)
def test_pieces_are_joined_to_words(pieces, words):
    size = len(pieces)
    maps = np.random.default_rng(1).dirichlet(np.ones(size), (1, 2, size)).astype(np.float32)
    joined = SentenceAttention(0, pieces, pieces, ["<s>", *pieces[:-1]], {"cross": maps}).by_words()
    assert joined.source == words and joined.target == words and joined.read == ["<s>", *words[:-1]]
    np.testing.assert_allclose(joined.weights["cross"].sum(-1), 1.0, atol=1e-6)


def test_a_word_is_looked_at_as_much_as_its_pieces_together():
    maps = np.array([[[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.2, 0.3, 0.5]]]], dtype=np.float32)
    pieces = ["a@@", "b", "</s>"]
    joined = SentenceAttention(0, pieces, pieces, ["<s>", "a@@", "b"], {"cross": maps}).by_words()
    np.testing.assert_allclose(joined.weights["cross"][0, 0], [[(0.75 + 0.2) / 2, (0.25 + 0.8) / 2], [0.5, 0.5]])


def test_positions_are_those_that_the_model_adds(transformer):
    vectors = positions(transformer, "source", 7)
    module = module_of(Translator.load(transformer, "cpu", engine="torch").members[0])
    np.testing.assert_array_equal(vectors, module.source_input.positions.at(torch.arange(7), 7).numpy())


def test_a_model_has_no_more_positions_than_it_has_learned(folder):
    path = write_tiny_model(folder / "learned", model="conv_s2s", max_positions=9, updates=1)
    assert len(positions(path, "target", 50)) == 9


def test_a_model_that_adds_no_positions_is_refused(folder):
    path = write_tiny_model(folder / "without-positions", model="lstm")
    with pytest.raises(UsageError, match="adds no position vectors"):
        positions(path, "source", 7)


def test_the_most_frequent_pieces_are_counted_in_lines(transformer):
    pieces, vectors = embeddings(transformer, "source", 2, ["rot schnee rot", "schnee rot ein"])
    module = module_of(Translator.load(transformer, "cpu", engine="torch").members[0])
    ids = Translator.load(transformer, "cpu").pair.source.encode(["rot schnee"])[0]
    assert pieces == ["rot", "schnee"]
    np.testing.assert_array_equal(vectors, module.source_input.embedding.weight.detach().numpy()[ids])


def test_without_lines_the_vocabulary_says_which_pieces_come_first(transformer):
    pieces, vectors = embeddings(transformer, "target", 5)
    assert pieces == list(Translator.load(transformer, "cpu").pair.target.vocabulary.pieces[4:9]) and len(vectors) == 5


def test_one_model_is_looked_into(transformer):
    with pytest.raises(UsageError, match="can be shown for only one model, but --path names 2"):
        positions(f"{transformer}:{transformer}", "source", 3)


def test_a_notebook_shows_the_page_of_a_sentence(transformer):
    (one,) = nmt.attention(transformer, ["ein mann"], device="cpu")
    for shown in (one, one.by_words()):
        (page,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"', shown._repr_html_())
        assert html.unescape(page) == attention_page([shown], str(transformer))


def test_a_notebook_shows_the_first_of_models_without_a_mean(transformer):
    (one,) = nmt.attention(transformer, ["ein mann"], device="cpu")
    apart = dataclasses.replace(one, weights={}, members={"a": one.weights, "b": one.weights})
    (page,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"', apart._repr_html_())
    assert html.unescape(page) == attention_page([one], str(transformer), "a alone")
