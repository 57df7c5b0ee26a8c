"""The Transformer without padding. GPUs have a kernel for it; here a slow one stands in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from nmt.criterions.config import CrossEntropyConfig
from nmt.criterions.cross_entropy import TokenCrossEntropy
from nmt.criterions.sequences import with_targets
from nmt.data.batching.batch import Batch, collate
from nmt.interface import AttentionRequest, EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.models.transformer import attention_kernels
from nmt.models.transformer import transformer as flat_module
from nmt.models.transformer.attention_kernels import supports_flat_batches, supports_flat_heads
from nmt.models.transformer.attention_probe import kernel_agrees
from nmt.models.transformer.transformer import Transformer, TransformerConfig
from nmt.testing.subjects import load_preset

SIZES = VocabularySizes(20, 20, shared=True)
WITHOUT_PADDING: dict[str, dict[str, Any]] = {
    "transformer_base": {},
    "transformer_base_v3": {},
    "transformer_rotary": {},
    "transformer_universal": {},
    "transformer_local": {"encoder_neighborhood": 2, "decoder_neighborhood": 1},
    "transformer_deep_shallow": {},
}
WITH_PADDING: dict[str, dict[str, Any]] = {
    "transformer_relative": {},
    "transformer_alibi": {},
    "lightconv_tiny": {},
    "transformer_aan": {},
    "transformer_ssru": {},
    "transformer_moe_tiny": {},
    "transformer_base": {"attention_dropout": 0.1},
    "transformer_big": {"d_k": 6},
}
HEADS = {"d_model": 16, "num_heads": 2, "d_k": 8, "d_v": 8, "dropout": 0.0, "attention_dropout": 0.0}


def build(preset: str, options: dict[str, Any]) -> Transformer:
    torch.manual_seed(1)
    config: Any = replace(load_preset(preset).shrink(), activation_dropout=0.0, **(HEADS | options))
    model = models.build(config, SIZES)
    assert isinstance(model, Transformer)
    return model.double()


def batch() -> Batch:
    draw = np.random.default_rng(1)
    sides = [[np.append(draw.integers(4, 20, length), 3) for length in lengths] for lengths in ([7, 1, 4], [2, 9, 5])]
    return collate(*sides)


class Kernel:
    """Sentence by sentence, with the signature of torch's."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int,
        *, scale: float, window_size: tuple[int, int],
    ) -> Tensor:  # fmt: skip
        assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
        assert int(cu_seq_q.diff().max()) <= max_q and int(cu_seq_k.diff().max()) <= max_k
        assert (cu_seq_q[-1], cu_seq_k[-1]) == (len(query), len(key)) and len(cu_seq_q) == len(cu_seq_k)
        self.calls += 1
        behind, ahead = window_size
        parts = []
        for first, last, start, end in zip(cu_seq_q, cu_seq_q[1:], cu_seq_k, cu_seq_k[1:]):
            scores = torch.einsum("qhd,khd->hqk", query[first:last], key[start:end]) * scale
            distance = torch.arange(end - start)[None] - torch.arange(last - first)[:, None]
            outside = (distance < -behind) if behind >= 0 else torch.zeros_like(distance, dtype=torch.bool)
            outside = outside | (distance > ahead) if ahead >= 0 else outside
            weights = scores.masked_fill(outside, float("-inf")).softmax(-1)
            parts.append(torch.einsum("hqk,khd->qhd", weights, value[start:end]))
        return torch.cat(parts)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    slow = Kernel()
    monkeypatch.setattr(varlen, "varlen_attn", slow)
    monkeypatch.setattr(flat_module, "supports_flat_batches", lambda device, width: True)
    return slow


