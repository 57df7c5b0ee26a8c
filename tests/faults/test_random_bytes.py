"""Whatever bytes are on the lines, each line has its translation."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.sentencepiece import BpeConfig
from tests.tiny_models import write_tiny_corpus, write_tiny_model

LINES = 10_000


@pytest.mark.parametrize(("cut_into", "form", "beam"), [("words", "text", 1), ("sentencepiece", "jsonl", 4)])
def test_ten_thousand_lines_of_random_bytes_keep_their_number(
    tmp_path: Path, cut_into: str, form: str, beam: int
) -> None:
    learned = cut_into == "sentencepiece"
    pair = Corpus.open(write_tiny_corpus(tmp_path, joint=BpeConfig(vocab_size=40))).pair if learned else None
    model = write_tiny_model(tmp_path / "model", model="transformer", updates=20, pair=pair)
    chosen = random.Random(1)
    lines = [chosen.randbytes(chosen.choice((0, 1, 3, 10, 30, 100))).replace(b"\n", b"") for _ in range(LINES)]
    lines[500] = bytes(range(256)).replace(b"\n", b"") * 40
    (tmp_path / "input").write_bytes(b"".join(line + b"\n" for line in lines))
    options = f"--path {model} --input {tmp_path / 'input'} --beam {beam} --max-len-a 0 --max-len-b 4 --device cpu"
    command = [sys.executable, "-m", "nmt_cli.generate", *options.split(), "--workers", "2", "--format", form]
    result = subprocess.run(command, capture_output=True, check=False)
    log = result.stderr.decode("utf-8")
    assert result.returncode == 0 and "Traceback" not in log, log[-3000:]
    translations = result.stdout.decode("utf-8")  # strictly
    assert translations.count("\n") == LINES and translations.endswith("\n")
    found = translations.split("\n")[:-1]
    if form == "jsonl":
        trees = [json.loads(line) for line in found]
        assert [tree["id"] for tree in trees] == list(range(LINES))
        found = [tree["hypotheses"][0]["text"] for tree in trees]
    empty = [not line.decode("utf-8", "replace").strip() for line in lines]
    assert not any(text for text, nothing in zip(found, empty) if nothing)
    assert sum(map(bool, found)) > LINES / 2
