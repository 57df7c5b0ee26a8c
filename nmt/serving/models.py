"""The models of a server, and which of them a request means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from pathlib import Path

from nmt.data.languages import LanguageTokens, SourceToken, listed
from nmt.errors import UsageError, did_you_mean
from nmt.serving.refusals import Refused, malformed, wrong
from nmt.storage.run_folder import split_paths
from nmt.translation import Line

_ROUTE = "GET /languages"
AUTO = "auto"  # source language of a client that does not know it


@dataclass(frozen=True)
class ServedModel:
    """What clients may know about a model, in its default direction or in that of a request."""

    name: str
    source: str  # empty: no direction yet
    target: str
    search: str  # default search, with its options
    languages: LanguageTokens | None = None  # of a model with several directions

    @cached_property
    def sources(self) -> list[str]:
        """The source languages."""
        return self._with_default(self.source)

    @cached_property
    def targets(self) -> list[str]:
        """The target languages."""
        return self._with_default(self.target)

    def _with_default(self, default: str) -> list[str]:
        return [*dict.fromkeys([*filter(None, [default]), *(self.languages.tokens if self.languages else ())])]

    @property
    def directions(self) -> str:
        """Its directions in words."""
        several = self.languages is not None
        return f"between {listed(self.targets, _ROUTE)}" if several else f"{self.source} to {self.target}"

    @property
    def reads_source(self) -> bool:
        """Whether translations depend on the source language of the request."""
        return self.languages is None or self.languages.source is SourceToken.source

    def translates(self, source: str | None, target: str | None) -> bool:
        """Whether it has these languages; None matches any."""
        return source in (None, *self.sources) and target in (None, *self.targets)

    def require(self, line: Line, where: str) -> None:
        """Refuse a line whose direction the model lacks, or that has none."""
        if self.languages is None:
            return
        source, target = line.source_lang or self.source, line.target_lang or self.target
        for language, known in ((source, self.sources), (target, self.targets)):
            if language and language not in known:
                raise malformed(f"{where}: {self.languages.refusal(language, _ROUTE)}")
        typed = not (target or self.reads_source) and line.text.split(None, 1)[:1]
        lacking = ["source"] * (self.reads_source and not source)
        lacking += ["target"] * (not (target or typed and typed[0] in self.languages.tokens.values()))
        if lacking:
            missing = " and the ".join(lacking)
            raise malformed(f"{where}: give the {missing} language; the model translates {self.directions}")


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
        targets_of: dict[str, dict[str, None]] = {}
        for model in self.all:
            for source in model.sources:
                targets = targets_of.setdefault(source, {})
                targets.update(dict.fromkeys(target for target in model.targets if target != source))
        return {source: [*targets] for source, targets in targets_of.items()}

    def find(self, source: str | None = None, target: str | None = None, name: str | None = None) -> ServedModel:
        """Return the model that a request means, in its direction; None and "auto" match any."""
        unknown, source = source == AUTO, None if source == AUTO else source
        if name is not None and name not in [model.name for model in self.all]:
            names = [model.name for model in self.all]
            sentence = f"unknown model '{name}'{did_you_mean(name, names)}; available: {', '.join(names)}"
            raise Refused(HTTPStatus.NOT_FOUND, sentence)
        named = [model for model in self.all if name in (None, model.name)]
        fitting = [
            replace(model, source=source or model.source, target=target or model.target)
            for model in named
            if model.translates(source, target)
        ]
        if not fitting:
            for model in named:  # the first with several directions says which language is wrong
                model.require(Line("", source_lang=source or "", target_lang=target or ""), "the request")
            direction = f"from {source or 'any language'} to {target or 'any language'}"
            subject = "no model translates" if name is None else f"model '{name}' does not translate"
            raise Refused(HTTPStatus.NOT_FOUND, f"{subject} {direction}; available: {self.directions()}")
        if len({(model.source, model.target) for model in fitting}) > 1:
            raise wrong(f"give the source and the target language; available: {self.directions()}")
        chosen = fitting[0]
        if chosen.languages is not None and chosen.reads_source:
            if unknown:
                raise malformed("the model reads the source language, which the server does not detect; give it")
            if chosen.source and chosen.source == chosen.target and not (source and target):
                raise malformed(
                    f"the model's default is '{chosen.source}' too; give the source and the target language"
                )
        return chosen

    def ignore_source(self, target: str | None) -> bool:
        """Whether a model translates to ``target`` from any language that it has."""
        return any(target in model.targets and not model.reads_source for model in self.all)

    def only_source(self) -> str:
        """Return the only source language, for clients that want it to be recognized."""
        sources = list(self.languages())
        if len(sources) > 1:
            raise malformed(
                f"the server does not detect languages; give the source language, one of: {listed(sources, _ROUTE)}"
            )
        return sources[0]

    def directions(self) -> str:
        return ", ".join(dict.fromkeys(model.directions for model in self.all))
