"""What stands on the HTML page of a run, for tests."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

VOID = {"meta", "link", "br", "img", "input"}
SECTIONS = ("Curves", "Translations", "Data", "Model", "Cost", "Configuration", "Environment")


class Page(HTMLParser):
    """Checks that elements are closed in order; collects elements and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._within: list[tuple[str, list[str]]] = []  # of each element, in the order of their beginnings
        self._inside: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self._inside.append([])
            self._within.append((tag, self._inside[-1]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)
            for texts in self._inside:
                texts.append(data)

    def headings(self) -> list[str]:
        return [text for text in self.texts if text in SECTIONS]

    def text(self, tag: str) -> list[str]:
        """What each element of a kind has to say."""
        return [" ".join("".join(texts).split()) for kind, texts in self._within if kind == tag]


def read(folder: Path) -> Page:
    """That of a run folder; its elements are closed in order."""
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def data_of(text: str) -> Any:
    """The data for the script of a page."""
    return json.loads(text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])
