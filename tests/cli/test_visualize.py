"""nmt-visualize: pages and pictures of a small model, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from nmt.config.visualizing import VisualizeConfig
from tests import html_pages
from tests.commands import run_copy
from tests.tiny_models import write_tiny_model
from tests.unit.reporting.test_attention_page import data_of
from tests.unit.reporting.test_curves import write_log


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("visualize")
    write_tiny_model(folder / "model", model="transformer", updates=3, num_heads=4, encoder_layers=2)
    write_tiny_model(folder / "lstm", updates=3)
    for name, heads in (("wide", 4), ("thin", 2)):
        write_tiny_model(folder / name, model="transformer", updates=1, num_heads=heads)
    write_log(folder / "run", [4.0, 3.0])
    write_log(folder / "other", [5.0, 2.0])
    for name, text in {
        "two": "ein mann\nzwei hunde\n",
        "one": "a man\n",
        "both": "a man\ntwo dogs\n",
        "many": "rot\n" * 21,
        "long": "man " * 1500 + "\n",
        "empty": "",
        "blank": "\n\n",
        "latin": "",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "latin").write_bytes(b"h\xf6rt\n")
    return folder


def visualize(place: Path, line: str, stdin: bytes = b""):
    done = run_copy("visualize", *line.split(), "--overwrite", cwd=place, stdin=stdin)
    return done.returncode, done.stdout.decode(), done.stderr.decode().splitlines()


def test_a_page_has_all_layers_and_heads_of_each_sentence(place):
    status, output, log = visualize(place, "--path model --input two --output x.html")
    assert (status, output) == (0, "x.html\n"), log
    one, other = data_of((place / "x.html").read_text(encoding="utf-8"))
    assert one["source"] == "ein mann" and other["source"] == "zwei hunde"
    shapes = {kind: (facts["layers"], facts["heads"]) for kind, facts in one["kinds"].items()}
    assert shapes == {"encoder": (2, 4), "decoder": (1, 4), "cross": (1, 4)}


def test_sentences_come_from_standard_input_and_translations_from_a_file(place):
    status, _, log = visualize(place, "--path model --translations one --output x.html", b"ein mann\n")
    assert status == 0, log
    assert data_of((place / "x.html").read_text(encoding="utf-8"))[0]["target"] == "a man"


def test_a_page_says_what_has_no_mean(place):
    status, _, log = visualize(place, "--path model:lstm --input two --output x.html")
    assert status == 0 and any("cross attention, which has no mean and is omitted" in line for line in log), log
    assert set(data_of((place / "x.html").read_text(encoding="utf-8"))[0]["kinds"]) == {"encoder", "decoder"}


def test_a_head_that_is_named_twice_is_drawn_once(place):
    for heads in ("2", "2,2"):
        assert (
            visualize(place, f"--path model --input one --translations one --head {heads} --output x{heads}.svg")[0]
            == 0
        )
    assert (place / "x2.svg").read_text(encoding="utf-8") == (place / "x2,2.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    [
        "--path model --input two --translations both --kind encoder --layer 1 --head 1,4 --output x.svg",
        "--path model --input two --translations both --style map --output x.svg",
        "--path lstm --input two --translations both --words --output x.svg",
        "--path model:lstm --input two --translations both --member lstm --output x.svg",
        "--path model --positions --count 20 --output x.svg",
        "--path model --embeddings --input both --side target --count 5 --output x.svg",
        "run --smoothing 0.5 --over tokens --output x.svg",
        "run other --output x.html",
    ],
)
def test_what_is_asked_for_is_drawn(place, line):
    status, _, log = visualize(place, line)
    assert status == 0, log
    name = line.split()[-1]
    assert (place / name).read_text(encoding="utf-8").startswith("<svg" if name.endswith("svg") else "<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("--output x.html", 2, "name a model (--path MODEL), or run folders"),
        ("--path model --input two", 2, "name the file to write"),
        ("--path model --input two --output x.pdf", 2, "the name must end in .html, .svg or .png"),
        ("--path model --positions --output x.html", 2, "the name must end in .svg or .png"),
        ("--path model --input two --output none/x.html", 73, "none is not a folder"),
        ("--path model --input none --output x.html", 66, "none"),
        ("--path none --input two --output x.html", 66, "none"),
        ("--path model --input empty --output x.html", 65, "is empty"),
        ("--path model --input blank --output x.html", 65, "only empty lines"),
        ("--path model --input latin --output x.html", 65, "UTF-8"),
        ("--path model --input two --translations one --output x.html", 65, "two has 2 lines, one has 1"),
        ("--path model --input many --output x.svg", 2, "room for 20 sentences, and there are 21"),
        ("--path model --input two --layer 9 --output x.svg", 2, "the model has 1 layer of cross attention"),
        ("--path model --input two --head 5 --output x.svg", 2, "--head 5: a layer has 4"),
        ("--path lstm --input two --kind encoder --output x.svg", 2, "no such attention; choose from cross"),
        (
            "--path model:lstm --input two --output x.svg",
            2,
            "their cross attention, which has no mean; choose one: --m",
        ),
        (
            "--path wide:thin --input two --output x.html",
            2,
            "encoder and decoder and cross attention, which has no mean",
        ),
        (
            "--path model --input one --translations long --output x.html",
            65,
            "line 1 has 1500 tokens, more than the maximum",
        ),
        (
            "--path model --positions --count 10001 --output x.svg",
            2,
            "--count 10001: a picture has room for at most 10,000",
        ),
        ("run run --output x.svg", 2, "named twice; name each run once"),
        ("run other ./run --output x.svg", 2, "named twice"),
        ("--path model:lstm --input two --member modle --output x.svg", 2, "did you mean 'model'"),
        ("--path model run --output x.svg", 2, "give one"),
        ("run --threads 2 --output x.svg", 2, "--threads 2 is for pictures of a model"),
        ("--path model --positions --embeddings --output x.svg", 2, "--positions and --embeddings exclude each other"),
        ("--path model:lstm --positions --output x.svg", 2, "name one of them"),
        ("--path lstm --positions --output x.svg", 2, "adds no position vectors"),
        ("--path model --translations - --output x.svg", 2, "cannot both be read from standard input"),
        ("run --translations one --output x.svg", 2, "is for pictures of attention only"),
        ("run --smoothing 1 --output x.svg", 2, "smoothing=1.0 must be at least 0 and less than 1"),
        ("two --output x.svg", 66, "there is no run folder two"),
        ("two --watch", 66, "there is no run folder two"),
        ("--path model --watch", 2, "--watch serves the page of runs; name run folders"),
        ("run --watch --output x.html", 2, "--watch serves a page and --output x.html writes a file; give one of them"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(place, line, status, said):
    found, _, log = visualize(place, line)
    complaints = [one for one in log if one.startswith("nmt-visualize: ")]
    assert found == status and len(complaints) == 1 and said in complaints[0], log


def test_runs_of_an_old_sweep_whose_folders_are_named_like_assignments_are_drawn(place, tmp_path):
    """The sweep's other files, which ``runs/sweep/*`` names too, are not part of the command line here."""
    for name in ("optimizer.lr=0.0005", "optimizer.lr=0.001"):
        write_log(tmp_path / "runs/sweep" / name, [4.0, 3.0])
    (tmp_path / "runs/sweep/sweep.jsonl").write_text("{}\n")
    for start in ("runs/sweep", "runs", "."):
        here = tmp_path / start
        named = sorted(str(folder.relative_to(here)) for folder in tmp_path.glob("runs/sweep/*"))
        done = run_copy("visualize", *named, "--output", tmp_path / "x.html", "--overwrite", cwd=here)
        assert done.returncode == 0, done.stderr.decode()
        page = html_pages.data_of((tmp_path / "x.html").read_text(encoding="utf-8"))
        assert [run["name"] for run in page["runs"]] == ["optimizer.lr=0.0005", "optimizer.lr=0.001"]


