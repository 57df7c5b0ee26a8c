"""Which world a process belongs to, by the variables that torchrun sets."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nmt.config.choices import Strategy
from nmt.config.sections import DistributedConfig
from nmt.devices import make_current
from nmt.distributed.world import World
from nmt.errors import DeviceError, Interrupted, NMTError
from nmt.interruptions import handled

if TYPE_CHECKING:
    import torch
    from torch.distributed.distributed_c10d import Store

logger = logging.getLogger("nmt.training")

_MOMENT = datetime.timedelta(seconds=3)


@contextlib.contextmanager
def join(
    options: DistributedConfig, device: torch.device | str, environment: Mapping[str, str] = os.environ
) -> Iterator[World]:
    """The world that torchrun's variables describe; without them a single process, which needs no torch."""
    size = int(environment.get("WORLD_SIZE", "1"))
    if size == 1 or "RANK" not in environment:
        if options.strategy is Strategy.fsdp:
            logger.warning(
                "distributed.strategy=fsdp has nothing to divide: this process trains alone; start several with torchrun"
            )
        yield World()
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    from nmt.distributed.together import Together

    device = torch.device(device)
    if not dist.is_available():
        raise DeviceError("this torch was built without torch.distributed; start one process, without torchrun")
    make_current(device)
    timeout = datetime.timedelta(minutes=options.timeout_minutes)
    store, rank, _ = next(rendezvous("env://", timeout=timeout))
    store = PrefixStore(_start(environment), store)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    try:
        if options.strategy is Strategy.fsdp:
            from nmt.distributed.sharding import Sharded  # with torch's compiler: two seconds that others need not wait

            yield Sharded(device)
        else:
            yield Together()
        # gloo's threads may still hold tensors of the last exchange. To let go of them they need Python, which this process
        # leaves to them while it waits here; once it has begun to end, they could only abort it.
        dist.barrier()
    except Interrupted:  # all of them are, at the same update
        dist.barrier()
        raise
    except NMTError:  # perhaps all of them meet it
        _wait_for_others(store, rank, size)
        raise
    except (dist.DistError, RuntimeError) as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise NMTError(
            f"process {environment['RANK']} lost the others: one of them has ended, and said why, or did not answer for "
            f"{options.timeout_minutes:g} minutes; start all of them again with the same command"
        ) from error
    finally:
        # torchrun ends all processes once it sees that one has died. This one is ending already, and has to say why.
        with handled([signal.SIGTERM], signal.SIG_IGN):
            dist.destroy_process_group()


def _wait_for_others(store: Store, rank: int, size: int) -> None:
    """For a moment, as at a good end. Nobody knows what the others are doing, so nothing is exchanged."""
    with contextlib.suppress(RuntimeError):  # they go on, or are gone
        store.set(f"ended-{rank}", "")
        store.wait([f"ended-{other}" for other in range(size)], _MOMENT)


def _start(environment: Mapping[str, str]) -> str:
    """A name for this start of the processes. torchrun keeps one store for all starts, in which those of a second one would
    find the addresses of processes that are gone. Where it runs on several machines, each counts its own restarts: there
    it has to be told to make a new store (docs/performance.md)."""
    alone = environment.get("GROUP_WORLD_SIZE", "1") == "1"
    return f"start-{environment.get('TORCHELASTIC_RESTART_COUNT', '0') if alone else 0}"
