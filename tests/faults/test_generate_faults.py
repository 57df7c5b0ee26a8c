"""What nmt-generate does with bad input, bad models and bad luck: one line, the right status, nothing half-written."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run_copy
from tests.tiny_models import WORDS, write_tiny_model

COMMAND = [sys.executable, "-c", "from nmt_cli.generate import main; main()"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "lstm")


def generate(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, bytes, str]:
    """Status, standard output and standard error of the command in a locale without UTF-8."""
    result = run_copy("generate", *arguments, stdin=stdin, LC_ALL="C", PYTHONUTF8="0")
    return result.returncode, result.stdout, result.stderr.decode()


def refused(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, str]:
    """Status and complaint of a command that prints no result and no traceback."""
    status, out, complaint = generate(*arguments, stdin=stdin)
    assert out == b""
    assert "Traceback" not in complaint
    return status, complaint.splitlines()[-1]


@pytest.mark.parametrize(
    ("stdin", "expected"),
    [
        pytest.param(b"", b"", id="empty input"),
        pytest.param(b"\n", b"\n", id="one empty line"),
        pytest.param(b"ein mann\nrot", b"a man\nred\n", id="no newline at the end"),
        pytest.param(b"ein mann\r\n\r\nrot\r\n", b"a man\n\nred\n", id="carriage returns"),
        pytest.param(b"\xef\xbb\xbfrot\n", b"red\n", id="byte-order mark"),
        pytest.param(b"rot\n \t \n\xe3\x80\x80\nrot\n", b"red\n\n\nred\n", id="lines of white space"),
    ],
)
def test_line_count_is_sacred(model, stdin, expected):
    status, out, _ = generate("--path", model, stdin=stdin)
    assert (status, out) == (0, expected)


def test_bytes_that_are_no_text_are_replaced_and_keep_their_line(model):
    status, out, log = generate("--path", model, stdin=b"rot\n\xff\xfe\xfd\nrot\n\x00\n")
    assert status == 0
    assert out.count(b"\n") == 4
    assert out.split(b"\n")[0] == out.split(b"\n")[2] == b"red"
    assert "not text" in log


def test_bytes_that_are_no_text_are_an_error_if_so_wished(model):
    status, complaint = refused("--path", model, "--on-invalid-utf8", "error", stdin=b"rot\nro\xfft\n")
    assert status == 65
    assert "standard input:2:2: byte 0xff" in complaint


def test_skipped_line_leaves_an_empty_one(model):
    status, out, _ = generate("--path", model, "--on-invalid-utf8", "skip", stdin=b"rot\nro\xfft\nrot\n")
    assert (status, out) == (0, b"red\n\nred\n")


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        pytest.param(["--path", "nowhere"], 66, "nowhere does not exist", id="missing model"),
        pytest.param([], 2, "--path", id="no model named"),
        pytest.param(["--path", "MODEL", "--input", "nowhere.txt"], 66, "nowhere.txt", id="missing input"),
        pytest.param(["--path", "MODEL", "--input", "."], 66, "cannot read .", id="folder as input"),
        pytest.param(["--path", "MODEL", "--nbest", "6"], 2, "nbest=6", id="more wanted than the beam finds"),
        pytest.param(["--path", "MODEL", "--beam", "0"], 2, "beam_size=0", id="no beam"),
        pytest.param(["--path", "MODEL", "--device", "cuda:99"], 69, "cuda:99", id="absent GPU"),
        pytest.param(["--path", "MODEL", "--device", "cpu", "--cuda-graphs"], 2, "device is cpu", id="graphs on a CPU"),
        pytest.param(["--path", "MODEL", "no-corpus"], 66, "no-corpus", id="missing corpus"),
        pytest.param(["--path", "MODEL", "--beem", "4"], 2, "--beam", id="misspelt flag"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(model, arguments, status, complaint):
    found, line = refused(*[str(model) if one == "MODEL" else one for one in arguments], stdin=b"rot\n")
    assert found == status, line
    assert complaint in line


def test_truncated_compressed_input_is_a_data_error(model, tmp_path):
    packed = gzip.compress("".join(f"rot {number}\n" for number in range(1000)).encode())
    (tmp_path / "source.gz").write_bytes(packed[: len(packed) // 2])
    status, complaint = refused("--path", model, "--input", tmp_path / "source.gz")
    assert status == 65
    assert "source.gz" in complaint


def test_output_that_exists_is_refused_and_kept(model, tmp_path):
    (tmp_path / "out.txt").write_text("precious")
    status, complaint = refused("--path", model, "--output", tmp_path / "out.txt", stdin=b"rot\n")
    assert status == 73
    assert "--overwrite" in complaint
    assert (tmp_path / "out.txt").read_text() == "precious"


def test_output_that_exists_is_replaced_if_so_wished(model, tmp_path):
    (tmp_path / "out.txt").write_text("old")
    status, _, _ = generate("--path", model, "--output", tmp_path / "out.txt", "--overwrite", stdin=b"rot\n")
    assert status == 0
    assert (tmp_path / "out.txt").read_text() == "red\n"


def test_failure_half_way_leaves_no_output_file(model, tmp_path):
    stdin = b"rot\n" * 20 + b"\xff\n"
    arguments = ["--output", tmp_path / "out.txt", "--buffer-size", "4", "--on-invalid-utf8", "error"]
    status, _ = refused("--path", model, *arguments, stdin=stdin)
    assert status == 65
    assert list(tmp_path.iterdir()) == []


def test_output_in_a_folder_that_is_not_there_is_refused(model, tmp_path):
    status, complaint = refused("--path", model, "--output", tmp_path / "no" / "out.txt", stdin=b"rot\n")
    assert status == 73
    assert "out.txt" in complaint


def test_full_disk_on_standard_output_is_an_io_error(model):
    with open("/dev/full", "wb") as full:
        result = subprocess.run([*COMMAND, "--path", str(model)], input=b"rot\n", stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 74
    assert b"Traceback" not in result.stderr


def test_reader_that_leaves_early_is_no_reason_for_a_traceback(model):
    process = subprocess.Popen(
        [*COMMAND, "--path", str(model), "--buffer-size", "10"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"rot\n" * 10)
    process.stdin.flush()
    assert process.stdout.readline() == b"red\n"
    process.stdout.close()
    process.stdin.write(b"rot\n" * 200)
    process.stdin.close()
    log = process.stderr.read().decode()
    assert process.wait() == 141
    assert "Traceback" not in log and "BrokenPipe" not in log


def test_ensemble_of_different_vocabularies_is_refused_by_both_names(model, tmp_path):
    other = write_tiny_model(tmp_path / "other", updates=0, words=WORDS[::-1])
    status, complaint = refused("--path", f"{model}:{other}", stdin=b"rot\n")
    assert status == 2
    assert str(model) in complaint and str(other) in complaint


def test_damaged_model_is_a_data_error_that_names_the_file(tmp_path):
    path = write_tiny_model(tmp_path / "m", updates=0)
    parameters = bytearray((path / "model.safetensors").read_bytes())
    parameters[-5] ^= 1
    (path / "model.safetensors").write_bytes(parameters)
    status, complaint = refused("--path", path, stdin=b"rot\n")
    assert status == 65
    assert "model.safetensors" in complaint


def test_model_that_was_never_whole_is_refused(tmp_path):
    path = write_tiny_model(tmp_path / "m", updates=0)
    (path / "manifest.json").unlink()
    status, complaint = refused("--path", path, stdin=b"rot\n")
    assert status == 66
    assert "manifest.json" in complaint


def test_named_pipe_is_written_into_and_stays_one(model, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        status, _, complaint = generate("--path", model, "--output", pipe, "--overwrite", stdin=b"rot\n")
        if not status:
            assert reader.stdout.read() == b"red\n"
        else:
            reader.kill()
    assert status == 0, complaint
    assert pipe.is_fifo()


def test_device_stays_one(model):
    assert generate("--path", model, "--output", "/dev/null", "--overwrite", stdin=b"rot\n")[0] == 0
    assert Path("/dev/null").is_char_device()


def test_folder_as_output_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "no_model").mkdir()
    status, complaint = refused("--path", tmp_path / "no_model", "--output", tmp_path, "--overwrite")
    assert status == 73
    assert str(tmp_path) in complaint


def test_link_as_output_stays_and_its_file_is_replaced(model, tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    assert generate("--path", model, "--output", tmp_path / "link", "--overwrite", stdin=b"rot\n")[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "red\n"


def test_path_of_nothing_but_colons_is_refused(model):
    status, complaint = refused("--path", ":")
    assert status == 2
    assert "does not name a model" in complaint


def test_dash_as_input_is_standard_input(model):
    status, out, _ = generate("--path", model, "--input", "-", stdin=b"rot\n")
    assert (status, out) == (0, b"red\n")


def test_bar_that_cannot_be_shown_does_not_stop_the_work(model, tmp_path):
    with open("/dev/full", "wb") as full:
        command = [*COMMAND, "--path", model, "--progress", "bar"]
        result = subprocess.run(command, input=b"rot\n", stdout=subprocess.PIPE, stderr=full)
    assert (result.returncode, result.stdout) == (0, b"red\n")


def test_line_beyond_the_limit_is_refused_and_the_limit_can_be_raised(model):
    line = b"rot " * 100
    status, out, complaint = generate("--path", model, "--max-line-bytes", "200", stdin=line + b"\n")
    assert (status, out) == (65, b"")
    assert "standard input:1: no line break in the 200 bytes" in complaint and "--max-line-bytes" in complaint
    assert generate("--path", model, "--max-line-bytes", "400", stdin=line + b"\n")[0] == 0
