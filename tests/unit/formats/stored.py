"""Random models in folders, as training leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.data.batching.batch import collate
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.vocabulary import EOS
from nmt.formats import PortableModel
from nmt.formats.importing import Converted, write_model
from nmt.interface import VocabularySizes
from nmt.models import models
from nmt.models.loading import load_model
from nmt.models.transformer.config import TransformerConfig
from nmt.models.transformer.own_weights import describe

_WORDS = WordTokenizer(WordsConfig(), [f"p{number}" for number in range(30)])
PAIR = LanguagePair("en", "de", _WORDS, _WORDS, shared=True)


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
    write_model(Converted.of(found), folder, {"imported_from": "nowhere"})
    return folder


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
