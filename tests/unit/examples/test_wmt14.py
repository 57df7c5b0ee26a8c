"""The archives of WMT 2014: downloaded from a server that fails, checked, and taken apart."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nmt.errors import DataError, MissingInputError
from tests.unit.examples.wmt14_archives import FOLDER, entry, extract, load, sentences, write_archives, write_tar

download = load("download")
CONTENT = bytes(range(256)) * 40


@dataclass
class Server:
    """Sends the files of a folder; what goes wrong, and what was asked for."""

    folder: Path
    url: str = ""
    ranges: bool = True  # whether it knows them
    begin_early: int = 0  # bytes before those that were asked for
    cut_after: list[int] = field(default_factory=list)  # bytes, of the answers to come
    status: int = 200
    asked: list[str] = field(default_factory=list)  # ranges, "" for all


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    state = Server(tmp_path / "served")
    state.folder.mkdir()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            state.asked.append(wanted)
            file = state.folder / self.path.lstrip("/")
            if state.status != 200 or not file.exists():
                self.send_error(404 if state.status == 200 else state.status)
                return
            content, begin = file.read_bytes(), 0
            if wanted and state.ranges:
                begin = int(re.findall(r"bytes=(\d+)-", wanted)[0]) - state.begin_early
                if begin >= len(content):
                    self.send_error(416)
                    return
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - begin))
            self.end_headers()
            rest = content[begin:]
            self.wfile.write(rest[: state.cut_after.pop(0)] if state.cut_after else rest)

        def log_message(self, *_: Any) -> None:
            pass

    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    listening.shutdown()
    listening.server_close()
    thread.join()


def archive(server: Server, **known: Any) -> Any:
    """One that the server has."""
    (server.folder / "some.tgz").write_bytes(CONTENT)
    facts = entry(server.folder / "some.tgz", server.url) | known
    return download.Archive(**{**facts, "pairs": ("en-de",)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archives"


def test_the_list_has_every_archive_that_text_is_taken_from_and_no_other() -> None:
    for pair in download.PAIRS:
        listed = download.read_list(download.LIST, pair)
        assert {one.name for one in listed} == {text.archive for text in extract.TEXTS[pair]}
        for one in listed:
            kind, digits = one.checksum
            assert re.fullmatch(r"[0-9a-f]+", digits) and len(digits) == 2 * hashlib.new(kind).digest_size
            assert one.url.endswith(f"/{one.name}") and one.source


def test_archives_are_downloaded_and_asked_for_only_once(
    server: Server, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = write_archives(server.folder, "en-de", 30, server.url)
    for _ in range(2):
        download.main(["en-de", str(folder), "--list", str(listed)])
        assert server.asked == [""] * 5
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 10 and said[0].endswith("bytes, sha256 as listed") and said[4].endswith("md5 as listed")
    for text in extract.TEXTS["en-de"]:
        assert (folder / text.archive).read_bytes() == (server.folder / text.archive).read_bytes()
    assert not [*folder.glob("*.part")]


def test_an_interrupted_download_goes_on_where_it_stopped(server: Server, folder: Path) -> None:
    server.cut_after = [1000, 500]
    path = download.fetch(archive(server), folder, wait=0)
    assert path.read_bytes() == CONTENT
    assert server.asked == ["", "bytes=1000-", "bytes=1500-"]


def test_what_an_earlier_process_left_is_not_downloaded_again(server: Server, folder: Path) -> None:
    folder.mkdir()
    (folder / "some.tgz.part").write_bytes(CONTENT[:77])
    assert download.fetch(archive(server), folder).read_bytes() == CONTENT
    assert server.asked == ["bytes=77-"]


def test_a_process_that_stopped_before_the_check_has_it_done_now(server: Server, folder: Path) -> None:
    """The server answers that no bytes come after these."""
    folder.mkdir()
    (folder / "some.tgz.part").write_bytes(CONTENT)
    assert download.fetch(archive(server), folder).read_bytes() == CONTENT


def test_a_server_without_ranges_sends_all_of_it(server: Server, folder: Path) -> None:
    server.ranges, server.cut_after = False, [1000]
    assert download.fetch(archive(server), folder, wait=0).read_bytes() == CONTENT
    assert server.asked == ["", "bytes=1000-"]


@pytest.mark.parametrize("known", [{"sha256": "0" * 64}, {"size": 5}, {"sha256": None, "md5": "0" * 32, "size": None}])
def test_a_download_that_is_not_the_archive_is_refused_and_removed(
    server: Server, folder: Path, known: dict[str, Any]
) -> None:
    with pytest.raises(DataError, match="is not the archive: it.* should .*; it was removed"):
        download.fetch(archive(server, **known), folder)
    assert not [*folder.iterdir()]


def test_a_server_that_is_down_is_asked_some_times(server: Server, folder: Path) -> None:
    server.status = 503
    with pytest.raises(MissingInputError, match="503.*5 times in a row; run the same command again"):
        download.fetch(archive(server), folder, wait=0)
    assert len(server.asked) == 5


def test_a_server_that_does_not_know_the_file_is_asked_once(server: Server, folder: Path) -> None:
    one = archive(server, name="other.tgz", url=f"{server.url}/other.tgz")
    with pytest.raises(MissingInputError, match="other.tgz cannot be downloaded: the server says HTTP Error 404"):
        download.fetch(one, folder, wait=0)
    assert len(server.asked) == 1


def test_a_full_disk_is_no_reason_to_ask_again(server: Server, folder: Path) -> None:
    folder.mkdir()
    (folder / "some.tgz.part").symlink_to("/dev/full")
    with pytest.raises(Exception, match="No space left on device"):
        download.fetch(archive(server), folder, wait=0)
    assert len(server.asked) == 1


def test_offline_archives_are_taken_as_they_lie(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = write_archives(folder, "en-fr", 30)
    download.main(["en-fr", str(folder), "--offline", "--list", str(listed)])
    assert len(capsys.readouterr().out.splitlines()) == 7


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (None, 66, "dev.tgz is missing, and --offline downloads nothing; put http://localhost/dev.tgz there"),
        (b"other", 65, "dev.tgz is not the archive of http://localhost/dev.tgz: it has 5 bytes and should have"),
    ],
)
def test_offline_a_missing_or_wrong_archive_is_said_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, status: int, said: str
) -> None:
    listed = write_archives(folder, "en-de", 30)
    (folder / "dev.tgz").unlink()
    if content is not None:
        (folder / "dev.tgz").write_bytes(content)
    with pytest.raises(SystemExit) as stopped:
        download.main(["en-de", str(folder), "--offline", "--list", str(listed)])
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert stopped.value.code == status and said in line


@pytest.mark.parametrize("name", ["download", "extract"])
def test_an_interruption_is_one_sentence(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    script, work = {"download": (download, "fetch"), "extract": (extract, "extract")}[name]
    monkeypatch.setattr(script, work, interrupted)
    with pytest.raises(SystemExit) as stopped:
        script.main(["en-de", str(folder), *([] if name == "download" else [str(folder / "text")])])
    assert stopped.value.code == 130
    assert capsys.readouterr().err.endswith(": interrupted; run the same command again to resume\n")


def test_a_byte_that_changed_on_the_disk_is_noticed(server: Server, folder: Path) -> None:
    one = archive(server)
    path = download.fetch(one, folder)
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(DataError, match="its sha256 is .* and should be .*; remove it"):
        download.fetch(one, folder)
    assert path.exists(), "what somebody put there is not removed"


LISTED = {"name": "x.tgz", "url": "http://localhost/x.tgz", "pairs": ["en-de"], "source": "nobody"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}x", "is not a list of archives: it is not JSON"),
        ('{"pairs": 1}', "each needs name, url, pairs and source"),
        ('[{"name": "x.tgz", "pairs": ["en-de"]}]', "each needs name, url, pairs and source"),
        (json.dumps([LISTED | {"crc": 1}]), "and may have size, sha256 and md5"),
        (json.dumps([LISTED | {"name": "../x"}]), r"names '\.\./x', which is not a file name"),
        (json.dumps([LISTED | {"name": ".."}]), r"names '\.\.', which is not a file name"),
        (json.dumps([LISTED | {"url": "x.tgz"}]), "has 'x.tgz' for x.tgz, which is not an address"),
        (json.dumps([LISTED | {"size": "9"}]), "has '9' for the size of x.tgz: give a number of bytes"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "list.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        download.read_list(tmp_path / "list.json", "en-de")


def test_an_archive_of_another_list_may_have_no_checksum(
    server: Server, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (server.folder / "x.tgz").write_bytes(CONTENT)
    listed = server.folder / "list.json"
    listed.write_text(json.dumps([LISTED | {"url": f"{server.url}/x.tgz"}]), encoding="utf-8")
    download.main(["en-de", str(folder), "--list", str(listed)])
    assert capsys.readouterr().out.endswith("bytes, no checksum is published\n")


def test_other_bytes_than_those_asked_for_are_not_taken(server: Server, folder: Path) -> None:
    """They would be appended in the wrong place."""
    server.begin_early, server.cut_after = 1, [1000]
    with pytest.raises(MissingInputError, match="sent bytes from 999 on instead of from 1000 on, 5 times"):
        download.fetch(archive(server), folder, wait=0)
    assert (folder / "some.tgz.part").read_bytes() == CONTENT[:1000]


def test_a_folder_that_cannot_be_written_is_one_sentence(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = write_archives(server.folder, "en-de", 30, server.url)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        download.main(["en-de", str(tmp_path / "file/archives"), "--list", str(listed)])
    said = capsys.readouterr().err
    assert stopped.value.code == 1 and "Not a directory; run the same command again to resume" in said


@pytest.mark.parametrize("pair", ["en-de", "en-fr"])
def test_texts_are_taken_out_once(tmp_path: Path, pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    archives, text, target = tmp_path / "archives", tmp_path / "text", pair[-2:]
    write_archives(archives, pair, 60)
    extract.main([pair, str(archives), str(text)])
    names = [one.name for one in extract.TEXTS[pair]]
    sizes = {"en-de": [20, 20, 20, 20, 20], "en-fr": [12, 12, 12, 12, 12, 20, 20]}[pair]
    assert capsys.readouterr().out.splitlines() == [f"{name}: {size} pairs" for name, size in zip(names, sizes)]
    assert sorted(path.name for path in text.iterdir()) == sorted(f"{n}.{s}" for n in names for s in ("en", target))
    for number, (name, size) in enumerate(zip(names, sizes), start=1):
        expected = sentences(size, seed=number)
        if name == "newstest2014":
            expected[-1] = ("a & b", "a & b")
        for side, language in enumerate(("en", target)):
            lines = (text / f"{name}.{language}").read_text(encoding="utf-8").splitlines()
            assert lines == [one[side] for one in expected], name
    for path in archives.iterdir():
        path.unlink()
    extract.main([pair, str(archives), str(text)])
    assert {line.split(": ")[1] for line in capsys.readouterr().out.splitlines()} == {"there already"}


def members(pair: str, name: str) -> tuple[Any, list[str]]:
    text = next(one for one in extract.TEXTS[pair] if one.name == name)
    return text, [*text.members(pair).values()]


def test_members_have_the_names_of_the_real_archives() -> None:
    assert members("en-de", "europarl-v7")[1] == ["training/europarl-v7.de-en.en", "training/europarl-v7.de-en.de"]
    assert members("en-fr", "un")[1] == ["un/undoc.2000.fr-en.en", "un/undoc.2000.fr-en.fr"]
    assert members("en-fr", "giga-fren")[1] == ["giga-fren.release2.fixed.en.gz", "giga-fren.release2.fixed.fr.gz"]
    assert members("en-fr", "newstest2014")[1] == [
        "test-full/newstest2014-fren-src.en.sgm",
        "test-full/newstest2014-fren-ref.fr.sgm",
    ]


def extracted_from(tmp_path: Path, contents: dict[str, bytes]) -> dict[str, int]:
    """The sides of news-commentary-v9, out of an archive with these members."""
    text, (source, target) = members("en-de", "news-commentary-v9")
    write_tar(tmp_path / text.archive, contents)
    wanted = {source: tmp_path / "out.en", target: tmp_path / "out.de"}
    return extract.copy_members(tmp_path / text.archive, wanted)  # type: ignore[no-any-return]


SOURCE, TARGET = members("en-de", "news-commentary-v9")[1]


def test_no_path_of_an_archive_is_used(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    both = {"../outside": b"x\n", "/outside": b"x\n", f"./{SOURCE}": b"a\n", TARGET: b"b\n"}
    assert extracted_from(inside, both) == {SOURCE: 1, TARGET: 1}
    assert sorted(path.name for path in inside.iterdir()) == ["out.de", "out.en", "training-parallel-nc-v9.tgz"]
    assert not (tmp_path / "outside").exists()


def test_a_last_line_without_an_end_gets_one(tmp_path: Path) -> None:
    assert extracted_from(tmp_path, {SOURCE: b"a\n\nb", TARGET: b""}) == {SOURCE: 3, TARGET: 0}
    assert (tmp_path / "out.en").read_bytes() == b"a\n\nb\n"


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"has no {re.escape(TARGET)}; it is not the expected archive"):
        extracted_from(tmp_path, {SOURCE: b"a\n"})


def test_a_link_in_place_of_a_member_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "links.tar", "w") as stream:
        link = tarfile.TarInfo(SOURCE)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        stream.addfile(link)
    with pytest.raises(DataError, match="is a link or a folder, not a file"):
        extract.copy_members(tmp_path / "links.tar", {SOURCE: tmp_path / "out.en"})


def test_a_torn_archive_is_said_in_one_sentence(tmp_path: Path) -> None:
    extracted_from(tmp_path, {SOURCE: os.urandom(5000), TARGET: os.urandom(90_000)})
    archive = tmp_path / "training-parallel-nc-v9.tgz"
    archive.write_bytes(archive.read_bytes()[:-50_000])
    with pytest.raises(DataError, match="cannot be read to its end.*get it again"):
        extract.copy_members(archive, {SOURCE: tmp_path / "a", TARGET: tmp_path / "b"})
    archive.write_bytes(b"no archive at all")
    with pytest.raises(DataError, match="cannot be read to its end"):
        extract.copy_members(archive, {SOURCE: tmp_path / "a"})


def test_sides_of_different_lengths_are_refused_and_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, (source, target) = members("en-de", "europarl-v7")
    write_tar(tmp_path / text.archive, {source: b"a\nb\n", target: b"a\n"})
    with pytest.raises(SystemExit) as stopped:
        extract.main(["en-de", str(tmp_path), str(tmp_path / "text")])
    assert stopped.value.code == 65
    assert "the lines of europarl-v7 do not pair (2 of en and 1 of de)" in capsys.readouterr().err
    assert not [*(tmp_path / "text").glob("europarl-v7.??")]


def test_a_test_set_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    name = "test-full/newstest2014-deen-src.en.sgm"
    write_tar(tmp_path / "test.tar", {name: b"<seg>Stra\xdfe</seg>"})
    with pytest.raises(DataError, match=rf"{name} of the archive is not UTF-8 at byte 9; get the archive again"):
        extract.copy_members(tmp_path / "test.tar", {name: tmp_path / "out.en"})


def test_a_text_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        extract.main(["en-de", str(tmp_path), str(tmp_path / "file/text")])
    assert stopped.value.code == 1
    assert "file/text: Not a directory; run the same command again\n" in capsys.readouterr().err


def test_a_missing_archive_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        extract.main(["en-de", str(tmp_path), str(tmp_path / "text")])
    assert stopped.value.code == 66
    assert "training-parallel-europarl-v7.tgz is missing; download.py gets it" in capsys.readouterr().err


def test_segments_come_in_order_without_marks_and_entities() -> None:
    text = (
        '<refset setid="x">\n<hl>\n<seg id="1"> One\u00a0&quot;two&quot;  &amp; three </seg>\n</hl>\n<p>\n'
        '<seg id="2">R&D</seg>\n<seg id="3"></seg>\n</p>\n'
    )
    assert [*extract.segments(text)] == ['One "two" & three', "R&D", ""]


def test_the_script_asks_for_what_scores_need_before_it_begins(tmp_path: Path) -> None:
    command = ["bash", str(FOLDER / "run.sh"), "base", "en-de"]
    environment = os.environ | {"PYTHON": "false"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pip install '.[moses]'" in done.stderr and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["huge", "en-de"], "there is no model 'huge'"),
        (["base-2", "en-de"], "there is no model 'base-2'"),
        (["base", "en-xx"], "there is no pair 'en-xx'"),
        ([], "name the model"),
        (["base"], "name the pair"),
    ],
)
def test_the_script_says_what_it_does_not_know(words: list[str], said: str, tmp_path: Path) -> None:
    command = ["bash", str(FOLDER / "run.sh"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and said in done.stderr and not [*tmp_path.iterdir()]


def test_a_corpus_with_another_number_of_pieces_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "runs/en-de/corpus").mkdir(parents=True)
    (tmp_path / "runs/en-de/corpus/manifest.json").write_text("", encoding="utf-8")
    (tmp_path / "runs/en-de/pieces").write_text("37000\n", encoding="utf-8")
    command = ["bash", str(FOLDER / "run.sh"), "base", "en-de", "runs"]
    environment = os.environ | {"PYTHON": "true", "PIECES": "8000"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "run.sh: runs/en-de/corpus was made with PIECES=37000, not 8000; choose another folder\n"


@pytest.mark.parametrize("devices", ["two", "0", "-1", "4 "])
def test_a_number_of_devices_that_is_none_is_refused_before_anything_is_done(devices: str, tmp_path: Path) -> None:
    """Otherwise one process would train for what several were meant to."""
    command = ["bash", str(FOLDER / "run.sh"), "base", "en-de"]
    environment = os.environ | {"PYTHON": "true", "DEVICES": devices}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"DEVICES={devices} is not a number of GPUs" in done.stderr
    assert not [*tmp_path.iterdir()]
