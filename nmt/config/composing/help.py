"""The page that ``--help`` shows, generated from the declarations: flags, keys, defaults, presets.

It shows the options of the components that the command line chooses, with the values of the chosen presets. The first screen
has the options that most runs need.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from nmt.config.composing.assignments import Assignment
from nmt.config.composing.composition import Presets, chosen_presets
from nmt.config.composing.presets import component_names, default_presets, preset_names
from nmt.config.composing.programs import command_of, program_of
from nmt.config.option import Flag, FlagKind, flags_of, groups_of, options_of
from nmt.registry import registry_for

NARROWEST, WIDEST = 60, 120  # columns
WIDEST_FLAG = 36
NOTES = (
    "Every option has a key, and most have a flag. The key of a flag is its section and its name with underscores "
    "(--save-dir: checkpoint.save_dir) unless the line names another. An option that shows its key alone has no flag.",
    "Also: --config FILE (all options from a run's config.yaml, or from what --cfg job printed; others win over it), -m or "
    "--multirun (one job for each value of key=1,2), --config-dir FOLDER (presets of your own), --info, --resolve, "
    "--package, --hydra-help, --shell-completion, --version.",
)

# Placeholders of bare arguments, by the flag that they replace.
BARE = {"--data": "[CORPUS FOLDER ...] ", "--runs": "[RUN FOLDER ...] ", "--sys": "[SYSTEM ...] "}
# By command: flags that most runs need. The other commands show all options on the first screen.
EVERYDAY = {
    "preprocess": "--source-lang --target-lang --trainpref --validpref --testpref --destdir --tokenizer --vocab-size "
    "--joined-dictionary --workers",
    "train": "--save-dir --arch --max-update --max-epoch --max-tokens --update-freq --lr --warmup-updates --dropout "
    "--valid-metrics --device --precision",
    "generate": "--path --input --output --format --beam --nbest --lenpen --max-tokens --workers --device",
    "serve": "--path --host --port --beam --lenpen --workers --max-tokens --max-queue --timeout --device",
}
# Lines in turn: a purpose, and its command.
EXAMPLES = """
train.de, train.en, valid.de, valid.en become a corpus of one vocabulary
nmt-preprocess --source-lang de --target-lang en --trainpref train --validpref valid --destdir data-bin/x \
    --vocab-size 8000 --joined-dictionary
text to translate, cut as the corpus of the model is
nmt-preprocess --source-lang de --target-lang en --testpref news --only-source --srcdict data-bin/x \
    --tgtdict data-bin/x --destdir data-bin/news
a small Transformer; the same command again continues the run
nmt-train data-bin/x model=transformer_tiny --save-dir runs/x --max-update 20000 --valid-metrics bleu
sizes of your own, written as keys
nmt-train data-bin/x model.d_model=256 model.d_ff=1024 model.num_heads=4 --dropout 0.2 --save-dir runs/own
a whole experiment, with one difference
nmt-train data-bin/x recipe=vaswani_base --max-update 50000 --save-dir runs/base
four runs, one for each pair of values
nmt-train data-bin/x --lr 0.0005,0.001 --dropout 0.1,0.3 --save-dir runs/sweep -m
the last ten that were written at an epoch's end
nmt-average-checkpoints --inputs runs/x --num-epoch-checkpoints 10 --output runs/x/averaged
two that you name
nmt-average-checkpoints --inputs runs/x/checkpoint_best runs/y/checkpoint_best --output runs/mean
a file
nmt-generate --path runs/x --input news.de --output news.en
an ensemble of two runs, three translations of each line
nmt-generate --path runs/x:runs/y --beam 10 --nbest 3
the test set of a corpus folder, as fairseq prints it
nmt-generate data-bin/x --path runs/x --gen-subset test --format fairseq
fifty target pieces for each source piece
nmt-shortlist data-bin/x --output runs/x/shortlist
a model that fairseq trained
nmt-import --from fairseq --path checkpoint_best.pt --srcdict dict.en.txt --tgtdict dict.de.txt --bpe sentencepiece \
    --bpe-model bpe.model --source-lang en --target-lang de --output models/en-de
