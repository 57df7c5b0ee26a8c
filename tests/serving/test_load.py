"""Fifty clients at once, whose answers are those of nmt-generate."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from tests.commands import run_copy
from tests.serving.servers import PATIENCE, running
from tests.tiny_models import some_lines

CLIENTS = 50


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.nightly)])
def test_fifty_clients_are_answered_as_nmt_generate_translates(model: Path, seconds: int) -> None:
    lines = sorted({*some_lines(400, longest=7)})
    given = "".join(f"{line}\n" for line in lines).encode()
    done = run_copy("generate", "--path", model, "--cpu", "--beam", "4", "--nbest", "2", stdin=given)
    generated = done.stdout.decode().split("\n")[:-1]
    pairs = {line: generated[2 * number : 2 * number + 2] for number, line in enumerate(lines)}
    wrong: list[object] = []
    answered: list[int] = []

    with running("--path", model, "--workers", "2", "--beam", "4") as server:
        end = time.monotonic() + seconds

        def client(seed: int) -> None:
            chance, count = random.Random(seed), 0
            while time.monotonic() < end:
                some = chance.sample(lines, chance.randint(1, 5))
                answer = server.post("/v1/translate", {"text": some, "nbest": 2})
                if answer.status != 200:
                    wrong.append(answer)
                    return
                told = [[one["text"] for one in tree["hypotheses"]] for tree in answer.json["translations"]]
                wrong.extend(pair for pair in zip(some, told) if pair[1] != pairs[pair[0]])
                count += 1
            answered.append(count)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + PATIENCE)
        assert wrong[:3] == []
        assert len(answered) == CLIENTS and min(answered) > 0
        assert server.metric("nmt_window_lines_sum") > 2 * server.metric("nmt_window_lines_count"), "they share batches"
        assert server.stop() == 0
