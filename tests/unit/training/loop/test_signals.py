"""Requests to stop."""

from __future__ import annotations

import signal
import threading

import pytest

from nmt.training.loop.trainer import StopRequest


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)], ids=str
)
def test_a_signal_is_a_note_and_gives_the_exit_status(number: signal.Signals, status: int) -> None:
    with StopRequest() as stop:
        assert not stop
        signal.raise_signal(number)
        assert stop
    error = stop.interruption("saved")
    assert error.exit_status == status and str(error) == f"stopped by {number.name}; saved"


def test_a_second_ctrl_c_leaves_at_once() -> None:
    with StopRequest():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_after_another_request_still_waits_for_the_save() -> None:
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert stop.interruption("saved").exit_status == 130


def test_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
    with StopRequest():
        signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)] == before


def test_in_another_thread_training_simply_has_no_handlers() -> None:
    entered: list[bool] = []

    def work() -> None:
        with StopRequest() as stop:
            entered.append(not stop)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [True]
