"""Every form of a command line works where Hydra cannot build its argument parser, as on Python 3.14."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import run_copy

# What Python 3.14 does when Hydra's parser is built (Hydra's issue 3121).
BROKEN = """
import argparse, hydra._internal.utils, sys
def broken():
    raise ValueError("badly formed help string")
hydra._internal.utils.get_args_parser = broken
sys.modules["hydra.main"].get_args_parser = broken
argparse.ArgumentParser.__init__ = lambda *rest, **options: broken()
"""


@pytest.mark.parametrize(
    ("command", "line", "output"),
    [
        ("train", "--help", "usage: nmt-train"),
        ("train", "--hydra-help", "--config-path FOLDER"),
        ("train", "recipe=vaswani_base model=lstm_tiny --cfg job -p model", "name: lstm"),
        ("train", "--cfg hydra -p hydra.sweep", "dir: ${checkpoint.save_dir}"),
        ("train", "--cfg all --resolve", "num_heads: 8"),
        ("train", "--info searchpath", "pkg://nmt.conf"),
        ("train", "--info defaults", "transformer_base"),
        ("score", "hydra.verbose=false --sys {text} --ref {text} --metrics exact", "exact"),
        ("score", "--sys {text} --ref {text} --metrics exact,chrf", "chrF2"),
        ("score", "--sys {text} --ref {text} --metrics exact format=text,json -m", "exact"),
        ("score", "--sys {text} --ref {text} --config-dir . --config-name mine", "chrF2"),
    ],
)
def test_a_command_line_needs_no_parser_of_hydra(command: str, line: str, output: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a cat\n")
    (tmp_path / "mine.yaml").write_text("defaults: [score, _self_]\nmetrics: [chrf]\n")
    words = line.format(text="text").split()
    done = run_copy(command, *words, cwd=tmp_path, before=BROKEN)
    assert (done.returncode, output in done.stdout.decode()) == (0, True), done.stdout.decode() + done.stderr.decode()
    assert done.stderr.decode().count("Traceback") == 0
