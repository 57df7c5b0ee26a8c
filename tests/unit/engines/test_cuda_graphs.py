"""``--cuda-graphs``, with a stand-in for the GPU's recorder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.translation import TranslationOptions
from nmt.engines import GraphsKind, graphs
from nmt.errors import UsageError
from nmt.native.library import forget
from nmt.search.config import BeamConfig
from nmt.translation import translator as translating
from nmt.translation.lines import Line
from nmt.translation.translator import Translator
from tests.tiny_models import write_tiny_model
from tests.unit.engines.tape import Recorder

pytestmark = pytest.mark.slow  # the recorded models take seconds

LINES = ["ein mann", "", "rot", "zwei rot mann", "rot rot rot rot"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "transformer", model="transformer")


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As if the CPU were a GPU that records."""
    found: list[Recorder] = []

    def recorder_for(device: torch.device) -> Recorder:
        found.append(Recorder())
        return found[-1]

    monkeypatch.setattr(graphs, "Recordings", recorder_for)
    monkeypatch.setattr(translating, "_require_recording", lambda device: None)
    monkeypatch.setattr(GraphsKind, "misfit", lambda *_: None)
    monkeypatch.setenv("NMT_NATIVE", "off")
    forget()
    yield found
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize(
    "options", [{"beam": 3, "nbest": 2}, {"search": "greedy"}, {"beam": 2, "replace_unk": True}], ids=str
)
def test_it_changes_no_translation(folder: Path, recorders: list[Recorder], options: dict[str, Any]) -> None:
    expected = Translator.load(folder).translate(LINES, **options)
    translator = Translator.load(folder, cuda_graphs=True)
    assert translator.translate(LINES, **options, batch_size=2) == expected
    assert (recorders[0].repeated == 0) == ("replace_unk" in options), "attention is computed step by step"


def test_members_of_an_ensemble_are_recorded(folder: Path, recorders: list[Recorder]) -> None:
    expected = Translator.load(folder).translate(LINES)
    assert Translator.load(f"{folder}:{folder}", cuda_graphs=True).translate(LINES) == expected
    assert len(recorders) == 2 and all(recorder.repeated > 0 for recorder in recorders)


def test_a_batch_that_does_not_fit_is_halved_without_recordings(
    folder: Path, recorders: list[Recorder], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = Translator.load(folder, cuda_graphs=True)
    expected = translator.translate(LINES)
    model = translator._engine.model
    assert isinstance(model, graphs.Replayed) and model.steps
    step = model.step

    def small_memory(tokens: torch.Tensor, *rest: Any) -> Any:
        if len(tokens) > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return step(tokens, *rest)

    monkeypatch.setattr(model, "step", small_memory)
    assert translator.translate(LINES) == expected
    assert "splitting it into halves" in caplog.text and recorders[0].forgotten == 1


def test_given_translations_are_scored_at_once(folder: Path, recorders: list[Recorder]) -> None:
    config = TranslationOptions(score_reference=True, search=BeamConfig())
    lines = [Line("ein mann", reference="a man"), Line("rot", reference="red")]
    found = [one.hypotheses[0].score for one in Translator.load(folder, cuda_graphs=True).hypotheses(lines, config)]
    expected = [one.hypotheses[0].score for one in Translator.load(folder).hypotheses(lines, config)]
    assert found == expected and recorders[0].recorded == 0


def test_what_cannot_be_recorded_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="--cuda-graphs needs an NVIDIA GPU, but the device is cpu; omit it"):
        Translator.load(folder, device="cpu", cuda_graphs=True)
    monkeypatch.setattr(translating, "device_named", lambda name: "cuda")
    with pytest.raises(UsageError, match="--shortlist changes the output layer for every batch"):
        Translator.load(folder, shortlist="shortlist.safetensors", cuda_graphs=True)
