"""The page that ``--help`` shows, generated from the declarations: presets, flags, keys, defaults."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from nmt.config.option import Flag, FlagKind, flags_of, groups_of, options_of, shared
from nmt.config.presets import default_choices, preset_names, schema_names
from nmt.registry import registry_for

FLAG_WIDTH, DEFAULT_WIDTH = 32, 15


@dataclass(frozen=True)
class _Row:
    """One flag as it is shown."""

    flag: str
    default: str
    help: str


def help_page(command: str, config_class: type, plugin_folders: Sequence[Path] = ()) -> str:
    """The whole page as text."""
    program = f"nmt-{command.replace('_', '-')}"
    blocks = [
        (config_class.__doc__ or program).strip(),
        _usage(program, config_class),
        _presets(command, plugin_folders),
        *(_table(title, rows) for title, rows in _sections(config_class) if rows),
        _ending(program, config_class),
    ]
    return "\n\n".join(block for block in blocks if block)


def _usage(program: str, config_class: type) -> str:
    names = {field.name for field in dataclasses.fields(config_class)}
    bare = "[CORPUS FOLDER ...] " if "data" in names else ""
    preset = " [group=preset]" if groups_of(config_class) else ""
    return f"usage: {program} {bare}[--flag value] [key=value]{preset}, in any order"


def _presets(command: str, plugin_folders: Sequence[Path]) -> str:
    """Choices of each group; the default carries a star."""
    lines = []
    for group, default in default_choices(command).items():
        names = [*preset_names(group, plugin_folders), *schema_names(group)]
        marked = [f"{name}*" if name == default else name for name in names]
        lines.append(_hanging(f"  {group:<12}", ", ".join(marked) or "none"))
    if not lines:
        return ""
    return "\n".join(["presets (group=preset; * is the default):", *lines])


def _sections(config_class: type) -> Iterator[tuple[str, list[_Row]]]:
    """Titles with their rows: the command's own options, its sections, then what its groups may hold."""
    groups = groups_of(config_class)
    yield "options", [_row(flag, flag.key in groups) for flag in flags_of(config_class) if "." not in flag.key]
    for field in dataclasses.fields(config_class):
        if "section" in field.metadata:
            rows = [_row(flag) for flag in options_of(field.metadata["section"], f"{field.name}.")]
            yield f"{field.name}: {field.metadata['help']}", rows
    for name, role in groups.items():
        yield f"{name}: options of the {role} chosen", list(_component_rows(name, role))


def _component_rows(group: str, role: str) -> Iterator[_Row]:
    """Each option once, however many components share it; its components are named unless all have it alike."""
    registry = registry_for(role)
    flags: dict[str, dict[str, Flag]] = {}
    for component in registry.names():
        for flag in options_of(registry.config_class(component), f"{group}."):
            flags.setdefault(flag.name, {})[component] = flag
    for owners in flags.values():
        common = shared([*owners.values()])
        rows = {component: _row(dataclasses.replace(common, help=flag.help)) for component, flag in owners.items()}
        defaults = {component: _shown(flag.default) for component, flag in owners.items()}
        texts = {row.help: [name for name in owners if rows[name].help == row.help] for row in rows.values()}
        everywhere = len(texts) == 1 and len(owners) == len(registry.names())
        notes = []
        for text, components in sorted(texts.items(), key=lambda item: -len(item[1])):  # what most mean comes first
            by_default: dict[str, list[str]] = {}
            for name in components:
                by_default.setdefault(defaults[name], []).append(name)
            if len(set(defaults.values())) > 1:
                named = "; ".join(f"{', '.join(names)}: {default}" for default, names in by_default.items())
            else:
                named = "" if everywhere else ", ".join(components)
            notes.append(f"{text} ({named})" if named else text)
        default = "differs" if len(set(defaults.values())) > 1 else next(iter(defaults.values()))
        yield _Row(next(iter(rows.values())).flag, default, "; or ".join(notes))


def _row(flag: Flag, is_group: bool = False) -> _Row:
    if flag.name.endswith("="):
        return _Row(f"{flag.name}{_placeholder(flag)}", _shown(flag.default), flag.help)
    key = flag.key.rpartition(".")[2]
    help = flag.help if flag.name == f"--{key.replace('_', '-')}" else f"{flag.help} [{key}]"
    if is_group:
        return _Row(f"{flag.name} PRESET", "see presets", help)
    if flag.kind is FlagKind.switch:
        negation = {True: "no-", None: "[no-]"}.get(flag.default, "")
        return _Row(f"--{negation}{flag.name[2:]}", _shown(flag.default), help)
    return _Row(f"{flag.name} {_placeholder(flag)}", _shown(flag.default), help)


def _placeholder(flag: Flag) -> str:
    if flag.kind is FlagKind.many:
        return "A,B"
    if flag.kind is FlagKind.optional:
        return "[X]"
    if flag.kind is FlagKind.switch:
        return "true|false"
    return "X" if flag.kind is FlagKind.text or isinstance(flag.default, Enum) else "N"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return ",".join(_shown(item) for item in value) or "-"
    return "-" if value is None or value == "" else str(value)


def _table(title: str, rows: list[_Row]) -> str:
    lines = [title]
    for row in rows:
        flag = row.flag
        if len(flag) > FLAG_WIDTH:  # a line of its own keeps the columns
            lines.append(f"  {flag}")
            flag = ""
        lines.append(_hanging(f"  {flag:<{FLAG_WIDTH}} {row.default:<{DEFAULT_WIDTH}} ", row.help))
    return "\n".join(lines)


def _hanging(start: str, text: str) -> str:
    """``start`` and then ``text``, wrapped under itself."""
    width = min(max(shutil.get_terminal_size((120, 24)).columns, 100), 160)
    lines = textwrap.wrap(text, width - len(start), break_on_hyphens=False) or [""]
    return start + f"\n{' ' * len(start)}".join(lines)


def _ending(program: str, config_class: type) -> str:
    models = "Models are explained in docs/models.md.\n"
    return (
        "A flag is another way of writing section.key=value: the key is the flag with underscores (--save-dir of the\n"
        "section checkpoint: checkpoint.save_dir), or what stands in [brackets]; an option that shows its key has no\n"
        f"flag. What a command line composes to is shown by: {program} ... --cfg job\n"
        f"{models if 'model' in groups_of(config_class) else ''}"
        "Also: -m or --multirun (one job for each value of key=1,2), --config-dir FOLDER (presets of your own), --info,\n"
        "--resolve, --package, --hydra-help, --shell-completion, --version."
    )
