"""Two processes train what one does with twice the accumulation: the same figures, the same weights, one run folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt.storage.checkpoints import read_checkpoint, read_info
from nmt.storage.run_folder import checkpoints_in, pointed
from tests.distributed.processes import (
    SCARCE,
    TINY,
    assert_alike,
    events,
    finish,
    losses,
    read_until,
    run_one,
    run_two,
    second_of,
    start_torchrun,
    start_two,
    status_in,
    wait_for_updates,
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "criterion",
    [
        ("--criterion", "label_smoothed_cross_entropy"),
        pytest.param(("--criterion", "r_drop", "--ema-decay", "0.9"), marks=pytest.mark.nightly),
        pytest.param(
            ("--criterion", "minimum_risk", "criterion.samples=2", "--max-update", "15"), marks=pytest.mark.nightly
        ),
    ],
    ids=lambda criterion: criterion[1],
)
def test_two_processes_equal_one_with_twice_the_accumulation(
    copy_corpus: Path, make_copy_corpus: Callable[..., Path], tmp_path: Path, criterion: tuple[str, ...]
) -> None:
    """With weights, if the criterion uses them. Nine of ten are 0; in some micro-batches all are."""
    weights = () if "minimum_risk" in criterion else (2, 0.5, *[0] * 18)
    corpus = make_copy_corpus(weights=weights, train=600, valid=40) if weights else copy_corpus
    options = [str(corpus), *TINY, *criterion]
    # R-Drop compares two passes that are nearly the same, so that rounding has more weight.
    tolerance = 1e-4 if "r_drop" in criterion else 1e-5
    run_one(*options, "--update-freq", "4", "--save-dir", str(tmp_path / "one"))
    for strategy in ("ddp", "fsdp"):
        folder = tmp_path / strategy
        log = run_two(*options, "--update-freq", "2", "--distributed-strategy", strategy, "--save-dir", str(folder))
        assert_alike(folder, tmp_path / "one", tolerance)
        assert log.count("training on cpu") == 1  # only the first process speaks


@pytest.mark.timeout(600)
def test_adapters_of_two_processes_equal_those_of_one(copy_corpus: Path, tmp_path: Path) -> None:
    options, base = [str(copy_corpus), *TINY], str(tmp_path / "base")
    run_one(*options, "--max-update", "4", "--save-dir", base)
    options += [
        "--finetune-from-model",
        base,
        "--lora-rank",
        "2",
        "--lora-dropout",
        "0.2",
        "--train-only",
        "*norm.bias",
    ]
    run_one(*options, "--update-freq", "4", "--save-dir", str(tmp_path / "one"))
    run_two(*options, "--update-freq", "2", "--save-dir", str(tmp_path / "two"))
    assert_alike(tmp_path / "two", tmp_path / "one")
    made = [read_info(checkpoints_in(tmp_path / name)[-1]).made["adapter"] for name in ("one", "two")]
    assert made[0] == made[1] and made[0]["path"] == str(checkpoints_in(Path(base))[-1])


PATIENCE = "import nmt.distributed.peers; nmt.distributed.peers.PATIENCE = 1.0"
AHEAD = ["--user-dir", str(Path(__file__).parent / "ahead"), "--criterion", "spoilt", "criterion.sentence=20"]


@pytest.mark.timeout(600)
def test_two_processes_that_run_ahead_equal_one_that_waits(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *TINY, *AHEAD, "--max-update", "40"]
    run_one(*options, "--update-freq", "4", "--save-dir", str(tmp_path / "one"))
    log = run_two(*options, "--update-freq", "2", "criterion.ahead=true", "--save-dir", str(tmp_path / "two"))
    assert "updates run ahead" in log
    assert_alike(tmp_path / "two", tmp_path / "one")
    skipped = [event["update"] for event in events(tmp_path / "two") if event["event"] == "skipped"]
    dumps = [sorted((tmp_path / name / "bad-updates").iterdir()) for name in ("one", "two")]
    assert len(dumps[0]) == len(skipped) >= 2
    for one, two in zip(*dumps, strict=True):
        expected, found = (json.loads(path.read_text(encoding="utf-8")) for path in (one, two))
        assert found == expected and len(found["parameters"]) > 20


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_compiled_layers_in_two_processes_learn_what_layers_learn(
    copy_corpus: Path, tmp_path: Path, strategy: str
) -> None:
    options = [str(copy_corpus), *TINY, "model.dropout=0", "--max-update", "6"]  # compiled code draws other numbers
    run_one(*options, "--update-freq", "2", "--save-dir", str(tmp_path / "one"))
    compiled = ["--compile", "layers", "--distributed-strategy", strategy, "--save-dir", str(tmp_path / "two")]
    log = run_two(*options, *compiled, timeout=1000)
    assert "2 layers are compiled" in log and "uncompiled" not in log
    weights, expected = (read_checkpoint(checkpoints_in(tmp_path / name)[-1]).model for name in ("two", "one"))
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("precision", ["bf16", "bf16_output"])
def test_sixteen_bits_of_two_processes_learn_what_those_of_one_do(
    copy_corpus: Path, tmp_path: Path, precision: str
) -> None:
    options = [str(copy_corpus), *TINY, "--precision", precision]
    run_one(*options, "--update-freq", "2", "--save-dir", str(tmp_path / "one"))
    expected = losses(tmp_path / "one")
    for strategy in ("ddp", "fsdp"):
        folder = tmp_path / strategy
        run_two(*options, "--update-freq", "1", "--distributed-strategy", strategy, "--save-dir", str(folder))
        torch.testing.assert_close(losses(folder), expected, rtol=5e-3, atol=0.0)


@pytest.mark.timeout(600)
def test_another_number_of_processes_goes_on_with_the_same_batches(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *TINY]
    run_one(*options, "--update-freq", "2", "--save-dir", str(tmp_path / "one"))
    by_size = [*options, "--tokens-per-update", "180", "--save-dir", str(tmp_path / "more")]
    log = run_two(*by_size, "--max-update", "7")
    assert "an update is 1 micro-batch of up to 90 tokens on each of 2 processes: 180 tokens" in log
    assert [info.update for info in map(read_info, checkpoints_in(tmp_path / "more"))][-1] == 7
    log = run_one(*by_size)
    assert "an update is 2 micro-batches of up to 90 tokens on 1 process: 180 tokens" in log
    assert "an update had" not in log  # 2 x 1 batches, 1 x 2 batches
    weights, expected = (read_checkpoint(checkpoints_in(tmp_path / name)[-1]).model for name in ("more", "one"))
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.timeout(600)
def test_a_checkpoint_of_divided_parameters_is_that_of_one_process(copy_corpus: Path, tmp_path: Path) -> None:
    """Sharded, alone, sharded: each goes on from what the one before it has stored, to the end of an unbroken run."""
    options = [str(copy_corpus), *TINY]
    sharded, alone = ["--distributed-strategy", "fsdp", "--update-freq", "1"], ["--update-freq", "2"]
    broken = ["--save-dir", str(tmp_path / "broken")]
    run_two(*options, *sharded, *broken, "--max-update", "6")
    run_one(*options, *alone, *broken, "--max-update", "13")
    run_two(*options, *sharded, *broken)
    run_one(*options, *alone, "--save-dir", str(tmp_path / "one"))
    found, expected = (
        read_checkpoint(checkpoints_in(tmp_path / name)[-1], training=True) for name in ("broken", "one")
    )
    assert found.training is not None and expected.training is not None
    for tensors, wanted in ((found.model, expected.model), (found.training.tensors, expected.training.tensors)):
        assert list(tensors) == list(wanted)
        for name, tensor in wanted.items():
            torch.testing.assert_close(tensors[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.timeout(600)
def test_a_changed_number_of_batches_in_an_update_is_warned_of(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *TINY, "--save-dir", str(tmp_path / "run")]
    run_one(*options, "--max-update", "4")
    log = run_two(*options, "--max-update", "6")
    assert "an update had 1 micro-batch and now has 2" in log
    assert read_info(checkpoints_in(tmp_path / "run")[-1]).update == 6


@pytest.mark.timeout(600)
def test_a_signal_to_one_process_stops_both_after_a_checkpoint(copy_corpus: Path, tmp_path: Path) -> None:
    """The run that goes on afterwards ends like one that was never stopped."""
    options = [str(copy_corpus), *TINY, "--update-freq", "1", "--max-update", "40"]
    folder = tmp_path / "stopped"
    processes = start_two(*options, "--save-dir", str(folder))
    wait_for_updates(processes[0], folder)
    processes[1].send_signal(signal.SIGTERM)
    status, log = finish(processes, timeout=120)
    assert status != 0 and "Traceback" not in log
    assert "is saved in" in log
    assert 0 < read_info(checkpoints_in(folder)[-1]).update < 40
    run_two(*options, "--save-dir", str(folder))
    run_two(*options, "--save-dir", str(tmp_path / "whole"))
    weights, expected = (read_checkpoint(checkpoints_in(tmp_path / name)[-1]).model for name in ("stopped", "whole"))
    for name, tensor in expected.items():
        assert torch.equal(weights[name], tensor), name


@pytest.mark.timeout(600)
def test_the_death_of_one_process_ends_the_other_with_a_sentence(copy_corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start_torchrun(
        "-m", "nmt_cli.train", str(copy_corpus), *TINY, "--max-update", "100000", "--save-dir", str(folder)
    )
    wait_for_updates(process, folder)
    os.kill(second_of(process), signal.SIGKILL)
    _, log = process.communicate(timeout=120)
    assert process.returncode != 0
    # Rarely (2 of 170 times) gloo does not notice that the other is gone, and waits in a backward pass: torchrun ends it.
    told, waits = (
        r"nmt-train: rank 0 lost the others: rank 1 on .* ended without a message",
        "Unable to shutdown process",
    )
    assert re.search(told, log) or waits in log, log
    assert status_in(folder)["reason"] == ("running" if waits in log else "rank lost")


@pytest.mark.timeout(600)
def test_a_rank_that_stalls_is_named_by_the_other(copy_corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = [str(copy_corpus), *TINY, "--max-update", "1000000", "--save-dir", str(folder)]
    processes = start_two(*options, before=PATIENCE)
    wait_for_updates(processes[0], folder)
    os.kill(processes[1].pid, signal.SIGSTOP)
    stopped = f"rank 1 on {socket.gethostname()} (process {processes[1].pid}), which does not respond"
    read_until(processes[0], r"WARNING \| waiting \d+ s for " + re.escape(stopped))
    os.kill(processes[1].pid, signal.SIGCONT)
    processes[1].send_signal(signal.SIGTERM)
    status, rest = finish(processes, timeout=120)
    assert status == 75 and rest.count("is saved in") == 1  # one rank tells it
    assert status_in(folder)["reason"] == "preempted" and status_in(folder)["exit_status"] == 75


HANGS = f"""
{PATIENCE}
import os, time
calls = [0]
def hang():
    calls[0] += 1
    if os.environ["RANK"] == "{{rank}}" and calls[0] == {{call}}:
        while not os.path.exists({{named!r}}):
            time.sleep(0.02)
