"""Learning pieces with sentencepiece: the options, and what its trainer needs to be told."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import sentencepiece

from nmt.config.option import option
from nmt.config.sections import require_positive
from nmt.data.vocabulary import BOS, EOS, PAD, UNK
from nmt.errors import DataError, UsageError

_THREADS = 4  # the trained model's bytes depend on their number: one for every machine
_FEWEST_LINES = 100  # sentencepiece refuses to sample fewer
# It passes over longer lines in silence. Told to read them, it fails at very long words.
_LONGEST_LINE = 4192  # bytes
_LONGEST_CHARACTER = 4


class Normalization(Enum):
    """How sentencepiece rewrites characters before it cuts; "cf" folds case."""

    nmt_nfkc = "nmt_nfkc"
    nfkc = "nfkc"
    nmt_nfkc_cf = "nmt_nfkc_cf"
    nfkc_cf = "nfkc_cf"
    identity = "identity"


@dataclass
class SentencePieceConfig:
    """What both kinds of sentencepiece model are trained with."""

    vocab_size: int = option(
        8000, help="size of the vocabulary, the four special entries included", flag="--vocab-size"
    )
    character_coverage: float = option(
        1.0,
        help="share of the characters that get a piece; 0.9995 for languages with thousands of characters",
        flag="--character-coverage",
    )
    normalization: Normalization = option(
        Normalization.nmt_nfkc,
        help="rewriting of characters: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf (fold case) or identity",
        flag="--normalization",
    )
    byte_fallback: bool = option(
        False, help="spell unknown characters in bytes: nothing is unknown", flag="--byte-fallback"
    )
    hard_vocab_limit: bool = option(True, help="false: accept a smaller vocabulary where the text supports no more")
    max_training_lines: int = option(
        10_000_000, help="learn from a sample of at most this many lines", flag="--max-training-lines"
    )

    def __post_init__(self) -> None:
        require_positive("tokenizer", vocab_size=self.vocab_size)
        if self.max_training_lines <= _FEWEST_LINES:
            raise UsageError(
                f"tokenizer.max_training_lines={self.max_training_lines} must be more than {_FEWEST_LINES}"
            )
        if not 0.9 <= self.character_coverage <= 1.0:
            raise UsageError(f"tokenizer.character_coverage={self.character_coverage} must lie between 0.9 and 1")


def train(config: SentencePieceConfig, model_type: str, lines: Iterable[str]) -> bytes:
    """The serialized model of pieces learned from text."""
    model = io.BytesIO()
    source = _Watched(part for line in lines for part in _parts(line))
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(source),
            model_writer=model,
            model_type=model_type,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            normalization_rule_name=config.normalization.value,
            byte_fallback=config.byte_fallback,
            hard_vocab_limit=config.hard_vocab_limit,
            input_sentence_size=config.max_training_lines,
            max_sentence_length=_LONGEST_LINE,
            shuffle_input_sentence=True,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_piece=_hidden("pad"),
            unk_piece=_hidden("unk"),
            bos_piece=_hidden("bos"),
            eos_piece=_hidden("eos"),
            num_threads=_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        if source.error is not None:
            raise source.error from None
        if "sentences_.empty()" in str(error):
            raise DataError("there is no text to learn pieces from: every training line is empty") from error
        raise UsageError(_explained(config, str(error))) from error
    return model.getvalue()


def _explained(config: SentencePieceConfig, message: str) -> str:
    """The library's message as a sentence that names the option to change."""
    size = config.vocab_size
    if match := re.search(r"Vocabulary size too high .*<= (\d+)", message):
        return (
            f"tokenizer.vocab_size={size} is more than this text supports: set --vocab-size {match[1]} or less, "
            f"or tokenizer.hard_vocab_limit=false to take what there is"
        )
    if match := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return (
            f"tokenizer.vocab_size={size} is less than the {match[1]} entries that the characters of this text need: "
            f"raise --vocab-size, or lower tokenizer.character_coverage={config.character_coverage}"
        )
    return f"learning {size} pieces failed (tokenizer.vocab_size, --vocab-size): {message.strip()}"


class _Watched:
    """Passes lines on and remembers what went wrong: the trainer turns any error of its iterator into its own."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._lines
        except BaseException as error:  # Ctrl-C, too
            self.error = error
            raise


def _parts(line: str) -> Iterator[str]:
    """A line as the trainer reads it: whole, or where it is too long cut in parts, between words if there are some."""
    size = _LONGEST_LINE // _LONGEST_CHARACTER
    if len(line) <= size or len(line.encode("utf-8", "surrogatepass")) <= _LONGEST_LINE:
        yield line
        return
    begin = 0
    while begin < len(line):
        space = line.rfind(" ", begin + 1, begin + size) if len(line) > begin + size else -1
        end = begin + size if space < 0 else space
        yield line[begin:end]
        begin = end


def _hidden(special: str) -> str:
    """A spelling of a special that does not occur in text.

    The trainer cuts these spellings out of what it learns from; with "</s>" the characters "<" and "/" might get no
    piece. Nobody sees this one: our vocabulary has its own specials.
    """
    return f"\ue000<{special}>\ue000"
