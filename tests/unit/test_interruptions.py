"""What comes while a process copies itself is not lost."""

from __future__ import annotations

import signal
import threading

import pytest

from nmt import interruptions


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    order: list[str] = []
    previous = signal.signal(number, lambda *_: order.append("handled"))
    try:
        with interruptions.held():
            signal.raise_signal(number)
            signal.raise_signal(number)
            order.append("copied")
        order.append("after")
    finally:
        signal.signal(number, previous)
    assert order == ["copied", "handled", "after"]


def test_ctrl_c_is_raised_behind_the_block() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), interruptions.held():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_nothing_is_changed() -> None:
    """There Python sets no handlers."""
    done: list[bool] = []

    def copy() -> None:
        with interruptions.held():
            done.append(True)

    thread = threading.Thread(target=copy)
    thread.start()
    thread.join()
    assert done == [True]
