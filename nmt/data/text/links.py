"""Word alignments as sets of links, and their symmetrization.

A link is a pair of words, source and target, each counted from 0. Pharaoh's format, which other aligners write too, has a
line of links for each sentence pair: ``0-0 1-2 2-1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from nmt.config.choices import Symmetrization

Link = tuple[int, int]

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # target, source


def pharaoh(links: Iterable[Link]) -> str:
    """Return a line of Pharaoh's format, in the order of the source words."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def symmetrized(forward: Set[Link], backward: Set[Link], rule: Symmetrization) -> set[Link]:
    """Combine the alignments of both directions (Koehn, Och and Marcu 2003; Koehn et al. 2005).

    The grow rules start with the common links. They add links of either direction that are next to a link, also
    diagonally, and align an unaligned word, until none is left. The final step adds links anywhere that align an unaligned
    word, of ``forward`` first; with "and", both words must be unaligned.
    """
    union = set(forward) | set(backward)
    if rule is Symmetrization.none:
        return set(forward)
    if rule is Symmetrization.union:
        return union
    grown = _GrowingLinks(set(forward) & set(backward))
    if rule is not Symmetrization.intersection:
        grown.grow(union)
    if rule in (Symmetrization.grow_diag_final, Symmetrization.grow_diag_final_and):
        for direction in (forward, backward):
            grown.add_final(direction, both=rule is Symmetrization.grow_diag_final_and)
    return grown.links


class _GrowingLinks:
    """Links and the words that they align."""

    def __init__(self, links: set[Link]) -> None:
        self.links = links
        self._sources, self._targets = {source for source, _ in links}, {target for _, target in links}

    def grow(self, union: Set[Link]) -> None:
        """Grow in the order of target words, then source words; a new link grows in the same pass if it comes later."""
        size = -1
        while len(self.links) > size:
            size = len(self.links)
            for source, target in _by_target(union):
                if (source, target) in self.links:
                    self._grow_around(source, target, union)

    def _grow_around(self, source: int, target: int, union: Set[Link]) -> None:
        for beside, below in _NEIGHBOURS:
            link = source + below, target + beside
            if link in union and (link[0] not in self._sources or link[1] not in self._targets):
                self._add(link)

    def add_final(self, direction: Set[Link], *, both: bool) -> None:
        """``both``: only links of two unaligned words."""
        for source, target in _by_target(direction):
            free = [source not in self._sources, target not in self._targets]
            if all(free) if both else any(free):
                self._add((source, target))

    def _add(self, link: Link) -> None:
        self.links.add(link)
        self._sources.add(link[0])
        self._targets.add(link[1])


def _by_target(links: Set[Link]) -> list[Link]:
    return sorted(links, key=lambda link: (link[1], link[0]))
