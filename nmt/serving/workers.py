"""The processes that translate. Where processes can be copied, they are copies of the server, made before it answers
anybody, and share the weights; on a GPU and where they cannot, each loads the models itself."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import pickle
import stat
from multiprocessing.connection import Connection
from pathlib import Path

from nmt.devices import device_named, kind_of
from nmt.errors import DeviceError, NMTError
from nmt.plugins import load_plugins
from nmt.serving.config import ServeConfig
from nmt.serving.desk import Desk
from nmt.serving.models import ServedModel
from nmt.serving.translating import LoadedModels
from nmt.workers import WorkerEnded, WorkerProcess, possible, use_one_thread

OPEN_FILES = Path("/proc/self/fd")


def start_worker(config: ServeConfig, loaded: LoadedModels | None) -> WorkerProcess:
    """Start a process. ``loaded``: models to copy with this process; None: it loads them itself."""
    return WorkerProcess(_serve, config, loaded, copied=loaded is not None)


def models_of(worker: WorkerProcess) -> tuple[ServedModel, ...]:
    """Wait until a worker is ready, and return its models."""
    try:
        message = worker.receive()
    except WorkerEnded as end:
        raise DeviceError(f"a worker process ended while starting ({end})") from None
    if isinstance(message, BaseException):
        raise message
    models: tuple[ServedModel, ...] = message
    return models


def start_workers(
    config: ServeConfig, count: int
) -> tuple[list[WorkerProcess], LoadedModels | None, tuple[ServedModel, ...]]:
    """Start workers and wait until they are ready. Return them, the models to copy into later ones, and their names."""
    loaded = None
    if on_cpu(config) and possible():
        loaded = LoadedModels.load(config)
        gc.freeze()  # the garbage collector need not look through what stays
    workers = [start_worker(config, loaded) for _ in range(count)]
    models = [models_of(worker) for worker in workers]
    return workers, loaded, models[0]


def on_cpu(config: ServeConfig) -> bool:
    return kind_of(device_named(config.device.name)) == "cpu"


def _close_others(connection: Connection) -> None:
    """Close the sockets of clients: a client would wait for an end of its connection that a copy holds back."""
    for name in os.listdir(OPEN_FILES) if OPEN_FILES.exists() else ():
        number = int(name)
        with contextlib.suppress(OSError):
            kind = os.fstat(number).st_mode
            if number > 2 and number != connection.fileno() and (stat.S_ISSOCK(kind) or stat.S_ISFIFO(kind)):
                os.close(number)


def _serve(connection: Connection, config: ServeConfig, loaded: LoadedModels | None) -> None:
    """Run a worker until the server has ended."""
    if loaded is not None:
        _close_others(connection)
    logging.getLogger("nmt.translation").setLevel(logging.ERROR)  # answers say what became of a line
    try:
        if loaded is None:
            load_plugins(config.user_dir)  # which may bring a model, or the device
        loaded = loaded or LoadedModels.load(config)
        first: object = loaded.models()
    except NMTError as error:
        first = error
    if loaded is not None and on_cpu(config):
        use_one_thread()
    connection.send_bytes(pickle.dumps(first))
    if loaded is not None:
        Desk(connection, loaded).work()
