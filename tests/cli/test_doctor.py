"""nmt-doctor as people start it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmt.config.doctor import DoctorConfig
from nmt.doctor import suite
from nmt.doctor.outcomes import Check, Wrong
from nmt_cli.doctor import run
from tests.commands import run_copy


def test_it_tells_what_is_there_and_that_it_works(tmp_path: Path) -> None:
    done = run_copy("doctor", "--output", str(tmp_path / "doctor.json"))
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert "versions\n" in text and "  pass  cpu     training step  loss" in text
    assert "tokens, the same as on the CPU" in text
    tree = json.loads((tmp_path / "doctor.json").read_text())
    assert list(tree) == ["versions", "machine", "settings", "devices", "checks"]
    assert [check["outcome"] for check in tree["checks"]] == ["pass"] * len(tree["checks"])
    again = run_copy("doctor", "--output", str(tmp_path / "doctor.json"))
    assert again.returncode == 73 and b"exists already" in again.stderr


def test_a_device_that_is_wrong_makes_the_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(device: object) -> str:
        raise Wrong("7, not 8")

    monkeypatch.setattr(suite, "QUICK", (Check("sum", wrong),))
    with pytest.raises(SystemExit) as ending:
        run(DoctorConfig(threads=1))
    assert ending.value.code == 1
    assert "  fail  cpu     sum    7, not 8\n" in capsys.readouterr().out
