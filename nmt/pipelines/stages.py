"""Stages: commands that fill a folder. A stage runs once, and again only if its inputs have changed.

    OUTPUT/<stage>/stage.json   the stamp: inputs of the stage, and the files that it wrote
    OUTPUT/<stage>/log          messages of its commands
    OUTPUT/<stage>.partial/     a running stage; it gets its final name after all of its commands succeeded

Commands run inside their folder and name other folders relative to it (``../clean/train.en``). So OUTPUT can be moved,
and a command line of the log can be repeated by hand. A stage is identified by a digest of its commands, of the content of
files from outside, and of the stages that it reads. If one of these changes, the stage is stale, and so are the stages that
read it. A stage whose folder was deleted runs again. If its files differ then, the stages that read them are stale too.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from nmt.errors import DataError, OutputError, UsageError, did_you_mean
from nmt.pipelines.commands import LOG, Command, Say, run_command
from nmt.storage.files import sha256, write_json
from nmt.storage.lock import one_writer
from nmt.storage.reading import read_json

STAMP, BEGUN = "stage.json", "begun.json"


@dataclass(frozen=True)
class PipelineStage:
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
class StageState:
    standing: Standing
    reason: str = ""

    def __str__(self) -> str:
        return self.standing.value + (f" ({self.reason})" if self.reason else "")


class Pipeline:
    """Stages, each after the stages that it needs. ``say`` receives lines for the user."""

    def __init__(self, output: Path, stages: Sequence[PipelineStage], say: Say) -> None:
        self.output, self._say = output.resolve(), say
        self.stages = {stage.name: stage for stage in stages}
        self._recipes: dict[str, dict[str, Any]] = {}
        for place, stage in enumerate(stages):
            assert set(stage.needs) <= {s.name for s in stages[:place]}, f"{stage.name} comes before what it needs"

    def until(self, *names: str) -> list[PipelineStage]:
        """Return the stages of these names, and the stages that they need."""
        for name in names:
            if name not in self.stages:
                meant = did_you_mean(name, self.stages)
                raise UsageError(f"there is no stage {name!r}{meant}; there are: {', '.join(self.stages)}")
        needed = {*names}
        for stage in reversed(self.stages.values()):
            needed |= {*stage.needs} if stage.name in needed else set()
        return [stage for stage in self.stages.values() if stage.name in needed]

    def described(self, stages: Sequence[PipelineStage]) -> Iterator[str]:
        """Yield a line for each stage with its state, and one for each command of those that would run."""
        for stage in stages:
            state = self.state(stage)
            yield f"{stage.name}: {state}"
            if state.standing is not Standing.done:
                yield from (f"    {command}" for command in stage.commands)

    def state(self, stage: PipelineStage) -> StageState:
        partial, folder = self._partial(stage), self.output / stage.name
        if (partial / STAMP).exists():  # complete, but interrupted before it was renamed
            folder = partial
        stamp, begun = _read(folder / STAMP), _read(partial / BEGUN)
        change = None if stamp is None else self._change(stage, stamp)
        if begun and self._change(stage, begun) is None and (stamp is None or change is not None):
            return StageState(Standing.begun)
        if stamp is None:
            return StageState(Standing.to_do)
        if change is not None:
            return StageState(Standing.stale, change)
        for name, size in stamp["files"].items():
            if not (folder / name).is_file() or (folder / name).stat().st_size != size:
                return StageState(Standing.stale, f"{name} changed after the stage wrote it")
        return StageState(Standing.done)

    def _change(self, stage: PipelineStage, record: Mapping[str, Any]) -> str | None:
        """Return the difference between recorded and current inputs of a stage in words; None if they are equal."""
        if record["recipe"] != self._recipe(stage):
            return _difference(record["recipe"], self._recipe(stage))
        now = self._contents(stage)
        remade = [name for name, content in record.get("read", {}).items() if now.get(name, content) != content]
        return f"{', '.join(remade)} was made again" if remade else None

    def _contents(self, stage: PipelineStage) -> dict[str, str]:
        """Return the content digests of the stages that a stage reads, as far as they are done."""
        stamps = {name: _read(self.output / name / STAMP) for name in stage.needs}
        return {name: stamp["content"] for name, stamp in stamps.items() if stamp is not None and "content" in stamp}

    def check(self, stages: Sequence[PipelineStage], check_command: Callable[[Command], None]) -> None:
        """Check all commands that will run, before the first ones take hours. Raise ``UsageError``."""
        for stage in stages:
            if self.state(stage).standing is not Standing.done:
                for command in stage.commands:
                    try:
                        check_command(command)
                    except UsageError as error:
                        raise UsageError(f"{stage.name} cannot run: {command.words[0]}: {error}") from None

    def run(self, stages: Sequence[PipelineStage]) -> None:
        """Run the stages that are not done. Only one pipeline works in a folder at a time."""
        with one_writer(self.output):
            for stage in self.stages.values():
                for folder in (self.output / stage.name, self._partial(stage)):
                    _refuse_folder_of_others(folder)
                if (self._partial(stage) / STAMP).exists():
                    self._give_name(stage)
            for stage in stages:
                state = self.state(stage)
                if state.standing is Standing.done:
                    self._say(f"{stage.name}: already done")
                    continue
                for name in stage.needs:
                    if (needed := self.state(self.stages[name])).standing is not Standing.done:
                        raise UsageError(f"{stage.name} needs {name}, whose state is: {needed}; run that stage too")
                again = {Standing.stale: "runs again", Standing.begun: "resumes"}.get(state.standing, "begins")
                self._say(f"{stage.name}: {again}" + (f" ({state.reason})" if state.reason else ""))
                self._do(stage)

    def _do(self, stage: PipelineStage) -> None:
        folder, recipe = self._partial(stage), self._recipe(stage)
        begun = _read(folder / BEGUN)
        if begun is None or self._change(stage, begun) is not None:
            self._discard(folder)
            folder.mkdir(parents=True)
            begun = {"recipe": recipe, "read": self._contents(stage), "ended": 0, "seconds": 0.0}
            write_json(folder / BEGUN, begun)
        for command in stage.commands[begun["ended"] :]:
            start = time.monotonic()
            run_command(command, stage.name, folder, self._say)
            begun = {**begun, "ended": begun["ended"] + 1, "seconds": begun["seconds"] + time.monotonic() - start}
            write_json(folder / BEGUN, begun)
        files = [path for path in sorted(folder.rglob("[!.]*")) if path.is_file() and path.name != BEGUN]
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in files}
        content = _digest([folder / name for name in sizes if name != LOG])
        stamp = {"recipe": recipe, "read": begun.get("read", {}), "files": sizes, "content": content}
        write_json(folder / STAMP, {**stamp, "seconds": round(begun["seconds"], 1)})
        self._give_name(stage)
        self._say(f"{stage.name}: done, {begun['seconds'] / 60:.1f} minutes of work")

    def _give_name(self, stage: PipelineStage) -> None:
        """Give the folder its final name.

        Its stamp marks it as complete, so the next start finishes an interrupted renaming.
        """
        folder, final = self._partial(stage), self.output / stage.name
        (folder / BEGUN).unlink(missing_ok=True)
        self._discard(final)
        folder.rename(final)

    def _discard(self, folder: Path) -> None:
        """Remove a folder. It gets a hidden name first: the rest of an interrupted removal is removed the next time."""
        hidden = self.output / f".{folder.name}.old"
        for doomed in (hidden, folder):
            if doomed.exists():
                shutil.rmtree(doomed if doomed is hidden else doomed.rename(hidden))

    def _partial(self, stage: PipelineStage) -> Path:
        return self.output / f"{stage.name}.partial"

    def _recipe(self, stage: PipelineStage) -> dict[str, Any]:
        """Return all inputs that the outputs of a stage depend on."""
        if stage.name not in self._recipes:
            digests = {word: _digest(paths) for word, paths in stage.outside.items()}
            commands = ((*command.words, f"> {command.output or ''}") for command in stage.commands)
            lines = [[digests.get(word, word) for word in words] for words in commands]
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
    record = read_json(path)
    if not isinstance(record, dict) or "recipe" not in record:
        raise DataError(f"{path} is damaged; delete its folder to run the stage again")
    return record


def _refuse_folder_of_others(folder: Path) -> None:
    """Refuse to replace a folder that no stage made: names of stages are everyday words."""
    known = any((folder / name).exists() for name in (STAMP, BEGUN))
    if folder.exists() and not known and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"{folder} exists, but no stage of this pipeline made it; move it, or choose another folder")


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the change between two recipes in words."""
    if old["commands"] == new["commands"]:
        changed = [name for name in new["needs"] if old["needs"].get(name) != new["needs"][name]]
        return f"{', '.join(changed) or 'its input'} changed"
    for before, now in zip(old["commands"], new["commands"]):
        if before != now:
            gone, come = [word for word in before if word not in now], [word for word in now if word not in before]
            return f"{before[0]} changed: {' '.join(gone) or 'nothing'} -> {' '.join(come) or 'nothing'}"
    return "its commands changed"
