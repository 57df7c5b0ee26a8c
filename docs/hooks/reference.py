"""Pages of the reference that MkDocs generates from the declarations: commands, components, presets, Python API.

MkDocs calls ``on_files``. The tests call ``pages``.
"""

from __future__ import annotations

import dataclasses
import html
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import yaml  # noqa: E402

import nmt  # noqa: E402
import nmt.criterions  # noqa: E402
import nmt.data.augmentations  # noqa: E402
import nmt.data.tokenizers  # noqa: E402
import nmt.formats  # noqa: E402
import nmt.models  # noqa: E402
import nmt.optim  # noqa: E402
import nmt.scoring  # noqa: E402
import nmt.search  # noqa: E402
from nmt.config.composing.first_screens import FIRST_SCREENS  # noqa: E402
from nmt.config.composing.help import OTHER_FLAGS, SYNTAX  # noqa: E402
from nmt.config.composing.presets import CONF, RECIPES, component_names, default_presets, preset_names  # noqa: E402
from nmt.config.composing.programs import program_of  # noqa: E402
from nmt.config.option import Flag, FlagKind, groups_of, hints_of, options_of  # noqa: E402
from nmt.interface import VocabularySizes  # noqa: E402
from nmt.registry import registry_for  # noqa: E402
from nmt.testing.subjects import load_preset  # noqa: E402
from nmt_cli.command_line.programs import COMMANDS, options_class, purpose_of  # noqa: E402
from nmt_cli.shell.overview import OWN, commands, examples  # noqa: E402

# Roles with options of their own, in the order of the pages.
ROLES = {
    "model": "Models",
    "criterion": "Criterions",
    "optimizer": "Optimizers",
    "scheduler": "Schedulers",
    "tokenizer": "Tokenizers",
    "search": "Searches",
}
METHODS = ("load", "from_model", "translate", "translations", "hypotheses", "options")  # of a Translator, for programs
VOCABULARY = 32_000  # tokens of the joint vocabulary that sizes of presets are counted with


def pages() -> dict[str, str]:
    """Return the generated pages: path in ``docs/``, and text."""
    made = {f"reference/commands/{program_of(command)}.md": _command(command) for command in COMMANDS}
    made |= {f"reference/components/{role}.md": _components(role) for role in ROLES}
    return made | {
        "reference/commands/index.md": _commands(),
        "reference/commands/nmt.md": _umbrella(),
        "reference/presets.md": _presets(),
        "reference/python.md": _python(),
    }


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to those of ``docs/``; a hook of MkDocs."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def _commands() -> str:
    lines = [
        "# Commands",
        "",
        "Each command has a page with all of its options, in the order of a typical experiment.",
        "",
    ]
    lines += ["| command | purpose |", "|---|---|"]
    for command in COMMANDS:
        lines.append(f"| [`{program_of(command)}`]({program_of(command)}.md) | {_cell(purpose_of(command))} |")
    lines += ["", "[`nmt`](nmt.md) runs each of them: `nmt train` is `nmt-train`.", "", "## Syntax of all commands", ""]
    return "\n".join([*lines, _text(SYNTAX), "", _two_columns("flag", "effect", OTHER_FLAGS.items()), ""])


def _umbrella() -> str:
    parts = [
        "# nmt",
        "Runs each command: `nmt train` is the same as `nmt-train`. `python -m nmt train` is the same, too.",
    ]
    parts += ["## Examples", "```sh\n" + "\n".join(f"# {purpose}\n{line}" for purpose, line in examples()) + "\n```"]
    parts += ["## Commands", _two_columns("command", "purpose", commands())]
    parts += ["## Completion and manual pages", _two_columns("command", "effect", OWN.items())]
    parts += ["[Work in the shell](../../how-to/shell.md) shows how to use them."]
    return "\n\n".join(parts) + "\n"


