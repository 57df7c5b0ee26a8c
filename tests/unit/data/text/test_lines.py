"""The line reader against the definition of a line: what stands between two bytes 0x0A."""

from __future__ import annotations

import gzip
import io
import itertools
import logging
import lzma
import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.choices import InvalidText
from nmt.data.text import lines as text
from nmt.data.text import packed_files
from nmt.data.text.lines import PAUSE, Reading, one_line, require_text, visible_spaces
from nmt.data.text.packed_files import zstd
from nmt.errors import DataError, MissingInputError, StorageError

LINE = st.text(st.characters(exclude_characters="\n\r\0\ufeff", exclude_categories=["Cs"]))
TROUBLE = st.sampled_from(["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\r", "\t", " ", "a", "ä", "語"])


def lines_of(data: bytes) -> list[bytes]:
    """The oracle."""
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def read(data: bytes, invalid: str = "error", **options: int) -> list[str | None]:
    return list(Reading(InvalidText(invalid), **options).stream(io.BytesIO(data), "input"))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", InvalidText)
def test_a_policy_may_be_given_by_its_name(policy: InvalidText) -> None:
    """As notebooks do."""
    for data in (b"a\nb\n", b"a\n\xff\n")[: 1 if policy is InvalidText.error else 2]:
        by_name = Reading(policy.value).stream(io.BytesIO(data), "input")  # type: ignore[arg-type]
        assert list(by_name) == list(Reading(policy).stream(io.BytesIO(data), "input"))
    if policy is InvalidText.error:
        with pytest.raises(DataError, match="byte 0xff is not UTF-8"):
            list(Reading("error").stream(io.BytesIO(b"\xff\n"), "input"))  # type: ignore[arg-type]


@pytest.fixture(params=[1, 2, 3, 7, 2**20])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(text, "_BLOCK", request.param)
    return int(request.param)


@given(st.lists(LINE), st.booleans())
def test_lines_are_what_stands_between_line_feeds(lines: list[str], ended: bool) -> None:
    data = ("\n".join(lines) + "\n" * ended).encode()
    assert read(data) == [line.decode() for line in lines_of(data)]


@given(st.lists(st.lists(TROUBLE, max_size=5).map("".join)), st.sampled_from([1, 2, 3, 5, 64]))
def test_no_other_character_splits_a_line_whatever_the_block_size(lines: list[str], size: int) -> None:
    data = "".join(line + "\n" for line in lines).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK", size)
        assert read(data) == [line.decode().removesuffix("\r") for line in lines_of(data)]


@given(st.binary(max_size=60), st.sampled_from(["replace", "skip"]))
def test_the_line_count_of_any_bytes_is_kept(noise: bytes, policy: str) -> None:
    data = b"first\n" + noise
    assert len(read(data, invalid=policy)) == len(lines_of(data))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_their_text_or_refused_with_line_and_byte(noise: bytes) -> None:
    data = b"first\n" + noise
    try:
        expected = [line.decode() for line in lines_of(data)]
    except UnicodeDecodeError:
        expected = None
    if expected is None or b"\0" in data:
        with pytest.raises(DataError, match=r"input:\d+:\d+: byte 0x[0-9a-f]{2} is"):
            read(data)
    else:
        assert read(data) == [line.removesuffix("\r") for line in expected]


@given(st.lists(LINE))
def test_gzip_is_read_like_the_plain_file(lines: list[str]) -> None:
    data = "".join(line + "\n" for line in lines).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            packed_files, "open", lambda path, mode: io.BufferedReader(io.BytesIO(gzip.compress(data))), raising=False
        )
        assert list(Reading().lines(Path("any.gz"))) == read(data)


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "two.gz"
    path.write_bytes(gzip.compress(b"a\nb") + gzip.compress(b"c\n"))
    assert list(Reading().lines(path)) == ["a", "bc"]


def test_gzip_is_recognised_by_its_bytes_not_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "text.en"
    path.write_bytes(gzip.compress(b"a\nb\n"))
    assert list(Reading().lines(path)) == ["a", "b"]


