"""Score translations against references: sacreBLEU's BLEU, chrF2 and TER, exact match, and metrics in their own files.

This package does not import torch, and imports sacreBLEU when a scorer is built, so that nmt-score starts quickly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass
from typing import Any, Protocol

from nmt.config.choices import CONTINUED, WORD_START
from nmt.errors import DataError, DeviceError, UsageError, did_you_mean, quantity
from nmt.registry import Registry, import_all
from nmt.scoring.counted import counted, per_cent, rouge_l

_PIECE_MARKS = re.compile(f"{CONTINUED}(?: |$)|{WORD_START}")
# A full stop or comma after a space, which is rare in detokenized text of any language.
_LOOSE_PUNCTUATION = re.compile(r" [.,](?: |$)")
_TOKENIZED_SHARE = 0.25  # of the lines; raw text with dialogue or ellipses has far fewer


@dataclass(frozen=True)
class Score:
    """A score and how it was computed."""

    name: str  # as printed: "BLEU", "chrF2", "TER", "exact match"
    value: float  # 0 .. 100 (TER may exceed 100)
    higher_is_better: bool
    signature: str  # sacreBLEU's signature, or our own in the same style
    detail: str = ""  # n-gram precisions, brevity penalty, counts


class Scorer(Protocol):
    """A corpus-level metric with one or more references for each hypothesis."""

    higher_is_better: bool

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """``references``: one list of lines per reference file, each as long as ``hypotheses``."""


@dataclass(frozen=True)
class TextOptions:
    """Options for the text, passed to the builder of every scorer."""

    tokenize: str = "13a"
    lowercase: bool = False
    language: str = "de"  # of hypotheses and references, for metrics with rules for a language


# builder(config, text: TextOptions) -> Scorer
scorers: Registry[Scorer] = Registry("scorer")  # our scorers have no options besides those of the text


def check_lines(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse empty hypotheses and missing references. Every reference has as many lines as the hypotheses."""
    if not hypotheses:
        raise DataError("there are no lines to score")
    if not references:
        raise UsageError("there are no references; give at least one")
    for lines in references:
        assert len(lines) == len(hypotheses), f"{len(hypotheses)} hypotheses, {len(lines)} references"


def lines_with_piece_marks(lines: Sequence[str]) -> int:
    """Count the lines with marks of subword tokens (BPE, sentencepiece)."""
    return sum(_PIECE_MARKS.search(line) is not None for line in lines)


def looks_tokenized(lines: Sequence[str]) -> bool:
    """Whether punctuation is separated from words in more than a quarter of the lines."""
    loose = sum(_LOOSE_PUNCTUATION.search(line) is not None for line in lines)
    return loose > _TOKENIZED_SHARE * len(lines)


