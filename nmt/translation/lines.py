"""Lines to translate and their translations; dividing long lines and joining their parts; replacing unknown words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.choices import WORD_START
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import is_tag
from nmt.data.text.lines import Pause, Reading
from nmt.data.vocabulary import UNK, Floats, Hypothesis, Ids
from nmt.errors import DataError, UsageError, did_you_mean, quantity, shown
from nmt.search.config import MOST_PIECES

_ENDS = (".", "!", "?", "…", "。", "！", "？", "।", "؟")  # of sentences


@dataclass(frozen=True)
class Line:
    """A line to translate, with constraints on its translation as text."""

    text: str
    prefix: str = ""  # the translation begins with it
    include: tuple[str, ...] = ()  # and contains each of these
    exclude: tuple[str, ...] = ()  # and none of these
    reference: str = ""  # the translation, if references are scored
    min_length: int | None = None  # pieces at least; None: as the options of the search say
    max_length: int | None = None  # and at most
    source_lang: str = ""  # empty: that of the options, or of the model
    target_lang: str = ""
    tag: str = ""  # another name of ``target_lang``

    def __post_init__(self) -> None:
        if self.tag and self.target_lang not in ("", self.tag):
            raise UsageError(f"tag={self.tag!r} and target_lang={self.target_lang!r} are two languages; give one")
        object.__setattr__(self, "target_lang", self.target_lang or self.tag)
        for name, phrases in (("include", self.include), ("exclude", self.exclude)):
            if isinstance(phrases, str):
                raise UsageError(f"{name}={phrases!r} must be a list of phrases: {name}=[{phrases!r}]")
        lengths = {"min_length": self.min_length, "max_length": self.max_length}
        for name, length in lengths.items():
            if length is not None and (type(length) is not int or not 1 <= length <= MOST_PIECES):
                raise UsageError(f"{name}={length!r} must be a whole number of tokens, from 1 to {MOST_PIECES:,}")
        if self.min_length and self.max_length and self.min_length > self.max_length:
            raise UsageError(
                f"min_length={self.min_length} is more than max_length={self.max_length}; lower min_length or raise "
                "max_length"
            )


_TEXT, _TEXTS, _LENGTH = "a string", "a list of strings", "a whole number of tokens"
# Keys of a JSON object that describes a line, with the kinds of their values.
LINE_KEYS = {"text": _TEXT, "prefix": _TEXT, "include": _TEXTS, "exclude": _TEXTS, "reference": _TEXT}
LINE_KEYS |= {"min_length": _LENGTH, "max_length": _LENGTH, "source_lang": _TEXT, "target_lang": _TEXT, "tag": _TEXT}


def line_of(tree: object, where: str) -> Line:
    """Return the line that a JSON object describes. ``where``: its position, for messages."""
    if not isinstance(tree, dict) or not isinstance(tree.get("text"), str):
        raise DataError(f'{where} must be an object with a string as "text"')
    for key, value in tree.items():
        if key not in LINE_KEYS:
            near = did_you_mean(key, LINE_KEYS)
            raise DataError(f"{where} has the unknown key '{key}'{near}; known keys: {', '.join(LINE_KEYS)}")
        listed = isinstance(value, list) and all(isinstance(phrase, str) for phrase in value)
        if not {_TEXT: isinstance(value, str), _TEXTS: listed, _LENGTH: type(value) is int}[LINE_KEYS[key]]:
            raise DataError(f'{where}: "{key}" must be {LINE_KEYS[key]}')
    fields: dict[str, Any] = {key: tuple(value) if LINE_KEYS[key] == _TEXTS else value for key, value in tree.items()}
    try:
        line = Line(**fields)
    except UsageError as error:  # whose message has no position
        raise DataError(f"{where}: {error}") from None
    if not all(phrase.strip() for phrase in (*line.include, *line.exclude)):
        raise DataError(f"{where} has an empty phrase; remove it")
    return line


LineOrPause = str | Line | Pause | None


@dataclass(frozen=True)
class TranslatedText:
    """A hypothesis as text. An empty line has one too, with empty fields."""

    text: str
    pieces: list[str]
    score: float  # what the search ranks by, natural logarithm
    token_scores: list[float]  # natural log-probabilities of the pieces and of eos
    attention: Floats | None  # [pieces + eos, source pieces + eos], if requested
    finished: bool  # False: the length limit cut it off
    ends_of_parts: float = 0.0  # log-probabilities of the eos of all parts but the last, which ``token_scores`` omit

    def __repr__(self) -> str:
        return f"<TranslatedText {shown(self.text)}, score {self.score:.3f}>"

    @property
    def log_probability(self) -> float:
        return sum(self.token_scores) + self.ends_of_parts

    @property
    def alignment(self) -> list[tuple[int, int]]:
        """(source, target) positions: the source token that each target token attends to most, without eos. Empty without
        attention."""
        if self.attention is None:
            return []
        pieces = self.attention[:-1, :-1]
        return [(source, target) for target, source in enumerate(pieces.argmax(1).tolist())] if pieces.size else []


@dataclass(frozen=True)
class Translation:
    """A line and its translations, best first."""

    number: int  # counted from 0
    source: str
    source_pieces: list[str]  # those that were translated: fewer than the line has if it was cut
    hypotheses: list[TranslatedText]
    parts: int = 1  # that it was translated in
    ends_window: bool = False  # the last line of its window: a client may be waiting for it
    truncated: bool = False
    direction: tuple[str, str] = ("", "")  # source and target language

    def __repr__(self) -> str:
        best = shown(self.hypotheses[0].text) if self.hypotheses else "nothing"
        count = quantity(len(self.hypotheses), "hypothesis", "hypotheses")
        return f"<Translation {shown(self.source)} -> {best}, {count}>"

    @property
    def is_whole(self) -> bool:
        """Whether the line was translated whole, neither in parts nor truncated."""
        return self.parts <= 1 and not self.truncated


def split_line(ids: Ids, pieces: Sequence[str], limit: int) -> tuple[Ids, ...]:
    """Divide a line into parts of at most ``limit`` tokens: after a sentence that ends in the second half, else before a
    word, else anywhere."""
    parts, begin = [], 0
    while len(ids) - begin > limit:
        half = range(begin + limit, begin + max((limit + 1) // 2, 1) - 1, -1)  # where a part may end
        sentence = next((end for end in half if pieces[end - 1].endswith(_ENDS)), None)
        word = next((end for end in half if pieces[end].startswith(WORD_START)), begin + limit)
        end = word if sentence is None else sentence
        parts.append(ids[begin:end])
        begin = end
    return (*parts, ids[begin:])


def join_parts(parts: Sequence[Sequence[TranslatedText]], *, sampled: bool = False) -> list[TranslatedText]:
    """Join the hypotheses of the parts of a line by rank: the best of all parts are joined first, and so on.

    ``sampled``: hypotheses are samples. They are joined in random order instead, so that the samples of the line are
    independent."""
    if not parts:
        return [TranslatedText("", [], 0.0, [], None, True)]
    if len(parts) == 1:
        return list(parts[0])
    if sampled:
        orders = [np.random.default_rng(index).permutation(len(part)).tolist() for index, part in enumerate(parts)]
        samples = [_joined([part[at] for part, at in zip(parts, places)]) for places in zip(*orders)]
        return sorted(samples, key=lambda sample: -sample.score)
    ranks = max(map(len, parts))
    return [_joined([part[min(rank, len(part) - 1)] for part in parts]) for rank in range(ranks)]


def _joined(parts: Sequence[TranslatedText]) -> TranslatedText:
    """Join one hypothesis of each part. Facts about single tokens omit the eos of all parts but the last."""
    attention = [part.attention for part in parts if part.attention is not None]
    return TranslatedText(
        text=" ".join(part.text for part in parts if part.text),
        pieces=[piece for part in parts for piece in part.pieces],
        score=sum(part.score for part in parts),
        token_scores=[score for part in parts for score in part.token_scores[:-1]] + parts[-1].token_scores[-1:],
        attention=_diagonal(attention) if attention else None,
        finished=all(part.finished for part in parts),
        ends_of_parts=sum(score for part in parts[:-1] for score in part.token_scores[-1:]),
    )


def _diagonal(blocks: Sequence[Floats]) -> Floats:
    """Join the attention of the parts as blocks on the diagonal: each part attends to its own source."""
    blocks = [*(block[:-1, :-1] for block in blocks[:-1]), blocks[-1]]
    whole = np.zeros(np.sum([block.shape for block in blocks], axis=0), dtype=np.float32)
    row = column = 0
    for block in blocks:
        whole[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return whole


def replace_unknown_words(
    hypothesis: Hypothesis,
    line: str,
    first: int,
    pair: LanguagePair,
    dictionary: Mapping[str, str],
    tags: int = 0,
    num_text_pieces: int = 0,
) -> str:
    """Return the text of a hypothesis. An unknown token is replaced by the dictionary's translation of the source word that
    it attends to most, or by that word: Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation"
    (PosUnk), with attention instead of pointers.

    The source of the hypothesis has ``tags`` language tags, and then the tokens of the line from number ``first`` on; the
    line has ``num_text_pieces`` tokens. A tag in the text of the line is not one of them. If the text of the line is not
    stored, as in a training split, unknown words remain unknown."""
    ids = hypothesis.tokens.tolist()[:-1]
    if hypothesis.attention is None:
        raise UsageError("--replace-unk needs attention, which the model does not have; omit it")
    unknown = [position for position, number in enumerate(ids) if number == UNK]
    surfaces = pair.source.surfaces(line) if unknown else []
    num_tag_pieces = len(surfaces) - num_text_pieces
    if 0 < num_tag_pieces <= 2 and is_tag(surfaces[num_tag_pieces - 1]):  # sentencepiece puts a space before it
        first += num_tag_pieces
    surfaces = surfaces[first:]
    of_words = hypothesis.attention[:, tags:-1]  # eos stands for no word
    if not unknown or len(surfaces) < of_words.shape[1]:
        return pair.target.decode(ids)
    positions = of_words[unknown].argmax(1).tolist()
    words = [surfaces[position] for position in positions]
    return pair.target.decode_with(ids, [dictionary.get(word, word) for word in words])


def read_dictionary(path: Path) -> dict[str, str]:
    """Read lines of a source word, a space or tab, and its translation. The first line of a word is used."""
    translations: dict[str, str] = {}
    for number, line in enumerate(Reading().lines(path), 1):
        if not (line or "").strip():
            continue
        source, *target = (line or "").split(None, 1)
        if not target:
            raise DataError(f"{path}:{number} has no translation; write a source word, a space and its translation")
        translations.setdefault(source, target[0].strip())
    return translations