def test_plain_text_under_a_gzip_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_text("plain\n")
    with pytest.raises(DataError, match="named .gz but is not gzip"):
        list(Reading().lines(path))


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
def test_nothing_has_no_lines(data: bytes) -> None:
    assert read(data) == []


def test_the_last_line_needs_no_line_feed(block: int) -> None:
    assert read(b"a\nb\r") == read(b"a\nb\r\n") == ["a", "b"]


def test_exactly_one_carriage_return_is_stripped_with_one_notice(caplog: pytest.LogCaptureFixture, block: int) -> None:
    with caplog.at_level(logging.WARNING, logger="nmt"):
        assert read(b"a\r\nb\r\r\nc\rd\r\n") == ["a", "b\r", "c\rd"]
    assert len(caplog.records) == 1
    assert "input: line 1 ends in CR LF" in caplog.text


def test_a_byte_order_mark_is_dropped_at_the_first_line_only(caplog: pytest.LogCaptureFixture, block: int) -> None:
    with caplog.at_level(logging.WARNING, logger="nmt"):
        assert read(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n") == ["a", "\ufeffb"]
    assert "byte-order mark" in caplog.text


def test_a_quiet_reading_gives_no_notice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfa\r\n\xff\n")
    with caplog.at_level(logging.INFO, logger="nmt"):
        assert list(Reading(InvalidText.skip).lines(path, quiet=True)) == ["a", None]
    assert not caplog.records


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        ("a\nb\n".encode("utf-16"), "looks like UTF-16"),
        (b"\xfe\xff" + "a\n".encode("utf-16-be"), "looks like UTF-16"),
        (gzip.compress(b"a\n", mtime=0), "looks like gzip"),
        (b"\xfd7zXZ\x00\x00\x04", "looks like xz"),
        (b"\x28\xb5\x2f\xfd\x04", "looks like zstd"),
    ],
)
def test_what_is_no_utf8_text_is_recognised_and_named(data: bytes, advice: str) -> None:
    with pytest.raises(DataError, match=f"input {advice}"):
        read(data, invalid="replace")


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"ok\nab\xffc\n", r"input:2:2: byte 0xff is not UTF-8 \(byte 5 of the file\)"),
        (b"a\0b\n", r"input:1:1: byte 0x00 is NUL, which is not text \(byte 1 of the file\)"),
        (b"\0\xff\n", r"input:1:0: byte 0x00 is NUL"),
        (b"\xff\0\n", r"input:1:0: byte 0xff is not UTF-8"),
        (b"\xef\xbb\xbf\xc3\n", r"input:1:3: byte 0xc3 is not UTF-8 \(byte 3 of the file\)"),
        (b"a\xed\xa0\x80\n", r"input:1:1: byte 0xed is not UTF-8"),  # a surrogate in UTF-8
    ],
)
def test_a_bad_byte_is_reported_with_file_line_and_byte(data: bytes, place: str) -> None:
    with pytest.raises(DataError, match=place):
        read(data)


def test_bad_bytes_can_be_replaced_or_their_lines_left_out() -> None:
    data = b"a\xffb\nc\0d\ne\n"
    assert read(data, invalid="replace") == ["a\ufffdb", "c\ufffdd", "e"]
    assert read(data, invalid="skip") == [None, None, "e"]


def test_replacing_is_summed_up_in_one_notice(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="nmt"):
        read(b"\xff\n\xff\n", invalid="replace")
    assert [record.getMessage() for record in caplog.records] == [
        "input: replaced bytes that are not text with U+FFFD in 2 lines"
    ]


def test_a_line_beyond_the_cap_is_refused_with_its_place(block: int) -> None:
    assert read(b"a\n" + b"b" * 10 + b"\n", max_line_bytes=10) == ["a", "b" * 10]
    with pytest.raises(DataError, match=r"input:2: no line break in the 10 bytes from byte 2 of the file"):
        read(b"a\n" + b"b" * 11, max_line_bytes=10)


