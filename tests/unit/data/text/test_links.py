"""One alignment of both directions: by hand, and beside the published steps as they stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.choices import Symmetrization
from nmt.data.text.links import Link, pharaoh, symmetrized
from nmt.scoring.aer import read_links


def links(line: str) -> set[Link]:
    return set(read_links(line))


def test_links_are_written_in_the_order_of_the_source_words() -> None:
    assert pharaoh({(10, 0), (1, 2), (1, 0)}) == "1-0 1-2 10-0" and pharaoh([]) == ""


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("none", "0-0 1-1 2-1 4-4"),
        ("intersection", "0-0 1-1"),
        ("union", "0-0 1-1 1-2 2-1 3-3 4-4"),
        # 2-1 stands beside 1-1 and aligns word 2 of the source, 1-2 word 2 of the target; 3-3 stands beside neither.
        ("grow_diag", "0-0 1-1 1-2 2-1"),
        ("grow_diag_final", "0-0 1-1 1-2 2-1 3-3 4-4"),
        ("grow_diag_final_and", "0-0 1-1 1-2 2-1 3-3 4-4"),
    ],
)
def test_links_of_both_directions_become_one_alignment(rule: str, found: str) -> None:
    forward, backward = links("0-0 1-1 2-1 4-4"), links("0-0 1-1 1-2 3-3")
    assert pharaoh(symmetrized(forward, backward, Symmetrization[rule])) == found


@pytest.mark.parametrize(
    ("forward", "backward", "rule", "found"),
    [
        ("0-0 1-1", "0-0", "grow_diag", "0-0 1-1"),  # diagonally
        ("0-0 0-1 0-2", "0-0", "grow_diag", "0-0 0-1 0-2"),  # from link to link
        ("0-0 2-2", "0-0", "grow_diag", "0-0"),  # not over a gap
        ("0-0 0-1 1-0 1-1", "0-0 1-1", "grow_diag", "0-0 1-1"),  # all words have links
        ("0-0 0-3", "0-0", "grow_diag_final", "0-0 0-3"),  # the target word had none
        ("0-0 0-3", "0-0", "grow_diag_final_and", "0-0"),  # but the source word had one
        ("0-3", "2-3", "grow_diag_final_and", "0-3"),  # forward first
        ("0-3", "2-3", "grow_diag_final", "0-3 2-3"),
        ("", "", "grow_diag_final_and", ""),
        ("0-0", "", "intersection", ""),
        ("", "0-0", "union", "0-0"),
    ],
)
def test_single_cases(forward: str, backward: str, rule: str, found: str) -> None:
    assert pharaoh(symmetrized(links(forward), links(backward), Symmetrization[rule])) == found


def by_the_published_steps(forward: set[Link], backward: set[Link], *, final: bool, both: bool) -> set[Link]:
    """Koehn et al. 2005, "Edinburgh System Description", figure 1: e is a target word, f a source word, "either" becomes
    "both" with "and"."""
    size = range(7)
    alignment = {(e, f) for f, e in forward & backward}
    union = {(e, f) for f, e in forward | backward}

    def free(e: int, f: int) -> tuple[bool, bool]:
        return all((e, other) not in alignment for other in size), all((other, f) not in alignment for other in size)

    while True:
        before = len(alignment)
        for e in size:
            for f in size:
                if (e, f) in alignment:
                    for by_e, by_f in ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)):
                        new = e + by_e, f + by_f
                        if new in union and any(free(*new)):
                            alignment.add(new)
        if len(alignment) == before:
            break
    for direction in (forward, backward) if final else ():
        for e in size:
            for f in size:
                if (f, e) in direction and (all(free(e, f)) if both else any(free(e, f))):
                    alignment.add((e, f))
    return {(f, e) for e, f in alignment}


SOME = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


@given(SOME, SOME)
def test_the_steps_are_the_published_ones(forward: set[Link], backward: set[Link]) -> None:
    for rule, final, both in (
        ("grow_diag", False, False),
        ("grow_diag_final", True, False),
        ("grow_diag_final_and", True, True),
    ):
        expected = by_the_published_steps(forward, backward, final=final, both=both)
        assert symmetrized(forward, backward, Symmetrization[rule]) == expected, rule


@given(SOME, SOME)
def test_every_rule_lies_between_intersection_and_union(forward: set[Link], backward: set[Link]) -> None:
    found = [symmetrized(forward, backward, Symmetrization[f"grow_diag{end}"]) for end in ("", "_final_and", "_final")]
    assert forward & backward <= found[0] <= found[1] and found[0] <= found[2] <= forward | backward
