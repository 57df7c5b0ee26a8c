"""nmt-align: links of small models, what is chosen and told, and what is refused."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import pytest

import nmt
from tests.commands import run_copy
from tests.tiny_models import in_english, some_lines, write_tiny_model

LINES = some_lines(30, seed=7, longest=4)
SIZES = {"num_heads": 2, "decoder_layers": 2}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("align")
    write_tiny_model(folder / "model", model="transformer", **SIZES)
    write_tiny_model(folder / "back", model="transformer", reverse=True, **SIZES)
    write_tiny_model(folder / "lstm", updates=3)
    sources = [*LINES, "", "ein mann"]
    references = [*map(in_english, LINES), "a man", ""]
    gold = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in LINES]
    for name, lines in {
        "de": sources,
        "en": references,
        "gold": [*gold, "", ""],
        "few.gold": gold[:-1],
        "bad.gold": ["0-9", *gold[1:], "", ""],
        "odd.gold": ["0:0", *gold[1:], "", ""],
        "valid.de": LINES[:20],
        "valid.en": list(map(in_english, LINES[:20])),
        "valid.gold": gold[:20],
        "short": references[:-2],
        "empty": [],
    }.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "en.gz").write_bytes(gzip.compress((folder / "en").read_bytes()))
    (folder / "latin").write_bytes(b"h\xf6rt\n" * 32)
    return folder


def align(place: Path, line: str) -> tuple[int, list[str], str]:
    done = run_copy("align", *line.split(), cwd=place)
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()


def as_lines(found: list[list[tuple[int, int]]]) -> list[str]:
    return [" ".join(f"{source}-{target}" for source, target in links) for links in found]


def test_a_line_of_links_stands_for_each_pair_in_their_order(place: Path) -> None:
    status, output, log = align(place, "--path model --src de --ref en.gz --device cpu")
    assert status == 0 and output[-2:] == ["", ""], log
    expected = nmt.align(
        place / "model", [*LINES, "", "ein mann"], [*map(in_english, LINES), "a man", ""], device="cpu"
    )
    assert output == as_lines(expected) and any(output)
    assert "aligning by the mean of the last layer's heads (--layer 2 --head 0 --no-shift)" in log
    assert "aligned 32 of 32 pairs" in log


def test_the_choice_is_told_in_flags_that_give_the_same(place: Path) -> None:
    status, chosen, log = align(place, "--path model --src de --ref en --gold gold")
    assert status == 0 and "on the first 32 pairs of the text" in log, log
    (flags,) = re.findall(r"model: (.*) \(alignment error rate", log)
    assert align(place, f"--path model --src de --ref en {flags}")[1] == chosen
    status, again, other_log = align(place, f"--path model --src de --ref en {flags} --gold gold")
    assert (status, again) == (0, chosen) and re.findall("rate .* %", other_log) == re.findall("rate .* %", log)


def test_validation_pairs_are_files_of_their_own(place: Path) -> None:
    valid = "--valid-src valid.de --valid-ref valid.en --gold valid.gold --valid-count 10"
    status, output, log = align(place, f"--path model --src de --ref en {valid}")
    assert status == 0 and len(output) == 32 and "on 10 pairs of valid.de" in log, log


def test_both_directions_choose_together_and_become_one(place: Path) -> None:
    both = "--path model --reverse back --src de --ref en"
    status, usual, log = align(place, both)
    assert status == 0, log
    (flags,) = re.findall(r"both directions agree best with (.*) \(F1", log)
    assert align(place, f"{both} {flags} --symmetrize grow-diag-final-and")[1] == usual
    found = {
        rule: align(place, f"{both} {flags} --symmetrize {rule}")[1] for rule in ("union", "intersection", "grow-diag")
    }
    for union, grown, common in zip(found["union"], found["grow-diag"], found["intersection"]):
        assert set(common.split()) <= set(grown.split()) <= set(union.split())
    ahead = re.sub(r"--(no-)?reverse\S+( \d+)?", "", flags)
    alone = align(place, f"--path model --src de --ref en {ahead}")[1]
    assert align(place, f"{both} {flags} --symmetrize none")[1] == alone


def test_nmt_score_reads_what_is_written(place: Path) -> None:
    assert align(place, "--path model --src de --ref en --gold gold --output found --overwrite")[0] == 0
    done = run_copy("score", "--sys", "found", "--ref", "gold", "--metrics", "aer", cwd=place)
    rate = re.search(rb"= ([\d.]+) ", done.stdout)
    assert done.returncode == 0 and rate is not None and float(rate[1]) < 30.0, done.stderr


def test_nmt_preprocess_makes_a_corpus_with_it(place: Path) -> None:
    assert align(place, "--path model --src valid.de --ref valid.en --output valid.align --overwrite")[0] == 0
    line = "--source-lang de --target-lang en --trainpref valid --align-suffix align --tokenizer words --destdir corpus"
    done = run_copy("preprocess", *line.split(), cwd=place)
    assert done.returncode == 0, done.stderr


def test_an_output_may_be_packed_and_is_kept(place: Path) -> None:
    status, output, _ = align(place, "--path model --src de --ref en --output packed.gz")
    expected = align(place, "--path model --src de --ref en")[1]
    assert (status, output) == (0, [])
    assert gzip.decompress((place / "packed.gz").read_bytes()).decode().splitlines() == expected
    status, _, log = align(place, "--path model --src de --ref en --output packed.gz")
    assert status == 73 and "packed.gz" in log


def test_lines_that_are_not_utf8_may_be_left_out(place: Path) -> None:
    status, output, log = align(place, "--path model --src latin --ref en --on-invalid-utf8 skip")
    assert (status, output) == (0, [""] * 32), log


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("--src de --ref en", 2, "name the model"),
        ("--path model --src de", 2, "name the text to align"),
        ("--path model --src de --ref short", 65, "de has 32 lines, but short has 30"),
        ("--path model --src empty --ref empty", 65, "empty is empty"),
        ("--path model --src latin --ref en", 65, "UTF-8"),
        ("--path model --src none --ref en", 66, "none does not exist"),
        ("--path none --src de --ref en", 66, "none"),
        ("--path model --reverse none --src de --ref en", 66, "none"),
        (
            "--path model --reverse model --src de --ref en",
            2,
            "--reverse model must translate from en to de: the model translates from de to en, not from en",
        ),
        ("--path model:lstm --src de --ref en", 2, "differ in their numbers of layers or heads"),
        ("--path model --src de --ref en --layer 3", 2, "--layer 3 is out of range for the model model"),
        (
            "--path model --reverse back --src de --ref en --reverse-head 3",
            2,
            "--reverse-head 3 is out of range for the model back",
        ),
        ("--path model --src de --ref en --layer 0", 2, "layer=0 must be a finite number greater than zero"),
        ("--path model --src de --ref en --head -1", 2, "head=-1"),
        ("--path model --src de --ref en --symmetrize union", 2, "--symmetrize: only with --reverse"),
        ("--path model --src de --ref en --no-reverse-shift", 2, "--reverse-shift: only with --reverse"),
        ("--path model --src de --ref en --symmetrize grown", 2, "grown"),
        ("--path model --src de --ref en --gold few.gold", 65, "few.gold has 29 lines, but en has 32"),
        ("--path model --src de --ref en --gold bad.gold", 65, "bad.gold:1: the link 0-9 is out of range"),
        ("--path model --src de --ref en --gold odd.gold", 65, "odd.gold:1: '0:0' is not a link"),
        ("--path model --src de --ref en --gold none", 66, "none"),
        ("--path model --src de --ref en --gold gold --valid-src valid.de", 2, "give both --valid-src and --valid-ref"),
        (
            "--path model --src de --ref en --valid-src valid.de --valid-ref valid.en",
            2,
            "validation pairs select heads only with gold alignments",
        ),
        ("--path model --src de --ref en --gold gold --valid-src valid.de --valid-ref en", 65, "valid.de has 20 lines"),
        ("--path model --src de --ref en --output de --overwrite", 73, "would replace the input --src de"),
        ("--path model --src de --ref en --output none/x", 73, "none is not a folder"),
        ("--path model --src de --ref en --tag fr", 2, "translates from de to en, not to fr"),
    ],
)
def test_what_cannot_be_aligned_is_refused_in_one_sentence(place: Path, line: str, status: int, said: str) -> None:
    found, output, log = align(place, line)
    complaints = [one for one in log.splitlines() if one.startswith("nmt-align: ")]
    assert found == status and not output and len(complaints) == 1 and said in complaints[0], log


def test_the_output_of_another_command_is_refused_as_a_pipe(place: Path) -> None:
    """Bash gives such a path for ``<(cat en)``."""
    end, writer = os.pipe()
    try:
        status, output, log = align(place, f"--path model --src de --ref /proc/{os.getpid()}/fd/{end}")
    finally:
        os.close(end)
        os.close(writer)
    assert status == 66 and not output, log
    assert log.endswith(f"fd/{end} is a pipe, and the text is read more than once; write it to a file, and name that\n")