def _two_columns(first: str, second: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(
        [f"| {first} | {second} |", "|---|---|", *(f"| `{name}` | {_cell(text)} |" for name, text in rows)]
    )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _command(command: str) -> str:
    config, program = options_class(command), program_of(command)
    parts = [f"# {program}", f"{purpose_of(command)}.", "## Examples", "```sh"]
    for purpose, line in FIRST_SCREENS[command].examples:
        parts[-1] += f"\n# {purpose}\n" + line.replace(" --", " \\\n    --", 1)
    parts[-1] += "\n```"
    options = [option for option in options_of(config) if "." not in option.key]
    groups = groups_of(config)
    parts += ["## Options", _table([option for option in options if option.key not in groups])]
    for field in dataclasses.fields(config):
        if "section" in field.metadata:
            title = f"## {field.name}"
            parts += [title, f"{_upper(field.metadata['help'])}.", _table(_of_section(field))]
    if groups:
        parts += ["## Components and presets", _groups(config, groups)]
    return "\n\n".join(parts) + "\n"


def _of_section(field: dataclasses.Field[Any]) -> list[Flag]:
    return options_of(field.metadata["section"], f"{field.name}.")


def _groups(config: type, groups: dict[str, str]) -> str:
    lines = ["| group | flag | default | purpose | options |", "|---|---|---|---|---|"]
    flags = {option.key: option for option in options_of(config)}
    for group, default in default_presets(config).items():
        if group in RECIPES:
            lines.append(f"| `{group}` | | none | whole experiment | [presets](../presets.md#{group}) |")
            continue
        option = flags[group]
        name = f"`{option.name}`" if option.name.startswith("--") else ""
        link = f"[{groups[group]}](../components/{groups[group]}.md)"
        lines.append(f"| `{group}` | {name} | `{default}` | {_cell(option.help)} | {link} |")
    return "\n".join(lines)


def _components(role: str) -> str:
    registry = registry_for(role)
    parts = [
        f"# {ROLES[role]}",
        f"Options of each component of the group `{role}`. Choose one with `{role}=NAME`. "
        "[Presets](../presets.md) set several options at once.",
    ]
    for name in registry.names():
        config = registry.config_class(name)
        parts += [f"## `{name}`", _documentation(config), _table(options_of(config, f"{role}."))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _documentation(config: type) -> str:
    text = (config.__doc__ or "").strip()
    return "" if text.startswith(f"{config.__name__}(") else _text(" ".join(text.split()))


def _table(options: Sequence[Flag]) -> str:
    if not options:
        return "No options."
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for option in options:
        names = [f"`{option.name}`"] if option.name.startswith("--") else []
        names.append(f"`{option.key}`")
        lines.append(f"| {'<br>'.join(names)} | {_type(option)} | {_default(option)} | {_cell(option.help)} |")
    return "\n".join(lines)


def _type(option: Flag) -> str:
    """Describe the values of an option in words."""
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    if option.kind is FlagKind.switch:
        return "on or off"
    field = next(field for field in dataclasses.fields(option.owner) if field.name == option.key.rpartition(".")[2])
    return _in_words(hints_of(option.owner)[field.name])


NAMES = {int: "integer", float: "number", str: "text", bool: "on or off", Path: "path"}


def _in_words(hint: Any) -> str:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        return " or ".join(dict.fromkeys(map(_in_words, parts)))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, tuple):
        kinds = dict.fromkeys(_in_words(part) for part in arguments if part is not Ellipsis)
        return f"list of {' or '.join(kinds)}"
    if origin is dict:
        return f"names with {_in_words(arguments[1])}"
    return NAMES.get(hint, getattr(hint, "__name__", str(hint)))


def _default(option: Flag) -> str:
    value = option.default
    if isinstance(value, Enum):
        return f"`{value.name}`"
    if option.kind is FlagKind.switch and isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "`null`"
    if isinstance(value, (list, tuple)):
        return f"`{','.join(str(getattr(item, 'name', item)) for item in value)}`" if value else "empty"
    if isinstance(value, dict):
        return f"`{value}`" if value else "empty"
    return "empty" if value == "" else f"`{value}`"


def _presets() -> str:
    parts = [
        "# Presets and recipes",
        "A preset sets options of one component. A recipe sets a whole experiment: it chooses presets and changes "
        "options of all sections. A method does the same for nmt-monolingual. Each component is a preset too: its "
        "options at their defaults.",
        f"Sizes of models are parameters with a joint vocabulary of {VOCABULARY:,} tokens (with two of this size if the "
        "model shares none).",
    ]
    for group in [*ROLES, *RECIPES]:
        rows = list(_preset_rows(group))
        if rows:
            sized = group == "model"
            head = (
                "| preset | component | parameters | changes | source |" if sized else "| preset | changes | source |"
            )
            rule = "|---|---|---|---|---|" if sized else "|---|---|---|"
            parts += [f"## {group}", "\n".join([head, rule, *rows])]
    return "\n\n".join(parts) + "\n"


def _preset_rows(group: str) -> Iterator[str]:
    for name in component_names(group) if group == "model" else ():
        yield f"| `{name}` | `{name}` | {_size(name)} | defaults | |"
    for name in preset_names(group):
        path = CONF / group / f"{name}.yaml"
        text = path.read_text(encoding="utf-8")
        start = _cell(", ".join([*_base(text), *(f"`{key}={value}`" for key, value in _leaves(_changes(text)))]))
        source = _cell(_comment(text))
        if group == "model":
            component = type(load_preset(name)).__name__
            registered = next(
                n for n in component_names(group) if registry_for(group).config_class(n).__name__ == component
            )
            yield f"| `{name}` | `{registered}` | {_size(name)} | {start} | {source} |"
        else:
            yield f"| `{name}` | {start} | {source} |"


def _size(name: str) -> str:
    config = load_preset(name)
    for shared in (True, False):
        try:
            with torch.device("meta"):
                model = nmt.models.models.build(config, VocabularySizes(VOCABULARY, VOCABULARY, shared=shared))
        except nmt.errors.NMTError:
            continue
        return f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:,.1f} M"
    return ""


