"""A page within a notebook."""

from __future__ import annotations

import html


def framed(page: str, title: str) -> str:
    """The page in a frame of its own, whose script reaches nothing outside."""
    frame = 'style="width: 100%; height: 45rem; border: 0" sandbox="allow-scripts"'
    return f'<iframe title="{html.escape(title)}" {frame} srcdoc="{html.escape(page)}"></iframe>'
