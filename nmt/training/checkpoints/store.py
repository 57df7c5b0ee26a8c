"""The checkpoints of one run folder: when one is written, which old ones may go, and finding the one to go on from."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from nmt.config.sections import CheckpointConfig
from nmt.data.language_pair import LanguagePair
from nmt.errors import DataError, NMTError, OutputError, StorageError
from nmt.storage import run_folder
from nmt.storage.checkpoints import (
    CheckpointInfo,
    StoredCheckpoint,
    TrainingState,
    drop_training_state,
    holds_training_state,
    read_checkpoint,
    read_info,
    write_checkpoint,
)
from nmt.storage.files import MANIFEST, OtherFormat, atomic_write, copy_folder, new_folder

logger = logging.getLogger("nmt.training")

FALLBACKS = 2
BY_UPDATES, BY_MINUTES, BY_EPOCH = "update", "minutes", "epoch"


@dataclass
class Cadence:
    """Which of the three rhythms say that now is the time. Times are those of a monotonic clock, in seconds."""

    options: CheckpointConfig
    counts_from: float = 0.0  # minutes do: where training begins, and where they were a reason

    def due(self, update: int, epoch: int, *, ends_epoch: bool, now: float) -> tuple[str, ...]:
        """The reasons to write one after ``update``; empty: none."""
        options = self.options
        reasons = {
            BY_UPDATES: options.save_interval_updates is not None and update % options.save_interval_updates == 0,
            BY_MINUTES: options.save_interval_minutes is not None
            and now - self.counts_from >= 60 * options.save_interval_minutes,
            BY_EPOCH: options.save_interval is not None and ends_epoch and epoch % options.save_interval == 0,
        }
        return tuple(reason for reason, applies in reasons.items() if applies)


def superfluous(
    stored: Mapping[Path, CheckpointInfo],
    options: CheckpointConfig,
    *,
    metric: str,
    higher_is_better: bool,
    named: Set[Path],
    written: Path,
) -> list[Path]:
    """The checkpoints that may be deleted, after the one just ``written``. ``stored`` is oldest first; ``named`` are those
    that a pointer names.

    One is kept if any of its claims holds: written at an epoch's end or by updates or minutes and recent enough, among
    the best, or named. Those written for another reason (stop, improvement) only last until something better comes. The
    newest ``FALLBACKS`` of the course that led to it stay in any case: if one is damaged, the run goes on from the other.
    """
    now = stored[written].update if written in stored else math.inf
    kept = {*named, *[path for path, info in stored.items() if info.update <= now][-FALLBACKS:]}
    kept.update(written_for(stored, {BY_EPOCH}, options.keep_last_epochs))
    kept.update(written_for(stored, {BY_UPDATES, BY_MINUTES}, options.keep_interval_updates))
    kept.update(best_first(stored, metric, higher_is_better=higher_is_better)[: options.keep_best])
    return [path for path in stored if path not in kept]


def best_first(stored: Mapping[Path, CheckpointInfo], metric: str, *, higher_is_better: bool) -> list[Path]:
    """Those that have the score, the best at first; of equals the older one. What is not finite is no score."""
    scored = [path for path, info in stored.items() if math.isfinite(info.scores.get(metric, math.nan))]
    sign = -1.0 if higher_is_better else 1.0
    return sorted(scored, key=lambda path: (sign * stored[path].scores[metric], stored[path].update))


def written_for(stored: Mapping[Path, CheckpointInfo], reasons: Set[str], count: int | None = None) -> list[Path]:
    """Those that were written for any of the reasons; the last ``count`` of them."""
    paths = [path for path, info in stored.items() if reasons & set(info.reasons)]
    return paths if count is None else paths[-count:]


@dataclass(frozen=True)
class Snapshot:
    """A run between two updates."""

    info: CheckpointInfo
    model: Mapping[str, Tensor]
    training: TrainingState


@dataclass
class CheckpointStore:
    """Reads and writes the run folder; the caller holds its lock."""

    folder: Path
    options: CheckpointConfig
    config: Mapping[str, Any]
    tokenizer: Path
    metric: str
    higher_is_better: bool
    _unreadable: set[str] = field(default_factory=set)  # pointers that were warned of
    _lost_best: bool = False  # the best checkpoint of all could not be written: the best one there is stands for it

    def prepare(self) -> None:
        """Put what belongs to the run, not to one checkpoint, into its folder: configuration and tokenizer."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._require_own()
        own = self.folder / "tokenizer"
        stale = _contents(own) != _contents(self.tokenizer)  # perhaps of a start that came to nothing
        if stale:
            self._require_own_tokenizer()
        with atomic_write(self.folder / "config.yaml") as file:
            file.write(yaml.safe_dump(dict(self.config), sort_keys=False, allow_unicode=True).encode("utf-8"))
        if stale:
            with new_folder(own, overwrite=True) as folder:
                copy_folder(self.tokenizer, folder)

    def _require_own(self) -> None:
        """Refuse a folder with files of something else under the names of a run's."""
        names = ("config.yaml", "tokenizer", "log.jsonl", "report.html", MANIFEST)
        paths = [path for name in names for path in (self.folder / name, *(self.folder / name).glob("*"))]
        there = [path.relative_to(self.folder).parts[0] for path in paths if path.is_file()]
        config: Mapping[str, Any] = {}
        with contextlib.suppress(DataError):
            config = run_folder.read_config(self.folder)
        of_a_run = {"model", "training", "checkpoint"} <= config.keys()
        if there and not run_folder.checkpoints_in(self.folder) and not of_a_run:
            raise OutputError(
                f"{self.folder} holds {there[0]}, which is of no training run; choose another --save-dir, or move it away"
            )

    def _require_own_tokenizer(self) -> None:
        """Checkpoints that are whole beside a tokenizer of other pieces mean that somebody put it there."""
        folder = self.folder / "tokenizer"
        if not folder.is_dir() or not run_folder.checkpoints_in(self.folder):
            return
        try:
            digests = {LanguagePair.load(one).digest() for one in (folder, self.tokenizer)}
        except NMTError as error:
            logger.warning("%s; the tokenizer of the corpus takes its place", error)
            return
        if len(digests) > 1:
            raise DataError(
                f"{folder} has other vocabularies than the corpus, which the checkpoints beside it were trained on; put the "
                f"run's own back, or delete it: then that of the corpus is taken"
            )

    def restore(self) -> StoredCheckpoint | None:
        """The newest checkpoint that is whole, or None in a new run folder."""
        paths = run_folder.checkpoints_in(self.folder)
        if not self.options.restore and paths:
            raise OutputError(
                f"{self.folder} holds checkpoints of an earlier run, which checkpoint.restore=false would mix with the "
                f"new one; choose another --save-dir, or delete them"
            )
        damaged: list[str] = []
        readable: list[Path] = []
        for path in reversed(paths):
            try:
                stored = read_checkpoint(path, training=True)
            except OtherFormat:  # not damage: the version that wrote it can read it
                raise
            except NMTError as error:
                damaged.append(str(error))
                logger.warning("%s; falling back to the checkpoint before it", error)
                continue
            if stored.training is None:
                logger.warning("%s holds no training state; falling back to the checkpoint before it", path)
                readable.append(path)
                continue
            if damaged:
                logger.warning("going on from %s; the updates after %d are lost", path.name, stored.info.update)
            return stored
        if readable:
            raise DataError(
                f"none of the {len(paths)} checkpoints in {self.folder} holds what resuming needs (see "
                f"--keep-training-states); choose another --save-dir, perhaps with --finetune-from-model {readable[0]}"
            )
        if damaged:
            raise DataError(f"no checkpoint in {self.folder} can be read: {damaged[0]}; delete them to start again")
        return None

    def mend_pointers(self, stored: StoredCheckpoint, best: int | None) -> None:
        """Let the pointers name what is gone on from, and the checkpoint of the ``best`` update, if it is there: a process
        may have died between a checkpoint and its pointers."""
        paths = [] if best is None else run_folder.checkpoints_in(self.folder)
        of_best = next((path for path in paths if path.name.endswith(f"-{best:08d}")), None)
        for name, path in ((run_folder.LAST, stored.path), (run_folder.BEST, of_best)):
            if path is not None and self._pointed(name) != path:
                run_folder.set_pointer(self.folder, name, path)
        self._lost_best = best is not None and of_best is None

    def save(self, snapshot: Snapshot, *, best: bool, required: bool) -> Path | None:
        """Write a checkpoint, move the pointers, delete what may go. A full disk is a warning and the result None,
        unless the checkpoint is ``required`` (the run ends with it)."""
        path = self.folder / run_folder.checkpoint_name(snapshot.info.epoch, snapshot.info.update)
        self._warn_if_space_is_short(snapshot)
        try:
            if not (self.folder / "tokenizer").is_dir():  # somebody removed the folder underneath
                self.prepare()
            # what it overwrites is a damaged one that this run fell back from
            write_checkpoint(path, config=self.config, overwrite=True, **vars(snapshot))
            run_folder.set_pointer(self.folder, run_folder.LAST, path)
            if best or (self._lost_best and self._beats_the_best_stored(snapshot.info)):
                run_folder.set_pointer(self.folder, run_folder.BEST, path)
                self._lost_best = self._lost_best and not best
        except (StorageError, OutputError, OSError) as error:
            self._lost_best = self._lost_best or best
            if required:
                raise StorageError(f"the last checkpoint of the run could not be written: {error}") from error
            logger.warning("no checkpoint at update %d, training goes on: %s", snapshot.info.update, error)
            return None
        try:
            self._delete_superfluous(path)
        except (NMTError, OSError) as error:
            logger.warning("old checkpoints could not be looked through: %s", error)
        return path

    def _beats_the_best_stored(self, info: CheckpointInfo) -> bool:
        stored, known = self.best(), dict[Path, CheckpointInfo]()
        if stored is not None:
            with contextlib.suppress(NMTError):  # a damaged one is beaten by any
                known[stored] = read_info(stored)
        now = self.folder / "now"
        return best_first({**known, now: info}, self.metric, higher_is_better=self.higher_is_better)[:1] == [now]

    def last(self) -> Path | None:
        return self._pointed(run_folder.LAST)

    def best(self) -> Path | None:
        return self._pointed(run_folder.BEST)

    def _pointed(self, name: str) -> Path | None:
        """Where a pointer leads; None too if it cannot be read, which is said once."""
        try:
            path = run_folder.pointed(self.folder, name)
        except NMTError as error:
            if name not in self._unreadable:
                logger.warning("%s; no checkpoint is deleted until the run writes this file again", error)
            self._unreadable.add(name)
            return None
        self._unreadable.discard(name)
        return path

    def _delete_superfluous(self, written: Path) -> None:
        named = {path for path in (self.last(), self.best()) if path is not None}
        if self._unreadable:
            return  # what it named must not be deleted
        stored: dict[Path, CheckpointInfo] = {}
        for path in run_folder.checkpoints_in(self.folder):
            try:
                stored[path] = read_info(path)
            except NMTError:
                continue  # a damaged one is the user's to look at
        better = self.higher_is_better
        for path in superfluous(
            stored, self.options, metric=self.metric, higher_is_better=better, named=named, written=written
        ):
            doomed = path.with_name(f".{path.name}.old.tmp")  # if this is cut short, the next start cleans it up
            try:
                path.rename(doomed)
                shutil.rmtree(doomed)
            except OSError as error:
                logger.warning("could not delete the old checkpoint %s: %s", path, error)
        if self.options.keep_training_states is None:
            return
        left = {path: info.update for path, info in stored.items() if path.is_dir()}
        # The one just written keeps it, then those before it; what stands after it belongs to a course that was left.
        now = left.get(written, 0)
        by_worth = sorted(left, key=lambda path: (holds_training_state(path), left[path] <= now, left[path]))
        for path in by_worth[: -self.options.keep_training_states]:
            try:
                drop_training_state(path)
            except (NMTError, OSError) as error:
                logger.warning("could not delete the state of training in %s: %s", path, error)

    def _warn_if_space_is_short(self, snapshot: Snapshot) -> None:
        """By what its tensors take; the rest is small."""
        needed = sum(one.nbytes for tensors in (snapshot.model, snapshot.training.tensors) for one in tensors.values())
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError:  # somebody removed the folder, or it cannot be asked
            return
        if free < 1.2 * needed:
            logger.warning(
                "only %.1f MB are free in %s, and a checkpoint takes %.1f MB", free / 1e6, self.folder, needed / 1e6
            )


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
