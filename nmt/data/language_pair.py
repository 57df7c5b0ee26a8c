"""A language pair: two languages and their tokenizers, stored in every corpus and run folder.

tokenizer/pair.json                   languages, options of the tokenizers, marks of text that was cut before, checksums
tokenizer/source.* and target.*       files of the tokenizers; joint.* if both sides share one

A pair with one vocabulary may have two tokenizers: a model of Marian has a tokenizer for each language and numbers all
tokens in one list.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.choices import PieceMarks
from nmt.config.plain import component_from_plain, to_plain
from nmt.data.language_tags import tag_id
from nmt.data.tokenizers import Tokenizer, tokenizers
from nmt.data.vocabulary import Ids
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.storage.files import sha256, write_json
from nmt.storage.reading import read_json

PAIR_FILE = "pair.json"
_FORMAT = 1


@dataclass(frozen=True)
class LanguagePair:
    """Two languages and their tokenizers.

    ``shared``: one vocabulary, so that a model may share embeddings. ``tag``: the language tag before each source, or None.
    """

    source_lang: str
    target_lang: str
    source: Tokenizer
    target: Tokenizer
    shared: bool
    tag: str | None = None

    def __post_init__(self) -> None:
        assert not self.shared or self.source.vocabulary == self.target.vocabulary, "shared, but not equal"

    @property
    def one_tokenizer(self) -> bool:
        """Whether both sides share a tokenizer, which is then stored once."""
        return self.shared and self.source is self.target

    def sides(self, only_source: bool = False) -> list[tuple[str, Tokenizer]]:
        """Return the languages with their tokenizers: source and target, or the source alone."""
        return [(self.source_lang, self.source), (self.target_lang, self.target)][: 2 - only_source]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        tree: dict[str, Any] = {"format": _FORMAT, "source_lang": self.source_lang, "target_lang": self.target_lang}
        tree["shared"] = self.shared
        if self.tag is not None:
            tree["tag"] = self.tag
        sides = {"joint": self.source} if self.one_tokenizer else {"source": self.source, "target": self.target}
        for stem, tokenizer in sides.items():
            tokenizer.save(folder, stem)
            tree[stem] = {} if tokenizer.marks is PieceMarks.none else {"marks": tokenizer.marks.name}
            tree[stem] |= {
                "tokenizer": to_plain(tokenizer.config),
                "entries": len(tokenizer.vocabulary),
                "vocabulary": tokenizer.vocabulary.digest(),
                "files": {path.name: sha256(path) for path in sorted(folder.glob(f"{stem}.*"))},
            }
        write_json(folder / PAIR_FILE, tree)

    @classmethod
    def load(cls, folder: Path) -> LanguagePair:
        path = folder / PAIR_FILE
        if not path.is_file():
            raise MissingInputError(f"{folder} holds no tokenizer: {PAIR_FILE} is missing")
        tree = read_json(path)
        if not isinstance(tree, dict):
            raise DataError(f"{path} is damaged: it should be a mapping")
        if tree.get("format") != _FORMAT:
            raise DataError(f"{path} has format {tree.get('format')!r}; this version reads format {_FORMAT}")
        shared = bool(tree.get("shared"))
        stems = ("joint",) if shared and "source" not in tree else ("source", "target")
        sides = [_load_side(path, stem, tree) for stem in stems]
        if shared and sides[0].vocabulary != sides[-1].vocabulary:
            raise DataError(f"{path} is damaged: it says shared=true, but the two vocabularies differ")
        languages = str(tree.get("source_lang", "")), str(tree.get("target_lang", ""))
        tag = tree.get("tag")
        pair = cls(*languages, sides[0], sides[-1], shared, None if tag is None else str(tag))
        try:
            pair.before_sources()
        except UsageError as error:
            raise DataError(f"{path} is damaged: {error}") from None
        return pair

    def before_sources(self) -> Ids:
        """Return an array with the id of the tag, or an empty one."""
        return np.array([] if self.tag is None else [tag_id(self.source.vocabulary, self.tag)], dtype=np.int64)

    def digest(self) -> str:
        """Return a checksum of both vocabularies: models and corpora of equal digest are compatible."""
        both = f"{self.source.vocabulary.digest()} {self.target.vocabulary.digest()}"
        return hashlib.sha256(both.encode()).hexdigest()

    def is_reverse_of(self, other: LanguagePair) -> bool:
        """Whether it has the languages of the other pair in reverse, by name."""
        turned = (self.source_lang, self.target_lang) == (other.target_lang, other.source_lang)
        return turned and self.source_lang != self.target_lang


def find_pair(folder: Path) -> Path | None:
    """Return the folder of the pair in a tokenizer, corpus, shards, checkpoint or run folder, or None."""
    for candidate in (folder, folder / "tokenizer", *sorted(folder.glob("shard-*-of-*/tokenizer"))):
        if (candidate / PAIR_FILE).is_file():
            return candidate
    return None


def _load_side(path: Path, stem: str, tree: dict[str, Any]) -> Tokenizer:
    """Load a tokenizer, after its files were compared with their checksums."""
    facts = tree.get(stem)
    if not isinstance(facts, dict) or not isinstance(facts.get("files"), dict):
        raise DataError(f"{path} is damaged: it does not describe the tokenizer '{stem}'")
    for name, checksum in facts["files"].items():
        file = path.parent / Path(name).name
        if not file.is_file():
            raise DataError(f"{file} is missing, although {PAIR_FILE} lists it")
        if sha256(file) != checksum:
            raise DataError(f"tokenizer file {file} is damaged: its checksum differs from the one in {PAIR_FILE}")
    config = component_from_plain("tokenizer", facts.get("tokenizer"), origin=str(path))
    tokenizer = tokenizers.build(config).load(path.parent, stem)
    if tokenizer.vocabulary.digest() != facts.get("vocabulary"):
        raise DataError(f"{path}: the vocabulary of '{stem}' differs from the stored one")
    marks = facts.get("marks", PieceMarks.none.name)
    if str(marks) not in PieceMarks.__members__:
        raise DataError(f"{path}: marks={marks!r} must be one of {', '.join(PieceMarks.__members__)}")
    return tokenizer.joining(PieceMarks[marks])
