"""What stands in an SVG picture, for tests."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree


def picture(text: str) -> ElementTree.Element:
    """Its elements, by names without a namespace."""
    return ElementTree.fromstring(text.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1))
