"""Flags of fairseq that are understood although they are none of ours, and what each of them comes to.

Only what keeps its meaning stands here: it becomes arguments of ours, or changes nothing. Either is said in the log. What
would lose its meaning is refused with advice, in ``flags.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nmt.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class ForeignFlag:
    """One flag. ``words`` makes arguments of ours of its value; none: it changes nothing, ``because`` says why."""

    needs: str  # a flag that every command has which understands this one
    because: str = ""
    takes_value: bool = False
    optional: frozenset[str] = frozenset()  # values that may follow, of a flag that also stands alone
    words: Callable[[str, str], Sequence[str]] = lambda name, value: ()

    def becomes(self, name: str, value: str | None) -> tuple[tuple[str, ...], str]:
        """Our arguments, and a line for the log."""
        words = tuple(self.words(name, value or ""))
        given = name if value is None else f"{name} {value}"
        if not words:
            return (), f"{given} changes nothing: {self.because or 'it names no option'}"
        return words, f"{given}: taken as {' '.join(words)}{f'; {self.because}' if self.because else ''}"


def _always(*words: str) -> Callable[[str, str], Sequence[str]]:
    return lambda name, value: words


def _one_of(choices: Mapping[str, tuple[str, ...]], otherwise: str) -> Callable[[str, str], Sequence[str]]:
    """What each value stands for; any other is refused."""

    def words(name: str, value: str) -> Sequence[str]:
        if value not in choices:
            raise UsageError(f"{name} {value}: {otherwise}")
        return choices[value]

    return words


# Of --eval-bleu-args: fairseq's name, and ours.
_SEARCH = {
    "beam": "search.beam_size",
    "lenpen": "search.lenpen",
    "max_len_a": "search.max_len_a",
    "max_len_b": "search.max_len_b",
    "min_len": "search.min_len",
    "no_repeat_ngram_size": "search.no_repeat_ngram",
}


def _search(name: str, value: str) -> Sequence[str]:
    """Options of the search. fairseq divides by the length to the power of lenpen; the default is another one here."""
    try:
        options = json.loads(value)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise UsageError(f"""{name} {value}: it takes JSON, such as '{{"beam": 5, "lenpen": 1}}'""")
    words: list[str] = []
    for option, given in options.items():
        if option not in _SEARCH:
            raise UsageError(
                f"{name}: there is no counterpart of '{option}'{did_you_mean(option, _SEARCH)}; it takes "
                f"{', '.join(_SEARCH)}, and all others are options of --search"
            )
        if isinstance(given, bool) or not isinstance(given, (int, float)):
            raise UsageError(f"{name}: {option} is a number, not {json.dumps(given)}")
        words += ["search.length_penalty=power"] if option == "lenpen" else []
        words.append(f"{_SEARCH[option]}={given}")
    return words


_JOINED = ("@@", "@@ ", "sentencepiece", "subword_nmt")  # marks that are known here too
_TEXT_AS_GIVEN = "translations come out as text like that which nmt-preprocess was given"

FOREIGN: dict[str, ForeignFlag] = {
    "--task": ForeignFlag(
        "--data",
        "there is one task",
        takes_value=True,
        words=_one_of({"translation": ()}, "there is one task, translation; leave it out"),
    ),
    "--eval-bleu": ForeignFlag("--valid-metrics", words=_always("--valid-metrics=bleu")),
    "--eval-bleu-args": ForeignFlag("--valid-metrics", takes_value=True, words=_search),
    "--eval-bleu-detok": ForeignFlag(
        "--valid-metrics", f"{_TEXT_AS_GIVEN}, detokenised where that was raw text", takes_value=True
    ),
    "--eval-bleu-detok-args": ForeignFlag("--valid-metrics", "nothing is left to detokenise", takes_value=True),
    "--eval-bleu-remove-bpe": ForeignFlag(
        "--valid-metrics",
        "pieces are joined, of text that came in pieces where the corpus has recorded its marks",
        optional=frozenset({*_JOINED, "letter", "_EOW", "none"}),
        words=_one_of(
            dict.fromkeys(("", *_JOINED), ()),
            "pieces are joined as the corpus says; leave it out (nmt-preprocess --pieces sets it)",
        ),
    ),
    "--eval-bleu-print-samples": ForeignFlag(
        "--valid-metrics", "each validation shows translations in the log (--valid-samples N: how many)"
    ),
    "--maximize-best-checkpoint-metric": ForeignFlag(
        "--valid-metrics", "every metric knows its direction, and more of bleu is better"
    ),
    "--skip-invalid-size-inputs-valid-test": ForeignFlag(
        "--data", "no sentence is left out for its length, a long one gets a batch of its own"
    ),
    "--memory-efficient-fp16": ForeignFlag(
        "--precision", "in training the parameters stay in float32", words=_always("--precision", "fp16")
    ),
    "--memory-efficient-bf16": ForeignFlag(
        "--precision", "in training the parameters stay in float32", words=_always("--precision", "bf16")
    ),
    "--log-format": ForeignFlag(
        "--progress",
        takes_value=True,
        words=_one_of(
            {"simple": ("--progress", "lines"), "tqdm": ("--progress", "bar"), "none": ("--progress", "none")},
            "use --progress lines or --progress bar; the run folder holds log.jsonl",
        ),
    ),
    "--num-workers": ForeignFlag("--data", "batches are read from mapped files", takes_value=True),
    "--ddp-backend": ForeignFlag(
        "--distributed-strategy",
        "torchrun starts the processes, and torch's DDP joins them",
        takes_value=True,
        words=_one_of(
            dict.fromkeys(("c10d", "pytorch_ddp", "no_c10d", "legacy_ddp"), ()),
            "torchrun starts the processes; leave it out, or use --distributed-strategy fsdp for fully_sharded",
        ),
    ),
}
