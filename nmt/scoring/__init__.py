"""Scores of translations against references: sacreBLEU's metrics, BLEU, chrF2 and TER, and exact match.

No torch here, and sacreBLEU is imported when a scorer is built: nmt-score answers at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass, replace
from typing import Any, Protocol

from nmt.errors import DataError, DeviceError, UsageError, did_you_mean
from nmt.registry import Registry, import_all

# "@@ " is subword-nmt's mark of a word that goes on, U+2581 sentencepiece's mark of a word that begins.
_PIECE_MARKS = re.compile("@@(?: |$)|\u2581")
# A full stop or comma after a space: detokenised text of any language hardly ever has one.
_LOOSE_PUNCTUATION = re.compile(r" [.,](?: |$)")
_TOKENISED_SHARE = 0.25  # of the lines; raw text with dialogue or ellipses stays far below


@dataclass(frozen=True)
class Score:
    """One figure and how it was computed."""

    name: str  # as printed: "BLEU", "chrF2", "TER", "exact match"
    value: float  # 0 .. 100 (TER may exceed 100)
    higher_is_better: bool
    signature: str  # sacreBLEU's signature, or our own in the same style
    detail: str = ""  # n-gram precisions, brevity penalty, counts


class Scorer(Protocol):
    """Corpus-level comparison of hypotheses with one or more references per sentence."""

    higher_is_better: bool

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """``references``: one list of lines per reference file, each as long as ``hypotheses``."""


@dataclass(frozen=True)
class TextOptions:
    """How text is normalised before scoring; handed to every scorer's builder."""

    tokenize: str = "13a"
    lowercase: bool = False
    language: str = "de"  # of hypotheses and references, where a metric has rules of languages


# builder(config, text: TextOptions) -> Scorer
scorers: Registry[Scorer] = Registry("scorer")  # the text options say enough: none of ours has options of its own


