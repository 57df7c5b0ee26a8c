"""Outputs that grow: what is complete is kept, what is not is done again, and other options are refused."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nmt.config.choices import OutputFormat
from nmt.config.commands import GenerateConfig
from nmt.errors import DataError, OutputError, UsageError
from nmt.search.config import BeamConfig
from nmt.storage.checkpoints import CheckpointInfo, TrainingState, drop_training_state, write_checkpoint
from nmt.storage.files import this_host
from nmt_cli import outputs
from nmt_cli.outputs import ResumableOutput, check_output, claim, complete_answers
from tests.tiny_models import tiny_pair


def config(output: Path | None, **options: object) -> GenerateConfig:
    name = None if output is None else str(output)
    return GenerateConfig(path="model", search=BeamConfig(), output=name, resume_output=True, **options)  # type: ignore[arg-type]


def begun(options: GenerateConfig) -> None:
    """One line is translated, and then the process is stopped."""
    with pytest.raises(KeyboardInterrupt), ResumableOutput(options) as growing:
        growing.begin()
        with growing.opened() as write:
            write(iter(["a"]))
            raise KeyboardInterrupt


def written(checkpoint: Path, parameter: float = 0.0) -> Path:
    """A run's checkpoint of one parameter."""
    tiny_pair().save(checkpoint.parent / "tokenizer")
    model, state = {"weight": torch.tensor(parameter)}, TrainingState({"moment": torch.zeros(3)}, {"update": 1})
    write_checkpoint(checkpoint, model=model, config={}, info=CheckpointInfo(1, 1), training=state, overwrite=True)
    return checkpoint


@pytest.fixture(autouse=True)
def checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the run folder's best checkpoint is."""
    best = {"model": written(tmp_path_factory.mktemp("model") / "checkpoint-0001-00000001")}
    monkeypatch.setattr(outputs, "checkpoint_at", best.__getitem__)
    return best


@pytest.mark.parametrize("flag", ["input", "shortlist", "unk_dictionary"])
def test_an_output_does_not_replace_what_is_read(tmp_path: Path, flag: str) -> None:
    (tmp_path / "read").write_text("mine")
    (tmp_path / "link").symlink_to("read")
    given = {flag: str(tmp_path / "read"), "replace_unk": flag == "unk_dictionary"}
    options = config(tmp_path / "link", overwrite=True, **given)
    said = f"would replace the input --{flag.replace('_', '-')} {tmp_path / 'read'}; choose another --output"
    with pytest.raises(OutputError, match=said):
        check_output(options)
    check_output(config(tmp_path / "other", overwrite=True, **given))


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


def test_what_a_killed_command_left_beside_its_output_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mark = f"{ended.pid}-{this_host()}.00ff00ff"
    for name in ("out", "other"):
        (tmp_path / f".{name}.{mark}.tmp").write_text("half")
    with outputs.opened(str(tmp_path / "out")) as write:
        write(iter(["a"]))
    assert sorted(os.listdir(tmp_path)) == [f".other.{mark}.tmp", "out"]


