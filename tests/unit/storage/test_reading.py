"""Small files that would stop their reader are refused; what real files hold is read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from nmt.errors import DataError, MissingInputError, shown
from nmt.storage.reading import MOST_LEVELS, map_file, read_file, read_json, read_yaml

# Ten lists that hold the one before ten times: 10^10 values in 200 bytes.
TENFOLD = "a: &a0 [x]\n" + "".join(
    f"b{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 11)
)
HOSTILE_YAML = {
    "3,000 open brackets": ("data: " + "[" * 3000, "nested more than 100 levels"),
    "3,000 brackets": ("data: " + "[" * 3000 + "]" * 3000, "nested more than 100 levels"),
    "a million brackets": ("[" * 1_000_000, "nested more than 100 levels"),
    "3,000 braces": ("{a: " * 3000 + "1" + "}" * 3000, "nested more than 100 levels"),
    "lists that multiply by aliases": (TENFOLD, "more than 4,194,304 values"),
    "a chain of aliases": (
        "- &a0 [x]\n" + "".join(f"- &a{n} [*a{n - 1}]\n" for n in range(1, 150)),
        "more than 100 levels",
    ),
    "merges that multiply": (
        "- &a0 {x: 1}\n" + "".join(f"- &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)),
        "more than 4,194,304 values",
    ),
    "a list that holds itself": ("data: &all [*all]", "a value that contains the alias"),
    "an alias of nothing": ("data: *nothing", "is undefined"),
    "an integer of 5,000 digits": (f"layers: {'9' * 5000}", "is not YAML"),
    "a hexadecimal integer of 5,000 digits": (f"layers: 0x{'f' * 5000}", "an integer of 20000 bits"),
    "an integer of 400 digits": (f"layers: -{'9' * 400}", "bits; at most 128 are read"),
    "integer keys": ("model: {1: 2}", "has the key 1, which is not text"),
    "a key of nothing": ("{~: 2}", "has the key None, which is not text"),
    "a list as a key": ("? [a]\n: 1", "is not YAML"),
    "an integer of nothing": ('a: !!int ""', "is not YAML"),
    "a truth that is none": ("a: !!bool perhaps", "is not YAML"),
    "a day that is none": ("a: !!timestamp abc", "is not YAML"),
    "the 30th of February": ("a: 2001-02-30", "is not YAML"),
    "a call": ("a: !!python/object/apply:os.system [true]", "is not YAML"),
    "a brace": ("{", "is not YAML"),
}


@pytest.mark.parametrize("name", HOSTILE_YAML)
def test_hostile_yaml_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    text, complaint = HOSTILE_YAML[name]
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(DataError, match=rf"config\.yaml is damaged: .*{complaint}"):
        read_yaml(tmp_path / "config.yaml")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"a: \xff")
    with pytest.raises(DataError, match="is not YAML"):
        read_yaml(tmp_path / "config.yaml")


def test_yaml_within_the_bounds_is_read_with_its_anchors(tmp_path: Path) -> None:
    deep = "[" * (MOST_LEVELS - 1) + "]" * (MOST_LEVELS - 1)
    (tmp_path / "config.yaml").write_text(f"a: &one {{b: [1, 2.5, yes, ~]}}\nc: [*one, *one]\nd: {deep}\ne: {2**127}\n")
    tree = read_yaml(tmp_path / "config.yaml")
    assert tree["c"] == [tree["a"], tree["a"]] and tree["a"] == {"b": [1, 2.5, True, None]} and tree["e"] == 2**127


HOSTILE_JSON = {
    "a million brackets": ("[" * 1_000_000, "is not JSON"),
    "300 brackets": ("[" * 300 + "]" * 300, "nested more than 100 levels"),
    "an integer of 5,000 digits": (f'{{"a": {"9" * 5000}}}', "is not JSON"),
    "an integer of 400 digits": (f'{{"a": {"9" * 400}}}', "bits; at most 128 are read"),
    "half of a mapping": ('{"a"', "is not JSON"),
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_json_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    text, complaint = HOSTILE_JSON[name]
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DataError, match=rf"config\.json is damaged: .*{complaint}"):
        read_json(tmp_path / "config.json")


@pytest.mark.parametrize("read", [read_file, read_json, read_yaml, map_file])
def test_what_is_no_regular_file_is_named_and_not_waited_for(read: object, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    for path, kind in (
        (tmp_path / "pipe", "is a named pipe; give a regular file"),
        (tmp_path / "socket", "is a socket"),
        (tmp_path, "is a folder"),
        (Path("/dev/null"), "is a device"),
        (tmp_path / "nothing", "it is missing"),
        (tmp_path / "pipe" / "below", "Not a directory"),
        (tmp_path / ("n" * 300), "File name too long"),
    ):
        with pytest.raises(MissingInputError, match=kind):
            read(path)  # type: ignore[operator]


def test_a_file_beyond_its_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(11))
    assert len(read_file(tmp_path / "file", 11)) == 11
    with pytest.raises(DataError, match="has 11 bytes; files of its kind have at most 10"):
        read_file(tmp_path / "file", 10)


def test_values_in_messages_are_short() -> None:
    assert shown("a") == "'a'" and shown(["b", 1]) == "['b', 1]"
    assert len(shown("a" * 10**6)) < 200 and len(shown([[["a"] * 100] * 100] * 100)) < 2000
