"""Beam search that only writes trees: a plugin for nmt-generate.

    nmt-generate --user-dir examples/parsing/tree_search.py --search trees --symbols RUN --path RUN --input words

At each step, a hypothesis can only continue with symbols that still allow a tree of exactly the sentence's words:

- the closer of the innermost open node, if that node has a child;
- a tag or an opener, if words are left;
- eos, after the closer of the root.

The log-probabilities remain those of the model, so scores are comparable with those of ``--search beam``. Each source
token must be a word (tokenizer=words), since the search counts words by tokens.

Legend: B sentences, b unfinished ones, K beam width, N = b*K hypotheses, V symbols of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.option import flag
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.vocabulary import BOS, EOS, Hypothesis, Ids, Ints
from nmt.errors import MissingInputError, UsageError
from nmt.search import searches
from nmt.search.beam import BeamSearch
from nmt.search.config import BeamConfig
from nmt.search.constraints import Changes
from nmt.search.decoding import Decoding, Engine, Scores
from nmt.search.requests import Sentences

OPENERS_IN_A_ROW = 10  # limit against endless openers; the treebank sample has 6 at most


@dataclass
class TreeConfig(BeamConfig):
    """Beam search among well-formed trees."""

    symbols: str = flag("", help="run or corpus folder whose target vocabulary has the symbols of the trees")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.symbols:
            raise UsageError("search.symbols is empty; name the run folder that translates (--symbols runs/x)")


class Symbols:
    """The target vocabulary as openers, closers and tags."""

    def __init__(self, pieces: Sequence[str]) -> None:
        """``pieces``: tokens in the order of their ids, special tokens first."""
        ids = {piece: number for number, piece in enumerate(pieces) if number > EOS}
        self.closer_of = {  # by opener
            number: ids.get(")" + piece[1:], ids.get(")", 0))
            for piece, number in ids.items()
            if piece.startswith("(") and {")" + piece[1:], ")"} & set(ids)
        }
        closers = {number for piece, number in ids.items() if piece.startswith(")")}
        self.opens = np.isin(np.arange(len(pieces)), list(self.closer_of))  # [V]
        brackets = {number for piece, number in ids.items() if piece.startswith("(")} | closers
        self.tags = np.isin(np.arange(len(pieces)), list(set(ids.values()) - brackets))  # [V]


@dataclass(frozen=True)
class Begun:
    """A partial tree, up to a symbol."""

    opened: tuple[Any, ...] = ()  # (opener, the nodes around it); () outside the root
    filled: bool = False  # the innermost open node has a child
    words: int = 0  # words that are left
    openers: int = 0  # openers in a row
    ended: bool = False  # the root is closed

    def then(self, symbol: int, symbols: Symbols) -> Begun:
        if symbols.opens[symbol]:
            return Begun((symbol, self.opened), False, self.words, self.openers + 1)
        if symbols.tags[symbol]:
            return Begun(self.opened, True, self.words - 1)
        if not self.opened:  # eos, or an unused slot of the beam
            return self
        around = self.opened[1]
        return Begun(around, True, self.words, ended=not around)

    def allowed(self, symbols: Symbols) -> tuple[bool, bool, int]:
        """Return whether an opener can follow, whether a tag can follow, and the other symbol that can (0: none)."""
        if self.ended:
            return False, False, EOS
        more = self.words > 0
        closes = self.filled and bool(self.opened) and not (more and not self.opened[1])
        closer = symbols.closer_of[self.opened[0]] if closes else 0
        return more and self.openers < OPENERS_IN_A_ROW, more and bool(self.opened), closer


class TreeDecoding:
    """A decoding that excludes symbols that cannot lead to a tree."""

    def __init__(self, decoding: Decoding, symbols: Symbols, words: Sequence[int], beam: int) -> None:
        """``words``: number of words of each sentence."""
        self.decoding = decoding
        self.leave_freely = decoding.leave_freely
        self.symbols = symbols
        self.trees = [Begun(words=count, ended=count == 0) for count in words for _ in range(beam)]  # N

    def step(self, tokens: Ints, attention: bool = False) -> Scores:
        if tokens[0] != BOS:
            self.trees = [tree.then(token, self.symbols) for tree, token in zip(self.trees, tokens.tolist())]
        scores = self.decoding.step(tokens, attention)
        if tokens[0] == BOS and scores.ranked(0, 1).shape[1] != len(self.symbols.tags):
            raise UsageError(
                f"search.symbols has a vocabulary of {len(self.symbols.tags)} symbols, but the model has "
                f"{scores.ranked(0, 1).shape[1]}; name the model's own run folder (--symbols)"
            )
        scores.change(Changes(None, 1.0, self._forbidden()))
        return scores

    def _forbidden(self) -> Ints:
        """Return the rows and symbols to exclude. [2, n]"""
        nodes, tags, others = map(np.array, zip(*(tree.allowed(self.symbols) for tree in self.trees)))
        allowed = (nodes[:, None] & self.symbols.opens) | (tags[:, None] & self.symbols.tags)  # [N, V]
        allowed[np.arange(len(others)), others] = True
        allowed[:, 0] = True  # padding, which no search writes
        return np.stack(np.nonzero(~allowed))

    def follow(self, parents: Ints, staying: Ints) -> None:
        beam = parents.shape[1]
        rows = (np.arange(0, parents.size, beam)[:, None] + parents)[staying].ravel()
        self.trees = [self.trees[row] for row in rows]
        self.decoding.follow(parents, staying)


@dataclass
class TreeEngine:
    """An engine whose decodings only write trees."""

    engine: Engine
    symbols: Symbols

    @property
    def longest_targets(self) -> Any:
        return self.engine.longest_targets

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> TreeDecoding:
        if lists is not None:
            raise UsageError("--search trees needs all symbols: leave --shortlist out")
        words = [len(source) - 1 for source in sources]  # without eos
        return TreeDecoding(self.engine.begin(sources, beam), self.symbols, words, beam)


@searches.register("trees", TreeConfig)
class TreeSearch(BeamSearch):
    """Beam search among well-formed trees."""

    config: TreeConfig

    def __init__(self, config: TreeConfig, nbest: int = 1) -> None:
        super().__init__(config, nbest)
        pair = find_pair(Path(config.symbols))
        if pair is None:
            raise MissingInputError(f"search.symbols={config.symbols} has no vocabulary; name a run folder (--symbols)")
        self.symbols = Symbols(LanguagePair.load(pair).target.vocabulary.pieces)

    def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
        own: Any = TreeEngine(engine, self.symbols)
        return super().find(own, batch)
