"""Convert a checkpoint of ``transformer`` to fairseq 0.12.2, as the same function.

    python fairseq_model.py CHECKPOINT PIECES OUTPUT

PIECES is a file with the tokens of the joint vocabulary, one per line. OUTPUT receives model.pt and dict.txt.
fairseq's sinusoids differ from the paper's, so it gets ours as learned positions. fairseq starts a translation with
eos, so the row of eos in the decoder's embedding is that of our bos; the decoder reads eos only there.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
import yaml
from safetensors.torch import load_file

POSITIONS = 1024
ORDER = [2, 0, 3, 1]  # our special tokens in the order of fairseq's vocabulary


def sinusoids(width):
    angles = np.arange(POSITIONS)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(POSITIONS, width).astype(np.float32)
    return torch.cat([torch.zeros(2, width), torch.from_numpy(table)])  # fairseq counts from the row after its pad


def attention(weights, ours, theirs, width):
    """Return the matrices of one attention by their names in fairseq."""
    if f"{ours}.projection.weight" in weights:
        projections = weights[f"{ours}.projection.weight"].split(width)
    else:
        projections = (weights[f"{ours}.query.weight"], *weights[f"{ours}.memory.weight"].split(width))
    found = {f"{theirs}.{name}_proj.weight": matrix for name, matrix in zip("qkv", projections)}
    found[f"{theirs}.out_proj.weight"] = weights[f"{ours}.output.weight"]
    return found | {name.replace("weight", "bias"): torch.zeros(len(matrix)) for name, matrix in found.items()}


def layer(weights, ours, theirs, width):
    found = attention(weights, f"{ours}.self_attention", f"{theirs}.self_attn", width)
    names = {"self_residual.norm": "self_attn_layer_norm", "feed_forward_residual.norm": "final_layer_norm"}
    names |= {"feed_forward.inner": "fc1", "feed_forward.outer": "fc2"}
    if f"{ours}.cross_residual.norm.weight" in weights:
        found |= attention(weights, f"{ours}.cross_attention", f"{theirs}.encoder_attn", width)
        names["cross_residual.norm"] = "encoder_attn_layer_norm"
    for name, other in names.items():
        for kind in ("weight", "bias"):
            found[f"{theirs}.{other}.{kind}"] = weights[f"{ours}.{name}.{kind}"]
    return found


def convert(weights, options):
    width = options["d_model"]
    table = weights["source_input.embedding.table.weight"]
    rows = torch.cat([table[ORDER], table[4:]])
    read = rows.clone()
    read[2] = table[2]  # our bos in fairseq's row of eos
    state = {"encoder.embed_tokens.weight": rows, "decoder.embed_tokens.weight": read}
    state |= {f"{side}.embed_positions.weight": sinusoids(width) for side in ("encoder", "decoder")}
    state["decoder.output_projection.weight"] = rows
    for side in ("encoder", "decoder"):
        for number in range(options[f"{side}_layers"]):
            name = f"{side}.layers.{number}"
            state |= layer(weights, name, name, width)
    return state


def described(options):
    """Return the arguments from which fairseq makes such a model."""
    sizes = {}
    for side in ("encoder", "decoder"):
        sizes |= {
            f"{side}_layers": options[f"{side}_layers"],
            f"{side}_embed_dim": options["d_model"],
            f"{side}_ffn_embed_dim": options["d_ff"],
            f"{side}_attention_heads": options["num_heads"],
            f"{side}_learned_pos": True,
            f"{side}_normalize_before": False,
        }
    return argparse.Namespace(
        arch="transformer",
        task="translation",
        source_lang="src",
        target_lang="tgt",
        max_source_positions=POSITIONS,
        max_target_positions=POSITIONS,
        share_all_embeddings=False,
        share_decoder_input_output_embed=False,
        **sizes,
    )


if __name__ == "__main__":
    checkpoint, pieces, output = map(Path, sys.argv[1:])
    options = yaml.safe_load((checkpoint / "config.yaml").read_text())["model"]
    expected = {"name": "transformer", "positions": "sinusoidal", "norm": "post", "norm_kind": "layer_norm"}
    expected |= {"feed_forward": "relu", "attention_bias": False}
    assert {name: options[name] for name in expected} == expected, f"made for {expected}"
    state = {"model": convert(load_file(checkpoint / "model.safetensors"), options), "args": described(options)}
    # Other entries that fairseq needs in a checkpoint:
    state["optimizer_history"] = [
        {"criterion_name": "", "optimizer_name": "", "num_updates": 0, "lr_scheduler_state": {}}
    ]
    state["extra_state"] = {"epoch": 1, "train_iterator": {"epoch": 1}, "val_loss": None}
    state["last_optimizer_state"] = None
    torch.save(state, output / "model.pt")
    entries = pieces.read_text(encoding="utf-8").split("\n")[4:-1]
    (output / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in entries), encoding="utf-8")