@dataclass
class SacreScorer:
    """A metric of sacreBLEU's class, with sacreBLEU's signature for exactly this computation."""

    metric: Any
    higher_is_better: bool
    of_sentences: Any = None  # the metric for single sentences; None: the same
    # Functions that raise a DataError for a line in the wrong format; None: the metric accepts any text.
    read_hypothesis: Callable[[str], object] | None = None
    read_reference: Callable[[str], object] | None = None

    def sentences(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Return the score of each line."""
        statistics = self.metric._extract_corpus_statistics(hypotheses, references)
        metric = self.of_sentences or self.metric
        return [float(metric._compute_score_from_stats(figures).score) for figures in statistics]

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        check_lines(hypotheses, references)
        result = self.metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
        name, _, figures = result.format(width=2).partition(" = ")
        detail = figures.partition(" ")[2]  # without the rounded score: `value` has all digits
        signature = str(self.metric.get_signature())
        return Score(name, float(result.score), self.higher_is_better, signature, detail)


@scorers.register("bleu", make_dataclass("BleuConfig", ()))
def bleu(config: Any, text: TextOptions) -> Scorer:
    """Corpus BLEU of up to four-grams, exponential smoothing (Papineni et al. 2002; Post 2018)."""
    return SacreScorer(bleu_metric(text), higher_is_better=True, of_sentences=bleu_metric(text, effective_order=True))


@scorers.register("chrf", make_dataclass("ChrFConfig", ()))
def chrf(config: Any, text: TextOptions) -> Scorer:
    """ChrF2: F-score of character n-grams up to six, recall weighs twice (Popovic 2015). ``tokenize`` has no effect."""
    from sacrebleu.metrics.chrf import CHRF

    return SacreScorer(CHRF(lowercase=text.lowercase), higher_is_better=True)


@scorers.register("chrf++", make_dataclass("ChrFPlusPlusConfig", ()))
def chrf_plus_plus(config: Any, text: TextOptions) -> Scorer:
    """ChrF2 that also counts n-grams of one and two words (Popovic 2017)."""
    from sacrebleu.metrics.chrf import CHRF

    return SacreScorer(CHRF(lowercase=text.lowercase, word_order=2), higher_is_better=True)


@scorers.register("ter", make_dataclass("TerConfig", ()))
def ter(config: Any, text: TextOptions) -> Scorer:
    """Translation edit rate: edits and shifts per reference word, lower is better (Snover et al. 2006).

    It is case-sensitive unless ``lowercase`` is set, like the other metrics; the sacrebleu command lowercases by default.
    Words are cut by TER's own rules: ``tokenize`` only decides whether its rules for East Asian text apply.
    """
    from sacrebleu.metrics.ter import TER

    check_tokenizer(text.tokenize)
    asian = text.tokenize in ("zh", "ja-mecab", "ko-mecab")
    metric = TER(case_sensitive=not text.lowercase, normalized=asian, asian_support=asian)
    return SacreScorer(metric, higher_is_better=False)


def bleu_metric(text: TextOptions, *, effective_order: bool = False) -> Any:
    """Return sacreBLEU's BLEU. ``effective_order``: n-grams longer than a sentence do not count.

    Some tokenizers need a package or a download; the error says which.
    """
    from sacrebleu.metrics.bleu import BLEU

    check_tokenizer(text.tokenize)
    try:
        # force only silences sacreBLEU's warning about tokenized text; nmt-score has a better one.
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
    """Refuse an unknown tokenizer; the error lists those of sacreBLEU."""
    from sacrebleu.metrics.bleu import BLEU

    names = tuple(BLEU.TOKENIZERS)
    if name not in names:
        raise UsageError(f"unknown tokenizer '{name}'{did_you_mean(name, names)}; sacreBLEU has: {', '.join(names)}")


@scorers.register("exact", make_dataclass("ExactConfig", ()))
def exact(config: Any, text: TextOptions) -> Scorer:
    """Percentage of lines that equal one of their references; ``lowercase`` applies, ``tokenize`` does not."""

    def statistics(hypothesis: str, references: Sequence[str]) -> list[float]:
        return [float(hypothesis in references), 1.0]

    def summary(sums: Sequence[float]) -> tuple[float, str]:
        correct, lines = sums
        return per_cent(correct, lines), f"({correct:.0f} of {quantity(round(lines), 'line')})"

    signature = {"case": _case(text), "unit": "line"}
    prepare = str.lower if text.lowercase else str
    return SacreScorer(counted("exact match", statistics, signature, prepare, summary), higher_is_better=True)


@scorers.register("rouge_l", make_dataclass("RougeLConfig", ()))
def rouge(config: Any, text: TextOptions) -> Scorer:
    """ROUGE-L: F1 of the longest common subsequence of words, averaged over lines (Lin 2004), without stemming."""
    cut = bleu_metric(text).tokenizer

    def prepare(line: str) -> str:
        words: str = cut(line)
        return words.lower() if text.lowercase else words

    signature = {"case": _case(text), "tok": text.tokenize, "f": "1", "mean": "lines"}
    return SacreScorer(counted("ROUGE-L", rouge_l, signature, prepare), higher_is_better=True)


def _case(text: TextOptions) -> str:
    return "lc" if text.lowercase else "mixed"


import_all(__name__, __path__)  # metrics in their own files
