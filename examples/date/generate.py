"""Generate the date task: dates in many written forms on the source side, YYYY-MM-DD on the target side.

    python examples/date/generate.py dates/text --size 30000 --seed 1

Writes train, valid and test as ``.src`` and ``.tgt`` files, one date per line. The dates of valid and test occur in no
other split, in any spelling, so a model cannot have memorized them.

These conventions give every text one meaning:
    slashes   month first, as in the United States (9/27/1994), unless a four-digit year comes first (1994/09/27) or the
              month is in letters (27/Sep/1994)
    dots      day first, as in Europe (27.9.1994), unless a four-digit year comes first (1994.09.27)
    hyphens   year first, ISO 8601 (1994-09-27); or a month in letters (27-Sep-1994)
    Roman     numerals are months (27.IX.1994)
    two-digit years mean 1969 to 2068, the rule of POSIX; other years are never shortened
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from nmt.errors import NMTError
from nmt.storage.files import atomic_write, explained_os_errors

FIRST, LAST = date(1950, 1, 1), date(2049, 12, 31)
SHORT_YEARS = range(1969, 2069)  # years that can be written with two digits

MONTHS = "January February March April May June July August September October November December".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ROMAN = "I II III IV V VI VII VIII IX X XI XII".split()


@dataclass(frozen=True)
class Format:
    """A written form of dates."""

    name: str
    write: Callable[[date], str]
    letters: bool = False  # contains words, which can also be in lower or upper case
    short_year: bool = False  # only for ``SHORT_YEARS``


def ordinal(day: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, ... 11th, 12th, 13th, ... 21st."""
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def long_month(when: date) -> str:
    return MONTHS[when.month - 1]


def short_month(when: date) -> str:
    return MONTHS[when.month - 1][:3]


def weekday(when: date) -> str:
    return WEEKDAYS[when.weekday()]


def two_digits(when: date) -> str:
    return f"{when.year % 100:02d}"


NUMERIC = (
    Format("iso", lambda d: f"{d.year}-{d.month:02d}-{d.day:02d}"),
    Format("iso_basic", lambda d: f"{d.year}{d.month:02d}{d.day:02d}"),
    Format("year_slashes", lambda d: f"{d.year}/{d.month:02d}/{d.day:02d}"),
    Format("year_slashes_bare", lambda d: f"{d.year}/{d.month}/{d.day}"),
    Format("year_dots", lambda d: f"{d.year}.{d.month:02d}.{d.day:02d}"),
    Format("us", lambda d: f"{d.month:02d}/{d.day:02d}/{d.year}"),
    Format("us_bare", lambda d: f"{d.month}/{d.day}/{d.year}"),
    Format("us_short", lambda d: f"{d.month:02d}/{d.day:02d}/{two_digits(d)}", short_year=True),
    Format("us_short_bare", lambda d: f"{d.month}/{d.day}/{two_digits(d)}", short_year=True),
    Format("european", lambda d: f"{d.day:02d}.{d.month:02d}.{d.year}"),
    Format("european_bare", lambda d: f"{d.day}.{d.month}.{d.year}"),
    Format("european_spaced", lambda d: f"{d.day}. {d.month}. {d.year}"),
    Format("european_short", lambda d: f"{d.day:02d}.{d.month:02d}.{two_digits(d)}", short_year=True),
    Format("roman", lambda d: f"{d.day}.{ROMAN[d.month - 1]}.{d.year}"),
    Format("roman_spaced", lambda d: f"{d.day} {ROMAN[d.month - 1]} {d.year}"),
)

