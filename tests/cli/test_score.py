"""nmt-score as a user starts it: figures on stdout, complaints in one line on stderr, exit codes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from nmt.config.commands import ScoreConfig
from tests.commands import run_copy

HYPOTHESES = ["A man in a blue shirt.", "Zwei Hunde laufen im Schnee.", "nothing to see"]
REFERENCES = ["A man in a blue shirt.", "Zwei Hunde rennen im Schnee.", "Nothing to see"]


def nmt_score(
    *arguments: str | Path, stdin: str | bytes | None = None, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the command in a locale without UTF-8, where careless programs break."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    result = run_copy("score", *arguments, stdin=given or b"", LC_ALL="C")
    output, log = result.stdout.decode(), result.stderr.decode()
    completed = subprocess.CompletedProcess(result.args, result.returncode, output, log)
    assert completed.returncode == status, completed.stderr
    return completed


def complaint(*arguments: str | Path, stdin: str | bytes | None = None, status: int) -> str:
    """The one line that a failing command prints, with nothing on stdout."""
    result = nmt_score(*arguments, stdin=stdin, status=status)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def write(path: Path, lines: list[str]) -> Path:
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture
def sys_file(tmp_path: Path) -> Path:
    return write(tmp_path / "hypotheses.txt", HYPOTHESES)


@pytest.fixture
def ref_file(tmp_path: Path) -> Path:
    return write(tmp_path / "reference.txt", REFERENCES)


def test_bleu_with_signature_is_the_default(sys_file: Path, ref_file: Path) -> None:
    oracle = BLEU()
    score = oracle.corpus_score(HYPOTHESES, [REFERENCES]).score
    lines = nmt_score("--sys", sys_file, "--ref", ref_file).stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"BLEU|{oracle.get_signature()} = {score:.2f} ")


def test_one_line_for_each_metric_in_the_order_asked_for(sys_file: Path, ref_file: Path) -> None:
    lines = nmt_score("--sys", sys_file, "--ref", ref_file, "--metrics", "exact,ter,chrf,bleu").stdout.splitlines()
    assert [line.split("|")[0] for line in lines] == ["exact match", "TER", "chrF2", "BLEU"]
    assert lines[0].endswith(" = 33.33 (1 of 3 lines)")


def test_hypotheses_from_standard_input(sys_file: Path, ref_file: Path) -> None:
    from_file = nmt_score("--sys", sys_file, "--ref", ref_file).stdout
    assert nmt_score("--ref", ref_file, stdin="\n".join(HYPOTHESES)).stdout == from_file
    assert nmt_score("--sys", "-", "--ref", ref_file, stdin="\n".join(HYPOTHESES)).stdout == from_file


def test_compressed_files(tmp_path: Path, sys_file: Path, ref_file: Path) -> None:
    packed = write(tmp_path / "h.gz", HYPOTHESES), write(tmp_path / "r.gz", REFERENCES)
    expected = nmt_score("--sys", sys_file, "--ref", ref_file).stdout
    assert nmt_score("--sys", packed[0], "--ref", packed[1]).stdout == expected


def test_several_references(tmp_path: Path, sys_file: Path, ref_file: Path) -> None:
    second = write(tmp_path / "second.txt", ["x", "Zwei Hunde laufen im Schnee.", "y"])
    expected = "exact match|nrefs:2|case:mixed|unit:line|version:"
    several = f"{ref_file},{second}"
    for references in (["--ref", several], ["--ref", ref_file, second], ["--ref", ref_file, "--ref", second]):
        line = nmt_score("--sys", sys_file, "--metrics", "exact", *references).stdout
        assert line.startswith(expected)
        assert line.endswith(" = 66.67 (2 of 3 lines)\n")


def test_options_reach_score_and_signature(sys_file: Path, ref_file: Path) -> None:
    line = nmt_score("--sys", sys_file, "--ref", ref_file, "--tokenize", "none", "--lowercase").stdout
    oracle = BLEU(tokenize="none", lowercase=True)
    score = oracle.corpus_score(HYPOTHESES, [REFERENCES]).score
    assert line.startswith(f"BLEU|{oracle.get_signature()} = {score:.2f} ")


def test_json_holds_everything(sys_file: Path, ref_file: Path) -> None:
    output = nmt_score("--sys", sys_file, "--ref", ref_file, "--metrics", "ter,exact", "--format", "json").stdout
    tree = json.loads(output)
    assert (tree["sys"], tree["ref"], tree["lines"]) == (str(sys_file), [str(ref_file)], 3)
    ter, exact = tree["scores"]
    assert (ter["metric"], ter["name"], ter["higher_is_better"]) == ("ter", "TER", False)
    assert exact["score"] == pytest.approx(100 / 3)
    assert "unit:line" in exact["signature"]


def test_different_line_counts_are_bad_data(sys_file: Path, tmp_path: Path) -> None:
    short = write(tmp_path / "short.txt", REFERENCES[:2])
    message = complaint("--sys", sys_file, "--ref", short, status=65)
    assert f"{sys_file} has 3 lines, {short} has 2" in message


def test_empty_lines_count_as_lines(tmp_path: Path) -> None:
    hypotheses = write(tmp_path / "h.txt", ["a", "", "b", ""])
    line = nmt_score("--sys", hypotheses, "--ref", hypotheses, "--metrics", "exact").stdout
    assert line.endswith(" = 100.00 (4 of 4 lines)\n")


def test_empty_files_are_bad_data(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.txt", [])
    assert f"{empty} is empty" in complaint("--sys", empty, "--ref", empty, status=65)
    assert "standard input is empty" in complaint("--ref", empty, stdin="", status=65)


def test_an_empty_hypothesis_file_shows_both_counts(tmp_path: Path, ref_file: Path) -> None:
    empty = write(tmp_path / "empty.txt", [])
    assert f"{empty} has 0 lines, {ref_file} has 3" in complaint("--sys", empty, "--ref", ref_file, status=65)


def test_missing_file_is_missing_input(sys_file: Path, tmp_path: Path) -> None:
    assert "nowhere.txt" in complaint("--sys", sys_file, "--ref", tmp_path / "nowhere.txt", status=66)


def test_no_reference_is_a_usage_error(sys_file: Path) -> None:
    assert "--ref FILE" in complaint("--sys", sys_file, status=2)


def test_unknown_metric_lists_metrics_and_the_nearest(sys_file: Path, ref_file: Path) -> None:
    message = complaint("--sys", sys_file, "--ref", ref_file, "--metrics", "bluu", status=2)
    assert "did you mean 'bleu'?" in message
    assert "aer, bleu, brackets, chrf, chrf++, comet, exact, metricx, paper_bleu, rouge_l, ter" in message


@pytest.mark.parametrize("metric", ["bleu", "chrf", "exact"])
def test_unknown_tokenizer_lists_tokenizers(sys_file: Path, ref_file: Path, metric: str) -> None:
    arguments = ["--sys", sys_file, "--ref", ref_file, "--metrics", metric, "--tokenize", "non"]
    message = complaint(*arguments, status=2)
    assert "did you mean 'none'?" in message
    assert "13a, intl, char" in message


def test_bytes_that_are_not_text_are_named_or_left_out(ref_file: Path, tmp_path: Path) -> None:
    hypotheses = tmp_path / "h.txt"
    hypotheses.write_bytes(b"A man in a blue shirt.\nbad \xff byte\nNothing to see\n")
    arguments = ["--sys", hypotheses, "--ref", ref_file, "--metrics", "exact"]
    assert f"{hypotheses}:2:4" in complaint(*arguments, status=65)
    replaced = nmt_score(*arguments, "--on-invalid-utf8", "replace").stdout
    assert replaced.endswith("(2 of 3 lines)\n")
    skipped = nmt_score(*arguments, "--on-invalid-utf8", "skip").stdout
    assert skipped.endswith("(2 of 2 lines)\n")


def test_characters_that_look_like_line_breaks_do_not_break_lines(tmp_path: Path) -> None:
    hypotheses = write(tmp_path / "h.txt", ["a\u2028b", "c\x85d", "e\x0cf"])
    line = nmt_score("--sys", hypotheses, "--ref", hypotheses, "--metrics", "exact").stdout
    assert line.endswith("(3 of 3 lines)\n")


def test_warns_of_subword_marks(tmp_path: Path) -> None:
    hypotheses = write(tmp_path / "h.txt", ["ein gro@@ ßer Hund", "\u2581ein \u2581Mann", "gut"])
    result = nmt_score("--sys", hypotheses, "--ref", hypotheses)
    assert "2 of 3 hypotheses contain subword marks ('@@ ' or '\u2581'), and 2 of 3 references" in result.stderr
    assert "the score counts subword tokens, not words" in result.stderr and result.stderr.count("\n") == 1


CUT, WHOLE = ["ein gro@@ ßer Hund", "hau@@", "gut"], ["ein großer Hund", "hau", "gut"]


def test_pieces_beside_words_get_a_warning_that_says_which_is_which(tmp_path: Path) -> None:
    cut, whole = write(tmp_path / "cut.txt", CUT), write(tmp_path / "whole.txt", WHOLE)
    result = nmt_score("--sys", cut, "--ref", whole, "--metrics", "exact")
    assert (
        "the hypotheses are in subword tokens, the references in words; join the tokens with --remove-bpe"
        in result.stderr
    )
    assert result.stdout.endswith("(1 of 3 lines)\n")  # nothing is joined unasked
    result = nmt_score("--sys", whole, "--ref", f"{cut},{whole}")
    assert "0 of 3 hypotheses" in result.stderr and "2 of 6 references" in result.stderr
    assert "the references are in subword tokens, the hypotheses in words" in result.stderr


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (["--remove-bpe"], CUT),
        (["--post-process", "subword_nmt"], CUT),
        (["--remove-bpe", "sentencepiece"], ["\u2581ein \u2581gro ßer \u2581Hund", "\u2581ha u", "\u2581gut"]),
    ],
)
def test_pieces_are_joined_on_both_sides_before_scoring(flags: list[str], lines: list[str], tmp_path: Path) -> None:
    cut, whole = write(tmp_path / "cut.txt", lines), write(tmp_path / "whole.txt", WHOLE)
    for hypotheses, reference in ((cut, whole), (whole, cut), (cut, f"{whole},{cut}")):
        result = nmt_score("--sys", hypotheses, "--ref", reference, "--metrics", "exact", *flags)
        assert result.stdout.endswith("(3 of 3 lines)\n") and result.stderr == ""


def test_marks_that_are_left_after_joining_are_told_of(tmp_path: Path) -> None:
    lines = write(tmp_path / "cut.txt", CUT)
    assert "contain subword marks" in nmt_score("--sys", lines, "--ref", lines, "--remove-bpe", "sentencepiece").stderr


def test_who_wants_pieces_scored_is_not_warned(tmp_path: Path) -> None:
    assert ScoreConfig().remove_bpe is None
    lines = write(tmp_path / "cut.txt", CUT)
    assert nmt_score("--sys", lines, "--ref", lines, "--no-remove-bpe").stderr == ""


def test_warns_of_tokenized_hypotheses_unless_the_tokenizer_is_none(tmp_path: Path) -> None:
    hypotheses = write(tmp_path / "h.txt", ["a man , in blue , plays .", "two dogs ."])
    arguments = ["--sys", hypotheses, "--ref", hypotheses]
    assert "look tokenized" in nmt_score(*arguments).stderr
    assert nmt_score(*arguments, "--tokenize", "none").stderr == ""


def test_ordinary_text_gives_no_warning(sys_file: Path, ref_file: Path) -> None:
    assert nmt_score("--sys", sys_file, "--ref", ref_file).stderr == ""


def test_does_not_import_torch(sys_file: Path, ref_file: Path) -> None:
    program = (
        "import sys, atexit; atexit.register(lambda: print('torch' in sys.modules));"
        "from nmt_cli.score import main; main()"
    )
    arguments = ["--sys", str(sys_file), "--ref", str(ref_file)]
    output = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert output.stdout.endswith("False\n")


def test_a_missing_line_is_looked_for(tmp_path: Path) -> None:
    lines = ["x" * (1 + 37 * number % 101) for number in range(200)]
    whole, torn = write(tmp_path / "whole.txt", lines), write(tmp_path / "torn.txt", lines[:100] + lines[101:])
    message = complaint("--sys", torn, "--ref", whole, status=65)
    assert "they diverge near line 101" in message


def test_a_folder_is_missing_input(sys_file: Path, tmp_path: Path) -> None:
    assert "Is a directory" in complaint("--sys", sys_file, "--ref", tmp_path, status=66)


def test_the_longest_line_is_an_option(tmp_path: Path) -> None:
    lines = write(tmp_path / "long.txt", ["x" * 5_000_000])
    arguments = ["--sys", lines, "--ref", lines, "--metrics", "exact"]
    assert "--max-line-bytes" in complaint(*arguments, status=65)
    assert "(1 of 1 line)" in nmt_score(*arguments, "--max-line-bytes", "6000000").stdout


def test_a_metric_in_capitals_is_recognised(sys_file: Path, ref_file: Path) -> None:
    message = complaint("--sys", sys_file, "--ref", ref_file, "--metrics", "BLEU", status=2)
    assert "did you mean 'bleu'?" in message
