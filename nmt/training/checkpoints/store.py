"""The checkpoints of one run folder: writing them, deleting old ones, and finding the one to resume from."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.config.sections import CheckpointConfig
from nmt.data.language_pair import PAIR_FILE, LanguagePair, described_with
from nmt.data.languages import LanguageTokens
from nmt.errors import DataError, NMTError, OutputError, StorageError
from nmt.storage import run_folder
from nmt.storage.checkpoints import (
    FORMAT,
    KIND,
    CheckpointInfo,
    StoredCheckpoint,
    TrainingState,
    drop_training_state,
    holds_training_state,
    read_checkpoint,
    read_info,
    write_checkpoint,
)
from nmt.storage.files import (
    MANIFEST,
    OtherFormat,
    Verify,
    atomic_write,
    copy_folder,
    new_folder,
    read_manifest,
    yaml_text,
)
from nmt.training.checkpoints.retention import best_first, superfluous

logger = logging.getLogger("nmt.training")


@dataclass(frozen=True)
class Snapshot:
    """The state of a run between two updates, as a checkpoint stores it."""

    info: CheckpointInfo
    model: Mapping[str, Tensor]
    training: TrainingState
    good_until: int | None = None  # the last good update, while the model may have diverged; None: it has not


@dataclass
class CheckpointStore:
    """Read and write the run folder; the caller holds its lock. ``fallback`` is the store of a folder on another disk, for
    checkpoints that the run folder has no room for."""

    folder: Path
    options: CheckpointConfig
    config: Mapping[str, Any]
    tokenizer: Path
    metric: str
    higher_is_better: bool
    fallback: CheckpointStore | None = None
    languages: LanguageTokens | None = None  # of the run, which may have several corpora; None: those of ``tokenizer``
    _unreadable: set[str] = field(default_factory=set)  # pointers with a logged warning
    _lost_best: bool = False  # the best checkpoint could not be written, so the pointer names the next best

    def prepare(self) -> None:
        """Write the files of the run that belong to no single checkpoint: configuration and tokenizer."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._require_own()
        own = self.folder / "tokenizer"
        expected = _contents(self.tokenizer)
        if self.languages is not None:
            expected[Path(PAIR_FILE)] = described_with(self.tokenizer, self.languages)
        stale = _contents(own) != expected  # perhaps of a start that failed
        if stale:
            self._require_own_tokenizer()
        with atomic_write(self.folder / "config.yaml") as file:
            file.write(yaml_text(dict(self.config)).encode("utf-8"))
        if stale:
            with new_folder(own, overwrite=True) as folder:
                copy_folder(self.tokenizer, folder)
                if self.languages is not None:
                    (folder / PAIR_FILE).write_bytes(expected[Path(PAIR_FILE)])

    def _require_own(self) -> None:
        """Refuse a folder that holds files of another program under the names of a run folder."""
        names = ("config.yaml", "tokenizer", "log.jsonl", "report.html", MANIFEST)
        paths = [path for name in names for path in (self.folder / name, *(self.folder / name).glob("*"))]
        there = [path.relative_to(self.folder).parts[0] for path in paths if path.is_file()]
        config: Mapping[str, Any] = {}
        with contextlib.suppress(DataError):
            config = run_folder.read_config(self.folder)
        of_a_run = {"model", "training", "checkpoint"} <= config.keys()
        if there and not run_folder.checkpoints_in(self.folder) and not of_a_run:
            raise OutputError(
                f"{self.folder} holds {there[0]}, which no training run wrote; choose another --save-dir, or move it away"
            )

    def _require_own_tokenizer(self) -> None:
        """Refuse a run folder with checkpoints whose tokenizer has other vocabularies than the corpus."""
        folder = self.folder / "tokenizer"
        if not folder.is_dir() or not run_folder.checkpoints_in(self.folder):
            return
        try:
            digests = {LanguagePair.load(path).digest() for path in (folder, self.tokenizer)}
        except NMTError as error:
            logger.warning("%s; replacing it with the tokenizer of the corpus", error)
            return
        if len(digests) > 1:
            raise DataError(
                f"{folder} and the corpus have different vocabularies; restore the tokenizer of the run, or delete it if "
                f"the run was trained on this corpus"
            )

    def restore(self) -> StoredCheckpoint | None:
        """Return the newest undamaged checkpoint, or None in a new run folder."""
        paths = self._checkpoints()
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
                logger.warning("resuming from %s; the updates after %d are lost", path.name, stored.info.update)
            return stored
        if readable:
            raise DataError(
                f"no checkpoint in {self.folder} has a training state to resume from (see --keep-training-states); choose "
                f"another --save-dir, perhaps with --finetune-from-model {readable[0]}"
            )
        if damaged:
            raise DataError(f"no checkpoint in {self.folder} can be read: {damaged[0]}; delete them to start again")
        return None

    def mend_pointers(self, stored: StoredCheckpoint, best: int | None) -> None:
        """Set the pointers to the checkpoint that the run resumes from, and to that of the ``best`` update, if it exists: a
        process may have died between writing a checkpoint and its pointers."""
        paths = [] if best is None else self._checkpoints()
        of_best = next((path for path in paths if path.name.endswith(f"-{best:08d}")), None)
        for name, path in ((run_folder.LAST, stored.path), (run_folder.BEST, of_best)):
            if path is not None and self._newest_pointed(name) != path:
                run_folder.set_pointer(path.parent, name, path)
        self._lost_best = best is not None and of_best is None

    def save(self, snapshot: Snapshot, *, best: bool, required: bool) -> Path | None:
        """Write a checkpoint, set the pointers, and delete old checkpoints: in the run folder, else in the fallback folder.
        If both disks are full, warn and return None, or raise an error if the checkpoint is ``required``."""
        update = snapshot.info.update
        path = self.folder / run_folder.checkpoint_name(snapshot.info.epoch, update)
        try:
            self._write_with_room(path, snapshot, best=best)
        except (StorageError, OutputError, OSError) as error:
            self._lost_best = self._lost_best or best
            if self.fallback is not None:
                logger.warning(
                    "writing the checkpoint at update %d to %s instead: %s", update, self.fallback.folder, error
                )
                return self.fallback.save(snapshot, best=best, required=required)
            if required:
                raise StorageError(str(error)) from error
            logger.warning("could not write the checkpoint at update %d, training continues: %s", update, error)
            return None
        try:
            self._retire(path, snapshot)
        except (NMTError, OSError) as error:
            logger.warning("could not check which old checkpoints to delete: %s", error)
        return path

    def _write_with_room(self, path: Path, snapshot: Snapshot, *, best: bool) -> None:
        """Write a checkpoint. If space is short, or runs out, first delete the old checkpoints that may go after it."""
        if self._space_is_short(snapshot) and self._make_room(path, snapshot):
            self._space_is_short(snapshot)  # warns if it still is
        try:
            self._write(path, snapshot, best=best)
        except StorageError:  # perhaps a quota, which the free space does not show
            if not self._make_room(path, snapshot):
                raise
            self._write(path, snapshot, best=best)

    def _write(self, path: Path, snapshot: Snapshot, *, best: bool) -> None:
        if not (self.folder / "tokenizer").is_dir():  # the folder was removed during the run
            self.prepare()
        # A folder of this name is an earlier save of this update, or a damaged checkpoint that this run fell back from.
        model, training, info = snapshot.model, snapshot.training, snapshot.info
        write_checkpoint(path, model=model, config=self.config, info=info, training=training, overwrite=True)
        run_folder.set_pointer(self.folder, run_folder.LAST, path)
        if best or (self._lost_best and self._beats_the_best_stored(snapshot.info)):
            run_folder.set_pointer(self.folder, run_folder.BEST, path)
            self._lost_best = self._lost_best and not best

    def _beats_the_best_stored(self, info: CheckpointInfo) -> bool:
        stored, known = self.best(), dict[Path, CheckpointInfo]()
        if stored is not None:
            with contextlib.suppress(NMTError):  # any checkpoint is better than a damaged one
                known[stored] = read_info(stored)
        now = self.folder / "now"
        return best_first({**known, now: info}, self.metric, higher_is_better=self.higher_is_better)[:1] == [now]

    def last(self) -> Path | None:
        return self._newest_pointed(run_folder.LAST)

    def best(self) -> Path | None:
        return self._newest_pointed(run_folder.BEST)

    def newest(self, until: float = math.inf) -> Path | None:
        return next((path for path in reversed(self._checkpoints()) if run_folder.update_of(path) <= until), None)

    def _checkpoints(self) -> list[Path]:
        """Return all checkpoints, oldest first, with those in the fallback folder."""
        return run_folder.checkpoints_in(*(store.folder for store in (self, self.fallback) if store is not None))

    def _newest_pointed(self, name: str) -> Path | None:
        pointed = [self._pointed(name), None if self.fallback is None else self.fallback._pointed(name)]
        return max(filter(None, pointed), key=run_folder.progress_of, default=None)

    def _pointed(self, name: str) -> Path | None:
        """Return the checkpoint of a pointer; None if either is missing, or the pointer is unreadable (one warning)."""
        try:
            path = run_folder.pointed(self.folder, name)
        except NMTError as error:
            if name not in self._unreadable:
                logger.warning("%s; no checkpoint is deleted until the run writes this file again", error)
            self._unreadable.add(name)
            return None
        self._unreadable.discard(name)
        return path

    def _make_room(self, path: Path, snapshot: Snapshot) -> bool:
        """Before a checkpoint is written, delete the ones that may go after it, but never the newest undamaged one. Return
        whether anything was deleted."""
        try:
            whole = next(filter(_is_whole, reversed(run_folder.checkpoints_in(self.folder))), None)
            if whole is None or not (retired := self._retire(path, snapshot, spared=whole)):
                return False
        except (NMTError, OSError):  # the failure to write says more
            return False
        logger.warning(
            "disk space is short in %s: deleted %s before the next checkpoint", self.folder, ", ".join(retired)
        )
        return True

    def _retire(self, written: Path, snapshot: Snapshot, spared: Path | None = None) -> list[str]:
        """Delete checkpoints and training states that the options do not keep after ``written``, except those of
        ``spared``. Return their names."""
        named = {path for path in (self._pointed(run_folder.LAST), self._pointed(run_folder.BEST)) if path is not None}
        if self._unreadable:
            return []  # the checkpoint that it named must stay
        stored = {written: snapshot.info}
        for path in run_folder.checkpoints_in(self.folder):
            with contextlib.suppress(NMTError):  # a damaged one stays, for the user to examine
                stored.setdefault(path, read_info(path))
        stored = dict(sorted(stored.items(), key=lambda item: (item[1].update, item[1].epoch)))
        doomed = superfluous(
            stored,
            self.options,
            metric=self.metric,
            higher_is_better=self.higher_is_better,
            named=named,
            written=written,
            good_until=snapshot.good_until,
        )
        retired = [path.name for path in doomed if path != spared and _deleted(path)]
        if self.options.keep_training_states is None:
            return retired
        left = {path: info.update for path, info in stored.items() if path == written or path.is_dir()}
        # The new checkpoint keeps its training state, then those before it; later ones were abandoned when the run resumed.
        now, has_state = left[written], {path: path == written or holds_training_state(path) for path in left}
        by_worth = sorted(left, key=lambda path: (has_state[path], left[path] <= now, left[path]))
        for path in by_worth[: -self.options.keep_training_states]:
            if path not in (written, spared) and _without_state(path) and has_state[path]:
                retired.append(f"the training state of {path.name}")
        return retired

    def _space_is_short(self, snapshot: Snapshot) -> bool:
        """Warn if the tensors of the snapshot do not fit on the disk; the rest is small."""
        needed = sum(
            tensor.nbytes for tensors in (snapshot.model, snapshot.training.tensors) for tensor in tensors.values()
        )
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError:  # the folder was removed, or the system does not tell
            return False
        if free < 1.2 * needed:
            logger.warning(
                "only %.1f MB are free in %s, and a checkpoint takes %.1f MB", free / 1e6, self.folder, needed / 1e6
            )
        return free < 1.2 * needed


def _is_whole(path: Path) -> bool:
    """Whether a checkpoint is undamaged and holds what resuming needs."""
    with contextlib.suppress(NMTError, OSError):
        read_manifest(path, KIND, FORMAT, verify=Verify.full)
        return holds_training_state(path)
    return False


def _deleted(path: Path) -> bool:
    doomed = path.with_name(f".{path.name}.old.tmp")  # if this is cut short, the next start cleans it up
    try:
        path.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        logger.warning("could not delete the old checkpoint %s: %s", path, error)
        return False
    return True


def _without_state(path: Path) -> bool:
    try:
        drop_training_state(path)
    except (NMTError, OSError) as error:
        logger.warning("could not delete the training state in %s: %s", path, error)
        return False
    return True


def fallback_folder(options: CheckpointConfig) -> Path | None:
    """Return the fallback folder of a run folder. Each run folder has its own, so that several runs can share
    ``fallback_dir``."""
    if options.fallback_dir is None:
        return None
    run = Path(options.save_dir).absolute()
    return Path(options.fallback_dir) / f"{run.name}-{hashlib.sha256(os.fsencode(run)).hexdigest()[:8]}"


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
