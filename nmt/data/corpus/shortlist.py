"""Vocabulary shortlists: a few target tokens for each source token, learned from a corpus.

Scoring only the shortlist of a sentence gives nearly the same translation in a fraction of the time. The target tokens of a
source token are found by the lexical model 1 of Brown et al. 1993, with expectation-maximization.

Shapes: U distinct pairs of a source and a target token, P such pairs in sentences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors
from safetensors.numpy import save

from nmt.data.corpus.folder import Split
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import SourceToken
from nmt.data.vocabulary import SPECIALS, Ids, Ints
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.storage.files import atomic_write

_FORMAT = 1
_ITERATIONS = 5


@dataclass(frozen=True)
class Shortlist:
    """The target tokens for each source token, most probable first, and the frequent ones for all sentences."""

    offsets: Ints  # [source vocabulary + 1] where in ``pieces`` those of a source piece begin
    pieces: Ints
    always: Ints
    digest: str  # of the vocabularies
    languages: tuple[str, str]  # source and target

    def of(self, source: Ids, more: Iterable[int] = ()) -> Ints:
        """Return the sorted target tokens for a sentence, and ``more``; the special ones are first."""
        parts = [self.pieces[self.offsets[number] : self.offsets[number + 1]] for number in set(source.tolist())]
        tokens = np.concatenate([self.always, np.fromiter(more, dtype=np.int64), *parts])
        marked = np.zeros(tokens.max() + 1, dtype=bool)
        marked[tokens] = True  # sorts them in less than half of the time that np.unique takes
        return np.flatnonzero(marked)

    def require(self, pair: LanguagePair, directions: Iterable[tuple[str, str]]) -> None:
        """Refuse other directions of a model with several: the list lacks the tokens of other languages."""
        if pair.languages is None:
            return
        first = 0 if pair.languages.source is SourceToken.source else 1  # whether the source language is known
        for direction in directions:
            if direction[first:] != self.languages[first:]:
                raise UsageError(
                    f"the shortlist was made for translating from {' to '.join(self.languages)}, not from "
                    f"{' to '.join(direction)}; omit --shortlist, or make one for this direction"
                )

    def save(self, path: Path) -> None:
        arrays = {"offsets": self.offsets, "pieces": self.pieces, "always": self.always}
        facts = {"format": str(_FORMAT), "vocabularies": self.digest, "sha256": _checksum(arrays)}
        facts["source_lang"], facts["target_lang"] = self.languages
        with atomic_write(path) as file:
            file.write(save(arrays, metadata=facts))

    @classmethod
    def load(cls, path: Path, pair: LanguagePair) -> Shortlist:
        if not path.is_file():
            raise MissingInputError(
                f"{path} is not a vocabulary shortlist; make one from a corpus folder with nmt-shortlist"
            )
        try:
            with safetensors.safe_open(path, "numpy") as file:
                facts = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in ("offsets", "pieces", "always")}
        except (safetensors.SafetensorError, OSError) as error:
            raise DataError(
                f"{path} is not a vocabulary shortlist, or is damaged ({error}); make it again with nmt-shortlist"
            ) from None
        if facts.get("format") != str(_FORMAT):
            raise DataError(f"{path} is a shortlist of format {facts.get('format')}; this version reads {_FORMAT}")
        if facts.get("vocabularies") != pair.digest():
            raise UsageError(
                f"{path} was made for other vocabularies than the model's; make one from the corpus folder of the model"
            )
        languages = facts.get("source_lang", ""), facts.get("target_lang", "")
        if pair.languages is None and pair.is_reverse_of(
            replace(pair, source_lang=languages[0], target_lang=languages[1])
        ):
            raise UsageError(
                f"{path} was made for translating from {languages[0]} to {languages[1]}, but the model translates in the "
                f"opposite direction; make one from a corpus folder of its direction"
            )
        if facts.get("sha256") != _checksum(arrays):
            raise DataError(
                f"{path} is damaged: its checksum does not match its content; make it again with nmt-shortlist"
            )
        return cls(**arrays, digest=facts["vocabularies"], languages=languages)


def learn(split: Split, pair: LanguagePair, per_piece: int, frequent: int, max_pairs: int) -> Shortlist:
    """Learn from the first ``max_pairs`` pairs of a split ``per_piece`` target tokens for each source token.

    The ``frequent`` most frequent target tokens are added for all sentences.
    """
    count, width = min(len(split), max_pairs), len(pair.target.vocabulary)
    sources = [np.unique(split.source(number)[:-1]) for number in range(count)]
    targets = [np.unique(split.target(number)[:-1]) for number in range(count)]
    both = [sides for sides in zip(sources, targets) if len(sides[0])]
    if not both:
        raise DataError("the sources of the corpus have no tokens to learn a shortlist from")
    codes, groups = _pairs(both, width)
    different, index = np.unique(codes, return_inverse=True)
    probabilities = _lexicon(different // width, index, groups)
    offsets, pieces = _best(different, probabilities, width, len(pair.source.vocabulary), per_piece)
    if pair.shared:  # names and numbers stay what they are
        pieces = np.insert(pieces, offsets[:-1], np.arange(len(offsets) - 1))
        offsets = offsets + np.arange(len(offsets))
    counts = np.bincount(np.concatenate(targets), minlength=width)
    often = np.argsort(-counts, kind="stable")[:frequent]
    always = np.unique(np.concatenate([often[counts[often] > 0], np.arange(len(SPECIALS))]))
    languages = pair.source_lang, pair.target_lang
    return Shortlist(offsets, pieces, always.astype(np.int64), pair.digest(), languages)


def _checksum(arrays: Mapping[str, Ints]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def _pairs(sentences: Sequence[tuple[Ids, Ids]], width: int) -> tuple[Ints, Ints]:
    """Return all pairs of source and target tokens of a sentence [P], as source * width + target.

    Also return the start of the pairs of each target token.
    """
    codes = [(source[None, :].astype(np.int64) * width + target[:, None]).ravel() for source, target in sentences]
    sizes = np.concatenate([np.full(len(target), len(source)) for source, target in sentences])
    return np.concatenate(codes), np.cumsum(sizes) - sizes


def _lexicon(source: Ints, index: Ints, groups: Ints) -> npt.NDArray[np.float64]:
    """Return p(target | source) of each distinct pair [U]; ``index`` [P]: their positions in U."""
    probabilities: npt.NDArray[np.float64] = np.ones(len(source))
    sizes = np.diff(np.append(groups, len(index)))
    for _ in range(_ITERATIONS):
        shares = probabilities[index]
        shares /= np.repeat(np.add.reduceat(shares, groups), sizes)
        expected = np.bincount(index, weights=shares, minlength=len(source))
        probabilities = expected / np.bincount(source, weights=expected)[source]
    return probabilities


def _best(
    different: Ints, probabilities: npt.NDArray[np.float64], width: int, source_size: int, count: int
) -> tuple[Ints, Ints]:
    """Select the most probable target tokens of each source token."""
    source = different // width
    order = np.lexsort((different, -probabilities, source))
    starts = np.searchsorted(source[order], np.arange(source_size + 1))
    rank = np.arange(len(order)) - starts[source[order]]
    kept = order[rank < count]
    offsets = np.searchsorted(source[kept], np.arange(source_size + 1))
    return offsets.astype(np.int64), different[kept] % width
