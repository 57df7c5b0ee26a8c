"""Manual pages: all options, in a form that man accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import nmt
from nmt.config.composing.first_screens import FIRST_SCREENS
from nmt.config.composing.help import tables
from nmt.config.composing.presets import preset_names
from nmt.config.composing.programs import program_of
from nmt.errors import UsageError
from nmt_cli.command_line.programs import COMMANDS, options_class
from nmt_cli.shell import manual

SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "OPTIONS", "EXIT STATUS", "SEE ALSO"]


def plain(page: str) -> str:
    return page.replace("\\-", "-").replace("\\(dq", '"').replace("\\e", "\\").replace("\\&", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_has_all_sections_options_and_examples(command: str) -> None:
    page = manual.manual_page(command)
    config_class = options_class(command)
    assert [title for title in re.findall(r"^\.SH (.*)", page, re.MULTILINE) if title != "PRESETS"] == SECTIONS
    for title, rows in tables(config_class):
        assert f'.SS "{title}"' in plain(page).replace('\\"', '"')
        for flag, meaning in rows:
            assert f".TP\n\\fB{flag}\\fR\n{meaning}\n" in plain(page)
    assert all(f".nf\n{line}\n.fi" in plain(page) for _, line in FIRST_SCREENS[command].examples)


def test_the_page_of_training_lists_its_presets_and_that_of_nmt_its_commands() -> None:
    presets = manual.manual_page("train").partition(".SH PRESETS")[2]
    assert all(name in presets for name in preset_names("model") + preset_names("recipe"))
    page = plain(manual.manual_page(manual.UMBRELLA))
    assert all(f"\\fB{program_of(command)}\\fR(1)" in page for command in COMMANDS)


def test_text_cannot_be_taken_for_a_request() -> None:
    assert manual._roff(".x") == "\\&.x" and manual._roff("'x") == "\\&'x"
    assert manual._roff('a\\b "c"') == "a\\eb \\(dqc\\(dq"


def test_man_accepts_each_page_without_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    manual.show_manual(["install", str(tmp_path)])
    files = sorted((tmp_path / "man1").iterdir())
    assert capsys.readouterr().out == f"{tmp_path / 'man1'}: {len(COMMANDS) + 1} pages written\n"
    assert [file.name for file in files] == sorted(["nmt.1", *(f"{program_of(command)}.1" for command in COMMANDS)])
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", *files], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_page_is_shown_by_man(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "man").write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/page; exit 3\n')
    (tmp_path / "man").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(SystemExit) as end:
        manual.show_manual(["score"])
    assert end.value.code == 3
    assert (tmp_path / "page").read_text().startswith(f'.TH NMT\\-SCORE 1 "" "nmt {nmt.__version__}" "nmt"\n')


def test_without_man_the_message_names_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="man is not installed; nmt help COMMAND all shows the same"):
        manual.show_manual(["score"])
