"""What the script of the page says about runs."""

from __future__ import annotations

import difflib
import math
from typing import Any

import pytest

from nmt.pages import numbers
from nmt.pages.charts import nice_ticks, thinned
from nmt.reporting.curves import smoothed
from tests.unit.pages.scripts import evaluate, needs_node

pytestmark = needs_node

FILE = "run_data.js"
START = {"event": "start", "update": 0, "seconds": 0.0, "total_updates": 100}


def train(update: int, loss: float | None, **more: Any) -> dict[str, Any]:
    return {
        "event": "train",
        "update": update,
        "epoch": 1,
        "loss": loss,
        "seconds": 2.0 * update,
        "tokens": 500,
        **more,
    }


def valid(update: int, loss: float, **more: Any) -> dict[str, Any]:
    return {"event": "valid", "update": update, "epoch": 1, "loss": loss, **more}


def run(*events: dict[str, Any], process: str | None = "alive", age: float = 1.0, **job: Any) -> dict[str, Any]:
    return {"name": "run", "events": list(events), "process": process, "age": age, "job": job}


def test_numbers_look_as_in_python() -> None:
    values = [0.0, 0.00071, 1.0, 3.14159, 12.345, 999.4, 1500.0, 45_321.0, 2_100_000.0, 3.2e9]
    script = evaluate("values.map((value) => [short(value), duration(value), megabytes(value)])", FILE, values=values)
    assert script == [[numbers.short(v), numbers.duration(v), numbers.megabytes(v)] for v in values]
    assert evaluate("[1.23456, 12.3456, 123.456, 37860485.3].map(figure)", FILE) == [
        "1.2346",
        "12.35",
        "123.46",
        "37.9M",
    ]


def test_curves_are_thinned_and_smoothed_and_ticks_chosen_as_in_python() -> None:
    points = [(place, math.sin(place * 0.7) * place) for place in range(900)]
    script = evaluate("[thinned(points, 100), smoothed(points, 0.9), ticks(0.3, 7.1)]", FILE, "plots.js", points=points)
    assert script[0] == [list(point) for point in thinned(points, 100)]
    assert script[1][-1] == pytest.approx(smoothed(points, 0.9)[-1])
    assert script[2] == pytest.approx(nice_ticks(0.3, 7.1))


def test_the_last_value_of_an_update_counts_and_the_closing_event_ends_the_curve() -> None:
    end = {**train(25, 1.0), "event": "end"}
    data = run(train(10, 3.0), train(20, 9.0), train(20, 2.0), train(30, None), end)
    assert evaluate('curve(data, "train", "loss")', FILE, data=data) == [[10, 3], [20, 2], [25, 1]]


def test_points_stand_at_tokens_and_seconds_of_their_update() -> None:
    data = run(START, train(10, 3.0), train(20, 2.0))
    places = '["updates", "tokens", "seconds"].map((over) => [0, 5, 10, 20, 30].map(clock(data, over)))'
    assert evaluate(places, FILE, data=data) == [[0, 5, 10, 20, 30], [0, 250, 500, 1000, 1000], [0, 10, 20, 40, 40]]


def test_the_time_left_is_that_of_the_other_updates_at_the_speed_since_the_last_start() -> None:
    resumed = {**START, "update": 40, "seconds": 500.0}
    data = run(START, train(40, 3.0), resumed, train(50, 2.0, seconds=530.0), age=10.0)
    assert evaluate("timeLeft(data)", FILE, data=data) == 3.0 * 50 - 10.0
    unknown = [
        run(START),
        run(START, train(10, 3.0), {"event": "end", "update": 10}),
        run({**START, "total_updates": None}),
        run(START, train(10, 3.0), process="gone"),
        run(START, train(10, 3.0), age=1000.0),  # stalled
    ]
    assert evaluate("data.map(timeLeft)", FILE, data=unknown) == [None] * 5


