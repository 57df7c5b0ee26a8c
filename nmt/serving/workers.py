"""The processes that translate. Where processes can be copied, they are copies of the server, made before it answers
anybody, and share the weights; on a GPU and where they cannot, each loads the models itself."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import pickle
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nmt import interruptions
from nmt.config.choices import AlignmentKind
from nmt.config.commands import GenerateConfig
from nmt.config.plain import described
from nmt.config.serving import ServeConfig
from nmt.devices import device_named, kind_of, make_current
from nmt.distributed.workers import possible
from nmt.errors import DeviceError, NMTError, UsageError
from nmt.search import searches
from nmt.serving.models import Model, names_of
from nmt.serving.refusals import Refused, wrong
from nmt.serving.waiting import Outcome
from nmt.translation import Line, Translation, Translator
from nmt.translation.translator import options_of

logger = logging.getLogger("nmt.serving")

# Lines that may make one batch of twice the size: what is left for a second one is too little (measured).
SMALL_WINDOW = 32
OPEN_FILES = Path("/proc/self/fd")


@dataclass(frozen=True)
class Window:
    """Lines that are translated together; ``numbers``: of each in its request, for messages."""

    model: str
    options: Mapping[str, Any]
    alignment: AlignmentKind
    lines: Sequence[Line]
    numbers: Sequence[int]


@dataclass(frozen=True)
class Loaded:
    """The models of a server, ready to translate."""

    translators: Mapping[str, Translator]
    common: Mapping[str, Any]  # options of every translation, as far as windows do not have others

    @classmethod
    def load(cls, config: ServeConfig) -> Loaded:
        place = config.device
        make_current(device_named(place.name))
        translators = {
            name: Translator.load(
                path, place.name, place.precision, config.user_dir, dtype=config.dtype, engine=config.engine
            )
            for name, path in names_of(config.path).items()
        }
        common = config.search.given() | {"max_source_length": config.max_source_length}
        common |= {name: getattr(config, name) for name in ("batch_size", "max_tokens") if getattr(config, name)}
        for name, translator in translators.items():
            try:
                translator.configuration(**common)
            except UsageError as error:
                raise UsageError(f"model {name}: {error}") from None
        return cls(translators, common)

    def models(self) -> tuple[Model, ...]:
        found = []
        for name, translator in self.translators.items():
            search = described(translator.configuration(**self.common).search)
            found.append(Model(name, translator.pair.source_lang, translator.pair.target_lang, search))
        return tuple(found)

    def answer(self, window: Window) -> list[Outcome]:
        """What becomes of each line. If something is wrong with one of them, the others are translated without it."""
        try:
            return list(self._translate(window, window.lines, window.numbers))
        except NMTError as error:
            if len(window.lines) == 1:
                return [_refusal(error)]
        alone = list[Outcome]()
        for line, number in zip(window.lines, window.numbers):
            try:
                alone.extend(self._translate(window, [line], [number]))
            except NMTError as error:
                alone.append(_refusal(error))
        return alone

    def _translate(self, window: Window, lines: Sequence[Line], numbers: Sequence[int]) -> list[Translation]:
        translator = self.translators[window.model]
        config = self._configuration(translator, window.options)
        config.print_alignment = window.alignment
        if config.max_tokens is None and len(lines) <= SMALL_WINDOW:
            config.max_tokens = 2 * translator.usual_tokens
        found = list(translator.hypotheses(lines, config, numbers=numbers))
        aligned = window.alignment is not AlignmentKind.none
        if aligned and any(one.source_pieces and one.hypotheses[0].attention is None for one in found):
            raise UsageError("the model has no attention, which alignments are made of; leave out alignment")
        return found

    def _configuration(self, translator: Translator, asked: Mapping[str, Any]) -> GenerateConfig:
        """The server's options as far as the search that is asked for has them, and those of the request. Where nobody names
        a search it is what ``nmt-generate`` makes of the options."""
        common = dict(self.common)
        if "search" in asked:
            known = options_of(searches.config_class(asked["search"]))
            common = {name: value for name, value in common.items() if name in known} | {"search": asked["search"]}
        if "search" in common:
            for name in asked.keys() - options_of(searches.config_class(common["search"])):
                raise UsageError(
                    f'the search {common["search"]} has no "{name}"; leave it out, or name another "search"'
                )
        return translator.configuration(**{**common, **asked})


def _refusal(error: NMTError) -> Refused:
    if isinstance(error, DeviceError):  # memory is short
        return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
    return wrong(str(error))


class Worker:
    """One of the processes, from the server's side. It has one window at a time."""

    def __init__(self, config: ServeConfig, loaded: Loaded | None) -> None:
        """``loaded``: to be copied with this process; None: it loads for itself."""
        copied = loaded is not None
        context: Any = multiprocessing.get_context("fork" if copied else "spawn")
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        work = _serve_copied if copied else _serve
        self._process: Any = context.Process(target=work, args=(theirs, config, loaded), daemon=True)
        with interruptions.held():
            self._process.start()
        theirs.close()

    def models(self) -> tuple[Model, ...]:
        """What it has, when it is ready."""
        try:
            found = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            raise DeviceError(f"a process that translates has ended at its start ({self.end()})") from None
        if isinstance(found, BaseException):
            raise found
        models: tuple[Model, ...] = found
        return models

    def give(self, window: Window) -> None:
        self.connection.send_bytes(pickle.dumps(window))

    def outcomes(self) -> list[Outcome]:
        """Of the window that it was given. EOFError or OSError: the process has ended."""
        found: list[Outcome] = pickle.loads(self.connection.recv_bytes())
        return found

    def end(self) -> str:
        """How it ended, in words."""
        self._process.join(timeout=10)
        code = self._process.exitcode
        return f"status {code}" if code is None or code >= 0 else signal.Signals(-code).name

    def close(self) -> None:
        self.connection.close()
        self._process.kill()  # it has nothing to clean up
        self._process.join()


