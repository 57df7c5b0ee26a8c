"""Text with damage at random ends in a sentence, or in the pairs that a slow reading of the same bytes gives.

What cannot be read slowly must be refused; what is refused leaves nothing behind.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nmt.config.choices import InvalidText, PieceMarks
from nmt.config.preprocessing import FilterConfig, PreprocessConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.corpus.stored_text import StoredPairs
from nmt.data.tokenizers.piece_lists import CharConfig
from nmt.errors import NMTError
from nmt.preprocessing.preprocess import preprocess
from tests.faults.mutations import in_a_child, mutations

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Pairs = list[tuple[str | None, str | None]]

SOURCE = [
    "one red tree",
    "zwei grüne Häuser",
    "x",
    "drei \u2028 Ünïcode",
    "four; 'five'",
    'a "quoted" word',
    "b\u0085c",
]
TARGET = ["un arbre rouge", "deux maisons", "y", "trois\vfeuilles", "\u56db\u4e94", "\U0001f600 ok", "c d"]
LINES = {"en": SOURCE, "de": TARGET}
_PACKED: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (lambda content: gzip.compress(content, mtime=0), gzip.decompress),
    ".xz": (lzma.compress, lambda content: unpacked(lzma.LZMADecompressor, content)),
    ".zst": (zstd.compress, lambda content: unpacked(zstd.ZstdDecompressor, content)),
}
_BREAKS = re.compile("[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")


def content_of(name: str) -> bytes:
    """Of a sound file of this name; a packed one is two that were put together, as is often done."""
    plain = name
    for packed, (pack, _) in _PACKED.items():
        if name.endswith(packed):
            whole = content_of(name.removesuffix(packed))
            middle = whole.index(b"\n", len(whole) // 2) + 1
            return pack(whole[:middle]) + pack(whole[middle:])
    if plain.endswith(".tsv"):
        lines = [f"{source}\t{target}\tmore" for source, target in zip(SOURCE, TARGET)]
    elif plain.endswith(".jsonl"):
        pairs = zip(SOURCE, TARGET)
        lines = [
            json.dumps({"id": n, "en": en, "of": {"de": de}}, ensure_ascii=n % 2 == 0)
            for n, (en, de) in enumerate(pairs)
        ]
    else:
        lines = LINES[plain.rpartition(".")[2]]
    return "".join(f"{line}\n" for line in lines).encode()


def unpacked(begin: Callable[[], Any], content: bytes) -> bytes:
    """Of all streams that were put together; ``lzma.decompress`` stops at one that is damaged, and says nothing."""
    found = b""
    while content:
        stream = begin()
        found += stream.decompress(content)
        if not stream.eof:
            raise EOFError
        content = stream.unused_data.lstrip(b"\0" if begin is lzma.LZMADecompressor else b"")
    return found


def slow_lines(name: str, content: bytes, invalid: InvalidText) -> list[str | None]:
    for packed, (_, unpack) in _PACKED.items():
        if name.endswith(packed):
            content = unpack(content)
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [slow_text(line.removesuffix(b"\r"), invalid) for line in lines]


def slow_text(line: bytes, invalid: InvalidText) -> str | None:
    try:
        text = line.decode()
        if "\0" not in text:
            return text
    except UnicodeDecodeError:
        pass
    if invalid is InvalidText.error:
        raise ValueError(line)
    return None if invalid is InvalidText.skip else line.decode(errors="replace").replace("\0", "\ufffd")


def slow_pairs(files: dict[str, bytes], invalid: InvalidText) -> Pairs:
    pairs: Pairs = []
    sides = {}
    for name, content in files.items():
        lines = slow_lines(name, content, invalid)
        if ".tsv" in name:
            pairs += [(None, None) if line is None else (line.split("\t")[0], line.split("\t")[1]) for line in lines]
        elif ".jsonl" in name:
            pairs += [(None, None) if line is None else slow_object(line) for line in lines]
        else:
            sides["en" if ".en" in name else "de"] = lines
    if sides:
        pairs[:0] = zip(sides["en"], sides["de"], strict=True)
    return pairs


def slow_object(line: str) -> tuple[str, str]:
    tree = json.loads(line)
    found = tree["en"], tree["of"]["de"]
    if any("\0" in text for text in found):
        raise ValueError(line)
    for text in found:
        text.encode()
    return _BREAKS.sub(" ", found[0]), _BREAKS.sub(" ", found[1])


@dataclass(frozen=True)
class Form:
    """Files that are one training text, the two sides of a pair of files first."""

    files: tuple[str, ...]
    invalid: InvalidText = InvalidText.error

    def __str__(self) -> str:
        return f"{'+'.join(self.files)}-{self.invalid.value}"


FORMS = [
    Form(("train.en", "train.de")),
    Form(("train.en", "train.de"), InvalidText.skip),
    Form(("train.en", "train.de"), InvalidText.replace),
    Form(("train.en.gz", "train.de")),
    Form(("train.en", "train.de.xz"), InvalidText.skip),
    Form(("train.en.zst", "train.de.zst"), InvalidText.replace),
    Form(("more.tsv",)),
    Form(("more.tsv.xz",), InvalidText.skip),
    Form(("more.jsonl",), InvalidText.skip),
    Form(("more.jsonl.zst",)),
    Form(("train.en", "train.de", "more.tsv.gz", "more.jsonl"), InvalidText.replace),
]


def prepared(folder: Path, form: Form) -> Pairs:
    """The pairs that are kept, as they are stored; their pieces must be theirs."""
    prefixes = dict.fromkeys("train" if name.startswith("train.") else name for name in form.files)
    config = PreprocessConfig(
        source_lang="en",
        target_lang="de",
        trainpref=",".join(str(folder / prefix) for prefix in prefixes),
        fields=["en", "of.de"],
        destdir=str(folder / "corpus"),
        tokenizer=CharConfig(),
        pieces=PieceMarks.none,
        filters=FilterConfig(max_length=10**6),
        on_invalid_utf8=form.invalid,
        keep_text=True,
    )
    preprocess(config)
    corpus = Corpus.open(folder / "corpus")
    train, texts = corpus.split("train"), StoredPairs([corpus], "train")
    kept: Pairs = [texts[number] for number in range(len(train))]
    for number, (source, target) in enumerate(kept):
        assert [corpus.pair.source.vocabulary.pieces[one] for one in train.source(number)[:-1]] == list(source or "")
        assert [corpus.pair.target.vocabulary.pieces[one] for one in train.target(number)[:-1]] == list(target or "")
    return kept


def check(folder: Path, form: Form, seed: int, number: int, note: Callable[[object], None]) -> None:
    """Damages each of the files in turn. Some damage of text is no obstacle; what is packed may be refused each time."""
    sound = {name: content_of(name) for name in form.files}
    read = 0
    for damaged in form.files:
        for count, content in enumerate(mutations(sound[damaged], seed, number)):
            note(f"mutation {count} of {damaged}: {content!r}")
            files = sound | {damaged: content}
            read += same(folder, form, files)
    assert read > 0 or all(name.endswith(tuple(_PACKED)) for name in form.files)


def same(folder: Path, form: Form, files: dict[str, bytes]) -> bool:
    """Whether the files are read, which makes sure that nothing shifts."""
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        kept = prepared(folder, form)
    except NMTError as error:
        assert str(error) and sorted(path.name for path in folder.iterdir()) == sorted(files)
        return False
    every = slow_pairs(files, form.invalid)  # raises where nothing should have been read
    assert kept == [(source, target) for source, target in every if (source or "").strip() and (target or "").strip()]
    remove(folder / "corpus")
    return True


def remove(corpus: Path) -> None:
    for path in sorted(corpus.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    corpus.rmdir()


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_damaged_text_is_refused_or_read_as_it_is(form: Form, tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    assert same(folder, form, {name: content_of(name) for name in form.files})
    wrong = in_a_child(lambda note: check(folder, form, 1, 30 // len(form.files), note), tmp_path / "report")
    assert not wrong, wrong


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 4))
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_much_damaged_text_is_refused_or_read_as_it_is(form: Form, seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    wrong = in_a_child(lambda note: check(folder, form, seed, 600 // len(form.files), note), tmp_path / "report")
    assert not wrong, wrong
