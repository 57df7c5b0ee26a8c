"""Join the ranks that torchrun started, as its environment variables describe them."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from nmt.config.choices import Strategy
from nmt.config.sections import DistributedConfig
from nmt.devices import make_current
from nmt.distributed.peers import MOMENT, Peers
from nmt.distributed.world import World
from nmt.errors import AlreadyReported, DeviceError, Interrupted
from nmt.interruptions import handled

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("nmt.training")

LEAVING = 10.0  # seconds that a rank takes for leaving the others after an error

_joined = False  # whether this process reports its errors by way of ``Peers``
_stuck = False  # whether it could not leave the others, and must end without


@contextlib.contextmanager
def join(
    options: DistributedConfig, device: torch.device | str, environment: Mapping[str, str] = os.environ
) -> Iterator[World]:
    """Yield the world that torchrun's variables describe; without them a single process, which needs no torch."""
    size = int(environment.get("WORLD_SIZE", "1"))
    if size == 1 or "RANK" not in environment:
        if options.strategy is Strategy.fsdp:
            logger.warning(
                "distributed.strategy=fsdp has no effect: this process trains alone; start several with torchrun"
            )
        yield World()
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    from nmt.devices.kinds import device_of
    from nmt.distributed.replicated import Replicated

    device = torch.device(device)
    if not dist.is_available():
        raise DeviceError("this torch was built without torch.distributed; start one process, without torchrun")
    make_current(device)
    timeout = datetime.timedelta(minutes=options.timeout_minutes)
    store, rank, _ = next(rendezvous("env://", timeout=timeout))
    store = PrefixStore(_start(environment), store)
    global _joined
    _joined = True
    peers = Peers(store, rank, size)
    peers.publish()
    dist.init_process_group(device_of(device).backend, store=store, rank=rank, world_size=size, timeout=timeout)
    failed = True
    with contextlib.ExitStack() as ending:
        try:
            peers.watch()
            if options.strategy is Strategy.fsdp:
                from nmt.distributed.sharding import Sharded  # takes two seconds: it imports torch's compiler

                yield Sharded(device, peers)
            else:
                yield Replicated(peers)
            # gloo's threads may still hold tensors of the last exchange. They need Python to release them, which runs
            # while this process waits here; once it has begun to end, they would abort it.
            dist.barrier()
            failed = False
        except Interrupted as error:  # on all ranks, at the same update
            dist.barrier()
            failed = False
            if rank == 0:
                raise
            raise AlreadyReported(str(error), error.exit_status) from error
        except Exception as error:
            # torchrun ends all processes once one has died. This one is ending already, and must report why.
            ending.enter_context(handled([signal.SIGTERM], signal.SIG_IGN))
            lost = isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
            rank_error = peers.loss(options.timeout_minutes) if lost else peers.reported_once(error)
            if rank_error is error:
                raise
            raise rank_error from error
        finally:
            ending.enter_context(handled([signal.SIGTERM], signal.SIG_IGN))
            peers.close()
            _leave_group(device, within=LEAVING if failed else None)


def is_stuck() -> bool:
    """Whether this process must end without its libraries: they wait for other ranks."""
    return _stuck


def _leave_group(device: torch.device, within: float | None) -> None:
    """Leave the process group. ``within``: seconds for aborting it after an error; None: no error. NCCL would otherwise wait
    for the end of an exchange that this rank will not join."""
    import torch.distributed as dist

    if within is None:
        dist.destroy_process_group()
        return
    leaving = threading.Thread(target=partial(_abort, device), name="leaving", daemon=True)
    leaving.start()
    leaving.join(within)
    if leaving.is_alive():
        global _stuck
        _stuck = True
        logger.warning("could not disconnect from the other ranks within %g seconds; this process ends anyway", within)


def _abort(device: torch.device) -> None:
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _abort_process_group

    with contextlib.suppress(Exception):  # this rank has another error to tell
        if device.type == "cpu":
            dist.destroy_process_group()
        else:
            _abort_process_group()


def told_by_another(error: Exception, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether another rank reports this error, which came before the ranks were joined (such as a misspelt option)."""
    if _joined:
        return False
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    try:
        store, rank, size = next(rendezvous("env://", timeout=datetime.timedelta(seconds=MOMENT)))
    except RuntimeError:  # not all ranks came
        return False
    return Peers(PrefixStore(f"{_start(environment)}-before", store), rank, size).reported_once(error) is not error


def _start(environment: Mapping[str, str]) -> str:
    """Return a name for this start of the ranks. torchrun keeps one store for all its restarts, in which a restarted rank
    would find the addresses of processes that have ended. On several machines each one counts its own restarts, so torchrun
    must be told to make a new store (docs/how-to/several-gpus.md)."""
    one_machine = environment.get("GROUP_WORLD_SIZE", "1") == "1"
    return f"start-{environment.get('TORCHELASTIC_RESTART_COUNT', '0') if one_machine else 0}"