def test_an_endless_line_is_refused_without_reading_it_all() -> None:
    class Endless:
        served = 0

        def read(self, size: int) -> bytes:
            self.served += size
            return b"x" * size

    endless = Endless()
    with pytest.raises(DataError, match="no line break"):
        list(Reading(max_line_bytes=2**21).stream(endless, "input"))
    assert endless.served <= 2**21 + 2 * text._BLOCK


def test_lines_of_a_pipe_come_before_the_pipe_ends() -> None:
    class Pipe:
        blocks = [b"one\ntw", b"o\n"]

        def read1(self, size: int) -> bytes:
            assert self.blocks, "read beyond what was there"
            return self.blocks.pop(0)

        read = read1

    lines = Reading().stream(Pipe(), "input")
    assert [next(lines), next(lines)] == ["one", "two"]


def test_a_live_stream_pauses_once_where_nothing_comes() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream, open(writing, "wb", buffering=0) as pipe:
        lines = Reading().live(stream, "input")
        pipe.write(b"one\ntw")
        assert [next(lines), next(lines)] == ["one", PAUSE]
        pipe.write(b"o\n\nthree")
        assert [next(lines), next(lines), next(lines)] == ["two", "", PAUSE]
        pipe.close()
        assert list(lines) == ["three"]


def test_a_line_that_drips_holds_back_no_line_before_it() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream:
        stop = threading.Event()

        def drip() -> None:
            with open(writing, "wb", buffering=0) as pipe:
                pipe.write(b"one\n")
                while not stop.wait(0.01):
                    pipe.write(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        lines = Reading().live(stream, "input")
        before = list(itertools.takewhile(lambda line: line != "one", lines))
        assert set(before) <= {PAUSE} and next(lines) is PAUSE
        stop.set()
        thread.join()
        *pauses, last = lines
        assert set(pauses) <= {PAUSE} and isinstance(last, str) and set(last) == {"x"}


def test_a_file_never_pauses(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\nb\n")
    with open(path, "rb") as file:
        assert list(Reading().live(file, "input")) == ["a", "b"]
    assert list(Reading().live(io.BytesIO(b"a\nb\n"), "input")) == ["a", "b"]


def test_a_truncated_gzip_file_is_refused_with_the_lines_before(tmp_path: Path) -> None:
    path = tmp_path / "short.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d\n" % number for number in range(1000)))[:-200])
    with pytest.raises(DataError, match=r"unexpected end of compressed file .*short.gz after \d+ lines"):
        list(Reading().lines(path))


def test_every_truncation_of_a_gzip_file_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b"some text\nmore text\n")
    path = tmp_path / "short.gz"
    for length in range(3, len(packed)):
        path.write_bytes(packed[:length])
        with pytest.raises(DataError):
            list(Reading().lines(path))


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"some text\n" * 10))
    packed[-8] ^= 1  # the checksum of the content
    path = tmp_path / "bad.gz"
    path.write_bytes(packed)
    with pytest.raises(DataError, match="bad.gz is damaged"):
        list(Reading().lines(path))


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_files, "_BOMB_BYTES", 2**18)
    monkeypatch.setattr(packed_files, "_BOMB_RATIO", 100)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\n" * 2**20))
    with pytest.raises(DataError, match="decompresses to more than 100 times its size"):
        list(Reading().lines(path))


def test_text_that_packs_well_is_no_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_files, "_BOMB_BYTES", 2**14)
    monkeypatch.setattr(packed_files, "_BOMB_RATIO", 100)
    path = tmp_path / "numbers.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d\n" % number for number in range(20_000))))
    assert sum(1 for _ in Reading().lines(path)) == 20_000


def test_a_missing_file_is_named_with_the_working_directory(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"nowhere.en: No such file .*working directory"):
        list(Reading().lines(tmp_path / "nowhere.en"))


def test_a_folder_is_not_text(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="Is a directory"):
        list(Reading().lines(tmp_path))


