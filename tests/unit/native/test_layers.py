"""Layers in C give what the modules that they are made of give."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nmt.config.choices import NumberFormat
from nmt.config.plain import from_plain
from nmt.data.batch import collate
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.models.packed_output import pack_model
from nmt.models.transformer import Transformer
from nmt.modules.transformer_layers import DecoderLayer, EncoderLayer
from nmt.native.library import SWITCH, forget
from nmt.search.beam import BeamSearch
from nmt.search.beam_config import BeamConfig
from tests.unit.native.levels import level, needs_library

__all__ = ["level"]  # a fixture

pytestmark = needs_library
VARIANTS = [
    {},
    {"norm": "pre"},
    {"d_model": 192, "num_heads": 3},  # heads of 64
    {"d_model": 20, "num_heads": 4},  # heads of 5
    {"share_all_embeddings": False, "share_decoder_embeddings": False},
    {"attention_score": "dot", "attention_bias": True},
    {"positions": "learned"},
]
NOT_IN_C = [
    {"norm_kind": "rms_norm"},
    {"positions": "rotary"},
    {"feed_forward": "swiglu"},
    {"attention_score": "additive"},
    {"decoder": "average_attention"},
    {"decoder": "ssru"},
    {"decoder_neighbourhood": 3},
    {"encoder_neighbourhood": 3},
    {"layers": "universal"},
    {"d_k": 24},
]


def transformer(**options: object) -> Transformer:
    torch.manual_seed(1)
    config_class = models.config_class("transformer")
    sizes = {"d_model": 64, "num_heads": 2, "d_ff": 70, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    config = from_plain(config_class, sizes | options, origin="test")
    model = models.build(config, VocabularySizes(90, 90, True)).eval()
    for parameter in model.parameters():  # norms and biases that do something
        if parameter.dim() == 1:
            nn.init.normal_(parameter, 0.5, 0.3)
    assert isinstance(model, Transformer)
    return model


def steps(model: EncoderDecoder, moves: int = 20) -> Tensor:
    """The scores of some steps: slots change, sentences leave, caches grow."""
    random = torch.Generator().manual_seed(1)
    batch = collate([[5, 6, 7, 8, 9, 3], [5, 3], [8, 8, 8, 3]], [[3]] * 3)
    beam, sentences, found = 3, 3, []
    with torch.inference_mode():
        memory, state = model.start(model.encode(batch.source, batch.source_lengths), beam)
        tokens = torch.full((sentences * beam,), 2)
        for move in range(moves):
            output = model.step(tokens, memory, state)
            found.append(output.log_probabilities())
            first = torch.arange(0, sentences * beam, beam)[:, None]
            rows = first + torch.randint(beam, (sentences, beam), generator=random)
            state = output.state
            if move in (4, 18):
                staying = torch.tensor([0, 2] if move == 4 else [1])
                rows, sentences, memory = rows[staying], len(staying), memory.rows(staying)
            state = state.rows(rows.flatten())
            tokens = torch.randint(4, 90, (sentences * beam,), generator=random)
    return torch.cat(found)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_a_packed_model_gives_the_scores_of_the_model(level: str, options: dict[str, object]) -> None:
    plain, packed = transformer(**options), transformer(**options)
    pack_model(packed, NumberFormat.float32)
    layers = [*packed.encoder.stack(), *packed.decoder.stack()]
    assert all(isinstance(layer, EncoderLayer | DecoderLayer) and layer.natively() is not None for layer in layers)
    torch.testing.assert_close(steps(packed), steps(plain), atol=2e-5, rtol=1e-5)


def test_torch_gives_the_scores_of_c_where_that_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = steps(transformer())
    monkeypatch.setenv(SWITCH, "off")
    forget()
    try:
        torch.testing.assert_close(steps(transformer()), expected, atol=2e-5, rtol=1e-5)
    finally:
        monkeypatch.undo()
        forget()


@pytest.mark.parametrize("options", NOT_IN_C, ids=str)
def test_what_c_does_not_know_is_computed_by_torch(options: dict[str, object]) -> None:
    plain, packed = transformer(**options), transformer(**options)
    pack_model(packed, NumberFormat.float32)
    torch.testing.assert_close(steps(packed), steps(plain), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("number_format", NumberFormat)
def test_batch_mates_change_no_bit(level: str, number_format: NumberFormat) -> None:
    model = transformer()
    pack_model(model, number_format)
    sources = [[5, 6, 7, 8, 9, 3], [5, 3], [8, 8, 8, 3], [30, 31, 32, 33, 34, 35, 36, 37, 3]]
    search = BeamSearch(BeamConfig(beam_size=3, max_len_a=0.0, max_len_b=20), nbest=2)

    def found(chosen: list[list[int]]) -> list[tuple[list[int], list[float]]]:
        batch = collate(chosen, [[3]] * len(chosen))
        best = search(model, batch.source, batch.source_lengths)
        return [(one.tokens.tolist(), one.token_scores.tolist()) for sentence in best for one in sentence]

    together = found(sources)
    assert together == [one for source in sources for one in found([source])]
    assert found(sources[::-1]) == [one for source in sources[::-1] for one in found([source])]