WORDS = (
    Format("month_day_year", lambda d: f"{long_month(d)} {d.day}, {d.year}", letters=True),
    Format("mon_day_year", lambda d: f"{short_month(d)} {d.day}, {d.year}", letters=True),
    Format("mon_dot_day_year", lambda d: f"{short_month(d)}. {d.day}, {d.year}", letters=True),
    Format("month_ordinal_year", lambda d: f"{long_month(d)} {ordinal(d.day)}, {d.year}", letters=True),
    Format("mon_day_short", lambda d: f"{short_month(d)} {d.day} '{two_digits(d)}", letters=True, short_year=True),
    Format("day_month_year", lambda d: f"{d.day} {long_month(d)} {d.year}", letters=True),
    Format("day_dot_month_year", lambda d: f"{d.day}. {long_month(d)} {d.year}", letters=True),
    Format("day_mon_year", lambda d: f"{d.day:02d} {short_month(d)} {d.year}", letters=True),
    Format("day_hyphen_mon_year", lambda d: f"{d.day:02d}-{short_month(d)}-{d.year}", letters=True),
    Format(
        "day_hyphen_mon_short", lambda d: f"{d.day}-{short_month(d)}-{two_digits(d)}", letters=True, short_year=True
    ),
    Format("day_slash_mon_year", lambda d: f"{d.day:02d}/{short_month(d)}/{d.year}", letters=True),
    Format("day_mon_year_joined", lambda d: f"{d.day:02d}{short_month(d)}{d.year}", letters=True),
    Format("ordinal_month_year", lambda d: f"{ordinal(d.day)} {long_month(d)} {d.year}", letters=True),
    Format("ordinal_of_month", lambda d: f"{ordinal(d.day)} of {long_month(d)} {d.year}", letters=True),
    Format("the_ordinal_of_month", lambda d: f"the {ordinal(d.day)} of {long_month(d)}, {d.year}", letters=True),
    Format("year_month_day", lambda d: f"{d.year} {long_month(d)} {d.day}", letters=True),
    Format("year_mon_day", lambda d: f"{d.year}-{short_month(d)}-{d.day:02d}", letters=True),
    Format("weekday_us", lambda d: f"{weekday(d)}, {long_month(d)} {d.day}, {d.year}", letters=True),
    Format("weekday_european", lambda d: f"{weekday(d)}, {d.day} {long_month(d)} {d.year}", letters=True),
    Format("weekday_ordinal", lambda d: f"{weekday(d)} the {ordinal(d.day)} of {long_month(d)} {d.year}", letters=True),
    Format("wday_mail", lambda d: f"{weekday(d)[:3]}, {d.day:02d} {short_month(d)} {d.year}", letters=True),
    Format("wday_mon_day_year", lambda d: f"{weekday(d)[:3]} {short_month(d)} {d.day} {d.year}", letters=True),
)

FORMATS = NUMERIC + WORDS


def formats_for(when: date) -> list[Format]:
    """Return the formats that are unambiguous for this date."""
    return [form for form in FORMATS if when.year in SHORT_YEARS or not form.short_year]


def write(when: date, form: Format, generator: random.Random) -> str:
    """Return the date as text.

    Words have usual capitals half of the time; otherwise they are all in lower or all in upper case.
    """
    text = form.write(when)
    if not form.letters:
        return text
    return generator.choice((text, text, text.lower(), text.upper()))


def split_dates(generator: random.Random, held_out: int) -> tuple[list[date], list[date], list[date]]:
    """Return all dates of the period: for training, and two disjoint lists of ``held_out`` dates for valid and test."""
    days = [FIRST + timedelta(days=offset) for offset in range((LAST - FIRST).days + 1)]
    generator.shuffle(days)
    return days[2 * held_out :], days[:held_out], days[held_out : 2 * held_out]


def examples(days: Sequence[date], size: int, generator: random.Random) -> list[tuple[str, str]]:
    """Return ``size`` pairs of written form and ISO date. Dates and formats are drawn uniformly, with replacement."""
    pairs = []
    for _ in range(size):
        when = generator.choice(days)
        pairs.append((write(when, generator.choice(formats_for(when)), generator), when.isoformat()))
    return pairs


def generate(size: int, held_out: int, seed: int) -> dict[str, list[tuple[str, str]]]:
    """Return the three splits: ``size`` training pairs, and one pair for each of the 2 x ``held_out`` other dates."""
    generator = random.Random(seed)
    train, valid, test = split_dates(generator, held_out)
    sets = {"train": examples(train, size, generator)}
    for name, days in (("valid", valid), ("test", test)):
        sets[name] = [pair for when in days for pair in examples([when], 1, generator)]
    return sets


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the date task: train, valid and test, .src and .tgt.")
    parser.add_argument("folder", type=Path, help="folder for the output files")
    parser.add_argument("--size", type=int, default=30000, help="number of training pairs (default: %(default)s)")
    parser.add_argument(
        "--held-out", type=int, default=1000, help="dates in valid and in test, each (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: %(default)s)")
    arguments = parser.parse_args()
    days = (LAST - FIRST).days + 1
    if arguments.size < 1 or not 1 <= arguments.held_out <= days // 4:
        parser.error(f"--size must be at least 1, --held-out from 1 to {days // 4} (a quarter of all dates)")
    try:
        with explained_os_errors(arguments.folder):
            arguments.folder.mkdir(parents=True, exist_ok=True)
        for name, pairs in generate(arguments.size, arguments.held_out, arguments.seed).items():
            for suffix, side in (("src", 0), ("tgt", 1)):
                with atomic_write(arguments.folder / f"{name}.{suffix}") as file:
                    file.write("".join(f"{pair[side]}\n" for pair in pairs).encode())
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