"""
IN_BACKWARD_PASS = """
import nmt.training.loop.updater as updater
backward = updater.backward
def late(loss, world):
    loss.register_hook(lambda _: hang())
    backward(loss, world)
updater.backward = late
"""
IN_FORWARD_PASS = """
from nmt.training.loop.learner import Step
forward = Step.forward
def late(step, batch):
    hang()
    return forward(step, batch)
Step.forward = late
"""
IN_CHECKPOINT = """
from nmt.training.checkpoints.store import CheckpointStore
save = CheckpointStore.save
def late(store, *arguments, **options):
    hang()
    return save(store, *arguments, **options)
CheckpointStore.save = late
"""


@pytest.mark.parametrize(
    ("rank", "call", "where", "options", "said"),
    [
        (1, 8, IN_BACKWARD_PASS, (), ""),
        (1, 8, IN_BACKWARD_PASS, ("--distributed-strategy", "fsdp"), ""),
        (1, 8, IN_FORWARD_PASS, ("--distributed-strategy", "fsdp"), ""),
        (0, 1, IN_CHECKPOINT, ("--no-async-checkpoints",), ", which is saving a checkpoint"),
    ],
    ids=["backward", "backward of fsdp", "forward of fsdp", "checkpoint"],
)
def test_a_rank_that_hangs_is_named_by_the_other(
    copy_corpus: Path, tmp_path: Path, rank: int, call: int, where: str, options: tuple[str, ...], said: str
) -> None:
    given = [str(copy_corpus), *TINY, "--max-update", "12", "--save-dir", str(tmp_path / "run"), *options]
    named = tmp_path / "named"  # the rank that hangs waits for it
    processes = start_two(*given, before=HANGS.format(rank=rank, call=call, named=str(named)) + where)
    late = f"rank {rank} on {socket.gethostname()} (process {processes[rank].pid}){said}\n"
    read_until(processes[1 - rank], r"WARNING \|.* waiting \d+ s for " + re.escape(late))
    named.touch()
    status, log = finish(processes, timeout=120)
    assert status == 0, log


def test_a_dry_run_of_two_processes_is_told_once(copy_corpus: Path, tmp_path: Path) -> None:
    processes = start_two(str(copy_corpus), *TINY, "--dry-run", "--save-dir", tmp_path / "run")
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.wait() for process in processes] == [0, 0], outputs
    first, second = (output.decode().splitlines() for output, _ in outputs)
    assert [line.split("  ")[0] for line in first] == [
        "model",
        "data",
        "an epoch",
        "micro-batches",
        "the largest",
        "memory",
        "an update",
        "to the end",
    ]
    assert not second and not (tmp_path / "run").exists()


@pytest.mark.timeout(600)
def test_what_the_first_process_refuses_one_of_them_tells(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *TINY, "--max-update", "2", "--save-dir", str(tmp_path / "run")]
    run_one(*options)
    for checkpoint in checkpoints_in(tmp_path / "run"):
        shutil.rmtree(checkpoint / "manifest.json", ignore_errors=True)
        (checkpoint / "model.safetensors").write_bytes(b"damaged")
    status, log = finish(start_two(*options), timeout=120)
    assert status != 0
    assert len(re.findall("^nmt-train: no checkpoint in .* can be read", log, re.MULTILINE)) == 1
    assert "Connection closed" not in log


@pytest.mark.timeout(600)
def test_a_batch_without_memory_in_one_of_two_processes_is_done_in_halves_by_it(
    copy_corpus: Path, tmp_path: Path
) -> None:
    options = [str(copy_corpus), *TINY, *SCARCE]
    run_one(*options, "--update-freq", "4", "--save-dir", str(tmp_path / "one"))
    log = run_two(*options, "criterion.sentences=3", "--update-freq", "2", "--save-dir", str(tmp_path / "two"))
    assert "are split in halves" in log
    assert_alike(tmp_path / "two", tmp_path / "one")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "more, announced, failed",
    [
        (["--distributed-strategy", "fsdp"], "any pass", "forward"),
        (["criterion.backward=true"], "the last backward pass of an update", "backward"),
    ],
)
def test_where_halves_would_leave_the_other_process_waiting_both_end_with_a_sentence(
    copy_corpus: Path, tmp_path: Path, more: list[str], announced: str, failed: str
) -> None:
    """Divided parameters are gathered in the forward pass, by all processes together. Gradients are exchanged in the last
    backward pass. The log says from the beginning that no halves are done there."""
    options = [str(copy_corpus), *TINY, *SCARCE, "criterion.sentences=3"]
    status, log = finish(start_two(*options, *more, "--save-dir", str(tmp_path / "run")))
    assert status != 0
    assert log.count(f"if memory runs out in {announced}, training ends: all ranks compute it") == 1
    assert re.search(
        f"out of memory at update 1, in the {failed} pass of a micro-batch of .*split its micro-batch; "
        "lower --max-tokens",
        log,
    )
    assert "Traceback" not in log


@pytest.mark.timeout(600)
def test_a_metric_that_fails_in_the_second_process_alone_is_that_of_the_first(
    copy_corpus: Path, tmp_path: Path
) -> None:
    """Whether a validation is the best, and a checkpoint is due, both decide alike."""
    metric = ["--valid-metrics", "scarce", "--best-checkpoint-metric", "scarce", "--distributed-timeout-minutes", "2"]
    log = run_two(str(copy_corpus), *TINY, *SCARCE, *metric, "--save-dir", str(tmp_path / "run"))
    assert "no memory" not in log
    assert {event["scarce"] for event in events(tmp_path / "run") if event["event"] == "valid"} == {11}
    best = pointed(tmp_path / "run", "best")
    assert best is not None and read_info(best).update == 10 and read_info(best).reasons == ("best",)


@pytest.mark.timeout(600)
def test_a_gradient_that_is_not_finite_is_found_in_whichever_part_it_is(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *TINY, *SCARCE, "criterion.spoiled=true", "--distributed-strategy", "fsdp"]
    log = run_two(*options, "--max-update", "2", "--save-dir", str(tmp_path / "run"))
    assert "update 1 is skipped" in log
    (dump,) = (tmp_path / "run").glob("*/update-*.json")
    assert json.loads(dump.read_text(encoding="utf-8"))["parameters"] == ["model.source_input.embedding.table.weight"]


@pytest.mark.timeout(600)
def test_processes_whose_parameters_part_are_found_out_at_the_next_checkpoint(
    copy_corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    options = [str(copy_corpus), *TINY, *SCARCE, "criterion.strays=true", "--max-update", "2"]
    status, log = finish(start_two(*options, "--save-dir", str(folder)))
    assert status == 1 and "Traceback" not in log
    assert len(re.findall("^nmt-train: after update 2 the ranks have different parameters", log, re.MULTILINE)) == 1
    assert "resume from the last checkpoint" in log and not checkpoints_in(folder)


# The second rank fails, and then its library waits for the first one, as NCCL does.
CANNOT_LEAVE = """
import os, time
import torch.distributed
import nmt.distributed.joining
from nmt.training.loop.updater import Updater
nmt.distributed.joining.LEAVING = 1.0
if os.environ["RANK"] == "1":
    def fail(*_):
        raise RuntimeError("the card fell out")
    Updater.launch = fail
    torch.distributed.destroy_process_group = lambda: time.sleep(1000)
"""


@pytest.mark.timeout(120)
def test_a_rank_that_fails_ends_although_its_library_waits_for_the_others(copy_corpus: Path, tmp_path: Path) -> None:
    first, second = start_two(str(copy_corpus), *TINY, "--save-dir", str(tmp_path / "run"), before=CANNOT_LEAVE)
    _, log = second.communicate(timeout=60)
    assert second.wait() == 1
    assert "could not disconnect from the other ranks within 1 seconds; this process ends anyway" in log.decode()
    assert b"the card fell out" in log
    os.kill(first.pid, signal.SIGTERM)
    _, log = first.communicate(timeout=60)
    assert first.wait() != 0
