"""A process that dies at any step of a save loses nothing that stood before it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from nmt.storage.checkpoints import CheckpointInfo, checkpoint_name, checkpoints_in, read_checkpoint, write_checkpoint
from nmt.storage.files import remove_leftovers

# Saves a second checkpoint, but ends without any clean-up at the n-th call that reaches the disk.
SAVE_AND_DIE = """
import builtins, os, sys
from pathlib import Path
import torch
from nmt.storage import checkpoints
run, last = Path(sys.argv[1]), int(sys.argv[2])
calls = 0
def counted(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == last:
            os._exit(9)
        return function(*arguments, **options)
    return call
for name in ("fsync", "replace", "rename", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
checkpoints.write_checkpoint(run / checkpoints.checkpoint_name(1, 2), model={"w": torch.ones(3)},
    config={}, info=checkpoints.CheckpointInfo(2, 1), training=checkpoints.TrainingState({}, {}))
checkpoints.set_pointer(run, "last", run / checkpoints.checkpoint_name(1, 2))
"""


def test_death_at_any_step_of_a_save_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    died = 0
    for step in range(1, 60):
        run = tmp_path / str(step)
        write_checkpoint(run / checkpoint_name(1, 1), model={"w": torch.zeros(3)}, config={}, info=CheckpointInfo(1, 1))
        status = subprocess.run([sys.executable, "-c", SAVE_AND_DIE, str(run), str(step)]).returncode
        remove_leftovers(run)
        found = checkpoints_in(run)
        assert found[0].name == checkpoint_name(1, 1) and all(read_checkpoint(path) for path in found)
        assert not list(run.glob(".*.tmp"))
        if status == 0:
            break
        died += 1
    assert status == 0 and died >= 10
