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
        raise self._refusal("learned from text")

    def from_file(self, path: Path) -> Tokenizer:
        raise self._refusal(f"made from {path} alone")

    def _refusal(self, origin: str) -> UsageError:
        return UsageError(
            f"tokenizer={tokenizers.name_of(type(self._config))} cannot be {origin}: it comes with an imported model; "
            f"give the folder of that model as --srcdict FOLDER --tgtdict FOLDER"
        )
