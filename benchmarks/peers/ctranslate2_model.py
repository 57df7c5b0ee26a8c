"""A checkpoint of ``transformer`` as a model of CTranslate2 4.8: the same numbers under other names.

python ctranslate2_model.py CHECKPOINT PIECES OUTPUT [QUANTIZATION]

PIECES names the entries of the joint vocabulary, one a line. For the paper's model (sinusoidal positions, layer norm, ReLU).
Runs where ctranslate2, safetensors and pyyaml are; torch is not needed.
"""

import sys
from pathlib import Path

import ctranslate2
import numpy as np
import yaml
from ctranslate2.specs import common_spec, transformer_spec
from safetensors.numpy import load_file

POSITIONS = 1024


def sinusoids(width):
    angles = np.arange(POSITIONS)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(POSITIONS, width).astype(np.float32)


class Checkpoint(ctranslate2.converters.Converter):
    def __init__(self, folder, pieces):
        self.weights = load_file(folder / "model.safetensors")
        self.options = yaml.safe_load((folder / "config.yaml").read_text())["model"]
        self.pieces = pieces
        expected = {"name": "transformer", "positions": "sinusoidal", "norm_kind": "layer_norm", "feed_forward": "relu"}
        found = {name: self.options[name] for name in expected}
        assert found == expected, f"made for {expected}, not for {found}"

    def _load(self):
        options = self.options
        layers = (options["encoder_layers"], options["decoder_layers"])
        spec = transformer_spec.TransformerSpec.from_config(
            layers, options["num_heads"], pre_norm=options["norm"] == "pre", activation=common_spec.Activation.RELU
        )
        table = self.weights["source_input.embedding.table.weight"]
        for side in (spec.encoder, spec.decoder):
            side.scale_embeddings = True
            side.position_encodings.encodings = sinusoids(options["d_model"])
        spec.encoder.embeddings[0].weight = table
        spec.decoder.embeddings.weight = table
        spec.decoder.projection.weight = table
        for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
            if options["norm"] == "pre":
                self.norm(side.layer_norm, f"{name}.norm")
            for number, layer in enumerate(side.layer):
                self.layer(layer, f"{name}.layers.{number}", reads=name == "decoder")
        config = spec.config
        config.bos_token, config.eos_token, config.unk_token = self.pieces[2], self.pieces[3], self.pieces[1]
        config.decoder_start_token = self.pieces[2]
        config.add_source_bos, config.add_source_eos, config.layer_norm_epsilon = False, True, 1e-5
        spec.register_source_vocabulary(self.pieces)
        spec.register_target_vocabulary(self.pieces)
        return spec

    def layer(self, spec, name, reads):
        self.linear(spec.self_attention.linear[0], f"{name}.self_attention.projection")
        self.linear(spec.self_attention.linear[1], f"{name}.self_attention.output")
        self.norm(spec.self_attention.layer_norm, f"{name}.self_residual.norm")
        if reads:
            for spec_part, part in zip(spec.attention.linear, ("query", "memory", "output")):
                self.linear(spec_part, f"{name}.cross_attention.{part}")
            self.norm(spec.attention.layer_norm, f"{name}.cross_residual.norm")
        self.linear(spec.ffn.linear_0, f"{name}.feed_forward.inner")
        self.linear(spec.ffn.linear_1, f"{name}.feed_forward.outer")
        self.norm(spec.ffn.layer_norm, f"{name}.feed_forward_residual.norm")

    def linear(self, spec, name):
        spec.weight = self.weights[f"{name}.weight"]
        if f"{name}.bias" in self.weights:
            spec.bias = self.weights[f"{name}.bias"]

    def norm(self, spec, name):
        spec.gamma, spec.beta = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]


if __name__ == "__main__":
    checkpoint, pieces, output, *quantization = sys.argv[1:]
    entries = Path(pieces).read_text(encoding="utf-8").split("\n")[:-1]
    Checkpoint(Path(checkpoint), entries).convert(output, quantization=quantization[0] if quantization else None)
