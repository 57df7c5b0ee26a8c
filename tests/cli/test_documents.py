"""The documents tell the truth: every command line in them parses and composes, every flag, link and file exists."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from nmt.config.option import flags_of
from nmt.data.batching.batch import Batch
from nmt_cli.command_line.flags import FOREIGN, grammar_of
from tests.commands import run_copy
from tests.documents import (
    COMMANDS,
    DOCUMENTS,
    ROOT,
    CommandLine,
    all_commands,
    commands_in,
    compose,
    fenced_blocks,
    without_variables,
    write_files,
)


def test_the_documents_show_every_command() -> None:
    assert {command.program for command in all_commands()} == set(COMMANDS)


@pytest.mark.parametrize("command", [command for command in all_commands() if not command.user_dir], ids=str)
def test_command_line_composes(command: CommandLine) -> None:
    assert isinstance(compose(command), COMMANDS[command.program][1])


def of_one_job(arguments: Sequence[str]) -> list[str]:
    """The first job of a sweep: --cfg shows no sweep."""
    given = [without_variables(argument) for argument in arguments]
    if "-m" not in given:
        return given
    one = [re.sub(r"^(\w+=)choice\((.*)\)$", r"\1\2", word) for word in given]
    return [re.sub(r"^(\w+=[^,]*),.*", r"\1", word) for word in one if word != "-m" and not word.startswith("hydra")]


@pytest.mark.parametrize("command", [command for command in all_commands() if command.user_dir], ids=str)
def test_command_line_with_a_plugin_composes(command: CommandLine, tmp_path: Path) -> None:
    """In a process of its own: what a plugin registers stays registered."""
    module, _ = COMMANDS[command.program]
    write_files(command.document, tmp_path)
    result = run_copy(module, *of_one_job(command.arguments), "--cfg", "job", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_wrong_flag_in_a_document_would_be_noticed() -> None:
    shell = "cat x | nmt-generate --path a \\\n  --beem 4 > y"
    (command,) = commands_in(shell, "nowhere.md")
    assert command.arguments == ("--path", "a", "--beem", "4")
    with pytest.raises(Exception, match="unknown flag --beem"):
        compose(command)


def rows_of_fairseq() -> Iterator[tuple[str, list[str]]]:
    """Command and cells, of each row of the tables whose second column is headed by a command."""
    text = (ROOT / "docs" / "how-to" / "migrate" / "fairseq.md").read_text(encoding="utf-8")
    program = ""
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            program = ""
        elif cells[0] == "fairseq" and cells[1] in COMMANDS:
            program = cells[1]
        elif program:
            yield program, cells


def flags_of_ours() -> Iterator[tuple[str, str]]:
    """Command and our flag, of each row of the tables."""
    for program, cells in rows_of_fairseq():
        ours = " ".join(cells[:2]) if cells[1].startswith("the same") else cells[1]
        yield from ((program, flag) for flag in re.findall(r"`(--[\w-]+)`", ours))


@pytest.mark.parametrize(("program", "flag"), sorted(set(flags_of_ours())))
def test_flag_of_the_fairseq_tables_exists(program: str, flag: str) -> None:
    assert flag in {known.name for known in flags_of(COMMANDS[program][1])}


def flags_of_fairseq() -> Iterator[tuple[str, str]]:
    """Command and fairseq's flag, of each row of the tables."""
    for program, cells in rows_of_fairseq():
        yield from ((program, flag) for flag in re.findall(r"`(--[\w-]+)", cells[0]))


@pytest.mark.parametrize(("program", "flag"), sorted(set(flags_of_fairseq())))
def test_a_flag_of_the_fairseq_tables_is_understood_or_answered_with_advice(program: str, flag: str) -> None:
    """By the command of the table."""
    _, config = COMMANDS[program]
    known = grammar_of(config)
    assert flag in {*known.flags, *known.aliases, *known.foreign, *known.advice}


def test_the_document_says_what_becomes_of_every_foreign_flag() -> None:
    text = (ROOT / "docs" / "how-to" / "migrate" / "fairseq.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| flag \| what is done \|\n(.*?)\n\n", text, flags=re.DOTALL | re.MULTILINE)
    cells = " ".join(line.split("|")[1] for line in table.split("\n"))
    assert set(re.findall(r"`(--[\w-]+)", cells)) == set(FOREIGN)


def test_what_a_fairseq_table_calls_the_same_is_looked_up_too() -> None:
    assert {("nmt-train", "--reset-meters"), ("nmt-generate", "--no-repeat-ngram-size")} <= set(flags_of_ours())


