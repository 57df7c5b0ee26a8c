"""Convert a checkpoint of ``transformer`` to a MarianMTModel of Hugging Face, as the same function.

    python transformers_model.py CHECKPOINT ENTRIES OUTPUT

ENTRIES is the size of the joint vocabulary. The model must be the paper's: sinusoidal positions, post-norm, ReLU.
MarianMTModel has the sines of a position before its cosines, but the paper alternates them. So each layer that reads
or writes a state between sublayers gets its columns or rows in the order of MarianMTModel.
"""

import sys
from pathlib import Path

import torch
import yaml
from safetensors.torch import load_file
from transformers import MarianConfig, MarianMTModel

PAD, BOS, EOS = 0, 2, 3
POSITIONS = 1024


class Conversion:
    def __init__(self, weights, width):
        self.weights = weights
        self.width = width
        self.order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
        self.state = {}

    def reads(self, name, matrix, bias):
        """Convert a layer whose input is a state between sublayers."""
        self.state[f"{name}.weight"] = matrix[:, self.order]
        self.state[f"{name}.bias"] = torch.zeros(len(matrix)) if bias is None else bias

    def writes(self, name, matrix, bias):
        """Convert a layer whose output is a state between sublayers."""
        self.state[f"{name}.weight"] = matrix[self.order]
        self.state[f"{name}.bias"] = torch.zeros(len(matrix)) if bias is None else bias[self.order]

    def attention(self, ours, theirs):
        parts = ("projection",) if f"{ours}.projection.weight" in self.weights else ("query", "memory")
        matrices = torch.cat([self.weights[f"{ours}.{part}.weight"] for part in parts]).split(self.width)
        biases = [None] * 3
        if f"{ours}.{parts[0]}.bias" in self.weights:
            biases = torch.cat([self.weights[f"{ours}.{part}.bias"] for part in parts]).split(self.width)
        for letter, matrix, bias in zip("qkv", matrices, biases):
            self.reads(f"{theirs}.{letter}_proj", matrix, bias)
        self.writes(
            f"{theirs}.out_proj", self.weights[f"{ours}.output.weight"], self.weights.get(f"{ours}.output.bias")
        )

    def norm(self, ours, theirs):
        for kind in ("weight", "bias"):
            self.state[f"{theirs}.{kind}"] = self.weights[f"{ours}.{kind}"][self.order]

    def layer(self, ours, theirs):
        self.attention(f"{ours}.self_attention", f"{theirs}.self_attn")
        self.norm(f"{ours}.self_residual.norm", f"{theirs}.self_attn_layer_norm")
        if f"{ours}.cross_residual.norm.weight" in self.weights:
            self.attention(f"{ours}.cross_attention", f"{theirs}.encoder_attn")
            self.norm(f"{ours}.cross_residual.norm", f"{theirs}.encoder_attn_layer_norm")
        inner, outer = f"{ours}.feed_forward.inner", f"{ours}.feed_forward.outer"
        self.reads(f"{theirs}.fc1", self.weights[f"{inner}.weight"], self.weights[f"{inner}.bias"])
        self.writes(f"{theirs}.fc2", self.weights[f"{outer}.weight"], self.weights[f"{outer}.bias"])
        self.norm(f"{ours}.feed_forward_residual.norm", f"{theirs}.final_layer_norm")


if __name__ == "__main__":
    checkpoint, entries, output = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    options = yaml.safe_load((checkpoint / "config.yaml").read_text())["model"]
    expected = {"name": "transformer", "positions": "sinusoidal", "norm": "post", "norm_kind": "layer_norm"}
    expected |= {"feed_forward": "relu"}
    assert {name: options[name] for name in expected} == expected, f"made for {expected}"
    sizes = {}
    conversion = Conversion(load_file(checkpoint / "model.safetensors"), options["d_model"])
    for side in ("encoder", "decoder"):
        sizes[f"{side}_layers"] = options[f"{side}_layers"]
        sizes[f"{side}_ffn_dim"] = options["d_ff"]
        sizes[f"{side}_attention_heads"] = options["num_heads"]
        for number in range(options[f"{side}_layers"]):
            conversion.layer(f"{side}.layers.{number}", f"model.{side}.layers.{number}")
    config = MarianConfig(
        vocab_size=entries, d_model=options["d_model"], max_position_embeddings=POSITIONS, **sizes,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS, forced_eos_token_id=EOS,
        activation_function="relu", scale_embedding=True, share_encoder_decoder_embeddings=True,
    )  # fmt: skip
    table = conversion.weights["source_input.embedding.table.weight"][:, conversion.order]
    state = conversion.state
    model = MarianMTModel(config)
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        state[f"{name}.weight"] = table
    missing, unknown = model.load_state_dict(state, strict=False)
    # The model computes its positions when loaded. Our output layer has no bias; in MarianMTModel it starts at zero.
    assert not unknown, unknown
    assert all(name == "final_logits_bias" or "embed_positions" in name for name in missing), missing
    model.save_pretrained(output)