def test_cards_have_progress_speed_scores_and_the_use_of_the_machine() -> None:
    first, second = train(10, 3.0, tokens_per_second=100.0), train(20, 2.0, tokens_per_second=400.0, memory_mb=1500.0)
    machine = {"processor": 1.5, "memory": 800.0, "gpus": [[0, 93, 12000.0]]}
    cards = "Object.fromEntries(cards(data, machine))"
    data = run(START, first, second, valid(20, 2.5, bleu=30.0))
    shown = evaluate(cards, FILE, data=data, machine=machine)
    expected = {"of 100 updates": "20", "time": "0:00:40", "time left": "0:02:39", "target tokens": "1,000"}
    expected |= {"tokens/s": "400", "lowest validation loss, update 20": "2.5000", "last validation bleu": "30.00"}
    expected |= {"peak memory": "1.5 GB", "CPU use": "150 %", "memory now": "800 MB", "GPU 0": "93 %, 12.0 GB"}
    assert shown == {"epoch": "1", **expected}
    data["events"].append({"event": "end", "update": 20, "tokens": 1000})
    assert evaluate(cards, FILE, data=data, machine=None)["tokens/s"] == "160", "1,000 tokens in 5 + 1.25 seconds"


FALLING = [
    event for update in range(10, 70, 10) for event in (train(update, 5 - update / 20), valid(update, 4 - update / 90))
]
RISING = [
    event for update in range(10, 70, 10) for event in (train(update, 5 - update / 20), valid(update, 3 + update / 60))
]


ALERTS: list[tuple[dict[str, Any], str | None]] = [
    (run(START, *FALLING), None),
    (
        run(START, *RISING),
        "overfitting: since update 10, the validation loss has risen from 3.1667 to 4.0000, while",
    ),
    (run(START, *RISING[:6]), None),  # only two validations after the lowest loss
    (run(START, train(10, 2.0), train(20, None)), "loss or gradient not finite once, last at update 20; a lower --lr,"),
    (
        run(START, *[{"event": "skipped", "update": 7, "loss": "nan"}] * 2),
        "loss or gradient not finite 2 times, last at update 7",
    ),
    (run(START, *FALLING, age=170.0), "stalled: no event for 2 min, usually at most 20 s;"),
    (run(START, *FALLING, age=150.0), None),  # less than 8 times 20 seconds
    (run(START, *FALLING, process=None, age=1e6), None),  # on another machine
    (run(START, *FALLING, process="gone"), "killed: "),
    (run(START, {"event": "stopped", "update": 9, "cause": "error", "message": "no --lr"}), "stopped: no --lr"),
    (run(START, {"event": "stopped", "update": 9, "cause": "signal", "message": "stopped by X"}), "stopped: by X"),
    (run(status="failed", error="diverged"), "failed: diverged"),
    (run(START, {"event": "warning", "update": 1500, "message": "a spike"}), "update 1,500: a spike"),
    (
        run(
            START,
            train(10, 3.0, times={"computing": 10.0, "reading": 1.0}),
            train(20, 2.0, times={"computing": 16.0, "reading": 5.0}),
        ),
        "slow readers: since update 10, reading has taken 40 % of the time; check the disk, or raise --readers",
    ),
]


def test_what_needs_a_look_is_an_alert() -> None:
    every = evaluate("runs.map(alerts)", FILE, runs=[data for data, _ in ALERTS])
    for alerts, (_, alert) in zip(every, ALERTS):
        assert alerts == [] if alert is None else len(alerts) == 1 and alerts[0].startswith(alert), (alert, alerts)


def test_the_speed_of_a_run_is_that_of_all_its_tokens() -> None:
    events = [train(4, 1.0, tokens_per_second=100.0), train(8, 1.0, tokens_per_second=1000.0)]
    events = [event | {"tokens": tokens} for event, tokens in zip(events, (900, 100))]
    end = {"event": "end", "update": 9, "tokens": 1200, "tokens_per_second": 50.0}
    speeds = evaluate("runs.map((one) => totals(one).speed)", FILE, runs=[run(*events), run(*events, end)])
    assert speeds == pytest.approx([1000 / 9.1, 1200 / 13.1])


def test_what_became_of_a_run() -> None:
    end, stopped = (
        {"event": "end", "update": 9, "ending": "9 updates"},
        {"event": "stopped", "update": 9, "cause": "signal"},
    )
    runs = [run(START), run(process=None), run(START, process=None), run(START, end), run(START, stopped)]
    runs += [
        run(START, process="gone"),
        run(START, end, train(20, 1.0), process=None),
        run(process=None, status="failed"),
    ]
    words = [
        "running",
        "not started",
        "not finished",
        "finished: 9 updates",
        "stopped: signal",
        "killed",
        "not finished",
        "failed",
    ]
    assert evaluate("runs.map((one) => state(one)[1])", FILE, runs=runs) == words


