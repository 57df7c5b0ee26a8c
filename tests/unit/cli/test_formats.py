"""Lines of nmt-generate, from translations made by hand."""

from __future__ import annotations

import json
import math

import torch

from nmt.config.choices import AlignmentKind, OutputFormat
from nmt.translation import TranslatedText, Translation
from nmt_cli.formats import formatter

ATTENTION = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.1, 0.4], [0.0, 0.0, 1.0]])  # two pieces and eos on both sides
BEST = TranslatedText("two dogs", ["two", "dogs"], -math.log(2), [-math.log(2), 0.0, -math.log(4)], ATTENTION, True)
OTHER = TranslatedText("dogs", ["dogs"], -math.log(8), [-math.log(4), 0.0], ATTENTION[:2], False)
FOUND = Translation(7, "zwei hunde", ["zwei", "hunde"], [BEST, OTHER])


def lines(kind: OutputFormat, alignment: AlignmentKind = AlignmentKind.none, nbest: int = 2) -> list[str]:
    return list(formatter(kind, nbest, alignment)(FOUND, "two dogs!"))


def test_fairseq_lines_are_tab_separated_and_in_base_two():
    assert lines(OutputFormat.fairseq, AlignmentKind.hard) == [
        "S-7\tzwei hunde",
        "T-7\ttwo dogs!",
        "H-7\t-1.0\ttwo dogs",
        "D-7\t-1.0\ttwo dogs",
        "P-7\t-1.0000 0.0000 -2.0000",
        "A-7\t1-0 0-1",
        "H-7\t-3.0\tdogs",
        "D-7\t-3.0\tdogs",
        "P-7\t-2.0000 0.0000",
        "A-7\t1-0",
    ]


def test_soft_alignment_has_a_group_for_each_piece_and_eos():
    soft = [line for line in lines(OutputFormat.fairseq, AlignmentKind.soft) if line.startswith("A-7")]
    assert soft[1] == "A-7\t0.100000,0.200000,0.700000 0.500000,0.100000,0.400000"


def test_text_is_exactly_nbest_lines():
    assert lines(OutputFormat.text, nbest=1) == ["two dogs"]
    assert lines(OutputFormat.text, nbest=3) == ["two dogs", "dogs", ""]


def test_json_is_one_line_with_natural_logarithms():
    (line,) = lines(OutputFormat.jsonl, AlignmentKind.soft)
    tree = json.loads(line)
    assert tree["id"] == 7 and tree["reference"] == "two dogs!" and tree["source_tokens"] == ["zwei", "hunde"]
    assert tree["hypotheses"][0]["score"] == -math.log(2)
    assert tree["hypotheses"][1]["finished"] is False
    assert len(tree["hypotheses"][0]["alignment"]) == 3


def test_line_breaks_inside_a_source_do_not_break_the_line():
    broken = Translation(0, "zwei\u2028hunde", [], [OTHER])
    assert list(formatter(OutputFormat.fairseq, 1, AlignmentKind.none)(broken, "a\vb"))[:2] == [
        "S-0\tzwei hunde",
        "T-0\ta b",
    ]


def test_a_json_line_is_one_line_to_every_program_and_says_the_same() -> None:
    source = "".join(map(chr, (*range(0x20), 0x85, 0x2028, 0x2029))) + "\\u2028 ü\U0001f600"
    odd = Translation(0, source, [source], [OTHER])
    (line,) = formatter(OutputFormat.jsonl, 1, AlignmentKind.none)(odd, "a\u2029b")
    assert len(line.splitlines()) == 1 and "ü\U0001f600" in line
    tree = json.loads(line)
    assert (tree["source"], tree["source_tokens"], tree["reference"]) == (source, [source], "a\u2029b")
