"""``nmt man``: manual pages with the text of ``--help all``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import nmt
from nmt.config.composing.help import ALL, help_page
from nmt.config.composing.programs import program_of
from nmt.errors import UsageError
from nmt.plugins import load_plugins, preset_folders
from nmt.storage.files import atomic_write
from nmt_cli.command_line.programs import COMMANDS, options_class, purpose_of
from nmt_cli.shell.overview import ABOUT, overview
from nmt_cli.shell.terminal import with_styles

WIDTH = 72  # columns; man indents by 7


def write_manual(words: Sequence[str]) -> None:
    """Run ``nmt man WORDS``: write all pages."""
    if words[:1] != ["install"] or len(words) > 2:
        raise UsageError(f"{' '.join(['nmt man', *words])}: give install [FOLDER]; then man nmt-train shows a page")
    load_plugins()
    folder = Path(words[1] if words[1:] else f"{sys.prefix}/share/man", "man1").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"nmt": manual_page("nmt", ABOUT.partition(": ")[2], overview(WIDTH), map(program_of, COMMANDS))}
    for command in COMMANDS:
        importlib.import_module(f"nmt_cli.{command}")  # registers the components
        text = help_page(options_class(command), preset_folders(), topic=ALL, width=WIDTH)
        pages[program_of(command)] = manual_page(program_of(command), purpose_of(command), text, ["nmt"])
    for name, page in pages.items():
        with atomic_write(folder / f"{name}.1") as file:
            file.write(page.encode())
    print(f"{folder}: {len(pages)} pages written")


def manual_page(name: str, purpose: str, text: str, others: Iterable[str]) -> str:
    """Return a page in man's format. ``others``: pages to see also."""
    marked = with_styles(text, lambda part, style: part if style == "note" else f"\0B{part}\0R")
    lines = [
        f'.TH "{name.upper()}" 1 "" "nmt {nmt.__version__}" nmt',
        f".SH NAME\n{name} \\- {purpose}",
        ".SH DESCRIPTION\n.nf",
        # A backslash and a hyphen have meanings of their own. No line of a page begins with a dot or an apostrophe.
        marked.replace("\\", r"\e").replace("-", r"\-").replace("\0", "\\f"),
        f".fi\n.SH SEE ALSO\n{', '.join(others)}\n.PP\n{nmt.DOCUMENTATION}\n",
    ]
    return "\n".join(lines)
