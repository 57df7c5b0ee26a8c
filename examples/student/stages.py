"""Stages: command lines that fill a folder. A stage runs once, and again only if its inputs have changed.

    OUTPUT/<stage>/stage.json   the stamp: inputs of the stage, and the files that it wrote
    OUTPUT/<stage>/log          messages of its commands
    OUTPUT/<stage>.partial/     a running stage; it gets its final name after all of its commands succeeded

Commands run inside their folder and name other folders relative to it (``../clean/train.en``). So a line of the log
can be repeated by hand, and OUTPUT can be moved. A stage is identified by a digest of its command lines, of the
content of files from outside, and of the stages that it reads. If one of these changes, the stage is stale, and so are
the stages that read it. A stage whose folder was deleted runs again. If its files differ then, the stages that read
them are stale too.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from commands import LOG, Command, say, start_command

from nmt.errors import DataError, OutputError, UsageError, did_you_mean
from nmt.storage.files import sha256, write_json
from nmt.storage.reading import read_json

STAMP, BEGUN = "stage.json", "begun.json"


@dataclass(frozen=True)
class Stage:
    """A stage. ``outside``: words of its commands that name files from outside the pipeline, and these files."""

    name: str
    commands: tuple[Command, ...]
    needs: tuple[str, ...] = ()
    outside: Mapping[str, Sequence[Path]] = field(default_factory=dict)


class Standing(Enum):
    """State of a stage."""

    done = "done"
    begun = "begun"  # interrupted: the same command resumes it
    to_do = "to do"
    stale = "stale"  # done, but with other inputs


@dataclass(frozen=True)
class State:
    standing: Standing
    reason: str = ""

    def __str__(self) -> str:
        return self.standing.value + (f" ({self.reason})" if self.reason else "")


class Pipeline:
    """Stages, each after the stages that it needs."""

    def __init__(self, output: Path, stages: Sequence[Stage], environment: Mapping[str, str] | None = None) -> None:
        self.output = output.resolve()
        self.stages = {stage.name: stage for stage in stages}
        self.environment = {**os.environ, **(environment or {})}
        self._recipes: dict[str, dict[str, Any]] = {}
        assert len(self.stages) == len(stages), "two stages have one name"
        for place, stage in enumerate(stages):
            assert set(stage.needs) <= {one.name for one in stages[:place]}, f"{stage.name} comes before what it needs"

    def chosen(self, patterns: Sequence[str] = (), until: str | None = None) -> list[Stage]:
        """Return the stages of these names, or ``until`` and the stages that it needs; by default all stages.

        The name ``teacher`` includes ``teacher-1``.
        """
        if until is not None:
            wanted = {stage.name for stage in self._named(until)}
            for stage in reversed(self.stages.values()):
                wanted |= set(stage.needs) if stage.name in wanted else set()
        elif patterns:
            wanted = {stage.name for pattern in patterns for stage in self._named(pattern)}
        else:
            wanted = set(self.stages)
        return [stage for stage in self.stages.values() if stage.name in wanted]

    def _named(self, pattern: str) -> list[Stage]:
        found = [stage for name, stage in self.stages.items() if name == pattern or name.startswith(f"{pattern}-")]
        if not found:
            meant = did_you_mean(pattern, self.stages)
            raise UsageError(f"there is no stage {pattern!r}{meant}; there are: {', '.join(self.stages)}")
        return found

    def state(self, stage: Stage) -> State:
        partial, folder = self._partial(stage), self.output / stage.name
        if (partial / STAMP).exists():  # complete, but interrupted before it was renamed
            folder = partial
        stamp, begun = _read(folder / STAMP), _read(partial / BEGUN)
        other = None if stamp is None else self._other_than(stage, stamp)
        if begun and self._other_than(stage, begun) is None and (stamp is None or other is not None):
            return State(Standing.begun)
        if stamp is None:
            return State(Standing.to_do)
        if other is not None:
            return State(Standing.stale, other)
        for name, size in stamp["files"].items():
            path = folder / name
            if not path.is_file() or path.stat().st_size != size:
                return State(Standing.stale, f"{name} changed after the stage wrote it")
        return State(Standing.done)

    def _other_than(self, stage: Stage, noted: Mapping[str, Any]) -> str | None:
        """Return the difference between recorded and current inputs of a stage in words; None if they are equal."""
        if noted["recipe"] != self._recipe(stage):
            return _difference(noted["recipe"], self._recipe(stage))
        now = self._read_by(stage)
        remade = [name for name, content in noted.get("read", {}).items() if now.get(name, content) != content]
        return f"{', '.join(remade)} was made again" if remade else None

    def _read_by(self, stage: Stage) -> dict[str, str]:
        """Return the content digests of the stages that it reads, as far as they are done."""
        stamps = {name: _read(self.output / name / STAMP) for name in stage.needs}
        return {name: stamp["content"] for name, stamp in stamps.items() if stamp is not None and "content" in stamp}

    def check(self, stages: Sequence[Stage]) -> None:
        """Check the options of all commands that will run, before the first ones take hours. Raise ``UsageError``."""
        checks: dict[tuple[str, ...], tuple[Stage, list[str]]] = {}
        for stage in stages:
            if self.state(stage).standing is not Standing.done:
                for command in stage.commands:
                    if (check := command.check()) is not None:
                        checks.setdefault(command.options(), (stage, check))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for error in pool.map(lambda check: self._wrong(*check), checks.values()):
                if error is not None:
                    raise error

    def _wrong(self, stage: Stage, check: Sequence[str]) -> UsageError | None:
        done = subprocess.run(check, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return None
        said = done.stderr.strip().splitlines() or ["no message"]
        return UsageError(f"{stage.name} cannot run: {said[-1]}")

    def run(self, stages: Sequence[Stage]) -> None:
        """Run the stages that are not done. Only one pipeline, with its commands, works in a folder at a time."""
        with self._alone() as lock:
            for stage in self.stages.values():
                for folder in (self.output / stage.name, self._partial(stage), self._old(stage)):
                    _refuse_what_is_not_ours(folder)
                if (self._partial(stage) / STAMP).exists():
                    self._give_name(stage)
            for stage in stages:
                state = self.state(stage)
                if state.standing is Standing.done:
                    say(f"{stage.name}: already done")
                    continue
                missing = [name for name in stage.needs if self.state(self.stages[name]).standing is not Standing.done]
                if missing:
                    raise UsageError(
                        f"{stage.name} needs {missing[0]}, whose state is: {self.state(self.stages[missing[0]])}; add it to "
                        f"stages=, or set until={stage.name}"
                    )
                again = {Standing.stale: "runs again", Standing.begun: "resumes"}.get(state.standing, "begins")
                say(f"{stage.name}: {again}" + (f" ({state.reason})" if state.reason else ""))
                self._do(stage, lock)

    def _do(self, stage: Stage, lock: int) -> None:
        folder, recipe = self._partial(stage), self._recipe(stage)
        begun = _read(folder / BEGUN)
        if begun is None or self._other_than(stage, begun) is not None:
            _remove(folder)
            folder.mkdir(parents=True)
            begun = {"recipe": recipe, "read": self._read_by(stage), "ended": 0, "seconds": 0.0}
            write_json(folder / BEGUN, begun)
        for command in stage.commands[begun["ended"] :]:
            start = time.monotonic()
            start_command(command, stage.name, folder, self.environment, lock)
            begun = {**begun, "ended": begun["ended"] + 1, "seconds": begun["seconds"] + time.monotonic() - start}
            write_json(folder / BEGUN, begun)
        written = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")]
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in written if path.name != BEGUN}
        content = _digest([folder / name for name in sizes if name != LOG])
        stamp = {"recipe": recipe, "read": begun.get("read", {}), "files": sizes, "content": content}
        write_json(folder / STAMP, {**stamp, "seconds": round(begun["seconds"], 1)})
        self._give_name(stage)
        say(f"{stage.name}: done, {begun['seconds'] / 60:.1f} minutes of work")

    def _give_name(self, stage: Stage) -> None:
        """Give the folder its final name.

        Its stamp marks it as complete, so the next start finishes an interrupted renaming.
        """
        folder, final, old = self._partial(stage), self.output / stage.name, self._old(stage)
        (folder / BEGUN).unlink(missing_ok=True)
        if final.exists():
            _remove(old)
            final.rename(old)
        folder.rename(final)
        _remove(old)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        """Lock the output folder. Commands inherit the lock: those of a killed pipeline keep it until they saved."""
        self.output.mkdir(parents=True, exist_ok=True)
        with open(self.output / ".lock", "a", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(
                    f"another pipeline, or a command that it started, is using {self.output}; wait for it, or choose "
                    f"another output="
                ) from None
            yield file.fileno()

    def _partial(self, stage: Stage) -> Path:
        return self.output / f"{stage.name}.partial"

    def _old(self, stage: Stage) -> Path:
        return self.output / f"{stage.name}.old"

    def _recipe(self, stage: Stage) -> dict[str, Any]:
        """Return all inputs that the outputs of a stage depend on."""
        if stage.name not in self._recipes:
            digests = {word: _digest(paths) for word, paths in stage.outside.items()}
            lines = [
                [*(digests.get(word, word) for word in command.words), f"> {command.output or ''}"]
                for command in stage.commands
            ]
            needs = {name: _known_by(self._recipe(self.stages[name])) for name in stage.needs}
            self._recipes[stage.name] = {"commands": lines, "needs": needs}
        return self._recipes[stage.name]


def _digest(paths: Sequence[Path]) -> str:
    return "sha256:" + hashlib.sha256("".join(map(sha256, paths)).encode()).hexdigest()[:16]


def _known_by(recipe: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


def _read(path: Path) -> Any:
    if not path.exists():
        return None
    noted = read_json(path)
    if not isinstance(noted, dict) or "recipe" not in noted:
        raise DataError(f"{path} is damaged; delete its folder to run the stage again")
    return noted


def _refuse_what_is_not_ours(folder: Path) -> None:
    """Refuse to replace a folder that no stage made: names of stages are everyday words."""
    known = any((folder / name).exists() for name in (STAMP, BEGUN))
    if folder.exists() and not known and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"{folder} exists, but no stage of this pipeline made it; move it, or choose another output=")


def _remove(folder: Path) -> None:
    """Remove a folder, its stamp last: the rest of an interrupted removal is still recognized as ours."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (STAMP, BEGUN):
            path.unlink()
    shutil.rmtree(folder)


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the change between two recipes in words."""
    if old["commands"] == new["commands"]:
        changed = [name for name in new["needs"] if old["needs"].get(name) != new["needs"][name]]
        return f"{', '.join(changed) or 'its input'} changed"
    for before, now in zip(old["commands"], new["commands"]):
        if before != now:
            gone, come = [word for word in before if word not in now], [word for word in now if word not in before]
            return f"{before[0]} had {' '.join(gone) or 'nothing'}, has {' '.join(come) or 'nothing'} now"
    return "its commands changed"
