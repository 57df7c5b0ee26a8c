"""Random models in folders, as training leaves them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.choices import ProgressStyle
from nmt.data.batching.batch import collate
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.vocabulary import EOS
from nmt.formats import PortableModel
from nmt.formats.importing import Converted, write_model
from nmt.interface import VocabularySizes
from nmt.layers.sinusoids import SinusoidLayout, Wavelengths
from nmt.models import models
from nmt.models.loading import load_model
from nmt.models.transformer.config import (
    FeedForwardKind,
    NormKind,
    NormOrder,
    PositionKind,
    ScoreKind,
    StartSymbol,
    TransformerConfig,
)
from nmt.models.transformer.own_weights import describe

_WORDS = WordTokenizer(WordsConfig(), [f"p{number}" for number in range(30)])
PAIR = LanguagePair("en", "de", _WORDS, _WORDS, shared=True)
# Variants of the Transformer that CTranslate2 and safetensors hold.
HELD: dict[str, dict[str, Any]] = {
    "paper": {},
    "norms first": {"norm": NormOrder.pre, "attention_bias": True},
    "norms first in the decoder": {"decoder_norm": NormOrder.pre},
    "few learned positions": {"positions": PositionKind.learned, "max_positions": 12},
    "rotation": {"positions": PositionKind.rotary, "norm": NormOrder.pre},
    "rms": {"norm_kind": NormKind.rms_norm, "norm": NormOrder.pre, "feed_forward": FeedForwardKind.swiglu},
    "gates": {"feed_forward": FeedForwardKind.glu},
    "gelu": {"feed_forward": FeedForwardKind.geglu},
    "as fairseq": {
        "sinusoid_layout": SinusoidLayout.halves,
        "sinusoid_wavelengths": Wavelengths.tensor2tensor,
        "position_offset": 2,
        "start_symbol": StartSymbol.eos,
        "feed_forward": FeedForwardKind.gelu,
    },
    "as Marian": {
        "sinusoid_layout": SinusoidLayout.halves,
        "output_bias": True,
        "start_symbol": StartSymbol.pad,
        "feed_forward": FeedForwardKind.swish,
        "norm_epsilon": 1e-3,
        "embedding_scale": False,
    },
    "as mBART": {
        "positions": PositionKind.learned,
        "embedding_norm": True,
        "norm": NormOrder.pre,
        "attention_bias": True,
        "feed_forward": FeedForwardKind.gelu,
        "start_symbol": StartSymbol.eos,
    },
    "as T5": {
        "positions": PositionKind.buckets,
        "position_buckets": 8,
        "bucket_distance": 9,
        "norm": NormOrder.pre,
        "norm_kind": NormKind.rms_norm,
        "feed_forward": FeedForwardKind.geglu_tanh,
        "attention_score": ScoreKind.dot,
        "embedding_scale": False,
        "start_symbol": StartSymbol.pad,
    },
    "approximate gelu": {"feed_forward": FeedForwardKind.gelu_tanh},
    "without scale": {"attention_score": ScoreKind.dot},
    "distances of one head": {"positions": PositionKind.relative, "relative_distance": 3, "num_heads": 1},
    "several embeddings": {"share_all_embeddings": False, "share_decoder_embeddings": False},
}


def store(folder: Path, pair: LanguagePair = PAIR, **options: Any) -> Path:
    """A small Transformer of random parameters, whose translations end soon."""
    torch.manual_seed(3)
    sizes = VocabularySizes(len(pair.source.vocabulary), len(pair.target.vocabulary), pair.shared)
    config = TransformerConfig(2, 2, **({"d_model": 16, "d_ff": 24, "num_heads": 2} | options))
    model = models.build(config, sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        norms = [
            module for module in model.decoder.modules() if isinstance(module, (torch.nn.LayerNorm, torch.nn.RMSNorm))
        ]
        if isinstance(norms[-1], torch.nn.LayerNorm):  # the last one writes what is scored
            norms[-1].bias.add_(0.7 * model.output.matrix()[0][EOS])
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    training = {name: value for name, value in options.items() if "dropout" in name}
    found = PortableModel(describe(config, sizes, state, "here"), pair, training)
    write_model(Converted.of(found), folder, {"imported_from": "nowhere"}, overwrite=False, style=ProgressStyle.none)
    return folder


def run_example(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the example of a model card in its folder."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    monkeypatch.chdir(folder)
    exec(compile(code, str(folder / "README.md"), "exec"), {})


def scores(folder: Path, source: list[str], target: list[str]) -> torch.Tensor:
    """[T, V] log-probabilities of a model folder, after each piece of a target."""
    loaded = load_model(folder, "cpu")
    sides = (loaded.pair.source, source), (loaded.pair.target, target)
    ids = [np.array([*map(tokenizer.vocabulary.id, pieces), EOS]) for tokenizer, pieces in sides]
    batch = collate(ids[:1], ids[1:])
    with torch.inference_mode():
        return loaded.module.output.logits(loaded.module(batch).hidden).log_softmax(-1)


def log_probability(folder: Path, source: list[str], target: list[str]) -> float:
    """Of a target with its end."""
    vocabulary = load_model(folder, "cpu").pair.target.vocabulary
    wanted = torch.tensor([*map(vocabulary.id, target), EOS])
    return float(scores(folder, source, target).gather(1, wanted[:, None]).sum())
