"""The search among trees, on models that know nothing of trees."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.errors import MissingInputError, UsageError
from nmt.search import searches
from nmt.testing.subjects import search_with
from tests.unit.search.test_search import padded
from tests.unit.search.toy import EOS, ToyModel

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "parsing"
LABELLED = ("(S", ")S", "(NP", ")NP", "(VP", "NN", "VBZ")  # a VP cannot be closed
PLAIN = ("(S", "(NP", ")", "XX")


@pytest.fixture(scope="module")
def tree_search() -> Iterator[ModuleType]:
    """Registered for this file alone: other tests count the searches that exist."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches, "_entries", dict(searches._entries))
        specification = importlib.util.spec_from_file_location("tree_search", FOLDER / "tree_search.py")
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        patch.setitem(sys.modules, "tree_search", module)
        specification.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], str]:
    """A folder with each vocabulary, where a run has it."""
    made = {}
    for symbols in (LABELLED, PLAIN):
        folder = tmp_path_factory.mktemp("run")
        source, target = (WordTokenizer(WordsConfig(), words) for words in (("dog", "barks"), symbols))
        LanguagePair("src", "tgt", source, target, shared=False).save(folder / "tokenizer")
        made[symbols] = str(folder)
    return made


def is_tree(symbols: tuple[str, ...], num_words: int) -> bool:
    """By rewriting: the innermost node with children becomes a child, until one node is left."""
    line = " ".join("XX" if symbol[0] not in "()" else symbol for symbol in symbols)
    if line.split().count("XX") != num_words or not line.startswith("("):
        return False
    parts = line.split()
    while len(parts) > 1:
        closers = [place for place, part in enumerate(parts) if part.startswith(")")]
        if not closers:
            return False
        end = closers[0]
        start = max((place for place in range(end) if parts[place].startswith("(")), default=-1)
        fits = start >= 0 and start + 1 < end and parts[end] in (")", ")" + parts[start][1:])
        if not fits:
            return False
        parts[start : end + 1] = ["node"]
    return parts == ["node"]


@given(
    seed=st.integers(0, 1000),
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    beam=st.integers(1, 5),
    symbols=st.sampled_from([LABELLED, PLAIN]),
)
def test_every_hypothesis_is_a_tree_of_the_words(seed, counts, beam, symbols, tree_search, runs):
    search = tree_search.TreeSearch(
        tree_search.TreeConfig(beam_size=beam, max_len_b=300, symbols=runs[symbols]), nbest=beam
    )
    model = ToyModel(seed, vocabulary=len(symbols) + 4)
    sources = [(*[4] * count, EOS) for count in counts]
    for found, source, count in zip(search_with(search, model, *padded(sources)), sources, counts):
        assert found
        for hypothesis in found:
            assert hypothesis.finished
            tokens = tuple(hypothesis.tokens.tolist())
            written = tuple(symbols[token - 4] for token in tokens[:-1])
            assert is_tree(written, count), written
            own = sum(float(model.log_probabilities(source, tokens[:at])[token]) for at, token in enumerate(tokens))
            assert hypothesis.log_probability == pytest.approx(own, abs=1e-3)


def all_trees(written: tuple[str, ...] = (), num_words: int = 2) -> Iterator[tuple[str, ...]]:
    """Those of ``PLAIN`` with at most two openers in a row."""
    if is_tree(written, num_words):
        yield written
        return
    openers = "".join("(" if symbol.startswith("(") else symbol[0] for symbol in written)
    left, depth = num_words - openers.count("X"), openers.count("(") - openers.count(")")
    if left and not openers.endswith("((") and (depth or not written):
        yield from all_trees((*written, "(S"), num_words)
        yield from all_trees((*written, "(NP"), num_words)
    if left and depth:
        yield from all_trees((*written, "XX"), num_words)
    if depth and not openers.endswith("("):
        yield from all_trees((*written, ")"), num_words)


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_finds_the_most_probable_tree(seed, tree_search, runs, monkeypatch):
    monkeypatch.setattr(tree_search, "OPENERS_IN_A_ROW", 2)
    config = tree_search.TreeConfig(beam_size=100, lenpen=0, stop="all", symbols=runs[PLAIN])
    model, source = ToyModel(seed, vocabulary=len(PLAIN) + 4), (4, 5, EOS)
    trees = [(*(PLAIN.index(symbol) + 4 for symbol in tree), EOS) for tree in all_trees()]
    totals = [
        sum(float(model.log_probabilities(source, tree[:at])[token]) for at, token in enumerate(tree)) for tree in trees
    ]
    ((best,),) = search_with(tree_search.TreeSearch(config), model, *padded([source]))
    assert best.log_probability == pytest.approx(max(totals), abs=1e-3)


def test_a_vocabulary_must_be_the_model_s(tree_search, runs):
    search = tree_search.TreeSearch(tree_search.TreeConfig(symbols=runs[PLAIN]))
    with pytest.raises(UsageError, match="search.symbols has a vocabulary of 8 symbols, but the model has 11"):
        search_with(search, ToyModel(1, vocabulary=len(LABELLED) + 4), *padded([(4, EOS)]))


def test_a_vocabulary_must_be_named(tree_search, tmp_path):
    with pytest.raises(UsageError, match="--symbols"):
        tree_search.TreeConfig()
    with pytest.raises(MissingInputError, match="has no vocabulary"):
        tree_search.TreeSearch(tree_search.TreeConfig(symbols=str(tmp_path)))
