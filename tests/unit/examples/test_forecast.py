"""Hours of training, forecast from counted operations and a rate."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nmt.interface import VocabularySizes
from nmt.testing.subjects import load_preset

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "forecast.py"


def load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("examples_forecast", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


forecast = load()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[VocabularySizes, int, int]]:
    """What was to be counted; each target token takes 3.6e8 operations."""
    asked: list[tuple[VocabularySizes, int, int]] = []

    def operations(model: object, sizes: VocabularySizes, source: int, target: int) -> float:
        asked.append((sizes, source, target))
        return 3.6e8

    monkeypatch.setattr(forecast, "operations_per_token", operations)
    return asked


@pytest.mark.parametrize(
    ("recipe", "lengths", "tokens", "hours"),
    [
        ("vaswani_base", "30 30", "25,000", "1.2"),  # 100,000 updates of 25,000: 9e17 operations, 7.2e17 an hour
        ("vaswani_big", "30 30", "25,000", "3.8"),
        ("vaswani_big", "300 30", "2,500", "0.38"),  # a batch is full when its longer side is
        ("parsing_wsj", "25 63", "25,000", "1.2"),
    ],
)
def test_hours_are_operations_over_a_rate(
    counted: object, capsys: pytest.CaptureFixture[str], recipe: str, lengths: str, tokens: str, hours: str
) -> None:
    forecast.main([recipe, "--pieces", "37000", "--lengths", *lengths.split(), "--tflops", "100", "--devices", "2"])
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.endswith("| hours at 100 TFLOPS on each of 2 devices |")
    cells = row.strip("| ").split(" | ")
    assert (cells[0], cells[2], cells[3], cells[5]) == (recipe, tokens, "3.6e+08", hours)


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        ("copying --lengths 20 20", "320"),  # 16 sentences
        ("copying --lengths 20 20 --devices 4", "1,280"),  # of each device
        ("multi30k_tiny --lengths 30 30 --devices 4", "32,768"),  # 2 x 4,096 of each
        ("vaswani_base --lengths 25 25 --devices 16", "50,000"),  # 3,125 of each
        ("vaswani_base batching.max_target_tokens=1500 --lengths 30 30", "12,000"),  # eight batches
        ("vaswani_base batching.batch_size=10 --lengths 30 40", "3,200"),
    ],
)
def test_an_update_is_as_large_as_the_limits_of_batches_let_it_be(
    counted: object, capsys: pytest.CaptureFixture[str], words: str, tokens: str
) -> None:
    forecast.main([*words.split(), "--pieces", "37000"])
    assert capsys.readouterr().out.splitlines()[-1].split(" | ")[2] == tokens


def test_one_size_is_a_vocabulary_of_both_languages(counted: list[tuple[VocabularySizes, int, int]]) -> None:
    forecast.main("parsing_wsj --pieces 16000 60 --lengths 25 63".split())
    forecast.main("vaswani_base --pieces 37000 --lengths 30 31".split())
    assert counted == [
        (VocabularySizes(16000, 60, shared=False), 25, 63),
        (VocabularySizes(37000, 37000, shared=True), 30, 31),
    ]


@pytest.mark.slow
def test_longer_sources_cost_more_a_target_token() -> None:
    """4 + 4 layers, width 128, feed-forward 256: a source token goes through the encoder and all keys and values."""
    sizes, d, d_ff = VocabularySizes(370, 370, shared=True), 128, 256
    short, long = (
        forecast.operations_per_token(load_preset("transformer_tiny"), sizes, source, 20) for source in (20, 40)
    )
    of_source = 4 * (4 * d * d + 2 * d * d_ff) + 4 * 2 * d * d
    of_attention = 4 * (2 * d * (40 * 40 - 20 * 20) / 20 + 2 * 20 * d)
    assert long - short == pytest.approx(6 * (of_source + of_attention), rel=0.02)


def test_a_model_that_cannot_be_counted_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["model.positions=learned", "model.max_positions=20", "model.d_model=8", "model.d_ff=8"]
    with pytest.raises(SystemExit) as stopped:
        forecast.main(["vaswani_base", *few, "--pieces", "100", "--lengths", "30", "30"])
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert stopped.value.code == 2 and "the operations of this model cannot be counted, for the reason above" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "vaswani_bas --pieces 37000 --lengths 30 30",
            "unknown recipe 'vaswani_bas' (did you mean 'vaswani_base'?)",
        ),
        ("vaswani_base --pieces 4 --lengths 30 30", "--pieces takes one or two sizes above 4"),
        ("vaswani_base --pieces 9 9 9 --lengths 30 30", "--pieces takes one or two sizes above 4"),
        ("vaswani_base --pieces 37000 --lengths 1 30", "--lengths two numbers of at least 2"),
        ("vaswani_base --pieces 37000 --lengths 30 30 --devices 0", "--devices 0 must both be above 0"),
        ("parsing_small --pieces 37000 --lengths 30 30", "this recipe has no number of updates"),
        (
            "vaswani_base batching.max_tokens=auto batching.batch_size=9 --pieces 37000 --lengths 30 30",
            "or no batch size",
        ),
    ],
)
def test_what_gives_no_forecast_is_one_sentence(
    counted: object, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        forecast.main(words.split())
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and said in error and error.count("\n") == 1


def test_options_change_the_recipe(counted: object, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--pieces", "37000", "--lengths", "30", "30"]
    forecast.main(["vaswani_base", "training.max_update=5", *words])
    assert capsys.readouterr().out.splitlines()[-1].startswith("| vaswani_base training.max_update=5 | 5 | 25,000 |")
    wrong_options = {"model.d_fff=3": "unknown option model.d_fff (did you mean", "nothing": "cannot read nothing"}
    for wrong, message in wrong_options.items():
        with pytest.raises(SystemExit) as stopped:
            forecast.main(["vaswani_base", wrong, *words])
        said = capsys.readouterr().err
        assert (
            stopped.value.code == 2
            and said.startswith(f"{Path(sys.argv[0]).name}: {message}")
            and said.count("\n") == 1
        )
