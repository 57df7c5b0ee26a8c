"""The engine in C beside the model that it was made of: the same scores, the same translations, whatever is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.choices import NumberFormat
from nmt.engines.model_engine import ModelEngine
from nmt.engines.native import NativeEngine
from nmt.engines.packing import Packing
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.layers.sinusoids import SinusoidLayout, Wavelengths
from nmt.models import models
from nmt.models.transformer.config import (
    DecoderKind,
    FeedForwardKind,
    NormKind,
    NormOrder,
    PositionKind,
    ScoreKind,
    StartSymbol,
    TransformerConfig,
)
from nmt.models.transformer.own_weights import describe
from nmt.native.library import library
from nmt.search.beam import BeamSearch, DiverseBeamSearch
from nmt.search.config import BeamConfig, DiverseBeamConfig, StopRule
from nmt.search.requests import Request, Sentences

pytestmark = pytest.mark.skipif(library() is None, reason="the C part was not built: no C compiler")

JOINT, APART = VocabularySizes(90, 90, True), VocabularySizes(80, 70, False)
MODELS: dict[str, tuple[dict[str, Any], VocabularySizes]] = {
    "paper": ({"d_model": 64, "num_heads": 2}, JOINT),
    "narrow heads": ({"d_model": 24, "num_heads": 3}, APART),
    "heads that fill no register": ({"d_model": 36, "num_heads": 3}, JOINT),
    "wide heads": ({"d_model": 128, "num_heads": 1}, JOINT),
    "norms first": ({"d_model": 32, "num_heads": 1, "norm": NormOrder.pre, "attention_bias": True}, JOINT),
    "learned positions": (
        {"positions": PositionKind.learned, "max_positions": 30, "share_decoder_embeddings": False},
        APART,
    ),
    "gelu, which looks as fairseq's": (
        {
            "feed_forward": FeedForwardKind.gelu,
            "sinusoid_layout": SinusoidLayout.halves,
            "sinusoid_wavelengths": Wavelengths.tensor2tensor,
            "position_offset": 2,
            "start_symbol": StartSymbol.eos,
            "decoder_norm": NormOrder.pre,
        },
        JOINT,
    ),
    "swish, which looks as Marian's": (
        {
            "feed_forward": FeedForwardKind.swish,
            "d_ff": 37,
            "sinusoid_layout": SinusoidLayout.halves,
            "output_bias": True,
            "embedding_scale": False,
            "start_symbol": StartSymbol.pad,
            "norm_epsilon": 1e-3,
        },
        APART,
    ),
    "M2M100": (
        {
            "norm": NormOrder.pre,
            "attention_bias": True,
            "sinusoid_layout": SinusoidLayout.halves,
            "sinusoid_wavelengths": Wavelengths.tensor2tensor,
            "position_offset": 2,
            "start_symbol": StartSymbol.eos,
        },
        JOINT,
    ),
    "mBART": (
        {
            "norm": NormOrder.pre,
            "attention_bias": True,
            "embedding_norm": True,
            "positions": PositionKind.learned,
            "feed_forward": FeedForwardKind.gelu,
            "output_bias": True,
            "start_symbol": StartSymbol.eos,
        },
        JOINT,
    ),
    "norm of embeddings, norms after": ({"embedding_norm": True}, APART),
    "recurrent decoder": ({"decoder": DecoderKind.ssru, "d_model": 36, "num_heads": 3}, JOINT),
    "recurrent decoder, norms first": ({"decoder": DecoderKind.ssru, "norm": NormOrder.pre}, APART),
    "scores without scale": ({"attention_score": ScoreKind.dot, "share_all_embeddings": False}, JOINT),
    "T5": (
        {
            "norm": NormOrder.pre,
            "norm_kind": NormKind.rms_norm,
            "positions": PositionKind.buckets,
            "position_buckets": 8,
            "bucket_distance": 6,
            "attention_score": ScoreKind.dot,
            "start_symbol": StartSymbol.pad,
            "d_k": 12,
            "d_v": 12,
        },
        JOINT,
    ),
    "MADLAD": (
        {
            "norm": NormOrder.pre,
            "norm_kind": NormKind.rms_norm,
            "feed_forward": FeedForwardKind.geglu_tanh,
            "positions": PositionKind.buckets,
            "attention_score": ScoreKind.dot,
            "share_all_embeddings": False,
            "d_k": 16,
            "d_v": 16,
            "num_heads": 4,
        },
        JOINT,
    ),
    "scaled scores with buckets": ({"positions": PositionKind.buckets, "bucket_distance": 20}, APART),
    "heads that are narrow together": ({"d_k": 5, "d_v": 5, "feed_forward": FeedForwardKind.gelu_tanh}, JOINT),
    "recurrent decoder, narrow heads": ({"decoder": DecoderKind.ssru, "d_k": 7, "d_v": 7}, JOINT),
    "gates of swish": ({"feed_forward": FeedForwardKind.swiglu, "norm_kind": NormKind.rms_norm}, JOINT),
    "gates of gelu": ({"feed_forward": FeedForwardKind.geglu, "d_ff": 37}, APART),
    "gates of sigmoid": ({"feed_forward": FeedForwardKind.glu}, JOINT),
}
COUNT, BEAM = 6, 3


def made(name: str, number_format: NumberFormat = NumberFormat.float32) -> tuple[EncoderDecoder, NativeEngine]:
    """A random model, and the engine made of it."""
    options, sizes = MODELS[name]
    config = TransformerConfig(2, 3, **({"d_model": 32, "d_ff": 40, "num_heads": 2} | options))
    model = models.build(config, sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    stored = {key: value.numpy() for key, value in model.state_dict().items()}
    return model, NativeEngine(describe(config, sizes, stored, "here"), Packing(number_format))


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("encoder.layers.0.self_attention.output.weight", (32, 31), r"\(32, 31\) in the checkpoint, \(32, 32\) in the"),
        ("decoder.layers.2.feed_forward.inner.bias", None, r"missing in the checkpoint, \(40,\) in the model"),
        ("encoder.layers.2.self_residual.norm.bias", (32,), r"\(32,\) in the checkpoint, missing in the model"),
    ],
)
def test_parameters_of_another_architecture_are_refused(name: str, shape: tuple[int, ...] | None, says: str) -> None:
    config = TransformerConfig(2, 3, d_model=32, d_ff=40, num_heads=2)
    stored = {key: value.numpy() for key, value in models.build(config, JOINT).state_dict().items()}
    if shape is None:
        del stored[name]
    else:
        stored[name] = np.zeros(shape, dtype=np.float32)
    with pytest.raises(UsageError, match=f"here holds another architecture: {name}: {says}"):
        describe(config, JOINT, stored, "here")


def test_other_widths_of_heads_are_never_handed_to_c() -> None:
    config = TransformerConfig(1, 1, d_model=32, d_ff=40, num_heads=2, d_k=5)
    stored = {key: value.numpy() for key, value in models.build(config, JOINT).state_dict().items()}
    with pytest.raises(AssertionError, match="which C cannot read"):
        NativeEngine(describe(config, JOINT, stored, "here"), Packing(NumberFormat.float32))


def sources(longest: int = 12) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [np.append(random.integers(4, 70, size=length), 3) for length in random.integers(0, longest, size=COUNT)]


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_attention_are_the_models_while_sentences_leave(name: str) -> None:
    model, native = made(name)
    random, engine = np.random.default_rng(2), ModelEngine(model, torch.device("cpu"))
    ours, theirs = (one.begin(sources(), BEAM) for one in (native, engine))
    tokens, there = np.full(COUNT * BEAM, 2), COUNT
    for step in range(25):
        found, expected = ours.step(tokens, True), theirs.step(tokens, True)
        rows = len(tokens)
        np.testing.assert_allclose(found.ranked(0, rows), expected.ranked(0, rows), atol=1e-4)
        np.testing.assert_allclose(found.attention, expected.attention, atol=1e-5, rtol=1e-4)
        staying = np.delete(np.arange(there), 1) if step in (3, 17) else np.arange(there)
        parents = random.integers(0, BEAM, size=(there, BEAM))
        for one in (ours, theirs):
            one.follow(parents, staying)
        there = len(staying)
        tokens = random.integers(4, 70, size=there * BEAM)


SEARCHES = {
    "plain": (BeamConfig(beam_size=4), None),
    "every rule": (
        BeamConfig(beam_size=4, no_repeat_ngram=2, repetition_penalty=1.3, forbid_unknown=True, min_len=3),
        None,
    ),
    "coverage": (BeamConfig(beam_size=3, coverage_penalty=0.3, stop=StopRule.bound), None),
    "wide": (BeamConfig(beam_size=40, stop=StopRule.all, max_len_b=3), None),
    "asked for": (
        BeamConfig(beam_size=5),
        [
            Request(prefix=(7, 8)),
            Request(include=((9, 10), (11,))),
            Request(exclude=((12,), (13, 14))),
            Request(min_length=5, max_length=6),
            Request(),
            Request(),
        ],
    ),
    "diverse": (DiverseBeamConfig(beam_size=4, groups=2), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", SEARCHES)
@pytest.mark.parametrize("name", ["paper", "norms first", "recurrent decoder"])
def test_searches_find_what_they_find_with_the_model(name: str, asked: str) -> None:
    model, native = made(name)
    config, requests = SEARCHES[asked]
    kind = DiverseBeamSearch if isinstance(config, DiverseBeamConfig) else BeamSearch
    search = kind(config, nbest=3)  # type: ignore[arg-type]
    found = search.find(native, Sentences(sources(), True, requests))
    expected = search.find(ModelEngine(model, torch.device("cpu")), Sentences(sources(), True, requests))
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.tokens.tolist() == other.tokens.tolist() and one.finished == other.finished
            assert one.score == pytest.approx(other.score, abs=1e-4)
            np.testing.assert_allclose(one.token_scores, other.token_scores, atol=2e-5)
            assert one.attention is not None and other.attention is not None
            np.testing.assert_allclose(one.attention, other.attention, atol=2e-6)


@pytest.mark.parametrize("name", ["paper", "learned positions"])
@pytest.mark.parametrize("number_format", NumberFormat)
def test_lists_of_pieces_are_a_part_of_the_vocabulary(name: str, number_format: NumberFormat) -> None:
    """Where a list leaves out what the whole vocabulary would not choose, the translation is the same; scores are those of
    the pieces that are left."""
    _, native = made(name, number_format)
    random = np.random.default_rng(3)
    lists = [np.unique([0, 1, 2, 3, *random.integers(4, 70, size=20 + 5 * sentence)]) for sentence in range(COUNT)]
    short, whole = (native.begin(sources(), BEAM, one) for one in (lists, None))
    tokens = np.full(COUNT * BEAM, 2)
    for _ in range(4):
        found = short.step(tokens).ranked(0, len(tokens))
        ids = np.concatenate([pieces[row] for pieces, row in zip(lists, tokens.reshape(COUNT, BEAM))])
        every = whole.step(ids).ranked(0, len(tokens))
        for row, scores in enumerate(found):
            pieces = lists[row // BEAM]
            expected = every[row, pieces] - np.logaddexp.reduce(every[row, pieces])
            np.testing.assert_allclose(scores[: len(pieces)], expected, atol=1e-5)
            assert (scores[len(pieces) :] == -np.inf).all()
        tokens = np.concatenate([random.integers(0, len(pieces), size=BEAM) for pieces in lists])
        for one in (short, whole):
            one.follow(np.tile(np.arange(BEAM), (COUNT, 1)), np.arange(COUNT))


@pytest.mark.parametrize("number_format", NumberFormat)
@pytest.mark.parametrize(
    "name", ["paper", "gelu, which looks as fairseq's", "swish, which looks as Marian's", "recurrent decoder"]
)
def test_batch_mates_change_no_bit(number_format: NumberFormat, name: str) -> None:
    _, native = made(name, number_format)
    search = BeamSearch(BeamConfig(beam_size=4), nbest=2)
    lists = [np.unique([0, 1, 2, 3, *np.arange(4 + n, 60)]) for n in range(COUNT)]
    for short in (None, lists):
        together = search.find(native, Sentences(sources(), lists=short))
        for number, source in enumerate(sources()):
            own = None if short is None else short[number : number + 1]
            (alone,) = search.find(native, Sentences([source], lists=own))
            for one, other in zip(together[number], alone, strict=True):
                assert one.tokens.tolist() == other.tokens.tolist()
                assert one.score == other.score and one.token_scores.tolist() == other.token_scores.tolist()


@pytest.mark.parametrize(("number_format", "close"), [("bfloat16", 0.05), ("float16", 0.01), ("int8", 0.2)])
def test_fewer_bytes_give_close_scores(number_format: str, close: float) -> None:
    model, native = made("paper", NumberFormat[number_format])
    tokens, engine = np.full(COUNT * BEAM, 2), ModelEngine(model, torch.device("cpu"))
    found, expected = (one.begin(sources(), BEAM).step(tokens).ranked(0, len(tokens)) for one in (native, engine))
    assert 0 < np.abs(found - expected).max() < close


@pytest.mark.parametrize("name", ["M2M100", "mBART"])
def test_multilingual_models_translate_alike_in_every_data_type(name: str) -> None:
    torch.manual_seed(1)
    model, native = made(name)
    search = BeamSearch(BeamConfig(beam_size=4), nbest=2)
    expected = search.find(ModelEngine(model, torch.device("cpu")), Sentences(sources()))
    for ours, theirs in zip(search.find(native, Sentences(sources())), expected, strict=True):
        assert [one.tokens.tolist() for one in ours] == [other.tokens.tolist() for other in theirs]
        assert [one.score for one in ours] == pytest.approx([other.score for other in theirs], abs=1e-4)
    tokens = np.full(COUNT * BEAM, 2)
    whole = native.begin(sources(), BEAM).step(tokens).ranked(0, len(tokens))
    for number_format, close in {NumberFormat.bfloat16: 0.1, NumberFormat.int8: 0.3}.items():
        torch.manual_seed(1)
        found = made(name, number_format)[1].begin(sources(), BEAM).step(tokens).ranked(0, len(tokens))
        assert 0 < np.abs(found - whole).max() < close, number_format


def test_sinusoids_reach_as_far_as_a_sentence() -> None:
    model, native = made("paper")
    long: Sequence[np.ndarray] = [np.append(np.full(700, 5), 3), np.array([4, 3])]
    tokens, engine = np.full(2, 2), ModelEngine(model, torch.device("cpu"))
    ours, theirs = (one.begin(long, 1) for one in (native, engine))
    for step in range(300):
        found, expected = ours.step(tokens), theirs.step(tokens)
        if step % 50 == 0 or step > 290:
            np.testing.assert_allclose(found.ranked(0, 2), expected.ranked(0, 2), atol=2e-5)


def test_learned_positions_are_a_limit() -> None:
    _, native = made("learned positions")
    assert native.longest_source == 30 and native.longest_targets(np.array([5, 9])).tolist() == [30, 30]
    assert made("paper")[1].longest_targets(np.array([5])) is None