a folder of OPUS-MT, as Hugging Face has it
nmt-import --from huggingface --path opus-mt-en-de --source-lang en --target-lang de --output models/opus-en-de
a model in bytes for CTranslate2
nmt-export --path runs/x --format ctranslate2 --quantization int8 --output x.ct2
a folder for Hugging Face's transformers, compared over your sentences
nmt-export --path runs/x --format huggingface --sample news.de --output x.hf
translations over HTTP from two models, on port 8000
nmt-serve --path runs/x,runs/y --port 8000
two metrics with their signatures
nmt-score --sys news.hyp --ref news.en --metrics bleu,chrf
two references, as JSON
nmt-score --sys news.hyp --ref news.en1,news.en2 --format json
where two systems differ, on a page
nmt-compare base.hyp big.hyp --ref news.en --src news.de --train train.en --output compare.html
all layers and heads of a model in some sentences, on a page
nmt-visualize --path runs/x --input few.de --output attention.html
two heads of the decoder's third layer, as a picture
nmt-visualize --path runs/x --input few.de --kind decoder --layer 3 --head 1,5 --output heads.png
versions, settings and devices, with a training step and a translation on each device
nmt-doctor
everything that training and translating use on each device
nmt-doctor --full --output doctor.json
word alignments by two models, from the heads that agree best
nmt-align --path runs/de-en --reverse runs/en-de --src news.de --ref news.en --output news.align
by one model, from the head that comes closest to alignments made by hand
nmt-align --path runs/de-en --src news.de --ref news.en --valid-src valid.de --valid-ref valid.en --gold valid.align
training curves of two runs, over time
nmt-visualize runs/x runs/y --over seconds --smoothing 0.9 --output curves.html
"""


def help_page(config_class: type, folders: Sequence[Path] = (), assignments: Sequence[Assignment] = ()) -> str:
    """Return the whole page as text. ``assignments``: the other words of the command line, which choose presets."""
    return _Page(config_class, folders, chosen_presets(config_class, assignments, folders)).text()


Row = tuple[str, str]  # a flag, or another text of the first column, and its meaning


class _Page:
    """The page of one command line."""

    def __init__(self, config_class: type, folders: Sequence[Path], presets: Presets) -> None:
        command = command_of(config_class)
        self._program = program_of(command)
        self._config_class = config_class
        self._folders = folders
        self._chosen = presets
        self._everyday = EVERYDAY.get(command, "").split()
        self._defaults = default_presets(config_class)
        self._groups = groups_of(config_class)
        self._width = min(max(_columns(), NARROWEST), WIDEST)
        self._flag_width = min(self._width // 3, WIDEST_FLAG)

    def text(self) -> str:
        sections = list(self._sections())
        flags = {flag.name: flag for _, options in sections for flag in options}
        everyday = [self._row(flags[name]) for name in self._everyday if name in flags]
        further = self._table("where to look further", [*self._further()])
        bare = "".join(words for flag, words in BARE.items() if flag in flags)
        usage = f"{bare}[--flag value] [key=value]{' [group=preset]' if self._groups else ''}, in any order"
        blocks = [
            self._hanging("", (self._config_class.__doc__ or self._program).strip(), "  "),
            self._hanging(f"usage: {self._program} ", usage),
            *([self._table("options of most runs", everyday), further] if everyday else []),
            *(self._table(title, [self._row(flag) for flag in options]) for title, options in sections),
            self._presets(),
            *([] if everyday else [further]),
            "\n".join(["notes", *(self._hanging("  ", note) for note in NOTES)]),
            self._examples(),
        ]
        return "\n\n".join(block for block in blocks if block)

    def _further(self) -> Iterator[Row]:
        """Return places that have more than this page."""
        if self._everyday:
            yield f"{self._program} --help | less", "every option of what is chosen, presets, examples"
        if self._groups:
            group, *_ = self._groups
            others = [other for other in self._chosen.choices if other != group]
            alike = f"; {', '.join(others)}: likewise" if others else ""
            what = f"options of another {group} than {self._chosen.choices[group]}"
            yield f"{self._program} {group}=NAME --help", f"{what}{alike}"
        yield f"{self._program} ... --cfg job", "what a command line composes to"
        models = ", docs/models.md" if "model" in self._groups else ""
        yield f"docs/configuration.md{models}", "flags, keys, presets and plugins explained"

    def _sections(self) -> Iterator[tuple[str, list[Flag]]]:
        """Yield titles with options: of the command, of its sections, then of the chosen components."""
        yield "options", [flag for flag in flags_of(self._config_class) if "." not in flag.key]
        for field in dataclasses.fields(self._config_class):
            if "section" in field.metadata:
                options = options_of(field.metadata["section"], f"{field.name}.")
                yield f"{field.name}: {field.metadata['help']}", options
        for group, role in self._groups.items():
            name, component = self._chosen.choices[group], self._chosen.component(group)
            if component is not None:
                preset = "" if name == component else f", a preset of {component}"
                title = f"{group}={name}{preset} (another one's options: {self._program} {group}=NAME --help)"
                yield title, options_of(registry_for(role).config_class(component), f"{group}.")

    def _row(self, flag: Flag) -> Row:
        """Return the line of a flag. The value of a chosen preset replaces the default."""
        flag = dataclasses.replace(flag, default=self._chosen.value(flag.key, flag.default))
        notes = []
        default = _shown(flag.default)
        if flag.name.endswith("="):  # a key without a flag
            name = f"{flag.name}{_placeholder(flag)}"
        elif flag.key in self._groups:
            name, default = f"{flag.name} PRESET", str(self._defaults[flag.key])
        elif flag.kind is FlagKind.switch:
            name = flag.name if flag.default is False else f"--[no-]{flag.name[2:]}"
            default = "" if flag.default is False else default
        else:
            name = f"{flag.name} {_placeholder(flag)}"
        if flag.name not in (f"{flag.key}=", f"--{flag.key.rpartition('.')[2].replace('_', '-')}"):
            notes.append(f"key: {flag.key}")
        if default:
            notes.append(f"default: {default}")
        return name, f"{flag.help} ({'; '.join(notes)})" if notes else flag.help

    def _presets(self) -> str:
        """Return the choices of each group; a star marks the default."""
        lines = ["presets (group=preset; * is the default)"] if self._defaults else []
        for group, default in self._defaults.items():
            names = [*preset_names(group, self._folders), *component_names(group)]
            marked = [f"{name}*" if name == default else name for name in names]
            lines.append(self._hanging(f"  {group:<12}", ", ".join(marked) or "none"))
        return "\n".join(lines)

    def _examples(self) -> str:
        lines = ["examples"]
        example_lines = [" ".join(line.split()) for line in EXAMPLES.strip().splitlines()]
        for purpose, command in zip(example_lines[::2], example_lines[1::2]):
            if command.startswith(f"{self._program} "):
                unbroken = re.sub(r"(--\S+) (?!-)", "\\1\N{NO-BREAK SPACE}", command)  # a flag and its value
                wrapped = textwrap.wrap(unbroken, self._width - 8, break_on_hyphens=False)
                lines += [f"  # {purpose}", "  " + " \\\n      ".join(wrapped).replace("\N{NO-BREAK SPACE}", " ")]
        return "\n".join(lines)

    def _table(self, title: str, rows: Sequence[Row]) -> str:
        lines = [self._hanging("", title, "  ")]
        for flag, text in rows or [("it has no options", "")]:
            if len(flag) > self._flag_width:  # a line of its own keeps the columns
                lines.append(f"  {flag}")
                flag = ""
            lines.append(self._hanging(f"  {flag:<{self._flag_width}}  ", text))
        return "\n".join(lines)

    def _hanging(self, start: str, text: str, following: str | None = None) -> str:
        """Wrap ``text`` after ``start``. Further lines are indented like the first, or begin with ``following``."""
        indent = " " * len(start) if following is None else following
        wrapped = textwrap.wrap(
            text, self._width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
        )
        return "\n".join(wrapped) or start.rstrip()


def _columns() -> int:
    """Return the width of the terminal behind any standard stream (`--help | less`); 80 if there is none."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__, sys.__stdin__)):
        with contextlib.suppress(OSError, ValueError):  # no terminal, or closed
            return shutil.get_terminal_size(os.get_terminal_size(stream.fileno())).columns
    return shutil.get_terminal_size().columns


def _placeholder(flag: Flag) -> str:
    if flag.kind is FlagKind.many:
        return "A,B"
    if flag.kind is FlagKind.optional:
        return "[X]"
    if flag.kind is FlagKind.switch:
        return "true|false"
    if isinstance(flag.default, dict):
        return "{NAME:N}"
    return "X" if flag.kind in (FlagKind.text, FlagKind.joined) or flag.choices else "N"


def _shown(value: Any) -> str:
    """Return a default as text; empty for None."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return ",".join(_shown(item) for item in value)
    if isinstance(value, dict):
        return ",".join(f"{name}:{_shown(item)}" for name, item in value.items())
    return "" if value is None else str(value)
