"""Manual pages: all options, in a form that man accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import nmt
from nmt.config.composing.help import ALL, help_page
from nmt.config.composing.programs import program_of
from nmt_cli.command_line.programs import COMMANDS, options_class, word_of
from nmt_cli.shell.manual import WIDTH, write_manual


def plain(page: str) -> str:
    return page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\e", "\\")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    write_manual(["install", str(folder)])
    return folder / "man1"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_has_the_text_of_the_help(command: str, folder: Path) -> None:
    page = (folder / f"{program_of(command)}.1").read_text()
    text = help_page(options_class(command), topic=ALL, width=WIDTH)
    assert page.startswith(f'.TH "{program_of(command).upper()}" 1 "" "nmt {nmt.__version__}" nmt\n')
    assert f".SH DESCRIPTION\n.nf\n{text}\n.fi\n.SH SEE ALSO\nnmt\n" in plain(page)
    assert "\n\\fBoptions\\fR\n" in page and "\n  \\fB\\-\\-" in page
    assert not re.search(r"^(\.(?!TH|SH|nf|fi|PP)|')", page, re.MULTILINE)


def test_the_page_of_nmt_lists_its_commands(folder: Path) -> None:
    page = plain((folder / "nmt.1").read_text())
    assert all(f"\n  {word_of(command)} " in page for command in COMMANDS)
    assert f"\n{', '.join(map(program_of, COMMANDS))}\n" in page


def test_man_accepts_each_page_without_a_warning(folder: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == sorted(["nmt.1", *(f"{program_of(command)}.1" for command in COMMANDS)])
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", *files], capture_output=True, text=True, check=True)
    assert done.stderr == ""
