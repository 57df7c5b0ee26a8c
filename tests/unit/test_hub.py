"""Models of the Hugging Face Hub, from a server of this machine (tests/hub.py)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

import nmt
from nmt.config.choices import ProgressStyle
from nmt.errors import DataError, MissingInputError, NMTError, OutputError, UsageError
from nmt.hub import HubName, checkpoint_at, download
from nmt.serving.models import names_of
from nmt.storage.checkpoints import read_info
from nmt.storage.files import MANIFEST, read_json, replace_manifest
from tests.commands import run_copy
from tests.tiny_models import write_tiny_model

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: nmt-toolkit[hub]")

from huggingface_hub import constants

from tests.hub import TOKEN, Hub, files_in, running_hub

LINES = ["ein mann", "zwei hunde laufen"]
OPUS = "Helsinki-NLP/opus-mt-de-en"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub(tmp_path / "home", monkeypatch) as server:
        yield server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("own") / "model", model="transformer", updates=30)


@pytest.fixture(scope="module")
def foreign(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has to be imported."""
    folder = tmp_path_factory.mktemp("foreign") / "model"
    nmt.export(model, folder, format="safetensors", sentences=1)
    return folder


def logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def front_of(card: bytes) -> Any:
    return yaml.safe_load(card.decode().split("---")[1])


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_a_pushed_model_translates_the_same(
    kind: str, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    logged_in(monkeypatch)
    here = write_tiny_model(tmp_path / "model", model=kind, updates=30)
    pushed = nmt.export(here, push="hf://me/tiny", private=True, license="mit")
    assert pushed.url == f"{hub.url}/me/tiny" and hub.repositories["me/tiny"].private
    expected = nmt.load(here, engine="torch").translate(LINES)
    assert nmt.load("hf://me/tiny", engine="torch").translate(LINES) == expected
    assert nmt.load(Path("hf://me/tiny"), engine="torch").translate(LINES) == expected
    assert nmt.tokenizer("hf://me/tiny").digest() == nmt.tokenizer(here).digest()
    card = hub.repositories["me/tiny"].files()["README.md"]
    facts = {"language": ["de", "en"], "license": "mit", "library_name": "nmt-toolkit", "pipeline_tag": "translation"}
    assert front_of(card) == facts and b'nmt.load("hf://me/tiny")' in card
    assert capfd.readouterr() == ("", "")  # not even a bar


def test_an_edited_card_does_not_hinder_loading(hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged_in(monkeypatch)
    nmt.export(model, push="hf://me/tiny")
    hub.add("me/tiny", {"README.md": b"better"})
    assert nmt.load("hf://me/tiny", engine="torch").translate(LINES)


@pytest.mark.parametrize("finetuned", [False, True], ids=["imported", "fine-tuned"])
def test_a_card_names_the_repository_that_a_model_came_from(
    finetuned: bool, hub: Hub, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in(monkeypatch)
    here = write_tiny_model(tmp_path / "here", model="transformer", updates=30)
    manifest = read_json(here / MANIFEST)
    if finetuned:
        config = yaml.safe_load((here / "config.yaml").read_text()) | {
            "checkpoint": {"finetune_from_model": f"hf://{OPUS}"}
        }
        (here / "config.yaml").write_text(yaml.safe_dump(config))
        del manifest["files"]["config.yaml"]
    else:
        manifest["made"] = {"imported_from": "huggingface", "repository": OPUS, "commit": "c0ffee"}
    replace_manifest(here, manifest)
    nmt.export(here, tmp_path / "there", format="safetensors", sentences=1)
    card = (tmp_path / "there" / "README.md").read_bytes()
    assert front_of(card)["base_model"] == OPUS
    assert finetuned or f"imported from huggingface, {OPUS} at commit c0ffee." in card.decode()


@pytest.mark.slow
def test_the_commands_take_and_print_names_of_the_hub(hub: Hub, model: Path, tmp_path: Path) -> None:
    done = run_copy("export", "--path", model, "--push", "hf://me/tiny", "--format", "safetensors", "--output", "x",
                    cwd=tmp_path, HF_TOKEN=TOKEN)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == ["x", f"{hub.url}/me/tiny"] and TOKEN.encode() not in done.stderr
    files = files_in(tmp_path / "x")
    assert hub.repositories["me/tiny"].files() == files and MANIFEST in files
    hub.add("me/own", model)
    done = run_copy("generate", "--path", f"hf://me/own:{model}", stdin=b"ein mann\n")
    assert (done.returncode, done.stdout.decode()) == (0, f"{nmt.load(model).translate(['ein mann'])[0]}\n")


@pytest.mark.slow
def test_two_processes_import_a_foreign_model_at_once_and_it_is_reused(hub: Hub, model: Path, foreign: Path) -> None:
    commit = hub.add(OPUS, foreign)
    with ThreadPoolExecutor() as threads:
        paths = set(threads.map(checkpoint_at, [f"hf://{OPUS}", f"hf://{OPUS}@{commit}"]))
    (folder,) = paths
    assert folder.parts[-4:] == ("nmt", nmt.__version__, OPUS.replace("/", "--"), commit)
    assert [path.name for path in folder.parent.iterdir()] == [commit]
    made = read_info(folder).made
    assert (made["imported_from"], made["repository"], made["commit"]) == ("safetensors", OPUS, commit)
    before = (folder / MANIFEST).stat().st_mtime_ns
    assert nmt.load(f"hf://{OPUS}").translate(LINES) == nmt.load(model).translate(LINES)
    assert (folder / MANIFEST).stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_model_that_cannot_be_imported_is_refused_with_the_reason(hub: Hub) -> None:
    hub.add("a/b", {"config.json": b'{"model_type": "bert"}'})
    with pytest.raises(
        NMTError, match="hf://a/b@.* cannot be imported: .* of the type bert.*nmt-import --path"
    ) as caught:
        nmt.load("hf://a/b")
    assert caught.value.exit_status == DataError.exit_status


@pytest.mark.slow
def test_an_opus_model_is_imported_by_its_name(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")
    from tests.unit.formats.other_models import marian

    marian(tmp_path / "there")
    languages = {"source_lang": "de", "target_lang": "en"}
    (tmp_path / "there" / "tokenizer_config.json").write_text(json.dumps(languages))
    commit = hub.add(OPUS, tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    (folder,) = nmt.import_model(f"hf://{OPUS}@main")
    assert folder == Path("opus-mt-de-en")
    made = read_info(folder).made
    assert (made["imported_from"], made["repository"], made["commit"]) == ("huggingface", OPUS, commit)
    pair = nmt.load(folder).pair
    assert (pair.source_lang, pair.target_lang) == ("de", "en")


def test_a_model_folder_of_nmt_needs_no_import(hub: Hub, model: Path) -> None:
    hub.add("me/own", model)
    with pytest.raises(UsageError, match="hf://me/own is a model folder of nmt; use it without importing it"):
        nmt.import_model("hf://me/own", "here")


SMALL = ["config.json", "sentencepiece.bpe.model", "source.spm", "spiece.model", "tokenizer_config.json", "vocab.json"]
SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
USELESS = ["README.md", "tf_model.h5", "rust_model.ot", "onnx/model.onnx", ".gitattributes"]


@pytest.mark.parametrize(
    ("weights", "needed"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["pytorch_model.bin"], ["pytorch_model.bin"]),
        ([*SHARDS, "pytorch_model.bin"], SHARDS),
        (["pytorch_model-00001-of-00001.bin"], ["pytorch_model-00001-of-00001.bin"]),
    ],
)
def test_only_needed_files_are_downloaded(weights: list[str], needed: list[str], hub: Hub) -> None:
    hub.add(OPUS, {name: name.encode() for name in (*SMALL, *USELESS, *weights)})
    download(HubName(OPUS))
    assert sorted(hub.downloads()) == sorted([*SMALL, *needed])
    download(HubName(OPUS))
    assert len(hub.downloads()) == len(SMALL) + len(needed)


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: Hub) -> None:
    old, new = (hub.add(OPUS, {"config.json": text, "model.safetensors": text}) for text in (b"old", b"new"))
    hub.repositories[OPUS].tags["v1"] = old
    for revision, commit in ((None, new), ("main", new), ("v1", old), (old, old)):
        assert download(HubName(OPUS, revision)).name == commit


def test_without_network_the_cache_is_used(hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("me/own", model)
    folder = download(HubName("me/own"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    count = len(hub.requests)
    assert checkpoint_at("hf://me/own") == folder and len(hub.requests) == count
    with pytest.raises(MissingInputError, match="hf://me/other is not complete in .*hub, and HF_HUB_OFFLINE forbids"):
        nmt.load("hf://me/other")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            "hf://me/missing",
            "hf://me/missing: http.*/me/missing does not exist, or is private; .*'hf auth login'.*HF_TOKEN",
        ),
        ("hf://me/private", "does not exist, or is private"),
        ("hf://me/gated", "hf://me/gated is gated: accept its terms at http.*/me/gated, then log in"),
        ("hf://me/own@v9", "hf://me/own@v9: there is no branch, tag or commit 'v9'"),
        ("hf://me/empty", "hf://me/empty holds no files that nmt reads"),
    ],
)
def test_a_repository_that_cannot_be_read_is_one_line(path: str, says: str, hub: Hub) -> None:
    for name in ("own", "private", "gated"):
        hub.add(f"me/{name}", {"config.json": b"{}"}, private=name == "private", gated=name == "gated")
    hub.add("me/empty", {"picture.png": b""})
    with pytest.raises(NMTError, match=says) as caught:
        nmt.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["hf://me", "hf://me/own@", "hf://me/own/more", "hf:///own", "hf://me/a b"])
def test_other_shapes_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match="does not name one model of the hub; write hf://OWNER/NAME"):
        nmt.load(path)
    assert str(HubName.parse("hf:/me/own@refs/pr/1")) == "hf://me/own@refs/pr/1"


def test_a_hub_that_fails_or_is_unreachable_is_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.fault = 500
    with pytest.raises(MissingInputError, match=r"/me/own answered with status 500 \(told to fail\); try again later"):
        nmt.load("hf://me/own")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(MissingInputError, match="http://127.0.0.1:9 cannot be reached .*; check the network"):
        nmt.load("hf://me/own")


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"push": "hf://you/tiny"}, OutputError, "status 403 .You don't have the rights.*you.*; log in"),
        ({"push": "hf://me/tiny", "license": "unheard-of"}, UsageError, 'hf://me/tiny: .*"license" must be one of'),
        ({"push": "hf://me/public", "private": True}, OutputError, "hf://me/public exists and is public"),
    ],
)
def test_an_upload_that_the_hub_refuses_is_one_line(
    options: dict[str, Any], kind: type[NMTError], says: str, hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in(monkeypatch)
    hub.add("me/public", {})
    with pytest.raises(kind, match=says) as caught:
        nmt.export(model, **options)
    assert "\n" not in str(caught.value) and TOKEN not in str(caught.value)
    assert not any(repository.files() for repository in hub.repositories.values())


@pytest.mark.parametrize(
    ("options", "token", "says"),
    [
        ({"push": "hf://me/tiny"}, None, "hf://me/tiny needs a token that may write: log in with 'hf auth login'"),
        ({"push": "hf://me/tiny@v1"}, TOKEN, "uploads go to the main branch; write --push hf://me/tiny"),
        ({"push": "me/tiny"}, TOKEN, "me/tiny does not name one model of the hub"),
        ({"private": True}, TOKEN, "--private concerns the repository of --push"),
        ({"push": "hf://me/tiny", "quantization": "int8"}, TOKEN, "--quantization int8 is only for ctranslate2"),
        ({"push": "hf://me/tiny", "format": "safetensors", "tolerance": 0.0}, TOKEN, "the exported model differs"),
    ],
)
def test_what_fails_before_the_upload_sends_nothing(
    options: dict[str, Any], token: str | None, says: str, hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.formats.exporting._compare", lambda *_: nmt.formats.ExportComparison(1, 0.1, 0))
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(NMTError, match=says):
        nmt.export(model, **options)
    assert not [request for request in hub.requests if request.startswith(("POST", "PUT"))]


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", None)
    with pytest.raises(UsageError, match=r"hf:// needs a package .* pip install 'nmt-toolkit\[hub\]'"):
        nmt.load("hf://me/own")


def test_a_server_calls_a_model_of_the_hub_by_its_name() -> None:
    assert names_of(["hf://me/tiny", "runs/x"]) == {"tiny": "hf://me/tiny", "x": "runs/x"}


@pytest.mark.parametrize("style", [ProgressStyle.none, ProgressStyle.lines, ProgressStyle.bar])
def test_bars_are_shown_on_request(
    style: ProgressStyle, hub: Hub, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TQDM_POSITION", "-1")  # bars of the library, though this is no terminal
    hub.add("me/own", {"config.json": b"{}", "model.safetensors": b"1"})
    download(HubName("me/own"), style)
    assert ("Download complete" in capfd.readouterr().err) is (style is ProgressStyle.bar)