def _changes(text: str) -> dict[str, Any]:
    return {key: value for key, value in (yaml.safe_load(text) or {}).items() if key != "defaults"}


def _base(text: str) -> list[str]:
    """Return the presets that a preset starts from, as assignments or names."""
    named = []  # with backticks
    for entry in (yaml.safe_load(text) or {}).get("defaults", []):
        if isinstance(entry, dict):
            named += [f"`{key.rpartition('/')[2]}={value}`" for key, value in entry.items()]
        elif entry != "_self_":
            named.append(f"`{entry}`")
    return named


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            shown = ",".join(map(str, value)) if isinstance(value, list) else value
            yield f"{prefix}{key}", {None: "null", True: "true", False: "false"}.get(shown, shown)


def _comment(text: str) -> str:
    """Return the comment at the top of a preset: where its values come from."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if "@package" not in line:
            lines.append(line.lstrip("# "))
    return " ".join(lines)


def _python() -> str:
    parts = [
        "# Python API",
        "`import nmt` gives these names. [From Python](../how-to/python.md) shows how to use them, and lists the import "
        "paths for plugins and notebooks.",
    ]
    for name in nmt.__all__:
        if name != "__version__":
            members = ", ".join(METHODS) if name == "Translator" else ""
            parts.append(f"::: {nmt._PLACES[name]}.{name}\n    options:\n      members: [{members}]")
    return "\n\n".join(parts) + "\n"


def _text(text: str) -> str:
    """Escape what Markdown would take for markup: flags, placeholders and HTML."""
    text = re.sub(r"(?<![`\w])(--[a-z][\w-]*)", r"`\1`", html.escape(text, quote=False))
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([*_])", r"\\\1", piece) for piece in pieces)


def _cell(text: str) -> str:
    """Return text for a cell of a table."""
    return _text(" ".join(text.split())).replace("|", "\\|")
