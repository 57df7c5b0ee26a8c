"""Weights packed by nmt-export: the translations of packing at the start, the memory of one file, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from nmt.config.exchange import ExportConfig, Quantization
from nmt.engines.native import NativeEngine
from nmt.errors import DataError, UsageError
from nmt.formats.exporting import ExportComparison, export_model
from nmt.models.loading import load_model
from nmt.models.transformer.config import (
    DecoderKind,
    FeedForwardKind,
    NormKind,
    NormOrder,
    PositionKind,
    ScoreKind,
    StartSymbol,
)
from nmt.native.library import library
from nmt.storage.checkpoints import KIND, PACKED, read_checkpoint
from nmt.storage.files import replace_manifest, sha256
from nmt.storage.run_folder import MODEL
from nmt.storage.tensor_file import mapped_tensors, write_numbers
from nmt.translation import Translator
from tests.unit.formats.stored import store

pytestmark = pytest.mark.skipif(library() is None, reason="the C part was not built: no C compiler")

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "several embeddings": {"share_all_embeddings": False, "share_decoder_embeddings": False},
    "mBART": {
        "positions": PositionKind.learned,
        "embedding_norm": True,
        "norm": NormOrder.pre,
        "attention_bias": True,
        "output_bias": True,
        "feed_forward": FeedForwardKind.gelu,
        "start_symbol": StartSymbol.eos,
    },
    "recurrent": {"decoder": DecoderKind.ssru},
    "MADLAD": {
        "positions": PositionKind.buckets,
        "norm": NormOrder.pre,
        "norm_kind": NormKind.rms_norm,
        "feed_forward": FeedForwardKind.geglu_tanh,
        "attention_score": ScoreKind.dot,
        "d_k": 12,
        "d_v": 12,
    },
}
LINES = ["p1 p2 p3", "p4", "p5 p6 p7 p8 p9 p10 p11", "p29 p28"]


def exported(run: Path, output: Path, quantization: str = "int8", **options: Any) -> ExportComparison:
    options = {"sentences": 3, "tolerance": 1.0} | options
    return export_model(
        ExportConfig(
            path=str(run), format="native", output=str(output), quantization=Quantization(quantization), **options
        )
    )


def translated(folder: Path, number_format: str | None) -> list[tuple[str, float]]:
    found = Translator.load(folder, "cpu", dtype=number_format, engine="native").translations(LINES, beam=3, nbest=2)
    return [(best.text, best.score) for translation in found for best in translation.hypotheses]


@pytest.mark.parametrize(
    ("variant", "number_format"),
    [*((variant, "int8") for variant in VARIANTS), *(("mBART", name) for name in ("float32", "bfloat16", "float16"))],
)
def test_mapped_weights_translate_as_weights_packed_at_the_start(
    tmp_path: Path, variant: str, number_format: str
) -> None:
    run = store(tmp_path / "run", **VARIANTS[variant])
    exported(run, tmp_path / "there", number_format)
    assert translated(tmp_path / "there", None) == translated(run, number_format)  # to the last bit


def test_a_shared_embedding_is_stored_once_in_one_byte_a_weight(tmp_path: Path) -> None:
    run = store(tmp_path / "run", d_model=64, d_ff=64)
    exported(run, tmp_path / "there")
    stored = mapped_tensors(tmp_path / "there" / MODEL)
    assert not any("embedding" in name for name in stored)
    assert sum(array.nbytes for array in stored.values()) < 0.4 * (run / MODEL).stat().st_size


@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="needs the list of mapped files from Linux")
def test_processes_share_the_memory_of_the_file(tmp_path: Path) -> None:
    exported(store(tmp_path / "run"), tmp_path / "there")
    translator = Translator.load(tmp_path / "there", "cpu")
    (engine,) = translator.members
    assert isinstance(engine, NativeEngine)
    mapped = [
        line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path / "there" / MODEL) in line
    ]
    ranges = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in mapped if line.split()[1] == "r--s"]
    output = engine._model.output
    for place in (output.panels, output.scales, output.shifts):
        assert any(begin <= place < end for begin, end in ranges)
    assert output.panels % 64 == 0


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    exported(store(tmp_path / "run"), tmp_path / "there")

    def refused(says: str, change: Any) -> None:
        shutil.copytree(tmp_path / "there", tmp_path / "damaged")
        change(tmp_path / "damaged")
        with pytest.raises(DataError, match=says):
            Translator.load(tmp_path / "damaged", "cpu")
        shutil.rmtree(tmp_path / "damaged")

    def changed(folder: Path) -> None:
        content = bytearray((folder / MODEL).read_bytes())
        content[-5] ^= 1
        (folder / MODEL).write_bytes(content)

    def truncated(folder: Path) -> None:
        (folder / MODEL).write_bytes((folder / MODEL).read_bytes()[:-64])

    def of_another_size(folder: Path) -> None:
        arrays = mapped_tensors(folder / MODEL)
        write_numbers(folder / "other", {name: array[:16] for name, array in arrays.items()})
        (folder / "other").rename(folder / MODEL)
        described(folder)

    def of_another_version(folder: Path) -> None:
        described(folder, packing=99)

    refused("its checksum differs from the one in manifest.json", changed)
    refused(r"\d+ bytes instead of \d+", truncated)
    refused(r"model.safetensors is damaged: output.panels is missing or has another size; export", of_another_size)
    refused("was packed by another version of nmt; export the original model again", of_another_version)


def described(folder: Path, **made: Any) -> None:
    """Write a manifest whose checksums are right."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][MODEL] = {"bytes": (folder / MODEL).stat().st_size, "sha256": sha256(folder / MODEL)}
    manifest["made"] |= made
    replace_manifest(folder, manifest)