@pytest.mark.slow
def test_a_live_page_is_served_until_ctrl_c(place):
    command = [sys.executable, "-m", "nmt_cli.visualize", "run", "other", "--watch", "--watch-port", "0"]
    command += ["--over", "tokens", "--smoothing", "0.5"]
    process = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True)
    address = next(word for line in process.stderr for word in line.split() if word.startswith("http://127.0.0.1:"))
    with urllib.request.urlopen(address, timeout=60) as answer:
        data = html_pages.data_of(answer.read().decode())
    assert (data["title"], data["over"], data["smoothing"]) == ("run, other", "tokens", 0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 0


def test_a_file_that_exists_is_kept(place):
    (place / "kept.svg").write_text("mine", encoding="utf-8")
    done = run_copy("visualize", "run", "--output", "kept.svg", cwd=place)
    assert done.returncode == 73 and (place / "kept.svg").read_text(encoding="utf-8") == "mine"


def test_the_log_of_a_run_is_only_read(place):
    before = (place / "run/log.jsonl").read_text(encoding="utf-8")
    assert visualize(place, "run --output x.svg")[0] == 0
    assert (place / "run/log.jsonl").read_text(encoding="utf-8") == before and json.loads(before.splitlines()[0])


@pytest.mark.parametrize(
    ("options", "reads"),
    [
        ({"path": "m"}, True),
        ({"path": "m", "input": "-"}, True),
        ({"path": "m", "input": "file"}, False),
        ({"path": "m", "embeddings": True}, False),
        ({"path": "m", "embeddings": True, "input": "-"}, True),
        ({"path": "m", "positions": True, "input": "-"}, False),
        ({"path": "m", "input": "file", "translations": "-"}, True),
        ({"runs": ["run"]}, False),
    ],
)
def test_it_is_known_what_reads_standard_input(options, reads):
    """Which the jobs of a sweep cannot share."""
    assert (VisualizeConfig(**options).instead_of_standard_input is not None) == reads