def check_lines(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """There is something to score, and every reference has as many lines as there are hypotheses."""
    if not hypotheses:
        raise DataError("there is not a single line to score")
    if not references:
        raise UsageError("there is no reference to score against")
    for lines in references:
        assert len(lines) == len(hypotheses), f"{len(hypotheses)} hypotheses, {len(lines)} references"


def lines_with_piece_marks(lines: Sequence[str]) -> int:
    """How many lines still show how their words were cut into pieces (BPE, sentencepiece)."""
    return sum(_PIECE_MARKS.search(line) is not None for line in lines)


def looks_tokenised(lines: Sequence[str]) -> bool:
    """Whether punctuation stands apart from the words in a good part of the lines."""
    loose = sum(_LOOSE_PUNCTUATION.search(line) is not None for line in lines)
    return loose > _TOKENISED_SHARE * len(lines)


@dataclass
class SacreScorer:
    """The score of a whole corpus, with sacreBLEU's signature for exactly this computation."""

    metric: Any
    higher_is_better: bool
    of_sentences: Any = None  # another object for single sentences; None: the same
    # What reads a line, and raises a DataError where it has not the form that the metric needs; None: any text will do.
    read_hypothesis: Callable[[str], object] | None = None
    read_reference: Callable[[str], object] | None = None

    def sentence(self, hypothesis: str, references: Sequence[str]) -> float:
        """The score of one line."""
        return self.sentences([hypothesis], [[line] for line in references])[0]

    def sentences(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """The score of each line."""
        statistics = self.metric._extract_corpus_statistics(hypotheses, references)
        metric = self.of_sentences or self.metric
        return [float(metric._compute_score_from_stats(figures).score) for figures in statistics]

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        check_lines(hypotheses, references)
        result = self.metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
        name, _, figures = result.format(width=2).partition(" = ")
        detail = figures.partition(" ")[2]  # the rounded figure itself is left out: `value` has all its digits
        signature = str(self.metric.get_signature())
        return Score(name, float(result.score), self.higher_is_better, signature, detail)


@scorers.register("bleu", make_dataclass("BleuConfig", ()))
def bleu(config: Any, text: TextOptions) -> Scorer:
    """Corpus BLEU of up to four-grams, exponential smoothing (Papineni et al. 2002; Post 2018)."""
    return SacreScorer(bleu_metric(text), higher_is_better=True, of_sentences=bleu_metric(text, effective_order=True))


@scorers.register("chrf", make_dataclass("ChrFConfig", ()))
def chrf(config: Any, text: TextOptions) -> Scorer:
    """ChrF2: F-score of character n-grams up to six, recall weighs twice (Popovic 2015). ``tokenize`` changes nothing."""
    from sacrebleu.metrics.chrf import CHRF

    return SacreScorer(CHRF(lowercase=text.lowercase), higher_is_better=True)


@scorers.register("chrf++", make_dataclass("ChrFPlusPlusConfig", ()))
def chrf_plus_plus(config: Any, text: TextOptions) -> Scorer:
    """ChrF2 with n-grams of one and two words too (Popovic 2017)."""
    from sacrebleu.metrics.chrf import CHRF

    return SacreScorer(CHRF(lowercase=text.lowercase, word_order=2), higher_is_better=True)


@scorers.register("ter", make_dataclass("TerConfig", ()))
def ter(config: Any, text: TextOptions) -> Scorer:
    """Translation edit rate: edits and shifts per reference word, lower is better (Snover et al. 2006).

    Case counts unless ``lowercase`` is set, as with the other metrics (the sacrebleu command differs: it lower-cases
    TER unless told otherwise). Words are cut by TER's own rules: ``tokenize`` only decides whether the East Asian ones,
    for text without spaces between words, apply.
    """
    from sacrebleu.metrics.ter import TER

    check_tokenizer(text.tokenize)
    asian = text.tokenize in ("zh", "ja-mecab", "ko-mecab")
    metric = TER(case_sensitive=not text.lowercase, normalized=asian, asian_support=asian)
    return SacreScorer(metric, higher_is_better=False)


def bleu_metric(text: TextOptions, *, effective_order: bool = False) -> Any:
    """sacreBLEU's own object; ``effective_order``: n-grams that are longer than a sentence do not count. Some tokenizers
    need a package or a download; what is missing is said in one sentence."""
    from sacrebleu.metrics.bleu import BLEU

    check_tokenizer(text.tokenize)
    try:
        # force: only silences sacreBLEU's own warning about tokenised text; nmt-score has a better one.
        return BLEU(tokenize=text.tokenize, lowercase=text.lowercase, force=True, effective_order=effective_order)
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"sacreBLEU's tokenizer '{text.tokenize}' cannot be used here: {reason}") from error
    except OSError as error:
        from sacrebleu.utils import SACREBLEU_DIR

        raise DeviceError(
            f"sacreBLEU's tokenizer '{text.tokenize}' needs a file that it could not download to {SACREBLEU_DIR} "
            f"({error}); connect to the network once, or put the file there"
        ) from error


def check_tokenizer(name: str) -> None:
    """Refuse a tokenizer that sacreBLEU does not have, and list those it has."""
    from sacrebleu.metrics.bleu import BLEU

    names = tuple(BLEU.TOKENIZERS)
    if name not in names:
        raise UsageError(f"unknown tokenizer '{name}'{did_you_mean(name, names)}; sacreBLEU has: {', '.join(names)}")


@scorers.register("exact", make_dataclass("ExactConfig", ()))
class Exact(SacreScorer):
    """Per cent of lines equal to any of their references, in lower case by ``lowercase``; ``tokenize`` does not apply."""

    def __init__(self, config: Any, text: TextOptions) -> None:
        from nmt.scoring.counted import counted, exact

        said = {"case": _case(text), "unit": "line"}
        prepare = str.lower if text.lowercase else str
        super().__init__(counted("exact match", exact, said, prepare), higher_is_better=True)

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        score = super().__call__(hypotheses, references)
        correct = round(score.value * len(hypotheses) / 100)
        return replace(score, detail=f"({correct} of {len(hypotheses)} lines)")


@scorers.register("rouge_l", make_dataclass("RougeLConfig", ()))
def rouge(config: Any, text: TextOptions) -> Scorer:
    """ROUGE-L: F1 of the longest common subsequence of words, the mean over lines (Lin 2004). Words are those of
    ``tokenize``, and nothing is stemmed."""
    from nmt.scoring.counted import counted, rouge_l

    cut = bleu_metric(text).tokenizer

    def prepare(line: str) -> str:
        words: str = cut(line)
        return words.lower() if text.lowercase else words

    said = {"case": _case(text), "tok": text.tokenize, "f": "1", "mean": "lines"}
    return SacreScorer(counted("ROUGE-L", rouge_l, said, prepare), higher_is_better=True)


def _case(text: TextOptions) -> str:
    return "lc" if text.lowercase else "mixed"


import_all(__name__, __path__)  # other metrics, each in a file of its own
