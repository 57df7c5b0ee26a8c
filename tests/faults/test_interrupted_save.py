"""A process that dies at any step of a save loses nothing that stood before it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmt.storage.checkpoints import CheckpointInfo, read_checkpoint, write_checkpoint
from nmt.storage.lock import remove_leftovers
from nmt.storage.run_folder import checkpoint_name, checkpoints_in

# In one process after the other: saves a checkpoint of the name of the upper folder in the run `n`, but ends without any
# clean-up at the n-th call that reaches the disk. Prints how each ended.
SAVE_AND_DIE = """
import json, os, sys
from pathlib import Path
import torch
from nmt.storage import checkpoints, run_folder

def save(run, last):
    calls = 0
    def counted(function):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == last:
                os._exit(9)
            return function(*arguments, **options)
        return call
    for name in ("fsync", "replace", "rename", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    path = run / run.parent.name
    checkpoints.write_checkpoint(path, model={"w": torch.ones(3)}, config={}, info=checkpoints.CheckpointInfo(2, 1),
        training=checkpoints.TrainingState({}, {}), overwrite=True)
    run_folder.set_pointer(run, "last", path)

statuses = []
for run in sorted(Path(sys.argv[1]).glob("*/*")):
    child = os.fork()
    if not child:
        try:
            save(run, int(run.name))
            os._exit(0)
        finally:
            os._exit(1)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(statuses))
"""
STEPS = 22
SAME, ANOTHER = checkpoint_name(1, 1), checkpoint_name(1, 2)

Deaths = dict[str, tuple[list[Path], list[Path]]]


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> Deaths:
    """Runs that a save of either name cut short, one at each step, and those in which it came to its end."""
    folder = tmp_path_factory.mktemp("runs")
    runs = [folder / name / f"{step:02d}" for name in (SAME, ANOTHER) for step in range(1, STEPS + 1)]
    for run in runs:
        write_checkpoint(run / SAME, model={"w": torch.zeros(3)}, config={}, info=CheckpointInfo(1, 1))
    said = subprocess.run([sys.executable, "-c", SAVE_AND_DIE, str(folder)], stdout=subprocess.PIPE, check=True).stdout
    statuses = json.loads(said)
    found: Deaths = {}
    for name, begin in ((SAME, 0), (ANOTHER, STEPS)):
        own = statuses[begin : begin + STEPS]
        died = own.count(9)
        assert died >= 10 and own == [9] * died + [0] * (STEPS - died), "from some step on there is no more to die at"
        found[name] = runs[begin : begin + died], runs[begin + died : begin + STEPS]
        assert found[name][1], "more steps are needed"
    return found


def test_death_at_any_step_of_a_save_leaves_the_previous_checkpoint(deaths: Deaths) -> None:
    died, ended = deaths[ANOTHER]
    for run in (*died, *ended):
        remove_leftovers(run)
        found = checkpoints_in(run)
        assert found[0].name == SAME and all(read_checkpoint(path) for path in found)
        assert not list(run.glob(".*.tmp"))
    assert [len(checkpoints_in(run)) for run in ended] == [2] * len(ended)


def test_death_while_a_checkpoint_is_replaced_leaves_the_old_one_or_the_new_one(deaths: Deaths) -> None:
    died, ended = deaths[SAME]
    assert any(not checkpoints_in(run) for run in died), "no process died between the two names"
    weights = []
    for run in (*died, *ended):
        remove_leftovers(run)
        (found,) = checkpoints_in(run)
        weights.append(read_checkpoint(found).model["w"].tolist())
        assert not list(run.glob(".*.tmp"))
    first = weights.index([1.0] * 3)
    assert first > 0 and weights == [[0.0] * 3] * first + [[1.0] * 3] * (len(weights) - first)
