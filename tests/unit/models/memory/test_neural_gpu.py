"""The extended Neural GPU beyond the laws of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data.batching.batch import Batch, collate
from nmt.errors import DataError, UsageError
from nmt.interface import AttentionRequest, VocabularySizes
from nmt.models import models
from nmt.models.memory.config import NeuralGPUConfig
from nmt.models.memory.neural_gpu import NeuralGPU, NeuralGPUMemory, NeuralGPUState
from nmt.testing.subjects import load_preset

SIZES = VocabularySizes(20, 30, shared=False)
SMALL = {"num_maps": 4, "height": 2, "embedding_size": 5, "width_a": 1.0, "width_b": 2, "dropout": 0.0}


def build(**options: Any) -> NeuralGPU:
    torch.manual_seed(1)
    model = models.build(NeuralGPUConfig(**(SMALL | options)), SIZES)
    assert isinstance(model, NeuralGPU)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.eval()


def batch(*sources: list[int]) -> Batch:
    given = sources or ([5, 6, 7, 3], [8, 3])
    targets = [[9, 10, 3], [11, 12, 13, 3]][: len(given)]
    return collate([torch.tensor(ids).numpy() for ids in given], [torch.tensor(ids).numpy() for ids in targets])


def encoded(model: NeuralGPU, pairs: Batch) -> NeuralGPUMemory:
    memory = model.encode(pairs.source, pairs.source_lengths)
    assert isinstance(memory, NeuralGPUMemory)
    return memory


def first_image(model: NeuralGPU, ids: list[int], width: int) -> Tensor:
    """[1, C, W, H] the source embedded in the first row, zeros elsewhere, mapped and normed cell by cell."""
    cells = torch.zeros(1, width, model.height, model.source_embedding.weight.size(1))
    for column, piece in enumerate(ids):
        cells[0, column, 0] = model.source_embedding.weight[piece]
    return model.norm(model.input(cells)).permute(0, 3, 1, 2)  # type: ignore[no-any-return]


def test_each_sentence_takes_as_many_encoder_steps_as_it_has_pieces() -> None:
    """By hand, sentence by sentence, without any padding."""
    model = build()
    pairs = batch()
    images = encoded(model, pairs).image
    for row, ids in enumerate([[5, 6, 7, 3], [8, 3]]):
        width = len(ids) + 2
        inside = torch.ones(1, 1, width, 1)
        image = model.first(first_image(model, ids, width), inside)
        for _ in ids:
            image = model.encoder(image, inside)
        torch.testing.assert_close(images[row : row + 1, :, :width], image)


def test_beyond_its_own_width_an_image_stays_zero() -> None:
    model = build()
    pairs = batch()
    memory, state = model.start(encoded(model, pairs), beam_size=1)
    for step in range(4):
        assert isinstance(state, NeuralGPUState)
        assert not state.image[1, :, 4:].any() and state.image[1, :, :4].all() and state.image[0].all()
        state = model.step(pairs.target_in[:, min(step, 3)], memory, state).state


def test_the_tape_holds_the_outputs_so_far() -> None:
    """bos is no output; the last token is written before the step that follows it."""
    model = build()
    memory, state = model.start(encoded(model, batch()), beam_size=1)
    for tokens in ([2, 2], [9, 11], [10, 12]):
        state = model.step(torch.tensor(tokens), memory, state).state
    assert isinstance(state, NeuralGPUState)
    written = model.target_embedding(torch.tensor([[9, 10], [11, 12]])).transpose(1, 2)  # [N, C, 2]
    torch.testing.assert_close(state.tape[:, :, :2], written)
    assert not state.tape[:, :, 2:].any()


def test_an_output_is_read_from_the_first_row_of_its_own_column() -> None:
    """Teacher forcing by hand: the tape of the tokens before, a step, a column."""
    model = build()
    pairs = batch([5, 6, 7, 3])
    image, inside = encoded(model, pairs).image, torch.ones(1, 1, 6, 1)
    tape, expected = torch.zeros(1, 4, 6, 2), []
    for position in range(3):
        if position:
            tape[:, :, position - 1] = model.target_embedding(pairs.target_in[:, position])[:, :, None]
        image = model.decoder(image, inside, tape)
        expected.append(image[0, :, position, 0])
    torch.testing.assert_close(model(pairs).hidden, torch.stack(expected))


def test_the_width_is_the_longest_target() -> None:
    model = build(width_a=1.5, width_b=2)
    limits = model.max_target_lengths(torch.tensor([1, 4, 5]))
    assert limits is not None and limits.tolist() == [3, 8, 9]
    assert encoded(model, batch()).inside[:, 0, :, 0].sum(1).tolist() == [8, 5]


@pytest.mark.parametrize("mates", [0, 1])
def test_a_target_wider_than_its_own_image_is_refused(mates: int) -> None:
    """Beside a wider image too: past its own width there is nothing to read."""
    model = build(width_b=0)
    sources, targets = [[5, 3], [5, 6, 7, 8, 3]], [[9, 10, 3], [9, 3]]
    pairs = collate(*([torch.tensor(ids).numpy() for ids in side[: 1 + mates]] for side in (sources, targets)))
    with pytest.raises(DataError, match="3 tokens, but the image of its source is 2 wide"):
        model(pairs)


def test_there_is_no_attention_to_look_at() -> None:
    assert build()(batch(), AttentionRequest()).attention.maps == {}


def test_dropout_acts_in_training_only() -> None:
    model = build(dropout=0.3)
    assert not torch.equal(model.train()(batch()).hidden, model(batch()).hidden)
    assert torch.equal(model.eval()(batch()).hidden, model(batch()).hidden)


def test_the_number_of_parameters_is_that_of_the_parts() -> None:
    config = load_preset("neural_gpu_wmt")
    pieces, maps, size = 32768, config.num_maps, config.embedding_size
    with torch.device("meta"):
        model = NeuralGPU(config, VocabularySizes(pieces, pieces, shared=True))
    unit = 9 * maps * 3 * maps + 3 * maps  # three filters of 3 x 3 over one image
    reading_unit = unit + 9 * maps * 3 * maps  # over the tape as well
    tables = pieces * size + 2 * pieces * maps
    expected = tables + size * maps + 3 * maps + unit + 2 * unit + 2 * reading_unit
    assert sum(parameter.numel() for parameter in model.parameters()) == expected == 37_622_272


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_maps": 0}, "num_maps=0"),
        ({"height": 0}, "height=0"),
        ({"width_a": 0.9}, "width_a=0.9"),
        ({"width_b": -1}, "width_b=-1"),
        ({"dropout": 0.4}, "less than 1/3"),
    ],
)
def test_a_bad_value_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        NeuralGPUConfig(**options)


def test_shrinking_changes_sizes_only() -> None:
    config = NeuralGPUConfig(num_convs=3, width_a=2.0, width_b=7, dropout=0.2)
    sizes = ("num_maps", "height", "num_convs", "embedding_size")
    assert replace(config.shrink(), **{name: getattr(config, name) for name in sizes}) == config
