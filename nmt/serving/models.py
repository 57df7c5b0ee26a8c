"""The models of a server, and which of them a request means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from nmt.errors import UsageError, did_you_mean
from nmt.serving.refusals import Refused, malformed, wrong
from nmt.storage.run_folder import split_paths

AUTO = "auto"  # source language of a client that does not know it


@dataclass(frozen=True)
class ServedModel:
    """What clients may know about a model."""

    name: str
    source: str
    target: str
    search: str  # default search, with its options


def names_of(paths: Sequence[str]) -> dict[str, str]:
    """Return the paths of models by name: the last part of the path if it is unique, else the path."""
    if not paths:
        raise UsageError("name the models to serve: --path RUN, or several: --path RUN,RUN")
    if len(set(paths)) < len(paths):
        twice = next(path for path, count in Counter(paths).items() if count > 1)
        raise UsageError(f"--path names {twice} twice; name it once")
    last = {path: ":".join(Path(checkpoint).resolve().name for checkpoint in split_paths(path)) for path in paths}
    counts = Counter(last.values())
    return {path if counts[name] > 1 else name: path for path, name in last.items()}


@dataclass(frozen=True)
class Models:
    """All models, in the order of the command line. If several have the same direction, the first is the default."""

    all: tuple[ServedModel, ...]

    def languages(self) -> dict[str, list[str]]:
        """Return the target languages of each source language."""
        targets_of: dict[str, list[str]] = {}
        for model in self.all:
            targets = targets_of.setdefault(model.source, [])
            if model.target not in targets:
                targets.append(model.target)
        return targets_of

    def find(self, source: str | None = None, target: str | None = None, name: str | None = None) -> ServedModel:
        """Return the model that a request means; None and "auto" match any."""
        source = None if source == AUTO else source
        if name is not None and name not in [model.name for model in self.all]:
            names = [model.name for model in self.all]
            sentence = f"unknown model '{name}'{did_you_mean(name, names)}; available: {', '.join(names)}"
            raise Refused(HTTPStatus.NOT_FOUND, sentence)
        fitting = [
            model
            for model in self.all
            if name in (None, model.name) and source in (None, model.source) and target in (None, model.target)
        ]
        if not fitting:
            direction = f"from {source or 'any language'} to {target or 'any language'}"
            subject = "no model translates" if name is None else f"model '{name}' does not translate"
            raise Refused(HTTPStatus.NOT_FOUND, f"{subject} {direction}; available: {self.directions()}")
        if len({(model.source, model.target) for model in fitting}) > 1:
            raise wrong(f"give the source and the target language; available: {self.directions()}")
        return fitting[0]

    def only_source(self) -> str:
        """Return the only source language, for clients that want it to be recognized."""
        sources = list(self.languages())
        if len(sources) > 1:
            raise malformed(
                f"the server does not detect languages; give the source language, one of: {', '.join(sources)}"
            )
        return sources[0]

    def directions(self) -> str:
        return ", ".join(dict.fromkeys(f"{model.source} to {model.target}" for model in self.all))
