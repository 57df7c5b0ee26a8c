"""Folders of runs, records and the table of a sweep."""

from __future__ import annotations

import json
import os
import socket
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from nmt.config.composing.assignments import read
from nmt.config.sections import TrainConfig, ValidationConfig
from nmt.errors import UsageError
from nmt_cli.sweeps.records import LONGEST_NAME, RECORDS, read_records, run_name, table
from nmt_cli.sweeps.sweep import Sweep, SweepJob, refuse_worst


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["optimizer.lr=0.001"], "optimizer.lr-0.001"),
        (["optimizer.lr=1e-05", "seed=2"], "optimizer.lr-1e-05__seed-2"),
        (["model=transformer_tiny"], "model-transformer_tiny"),
        (["optimizer.lr=-1"], "optimizer.lr--1"),
        ([], ""),
    ],
)
def test_a_run_is_named_by_what_was_chosen_for_it(overrides: list[str], name: str) -> None:
    assert run_name(overrides) == name


def test_different_choices_have_different_names_that_fit_a_file_system() -> None:
    lists = [f"data=['data-bin/{name}']" for name in ("a,b", "a b", "a/b", "a'b")]
    choices = [
        *([text] for text in lists),
        ["seed=1_x=2", "x=3"],
        ["seed=1", "x=2_x=3"],
        ["seed=1__x-2"],
        ["seed=1", "x=2"],
        ["seed=1_", "x=2"],
        ["seed=1", "_x=2"],
        ["x=a-b"],
        ["x=a=b"],
        ["lr=-1"],
        ["lr=1"],
        *([f"x={'long' * 100}{number}"] for number in range(2)),
    ]
    names = [run_name(overrides) for overrides in choices]
    assert all(left != right for left, right in combinations(names, 2))
    assert all(len(name) <= LONGEST_NAME and not set(name) & set("/,: '[]\\=") for name in names)


def record(job: int, **facts: Any) -> dict[str, Any]:
    return {"job": job, "overrides": [f"seed={job}"], "folder": f"seed={job}", "status": "finished"} | facts


def test_the_table_marks_the_best_in_the_direction_of_the_metric() -> None:
    losses = [{"metric": "loss", "higher_is_better": False, "best": value} for value in (2.5, 1.25, 3.0)]
    scores = [facts | {"metric": "bleu", "higher_is_better": True} for facts in losses]
    for facts, best in ((losses, 1), (scores, 2)):
        lines = table([record(job, **values) for job, values in enumerate(facts)], Path("runs")).split("\n")
        assert [" best " in line for line in lines[1:]] == [job == best for job in range(3)]
    assert lines[0].split() == ["job", "overrides", "bleu", "status", "folder"]
    assert lines[2].split() == ["1", "seed=1", "1.2500", "finished", "runs/seed=1"]


def test_the_table_shows_runs_without_a_figure_and_figures_of_several_metrics() -> None:
    failed = record(1, status="failed", error="no such corpus")
    mixed = [record(0, metric="loss", higher_is_better=False, best=2.0), failed]
    mixed.append(record(2, metric="bleu", higher_is_better=True, best=30.0))
    lines = table(mixed, Path("runs")).split("\n")
    assert [line.split()[2:-2] for line in lines[1:]] == [["loss", "2.0000"], ["-"], ["bleu", "30.0000"]]
    assert lines[2].split()[-2:] == ["failed", "runs/seed=1"]


def test_the_folder_of_a_sweep_is_not_swept() -> None:
    with pytest.raises(UsageError, match="checkpoint.save_dir takes one value in a sweep"):
        Sweep(read(["checkpoint.save_dir=a,b", "seed=1"]), of_runs=True)


def test_a_sweeper_that_looks_for_the_worst_is_refused() -> None:
    for direction in (None, "minimize", ["minimize", "maximize"]):
        refuse_worst(direction, "loss", higher_is_better=False)
    refuse_worst("maximize", "bleu", higher_is_better=True)
    with pytest.raises(UsageError, match="direction=minimize looks for the worst bleu; set it to maximize"):
        refuse_worst("minimize", "bleu", higher_is_better=True)


@pytest.mark.parametrize("direction", ["minimize", ["minimize", "maximize"]])
def test_a_sweeper_that_looks_for_the_best_needs_validations(
    monkeypatch: pytest.MonkeyPatch, direction: str | list[str]
) -> None:
    def compare(sweeper: dict[str, Any], validation: ValidationConfig) -> None:
        monkeypatch.setattr(HydraConfig, "get", lambda: SimpleNamespace(sweeper=OmegaConf.create(sweeper)))
        job = SweepJob.__new__(SweepJob)
        job._facts = {}
        job.compare_direction(TrainConfig(validation=validation))

    never = ValidationConfig(interval=None)
    compare({}, never)
    compare({"direction": direction}, ValidationConfig(interval=None, interval_updates=5))
    with pytest.raises(UsageError, match="the best validation loss, but validation is off"):
        compare({"direction": direction}, never)


def test_a_record_may_hold_any_text(tmp_path: Path) -> None:
    odd = [record(0, overrides=["data=a\u2028b"]), record(1, error="c\x85d\u2029e\x0cf")]
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in odd)
    (tmp_path / RECORDS).write_text(text, encoding="utf-8")
    assert read_records(tmp_path) == odd


def test_a_stop_reaches_only_processes_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep([], of_runs=True)
    sweep.begin(tmp_path, None)
    jobs = [record(number, start=sweep.start, status="running", process=number) for number in (101, 102)]
    hosts = (socket.gethostname(), "another machine")
    (tmp_path / RECORDS).write_text("".join(json.dumps(job | {"host": host}) + "\n" for job, host in zip(jobs, hosts)))
    stopped: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process, number: stopped.append(process))
    assert sweep._stop_others() and sweep.stop_file().exists()
    assert stopped == [101]
