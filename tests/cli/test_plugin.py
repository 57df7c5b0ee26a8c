"""The example plugin through the real commands: a model that nothing in nmt knows is trained and translates."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import pytest

from tests.commands import run_copy

PLUGIN = Path(__file__).resolve().parent.parent.parent / "examples" / "plugin" / "bag_of_words"


def start(command: str, *arguments: str, cwd: Path, stdin: str = "") -> str:
    done = run_copy(command, *arguments, cwd=cwd, stdin=stdin.encode())
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


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
    without = run_copy("generate", "--path", "run", "--cpu", stdin=b"a b c\n", cwd=tmp_path)
    assert without.returncode == 2
    said = f"model 'bag_of_words' is not registered; the model was trained with --user-dir {PLUGIN}: add it\n"
    assert without.stderr.decode().endswith(said)


# A scorer in a file of its own; nothing but its name leads to it.
SCORER = """
from dataclasses import dataclass
from nmt.scoring import Score, scorers

@dataclass
class Config:
    pass

@scorers.register("{name}", Config)
def count(config, text):
    return lambda hypotheses, references: Score("{name}", len(hypotheses), True, "none")
"""


def write_scorer(folder: Path, name: str) -> str:
    (folder / f"{name}.py").write_text(SCORER.format(name=name), encoding="utf-8")
    return f"{name}.py"


def test_files_are_plugins_and_several_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\nb\n", encoding="utf-8")
    files = [write_scorer(tmp_path, name) for name in ("first_one", "second_one", "third_one")]
    plugins = ["--user-dir", files[0], "--user-dir", f"{files[1]},{files[2]}"]
    metrics = "first_one,second_one,third_one"
    done = run_copy("score", *plugins, "--sys", "text", "--ref", "text", "--metrics", metrics, cwd=tmp_path)
    assert (done.returncode, done.stdout.count(b"= 2.00")) == (0, 3), done.stderr


@pytest.mark.skipif(importlib.util.find_spec("joblib") is None, reason="joblib is not installed")
def test_the_jobs_of_a_sweep_load_files_in_their_processes(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\nb\n", encoding="utf-8")
    sweep = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "tokenize=13a,none"]
    plugin = ["--user-dir", write_scorer(tmp_path, "only_one"), "--metrics", "only_one"]
    done = run_copy("score", *plugin, "--sys", "text", "--ref", "text", *sweep, cwd=tmp_path)
    assert (done.returncode, done.stdout.count(b"= 2.00")) == (0, 2), done.stderr


def test_presets_beside_a_file_are_choices(tmp_path: Path) -> None:
    (tmp_path / "conf" / "search").mkdir(parents=True)
    (tmp_path / "conf" / "search" / "wide.yaml").write_text("defaults: [beam]\nbeam_size: 77\n", encoding="utf-8")
    plugin = write_scorer(tmp_path, "beside")
    shown = run_copy("generate", "--user-dir", plugin, "--search", "wide", "--cfg", "job", cwd=tmp_path)
    assert b"beam_size: 77" in shown.stdout, shown.stderr
