"""The options of nmt-visualize."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from nmt.config.checks import refuse, require_positive, require_share
from nmt.config.common_options import (
    DeviceOption,
    DirectionOptions,
    OverwriteOption,
    PluginOption,
    ReadingOptions,
    ThreadsOption,
    WatchOptions,
)
from nmt.config.option import FlagKind, flag
from nmt.config.roles import CommandConfig


class PictureStyle(Enum):
    """How attention is drawn."""

    lines = "lines"
    map = "map"


class AttentionOf(Enum):
    """Kinds of attention."""

    encoder = "encoder"
    decoder = "decoder"
    cross = "cross"


class CurvesOver(Enum):
    """What training curves are drawn over."""

    updates = "updates"
    tokens = "tokens"
    seconds = "seconds"


class OneSide(Enum):
    """A side of a model."""

    source = "source"
    target = "target"


MOST_IN_TABLE = 10_000  # positions or tokens; a picture has fewer pixels


@dataclass
class VisualizeConfig(
    WatchOptions,
    DirectionOptions,
    PluginOption,
    ReadingOptions,
    ThreadsOption,
    DeviceOption,
    OverwriteOption,
    CommandConfig,
):
    """nmt-visualize: draw the attention, positions or embeddings of a model, or training curves of runs."""

    command: ClassVar[str] = "visualize"
    runs: list[str] = flag(
        [],
        help="Folders of runs and sweeps for training curves, also as bare arguments; excludes --path",
        kind=FlagKind.many,
    )
    path: str = flag("", help="Run folder or checkpoint to visualize; several joined by ':' form an ensemble")
    output: str = flag("", help="Output file: .html (all layers and heads, or curves), .svg or .png")
    input: str | None = flag(None, help="File of sentences to visualize, one per line; null or -: standard input")
    translations: str | None = flag(
        None, help="File of their translations, one per line; -: standard input; null: found by the model"
    )
    words: bool = flag(
        False, help="Join tokens into words: sum attention over the columns of a word, average over its rows"
    )
    member: str | None = flag(None, help="Model of the ensemble, as in --path; null: mean of all")
    style: PictureStyle = flag(
        PictureStyle.lines, help="Picture style: lines (between two columns of words) or map (mean of the heads)"
    )
    kind: AttentionOf = flag(
        AttentionOf.cross, help="Attention in the picture: encoder, decoder (both self-attention) or cross"
    )
    layer: int | None = flag(None, help="Layer in the picture, counted from 1; null: the last")
    head: list[int] = flag([], help="Heads in the picture, counted from 1, comma-separated; empty: all")
    positions: bool = flag(False, help="Draw the model's positional encodings")
    embeddings: bool = flag(False, help="Draw the embeddings of the most frequent tokens in two dimensions")
    side: OneSide = flag(OneSide.source, help="Side for --positions and --embeddings: source or target")
    count: int = flag(
        200,
        help="Number of positions for --positions, or of tokens for --embeddings: the most frequent of --input, "
        "else the first of the vocabulary",
    )
    over: CurvesOver = flag(CurvesOver.updates, help="Horizontal axis of training curves: updates, tokens or seconds")
    smoothing: float = flag(
        0.0, help="Smoothing of the training loss curve: weight of the previous running mean, from 0 to below 1"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", layer=self.layer, count=self.count)
        require_share("", smoothing=self.smoothing)
        for head in self.head:
            require_positive("", head=head)
        tables = self.positions or self.embeddings
        twice = [run for run, count in Counter(map(os.path.realpath, self.runs)).items() if count > 1]
        refuse(
            (twice, f"{', '.join(twice)}: named twice; name each run once"),
            (
                tables and self.count > MOST_IN_TABLE,
                f"--count {self.count}: a picture has room for at most {MOST_IN_TABLE:,}; lower it",
            ),
            (
                self.runs and self.path,
                f"{', '.join(self.runs)}: run folders (for curves) and --path (a model) exclude each other; give one",
            ),
            (
                self.translations == "-" and self.input in (None, "-"),
                "--input and --translations cannot both be read from standard input; name a file for one of them",
            ),
            (
                self.runs and self.threads is not None,
                f"--threads {self.threads} is for pictures of a model, not for training curves; omit it",
            ),
            (
                self.watch and not self.runs,
                "--watch serves the page of runs; name run folders, or the folder of a sweep",
            ),
            (
                self.watch and self.output,
                f"--watch serves a page and --output {self.output} writes a file; give one of them",
            ),
            (self.positions and self.embeddings, "--positions and --embeddings exclude each other; give one"),
            (
                tables and self.runs,
                "--positions and --embeddings need a model; name it with --path instead of run folders",
            ),
            (
                self.translations is not None and (tables or self.runs),
                f"--translations {self.translations} is for pictures of attention only; omit it",
            ),
        )

    @property
    def instead_of_standard_input(self) -> str | None:
        usual = None if self.embeddings else "-"
        reads = bool(self.path) and not self.positions and (self.input or usual) == "-"
        return "--input" if reads else "--translations" if self.translations == "-" else None
