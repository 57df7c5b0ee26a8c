"""What the documents and scripts show: their fenced blocks, the nmt commands in them, and each as a configuration."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401  (each fills its registry)
from nmt.config.aligning import AlignConfig
from nmt.config.commands import AverageConfig, GenerateConfig, ScoreConfig, ShortlistConfig
from nmt.config.comparing import CompareConfig
from nmt.config.composing.assignments import read
from nmt.config.composing.composition import compose as compose_options
from nmt.config.doctor import DoctorConfig
from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.config.monolingual import MonolingualConfig
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig
from nmt.config.visualizing import VisualizeConfig
from nmt.serving.config import ServeConfig
from nmt_cli.command_line.argv import rewrite, take_config
from nmt_cli.command_line.flags import grammar_of

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "examples", "benchmarks")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in ROOT.glob(f"{folder}/**/*.md"))])
SCRIPTS = sorted(ROOT.glob("examples/**/*.sh"))

COMMANDS = {
    "nmt-preprocess": ("preprocess", PreprocessConfig),
    "nmt-train": ("train", TrainConfig),
    "nmt-average-checkpoints": ("average_checkpoints", AverageConfig),
    "nmt-import": ("import_", ImportConfig),
    "nmt-export": ("export", ExportConfig),
    "nmt-generate": ("generate", GenerateConfig),
    "nmt-shortlist": ("shortlist", ShortlistConfig),
    "nmt-score": ("score", ScoreConfig),
    "nmt-serve": ("serve", ServeConfig),
    "nmt-visualize": ("visualize", VisualizeConfig),
    "nmt-compare": ("compare", CompareConfig),
    "nmt-align": ("align", AlignConfig),
    "nmt-doctor": ("doctor", DoctorConfig),
    "nmt-monolingual": ("monolingual", MonolingualConfig),
}
SHELL_LANGUAGES = {"bash", "sh", "console", "shell"}
PROGRAMS = {f"nmt_cli.{module}": program for program, (module, _) in COMMANDS.items()}  # as torchrun starts them
STARTERS = {"srun", "nohup", "exec"}
CONTROL = {"time", "|", "||", "&&", ";", "&", "<", ">", ">>", "2>", "<<<"}


@dataclass(frozen=True)
class CommandLine:
    """One nmt command as a document shows it."""

    document: str
    program: str
    arguments: tuple[str, ...]

    @property
    def user_dir(self) -> bool:
        return "--user-dir" in self.arguments

    def __str__(self) -> str:
        return f"{self.document}: {self.program} {' '.join(self.arguments)}"


@dataclass(frozen=True)
class Block:
    """A fenced block of a document, without its indentation."""

    language: str
    content: str
    left_out: str | None  # why its commands are not run: ``<!-- not run: REASON -->`` on the line before

    @property
    def file(self) -> str | None:
        """Name of the file that the block shows, from a comment on its first line."""
        named = re.match(r"# ([\w/]+\.(?:py|yaml))\n", self.content)
        return named[1] if named is not None and self.language in ("python", "yaml") else None


# A fenced block, or code within a sentence.
PIECES = re.compile(
    r"^(?:(?P<mark> *)<!-- not run: (?P<reason>[^\n]+) -->\n)?"
    r"(?P<indent>^ *)```(?P<language>\w*)(?: [^\n]*)?\n(?P<content>.*?)^(?P=indent)```$"
    r"|(?<!`)`(?P<inline>[^`]+)`(?!`)",
    flags=re.DOTALL | re.MULTILINE,
)
PREPARED = re.compile(r"^<!-- prepared: (.+?) -->$", flags=re.MULTILINE)


def _block(match: re.Match[str]) -> Block:
    indent = match["indent"]
    content = "".join(line.removeprefix(indent) for line in match["content"].splitlines(keepends=True))
    return Block(match["language"], content, match["reason"])


def blocks_of(text: str) -> Iterator[Block]:
    for match in PIECES.finditer(text):
        if match["inline"] is None:
            yield _block(match)


def fenced_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of each fenced block."""
    yield from ((block.language, block.content) for block in blocks_of(text))


def prepared_names(text: str) -> list[str]:
    """Names of files and folders that a document's commands find: ``<!-- prepared: NAME NAME -->``."""
    return [name for names in PREPARED.findall(text) for name in names.split()]


def files_of(text: str) -> Iterator[tuple[str, str]]:
    """Name and content of each file that a document shows."""
    yield from ((block.file, block.content) for block in blocks_of(text) if block.file is not None)


