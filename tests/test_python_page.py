"""docs/how-to/python.md: its blocks run in order, in an empty folder, and leave the right results."""

from __future__ import annotations

import contextlib
import io
import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import nmt
from nmt.config.plain import from_plain
from nmt.config.sections import TrainConfig
from nmt.models.transformer.config import TransformerConfig
from nmt.translation import TranslatedText, Translation, Translator
from tests.commands import run_copy

PAGE = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "python.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Ran:
    """The page, in a folder of its own."""

    folder: Path
    names: dict[str, Any]  # all that the blocks assigned
    printed: list[str]  # by each block


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The page with a thirtieth of its dates, which teach nothing."""
    text = PAGE.read_text(encoding="utf-8")
    assert "range(6000)" in text
    return run_page(text.replace("range(6000)", "range(200)"), tmp_path_factory.mktemp("page"))


def run_page(text: str, folder: Path) -> Ran:
    names: dict[str, Any] = {}
    printed = []
    before = Path.cwd()
    os.chdir(folder)
    try:
        for block in BLOCK.finditer(text):
            lines_before = text.count("\n", 0, block.start(1))  # a traceback names the line of the page
            code = compile("\n" * lines_before + block[1], str(PAGE), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(code, names)
            printed.append(output.getvalue())
    finally:
        os.chdir(before)
    return Ran(folder, names, printed)


def test_every_block_of_the_page_runs(ran: Ran) -> None:
    assert len(ran.printed) == PAGE.read_text(encoding="utf-8").count("```python") >= 10


@pytest.mark.nightly
def test_the_first_program_learns_and_prints_what_the_page_shows(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    ran = run_page(text.partition("### Constrain a line")[0], tmp_path)
    shown = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert ran.printed[:2] == shown[:2]
    pieces, alignment = ran.printed[2].splitlines()[3:7], ran.printed[2].splitlines()[7:]
    assert [line.split(" ")[1] for line in pieces] == ["▁2012", "-12", "-24", "(end)"]
    assert len(alignment) == 3 and "▁December -> -12" in alignment


def test_training_ends_where_it_should_and_goes_on(ran: Ran) -> None:
    result = ran.names["result"]
    assert (result.ending, result.update, result.metric) == ("10 updates are made", 10, "loss")
    assert set(ran.names["losses"]) >= {5, 10, 15}
    assert (ran.folder / "runs/small/report.html").exists()


def test_a_configuration_that_was_read_is_the_one_that_was_written(ran: Ran) -> None:
    again, config = ran.names["again"], ran.names["config"]
    assert (again.model, again.optimizer, again.batching) == (config.model, config.optimizer, config.batching)
    assert again.training.max_update == 15 and (ran.folder / "runs/small-again/best.json").exists()


def test_what_a_command_line_composes_to_becomes_a_configuration(tmp_path: Path) -> None:
    printed = run_copy("train", "data", "--arch", "transformer_base", "--cfg", "job", cwd=tmp_path)
    config = from_plain(TrainConfig, yaml.safe_load(printed.stdout), origin="printed")
    assert config.data == ["data"] and config.model == TransformerConfig()


def test_the_average_of_a_run_is_loaded(ran: Ran) -> None:
    assert ran.names["average"].folder == Path("runs/small/averaged")
    assert 0 <= ran.names["bleu"].value <= 100


def test_a_model_that_went_out_and_came_back_is_the_same(ran: Ran) -> None:
    exported = ran.names["exported"]
    assert exported.equal == exported.sentences == 10 and exported.difference < 1e-4
    assert ran.names["folder"] == Path("models/small")
    before = Translator.load(ran.folder / "runs/small")
    there = {
        "length_penalty": "power",
        "lenpen": 1.0,
    }  # the search of that toolkit is the one that a model comes back with
    assert ran.names["texts_again"] == before.translate(["24 December 2012", "03 May 2001"], beam=4, **there)


def test_the_tables_name_each_field_of_a_translation_and_of_a_hypothesis() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in ("number", "source", "source_pieces", "hypotheses", "alignment", "log_probability"):
        assert f"`{name}`" in text
    told = [field.name for field in fields(TranslatedText) if field.name != "ends_of_parts"]
    assert [name for name in told if f"`{name}`" not in text] == []
    assert {"number", "source", "source_pieces", "hypotheses"} <= {field.name for field in fields(Translation)}


def test_each_function_of_the_page_can_be_imported_from_nmt() -> None:
    assert all(callable(getattr(nmt, name)) for name in nmt.__all__ if name != "__version__")
    with pytest.raises(AttributeError, match="has no attribute 'trains'"):
        nmt.trains  # noqa: B018
