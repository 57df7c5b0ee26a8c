"""nmt-preprocess as a user starts it."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.data.corpus.folder import Corpus
from nmt.storage.files import Verify
from tests.commands import run_copy

SOURCE = ["the old house", "the green tree", "an old tree", "the house"]
TARGET = ["das alte Haus", "der grüne Baum", "ein alter Baum", "das Haus"]


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    for language, lines in (("en", SOURCE), ("de", TARGET)):
        (tmp_path / f"text.{language}").write_bytes("".join(f"{line}\n" for line in lines).encode())
    return f"{tmp_path}/text"


def nmt_preprocess(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = run_copy("preprocess", *arguments, COLUMNS="80")
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_flags_and_overrides_make_a_corpus_and_stdout_stays_empty(prefix: str, tmp_path: Path) -> None:
    result = nmt_preprocess(
        *("--source-lang", "en", "tokenizer=words", "--target-lang", "de", "--trainpref", prefix, "--workers", "2"),
        *(
            "--validpref",
            prefix,
            "--testpref",
            f"{prefix},{prefix}",
            f"destdir={tmp_path}/corpus",
            "--joined-dictionary",
        ),
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    corpus = Corpus.open(tmp_path / "corpus", Verify.full)
    assert corpus.splits == ("train", "valid", "test", "test1")
    assert corpus.pair.shared
    assert corpus.split("test1").targets.text() == TARGET


def test_the_report_is_logged_to_stderr(prefix: str, tmp_path: Path) -> None:
    result = nmt_preprocess(
        *("--source-lang", "en", "--target-lang", "de", "--trainpref", prefix, "--validpref", prefix),
        *("--destdir", f"{tmp_path}/corpus", "--tokenizer", "char"),
    )
    for said in (
        "train: 4 of 4 pairs kept",
        f"train en: {sum(map(len, SOURCE))} tokens, 0 unknown (0.00 %)",
        "WARNING | valid overlaps train: 4 of its pairs and 4 of its sources are also there",
        f"wrote {tmp_path}/corpus",
    ):
        assert said in result.stderr


def test_a_bar_is_drawn_on_demand(prefix: str, tmp_path: Path) -> None:
    result = nmt_preprocess(
        *("--source-lang", "en", "--target-lang", "de", "--trainpref", prefix, "--destdir", f"{tmp_path}/corpus"),
        *("tokenizer=words", "--progress", "bar"),
    )
    assert "train: 100%" in result.stderr


def test_help_and_work_do_without_torch(prefix: str, tmp_path: Path) -> None:
    program = "import sys; sys.modules['torch'] = None; from nmt_cli.preprocess import main; main()"
    arguments = ["--source-lang", "en", "--target-lang", "de", "--trainpref", prefix, "--destdir", f"{tmp_path}/corpus"]
    for given in (["--help"], [*arguments, "tokenizer=words"]):
        result = subprocess.run([sys.executable, "-c", program, *given], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("flags", "marks"), [([], "subword_nmt"), (["--pieces", "none"], "none")])
def test_text_that_is_cut_already_is_told_of_unless_the_flag_says_how(
    flags: list[str], marks: str, prefix: str, tmp_path: Path
) -> None:
    Path(f"{prefix}.de").write_text("".join(f"{line}@@ s\n" for line in TARGET), encoding="utf-8")
    languages = ("--source-lang", "en", "--target-lang", "de", "--trainpref", prefix, "--destdir", tmp_path / "corpus")
    result = run_copy("preprocess", *languages, "tokenizer=words", *flags)
    assert result.returncode == 0, result.stderr
    assert Corpus.open(tmp_path / "corpus").pair.target.marks.name == marks
    assert (b"is already segmented by subword_nmt" in result.stderr) == (not flags)


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param((), id="basic"),
        pytest.param(("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"), id="joblib", marks=pytest.mark.nightly),
    ],
)
def test_four_shards_of_a_multirun_join_to_the_bytes_of_one_run_with_any_workers(
    tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    if launcher:
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="pip install 'nmt-toolkit[sweep]'")
    chosen = random.Random(1)
    for language, lines in (("en", SOURCE), ("de", TARGET)):
        chosen.seed(1)
        text = "".join(f"{chosen.choice(lines)} {number % 7}\n" for number in range(1000))
        (tmp_path / f"text.{language}").write_text(text, encoding="utf-8")
    languages = ("--source-lang", "en", "--target-lang", "de")
    learned = run_copy(
        *(
            "preprocess",
            *languages,
            "--trainpref",
            "text",
            "--joined-dictionary",
            "--vocab-size",
            "50",
            "tokenizer=bpe",
        ),
        *("--destdir", "one", "--validpref", "text"),
        cwd=tmp_path,
    )
    assert learned.returncode == 0, learned.stderr.decode()
    given = ("--srcdict", "one", "--tgtdict", "one", "--trainpref", "text", "--validpref", "text")
    for workers in ("1", "2", "4"):
        made = run_copy(
            "preprocess", *languages, *given, "--destdir", f"with{workers}", "--workers", workers, cwd=tmp_path
        )
        assert made.returncode == 0, made.stderr.decode()
    options = ("--destdir", "parts", "--multirun", "shard=1/4,2/4,3/4,4/4", *launcher)
    parts = run_copy("preprocess", *languages, *given, *options, cwd=tmp_path)
    assert parts.returncode == 0, parts.stderr.decode()
    joined = run_copy("preprocess", "--merge", "parts", "--destdir", "joined", cwd=tmp_path)
    assert joined.returncode == 0, joined.stderr.decode()
    arrays = {path.name: path.read_bytes() for path in (tmp_path / "with1").glob("*.*")}
    assert len([name for name in arrays if name.endswith(".npy")]) == 8
    for folder in ("with2", "with4", "joined"):
        for name, contents in arrays.items():
            if name not in ("manifest.json", "report.html"):  # which hold the folder and the options
                assert (tmp_path / folder / name).read_bytes() == contents, (folder, name)


def test_repeated_shards_that_are_finished_are_left_as_they_are(prefix: str) -> None:
    folder = Path(prefix).parent
    (folder / "list").write_text("".join(f"{word}\n" for word in sorted({*" ".join(SOURCE + TARGET).split()})))
    shards = ["--source-lang", "en", "--target-lang", "de", "tokenizer=words", "--srcdict", str(folder / "list")]
    shards += ["--tgtdict", str(folder / "list"), "--trainpref", prefix, "--destdir", f"{folder}/parts"]
    shards += ["-m", "shard=1/3,2/3,3/3"]
    made = nmt_preprocess(*shards)
    assert made.returncode == 0 and made.stderr.count("| wrote ") == 3, made.stderr
    unchanged = {path: path.stat().st_ino for path in (folder / "parts").rglob("*.npy")}
    shutil.rmtree(folder / "parts/shard-2-of-3")
    again = nmt_preprocess(*shards)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("already holds this shard, made from the same text with the same options") == 2
    kept = {path for path, inode in unchanged.items() if path.stat().st_ino == inode}
    assert {path for path in unchanged if "shard-2-of-3" not in path.parts} <= kept
    assert (folder / "parts/shard-2-of-3/manifest.json").is_file()
