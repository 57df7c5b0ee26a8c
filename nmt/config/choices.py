"""Enums of options: their values are one of several words."""

from __future__ import annotations

from enum import Enum


class InvalidText(Enum):
    """What to do with a line that is not UTF-8."""

    error = "error"
    replace = "replace"
    skip = "skip"


class WeightKind(Enum):
    """What the numbers of a line of weights belong to."""

    pair = "pair"
    token = "token"


class Sides(Enum):
    """One side of the sentence pairs, or both."""

    both = "both"
    source = "source"
    target = "target"


WORD_START = "\u2581"  # sentencepiece's mark at the first token of a word
CONTINUED = "@@"  # subword-nmt's mark at the end of every token but the last of a word


class PieceMarks(Enum):
    """How cut text marks the tokens of a word."""

    none = "none"
    subword_nmt = "subword_nmt"  # "hau@@ s": a word continues
    sentencepiece = "sentencepiece"  # "\u2581hau s": a word begins


class InputFormat(Enum):
    """How lines to translate are written."""

    text = "text"
    tsv = "tsv"
    jsonl = "jsonl"


class LongLines(Enum):
    """How lines longer than ``max_source_length`` are handled."""

    split = "split"
    truncate = "truncate"


class MbrMetric(Enum):
    """The metric that minimum Bayes risk compares hypotheses by."""

    none = "none"
    chrf = "chrf"
    bleu = "bleu"


class OutputFormat(Enum):
    """How translations are written."""

    text = "text"
    fairseq = "fairseq"
    jsonl = "jsonl"


class AlignmentKind(Enum):
    """How A- lines show attention."""

    none = "none"
    hard = "hard"
    soft = "soft"


class Symmetrization(Enum):
    """How the word alignments of both directions become one (``nmt.data.text.links``)."""

    none = "none"  # that of the forward direction alone
    intersection = "intersection"
    union = "union"
    grow_diag = "grow_diag"
    grow_diag_final = "grow_diag_final"
    grow_diag_final_and = "grow_diag_final_and"


class Precision(Enum):
    """Number format of the forward and backward pass; the parameters that are trained stay in float32."""

    usual = "usual"  # auto on a GPU, fp32 on a CPU
    auto = "auto"  # by device, its capability and the model's size; translating on a CPU: fp32
    fp32 = "fp32"
    tf32 = "tf32"  # fp32, whose matrix products an NVIDIA GPU computes with 10 bits of mantissa
    bf16 = "bf16"  # what stays in fp32 is computed as in tf32, also in fp16
    fp16 = "fp16"  # on a GPU; training scales the loss
    bf16_output = "bf16_output"  # bf16 for the product of the output layer alone, in training


class NumberFormat(Enum):
    """The number format of weights while translating."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    int8 = "int8"  # with a scale for each row of the weights and of their input


class Strategy(Enum):
    """How processes divide a training run; all of them divide its batches."""

    ddp = "ddp"  # each holds everything
    fsdp = "fsdp"  # each holds a part of the parameters, of their gradients and of the optimizer's state


class ProgressStyle(Enum):
    """How progress is shown."""

    auto = "auto"  # a bar on a terminal, plain lines otherwise
    bar = "bar"
    lines = "lines"
    none = "none"


class Compilation(Enum):
    """Scope of torch.compile in training."""

    none = "none"
    layers = "layers"  # each layer of a stack by itself
    step = "step"  # the model and the criterion as a whole


class ScoreFormat(Enum):
    """How scores are printed."""

    text = "text"
    json = "json"
    markdown = "markdown"
    latex = "latex"


class PairedTest(Enum):
    """How systems are compared with the first one."""

    none = "none"
    bootstrap = "bootstrap"
    randomization = "randomization"


class Segmentation(Enum):
    """How training text was segmented into tokens."""

    none = "none"  # before it was given: tokens stand between spaces
    sentencepiece = "sentencepiece"
    subword_nmt = "subword_nmt"
    fastbpe = "fastbpe"
