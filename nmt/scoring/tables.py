"""Draw tables for a terminal, in Markdown and in LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.config.choices import ScoreFormat

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {sign: f"\\{sign}" for sign in "&%$#_{}"} | {"±": r"$\pm$"}


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]], style: ScoreFormat) -> list[str]:
    """Return the lines of a table."""
    if style is ScoreFormat.latex:
        return _latex(head, rows)
    cells = [
        [cell.replace("|", "\\|") for cell in row] if style is ScoreFormat.markdown else row for row in (head, *rows)
    ]
    widths = [max(map(len, column)) for column in zip(*cells)]
    if style is ScoreFormat.markdown:
        lines = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths))} |" for row in cells]
        return [lines[0], f"|{'|'.join('-' * (width + 2) for width in widths)}|", *lines[1:]]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]


def _latex(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"\\begin{{tabular}}{{{'l' * len(head)}}}", "\\hline"]
    for number, row in enumerate((head, *rows)):
        lines.append(" & ".join(map(escaped, row)) + r" \\")
        lines += ["\\hline"] if number == 0 else []
    return [*lines, "\\hline", "\\end{tabular}"]


def escaped(text: str) -> str:
    """Escape the special characters of LaTeX."""
    return "".join(_SPECIAL.get(sign, sign) for sign in text)