def write_files(document: str, folder: Path) -> None:
    """The files that a document shows, and the examples of this checkout, which it may name."""
    for name in ("examples", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    for name, content in files_of((ROOT / document).read_text(encoding="utf-8")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def commands_in(shell: str, document: str) -> Iterator[CommandLine]:
    """The nmt commands of a piece of shell: up to a pipe or redirection, continued lines joined."""
    for line in shell.replace("\\\n", "").split("\n"):
        if "nmt-" not in line or line.lstrip().startswith("#"):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words = list(lexer)
        for start, word in enumerate(words):
            program = PROGRAMS.get(word) if words[start - 1 : start] == ["-m"] else word
            before = words[start - 1] if start else ";"
            if program in COMMANDS and (before in CONTROL or before in STARTERS or program != word):
                rest = words[start + 1 :]
                end = next((number for number, other in enumerate(rest) if other in CONTROL), len(rest))
                yield CommandLine(document, program, tuple(rest[:end]))


def all_commands() -> list[CommandLine]:
    found = []
    for path in DOCUMENTS:
        for language, block in fenced_blocks(path.read_text(encoding="utf-8")):
            if language in SHELL_LANGUAGES:
                found.extend(commands_in(block, str(path.relative_to(ROOT))))
    for path in SCRIPTS:
        # A script's $here is its own folder; plugins are loaded from there.
        shell = path.read_text(encoding="utf-8").replace("$here", str(path.parent.relative_to(ROOT)))
        found.extend(commands_in(shell, str(path.relative_to(ROOT))))
    return found


def without_variables(argument: str) -> str:
    """Some number in place of each variable that only the shell knows: of two variables another, as a rule."""
    return re.sub(r"\$\{?(\w+)\}?", lambda variable: str(len(variable[1])), argument)


def first_job(overrides: list[str]) -> Iterator[str]:
    """What a sweep's first job is given. Launchers and sweepers are not: not everybody has them installed."""
    for override in OverridesParser.create().parse_overrides(overrides):
        key = override.get_key_element()
        if override.is_interval_sweep():
            yield f"{key}={override.value().start}"
        elif override.is_sweep_override():
            yield f"{key}={next(override.sweep_string_iterator())}"
        elif not key.startswith("hydra"):
            yield str(override.input_line)


def compose(command: CommandLine) -> object:
    """The configuration that a command line leads to, as the launcher makes it."""
    _, config_class = COMMANDS[command.program]
    arguments, _ = take_config(command.arguments)  # no document has the file
    line = rewrite(arguments, grammar_of(config_class))
    overrides = [without_variables(override) for override in line.overrides]
    if line.is_sweep:
        overrides = list(first_job(overrides))
    return compose_options(config_class, read(overrides)).config


def shell_lines(text: str, to_run: bool = False) -> Iterator[str]:
    """Every command line of a document as it stands, in order: those of shell blocks, with continued lines, and code within
    sentences that is a whole command. ``to_run``: without the blocks that are marked as not run."""
    for match in PIECES.finditer(text):
        if match["inline"] is not None:
            if _is_whole(match["inline"]):
                yield " ".join(match["inline"].split())
            continue
        block = _block(match)
        if block.language in SHELL_LANGUAGES and not (to_run and block.left_out):
            yield from _lines(block.content)


def _lines(shell: str) -> Iterator[str]:
    line = ""
    for part in shell.splitlines(keepends=True):
        line += part
        if not part.endswith("\\\n"):
            if line.strip() and not line.lstrip().startswith("#"):
                yield line.rstrip("\n")
            line = ""


def steps(text: str, folder: Path) -> Iterator[str]:
    """Every command line to run, in order. A Python block is one too: its text is written to a file in ``folder``."""
    number = 0
    for match in PIECES.finditer(text):
        block = _block(match) if match["inline"] is None else None
        if block is None or block.language != "python":
            yield from shell_lines(match[0], to_run=True)
        elif block.file is None and block.left_out is None:
            number += 1
            script = folder / f"block{number}.py"
            script.write_text(block.content, encoding="utf-8")
            yield f"python {script.name}"


def _is_whole(code: str) -> bool:
    """Whether code in a sentence is a command that can be given as it stands: not one option of it, nor a pattern."""
    program, _, rest = " ".join(code.split()).partition(" ")
    named = "/" in rest or "--help" in rest
    return program in COMMANDS and named and "..." not in rest and re.search(r"\b[A-Z]{4,}\b", rest) is None
