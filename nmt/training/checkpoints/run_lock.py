"""The run folder in the hands of one run."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from nmt.distributed.world import World
from nmt.errors import OutputError
from nmt.storage.lock import one_writer, remove_leftovers
from nmt.storage.run_folder import checkpoints_in
from nmt.storage.run_status import record_start

logger = logging.getLogger("nmt.training")


class RunLock:
    """Hold the lock of a run folder during a ``with`` block; rank 0 does so for all ranks.

    A folder that exists is locked at once. A new folder is created by ``create``, once the run has passed all checks, so
    that a refused start leaves nothing on the disk.
    """

    def __init__(self, folder: Path, world: World) -> None:
        self._folder, self._world = folder, world
        self._held = contextlib.ExitStack()
        self._is_locked = False

    def __enter__(self) -> RunLock:
        self._world.on_main(lambda: self._lock() if os.path.lexists(self._folder) else None)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def create(self) -> None:
        """Create and lock a new folder. All ranks call this together."""
        self._world.on_main(self._create)

    def _create(self) -> None:
        if self._is_locked:
            return
        self._lock()
        if checkpoints_in(self._folder):  # written and finished while this process checked its run
            raise OutputError(
                f"another process trained in {self._folder} at the same time; repeat the command to resume its run, or "
                f"choose another --save-dir"
            )

    def _lock(self) -> None:
        self._held.enter_context(one_writer(self._folder))
        self._is_locked = True
        for name in remove_leftovers(self._folder):
            logger.info("removed %s, left by an interrupted process", name)
        record_start(self._folder)
