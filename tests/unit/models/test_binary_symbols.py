"""Bit vectors as symbols: codes, the fixed embedding, and the output layer of independent bits."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from nmt.data.vocabulary import BOS, EOS, PAD, UNK, VocabularySizes
from nmt.models.binary_symbols import (
    BinaryEmbedding,
    BinaryOutput,
    binary_embeddings,
    binary_output,
    bit_codes,
    bits_needed,
    input_codes,
)

COPY = 4 + 256  # specials and all 8-bit vectors


def layer(vocabulary_size: int = COPY, num_bits: int = 8) -> BinaryOutput:
    torch.manual_seed(1)
    return binary_output(12, vocabulary_size, num_bits).double()


def hidden(rows: int = 5) -> torch.Tensor:
    return torch.randn(rows, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 3


@pytest.mark.parametrize("number", [0, 1, 105, 255])
def test_a_symbols_code_is_its_number_in_binary(number: int) -> None:
    digits = "".join(str(int(bit)) for bit in bit_codes(COPY, 8)[4 + number])
    assert int(digits, 2) == number


@pytest.mark.parametrize(
    ("vocabulary_size", "bits"), [(5, 1), (6, 1), (7, 2), (8, 2), (9, 3), (23, 5), (260, 8), (261, 9)]
)
def test_bits_needed_are_the_fewest_that_tell_all_symbols_apart(vocabulary_size: int, bits: int) -> None:
    assert bits_needed(vocabulary_size) == bits
    codes = bit_codes(vocabulary_size, bits)[4:]
    assert len(codes.unique(dim=0)) == len(codes)


def test_the_embedding_has_a_channel_for_each_bit_and_for_each_of_bos_and_eos() -> None:
    embedding = BinaryEmbedding(input_codes(COPY, 8))
    assert embedding(torch.tensor([BOS, EOS, PAD, UNK, 4 + 3])).tolist() == [
        [0.0] * 8 + [1.0, 0.0],
        [0.0] * 8 + [0.0, 1.0],
        [0.0] * 10,
        [0.0] * 10,
        [0.0] * 6 + [1.0, 1.0, 0.0, 0.0],
    ]


def test_ids_beyond_the_symbols_have_channels_of_their_own() -> None:
    embedding = BinaryEmbedding(input_codes(4 + 8 + 2, 3))
    assert embedding(torch.tensor([4 + 8, 4 + 9])).tolist() == [[0.0] * 5 + [1.0, 0.0], [0.0] * 5 + [0.0, 1.0]]


def test_added_channels_stay_empty() -> None:
    narrow, wide, channels = binary_embeddings(VocabularySizes(COPY, COPY + 2, shared=False), 8)
    assert channels == wide(torch.arange(COPY + 2)).size(1) == 12
    assert narrow(torch.arange(COPY)).size(1) == 12 and not narrow(torch.arange(COPY))[:, 10:].any()


def test_a_symbols_probability_is_the_product_of_its_bits() -> None:
    """Given that it is a symbol: the softmax over the 256 of them factorises exactly."""
    output = layer()
    bits = output.project(hidden())[:, :8].sigmoid()  # [M, 8]
    codes = bit_codes(COPY, 8)[4:].double()  # [256, 8]
    product = torch.where(codes[None] == 1, bits[:, None], 1 - bits[:, None]).prod(-1)  # [M, 256]
    torch.testing.assert_close(output.logits(hidden())[:, 4:].softmax(-1), product)


def test_the_end_has_a_logistic_probability_of_its_own() -> None:
    output = layer()
    expected = output.project(hidden())[:, 8].sigmoid()
    torch.testing.assert_close(output.logits(hidden()).softmax(-1)[:, EOS], expected, rtol=1e-9, atol=1e-9)


def test_the_loss_of_a_symbol_is_the_logistic_loss_of_its_bits() -> None:
    output, number = layer(), 0b01101001
    logits = output.project(hidden())
    bits = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1], dtype=torch.float64).expand(5, 8)
    of_bits = F.binary_cross_entropy_with_logits(logits[:, :8], bits, reduction="none").sum(1)
    expected = of_bits + F.softplus(logits[:, 8])  # and of not being the end
    loss = -output.logits(hidden()).log_softmax(-1)[:, 4 + number]
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)


def test_what_is_never_produced_has_a_small_finite_probability() -> None:
    scores = layer().logits(hidden()).log_softmax(-1)[:, [PAD, UNK, BOS]]
    assert torch.isfinite(scores).all()
    assert scores.exp().max() < math.exp(-25)


def test_a_marker_has_a_logit_of_its_own() -> None:
    output = layer(4 + 8 + 2, 3)
    torch.testing.assert_close(output.logits(hidden())[:, [EOS, 12, 13]], output.project(hidden())[:, 3:])


def test_a_restricted_layer_gives_the_columns_asked_for() -> None:
    vocabulary = torch.tensor([EOS, 200, 7, PAD])
    torch.testing.assert_close(layer().restrict(vocabulary).logits(hidden()), layer().logits(hidden())[:, vocabulary])


def test_codes_are_no_part_of_a_stored_model() -> None:
    assert set(layer().state_dict()) == {"project.weight", "project.bias"}
    assert not BinaryEmbedding(input_codes(COPY, 8)).state_dict()


def test_the_codes_of_a_large_vocabulary_take_no_square_of_it() -> None:
    """A V x V matrix of 200,000 entries would have 160 GB."""
    codes, output = input_codes(200_000, 18), binary_output(4, 200_000, 18)
    assert codes.shape == (200_000, 20)
    assert output.get_buffer("table").shape == (200_000, 20)


def test_what_a_symbol_spends_is_not_rounded_to_16_bits() -> None:
    """Large logits of bits cancel with it."""
    output = layer().float()
    with torch.no_grad():
        output.project.weight.mul_(40)
    rows = hidden(200).float()
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = output.logits(rows)
        bits = output.project(rows)
    spent = F.softplus(bits.double()[:, :8]).sum(1)
    best = (bits.double()[:, :8].clamp(min=0).sum(1) - spent).float()
    assert float(spent.mean()) > 30
    torch.testing.assert_close(found[:, 4:].amax(1), best, atol=1e-3, rtol=1e-3)
