"""Check what training and translating compute on a device, against the CPU in float64 or against the formula.

Models are small, so that a check takes seconds.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import shutil

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from nmt.config.choices import Compilation, Precision
from nmt.criterions import criterions
from nmt.devices import is_shortage
from nmt.devices.kinds import device_of
from nmt.distributed.world import squares
from nmt.doctor.outcomes import Skipped, Wrong
from nmt.engines.graphs import RecordedEngine, recorded_engine
from nmt.engines.model_engine import ModelEngine
from nmt.interface import Batch
from nmt.models.transformer.attention_probe import kernel_agrees, largest_difference
from nmt.search import searches
from nmt.search.config import BeamConfig
from nmt.search.decoding import Engine
from nmt.search.requests import Sentences
from nmt.testing.subjects import Subject, subject, toy_batch
from nmt.training.loop.compilation import compile_step
from nmt.training.loop.learner import Arithmetic, Step

CRITERION = "label_smoothed_cross_entropy"
USUAL = "transformer_tiny"
HEAD_WIDTHS = (16, 32, 64, 96, 128, 256)
WINDOWS = (None, 9)  # keys behind a query that it sees; None: all
# The largest relative difference of a loss, and the least cosine of the gradients, to float64 on the CPU.
TOLERANCES = {
    Precision.fp32: (1e-4, 0.9999),
    Precision.tf32: (1e-2, 0.999),
    Precision.bf16: (5e-2, 0.95),
    Precision.fp16: (5e-2, 0.95),
}


def training_step(device: torch.device, name: str = USUAL, precision: Precision = Precision.fp32) -> str:
    """Compare the loss and the gradients of a batch."""
    kind = device_of(device)
    possible = {Precision.tf32: kind.computes_tf32(), Precision.bf16: kind.computes_bf16(), Precision.fp16: kind.halves}
    if not possible.get(precision, True):
        raise Skipped(f"{kind.hardware} does not compute in {precision.name}")
    loss, gradients = _passes(name, device, precision)
    expected, exact = _exact_passes(name)
    worst, least = TOLERANCES[precision]
    difference = abs(loss - expected) / abs(expected)
    cosine = float(torch.cosine_similarity(gradients, exact, 0))
    if not (difference <= worst and cosine >= least):  # also if one is NaN
        raise Wrong(
            f"loss {loss:.4f}, on the CPU {expected:.4f} (relative tolerance {worst:.0e}); cosine of the gradients "
            f"{cosine:.4f} (minimum {least})"
        )
    return f"loss {loss:.4f}, relative difference {difference:.0e}"


def translation(device: torch.device) -> str:
    """Compare the translations of a beam search."""
    steps = _compare_translations(ModelEngine(subject(USUAL).model().to(device), device))
    return f"{steps} tokens, the same as on the CPU"


def recorded_graphs(device: torch.device) -> str:
    """Compare translations whose steps are recorded and replayed."""
    if not device_of(device).records:
        raise Skipped("only NVIDIA and AMD GPUs record steps")
    engine = recorded_engine(subject(USUAL).model().to(device), str(device))
    tokens = _compare_translations(engine)
    if not isinstance(engine, RecordedEngine) or engine.model.fails:
        raise Wrong("steps cannot be recorded; --cuda-graphs is ignored")
    return f"{tokens} tokens, the same as on the CPU, by {len(engine.model.steps)} recorded steps"


def fused_optimizer(device: torch.device) -> str:
    """Compare three steps of Adam with torch's plain loop."""
    fused, plain = (_after_steps(device, fused=fused) for fused in (True, False))
    difference = float((fused - plain).abs().max())
    if not difference <= 1e-5:
        raise Wrong(f"parameters differ by {difference:.1e} from those of the plain optimizer")
    return f"parameters differ by at most {difference:.0e} after three steps"


