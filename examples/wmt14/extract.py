"""Extract the text of WMT 2014 for one language pair from the archives, as plain files with one sentence per line.

    python examples/wmt14/extract.py en-de runs/wmt14/archives runs/wmt14/en-de/text

The script reads only the needed members of each archive. It chooses the names of the output files and uses no path of
an archive. Training text stays unchanged, byte for byte. The test set becomes the segments of its SGML, with entities
such as &amp; converted to characters. Both sides of a text must have the same number of lines. Existing texts are
skipped.
"""

from __future__ import annotations

import argparse
import gzip
import html
import lzma
import os
import re
import sys
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nmt.errors import DataError, MissingInputError, NMTError, quantity

BLOCK = 2**20
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Text:
    """Both sides of a text: their archive and members.

    In a member, {0} is the language of the side, and {1} the language pair as in the names of the archive.
    """

    name: str
    archive: str
    source: str
    target: str

    @classmethod
    def plain(cls, name: str, archive: str, member: str) -> Text:
        """Return a text whose member names differ only in the language."""
        return cls(name, archive, member, member)

    def members(self, pair: str) -> dict[str, str]:
        """Return the member of the archive for each language."""
        source, target = pair.split("-")
        among = f"{target}-{source}"
        return {source: self.source.format(source, among), target: self.target.format(target, among)}


_EUROPARL = Text.plain("europarl-v7", "training-parallel-europarl-v7.tgz", "training/europarl-v7.{1}.{0}")
_CRAWL = Text.plain("commoncrawl", "training-parallel-commoncrawl.tgz", "commoncrawl.{1}.{0}")
_NEWS = Text.plain("news-commentary-v9", "training-parallel-nc-v9.tgz", "training/news-commentary-v9.{1}.{0}")
_UN = Text.plain("un", "training-parallel-un.tgz", "un/undoc.2000.{1}.{0}")
_GIGA = Text.plain("giga-fren", "training-giga-fren.tar", "giga-fren.release2.fixed.{0}.gz")
_VALID = Text.plain("newstest2013", "dev.tgz", "dev/newstest2013.{0}")


def _test(pair: str) -> Text:
    source, target = (f"test-full/newstest2014-{pair}-{side}.{{0}}.sgm" for side in ("src", "ref"))
    return Text("newstest2014", "test-full.tgz", source, target)


TEXTS = {
    "en-de": (_EUROPARL, _CRAWL, _NEWS, _VALID, _test("deen")),
    "en-fr": (_EUROPARL, _CRAWL, _NEWS, _UN, _GIGA, _VALID, _test("fren")),
}


def extract(pair: str, archives: Path, folder: Path) -> Iterator[tuple[str, int | None]]:
    """Extract the texts. Yield each text with its number of lines; None: it existed before."""
    folder.mkdir(parents=True, exist_ok=True)
    for text in TEXTS[pair]:
        files = {language: folder / f"{text.name}.{language}" for language in text.members(pair)}
        if all(file.exists() for file in files.values()):
            yield text.name, None
        else:
            yield text.name, _extract_text(text, pair, archives / text.archive, files)


def _extract_text(text: Text, pair: str, archive: Path, files: dict[str, Path]) -> int:
    """Extract both sides and return their number of lines.

    Both files get their final names only after both are complete and have the same length.
    """
    members = text.members(pair)
    parts = {language: file.with_name(f"{file.name}.part") for language, file in files.items()}
    counts = copy_members(archive, {members[language]: parts[language] for language in members})
    lines = {language: counts[member] for language, member in members.items()}
    if len(set(lines.values())) > 1:
        said = " and ".join(f"{count:,} of {language}" for language, count in lines.items())
        raise DataError(f"{archive}: the lines of {text.name} do not pair ({said}); get the archive again")
    for language, part in parts.items():
        os.replace(part, files[language])
    return next(iter(lines.values()))


def copy_members(archive: Path, wanted: dict[str, Path]) -> dict[str, int]:
    """Copy members of an archive to files. Return the number of lines of each.

    The archive is read once, up to the last of these members.
    """
    counts: dict[str, int] = {}
    try:
        with tarfile.open(archive, "r|*") as stream:
            for member in stream:
                name = member.name.removeprefix("./")
                if name not in wanted or name in counts:
                    continue
                content = stream.extractfile(member) if member.isreg() else None
                if content is None:
                    raise DataError(f"{archive}: {name} is a link or a folder, not a file; get the archive again")
                counts[name] = _copy(content, name, wanted[name])
                if len(counts) == len(wanted):
                    break
    except FileNotFoundError as error:
        raise MissingInputError(f"{error.filename} is missing; download.py gets it") from error
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(f"{archive} cannot be read to its end: {error}; get it again with download.py") from error
    missing = [name for name in wanted if name not in counts]
    if missing:
        raise DataError(f"{archive} has no {' and no '.join(missing)}; it is not the expected archive")
    return counts


def _copy(content: IO[bytes], name: str, path: Path) -> int:
    """Write the content and return the number of lines. A last line without a newline counts, and gets one."""
    lines, last = 0, b"\n"
    with path.open("wb") as file:
        for block in _blocks(content, name):
            file.write(block)
            lines += block.count(b"\n")
            last = block[-1:]
        if last != b"\n":
            file.write(b"\n")
            lines += 1
        file.flush()
        os.fsync(file.fileno())
    return lines


def _blocks(content: IO[bytes], name: str) -> Iterator[bytes]:
    if name.endswith(".sgm"):
        try:
            text = content.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name} of the archive is not UTF-8 at byte {error.start:,}; get the archive again"
            ) from error
        yield from (f"{line}\n".encode() for line in segments(text))
        return
    plain: IO[bytes] = gzip.GzipFile(fileobj=content) if name.endswith(".gz") else content  # type: ignore[assignment]
    while block := plain.read(BLOCK):
        yield block


def segments(sgml: str) -> Iterable[str]:
    """Yield the sentences of a test set, in order. An XML parser would fail, because some files have a bare "&"."""
    for segment in _SEGMENT.findall(sgml):
        yield " ".join(html.unescape(segment).split())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Extract the text of WMT 2014 from its archives.")
    parser.add_argument("pair", choices=sorted(TEXTS))
    parser.add_argument("archives", type=Path, help="folder of the archives")
    parser.add_argument("text", type=Path, help="folder for the text files")
    given = parser.parse_args(arguments)
    try:
        for name, lines in extract(given.pair, given.archives, given.text):
            print(f"{name}: " + ("there already" if lines is None else quantity(lines, "pair")), flush=True)
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted; run the same command again to resume", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        print(f"{parser.prog}: {error.filename}: {error.strerror}; run the same command again", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
