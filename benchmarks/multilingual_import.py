"""Time and memory of importing a multilingual model of Hugging Face, with random numbers in the sizes of NLLB-200 1.3B.

    python benchmarks/multilingual_import.py [--folder /tmp] [--dtype float32] [--layers 24]

Writes shards of about 1.7 GB and a tokenizer into a temporary folder of ``--folder``, which needs space for two models,
runs ``nmt-import``, and prints a table: size of the tensors, time, and peaks of memory. "Mapped" memory holds
pages of files, which the system may drop at any time.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file

WIDTH, INNER, HEADS, LANGUAGES = 1024, 8192, 16, 202
VOCABULARY, FILLERS = 256_204, 2  # tokens, and rows of the embedding without one
SHARD = 1_700_000_000  # bytes
FIELDS = {"VmHWM": "peak", "RssAnon": "own", "RssFile": "mapped"}


def shapes(layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.shared.weight", (VOCABULARY + FILLERS, WIDTH)
    for side, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for number in range(layers):
            layer = f"model.{side}.layers.{number}"
            for attention in attentions:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    yield f"{layer}.{attention}.{part}.weight", (WIDTH, WIDTH)
                    yield f"{layer}.{attention}.{part}.bias", (WIDTH,)
            for name, outputs, inputs in (("fc1", INNER, WIDTH), ("fc2", WIDTH, INNER)):
                yield f"{layer}.{name}.weight", (outputs, inputs)
                yield f"{layer}.{name}.bias", (outputs,)
            for norm in (*(f"{attention}_layer_norm" for attention in attentions), "final_layer_norm"):
                yield f"{layer}.{norm}.weight", (WIDTH,)
                yield f"{layer}.{norm}.bias", (WIDTH,)
        yield f"model.{side}.layer_norm.weight", (WIDTH,)
        yield f"model.{side}.layer_norm.bias", (WIDTH,)


def write_model(folder: Path, layers: int, dtype: torch.dtype) -> int:
    """Write the shards and their index; return the size of the tensors in bytes."""
    places, shard, size, total, number = dict[str, str](), dict[str, torch.Tensor](), 0, 0, 1
    for name, shape in [*shapes(layers), ("", ())]:
        if shard and (not name or size > SHARD):
            save_file(shard, folder / f"model-{number}.safetensors")
            places |= dict.fromkeys(shard, f"model-{number}.safetensors")
            shard, size, number, total = {}, 0, number + 1, total + size
        if name:
            shard[name] = torch.empty(shape, dtype=dtype).normal_(std=0.02)
            size += shard[name].nbytes
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", layers), ("ffn_dim", INNER))
    }
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    heads = {f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")}
    config = {"model_type": "m2m_100", "d_model": WIDTH, "scale_embedding": True, **sizes, **heads, **ids}
    (folder / "config.json").write_text(json.dumps(config))
    return total


def write_tokenizer(folder: Path) -> None:
    """Write byte-pair encoding of random merges in the form of transformers 5."""
    chosen, text = random.Random(1), [chr(number) for number in range(0x4E00, 0x4E00 + 2000)]
    merges = dict[str, tuple[str, str]]()
    while len(text) + len(merges) < VOCABULARY - LANGUAGES - 5:
        pair = chosen.choice(text), chosen.choice(text)
        merges.setdefault("".join(pair), pair)
    vocabulary = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *merges, *text])}
    letters = "abcdefghijklmnopqrstuvwxyz"
    codes = [f"{a}{b}{c}_Latn" for a in letters for b in letters for c in letters][:LANGUAGES]
    added = [{"id": len(vocabulary) + number, "content": token} for number, token in enumerate([*codes, "<mask>"])]
    model = {"type": "BPE", "vocab": vocabulary, "merges": [*merges.values()]}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": added}))


def measured(command: list[str]) -> tuple[float, dict[str, float]]:
    """Run a command; return its seconds and its peaks of memory in GB."""
    begin, peaks = time.monotonic(), dict.fromkeys(FIELDS.values(), 0)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            for field, kilobytes in re.findall(r"(\w+):\s+(\d+) kB", status.read_text()):
                if field in FIELDS:
                    peaks[FIELDS[field]] = max(peaks[FIELDS[field]], int(kilobytes) * 1024)
            time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"nmt-import failed with status {process.returncode}")
    return time.monotonic() - begin, {name: value / 1e9 for name, value in peaks.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--layers", type=int, default=24)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name) / "there"
        folder.mkdir()
        write_tokenizer(folder)
        size = write_model(folder, chosen.layers, getattr(torch, chosen.dtype))
        command = [sys.executable, "-m", "nmt", "import", "--path", str(folder), "--output", str(Path(name) / "here")]
        seconds, peaks = measured(command)
    print("| data type | size | time | peak memory | own memory | mapped memory |")
    print("|---|---|---|---|---|---|")
    figures = [f"{figure:.2f} GB" for figure in (peaks["peak"], peaks["own"], peaks["mapped"])]
    print(f"| {chosen.dtype} | {size / 1e9:.2f} GB | {seconds:.0f} s | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
