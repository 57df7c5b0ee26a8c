"""Builder of tokenizers that are stored with imported models and never trained."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nmt.data.tokenizers import Tokenizer, TokenizerBuilder, tokenizers
from nmt.errors import UsageError


class ImportedBuilder(TokenizerBuilder):
    """Loads the tokenizer that an importer stored; refuses to train one."""

    trains = False

    def __init__(self, config: Any) -> None:
        self._config = config

    def train(self, lines: Iterable[str], seed: int) -> Tokenizer:
        raise self._refusal()

    def from_file(self, path: Path) -> Tokenizer:
        raise self._refusal(f"not of {path} alone: ")

    def _refusal(self, why: str = "") -> UsageError:
        return UsageError(
            f"tokenizer={tokenizers.name_of(type(self._config))} is not made here, {why}it comes with an imported model; "
            f"to cut text as that model does, give its folder: --srcdict FOLDER --tgtdict FOLDER"
        )
