"""Show a page in a notebook."""

from __future__ import annotations

import html


def framed(page: str, title: str) -> str:
    """Return the page in a sandboxed frame, whose script cannot access the notebook."""
    frame = 'style="width: 100%; height: 45rem; border: 0" sandbox="allow-scripts"'
    return f'<iframe title="{html.escape(title)}" {frame} srcdoc="{html.escape(page)}"></iframe>'
