"""The one place that talks to sacreBLEU, so that its figures, signatures and complaints look the same everywhere.

sacreBLEU is imported when a scorer is built, not when this package is: naming the metrics must stay cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmt.errors import DeviceError, UsageError, did_you_mean
from nmt.scoring import Score
from nmt.scoring.lines import check_lines


def check_tokenizer(name: str) -> None:
    """Refuse a tokenizer that sacreBLEU does not have, and list those it has."""
    from sacrebleu.metrics.bleu import BLEU

    names = tuple(BLEU.TOKENIZERS)
    if name not in names:
        raise UsageError(f"unknown tokenizer '{name}'{did_you_mean(name, names)}; sacreBLEU has: {', '.join(names)}")


def bleu(tokenize: str, lowercase: bool) -> Any:
    """sacreBLEU's metric. Some tokenizers need a package or a download; what is missing is said in one sentence."""
    from sacrebleu.metrics.bleu import BLEU

    check_tokenizer(tokenize)
    try:
        # force: only silences sacreBLEU's own warning about tokenised text; nmt-score has a better one.
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"sacreBLEU's tokenizer '{tokenize}' cannot be used here: {reason}") from error
    except OSError as error:
        from sacrebleu.utils import SACREBLEU_DIR

        raise DeviceError(
            f"sacreBLEU's tokenizer '{tokenize}' needs a file that it could not download to {SACREBLEU_DIR} ({error}); "
            f"connect to the network once, or put the file there"
        ) from error


def chrf(lowercase: bool) -> Any:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(lowercase=lowercase)


def ter(tokenize: str, lowercase: bool) -> Any:
    """Tercom's TER. It has a tokenizer of its own; text without spaces between words needs its East Asian rules."""
    from sacrebleu.metrics.ter import TER

    check_tokenizer(tokenize)
    asian = tokenize in ("zh", "ja-mecab", "ko-mecab")
    return TER(case_sensitive=not lowercase, normalized=asian, asian_support=asian)


def corpus_score(
    metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, higher_is_better: bool
) -> Score:
    """The score of a whole corpus with sacreBLEU's signature for exactly this computation."""
    check_lines(hypotheses, references)
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    name, _, detail = result.format(width=2).partition(" = ")
    _, _, detail = detail.partition(" ")  # the figure itself is `value`, with all its digits
    return Score(
        name=name,
        value=float(result.score),
        higher_is_better=higher_is_better,
        signature=str(metric.get_signature()),
        detail=detail,
    )
