"""The BLEU of "Attention Is All You Need", for comparisons with the papers of its time; as a rule higher than sacreBLEU's.

Vaswani et al. (2017) report what tensor2tensor's get_ende_bleu.sh prints: Unicode punctuation replaced, words cut by the
rules of Moses, compounds split at their hyphens, and the BLEU of multi-bleu.perl. That script is given references which
somebody has cut into words before; here hypotheses and references are treated alike.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any

from nmt import __version__
from nmt.errors import UsageError, did_you_mean
from nmt.scoring import SacreScorer, Scorer, TextOptions, scorers

_NAME = "paper BLEU"
_HYPHEN = re.compile(r"(\S)-(\S)")


@scorers.register("paper_bleu", make_dataclass("PaperBleuConfig", ()))
def paper_bleu(config: Any, text: TextOptions) -> Scorer:
    """BLEU of words by Moses, with split compounds and no smoothing. ``tokenize`` changes nothing, ``language`` does."""
    cut = moses(text.language)
    of_texts, of_lines = (
        _metric_class()(cut, text.language, text.lowercase, effective_order) for effective_order in (False, True)
    )
    return SacreScorer(of_texts, higher_is_better=True, of_sentences=of_lines)


def moses(language: str) -> Callable[[str], str]:
    """What puts spaces between the words of a line, after Unicode punctuation is replaced."""
    try:
        import sacremoses
        from sacremoses.corpus import NonbreakingPrefixes
    except ImportError:
        raise UsageError(
            "the metric 'paper_bleu' cuts text into words by the rules of Moses, which needs a package that is not "
            "installed: pip install 'nmt-toolkit[moses]'"
        ) from None
    known = sorted(set(NonbreakingPrefixes().available_langs.values()))
    if language not in known:
        raise UsageError(
            f"Moses has no rules of the language '{language}'{did_you_mean(language, known)}; choose those of another one "
            f"with --language (Moses itself takes en): {', '.join(known)}"
        )
    normalizer, tokenizer = sacremoses.MosesPunctNormalizer(lang=language), sacremoses.MosesTokenizer(lang=language)

    def cut(line: str) -> str:
        return str(tokenizer.tokenize(normalizer.replace_unicode_punct(line), return_str=True))

    return cut


def split_compounds(line: str) -> str:
    """A word at each hyphen within one. As in Perl, a letter between two hyphens belongs to the first one alone."""
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)


@functools.cache
def _metric_class() -> Any:
    """Made when it is needed, since sacreBLEU takes its time."""
    from sacrebleu.metrics.bleu import BLEU, BLEUScore, BLEUSignature

    class PaperSignature(BLEUSignature):
        """Nothing of it reads like a signature of sacreBLEU."""

        def __init__(self, args: dict[str, Any]) -> None:
            super().__init__(args)
            said = {"tok": f"moses-{args['language']}", "punct": "replaced", "compounds": "split"}
            self.info |= said | {"version": f"nmt-{__version__}"}

    class PaperBLEU(BLEU):
        """multi-bleu.perl: of several references the length that is closest, the shorter one of two."""

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