def skipped_update(device: torch.device) -> str:
    """Let the optimizer pass over an update, as where a gradient is not finite."""
    if not device_of(device).skips_updates and device.type != "cpu":
        raise Skipped("this device does not queue updates")
    parameter = torch.nn.Parameter(torch.ones(64, device=device))
    optimizer = torch.optim.Adam([parameter], fused=True)
    parameter.grad = torch.full_like(parameter, math.inf)
    optimizer.found_inf = torch.ones((), device=device)  # type: ignore[attr-defined]
    optimizer.step()
    if not bool((parameter == 1).all()):
        raise Wrong("the optimizer applied a gradient that is not finite")
    return "parameters unchanged"


def attention(device: torch.device) -> str:
    """Compare torch's kernels of attention with the formula, with padding, with the future hidden, and within a window."""
    formats = [torch.float32, *_halves(device)]
    for width, dtype, window in itertools.product(HEAD_WIDTHS, formats, WINDOWS):
        difference = _attention_difference(device, dtype, width, window)
        if not difference <= (1e-4 if dtype is torch.float32 else 2e-2):
            raise Wrong(
                f"heads of width {width} in {dtype}, window {window}: error of {difference:.1e} of the largest value"
            )
    return f"heads of width {', '.join(map(str, HEAD_WIDTHS))} in {len(formats)} data types, with and without a window"


def attention_without_padding(device: torch.device) -> str:
    """Compare the kernel for concatenated sentences with the formula, also within windows."""
    if not device_of(device).attends_flat():
        raise Skipped("this device has no kernel for batches without padding")
    from torch.nn.attention import varlen

    formats = _halves(device)
    for width, dtype in itertools.product(HEAD_WIDTHS, formats):
        if not kernel_agrees(varlen.varlen_attn, device, dtype, width):
            raise Wrong(f"wrong attention of heads of width {width} in {dtype}; batches keep their padding")
    return f"heads of width {', '.join(map(str, HEAD_WIDTHS))} in {len(formats)} data types, with and without a window"


def _halves(device: torch.device) -> list[torch.dtype]:
    """Return the data types of half precision that training uses on a device."""
    kind = device_of(device)
    possible = {torch.bfloat16: kind.computes_bf16(), torch.float16: kind.halves}
    return [dtype for dtype, is_fast in possible.items() if is_fast]


def compiled(device: torch.device, what: Compilation) -> str:
    """Compare compiled layers, or a compiled step, with the same uncompiled."""
    if device.type == "cpu" and not (shutil.which("c++") or shutil.which("g++")):
        raise Skipped("compiling for a CPU needs a C++ compiler")
    step, batch = _step(subject(USUAL), device), _batch(USUAL)
    expected = float(step(batch.to(device)).loss_sum.detach())
    if not compile_step(step, what, batch, Arithmetic(device, Precision.fp32), seed=1):
        raise Wrong(f"compilation failed; training with --compile {what.value} runs uncompiled")
    loss = float(step(batch.to(device)).loss_sum.detach())
    if not abs(loss - expected) <= 1e-4 * abs(expected):
        raise Wrong(f"loss {loss:.4f}, but {expected:.4f} uncompiled")
    return f"loss {loss:.4f}, the same as uncompiled"


def memory_shortage(device: torch.device) -> str:
    """Ask for more memory than there is, recognize it, and compute again."""
    try:
        torch.empty(2**50, device=device)
    except Exception as error:
        if not is_shortage(error):
            text = str(error).partition("\n")[0]
            raise Wrong(f"a shortage of memory is not recognized ({type(error).__name__}: {text})") from None
    else:
        raise Wrong("an allocation of 4 PiB succeeded")
    device_of(device).release_memory()
    return f"recognized; then {training_step(device)}"


def no_waiting(device: torch.device) -> str:
    """Let torch refuse every wait for the device within an update: passes, norm, clipping, a step that may be skipped."""
    step, batch = _step(subject(USUAL), device).train(), _batch(USUAL).to(device)
    optimizer = torch.optim.Adam(step.parameters(), lr=1e-3, fused=True)
    parameters = list(step.parameters())

    def update() -> None:
        optimizer.zero_grad()
        step(batch).loss_sum.backward()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = squares(gradients).sqrt()
        optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]
        torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)
        optimizer.step()

    update()  # what is prepared once may wait
    with contextlib.ExitStack() as stack:
        if not stack.enter_context(device_of(device).refusing_waits()):
            raise Skipped("torch cannot detect waiting on this kind of device")
        update()
    return "passes, norm, clipping and optimizer"


