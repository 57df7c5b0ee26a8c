"""The stages of nmt-monolingual: which there are, what they run, what is refused, and whole runs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nmt.config.composing.assignments import read
from nmt.config.composing.composition import compose
from nmt.config.composing.presets import preset_names
from nmt.config.monolingual import MonolingualConfig
from nmt.errors import MissingInputError, NMTError, UsageError
from nmt.pipelines.monolingual import MonolingualStages
from nmt.pipelines.stages import PipelineStage
from nmt_cli.monolingual import run

WORDS = "a man woman dog cat boy girl runs sits jumps looks plays in on the red blue green street park".split()
ROUND = "pairs-en-de pairs-de-en reverse translate-de synthetic-en-de forward".split()
SECOND_ROUND = "translate-en-2 synthetic-de-en-2 reverse-2 translate-de-2 synthetic-en-de-2 forward-2".split()
STAGES = {
    "tagged": ROUND,
    "sampled": ROUND,
    "noised": ROUND,
    "iterated": [*ROUND, *SECOND_ROUND],
    "denoising": [*ROUND[:2], "sentences", "pretraining", *ROUND[2:]],
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Parallel texts of made-up words, and text of each side alone."""
    draw = random.Random(1)
    for name, count in (("train", 200), ("valid", 10), ("test", 10), ("mono", 60)):
        lines = [[draw.choice(WORDS) for _ in range(draw.randint(3, 9))] for _ in range(count)]
        (tmp_path / f"{name}.en").write_text("".join(" ".join(line) + "\n" for line in lines))
        (tmp_path / f"{name}.de").write_text("".join(" ".join(f"{word[::-1]}x" for word in s) + "\n" for s in lines))
    return tmp_path


def words_of_run(text: Path, *more: str) -> list[str]:
    files = {"trainpref": "train", "validpref": "valid", "testpref": "test", "save_dir": "out"}
    words = [f"{key}={text / name}" for key, name in files.items()]
    words += [f"target_text=[{text}/mono.de]", "source_lang=en", "target_lang=de"]
    reads_source = {"method=iterated", "method=denoising", "iterations=2"} & {*more}
    return [*words, *([f"source_text=[{text}/mono.en]"] if reads_source else []), *more]


def configured(text: Path, *more: str) -> MonolingualConfig:
    config: MonolingualConfig = compose(MonolingualConfig, read(words_of_run(text, *more))).config
    return config


def stages_of(text: Path, *more: str) -> dict[str, PipelineStage]:
    return {stage.name: stage for stage in MonolingualStages(configured(text, *more)).stages()}


def line(stage: PipelineStage, program: str) -> str:
    return next(str(command) for command in stage.commands if command.words[0] == program)


