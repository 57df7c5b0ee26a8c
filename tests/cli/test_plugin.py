"""The example plugin through the real commands: a model that nothing in nmt knows is trained and translates."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

PLUGIN = Path(__file__).resolve().parent.parent.parent / "examples" / "plugin" / "bag_of_words"


def start(command: str, *arguments: str, cwd: Path, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"nmt_cli.{command}", *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_of_a_plugin_is_trained_and_translates(tmp_path: Path) -> None:
    orders = [" ".join(words) for words in itertools.permutations("a b c d e f".split(), 3)]
    for split, lines in (("train", orders[::2]), ("valid", orders[1::8])):
        (tmp_path / f"{split}.any").write_text("".join(f"{line}\n" for line in lines))
        (tmp_path / f"{split}.sorted").write_text("".join(f"{' '.join(sorted(line.split()))}\n" for line in lines))
    languages = ["--source-lang", "any", "--target-lang", "sorted", "--trainpref", "train", "--validpref", "valid"]
    start("preprocess", *languages, "--destdir", "data", "--tokenizer", "words", "--joined-dictionary", cwd=tmp_path)
    plugin = ["--user-dir", str(PLUGIN)]
    training = ["+model=bag_of_words_tiny", "--gru-layers", "1", "--lr", "0.01", "--max-update", "100", "--cpu"]
    start("train", "data", *plugin, *training, "--batch-size", "30", "--save-dir", "run", cwd=tmp_path)
    scored = start("average_checkpoints", *plugin, "--inputs", "run", "--output", "run/mean", "--cpu", cwd=tmp_path)
    assert "average of " in scored  # the criterion and the model were built
    unseen = orders[3::8]
    translated = start("generate", *plugin, "--path", "run", "--cpu", cwd=tmp_path, stdin="\n".join(unseen))
    right = sum(line.split() == sorted(order.split()) for line, order in zip(translated.splitlines(), unseen))
    assert right >= 0.8 * len(unseen)