def test_a_failing_disk_is_a_storage_error() -> None:
    class Failing:
        def read(self, size: int) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(StorageError, match="reading input failed after 0 lines: Input/output error"):
        list(Reading().stream(Failing(), "input"))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_one_line_is_one_line_for_every_reader(line: str) -> None:
    single = one_line(line)
    assert len(single) == len(line)
    assert single.splitlines() == ([single] if single else [])


@pytest.mark.slow
@given(st.text(min_size=1))
def test_a_visible_piece_survives_splitting_at_spaces(piece: str) -> None:
    assert visible_spaces(piece).split() == [visible_spaces(piece)]


def test_a_lone_surrogate_is_not_text() -> None:
    require_text(["ä", "\U0001f600"])
    with pytest.raises(DataError, match=r"sentence 2: character 1 is the lone surrogate U\+D800"):
        require_text(["ok", "a\ud800"])


def zstd_with_checksum(data: bytes) -> bytes:
    """As the program of that name packs."""
    return bytes(zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}))


PACK = {".xz": lzma.compress, ".zst": zstd_with_checksum}
PACKED_BY_BOTH = pytest.mark.parametrize("ending", PACK)


@PACKED_BY_BOTH
def test_a_packed_file_is_read_as_its_text(tmp_path: Path, ending: str) -> None:
    """Also of several parts, one behind the other."""
    path = tmp_path / f"text{ending}"
    path.write_bytes(PACK[ending]("a\nä\n".encode()) + PACK[ending](b"b"))
    assert list(Reading().lines(path)) == ["a", "ä", "b"]


@pytest.mark.parametrize("kind", [0x50, 0x5F])
def test_a_frame_to_skip_may_stand_before_those_of_zstd(tmp_path: Path, kind: int) -> None:
    """pzstd writes the size of each frame there."""
    path = tmp_path / "text.zst"
    skipped = bytes([kind, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 9, 9, 9, 9])
    path.write_bytes(skipped + zstd_with_checksum(b"a\n") + skipped + zstd_with_checksum(b"b\n"))
    assert list(Reading().lines(path)) == ["a", "b"]


@PACKED_BY_BOTH
def test_a_shortened_packed_file_is_bad_data(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"short{ending}"
    whole = PACK[ending](random.Random(1).randbytes(1000).hex().encode())
    for cut in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=rf"unexpected end of compressed file .*short\{ending}"):
            list(Reading().lines(path))


@PACKED_BY_BOTH
def test_a_damaged_packed_file_is_bad_data(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"bad{ending}"
    packed = bytearray(PACK[ending](bytes(range(1, 128)) * 20))
    packed[len(packed) // 3] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(DataError, match=rf"bad\{ending} is damaged"):
        list(Reading().lines(path))


@PACKED_BY_BOTH
@pytest.mark.parametrize("rest", [b"junk" * 9, b"\xfd7zXY" * 9, b"\x28\xb5\x2f\xfc" * 9], ids=repr)
def test_what_follows_a_part_and_is_none_is_bad_data(tmp_path: Path, ending: str, rest: bytes) -> None:
    """The libraries' own readers end there as if the file did."""
    path = tmp_path / f"joined{ending}"
    path.write_bytes(PACK[ending](b"a\nb\n") + rest)
    with pytest.raises(DataError, match=rf"joined\{ending} is damaged after 2 lines"):
        list(Reading().lines(path))


def test_xz_pads_its_parts_with_zeros(tmp_path: Path) -> None:
    path = tmp_path / "padded.xz"
    path.write_bytes(lzma.compress(b"a\n") + bytes(2**21) + lzma.compress(b"b\n") + bytes(8))
    assert list(Reading().lines(path)) == ["a", "b"]


@PACKED_BY_BOTH
def test_a_plain_file_named_as_packed_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"text{ending}"
    path.write_bytes(b"a\n")
    with pytest.raises(DataError, match=f"named {ending} but is not {ending[1:]}"):
        list(Reading().lines(path))
