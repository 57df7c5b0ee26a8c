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
    OverwriteOption,
    PluginOption,
    ReadingOptions,
    TagOption,
    ThreadsOption,
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
    TagOption, PluginOption, ReadingOptions, ThreadsOption, DeviceOption, OverwriteOption, CommandConfig
):
    """nmt-visualize: what a model attends to, its positions and embeddings, or curves of runs, as page or picture."""

    command: ClassVar[str] = "visualize"
    runs: list[str] = flag(
        [],
        help="run folders whose training curves are drawn, if not a model is; a bare argument is one",
        kind=FlagKind.many,
    )
    path: str = flag("", help="run folder, checkpoint, or several joined by ':' (ensemble) whose attention is drawn")
    output: str = flag("", help="file to write: .html (all layers and heads; curves), .svg or .png")
    input: str | None = flag(None, help="sentences to look at, one a line; default, and -: standard input")
    translations: str | None = flag(
        None, help="their translations, line for line; -: standard input; null: the model finds them"
    )
    words: bool = flag(
        False, help="join the pieces of a word: what is looked at is summed up, those who look are averaged"
    )
    member: str | None = flag(None, help="model of an ensemble, as --path names it; null: the mean of all")
    style: PictureStyle = flag(
        PictureStyle.lines, help="of a picture: lines (between two columns of words) or map (of the mean of the heads)"
    )
    kind: AttentionOf = flag(AttentionOf.cross, help="of a picture: encoder, decoder (both self-attention) or cross")
    layer: int | None = flag(None, help="of a picture: the layer, from 1; null: the last")
    head: list[int] = flag([], help="of a picture: heads, from 1; several with commas; default: all")
    positions: bool = flag(False, help="draw the model's positional encodings")
    embeddings: bool = flag(False, help="draw the model's embeddings of the most frequent pieces, in two dimensions")
    side: OneSide = flag(OneSide.source, help="of --positions and --embeddings: source or target")
    count: int = flag(
        200,
        help="of --positions and --embeddings: how many; pieces are counted in --input, else as the vocabulary lists them",
    )
    over: CurvesOver = flag(CurvesOver.updates, help="of curves: updates, tokens or seconds of training")
    smoothing: float = flag(
        0.0, help="of the curve of the training loss: how much of the running mean each value keeps, from 0 to below 1"
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
                f"--count {self.count}: a picture has room for {MOST_IN_TABLE:,} at most; give fewer",
            ),
            (
                self.runs and self.path,
                f"{', '.join(self.runs)}: curves are drawn of runs, and --path is a model; give one",
            ),
            (
                self.translations == "-" and self.input in (None, "-"),
                "--input and --translations cannot both be read from standard input; name a file for one of them",
            ),
            (
                self.runs and self.threads is not None,
                f"--threads {self.threads} is for computing with a model, and curves are drawn of runs; leave it out",
            ),
            (self.positions and self.embeddings, "--positions and --embeddings are two pictures; give one"),
            (tables and self.runs, "--positions and --embeddings are of a model; name it with --path in place of runs"),
            (
                self.translations is not None and (tables or self.runs),
                f"--translations {self.translations} is for attention, which is not drawn here; leave it out",
            ),
        )

    @property
    def instead_of_standard_input(self) -> str | None:
        """The flag to give where standard input cannot be read; None: it is not read anyway."""
        usual = None if self.embeddings else "-"
        reads = bool(self.path) and not self.positions and (self.input or usual) == "-"
        return "--input" if reads else "--translations" if self.translations == "-" else None
