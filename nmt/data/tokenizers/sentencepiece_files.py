"""Model files of sentencepiece: read, and those from elsewhere tried out first."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from nmt.errors import DataError, MissingInputError

_CHECK_SECONDS = 60
# Loads a model, reads its pieces and cuts a few words: a file that crashes the library must not crash us.
_CHECK = """
import sys
sys.path = [folder for folder in sys.path if folder]  # not the working directory
import sentencepiece
model = sentencepiece.SentencePieceProcessor(model_proto=open(sys.argv[1], "rb").read())
assert model.vocab_size() > 0
model.id_to_piece(list(range(model.vocab_size())))
model.decode([model.unk_id()])
model.decode(model.encode("Check 123, \\u00e9\\u4e2d."))
"""


def read_foreign_model(path: Path) -> bytes:
    """A model file from anywhere: tried out in a process of its own before it is let in here."""
    model = read_model(path)
    if not _survives(path):
        raise DataError(
            f"tokenizer file {path} is damaged, or no sentencepiece model; a list of pieces needs tokenizer=words "
            f"or tokenizer=char"
        )
    return model


@contextlib.contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turns the library's errors about a model file into sentences."""
    try:
        yield
    except (RuntimeError, AssertionError, UnicodeDecodeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(f"{path} is damaged: it is no sentencepiece model ({reason})") from None


def read_model(path: Path) -> bytes:
    try:
        model = path.read_bytes()
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None
    if not model:  # the library takes this for a model that is not loaded yet
        raise DataError(f"{path} is damaged: it is empty")
    return model


def _survives(path: Path) -> bool:
    """Whether the library can load and use a model file without failing or crashing."""
    command = [sys.executable, "-c", _CHECK, str(path.absolute())]
    try:
        return subprocess.run(command, capture_output=True, timeout=_CHECK_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