def test_a_dry_run_of_each_method_checks_and_shows_its_stages(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {*STAGES} == {*preset_names("method")}
    for method, names in STAGES.items():
        run(configured(text, f"method={method}", "train.model=transformer_tiny", "dry_run=true"))
        shown = [row for row in capsys.readouterr().out.splitlines() if not row.startswith("    ")]
        assert shown == [f"{name}: to do" for name in [*names, "scores"]]
    assert not (text / "out").exists()


def test_methods_differ_in_tags_noise_and_search(text: Path) -> None:
    def said(method: str) -> tuple[bool, bool, str]:
        stages = stages_of(text, f"method={method}")
        tagged = "--user-defined-symbols '<bt>'" in line(stages["pairs-en-de"], "nmt-preprocess")
        sampled = "--search sampling" in line(stages["translate-de"], "nmt-generate")
        return tagged, sampled, str(stages["synthetic-en-de"].commands[0]).partition(" with ")[2]

    assert said("tagged") == (True, False, "tag=<bt> noise=none)")
    assert said("sampled") == (False, True, "tag=none noise=none)")
    noise = "drop_words=1.0:words=0.1,mask_words=1.0:words=0.1,shuffle_words=1.0:distance=3"
    assert said("noised") == (False, False, f"tag=none noise={noise})")


def test_all_models_start_from_the_denoising_one_and_the_second_round_learns_from_the_first(text: Path) -> None:
    stages = stages_of(text, "method=denoising", "iterations=2")
    for name in ("reverse", "forward", "reverse-2", "forward-2"):
        assert "--finetune-from-model ../pretraining" in line(stages[name], "nmt-train")
        assert "pretraining" in stages[name].needs
    assert "--augment mask_spans=1.0,shuffle_sentences=1.0 validation.interval=null" in line(
        stages["pretraining"], "nmt-train"
    )
    assert "--path ../forward --input text.en" in line(stages["translate-en-2"], "nmt-generate")
    assert line(stages["reverse-2"], "nmt-train").startswith(
        "nmt-train ../pairs-de-en/corpus ../synthetic-de-en-2/corpus --save-dir . "
    )
    assert "--path ../forward-2" in str(stages["scores"].commands[2])


def test_options_of_a_section_count_more_than_those_of_all_models(text: Path) -> None:
    more = ["train.max_epoch=3", "train.model=transformer_tiny", "train.model.d_model=64", "forward.max_epoch=9"]
    stages = stages_of(text, *more)
    assert line(stages["reverse"], "nmt-train").endswith("--max-epoch 3 --model transformer_tiny model.d_model=64")
    assert line(stages["forward"], "nmt-train").endswith("--max-epoch 9 --model transformer_tiny model.d_model=64")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["trainpref=''", "target_text=[]"], "--trainpref and --target-text have no value; --help explains them"),
        (["target_lang=en"], "--source-lang and --target-lang are both en; name two languages"),
        (["iterations=2", "source_text=[]"], "--iterations 2 needs text of the source language: --source-text FILE"),
        (["iterations=0"], "iterations=0"),
        (["noise=['mask_word=1']"], "mask_word"),
        (["target_text=[/nowhere/news]"], "/nowhere/news does not exist"),
        (["trainpref=/nowhere/train"], "neither /nowhere/train.en nor .* exists"),
        (["forward.foo_bar=1"], "forward cannot run: nmt-train: unknown flag --foo-bar"),
        (["forward={model:{d_model:3}}"], "forward.model is a group of options; .* forward.model.KEY=VALUE"),
        (["until=backward"], "there is no stage 'backward'.*; there are: pairs-en-de, "),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(text: Path, more: list[str], message: str) -> None:
    with pytest.raises((UsageError, MissingInputError), match=message):
        run(configured(text, *more))
    assert not (text / "out").exists()


def test_a_folder_of_others_is_left_alone(text: Path) -> None:
    (text / "out" / "forward").mkdir(parents=True)
    (text / "out" / "forward" / "precious").write_text("years of work")
    with pytest.raises(NMTError, match="forward exists, but no stage of this pipeline made it"):
        run(configured(text))
    assert sorted(path.name for path in (text / "out").iterdir()) == [".lock", "forward"]


def started(text: Path, *more: str) -> subprocess.CompletedProcess[str]:
    tiny = ["train.model=transformer_tiny", "train.model.d_model=32", "train.max_update=8", "train.threads=1"]
    words = words_of_run(text, *tiny, "preprocess.vocab_size=100", *more)
    command = [sys.executable, "-m", "nmt_cli.monolingual", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"), check=False
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options", [["method=denoising", "iterations=2"], ["method=noised", "translate.search=sampling"]]
)
def test_a_whole_run_scores_its_models_and_is_then_already_done(text: Path, options: list[str]) -> None:
    first = started(text, *options)
    assert first.returncode == 0, first.stderr[-3000:]
    models = ["forward", "forward-2"] if "iterations=2" in options else ["forward"]
    scores = json.loads((text / "out" / "scores" / "scores.json").read_text())
    assert [row["model"] for row in scores] == models
    assert first.stdout.splitlines()[-1] == str(text / "out" / models[-1])
    assert first.stdout.startswith("test  forward  BLEU ")
    if "method=denoising" in options:  # the second token of each synthetic source is the tag
        corpus = text / "out" / "synthetic-en-de" / "corpus"
        tokens, starts = (np.load(corpus / f"train.en.{name}.npy") for name in ("tokens", "offsets"))
        assert len({*tokens[starts[:-1] + 1]}) == 1
    again = started(text, *options)
    assert again.returncode == 0 and again.stdout == first.stdout
    assert all(row.endswith(": already done") for row in again.stderr.splitlines())
    changed = started(text, *options, "forward.dropout=0.2", "dry_run=true")
    states = dict(row.split(": ", 1) for row in changed.stdout.splitlines() if not row.startswith(" "))
    assert states["reverse"] == states["synthetic-en-de"] == "done"
    assert states["forward"] == "stale (nmt-train changed: nothing -> --dropout 0.2)"
