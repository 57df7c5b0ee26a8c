"""Outputs that grow: what is complete is kept, what is not is done again, and other options are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.config.choices import OutputFormat
from nmt.config.generation import GenerateConfig
from nmt.errors import OutputError, UsageError
from nmt.search.beam import BeamConfig
from nmt_cli import outputs
from nmt_cli.outputs import Growing, check_output, complete_answers


def config(output: Path | None, **options: object) -> GenerateConfig:
    name = None if output is None else str(output)
    return GenerateConfig(path="model", search=BeamConfig(), output=name, resume_output=True, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def checkpoint(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """What the run folder's best checkpoint is."""
    best = {"model": Path("model/checkpoint-0001-00000001")}
    monkeypatch.setattr(outputs, "resolve", best.__getitem__)
    return best


@pytest.mark.parametrize(
    ("content", "options", "answers", "kept"),
    [
        (b"", {}, 0, b""),
        (b"a\nb\n", {}, 2, b"a\nb\n"),
        (b"a\n\nb", {}, 2, b"a\n\n"),
        (b"a\nb\nc\n", {"nbest": 2}, 1, b"a\nb\n"),
        (b'{"id": 0}\n{"id": 1}\n{"id"', {"nbest": 2, "format": OutputFormat.jsonl}, 2, b'{"id": 0}\n{"id": 1}\n'),
        (b"S-0\tx\nH-0\ty\nS-1\tx\nH-1\ty\n", {"format": OutputFormat.fairseq}, 1, b"S-0\tx\nH-0\ty\n"),
        (b"S-0\tx\nH-0\ty\n", {"format": OutputFormat.fairseq}, 0, b""),
        (b"", {"format": OutputFormat.fairseq}, 0, b""),
    ],
)
def test_complete_answers_are_counted(
    tmp_path: Path, content: bytes, options: dict[str, object], answers: int, kept: bytes
) -> None:
    path = tmp_path / "out"
    path.write_bytes(content)
    assert complete_answers(path, config(path, **options)) == (answers, len(kept))


def test_an_output_grows_under_another_name_until_it_is_complete(tmp_path: Path) -> None:
    output = tmp_path / "out"
    first = Growing(config(output))
    assert first.begin() == 0
    with pytest.raises(KeyboardInterrupt), first.opened() as write:
        write(iter(["a"]))
        write(iter(["b"]))
        raise KeyboardInterrupt
    assert not output.exists()
    with open(tmp_path / "out.partial", "ab") as partial:
        partial.write(b"half of a li")
    second = Growing(config(output, max_tokens=7, batch_size=3))  # how the work is divided may change
    assert second.begin() == 2
    with second.opened() as write:
        write(iter(["c"]))
    assert output.read_bytes() == b"a\nb\nc\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_options_than_those_that_began_it_are_refused_by_name(tmp_path: Path) -> None:
    output = tmp_path / "out"
    Growing(config(output)).begin()
    with pytest.raises(UsageError, match=r"out.partial was begun with another search, nbest; use the same options"):
        Growing(
            GenerateConfig(
                path="model", search=BeamConfig(beam_size=7), output=str(output), resume_output=True, nbest=2
            )
        ).begin()


def test_another_best_checkpoint_than_the_one_that_began_it_is_refused(
    tmp_path: Path, checkpoint: dict[str, Path]
) -> None:
    Growing(config(tmp_path / "out")).begin()
    checkpoint["model"] = Path("model/checkpoint-0002-00000002")
    with pytest.raises(UsageError, match=r"out.partial was begun with another path; use the same options"):
        Growing(config(tmp_path / "out")).begin()


def test_another_model_of_the_other_direction_is_refused(tmp_path: Path, checkpoint: dict[str, Path]) -> None:
    def begin() -> None:
        Growing(GenerateConfig(path="model", rerank="back", search=BeamConfig(), output=str(tmp_path / "out"))).begin()

    checkpoint["back"] = Path("back/checkpoint-0001-00000001")
    begin()
    begin()
    checkpoint["back"] = Path("back/checkpoint-0002-00000002")
    with pytest.raises(UsageError, match=r"out.partial was begun with another rerank; use the same options"):
        begin()


def test_a_file_that_something_else_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.partial").write_text("mine")
    with pytest.raises(UsageError, match=r"out.partial exists, but not out.partial.json, which says what made it"):
        Growing(config(tmp_path / "out")).begin()
    assert (tmp_path / "out.partial").read_text() == "mine"


def test_what_cannot_grow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name it: --output FILE"):
        check_output(config(None))
    with pytest.raises(OutputError, match="no is no folder; make it first"):
        check_output(config(tmp_path / "no" / "out"))
    with pytest.raises(UsageError, match="compress it afterwards"):
        check_output(config(tmp_path / "out.gz"))
    (tmp_path / "out").touch()
    with pytest.raises(OutputError, match="exists already"):
        check_output(config(tmp_path / "out"))