def loss_and_gradients(model: EncoderDecoder, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    report = TokenCrossEntropy(CrossEntropyConfig())(model, batch)
    report.loss_sum.backward()
    return report.loss_sum, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("preset", WITHOUT_PADDING)
def test_loss_and_gradients_are_those_with_padding(
    preset: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(preset, WITHOUT_PADDING[preset])
    flat, flat_gradients = loss_and_gradients(model, batch())
    assert kernel.calls > 0
    monkeypatch.setattr(flat_module, "supports_flat_batches", lambda device, width: False)
    calls = kernel.calls
    padded, gradients = loss_and_gradients(model, batch())
    assert kernel.calls == calls
    torch.testing.assert_close(flat, padded, rtol=1e-9, atol=1e-9)
    assert flat_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(flat_gradients[name], gradient, rtol=1e-7, atol=1e-9, msg=name)


@pytest.mark.parametrize(("preset", "options"), WITH_PADDING.items(), ids=list(WITH_PADDING))
def test_what_the_kernel_cannot_do_keeps_its_padding(preset: str, options: dict[str, Any], kernel: Kernel) -> None:
    loss_and_gradients(build(preset, options), batch())
    assert kernel.calls == 0


def test_dropout_inside_attention_keeps_padding_in_training_only(kernel: Kernel) -> None:
    model = build("transformer_base", {"attention_dropout": 0.1}).eval()
    loss_and_gradients(model, batch())
    assert kernel.calls > 0


def test_attention_weights_come_from_the_padded_path(kernel: Kernel) -> None:
    decoded = build("transformer_base", {})(batch(), AttentionRequest(("cross",)))
    assert kernel.calls == 0 and decoded.attention is not None


def test_other_targets_for_the_same_sources(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sampled translations are scored: each source several times."""
    model, lengths = build("transformer_base", {}), torch.tensor([3, 2, 4, 4, 2, 3])
    tokens = torch.randint(4, 20, (6, 4)).scatter_(1, lengths[:, None] - 1, 3)
    sampled = with_targets(batch(), tokens, lengths)
    flat = model(sampled).hidden
    monkeypatch.setattr(flat_module, "supports_flat_batches", lambda device, width: False)
    torch.testing.assert_close(flat, model(sampled).hidden, rtol=1e-9, atol=1e-9)


def test_the_kernel_is_for_gpus_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    capability: list[tuple[int, int]] = [(8, 0)]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability[0])
    enabled: Callable[[str], bool] = {"cuda": True, "cpu": True}.__getitem__
    monkeypatch.setattr(torch, "is_autocast_enabled", enabled)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    monkeypatch.setattr(attention_kernels, "kernel_agrees", lambda kernel, device, dtype, width: width == 64)
    assert supports_flat_batches(gpu, 64) and not supports_flat_batches(torch.device("cpu"), 64)
    assert not supports_flat_batches(gpu, 32), "the kernel was tried and failed"
    capability[0] = (7, 5)
    assert not supports_flat_batches(gpu, 64)
    capability[0] = (9, 0)
    assert supports_flat_batches(gpu, 64)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float32)
    assert not supports_flat_batches(gpu, 64)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float16)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    assert not supports_flat_batches(gpu, 64)


def test_heads_that_the_kernel_knows() -> None:
    assert supports_flat_heads(64, 64) and supports_flat_heads(256, 256)
    assert not supports_flat_heads(64, 32) and not supports_flat_heads(12, 12) and not supports_flat_heads(264, 264)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_on_a_gpu_both_paths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bf16, within its rounding."""
    gpu = torch.device("cuda")
    torch.manual_seed(1)
    config = TransformerConfig(2, 2, d_model=64, d_ff=128, num_heads=2, dropout=0.0)
    model = models.build(config, SIZES).to(gpu)
    with torch.autocast("cuda", torch.bfloat16):
        assert supports_flat_batches(gpu, 32)
        flat, flat_gradients = loss_and_gradients(model, batch().to(gpu))
        monkeypatch.setattr(flat_module, "supports_flat_batches", lambda device, width: False)
        padded, gradients = loss_and_gradients(model, batch().to(gpu))
    torch.testing.assert_close(flat, padded, rtol=2e-2, atol=0.0)
    for name, gradient in gradients.items():
        assert torch.cosine_similarity(flat_gradients[name].flatten(), gradient.flatten(), 0) > 0.99, name


def agrees(kernel: Callable[..., Tensor], width: int = 8) -> bool:
    return kernel_agrees(kernel, torch.device("cpu"), torch.float32, width)


def test_a_kernel_that_computes_the_formula_is_trusted() -> None:
    assert agrees(Kernel()) and agrees(Kernel(), 64)


def test_a_kernel_is_tried_once_a_process() -> None:
    slow = Kernel()
    assert agrees(slow) and agrees(slow) and slow.calls == 3


def no_numbers(query: Tensor, *rest: Any, **options: Any) -> Tensor:
    return Kernel()(query, *rest, **options) * float("nan")


def no_window(query: Tensor, *rest: Any, **options: Any) -> Tensor:
    return Kernel()(query, *rest, **(options | {"window_size": (-1, -1)}))


def no_gradient_of_values(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Tensor:
    return Kernel()(query, key, value.detach() + 0 * value, *rest, **options)


def broken(*_: Any, **__: Any) -> Tensor:
    raise RuntimeError("no kernel image is available\nand more")


@pytest.mark.parametrize(
    ("kernel", "fault"),
    [
        (no_numbers, "differs from the formula by nan"),
        (no_window, "differs from the formula by "),
        (no_gradient_of_values, "differs from the formula by 1 of"),
        (broken, "(RuntimeError: no kernel image is available)"),
    ],
)
def test_a_kernel_that_is_wrong_is_left_out_with_a_line(
    kernel: Callable[..., Tensor], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not agrees(kernel)
    (line,) = caplog.messages
    assert (
        line.startswith("the kernel for attention without padding fails on cpu for heads of width 8") and fault in line
    )
    assert line.endswith("batches keep their padding")