def _step(of: Subject, device: torch.device) -> Step:
    """A model under the usual criterion, without dropout."""
    return Step(of.model(), criterions.build(criterions.config_class(CRITERION)())).to(device).eval()


def _batch(name: str) -> Batch:
    return toy_batch(subject(name).built, [5, 3, 7, 4], [4, 6, 3, 5])


def _passes(name: str, device: torch.device, precision: Precision) -> tuple[float, Tensor]:
    """Return the loss of a batch and all gradients."""
    step, arithmetic = _step(subject(name), device), Arithmetic(device, precision)
    arithmetic.prepare(step.model)
    with arithmetic.forward_pass():
        report = step(_batch(name).to(device))
    report.loss_sum.backward()
    return float(report.loss_sum.detach()), _gradients(step)


@functools.cache
def _exact_passes(name: str) -> tuple[float, Tensor]:
    """The same on the CPU in float64."""
    step = _step(subject(name), torch.device("cpu")).double()
    report = step(_batch(name))
    report.loss_sum.backward()
    return float(report.loss_sum.detach()), _gradients(step)


def _gradients(step: Step) -> Tensor:
    parts = [part.grad.detach().cpu().double().flatten() for part in step.parameters() if part.grad is not None]
    return torch.cat(parts)


def _compare_translations(engine: Engine) -> int:
    """Compare the translations of an engine with those of the CPU; return the number of their tokens."""
    search = searches.build(BeamConfig(beam_size=4, max_len_b=10), 1)
    model = subject(USUAL).model()
    batch = _batch(USUAL)
    sources = Sentences.of_tensors(batch.source, batch.source_lengths)
    expected = [best[0].tokens.tolist() for best in search.find(ModelEngine(model, "cpu"), sources)]
    tokens = [best[0].tokens.tolist() for best in search.find(engine, sources)]
    for number, (there, here) in enumerate(zip(tokens, expected), 1):
        if there != here:
            raise Wrong(f"sentence {number} is translated as {there}, not {here}")
    return sum(map(len, tokens))


def _after_steps(device: torch.device, *, fused: bool) -> Tensor:
    """Return all parameters after three updates."""
    step, batch = _step(subject(USUAL), device), _batch(USUAL).to(device)
    optimizer = torch.optim.Adam(step.parameters(), lr=1e-3, fused=fused, foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        step(batch).loss_sum.backward()
        optimizer.step()
    return torch.cat([parameter.detach().cpu().flatten() for parameter in step.parameters()])


def _attention_difference(device: torch.device, dtype: torch.dtype, width: int, window: int | None) -> float:
    """Return the largest difference of outputs and gradients to the formula in float64, relative to the largest value."""
    draw = torch.Generator().manual_seed(width)
    parts = [torch.randn(2, 2, 70, width, generator=draw).to(dtype) for _ in range(3)]
    weights = torch.randn(2, 2, 70, width, generator=draw)
    hidden = torch.zeros(2, 1, 70, 70).masked_fill(torch.ones(70, 70, dtype=torch.bool).triu(1), -math.inf)
    hidden[1, :, :, 50:] = -math.inf  # padding
    if window is not None:  # of the first sentence: with the padding of the second, some queries would see no key
        hidden[0].masked_fill_(torch.arange(70)[:, None] - torch.arange(70) > window, -math.inf)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, hidden.to(device, dtype))

    def formula(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores: Tensor = query @ key.transpose(-1, -2) * width**-0.5 + hidden
        return scores.softmax(-1) @ value

    exact = formula, torch.device("cpu"), torch.float64
    return largest_difference(parts, weights, (attend, device, dtype), exact)