# What a quick start and the script of its experiment need not share: names of files, what is done to old ones, the form of
# scores, seeds, processes and threads.
PLACES = {"trainpref", "validpref", "testpref", "destdir", "data", "save_dir", "path", "input", "output", "overwrite"}
PLACES |= {"sys", "ref", "format", "metrics", "seed", "threads", "workers"}
QUICK_STARTS = ("README.md", "docs/tutorials/english-german.md")


def without_places(section: Any) -> Any:
    if not isinstance(section, dict):
        return section
    return {key: without_places(value) for key, value in section.items() if key not in PLACES}


@pytest.mark.parametrize("document", QUICK_STARTS)
@pytest.mark.parametrize("program", ["nmt-preprocess", "nmt-train", "nmt-generate", "nmt-score"])
def test_a_quick_start_has_the_settings_of_the_experiment_whose_score_it_states(document: str, program: str) -> None:
    shown, script = (
        without_places(asdict(compose(command)))  # type: ignore[call-overload]
        for name in (document, "examples/multi30k/run_fast.sh")
        for command in [
            command for command in all_commands() if (command.document, command.program) == (name, program)
        ][:1]
    )
    assert shown == script


@pytest.mark.parametrize("document", QUICK_STARTS)
def test_a_quick_start_states_the_score_of_the_results_page(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    (score,) = re.findall(r"^BLEU\S* = (\d+\.\d+)", text, flags=re.MULTILINE)
    results = (ROOT / "docs/results/index.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| quick start:.*", results, flags=re.MULTILINE)
    assert score in [cell.strip() for cell in row.split("|")]
    (signature,) = re.findall(r"^BLEU\|(\S+)\|version", text, flags=re.MULTILINE)
    assert signature in results


def test_the_index_of_the_examples_has_every_folder_and_is_linked() -> None:
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)/README\.md\) \| \S.* \| \S.* \|$", index, flags=re.MULTILINE)
    folders = [path.name for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert sorted(rows) == [(name, name) for name in sorted(folders)]
    assert "/blob/main/examples/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_on_options_names_every_command_with_bare_arguments() -> None:
    """And no other, with the flag that each is short for."""
    text = (ROOT / "docs" / "how-to" / "configure.md").read_text(encoding="utf-8")
    heading = r"^\| command \| bare argument \| flag \|\n\|[-|]+\|\n"
    (table,) = re.findall(rf"{heading}(.*?)\n\n", text, flags=re.DOTALL | re.MULTILINE)
    rows = [row.strip("|").split("|") for row in table.split("\n")]
    named = {
        (program, flag.strip(" `").removeprefix("--"))
        for programs, _, flag in rows
        for program in re.findall(r"`([\w-]+)`", programs)
    }
    bare = {program: grammar_of(config_class).bare for program, (_, config_class) in COMMANDS.items()}
    assert named == {(program, key) for program, key in bare.items() if key}
    assert [meaning.strip() for _, meaning, _ in rows] == ["corpus folder", "system", "run folder"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_of_the_package_that_a_document_names_exist(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for name in re.findall(r"`((?:nmt|nmt_cli|tests|examples|docs)/[\w/.]*)`", text):
        assert (ROOT / name).exists(), f"{path.name} names {name}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_in_documents_compiles(path: Path) -> None:
    for language, block in fenced_blocks(path.read_text(encoding="utf-8")):
        if language == "python":
            compile(block.replace("(..., ", "("), path.name, "exec")


def test_groups_table_of_the_configuration_document_is_complete() -> None:
    """Each group's row names exactly the components that are registered."""
    from nmt.registry import registry_for

    text = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    for role in ("tokenizer", "model", "criterion", "optimizer", "scheduler", "search"):
        row = next(line for line in text.split("\n") if line.startswith(f"| `{role}`"))
        named = set(re.findall(r"`(\w+)`", row.split("|")[3]))
        assert named == set(registry_for(role).names()), role


def test_the_page_on_models_explains_every_field_of_a_batch_and_the_short_list_of_start() -> None:
    text = (ROOT / "docs" / "how-to" / "extend" / "model.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| field \| shape \| \|\n\|[-|]+\|\n(.*?)\n\n", text, flags=re.DOTALL | re.MULTILINE)
    explained = {name for row in table.split("\n") for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert explained == {field.name for field in dataclasses.fields(Batch)}
    assert re.search(r"^\| `start` \|.*`vocabulary`", text, flags=re.MULTILINE) or "`vocabulary`" in text
