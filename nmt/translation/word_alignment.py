"""Word alignments of sentence pairs, by one model or by models of both directions: nmt-align and ``nmt.align``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.aligning import AlignConfig, validation_without_criterion
from nmt.config.checks import refuse
from nmt.config.choices import Symmetrization
from nmt.config.composing.composition import from_keywords
from nmt.data.text.links import Link, symmetrized
from nmt.data.vocabulary import Ints
from nmt.errors import DataError, UsageError, quantity
from nmt.progress import Count
from nmt.threads import set_threads
from nmt.translation.aligning import MEAN, UNALIGNED, Aligner, AlignmentHead, HeadChoice, Pair
from nmt.translation.alignment_choice import Gold, agreements, error_rates, read_gold_lines, reversed_gold
from nmt.translation.choosing import require_reverse
from nmt.translation.translator import Translator

logger = logging.getLogger("nmt.align")

HeadPair = tuple[AlignmentHead, AlignmentHead | None]  # of the model, and of that of the other direction
REVERSE = "reverse-"  # prefix of the flags of the other direction
_OF_FILES = "src ref valid_src valid_ref output overwrite on_invalid_utf8 max_line_bytes progress".split()


@dataclass(frozen=True)
class SelectionPairs:
    """Pairs by which a layer and a head are chosen."""

    pairs: Sequence[Pair]
    gold: Sequence[Gold] | None  # gold alignments; None: choose by the agreement of both directions
    called: str  # their origin, for the log


@dataclass(frozen=True)
class Directions:
    """A model, and optionally one of the other direction."""

    forward: Aligner
    backward: Aligner | None = None

    @classmethod
    def load(cls, config: AlignConfig) -> Directions:
        def translator(path: str) -> Translator:
            return Translator.load(path, config.device, user_dir=config.user_dir, engine="torch")

        set_threads(config.threads)
        options: dict[str, Any] = {"max_tokens": config.max_tokens, "max_source_length": config.max_source_length}
        model = translator(config.path)
        source, target = model.pair.direction(config.source_lang, config.target_lang).names
        forward = Aligner(model, config.path, source_lang=config.source_lang, target_lang=config.target_lang, **options)
        if config.reverse is None:
            return cls(forward)
        reverse_model = translator(config.reverse)
        require_reverse((source, target), reverse_model.pair, f"--reverse {config.reverse}")
        return cls(forward, Aligner(reverse_model, config.reverse, source_lang=target, target_lang=source, **options))

    def choose(
        self, config: AlignConfig, validation: SelectionPairs | None, progress: Count = lambda count: None
    ) -> HeadPair:
        """Return the heads to read alignments from, and log them. Without ``validation``, no heads are compared."""
        choice = HeadChoice(config.layer, config.head, config.shift)
        reverse_choice = HeadChoice(config.reverse_layer, config.reverse_head, config.reverse_shift)
        heads_forward = self.forward.candidate_heads(choice)
        heads_backward = [] if self.backward is None else self.backward.candidate_heads(reverse_choice, REVERSE)
        one_head = len(heads_forward) == 1 and (len(heads_backward) <= 1 or config.rule is Symmetrization.none)
        # Of given alignments the log has the error rate.
        if one_head and (validation is None or validation.gold is None):
            return heads_forward[0], heads_backward[0] if heads_backward else None
        if validation is None:
            assert self.backward is None, "with a reverse model, heads are compared"
            return self._default_head(choice), None
        if validation.gold is not None:
            return self._by_gold(heads_forward, heads_backward, validation, validation.gold, progress)
        return self._by_agreement(heads_forward, heads_backward, validation, progress)

    def _default_head(self, choice: HeadChoice) -> AlignmentHead:
        head = self.forward.default_head(choice)
        if choice.layer is None and choice.head in (None, MEAN):
            logger.info(
                f"aligning by the mean of the last layer's heads ({head.flags()}); to choose the best layer and "
                f"head, which may align far better, give --reverse MODEL or --gold FILE"
            )
        return head

    def _by_gold(
        self,
        heads_forward: Sequence[AlignmentHead],
        heads_backward: Sequence[AlignmentHead],
        selection: SelectionPairs,
        gold: Sequence[Gold],
        progress: Count,
    ) -> HeadPair:
        """Choose the head of each direction by its error rate."""
        chosen = []
        for aligner, heads, prefix in ((self.forward, heads_forward, ""), (self.backward, heads_backward, REVERSE)):
            if aligner is None:
                continue
            pairs, gold_links = (
                (selection.pairs, gold)
                if not prefix
                else (_reversed_pairs(selection.pairs), [reversed_gold(links) for links in gold])
            )
            rates = error_rates(list(_counted(aligner.align(pairs, heads), progress)), gold_links)
            best = int(rates.argmin())
            flags = heads[best].flags(prefix)
            logger.info(f"{aligner.path}: {flags} (alignment error rate {100 * rates[best]:.2f} % {selection.called})")
            chosen.append(heads[best])
        return chosen[0], chosen[1] if len(chosen) > 1 else None

    def _by_agreement(
        self,
        heads_forward: Sequence[AlignmentHead],
        heads_backward: Sequence[AlignmentHead],
        selection: SelectionPairs,
        progress: Count,
    ) -> HeadPair:
        assert self.backward is not None, "agreement needs a reverse model"
        forward = list(_counted(self.forward.align(selection.pairs, heads_forward), progress))
        backward = list(_counted(self.backward.align(_reversed_pairs(selection.pairs), heads_backward), progress))
        f1 = agreements(forward, backward)
        best, best_reverse = (int(head) for head in np.unravel_index(f1.argmax(), f1.shape))
        flags = f"{heads_forward[best].flags()} {heads_backward[best_reverse].flags(REVERSE)}"
        logger.info(
            f"both directions agree best with {flags} (F1 {100 * f1[best, best_reverse]:.2f} % {selection.called})"
        )
        return heads_forward[best], heads_backward[best_reverse]

    def links(self, pairs: Iterable[Pair], heads: HeadPair, rule: Symmetrization) -> Iterator[list[Link]]:
        """Yield the links of each pair, in order, sorted by source and target word, both counted from 0."""
        head, reverse_head = heads
        if self.backward is None or reverse_head is None or rule is Symmetrization.none:
            for aligned in self.forward.align(pairs, [head]):
                yield sorted(_links(aligned[0]))
            return
        pairs_forward, pairs_backward = tee(pairs)
        alignments = zip(
            self.forward.align(pairs_forward, [head]),
            self.backward.align(_reversed_pairs(pairs_backward), [reverse_head]),
        )
        for forward, backward in alignments:
            turned_back = {(source, target) for target, source in _links(backward[0])}
            yield sorted(symmetrized(_links(forward[0]), turned_back, rule))


def align(
    path: str | Path,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    validation: tuple[Sequence[str], Sequence[str]] | None = None,
    gold: Sequence[str] | None = None,
    **options: Any,
) -> list[list[Link]]:
    """Return the links (source word, target word), counted from 0, of each line and its translation.

    ``options`` are those of nmt-align: ``reverse``, ``symmetrize="grow-diag"``, ``layer``, ``head``, ``shift``, ... The
    layer and head are chosen on ``validation`` (sentences and their translations), or on the first pairs: by ``gold``, a
    line of links in Pharaoh's format for each pair, or by the agreement with ``reverse``."""
    if isinstance(sources, str) or isinstance(references, str):
        raise UsageError("align takes lists of lines; put a single one in brackets: align(path, [line], [translation])")
    if of_files := [name for name in _OF_FILES if name in options]:
        raise UsageError(
            f"{of_files[0]} is an option of nmt-align, which reads and writes files; align takes and returns lists, "
            "so omit it"
        )
    rule = options.pop("symmetrize", None)
    if isinstance(rule, str):
        rule = rule.replace("-", "_")
    keywords = {"path": path, "symmetrize": rule, **options}
    config = from_keywords(AlignConfig, keywords, "align")
    pairs = _paired(sources, references, "source", "translation")
    selection = None
    refuse(validation_without_criterion(validation, gold, config.reverse))
    if gold is not None or config.reverse is not None:
        selection_lines = (
            pairs if validation is None else _paired(*validation, "validation source", "validation translation")
        )
        if gold is not None:
            require_line_each(len(gold), len(selection_lines), "gold", "validation" if validation else "the text")
            gold = gold[: config.valid_count]
        if pairs and not selection_lines:
            raise DataError("validation has no pairs; give at least one, or omit validation")
        called = None if validation is None else "validation"
        selection = selection_pairs(selection_lines[: config.valid_count], gold, "gold", called)
    if not pairs:
        return []
    directions = Directions.load(config)
    return list(directions.links(pairs, directions.choose(config, selection), config.rule))


