"""A language pair: two languages and their tokenizers, stored in every corpus and run folder.

tokenizer/pair.json                   languages and their tokens, options of the tokenizers, marks of cut text, checksums
tokenizer/source.* and target.*       files of the tokenizers; joint.* if both sides share one

A pair with one vocabulary may have two tokenizers: a model of Marian has a tokenizer for each language and numbers all
tokens in one list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.choices import PieceMarks
from nmt.config.plain import component_from_plain, to_plain
from nmt.data.languages import STORED, Direction, LanguageTokens, NoDirection, SourceToken, listed, tags_of
from nmt.data.tokenizers import Tokenizer, tokenizers
from nmt.data.vocabulary import UNK, VocabularySizes
from nmt.errors import DataError, MissingInputError, UsageError, quantity
from nmt.storage.files import sha256, write_json
from nmt.storage.reading import read_json

PAIR_FILE = "pair.json"
_FORMAT = 1


@dataclass(frozen=True)
class LanguagePair:
    """Two languages and their tokenizers.

    ``shared``: one vocabulary, so that a model may share embeddings. ``languages``: tokens of the languages of a
    multilingual model, or None; ``source_lang`` and ``target_lang`` are then its default direction, or empty.
    """

    source_lang: str
    target_lang: str
    source: Tokenizer
    target: Tokenizer
    shared: bool
    languages: LanguageTokens | None = None

    def __post_init__(self) -> None:
        assert not self.shared or self.source.vocabulary == self.target.vocabulary, "shared, but not equal"

    @property
    def one_tokenizer(self) -> bool:
        """Whether both sides share a tokenizer, which is then stored once."""
        return self.shared and self.source is self.target

    @property
    def sizes(self) -> VocabularySizes:
        """The sizes of both vocabularies."""
        return VocabularySizes(len(self.source.vocabulary), len(self.target.vocabulary), self.shared)

    def __repr__(self) -> str:
        source, target = len(self.source.vocabulary), len(self.target.vocabulary)
        sizes = f"joint vocabulary of {source:,}" if self.shared else f"vocabularies of {source:,} and {target:,}"
        return f"<LanguagePair {self.called}, {sizes} tokens>"

    @property
    def called(self) -> str:
        """Its direction, such as ``en-de``, or the number of its languages if it has no default direction."""
        if self.languages is not None and not (self.source_lang and self.target_lang):
            return quantity(len(self.languages.tokens), "language")
        return f"{self.source_lang}-{self.target_lang}"

    def sides(self, only_source: bool = False) -> list[tuple[str, Tokenizer]]:
        """Return the languages with their tokenizers: source and target, or the source alone."""
        return [(self.source_lang, self.source), (self.target_lang, self.target)][: 2 - only_source]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        tree: dict[str, Any] = {"format": _FORMAT, "source_lang": self.source_lang, "target_lang": self.target_lang}
        tree["shared"] = self.shared
        if self.languages is not None:
            tree["languages"] = self.languages.plain()
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
        pair = cls(*languages, sides[0], sides[-1], shared)
        try:
            if "tag" in tree:  # of an earlier version
                return pair.with_tag(str(tree["tag"]))
            if "languages" in tree:
                return replace(pair, languages=LanguageTokens.of_plain(tree["languages"])).checked()
        except (UsageError, ValueError) as error:
            raise DataError(f"{path} is damaged: {error}") from None
        return pair

    def with_tag(self, tag: str) -> LanguagePair:
        """Return a pair whose sources begin with the language token ``tag``: that of its target language."""
        known = LanguageTokens(tags_of(self.source.vocabulary))
        code = known.code(tag)
        if code is None:
            tokens = f"tokens for {listed([*known.tokens], STORED)}" if known.tokens else "no language tokens"
            raise UsageError(f"the source vocabulary has no token for the language {tag!r}; it has {tokens}")
        own = {self.target_lang: known.tokens[code]} if self.target_lang else {}
        return replace(self, languages=LanguageTokens({**known.tokens, **own}))

    def checked(self) -> LanguagePair:
        """Return the pair. Refuse language tokens that its vocabularies lack."""
        if (languages := self.languages) is not None:
            sides = [(self.source, languages.source is not SourceToken.none), (self.target, languages.target)]
            known = [side.vocabulary for side, has_tokens in sides if has_tokens]
            for token in languages.tokens.values():
                if any(vocabulary.id(token) == UNK for vocabulary in known):
                    raise UsageError(f"the vocabulary lacks the language token {token!r}")
        return self

    @cached_property
    def language_tokens(self) -> LanguageTokens:
        """The languages of the model; without any, those that its source vocabulary has tokens for."""
        return self.languages or LanguageTokens(tags_of(self.source.vocabulary))

    def direction(self, source_lang: str | None = None, target_lang: str | None = None) -> Direction:
        """Return a direction with the ids of its language tokens. None or empty: that language of the default direction."""
        source = self._language(source_lang, self.source_lang, "from")
        target = self._language(target_lang, self.target_lang, "to")
        if self.languages is None and not target_lang:  # a model that was trained without tokens
            return Direction(source, target)
        languages = self.language_tokens
        first = {SourceToken.source: source, SourceToken.target: target}.get(languages.source)
        if self.languages is not None:
            needed = {"source_lang": source} if languages.source is SourceToken.source else {}
            reads_target = languages.target or languages.source is SourceToken.target
            self._require(needed | ({"target_lang": target} if reads_target else {}))
            if languages.source is SourceToken.source and source == target and not (source_lang and target_lang):
                raise UsageError(
                    f"the default of the other language is '{target}' too; give source_lang and target_lang (--source-lang, "
                    f"--target-lang)"
                )
        token = languages.tokens.get(first or "")
        before = [] if token is None else [self.source.vocabulary.id(token)]
        forced = (self.target.vocabulary.id(languages.tokens[target]),) if languages.target else ()
        return Direction(source, target, np.array(before, dtype=np.int64), forced)

    def _language(self, name: str | None, default: str, side: str) -> str:
        """Return the code of a language of the model. ``side``: "from" or "to", for messages."""
        if not name or name == default:
            return default
        if not self.language_tokens.tokens:
            raise UsageError(f"the model translates from {self.source_lang} to {self.target_lang}, not {side} {name}")
        return self.language_tokens.known(name)

    def _require(self, needed: Mapping[str, str]) -> None:
        """Refuse a direction without languages that the model reads. ``needed``: their codes by option."""
        tokens = self.language_tokens.tokens
        if missing := [option for option, code in needed.items() if code not in tokens]:
            flags = ", ".join(f"--{option.replace('_', '-')}" for option in missing)
            raise NoDirection(
                f"the model translates between {len(tokens)} languages: give {' and '.join(missing)} ({flags}); it has "
                f"{listed([*tokens], STORED)}"
            )

    def digest(self) -> str:
        """Return a checksum of both vocabularies: models and corpora of equal digest are compatible."""
        both = f"{self.source.vocabulary.digest()} {self.target.vocabulary.digest()}"
        return hashlib.sha256(both.encode()).hexdigest()

    def is_reverse_of(self, other: LanguagePair) -> bool:
        """Whether it has the languages of the other pair in reverse, by name."""
        turned = (self.source_lang, self.target_lang) == (other.target_lang, other.source_lang)
        return turned and self.source_lang != self.target_lang


def described_with(folder: Path, languages: LanguageTokens) -> bytes:
    """Return the content of the ``pair.json`` of a stored pair, with other languages."""
    tree = {name: value for name, value in read_json(folder / PAIR_FILE).items() if name != "tag"}
    return (json.dumps(tree | {"languages": languages.plain()}, indent=2, ensure_ascii=False) + "\n").encode()


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