def test_what_needs_parameters_refuses_packed_weights(tmp_path: Path) -> None:
    run = store(tmp_path / "run")
    exported(run, tmp_path / "there")
    says = re.escape(
        f"{tmp_path / 'there'} holds weights packed in int8, which only the native engine of a CPU can read"
    )
    loaded = load_model(tmp_path / "there", "cpu")
    for read in (
        lambda: Translator.load(tmp_path / "there", "cpu", engine="torch"),
        lambda: read_checkpoint(tmp_path / "there"),
        lambda: loaded.arrays,
        lambda: exported(tmp_path / "there", tmp_path / "again"),
    ):
        with pytest.raises(UsageError, match=says):
            read()
    with pytest.raises(UsageError, match=r"--dtype float32: .* holds weights packed in int8; omit --dtype"):
        Translator.load(tmp_path / "there", "cpu", dtype="float32")


def test_what_the_engine_lacks_is_refused_by_name(tmp_path: Path) -> None:
    run = store(tmp_path / "run", positions=PositionKind.rotary)
    with pytest.raises(UsageError, match="the native engine does not support model.positions=rotary"):
        exported(run, tmp_path / "there")
    with pytest.raises(
        UsageError, match="--quantization int16 is not for native; use float32, bfloat16, float16, int8"
    ):
        exported(run, tmp_path / "there", "int16")
    with pytest.raises(UsageError, match="--quantization int8 is only for ctranslate2 and native"):
        export_model(ExportConfig(path=str(run), format="safetensors", output="x", quantization=Quantization.int8))
    assert not (tmp_path / "there").exists()


def test_an_export_is_a_model_folder_and_can_be_replaced(tmp_path: Path) -> None:
    run = store(tmp_path / "run")
    for quantization in ("int8", "bfloat16"):
        exported(run, tmp_path / "there", quantization, overwrite=True)
    manifest = json.loads((tmp_path / "there" / "manifest.json").read_text())
    assert manifest["kind"] == KIND and manifest["made"][PACKED] == "bfloat16"
    assert {"README.md", "config.yaml", MODEL, "tokenizer/pair.json"} <= manifest["files"].keys()