def _paired(sources: Sequence[str], references: Sequence[str], source_noun: str, reference_noun: str) -> list[Pair]:
    if len(sources) != len(references):
        raise DataError(
            f"{quantity(len(sources), source_noun)} but {quantity(len(references), reference_noun)}; the numbers "
            "must match"
        )
    return list(zip(sources, references))


def selection_pairs(
    pairs: Sequence[Pair], gold: Sequence[str] | None, called_gold: str, called: str | None
) -> SelectionPairs:
    """Return ``pairs`` with their gold alignments, one line per pair. ``called``: their origin; None: the text."""
    links = None if gold is None else read_gold_lines(gold, pairs, called_gold)
    count = quantity(len(pairs), "pair")
    where = f"the first {count} of the text" if called is None else f"{count} of {called}"
    return SelectionPairs(pairs, links, f"on {where}")


def require_line_each(gold: int, pairs: int, called_gold: str, called: str) -> None:
    """Refuse a number of gold alignments that differs from the number of pairs."""
    if gold != pairs:
        raise DataError(
            f"{called_gold} has {quantity(gold, 'line')}, but {called} has {pairs}; give one line of links per "
            "sentence pair"
        )


def _reversed_pairs(pairs: Iterable[Pair]) -> Iterator[Pair]:
    return ((target, source) for source, target in pairs)


def _links(aligned: Ints) -> set[Link]:
    return {(source, target) for target, source in enumerate(aligned.tolist()) if source != UNALIGNED}


def _counted(alignments: Iterable[Ints], progress: Count) -> Iterator[Ints]:
    for alignment in alignments:
        progress(1)
        yield alignment
