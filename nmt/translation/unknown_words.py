"""Words that the target vocabulary lacks, put in afterwards: Luong et al. 2015, "Addressing the Rare Word Problem in Neural
Machine Translation" (PosUnk), with attention in place of pointers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nmt.config.choices import InvalidText
from nmt.data.hypothesis import Hypothesis
from nmt.data.language_pair import LanguagePair
from nmt.data.text import read_lines
from nmt.data.vocabulary import UNK
from nmt.errors import DataError, UsageError


class UnknownWords:
    """An unknown piece becomes what the dictionary says of the source piece that it attends to most, else that piece."""

    def __init__(self, pair: LanguagePair, dictionary: Mapping[str, str]) -> None:
        self._pair = pair
        self._dictionary = dictionary

    def text(self, hypothesis: Hypothesis, line: str, first: int) -> str:
        """The hypothesis' text; what it translates begins at piece ``first`` of the line. Of a line whose own text is lost,
        as in a training split, unknown words remain unknown."""
        ids = hypothesis.tokens.tolist()[:-1]
        if hypothesis.attention is None:
            raise UsageError("the model has no attention, which unknown words are replaced by; leave out --replace-unk")
        unknown = [place for place, number in enumerate(ids) if number == UNK]
        if not unknown:
            return self._pair.target.decode(ids)
        surfaces = self._pair.source.surfaces(line)[first:]
        pieces = hypothesis.attention.shape[1] - 1  # eos stands for no word
        if len(surfaces) < pieces:
            return self._pair.target.decode(ids)
        looked_at = hypothesis.attention[unknown, :pieces].argmax(1).tolist()
        words = [surfaces[place] for place in looked_at]
        return self._pair.target.decode_with(ids, [self._dictionary.get(word, word) for word in words])


def read_dictionary(path: Path) -> dict[str, str]:
    """Lines of a source word, a space or tab, and what it becomes; of several lines for a word the first one holds."""
    found: dict[str, str] = {}
    for number, line in enumerate(read_lines(path, invalid=InvalidText.error), 1):
        source, *target = (line or "").split(None, 1)
        if not target:
            raise DataError(f"{path}:{number} should be a source word, a space, and its translation")
        found.setdefault(source, target[0].strip())
    return found
