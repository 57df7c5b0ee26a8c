"""What callbacks receive, what they may return, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.choices import ProgressStyle
from nmt.config.reporting import ReportConfig
from nmt.errors import UsageError
from nmt.registry import Registry
from nmt.reporting import callbacks as callbacks_module
from nmt.reporting.callbacks import Callback, CallbackError, Callbacks, RunEvent, Stop, checked
from nmt.reporting.figures import UpdateReport
from nmt.reporting.reporter import Reporter, Sample
from nmt.reporting.run_record import read_events

PER_UPDATE = ["on_update", "on_update", "on_log"] * 2  # of `reported`


class Seen(Callback):
    """Keeps all events by method; returns what it is told to."""

    def __init__(self, **returned: Any) -> None:
        self.events: list[tuple[str, RunEvent]] = []
        self._returned = returned

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def keep(event: RunEvent) -> Any:
            self.events.append((name, event))
            returned = self._returned.get(name)
            return returned(event) if callable(returned) else returned

        return keep

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]


def reported(folder: Path, *callbacks: Callback, updates: int = 4) -> Callbacks:
    """The events of a short run whose log has a line every second update."""
    parts = Callbacks(callbacks)
    folder.mkdir(exist_ok=True)
    options = ReportConfig(log_interval=2, progress=ProgressStyle.none, html=False)
    reporter = Reporter(folder, options, total_updates=None, callbacks=parts)
    reporter.start(0, {"model": "tiny"}, epoch=3)
    for update in range(1, updates + 1):
        report = UpdateReport(
            loss=2.0 * update, nll=update, denominator=2.0, tokens=2, grad_norm=0.5, learning_rate=0.1
        )
        reporter.update(update, 3, report, seconds=1.0)
    reporter.valid(updates, 3, {"loss": 1.5, "bleu": 20.0}, best=True)
    reporter.checkpoint(updates, 3, folder / "checkpoint")
    reporter.end(updates, 3, ending="all done", tokens=8, seconds=2.0)
    return parts


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(folder / "log.jsonl") if event["event"] == kind]


def test_each_event_comes_once_and_has_the_figures_of_the_log(tmp_path: Path) -> None:
    seen = Seen()
    reported(tmp_path, seen)
    assert seen.names == ["on_start", *PER_UPDATE, "on_validation", "on_checkpoint", "on_end"]
    (_, start), *updates, (_, valid), (_, checkpoint), (_, end) = seen.events
    logged, updates = updates[2::3], [event for event in updates if event[0] == "on_update"]
    assert start.epoch == 3 and start.folder == tmp_path
    assert [event.figures["loss"] for _, event in updates] == [1.0, 2.0, 3.0, 4.0]  # not the means of the log
    assert [event["loss"] for event in lines(tmp_path, "train")] == [1.5, 3.5]
    assert [event.figures["loss"] for _, event in logged] == [1.5, 3.5]
    assert {"nll": 0.5, "lr": 0.1, "grad_norm": 0.5, "tokens": 2.0}.items() <= updates[0][1].figures.items()
    assert (valid.update, valid.epoch, valid.figures) == (4, 3, {"loss": 1.5, "bleu": 20.0})
    assert checkpoint.path == tmp_path / "checkpoint" and valid.path is None
    assert end.ending == "all done" and valid.ending is None


def test_skipped_updates_warnings_and_samples_come_too_and_may_add_metrics(tmp_path: Path) -> None:
    seen = Seen(on_skip={"mine": 1.0}, on_warning=Stop("it does not learn"))
    reporter = Reporter(tmp_path, ReportConfig(html=False), total_updates=None, callbacks=Callbacks([seen]))
    reporter.skipped(3, 1, UpdateReport(loss=float("nan")), number=2)
    reporter.warned(3, 1, "the loss rises")
    reporter.samples([Sample("rot", "red", "blue")])
    reporter.valid(3, 1, {"loss": 1.0}, best=True)
    assert seen.names == ["on_skip", "on_warning", "on_samples", "on_validation"]
    skip, warning, samples, _ = (event for _, event in seen.events)
    assert skip.fields["loss"] == "nan" and skip.fields["number"] == 2 and not skip.figures
    assert warning.fields["message"] == "the loss rises" and warning.ending is None
    assert samples.fields["samples"] == [{"source": "rot", "reference": "red", "hypothesis": "blue"}]
    assert lines(tmp_path, "skipped")[0]["mine"] == 1.0 and reporter.callbacks.stop is not None


def test_metrics_are_recorded_and_seen_by_later_callbacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    later = Seen()
    first = Seen(
        on_update=lambda event: {"double": 2 * event.figures["loss"], "place": 1.0},
        on_validation={"mine": np.float32(0.5)},
        on_checkpoint={"megabytes": 3},
        on_end={"cost": 1.25},
    )
    reported(tmp_path, first, later)
    train = lines(tmp_path, "train")
    assert [(event["double"], event["place"]) for event in train] == [(4.0, 1.0), (8.0, 1.0)]  # of the last update
    assert [lines(tmp_path, kind)[0][name] for kind, name in (("valid", "mine"), ("checkpoint", "megabytes"))] == [
        0.5,
        3.0,
    ]
    assert lines(tmp_path, "end")[0]["cost"] == 1.25
    seen = {name: event.figures for name, event in later.events}
    assert (
        seen["on_update"]["double"] == 8.0 and seen["on_validation"]["mine"] == 0.5 and seen["on_end"]["cost"] == 1.25
    )
    assert "loss 1.500 | bleu 20.0 | mine 0.50" in caplog.text or "mine 0.5" in caplog.text


def test_metrics_since_the_last_line_of_the_log_survive_a_checkpoint(tmp_path: Path) -> None:
    options = ReportConfig(log_interval=10, progress=ProgressStyle.none)
    first = Reporter(tmp_path, options, total_updates=None, callbacks=Callbacks([Seen(on_update={"mine": 4.0})]))
    first.update(9, 1, UpdateReport(tokens=1), seconds=1.0)
    second = Reporter(tmp_path, options, total_updates=None)
    second.restore(first.state())
    second.update(10, 1, UpdateReport(tokens=1), seconds=1.0)
    assert lines(tmp_path, "train")[0]["mine"] == 4.0


def test_a_callback_may_repeat_its_metric_in_other_events_but_no_other_callback_may(tmp_path: Path) -> None:
    mine = {"mine": 1.0}
    parts = reported(tmp_path / "one", Seen(on_update=mine, on_end={"mine": 2.0}), updates=3)
    assert parts.failure is None and lines(tmp_path / "one", "end")[0]["mine"] == 2.0
    assert "'mine', which is recorded already" in str(
        reported(tmp_path, Seen(on_update=mine), Seen(on_update=mine)).failure
    )


def test_the_first_request_to_stop_counts_and_brings_its_metrics(tmp_path: Path) -> None:
    stops = Seen(on_validation=Stop("good enough", {"mine": 1.0}))
    parts = reported(tmp_path, stops, Seen(on_validation=Stop("too late")))
    assert parts.stop == "stopped by Seen: good enough" and parts.failure is None
    assert lines(tmp_path, "valid")[0]["mine"] == 1.0


def fail(event: RunEvent) -> None:
    raise KeyError("x")


WRONG: list[tuple[Any, str]] = [
    (fail, "KeyError: 'x'"),
    (lambda event: exec("raise SystemExit(3)"), "SystemExit: 3"),
    (True, "TypeError: it returned True; return None, a dict of metrics, or nmt.Stop"),
    ({"mine": "1"}, "TypeError: it returned the metric 'mine': '1'"),
    ({"mine": True}, "the metric 'mine': True"),
    ({"mine": torch.ones(())}, "the metric 'mine': tensor"),
    ({3: 1.0}, "the metric 3: 1.0"),
    ({"loss": 1.0}, "ValueError: it returned the metric 'loss', which is recorded already"),
    ({"ending": 1.0}, "the metric 'ending', which is recorded already"),
]


@pytest.mark.parametrize(("returned", "message"), WRONG)
def test_a_failure_names_class_and_method_and_ends_the_calls(tmp_path: Path, returned: Any, message: str) -> None:
    other = Seen()
    parts = reported(tmp_path, Seen(on_validation=returned), other)
    assert isinstance(parts.failure, CallbackError) and message in str(parts.failure)
    assert str(parts.failure).startswith("callback Seen failed in on_validation at update 4: ")
    assert parts.failure.__cause__ is not None
    assert other.names == ["on_start", *PER_UPDATE, "on_end"]  # told once that the run ends
    assert not lines(tmp_path, "end")  # "stopped" will follow


def test_a_failure_at_the_end_of_a_stopped_run_is_logged_beside_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = Reporter(
        tmp_path, ReportConfig(html=False), total_updates=None, callbacks=Callbacks([Seen(on_end=fail)])
    )
    reporter.stopped(MemoryError("no room"), update=1, epoch=1, tokens=1, seconds=1.0)
    assert lines(tmp_path, "stopped")[0]["cause"] == "out of memory"
    assert "callback Seen failed in on_end at update 1: KeyError: 'x'" in caplog.text and "Traceback" in caplog.text


@dataclass
class LimitConfig:
    value: float = 1.0
    quiet: bool = False


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> type[Callback]:
    """A callback that a plugin registers."""
    registry: Registry[Callback] = Registry("callback")
    monkeypatch.setattr(callbacks_module, "callbacks", registry)

    @registry.register("limit", LimitConfig)
    class Limit(Callback):
        def __init__(self, config: LimitConfig) -> None:
            self.config = config

    return Limit


def test_callbacks_are_chosen_by_name_with_options_or_given(limit: Callable[[LimitConfig], Callback]) -> None:
    own = Seen()
    named, given, plain = Callbacks(checked(["limit: value=2.5 :quiet=true", own, "limit"]))._parts
    assert vars(named) == {"config": LimitConfig(2.5, True)} and vars(plain) == {"config": LimitConfig()}
    assert given is own


REFUSED: Mapping[str, tuple[Any, str]] = {
    "name": (
        "limmit",
        "unknown callback 'limmit' (did you mean 'limit'?); there are: limit; for a component of a plugin",
    ),
    "option": (
        "limit:valu=1",
        "'limit:valu=1': limit has no option 'valu' (did you mean 'value'?); it has value, quiet",
    ),
    "no value": ("limit:value", "'limit:value': limit needs a value: value=VALUE"),
    "value": ("limit:value=high", "value=high must be of type float"),
    "class": (Seen, "is not a callback; give an instance of it"),
    "object": (3, "callbacks: 3 is not a callback; derive its class from nmt.Callback"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_things_are_refused(limit: type[Callback], case: str) -> None:
    listed, message = REFUSED[case]
    with pytest.raises(UsageError) as refused:
        checked([listed])
    assert message in str(refused.value)
