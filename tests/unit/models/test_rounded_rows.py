"""Where rows are rounded, to integers or to bf16 for tiles, a last bit can turn one over: batch mates must not even change
that one.

The models are large enough for it to happen to some of the sentences if attention were computed in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nmt.config.choices import NumberFormat
from nmt.data.batch import Batch, collate
from nmt.data.vocabulary import EOS
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.models.lstm_config import CellKind
from nmt.models.packed_output import PackedOutput, pack_model
from nmt.models.transformer_parts import PositionKind
from nmt.search.beam import BeamSearch
from nmt.search.beam_config import BeamConfig
from nmt.search.forced import ForcedSearch, score_at_once, score_targets
from nmt.search.requests import Request
from tests.unit.native.levels import level, needs_library

__all__ = ["level"]  # a fixture

pytestmark = needs_library

ENTRIES, SENTENCES = 500, 40
WIDE: dict[str, Any] = {"encoder_layers": 3, "decoder_layers": 3, "d_model": 128, "d_ff": 256, "num_heads": 4}
CONVOLUTIONS: dict[str, Any] = {
    "embedding_size": 512,
    "encoder_convolutions": ["3x256x3"],
    "decoder_convolutions": ["3x256x3"],
    "share_all_embeddings": True,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", WIDE),
    "relative positions": ("transformer", WIDE | {"positions": PositionKind.relative}),
    "neighbourhood": ("transformer", WIDE | {"encoder_neighbourhood": 3}),
    "experts": ("transformer_moe", WIDE | {"num_experts": 4}),
    "gru": ("lstm", {"hidden_size": 64, "embedding_size": 64, "cell": CellKind.gru}),
    "gnmt": ("gnmt", {"hidden_size": 64, "embedding_size": 64}),
    "fast-forward connections": ("deep_att", {"hidden_size": 128, "encoder_layers": 3, "decoder_layers": 2}),
    "memory": ("neural_turing_machine", {"controller_size": 256, "read_heads": 4}),
    "recurrent experts": ("lstm_moe", {"width": 64, "cell_size": 128, "num_experts": 8, "expert_size": 128}),
    "convolutions": ("conv_s2s", CONVOLUTIONS),
    "images": ("neural_gpu", {"num_maps": 96, "height": 1, "num_convs": 1, "width_a": 1, "width_b": 31}),
}

IN_TILES = {  # where so few sentences show it
    "transformer": "with attention",
    "relative positions": "at once",
    "neighbourhood": "at once",
    "experts": "at once",
    "memory": "at once",
    "recurrent experts": "at once",
    "convolutions": "with attention",
}


def packed(name: str, number_format: NumberFormat = NumberFormat.int8) -> EncoderDecoder:
    kind, options = MODELS[name]
    torch.manual_seed(1)
    model = models.build(models.config_class(kind)(**options), VocabularySizes(ENTRIES, ENTRIES, shared=True)).eval()
    for key, parameter in model.named_parameters():
        if key.endswith(".gate"):  # starts at zero, where all experts are equally good
            nn.init.normal_(parameter, std=0.1)
    pack_model(model, number_format)
    return model


def sentences() -> tuple[list[np.ndarray], list[np.ndarray]]:
    numbers = np.random.default_rng(1)

    def some() -> list[np.ndarray]:
        return [np.append(numbers.integers(4, ENTRIES, numbers.integers(5, 35)), EOS) for _ in range(SENTENCES)]

    return some(), some()


def batch_of(places: list[int]) -> Batch:
    sources, targets = sentences()
    return collate([sources[place] for place in places], [targets[place] for place in places])


def scores(model: EncoderDecoder, places: list[int], way: str) -> list[Tensor]:
    batch = batch_of(places)
    targets = [torch.from_numpy(sentences()[1][place]) for place in places]
    if way == "at once":
        return score_at_once(model, batch.source, batch.source_lengths, targets)
    attention: list[Tensor] | None = [] if way == "with attention" else None
    return score_targets(model, batch.source, batch.source_lengths, targets, attention)


@pytest.mark.parametrize("way", ["by steps", "with attention", "at once"])
@pytest.mark.parametrize("name", MODELS)
def test_batch_mates_change_nothing(name: str, way: str) -> None:
    assert_alike_alone(packed(name), way)


def assert_alike_alone(model: EncoderDecoder, way: str, sentences: int = SENTENCES) -> None:
    together = scores(model, list(range(sentences)), way)
    for place, found in enumerate(together):
        (alone,) = scores(model, [place], way)
        torch.testing.assert_close(found, alone, rtol=0, atol=2e-5, msg=f"sentence {place}")


@pytest.mark.parametrize(("name", "way"), IN_TILES.items())
@pytest.mark.parametrize("level", ["amx"], indirect=True)
@pytest.mark.usefixtures("level")
def test_nor_do_they_in_bf16_where_a_processor_has_tiles(name: str, way: str) -> None:
    assert_alike_alone(packed(name, NumberFormat.bfloat16), way, sentences=12)


@pytest.mark.parametrize("name", MODELS)
def test_what_a_search_finds_is_scored_as_it_did(name: str) -> None:
    model, batch = packed(name), batch_of(list(range(8)))
    config = BeamConfig(beam_size=2, max_len_a=0.0, max_len_b=12)
    with torch.inference_mode():
        found = [best[0] for best in BeamSearch(config)(model, batch.source, batch.source_lengths)]
    asked = [Request(target=tuple(one.tokens[:-1].tolist())) for one in found]
    again = ForcedSearch(config.length_penalty, config.lenpen)(
        model, batch.source, batch.source_lengths, requests=asked
    )
    for one, (other,) in zip(found, again):
        torch.testing.assert_close(other.token_scores, one.token_scores, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["convolutions", "images"])
@pytest.mark.parametrize(
    ("level", "number_format"), [("avx2", NumberFormat.int8), ("amx", NumberFormat.bfloat16)], indirect=["level"]
)
@pytest.mark.usefixtures("level")
def test_a_model_whose_rows_must_not_be_rounded_translates_in_float32_and_says_so(
    name: str, number_format: NumberFormat, caplog: pytest.LogCaptureFixture
) -> None:
    output = packed(name, number_format).output
    assert isinstance(output, PackedOutput) and output.packed.format is NumberFormat.float32
    assert "translates in float32" in caplog.text
