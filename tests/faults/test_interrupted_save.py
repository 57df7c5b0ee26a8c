"""A process that dies at any step of a save loses nothing that stood before it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from nmt.storage.checkpoints import CheckpointInfo, checkpoint_name, checkpoints_in, read_checkpoint, write_checkpoint
from nmt.storage.files import remove_leftovers

# In one process after the other: saves a second checkpoint, but ends without any clean-up at the n-th call that reaches the
# disk. Prints how each ended.
SAVE_AND_DIE = """
import json, os, sys
from pathlib import Path
import torch
from nmt.storage import checkpoints

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
    path = run / checkpoints.checkpoint_name(1, 2)
    checkpoints.write_checkpoint(path, model={"w": torch.ones(3)}, config={}, info=checkpoints.CheckpointInfo(2, 1),
        training=checkpoints.TrainingState({}, {}))
    checkpoints.set_pointer(run, "last", path)

statuses = []
for step, run in enumerate(sorted(Path(sys.argv[1]).iterdir()), start=1):
    child = os.fork()
    if not child:
        try:
            save(run, step)
            os._exit(0)
        finally:
            os._exit(1)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(statuses))
"""
STEPS = 40


def test_death_at_any_step_of_a_save_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    runs = [tmp_path / f"{step:02d}" for step in range(1, STEPS + 1)]
    for run in runs:
        write_checkpoint(run / checkpoint_name(1, 1), model={"w": torch.zeros(3)}, config={}, info=CheckpointInfo(1, 1))
    said = subprocess.run(
        [sys.executable, "-c", SAVE_AND_DIE, str(tmp_path)], stdout=subprocess.PIPE, check=True
    ).stdout
    statuses = json.loads(said)
    died = statuses.count(9)
    assert died >= 10 and statuses == [9] * died + [0] * (STEPS - died), "from some step on there is no more to die at"
    for run in runs:
        remove_leftovers(run)
        found = checkpoints_in(run)
        assert found[0].name == checkpoint_name(1, 1) and all(read_checkpoint(path) for path in found)
        assert not list(run.glob(".*.tmp"))
    assert [len(checkpoints_in(run)) for run in runs[died:]] == [2] * (STEPS - died)
