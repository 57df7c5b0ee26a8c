"""Measure sentences per second of several systems on one core, in turns, so that other load affects all of them.

    python speed.py --input test.en --rounds 5 --output speed.json \
        --system teacher --path runs/teacher --beam 5 --end \
        --system student --path runs/student --search greedy --dtype int8 --shortlist shortlist.safetensors --end

The words between the name of a system and ``--end`` are options of nmt-generate. Every system is loaded once, and
translates the text once without measurement. Then the systems take turns in each round. The output file has the
sentences per second of each system: the median and all rounds, by CPU time, which other programs change little, and by
wall time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from nmt import Translator, load
from nmt.data.text.lines import Reading
from nmt.errors import DataError, NMTError, UsageError
from nmt.storage.files import write_json
from nmt.translation.translator import translation_options

_OF_LOADING = ("path", "dtype", "engine", "precision", "shortlist")


def systems_in(arguments: list[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the words outside systems, and the options of each system."""
    others, systems, place = list[str](), dict[str, dict[str, Any]](), 0
    while place < len(arguments):
        if arguments[place] != "--system":
            others.append(arguments[place])
            place += 1
            continue
        if "--end" not in arguments[place:] or place + 1 == len(arguments):
            raise UsageError("--system needs a name and --end: --system NAME FLAGS --end")
        end = arguments.index("--end", place)
        name, options = arguments[place + 1], options_in(arguments[place + 2 : end])
        if "path" not in options:
            raise UsageError(f"--system {name} has no model; give it a --path")
        systems[name] = options
        place = end + 1
    return others, systems


def options_in(words: list[str]) -> dict[str, Any]:
    """Return flags as Python keywords: ``--beam 5`` is ``beam=5``, ``--forbid-unk`` true, ``--no-forbid-unk`` false."""
    found: dict[str, Any] = {}
    place = 0
    while place < len(words):
        if not words[place].startswith("--"):
            raise UsageError(f"{words[place]} is not a flag; give the options of a system as flags, such as --beam 5")
        name, equals, text = words[place].removeprefix("--").replace("-", "_").partition("=")
        value = words[place + 1 : place + 2]
        if equals:
            found[name] = _value(text)
            place += 1
        elif value and not value[0].startswith("--"):
            found[name] = _value(value[0])
            place += 2
        else:
            found[name.removeprefix("no_")] = not name.startswith("no_")
            place += 1
    return found


def _value(word: str) -> Any:
    try:
        return json.loads(word)  # a number
    except ValueError:
        return word


def divided(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options for loading a translator, and those for translating."""
    loading = {name: options[name] for name in _OF_LOADING if name in options}
    return loading, {name: value for name, value in options.items() if name not in _OF_LOADING}


class System:
    """A translator with its search."""

    def __init__(self, options: dict[str, Any]) -> None:
        loading, self._search = divided(options)
        self._translator: Translator = load(loading.pop("path"), device="cpu", workers=1, **loading)
        self.by_cpu: list[float] = []
        self.by_clock: list[float] = []

    def translate(self, lines: list[str]) -> None:
        self._translator.translate(lines, **self._search)

    def measure(self, lines: list[str]) -> None:
        cpu, clock = time.process_time(), time.perf_counter()
        self.translate(lines)
        self.by_cpu.append(len(lines) / (time.process_time() - cpu))
        self.by_clock.append(len(lines) / (time.perf_counter() - clock))

    def figures(self) -> dict[str, Any]:
        named = {"cpu": self.by_cpu, "clock": self.by_clock}
        return {name: {"median": statistics.median(rounds), "rounds": rounds} for name, rounds in named.items()}


def measured(systems: dict[str, System], lines: list[str], rounds: int) -> dict[str, Any]:
    for system in systems.values():
        system.translate(lines)
    for number in range(rounds):
        for name, system in systems.items():
            system.measure(lines)
            print(f"round {number + 1} | {name} | {system.by_cpu[-1]:.1f} sentences a CPU second", file=sys.stderr)
    return {name: system.figures() for name, system in systems.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure sentences per second of several systems, in turns.")
    parser.add_argument("--input", type=Path, required=True, help="text to translate")
    parser.add_argument("--lines", type=int, default=0, help="number of lines to translate; 0: all (0)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the median is reported (5)")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--check", action="store_true", help="only check the arguments")
    try:
        others, named = systems_in(sys.argv[1:])
        arguments = parser.parse_args(others)
        if arguments.rounds < 1 or arguments.lines < 0 or not named:
            raise UsageError("there is nothing to measure; give at least one --system, --rounds 1 and --lines 0")
        if arguments.check:
            for options in named.values():
                translation_options(divided(options)[1])
            return
        lines = [line or "" for line in Reading().lines(arguments.input)][: arguments.lines or None]
        if not lines:
            raise DataError(f"{arguments.input} has no line to translate")
        systems = {name: System(options) for name, options in named.items()}
        write_json(arguments.output, measured(systems, lines, arguments.rounds))
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
