"""What goes into a translator, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.data.hypothesis import Floats
from nmt.data.text import Pause
from nmt.errors import UsageError

_MOST_PIECES = 10**9  # nobody waits for more


@dataclass(frozen=True)
class Line:
    """One line to translate, and what is asked of its translation, as text."""

    text: str
    prefix: str = ""  # the translation begins with it
    include: tuple[str, ...] = ()  # and contains each of these
    exclude: tuple[str, ...] = ()  # and none of these
    reference: str = ""  # what it is, where references are scored
    min_length: int | None = None  # pieces at least; None: as the options of the search say
    max_length: int | None = None  # and at most

    def __post_init__(self) -> None:
        for name, phrases in (("include", self.include), ("exclude", self.exclude)):
            if isinstance(phrases, str):
                raise UsageError(f"{name}={phrases!r} of a line must be several phrases: {name}=[{phrases!r}]")
        lengths = {"min_length": self.min_length, "max_length": self.max_length}
        for name, length in lengths.items():
            if length is not None and (type(length) is not int or not 1 <= length <= _MOST_PIECES):
                raise UsageError(f"{name}={length!r} must be a whole number of pieces, from 1 to {_MOST_PIECES:,}")
        if self.min_length and self.max_length and self.min_length > self.max_length:
            raise UsageError(f"min_length={self.min_length} is more than max_length={self.max_length}; lower it")


Given = str | Line | Pause | None


@dataclass(frozen=True)
class TranslatedText:
    """One hypothesis as text. An empty line has one too, with empty fields."""

    text: str
    pieces: list[str]
    score: float  # what the search ranks by, natural logarithm
    token_scores: list[float]  # natural log-probabilities of the pieces and of eos
    attention: Floats | None  # [pieces + eos, source pieces + eos], when asked for
    finished: bool  # False: the length limit cut it off
    ends_of_parts: float = (
        0.0  # log-probabilities that ``token_scores`` leave out, where a line was translated in parts
    )

    @property
    def log_probability(self) -> float:
        return sum(self.token_scores) + self.ends_of_parts

    @property
    def alignment(self) -> list[tuple[int, int]]:
        """(source, target) positions: the most attended source piece of each target piece, the ends left out on both
        sides. Empty if attention was not asked for, or the model has none."""
        if self.attention is None:
            return []
        pieces = self.attention[:-1, :-1]
        return [(source, target) for target, source in enumerate(pieces.argmax(1).tolist())] if pieces.size else []


@dataclass(frozen=True)
class Translation:
    """One line and its translations, best first."""

    number: int  # counted from 0
    source: str
    source_pieces: list[str]  # those that were translated: fewer than the line has if it was cut
    hypotheses: list[TranslatedText]
    parts: int = 1  # that it was translated in
    closes: bool = False  # what was read together with it ends here: somebody may be waiting for it
    cut: bool = False  # the end of the line was left out

    @property
    def at_once(self) -> bool:
        """Whether the line was translated whole, and not in parts."""
        return self.parts <= 1 and not self.cut
