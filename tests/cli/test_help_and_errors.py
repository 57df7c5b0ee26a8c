"""The real commands: help, versions, and what they say of wrong command lines."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from nmt.config.composing.programs import program_of
from nmt.errors import UsageError
from nmt.native.library import processor
from nmt_cli.command_line.programs import COMMANDS
from tests.commands import run_copy

PLUGIN = Path(__file__).resolve().parent.parent.parent / "examples" / "plugin" / "bag_of_words"


def start(command: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = run_copy(command, *arguments, cwd=cwd)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_usage_flags_and_leaves_nothing_behind(command: str, tmp_path: Path) -> None:
    whole = [sys.executable, "-X", "importtime", "-m", f"nmt_cli.{command}", "--help"]
    done = subprocess.run(whole, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0 and all(line.startswith("import time: ") for line in done.stderr.splitlines())
    reads_corpora = command in ("preprocess", "visualize", "align", "shortlist")
    assert reads_corpora or not re.search(r"\| +numpy$", done.stderr, re.MULTILINE), "it would take 0.1 s"
    assert f"usage: {program_of(command)}" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_wrong_words_are_answered_without_torch(command: str, tmp_path: Path) -> None:
    """It takes most of the time that a command takes to start."""
    lines = [["--help"], ["--version"], ["--cfg", "job"], ["--baem", "4"], ["seeed=1"], ["hydra=nothing"]]
    code = (
        f"import contextlib, sys; from nmt_cli.{command} import main\n"
        f"for line in {lines}:\n"
        "    sys.argv = ['x', *line]\n"
        "    with contextlib.suppress(SystemExit): main()\n"
        "    print(*line, file=sys.stderr)\n"
        "sys.exit(3 if 'torch' in sys.modules else 0)"
    )
    done = run_copy(command, cwd=tmp_path, before=code, torch=False)
    assert done.returncode == 0, done.stderr
    assert all(" ".join(line) in done.stderr.decode() for line in lines), done.stderr


@pytest.mark.parametrize(
    ("command", "line", "message"),
    [
        ("train", ["here", "--valid-metrics", "bleuu"], "unknown scorer 'bleuu' (did you mean 'bleu'?)"),
        (
            "train",
            ["here", "--device", "cudaa"],
            "device.name=cudaa must be one of auto, cpu, cuda, cuda:N, mps, xpu, xpu:N (--device)",
        ),
        ("train", ["nowhere"], "nowhere is not a folder"),
        ("generate", ["--path", "nowhere"], "nowhere does not exist"),
        (
            "generate",
            ["--path", "here", "--device", "gpu"],
            "device.name=gpu must be one of auto, cpu, cuda, cuda:N, mps, xpu, xpu:N (--device)",
        ),
        (
            "average_checkpoints",
            ["--inputs", "here", "--metric", "bluee"],
            "unknown scorer 'bluee' (did you mean 'bleu'?)",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_misspelt_values_are_answered_without_torch(
    command: str, line: list[str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    end = "import atexit, os, sys; atexit.register(lambda: 'torch' in sys.modules and os._exit(3))"
    done = run_copy(command, *line, cwd=tmp_path, before=end, torch=False)
    said = done.stderr.decode()
    assert said.startswith(f"{program_of(command)}: {message}"), said
    assert said.count("\n") == 1 and done.returncode in (2, 66)


def test_a_start_of_training_says_what_it_trains_before_torch_is_imported(copy_corpus: Path, tmp_path: Path) -> None:
    """The import takes seconds. Here it ends the command."""
    before = (
        "import os, sys\n"
        "class Torch:\n"
        "    find_spec = staticmethod(lambda name, *_: name == 'torch' and os._exit(3) or None)\n"
        "sys.meta_path.insert(0, Torch)"
    )
    line = [str(copy_corpus), "--arch", "transformer_tiny", "--save-dir", "runs/first"]
    done = run_copy("train", *line, cwd=tmp_path, before=before, torch=False)
    (said,) = done.stderr.decode().splitlines()
    assert said.endswith(f" | INFO | training transformer on {copy_corpus}; run folder: runs/first")
    assert done.returncode == 3 and list(tmp_path.iterdir()) == []


def test_no_command_loads_torchs_compiler_unasked(tmp_path: Path) -> None:
    """It takes as long as the rest of torch; so imports of what needs it stand where that is used."""
    code = (
        "import sys, nmt.training.assemble, nmt.averaging, nmt_cli.generate_job\n"
        "sys.exit(3 if 'torch._dynamo' in sys.modules or 'torch' not in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_version_names_the_program_and_what_it_runs_on(command: str, tmp_path: Path) -> None:
    import nmt

    done = start(command, "--version", cwd=tmp_path)
    first, second = done.stdout.splitlines()
    assert (done.returncode, first) == (0, f"{program_of(command)} {nmt.__version__}")
    versions = f"torch {metadata.version('torch')}, hydra-core {metadata.version('hydra-core')}"
    c_part = f"used, with {processor()} instructions" if processor() else "not built here, or switched off"
    assert second == f"Python {platform.python_version()}, {versions}; C part: {c_part}"


def test_version_names_a_wrong_setting_and_a_package_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    from nmt_cli import versions

    def refuse() -> str:
        raise UsageError("NMT_NATIVE=foo is unknown")

    monkeypatch.setattr("nmt.native.library.processor", refuse)
    monkeypatch.setattr(versions.metadata, "version", lambda _: (_ for _ in ()).throw(metadata.PackageNotFoundError))
    text = versions.versions()
    assert "torch of an unknown version" in text and text.endswith("C part: NMT_NATIVE=foo is unknown")


# Every kind of message is tested in tests/unit/config/test_refusals.py; here, that it reaches the user.
WRONG: list[tuple[str, str, list[str], str]] = [
    ("a misspelt flag", "generate", ["--baem", "4"], "unknown flag --baem (did you mean '--beam'?)"),
    ("a misspelt key", "train", ["seeed=1"], "unknown option seeed (did you mean 'seed'?)"),
    (
        "a misspelt preset",
        "preprocess",
        ["tokenizer=bpee"],
        "unknown tokenizer 'bpee' (did you mean 'bpe'?); there are: ",
    ),
    (
        "a value that a section refuses",
        "preprocess",
        ["--max-length", "0"],
        "filters.max_length=0 must be a finite number greater than",
    ),
    (
        "values that several sections refuse",
        "train",
        ["x", "model.num_heads=3", "--max-tokens", "0", "--lr", "-1"],
        "(1) d_model=512 is not divisible by num_heads=3; set model.d_k and model.d_v to choose head widths freely; "
        "(2) optimizer.lr=-1.0 must be a finite number greater than zero; (3) batching.max_tokens=0 must be",
    ),
    ("an added key", "score", ["+colour=red"], "unknown option colour; there are: "),
    (
        "an unknown interpolation",
        "score",
        ["sys=${nope}"],
        "sys=${nope} cannot be resolved: Interpolation key 'nope' not found",
    ),
    (
        "a number for a length penalty",
        "generate",
        ["--length-penalty", "0.6"],
        "search.length_penalty=0.6 must be one of gnmt, ",
    ),
    (
        "a size as a flag",
        "train",
        ["x", "--d-model", "256"],
        "--d-model is not a flag; write the option's key: model.d_model=256",
    ),
    (
        "a folder of presets that is not there",
        "score",
        ["--config-dir", "/absent"],
        "--config-dir /absent is not a folder",
    ),
    (
        "a file to score",
        "score",
        ["hyp.txt"],
        "name the reference to compare with: --ref FILE",
    ),
    (
        "text to preprocess",
        "preprocess",
        ["d/train.de.gz"],
        "'d/train.de.gz' is neither a flag nor key=value; give text without the suffix of its language: --trainpref d/t",
    ),
    (
        "a launcher that nobody has",
        "score",
        ["-m", "hydra/launcher=rocket"],
        "unknown hydra/launcher 'rocket'; there are: ",
    ),
    (
        "a swept run folder",
        "train",
        ["-m", "checkpoint.save_dir=a,b"],
        "checkpoint.save_dir takes one value in a sweep",
    ),
    (
        "an unknown option of Hydra, where only the configuration is printed",
        "train",
        ["--cfg", "job", "hydra.nothing=1"],
        "unknown option hydra.nothing; --cfg hydra shows Hydra's own",
    ),
    ("contradicting flags of Hydra", "score", ["--cfg", "job", "--info"], "--cfg and --info exclude each other"),
]


@pytest.mark.parametrize(
    ("command", "arguments", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_a_wrong_command_line_gets_one_line_and_status_2(
    command: str, arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = start(command, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"{program_of(command)}: {message}")
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("generate", "to translate a file, give --input news.de\n"),
        ("train", "make a corpus folder from text: nmt-preprocess --trainpref news ...\n"),
        ("shortlist", "make a corpus folder with nmt-preprocess\n"),
        ("average_checkpoints", "give checkpoints with --inputs\n"),
    ],
)
def test_a_file_in_place_of_a_corpus_folder_gets_advice(command: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "news.de").touch()
    done = start(command, "news.de", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{program_of(command)}: news.de is a file, not a corpus folder; {advice}"


def test_a_dictionary_of_fairseq_in_place_of_a_corpus_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "dict.de.txt").write_text("haus 7\nist 5\n")
    done = start("train", "dict.de.txt", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "nmt-train: dict.de.txt is a fairseq dictionary, not a corpus folder; make a corpus folder from text"
    )


def test_flags_overrides_and_hydras_flags_mix_in_any_order(tmp_path: Path) -> None:
    line = ["x", "--cfg", "job", "--lr", "0.1", "+model=transformer_tiny", "-p", "optimizer.lr", "seed=3"]
    done = start("train", *line, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.1\n", "")


def test_a_package_that_does_not_exist_is_a_matter_of_usage(tmp_path: Path) -> None:
    assert start("score", "--cfg", "job", "-p", "nothing", cwd=tmp_path).returncode == 2


def test_a_plugin_adds_presets_and_flags(tmp_path: Path) -> None:
    plugin = ["--user-dir", str(PLUGIN)]
    assert "bag_of_words_tiny" in start("train", *plugin, "--help", "all", cwd=tmp_path).stdout
    assert "--gru-layers" in start("train", *plugin, "model=bag_of_words_tiny", "--help", "all", cwd=tmp_path).stdout


def test_a_plugin_that_cannot_be_imported_shows_its_traceback(tmp_path: Path) -> None:
    folder = tmp_path / "broken_plugin"
    folder.mkdir()
    (folder / "__init__.py").write_text("import a_module_that_nobody_has\n")
    done = start("score", f"user_dir={folder}", cwd=tmp_path)
    assert done.returncode == 1
    assert "a_module_that_nobody_has" in done.stderr and "broken_plugin" in done.stderr


def test_a_reader_of_help_may_leave(tmp_path: Path) -> None:
    line = f"{sys.executable} -m nmt_cli.preprocess --help | head -n 1"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