TEXTS = [
    ("a man rides a bicycle .", "a man rides his old bicycle"),
    ("one two three", "three two one"),
    ("same", "same"),
    ("", "all new"),
    ("all gone", ""),
]


def test_changed_words_are_marked_and_no_word_is_lost() -> None:
    every = evaluate("texts.map(([before, after]) => changes(before, after))", FILE, texts=TEXTS)
    for (before, after), parts in zip(TEXTS, every):
        words = {kind: [word.strip() for one, word in parts if one in ("same", kind)] for kind in ("new", "gone")}
        assert words == {"new": after.split(), "gone": before.split()}
        same = sum(kind == "same" for kind, _ in parts)
        blocks = difflib.SequenceMatcher(None, before.split(), after.split(), autojunk=False).get_matching_blocks()
        assert same >= sum(block.size for block in blocks), "the longest common subsequence is no shorter"


def test_each_letter_is_a_word_in_a_script_without_spaces() -> None:
    parts = evaluate("changes('一个男人', '一个女人 x')", FILE)
    assert parts == [["same", "一"], ["same", "个"], ["gone", "男"], ["new", "女"], ["same", "人 "], ["new", "x"]]


def test_translations_begin_with_the_last_validation() -> None:
    def samples(update: int, text: str) -> dict[str, Any]:
        return {
            "event": "samples",
            "update": update,
            "samples": [{"source": "s", "reference": "r", "hypothesis": text}],
        }

    (sample,) = evaluate("translations(data)", FILE, data=run(samples(10, "a b"), samples(20, "a c")))
    assert sample["rows"] == [
        [20, [["same", "a "], ["gone", "b"], ["new", "c"]]],
        [10, [["same", "a "], ["same", "b"]]],
    ]


def test_options_in_which_runs_differ_and_their_order() -> None:
    jobs = [run(options={"optimizer.lr": rate}) for rate in ("0.001", "0.1")]
    jobs[0]["events"] = [{**START, "changed_options": {"optimizer.lr": 0.001, "seed": 1}}]
    alone = run({**START, "changed_options": {"seed": 1, "checkpoint.save_dir": "x"}})
    assert evaluate("varying(runs)", FILE, runs=[*jobs, alone]) == [["optimizer.lr", ["0.001", "0.1", "default"]]]
    columns = [[3, None, 1, 2], ["0.01", "1e-3", "a", None]]
    orders = evaluate("columns.map((values) => [sorted(values, 1), sorted(values, -1)])", FILE, columns=columns)
    assert orders == [[[2, 3, 0, 1], [0, 3, 2, 1]], [[1, 0, 2, 3], [0, 1, 2, 3]]]


@pytest.mark.parametrize(
    ("recorded", "metric", "best"),
    [
        ({"lower_is_better": ["aer"]}, "aer", 20),
        ({"lower_is_better": []}, "bleu", 30),
        ({}, "ter", 20),
        ({}, "bleu", 30),
    ],
)
def test_the_best_score_is_the_highest_or_as_recorded_the_lowest_and_the_best_loss_the_lowest(
    recorded: dict[str, Any], metric: str, best: float
) -> None:
    events = [valid(update, loss, **{metric: score}) for update, loss, score in ((10, 3.0, 20.0), (20, 4.0, 30.0))]
    data = run(START | recorded, *events)
    assert evaluate(f'["{metric}", "loss", "x"].map((name) => best(data, name))', FILE, data=data) == [best, 3, None]


def test_a_logarithmic_axis_has_powers_and_its_places_can_be_read_back() -> None:
    places = "[1, 7, 500].map((value) => made.value(made.place(value)))"
    script = f"((made) => [made.ticks, made.place(0.5), made.place(2000), {places}])(axis(0.5, 2000, 0, 100, true))"
    marks, first, end, values = evaluate(script, FILE, "plots.js")
    assert marks == pytest.approx([1, 10, 100, 1000]) and (first, end) == pytest.approx((0, 100))
    assert values == pytest.approx([1, 7, 500])


def test_lines_across_axes_stand_by_size_and_texts_in_order() -> None:
    columns = [["0.001", "0.1", "0.01"], ["b", "a", None], [5, 5, 5]]
    script = "columns.map((values) => values.map((_, run) => sharesOf(values).of(run)))"
    numeric, texts, equal = evaluate(script, FILE, "plots.js", "parallel.js", columns=columns)
    assert numeric == pytest.approx([0, 1, 0.5]) and texts == [1, 0, None] and equal == [0.5, 0.5, 0.5]