def started(config: ServeConfig, count: int) -> tuple[list[Worker], Loaded | None, tuple[Model, ...]]:
    """Processes that are ready, and what the next ones are copied with."""
    loaded = None
    if kind_of(device_named(config.device.name)) == "cpu" and possible():
        loaded = Loaded.load(config)
        gc.freeze()  # what is loaded stays: it need not be looked through for what could go
    workers = [Worker(config, loaded) for _ in range(count)]
    try:
        models = [worker.models() for worker in workers]
    except BaseException:
        for worker in workers:
            worker.close()
        raise
    return workers, loaded, models[0]


def _serve_copied(connection: Connection, config: ServeConfig, loaded: Loaded) -> None:
    _close_others(connection)
    _serve(connection, config, loaded)


def _close_others(connection: Connection) -> None:
    """What is open between the server and others: a client would wait for an end that a copy holds back."""
    for name in os.listdir(OPEN_FILES) if OPEN_FILES.exists() else ():
        number = int(name)
        with contextlib.suppress(OSError):
            kind = os.fstat(number).st_mode
            if number > 2 and number != connection.fileno() and (stat.S_ISSOCK(kind) or stat.S_ISFIFO(kind)):
                os.close(number)


def _serve(connection: Connection, config: ServeConfig, loaded: Loaded | None) -> None:
    """What a process does until nobody is there any more."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach all; the server decides
        signal.signal(number, signal.SIG_IGN)
    logging.getLogger("nmt.translation").setLevel(logging.ERROR)  # answers say what became of a line
    try:
        loaded = loaded or Loaded.load(config)
        first: object = loaded.models()
    except NMTError as error:
        first = error
    if "torch" in sys.modules and kind_of(device_named(config.device.name)) == "cpu":
        import torch

        torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        connection.send_bytes(pickle.dumps(first))
        while loaded is not None:
            connection.send_bytes(pickle.dumps(_answered(loaded, pickle.loads(connection.recv_bytes()))))
    os._exit(0)


def _answered(loaded: Loaded, window: Window) -> list[Outcome]:
    try:
        return loaded.answer(window)
    except Exception:  # a defect: it is told here, and the process goes on
        logger.exception("translating failed")
        failed = Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "translating failed; the server's log says why")
        return [failed] * len(window.lines)
