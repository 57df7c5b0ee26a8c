"""The models that a server has, and which of them a request means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from nmt.errors import UsageError, did_you_mean
from nmt.serving.refusals import Refused, malformed, wrong
from nmt.storage.run_folder import split_paths

AUTO = "auto"  # the source language where the client does not know it


@dataclass(frozen=True)
class Model:
    """What is told of a model."""

    name: str
    source: str
    target: str
    search: str  # its own, where neither the command line nor a request asks for another


def names_of(paths: Sequence[str]) -> dict[str, str]:
    """A name for each model: the last part of its path if no other model has the same, else the path."""
    if not paths:
        raise UsageError("name the models to serve: --path RUN, or several: --path RUN,RUN")
    if len(set(paths)) < len(paths):
        twice = next(path for path, count in Counter(paths).items() if count > 1)
        raise UsageError(f"--path names {twice} twice; once is enough")
    last = {path: ":".join(Path(one).resolve().name for one in split_paths(path)) for path in paths}
    counts = Counter(last.values())
    return {path if counts[name] > 1 else name: path for path, name in last.items()}


@dataclass(frozen=True)
class Models:
    """All of them, in the order of the command line: of several with one direction the first answers."""

    all: tuple[Model, ...]

    def languages(self) -> dict[str, list[str]]:
        """The targets of each source language."""
        found: dict[str, list[str]] = {}
        for model in self.all:
            targets = found.setdefault(model.source, [])
            if model.target not in targets:
                targets.append(model.target)
        return found

    def find(self, source: str | None = None, target: str | None = None, name: str | None = None) -> Model:
        """The model that these words mean; None and "auto" leave open."""
        source = None if source == AUTO else source
        if name is not None and name not in [model.name for model in self.all]:
            there = ", ".join(model.name for model in self.all)
            near = did_you_mean(name, [model.name for model in self.all])
            raise Refused(HTTPStatus.NOT_FOUND, f"there is no model '{name}'{near}; there are: {there}")
        fitting = [
            model
            for model in self.all
            if name in (None, model.name) and source in (None, model.source) and target in (None, model.target)
        ]
        if not fitting:
            asked = f"from {source or 'any language'} to {target or 'any language'}"
            of_model = "" if name is None else f" by model '{name}'"
            raise Refused(HTTPStatus.NOT_FOUND, f"nothing translates {asked}{of_model}; there are: {self.directions()}")
        if len({(model.source, model.target) for model in fitting}) > 1:
            raise wrong(f"say what to translate from and to; there are: {self.directions()}")
        return fitting[0]

    def only_source(self) -> str:
        """The language that every text must be in, for clients that ask to have it recognised."""
        sources = list(self.languages())
        if len(sources) > 1:
            raise malformed(
                f"languages are not recognised here, and there are several: {', '.join(sources)}; say which one it is"
            )
        return sources[0]

    def directions(self) -> str:
        return ", ".join(dict.fromkeys(f"{model.source} to {model.target}" for model in self.all))
