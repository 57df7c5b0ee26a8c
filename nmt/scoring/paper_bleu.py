"""The BLEU of "Attention Is All You Need", for comparisons with papers of that time. It is usually higher than sacreBLEU's.

Vaswani et al. (2017) report what tensor2tensor's get_ende_bleu.sh prints: Unicode punctuation replaced, words cut by the
rules of Moses, compounds split at their hyphens, and the BLEU of multi-bleu.perl. That script expects tokenized references;
here hypotheses and references are tokenized in the same way.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any

from nmt import __version__
from nmt.errors import UsageError, did_you_mean, needing
from nmt.scoring import SacreScorer, Scorer, TextOptions, scorers

_NAME = "paper BLEU"
_HYPHEN = re.compile(r"(\S)-(\S)")


@scorers.register("paper_bleu", make_dataclass("PaperBleuConfig", ()))
def paper_bleu(config: Any, text: TextOptions) -> Scorer:
    """BLEU of Moses tokens with split compounds, unsmoothed. ``language`` selects the rules; ``tokenize`` has no effect."""
    cut = moses(text.language)
    of_texts, of_lines = (
        _metric_class()(cut, text.language, text.lowercase, effective_order) for effective_order in (False, True)
    )
    return SacreScorer(of_texts, higher_is_better=True, of_sentences=of_lines)


def moses(language: str) -> Callable[[str], str]:
    """Return a function that replaces Unicode punctuation and puts spaces between words."""
    with needing("moses", "the metric 'paper_bleu'"):
        import sacremoses
        from sacremoses.corpus import NonbreakingPrefixes
    known = sorted(set(NonbreakingPrefixes().available_langs.values()))
    if language not in known:
        raise UsageError(
            f"Moses has no rules for the language '{language}'{did_you_mean(language, known)}; choose another with "
            f"--language (default of Moses: en): {', '.join(known)}"
        )
    normalizer, tokenizer = sacremoses.MosesPunctNormalizer(lang=language), sacremoses.MosesTokenizer(lang=language)

    def cut(line: str) -> str:
        return str(tokenizer.tokenize(normalizer.replace_unicode_punct(line), return_str=True))

    return cut


def split_compounds(line: str) -> str:
    """Separate the parts of compounds. As in Perl, a single letter between two hyphens is separated only from the first."""
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)


@functools.cache
def _metric_class() -> Any:
    """Define the class at its first use: importing sacreBLEU is slow."""
    from sacrebleu.metrics.bleu import BLEU, BLEUScore, BLEUSignature

    class PaperSignature(BLEUSignature):
        """Entries that differ from every signature of sacreBLEU."""

        def __init__(self, args: dict[str, Any]) -> None:
            super().__init__(args)
            own = {"tok": f"moses-{args['language']}", "punct": "replaced", "compounds": "split"}
            self.info |= own | {"version": f"nmt-{__version__}"}

    class PaperBLEU(BLEU):
        """The BLEU of multi-bleu.perl: the closest length of a reference counts, the shorter of two."""

        _SIGNATURE_TYPE = PaperSignature

        def __init__(self, cut: Callable[[str], str], language: str, lowercase: bool, effective_order: bool) -> None:
            super().__init__(
                lowercase=lowercase, force=True, tokenize="none", smooth_method="none", effective_order=effective_order
            )
            self.language = language
            self._cut = cut

        def _preprocess_segment(self, sent: str) -> str:
            words = split_compounds(self._cut(sent))
            return words.lower() if self.lowercase else words

        def _compute_score_from_stats(self, stats: Any) -> BLEUScore:
            score = super()._compute_score_from_stats(stats)
            score.name = _NAME
            return score

    return PaperBLEU
