"""nmt-import and nmt-export as they are typed: what they print, and how they end where something is wrong."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.commands import run_copy
from tests.unit.formats.other_models import dictionaries, fsmt, state_of, write
from tests.unit.formats.stored import store
from tests.unit.preprocessing.test_fairseq_corpus import mapped


class Runs:
    """Would make a file where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch run",)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    dictionaries(tmp_path)
    write(tmp_path / "model.pt", state_of(fsmt(tmp_path / "there")))
    return tmp_path


SPECIAL_SYMBOLS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "<s>"}
LINE = (
    "--from fairseq --srcdict dict.en.txt --tgtdict dict.de.txt --source-lang en --target-lang de --output here".split()
)


def test_the_folder_is_printed_and_translates(there: Path) -> None:
    done = run_copy("import_", *LINE, "--path", "model.pt", cwd=there)
    assert (done.returncode, done.stdout) == (0, b"here\n"), done.stderr
    assert b"arrays were imported and verified" in done.stderr
    for step in (b"converting", b"writing"):
        assert re.search(step + rb" (\d+) of \1 arrays ", done.stderr)
    translated = run_copy("generate", "--path", "here", "--max-len-b", "5", cwd=there, stdin=b"p1 p2\n\np3\n")
    assert translated.returncode == 0 and translated.stdout.count(b"\n") == 3


@pytest.mark.parametrize("style", ["lines", "none"])
def test_pairs_of_a_corpus_are_counted_unless_nobody_wants_it(tmp_path: Path, style: str) -> None:
    there = tmp_path / "data-bin"
    there.mkdir()
    dictionaries(there)
    for split, count in (("train", 3), ("valid", 2)):
        for language in ("en", "de"):
            mapped(there / f"{split}.en-de.{language}", [[number + 4, 2] for number in range(count)])
    line = "--from fairseq --path data-bin --source-lang en --target-lang de --output here --progress".split()
    done = run_copy("import_", *line, style, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"here\n"), done.stderr
    assert (b"train 3 of 3 pairs" in done.stderr and b"valid 2 of 2 pairs" in done.stderr) is (style == "lines")
    assert (b" a second" in done.stderr) is (style == "lines")


@pytest.mark.parametrize("content", ["hostile", "cut off", "of another architecture"])
def test_what_cannot_be_read_is_one_sentence_and_leaves_nothing(there: Path, content: str) -> None:
    path = there / "model.pt"
    if content == "hostile":
        torch.save({"model": {}, "args": Runs()}, path)
    elif content == "cut off":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        write(path, {}, arch="fconv")
    before = {one.name for one in there.iterdir()}
    done = run_copy("import_", *LINE, "--path", "model.pt", cwd=there)
    assert (done.returncode, done.stdout) == (65, b"")
    assert done.stderr.count(b"\n") == 1 and done.stderr.startswith(b"nmt-import: model.pt"), done.stderr
    assert {one.name for one in there.iterdir()} == before


def test_an_export_prints_its_folder_and_says_what_was_compared(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: nmt-toolkit[ctranslate2]")
    store(tmp_path / "run")
    done = run_copy("export", "--path", "run", "--format", "ctranslate2", "--output", "there", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"there\n"), done.stderr
    assert b"50 of 50 sentences translate the same" in done.stderr


def test_a_damaged_model_of_ctranslate2_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "config.json").write_text(json.dumps({"add_source_eos": True} | SPECIAL_SYMBOLS))
    (there / "model.bin").write_bytes(struct.pack("<IH", 6, 65535) + b"TransformerSpec")
    done = run_copy("import_", "--from", "ctranslate2", "--path", "there", "--output", "here", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (65, b"")
    assert done.stderr.startswith(b"nmt-import: there/model.bin is damaged") and done.stderr.count(b"\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"there"}
