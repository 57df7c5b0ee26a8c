"""Download the archives of WMT 2014 for one language pair to a folder, and check them.

    python examples/wmt14/download.py en-de runs/wmt14/archives

Archives that are already in the folder are only checked. An interrupted download resumes with an HTTP range request.
--offline downloads nothing. archives.json lists the archives with their sizes and checksums, and the source of these.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import io
import json
import logging
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.config.choices import ProgressStyle
from nmt.errors import DataError, MissingInputError, NMTError
from nmt.progress import Count, show_progress
from nmt.storage.files import explained_os_errors

LIST = Path(__file__).resolve().parent / "archives.json"
PAIRS = ("en-de", "en-fr")
ATTEMPTS = 5  # attempts in a row without new bytes
WAIT = 2.0  # seconds before the second attempt; each later one waits twice as long
TIMEOUT = 60.0  # seconds without a byte
BLOCK = 2**20

logger = logging.getLogger("wmt14")


@dataclass(frozen=True)
class Archive:
    """A file to download. Size and checksums that no source publishes are None and are not checked."""

    name: str
    url: str
    pairs: tuple[str, ...]
    source: str  # where size and checksum are published
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None

    def __post_init__(self) -> None:
        if Path(self.name).name != self.name or self.name in ("", ".."):
            raise DataError(f"the list of archives names '{self.name}', which is not a file name")
        if not self.url.startswith(("https://", "http://", "ftp://")):
            raise DataError(
                f"the list of archives has '{self.url}' for {self.name}, which is not an address such as https://..."
            )
        if self.size is not None and not isinstance(self.size, int):
            raise DataError(
                f"the list of archives has {self.size!r} for the size of {self.name}: give a number of bytes"
            )

    @property
    def checksum(self) -> tuple[str, str] | None:
        """Kind and digits of the checksum; None if no checksum is published."""
        if self.sha256 is not None:
            return "sha256", self.sha256
        return None if self.md5 is None else ("md5", self.md5)


def read_list(path: Path, pair: str) -> list[Archive]:
    """Return the archives of a language pair."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        archives = [Archive(**{**entry, "pairs": tuple(entry["pairs"])}) for entry in entries]
    except OSError as error:
        raise MissingInputError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is not a list of archives: it is not JSON: {error}") from error
    except (TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path} is not a list of archives: each needs name, url, pairs and source, and may have size, sha256 and md5"
        ) from error
    return [archive for archive in archives if pair in archive.pairs]


def fault_of(archive: Archive, path: Path) -> str | None:
    """Return the difference of a file from the archive in words; None if it is the archive."""
    size = path.stat().st_size
    if archive.size is not None and size != archive.size:
        return f"it has {size:,} bytes and should have {archive.size:,}"
    if archive.checksum is None:
        return None
    kind, expected = archive.checksum
    with path.open("rb") as file, show_progress(ProgressStyle.auto, f"checking {archive.name}", "bytes", size) as count:
        found = hashlib.new(kind)
        while block := file.read(BLOCK):
            found.update(block)
            count(len(block))
    return None if found.hexdigest() == expected else f"its {kind} is {found.hexdigest()} and should be {expected}"


def fetch(archive: Archive, folder: Path, *, offline: bool = False, wait: float = WAIT) -> Path:
    """Return the path of the archive in the folder. Download it if it is missing."""
    path, part = folder / archive.name, folder / f"{archive.name}.part"
    if path.exists():
        fault = fault_of(archive, path)
        if fault is not None:
            raise DataError(
                f"{path} is not the archive of {archive.url}: {fault}; remove it, or put the right one there"
            )
        return path
    if offline:
        raise MissingInputError(
            f"{path} is missing, and --offline downloads nothing; put {archive.url} there, or leave --offline out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    download(archive, part, wait)
    fault = fault_of(archive, part)
    if fault is not None:
        part.unlink()
        raise DataError(
            f"the download of {archive.url} is not the archive: {fault}; it was removed, run the same command again"
        )
    part.replace(path)
    return path


def download(archive: Archive, part: Path, wait: float) -> None:
    """Download the whole archive to ``part``, in as many requests as needed."""
    idle = 0
    with show_progress(ProgressStyle.auto, archive.name, "bytes", archive.size) as count:
        count(_size(part))
        while True:
            before = _size(part)
            try:
                if _request(archive, part, count):
                    return
                reason = "the connection ended early"
            except (OSError, http.client.HTTPException) as error:  # urllib's own errors are OSErrors
                if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                    raise MissingInputError(f"{archive.url} cannot be downloaded: the server says {error}") from error
                reason = str(error) or type(error).__name__
            idle = 0 if _size(part) > before else idle + 1
            if idle == ATTEMPTS:
                raise MissingInputError(
                    f"{archive.url} cannot be downloaded: {reason}, {ATTEMPTS} times in a row; run the same command again "
                    f"to resume, or put the file into {part.parent} yourself"
                )
            logger.info("%s: %s after %s bytes, resuming", archive.name, reason, f"{_size(part):,}")
            time.sleep(wait * 2 ** max(0, idle - 1))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _request(archive: Archive, part: Path, count: Count) -> bool:
    """Request the missing bytes once. Return whether the file is complete now."""
    have = _size(part)
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # no more bytes exist; the caller checks the file
            return True
        raise
    with answer:
        whole = answer.status != 206  # the server does not support ranges: start over
        if whole:
            count(-have)
            have = 0
        total = _total(answer, have)
        with explained_os_errors(part):
            file = part.open("wb" if whole else "ab", buffering=0)
        with file:
            while block := answer.read(BLOCK):
                with explained_os_errors(part):  # a disk error causes no new request
                    _write(file, block)
                count(len(block))
                have += len(block)
    return total is None or have >= total


def _write(file: io.FileIO, block: bytes) -> None:
    """Write the whole block. One call may write only the part that fits."""
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


def _total(answer: http.client.HTTPResponse, have: int) -> int | None:
    """Return the size of the whole file by the headers of the server; None if they have none."""
    ranged = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    if ranged is not None:
        if int(ranged[1]) != have:
            raise OSError(f"the server sent bytes from {ranged[1]} on instead of from {have} on")
        return int(ranged[2])
    length = answer.headers.get("Content-Length")
    return None if length is None else have + int(length)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Download and check the archives of WMT 2014.")
    parser.add_argument("pair", choices=PAIRS)
    parser.add_argument("folder", type=Path, help="folder of the archives")
    parser.add_argument("--offline", action="store_true", help="download nothing; all archives must be in the folder")
    parser.add_argument(
        "--list", type=Path, default=LIST, help="list of archives (JSON), in the format of archives.json"
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        for archive in read_list(given.list, given.pair):
            path = fetch(archive, given.folder, offline=given.offline)
            known = "no checksum is published" if archive.checksum is None else f"{archive.checksum[0]} as listed"
            print(f"{path}: {path.stat().st_size:,} bytes, {known}", flush=True)
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted; run the same command again to resume", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        print(
            f"{parser.prog}: {error.filename}: {error.strerror}; run the same command again to resume", file=sys.stderr
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