def test_an_output_grows_under_another_name_until_it_is_complete(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with (
        pytest.raises(KeyboardInterrupt),
        ResumableOutput(config(output)) as first,
        contextlib.ExitStack() as stack,
    ):
        assert first.begin() == 0
        write = stack.enter_context(first.opened())
        write(iter(["a"]))
        write(iter(["b"]))
        raise KeyboardInterrupt
    assert not output.exists()
    with open(tmp_path / "out.partial", "ab") as partial:
        partial.write(b"half of a li")
    with ResumableOutput(config(output, max_tokens=7, batch_size=3)) as second:  # how the work is divided may change
        assert second.begin() == 2
        with second.opened() as write:
            write(iter(["c"]))
    assert output.read_bytes() == b"a\nb\nc\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_options_than_those_that_began_it_are_refused_by_name(tmp_path: Path) -> None:
    output = tmp_path / "out"
    begun(config(output))
    with pytest.raises(UsageError, match=r"out.partial was started with a different search, nbest; use the same"):
        ResumableOutput(
            GenerateConfig(
                path="model", search=BeamConfig(beam_size=7), output=str(output), resume_output=True, nbest=2
            )
        ).begin()


def test_another_best_checkpoint_than_the_one_that_began_it_is_refused(
    tmp_path: Path, checkpoint: dict[str, Path]
) -> None:
    begun(config(tmp_path / "out"))
    checkpoint["model"] = written(checkpoint["model"].with_name("checkpoint-0002-00000002"))
    with pytest.raises(UsageError, match=r"out.partial was started with a different model of --path; use the same"):
        ResumableOutput(config(tmp_path / "out")).begin()


def test_another_model_under_the_same_name_is_refused(tmp_path: Path, checkpoint: dict[str, Path]) -> None:
    begun(config(tmp_path / "out"))
    written(checkpoint["model"])
    with ResumableOutput(config(tmp_path / "out")) as growing:
        assert growing.begin() == 1, "it is the same, written again"
    written(checkpoint["model"], parameter=1.0)
    with (
        pytest.raises(UsageError, match=r"out.partial was started with a different model of --path; use the same"),
        ResumableOutput(config(tmp_path / "out")) as growing,
    ):
        growing.begin()


def test_another_tokenizer_beside_the_same_model_is_refused(tmp_path: Path, checkpoint: dict[str, Path]) -> None:
    begun(config(tmp_path / "out"))
    tiny_pair(reverse=True).save(checkpoint["model"].parent / "tokenizer")
    with pytest.raises(UsageError, match=r"out.partial was started with a different model of --path"):
        ResumableOutput(config(tmp_path / "out")).begin()


def test_a_model_may_lose_its_state_of_training_meanwhile(tmp_path: Path, checkpoint: dict[str, Path]) -> None:
    begun(config(tmp_path / "out"))
    drop_training_state(checkpoint["model"])
    with ResumableOutput(config(tmp_path / "out")) as growing:
        assert growing.begin() == 1


def test_what_an_older_version_began_is_not_gone_on_with(tmp_path: Path, checkpoint: dict[str, Path]) -> None:
    """It noted models by their names alone."""
    begun(config(tmp_path / "out"))
    (tmp_path / "out.partial.json").write_text(f'{{"path": ["{checkpoint["model"]}"], "rerank": null, "nbest": 1}}')
    with pytest.raises(UsageError, match=r"out.partial was started by another version of nmt, .* or delete it"):
        ResumableOutput(config(tmp_path / "out")).begin()


def test_another_model_of_the_other_direction_is_refused(tmp_path: Path, checkpoint: dict[str, Path]) -> None:
    options = GenerateConfig(path="model", rerank="back", search=BeamConfig(), output=str(tmp_path / "out"))
    checkpoint["back"] = written(tmp_path / "back" / "checkpoint-0001-00000001")
    begun(options)
    with ResumableOutput(options) as growing:
        assert growing.begin() == 1
    checkpoint["back"] = written(tmp_path / "back" / "checkpoint-0002-00000002")
    for others in (options, replace(options, rerank=None)):
        with (
            pytest.raises(
                UsageError, match=r"out.partial was started with a different .*model of --rerank; use the same"
            ),
            ResumableOutput(others) as growing,
        ):
            growing.begin()


@pytest.mark.parametrize("option", ["input", "shortlist", "unk_dictionary"])
def test_a_file_that_has_changed_since_is_refused(tmp_path: Path, option: str) -> None:
    read = tmp_path / "read"
    read.write_text("one\ntwo\n")
    options = config(tmp_path / "out", **{option: str(read)}, replace_unk=True)
    begun(options)
    read.write_text("none\none\ntwo\n")
    with (
        pytest.raises(UsageError, match=r"out.partial was started with a different content of .*read; use the same"),
        ResumableOutput(options) as growing,
    ):
        growing.begin()
    assert (tmp_path / "out.partial").read_text() == "a\n"


def test_what_failed_before_its_first_answer_stands_in_the_way_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError), ResumableOutput(config(tmp_path / "out")) as growing:
        growing.begin()
        raise DataError("the input is missing")
    assert not list(tmp_path.iterdir())
    (tmp_path / "out.partial").touch()  # as a process that was killed leaves it
    with ResumableOutput(config(tmp_path / "out", nbest=2)) as growing:
        assert growing.begin() == 0


def test_one_process_at_a_time_writes_an_output(tmp_path: Path) -> None:
    options = config(tmp_path / "out")
    with claim(options):
        with (
            pytest.raises(OutputError, match=r"another process is writing .*out; wait until it is done"),
            claim(options),
        ):
            pass
        with outputs.opened(options.output) as write:
            write(iter(["a"]))
    with pytest.raises(OutputError, match="exists already"), claim(options):
        pass
    with claim(replace(options, overwrite=True)):
        pass
    assert os.listdir(tmp_path) == ["out"], "nothing is left of a claim"


def test_standard_output_and_pipes_need_no_claim(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for output in (None, tmp_path / "pipe"):
        with claim(config(output)), claim(config(output)):
            assert os.listdir(tmp_path) == ["pipe"], "nothing is claimed"


def test_a_file_that_something_else_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.partial").write_text("mine")
    with pytest.raises(
        UsageError, match=r"out.partial exists, but out.partial.json, which records its options, is missing"
    ):
        ResumableOutput(config(tmp_path / "out")).begin()
    assert (tmp_path / "out.partial").read_text() == "mine"


def test_what_cannot_grow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--resume-output needs an output file: --output FILE"):
        check_output(config(None))
    with pytest.raises(OutputError, match="no is not a folder; create it first"):
        check_output(config(tmp_path / "no" / "out"))
    with pytest.raises(UsageError, match="compress it afterwards"):
        check_output(config(tmp_path / "out.gz"))
    (tmp_path / "out").touch()
    with pytest.raises(OutputError, match="exists already"):
        check_output(config(tmp_path / "out"))
