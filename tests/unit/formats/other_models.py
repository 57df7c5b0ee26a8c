"""Random models as transformers and fairseq store them, and their scores by transformers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.exchange import ImportConfig
from nmt.formats.importing import import_model
from nmt.models.loading import load_model
from tests.unit.formats.stored import scores

transformers = pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")

PIECES = [f"p{number}" for number in range(30)]
SIZES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
}
SOURCE, TARGET = ["p3", "p8", "p1", "p20"], ["p4", "p25", "p4"]
OPTIONS: dict[str, Any] = {
    "arch": "transformer",
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_embed_dim": 24,
    "decoder_ffn_embed_dim": 24,
    "encoder_embed_dim": 16,
    "decoder_embed_dim": 16,
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
    "no_scale_embedding": False,
    "activation_fn": "relu",
    "dropout": 0.25,
}


def marian(folder: Path, symbols: Sequence[str] = ("</s>", "<unk>", *PIECES, "<pad>"), **options: Any) -> Any:
    """A random model as OPUS-MT publishes them: </s> and <unk> first, <pad> last."""
    config = transformers.MarianConfig(
        vocab_size=len(symbols),
        decoder_vocab_size=len(symbols),
        pad_token_id=len(symbols) - 1,
        eos_token_id=0,
        bos_token_id=0,
        decoder_start_token_id=len(symbols) - 1,
        forced_eos_token_id=0,
        **(
            SIZES
            | {"activation_function": "swish", "scale_embedding": True, "static_position_embeddings": True}
            | options
        ),
    )
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        model.final_logits_bias.normal_()
    model.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(symbols)}))
    return transformers.MarianMTModel.from_pretrained(folder).eval()


def fsmt(folder: Path, *, learned: bool = False) -> Any:
    """A random model of fairseq's kind, with two vocabularies; ``learned``: with positions that no formula gives."""
    sides = {"src": PIECES, "tgt": PIECES[:-4]}
    config = transformers.FSMTConfig(
        langs=["en", "de"],
        src_vocab_size=4 + len(sides["src"]),
        tgt_vocab_size=4 + len(sides["tgt"]),
        activation_function="relu",
        scale_embedding=True,
        tie_word_embeddings=False,
        decoder_start_token_id=2,
        **SIZES,
    )
    torch.manual_seed(2)
    model = transformers.FSMTForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if learned or "embed_positions" not in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    for side, pieces in sides.items():
        ids = {piece: number for number, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
        (folder / f"vocab-{side}.json").write_text(json.dumps(ids))
    (folder / "merges.txt").write_text("p 3</w>\n")
    return transformers.FSMTForConditionalGeneration.from_pretrained(folder).eval()


def dictionaries(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """dict.en.txt and dict.de.txt, and the ids that fairseq reads of them."""
    ids = []
    for language, pieces in (("en", PIECES), ("de", PIECES[:-4])):
        (folder / f"dict.{language}.txt").write_text("".join(f"{piece} 5\n" for piece in pieces))
        ids.append({piece: number for number, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])})
    return ids[0], ids[1]


def state_of(model: Any) -> dict[str, torch.Tensor]:
    """Under fairseq's names, with what it stores beside the model."""
    state = {name.removeprefix("model."): tensor for name, tensor in model.state_dict().items()}
    state |= {"encoder.version": torch.tensor([3.0]), "encoder.layers.0.fc1_weight": torch.zeros(24, 16)}
    return state


def write(path: Path, state: dict[str, torch.Tensor], **options: Any) -> Path:
    checkpoint = {"args": None, "cfg": {"model": argparse.Namespace(**(OPTIONS | options))}, "model": state}
    torch.save(checkpoint | {"last_optimizer_state": {"state": {0: torch.zeros(3)}}}, path)
    return path


def imported_checkpoint(folder: Path, **options: Any) -> Path:
    given: dict[str, Any] = {
        "path": str(folder / "model.pt"),
        "srcdict": str(folder / "dict.en.txt"),
        "tgtdict": str(folder / "dict.de.txt"),
        "source_lang": "en",
        "target_lang": "de",
        "output": str(folder / "here"),
    }
    return import_model(ImportConfig(from_format="fairseq", **(given | options)))[0]


def theirs(model: Any, source: dict[str, int], target: dict[str, int]) -> dict[str, torch.Tensor]:
    """By piece of the target vocabulary [T]."""
    start, end = model.config.decoder_start_token_id, model.config.eos_token_id
    read = torch.tensor([[start, *(target[piece] for piece in TARGET)]])
    with torch.inference_mode():
        given = torch.tensor([[*(source[piece] for piece in SOURCE), end]])
        # With a cache FSMT masks nothing.
        scores = model(input_ids=given, decoder_input_ids=read, use_cache=False).logits[0].log_softmax(-1)
    return {piece: scores[:, number] for piece, number in target.items()}


def assert_same_scores(folder: Path, expected: dict[str, torch.Tensor]) -> None:
    found, vocabulary = scores(folder, SOURCE, TARGET), load_model(folder, "cpu").pair.target.vocabulary
    for number, piece in enumerate(vocabulary.pieces):
        if piece in expected:
            torch.testing.assert_close(found[:, number], expected[piece], atol=1e-5, rtol=1e-5)
        else:
            assert bool((found[:, number] < -50).all()), f"{piece} has a probability"
