"""Which checkpoint a path means."""

from __future__ import annotations

from pathlib import Path

import pytest

import nmt
from nmt.errors import MissingInputError
from nmt.storage.run_folder import resolve, split_paths

DOWNLOAD = "for a model of the Hugging Face Hub, write hf://Helsinki-NLP/opus-mt-en-de"


def test_the_name_of_a_model_on_the_hub_is_told_how_to_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingInputError, match=DOWNLOAD):
        resolve("Helsinki-NLP/opus-mt-en-de")
    with pytest.raises(MissingInputError, match=DOWNLOAD):
        nmt.import_model("Helsinki-NLP/opus-mt-en-de", output="model", from_format="huggingface")


@pytest.mark.parametrize("path", ["runs/missing", "missing", "./a/b", "/a/b", "a/b/c"])
def test_a_path_of_this_machine_is_not_taken_for_a_name_on_the_hub(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(MissingInputError) as caught:
        resolve(path)
    assert "Hugging" not in str(caught.value)


@pytest.mark.parametrize(
    "paths",
    [
        ["a", "b"],
        ["hf://a/b"],
        ["hf://a/b", "runs/x"],
        ["runs/x", "hf://a/b@v1", "hf://c/d"],
        ["/a", "/b"],
        ["hf:/a/b", "/c"],
    ],
)
def test_an_ensemble_is_split_at_colons_but_not_within_names_of_the_hub(paths: list[str]) -> None:
    assert split_paths(":".join(paths)) == paths
