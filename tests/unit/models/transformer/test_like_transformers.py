"""Options with which our Transformer computes what the multilingual models of Hugging Face's transformers compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from nmt.data.batching.batch import collate
from nmt.data.vocabulary import EOS, PAD
from nmt.interface import VocabularySizes
from nmt.layers.buckets import bucket_of
from nmt.layers.embeddings import SinusoidalPositions
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models import models
from nmt.models.transformer.attention_kinds import BucketBiases
from nmt.models.transformer.config import PositionKind, TransformerConfig
from nmt.models.transformer.mask import Mask, whole_sequence
from nmt.models.transformer.own_weights import configuration, parameters
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    Buckets,
    FeedForwardWeights,
    LayerWeights,
    LinearWeights,
    NormWeights,
    StackWeights,
    TransformerWeights,
)

pytestmark = pytest.mark.slow  # imports transformers
transformers = pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")

VOCABULARY, EPSILON = 40, 1e-6


def test_the_sinusoids_of_m2m100_are_ours_from_the_third_row_on() -> None:
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    theirs = M2M100SinusoidalPositionalEmbedding(1022, 32, padding_idx=PAD + 1).weights.numpy()
    formula = Sinusoids(32, SinusoidLayout.halves, Wavelengths.tensor2tensor, offset=2)
    for ours in (formula.table(1000), SinusoidalPositions(32, formula).table.numpy()[:1000]):
        np.testing.assert_allclose(ours[:6], theirs[2:8], atol=1e-6, rtol=0)
        # They round angles to float32, so the difference grows with the position.
        assert (np.abs(ours - theirs[2:1002]).max(1) < 1e-6 + 2.0**-23 * np.arange(2, 1002)).all()
    assert not theirs[1].any()  # of padding, which no query attends to


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize(("count", "reach"), [(32, 128), (8, 6), (6, 50), (32, 17)])
def test_buckets_are_t5s_for_every_distance(count: int, reach: int, ahead: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    config = TransformerConfig(positions=PositionKind.buckets, position_buckets=count, bucket_distance=reach)
    distances = torch.arange(-400, 401)
    expected = T5Attention._relative_position_bucket(distances, ahead, count, reach)
    assert bucket_of(distances.numpy(), count, reach, ahead=ahead).tolist() == expected.tolist()
    biases = BucketBiases(config, ahead)
    bias = biases(Mask(None, whole_sequence(300, torch.device("cpu")))).bias
    by_distance = biases.weight[:, T5Attention._relative_position_bucket(distances, ahead, count, reach)]
    assert torch.equal(bias[:, 0], by_distance[:, 400:700])  # the first query
    assert torch.equal(bias[:, 299], by_distance[:, 101:401])  # the last query


def described(state: Mapping[str, Array], layers: int, heads: int, reach: int) -> TransformerWeights:
    """A T5 model of version 1.1."""

    def norm(name: str) -> NormWeights:
        return NormWeights(state[f"{name}.layer_norm.weight"], None, EPSILON)

    def attention(name: str) -> Attention:
        return Attention(*(LinearWeights(state[f"{name}.{part}.weight"]) for part in "qkvo"), scale=1.0)

    def layer(name: str, is_decoder: bool) -> LayerWeights:
        feed = f"{name}.layer.{2 if is_decoder else 1}"
        inner, gate, outer = (
            LinearWeights(state[f"{feed}.DenseReluDense.{part}.weight"]) for part in ("wi_0", "wi_1", "wo")
        )
        return LayerWeights(
            attention(f"{name}.layer.0.SelfAttention"),
            norm(f"{name}.layer.0"),
            attention(f"{name}.layer.1.EncDecAttention") if is_decoder else None,
            norm(f"{name}.layer.1") if is_decoder else None,
            FeedForwardWeights(inner, outer, Activation.gelu_tanh, gate),
            norm(feed),
        )

    def stack(side: str) -> StackWeights:
        own = tuple(layer(f"{side}.block.{number}", side == "decoder") for number in range(layers))
        table = state[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        final = NormWeights(state[f"{side}.final_layer_norm.weight"], None, EPSILON)
        return StackWeights(state["shared.weight"], 1.0, Buckets(table.T, reach), own, final, True)

    return TransformerWeights(stack("encoder"), stack("decoder"), LinearWeights(state["lm_head.weight"]), heads, PAD)


def test_a_t5_model_described_by_options_gives_the_same_scores() -> None:
    torch.manual_seed(2)
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=16,
        d_kv=6,
        d_ff=24,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=10,
    )
    theirs = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    state = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    weights, sizes = described(state, 2, 4, 10), VocabularySizes(VOCABULARY, VOCABULARY, True)
    own = configuration(weights, sizes)
    assert (own.d_k, own.position_buckets, own.bucket_distance) == (6, 8, 10)
    ours = models.build(own, sizes).eval()
    ours.load_state_dict({name: torch.from_numpy(array) for name, array in parameters(own, sizes, weights).items()})
    random = np.random.default_rng(1)
    source, target = (np.append(random.integers(4, VOCABULARY, size=size), EOS) for size in (30, 25))
    batch = collate([source], [target])
    read = torch.tensor([[PAD, *target[:-1]]])
    with torch.inference_mode():
        expected = theirs(input_ids=torch.from_numpy(source)[None], decoder_input_ids=read).logits[0]
        found = ours.output.logits(ours(batch).hidden)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
