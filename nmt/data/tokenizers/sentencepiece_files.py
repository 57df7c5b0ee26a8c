"""Model files of sentencepiece; files from elsewhere are tested in a separate process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from nmt.errors import DataError
from nmt.storage.reading import read_file

_CHECK_SECONDS = 60
# Loads a model, reads its tokens and cuts a few words, since a damaged file may crash the library.
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
    """Read a model file from elsewhere, after a test in a separate process."""
    model = read_model(path)
    if not _survives(path):
        raise DataError(
            f"tokenizer file {path} is damaged, or not a sentencepiece model; a token list needs tokenizer=words "
            f"or tokenizer=char"
        )
    return model


@contextlib.contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Translate the library's errors about a model file."""
    try:
        yield
    except (RuntimeError, AssertionError, UnicodeDecodeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(f"{path} is damaged: it is not a sentencepiece model ({reason})") from None


def read_model(path: Path) -> bytes:
    model = read_file(path)
    if not model:  # the library takes this for a model that is not loaded yet
        raise DataError(f"{path} is damaged: it is empty")
    return model


def _survives(path: Path) -> bool:
    """Whether the library loads and uses a model file without failing or crashing."""
    command = [sys.executable, "-c", _CHECK, str(path.absolute())]
    try:
        return subprocess.run(command, capture_output=True, timeout=_CHECK_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
