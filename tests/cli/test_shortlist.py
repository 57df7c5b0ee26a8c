"""nmt-shortlist, and what nmt-generate makes of its file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from nmt.config.commands import GenerateConfig, ShortlistConfig
from nmt.errors import OutputError, UsageError
from nmt.search.config import BeamConfig
from nmt_cli import shortlist
from nmt_cli.generate import run as generate
from nmt_cli.shortlist import run
from tests.tiny_models import in_english, some_lines, tiny_pair, write_tiny_corpus, write_tiny_model

LINES = some_lines(40, seed=8, longest=3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    tiny_pair().save(folder / "tokenizer")
    return write_tiny_corpus(folder, tokenizer=folder / "tokenizer")


def test_learning_that_takes_long_says_that_it_goes_on(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[str] = []
    monkeypatch.setattr(shortlist, "going_on", lambda what: watched.append(what) or contextlib.nullcontext())
    run(ShortlistConfig(data=[str(corpus)], output=str(tmp_path / "short")))
    assert watched == ["learning the shortlist"]


def test_a_model_translates_the_same_with_the_pieces_that_it_needs(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = write_tiny_model(tmp_path / "model")
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    with caplog.at_level("INFO", "nmt"):
        run(ShortlistConfig(data=[str(corpus)], output=str(tmp_path / "short"), per_piece=2, frequent=0))
    assert "target tokens per source token, 4 for every sentence" in caplog.text
    texts = []
    for chosen in (None, str(tmp_path / "short")):
        generate(
            GenerateConfig(
                path=str(model), search=BeamConfig(), input=str(tmp_path / "source"), shortlist=chosen, workers=1
            )
        )
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] == "".join(f"{in_english(line)}\n" for line in LINES)


def test_mistakes_are_told(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one corpus folder, not 0"):
        run(ShortlistConfig(output=str(tmp_path / "short")))
    with pytest.raises(UsageError, match="--output FILE"):
        run(ShortlistConfig(data=[str(corpus)]))
    (tmp_path / "short").touch()
    with pytest.raises(OutputError, match="exists already"):
        run(ShortlistConfig(data=[str(corpus)], output=str(tmp_path / "short")))


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_learned(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.data.corpus.shortlist.learn", lambda *_: pytest.fail("it was learned"))
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    monkeypatch.setattr("os.access", lambda path, mode: path != closed)  # who runs the tests may write anywhere
    for output, complaint in (
        (tmp_path / "missing" / "short", "missing is not a folder; create it first"),
        (closed / "short", "no permission to write to"),
        (tmp_path, "is a folder or a device"),
    ):
        with pytest.raises(OutputError, match=complaint):
            run(ShortlistConfig(data=[str(corpus)], output=str(output), overwrite=True))
