"""The options of nmt-align."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt.config.checks import Refusals, refuse, require_not_negative, require_positive
from nmt.config.choices import Symmetrization
from nmt.config.common_options import (
    DeviceOption,
    DirectionOptions,
    OutputOption,
    OverwriteOption,
    PluginOption,
    ProgressOption,
    ReadingOptions,
    ThreadsOption,
)
from nmt.config.option import FlagKind, flag
from nmt.config.roles import CommandConfig

USUAL_RULE = Symmetrization.grow_diag_final_and


def validation_without_criterion(validation: object, gold: object, reverse: str | None) -> tuple[object, str]:
    """Refuse validation pairs (None: not given) with neither gold alignments nor a model of the other direction."""
    return (
        validation is not None and gold is None and reverse is None,
        "validation pairs select heads only with gold alignments (--gold) or a model of the opposite direction "
        "(--reverse); give one of them too, or leave the pairs out",
    )


@dataclass
class AlignConfig(
    DirectionOptions,
    OutputOption,
    PluginOption,
    ProgressOption,
    ReadingOptions,
    ThreadsOption,
    DeviceOption,
    OverwriteOption,
    CommandConfig,
):
    """nmt-align: align the words of sentence pairs by a trained model's attention."""

    command: ClassVar[str] = "align"
    path: str = flag(
        "", help="Run folder or checkpoint whose attention is read; several joined by ':' form an ensemble"
    )
    src: str | None = flag(None, help="File of source sentences, one per line; required")
    ref: str | None = flag(None, help="File of their translations, one per line; required")
    reverse: str | None = flag(
        None,
        help="Model of the opposite direction (run folder or checkpoint), for selecting heads and "
        "symmetrizing; null: none",
    )
    symmetrize: Symmetrization | None = flag(
        None,
        help="Symmetrization: intersection, union, grow-diag, grow-diag-final, grow-diag-final-and or "
        "none (--path alone); null: grow-diag-final-and with --reverse",
    )
    layer: int | None = flag(
        None,
        help="Decoder layer whose attention is read, counted from 1; null: the best with --gold or "
        "--reverse, else the last",
    )
    head: int | None = flag(
        None,
        help="Head of that layer, counted from 1; 0: mean of its heads; null: the best with --gold or "
        "--reverse, else 0",
    )
    shift: bool | None = flag(
        None,
        help="Use the attention row of the next step; null: the better row with --gold or --reverse, else off",
        kind=FlagKind.switch,
    )
    reverse_layer: int | None = flag(None, help="Decoder layer of the --reverse model, counted from 1; null: the best")
    reverse_head: int | None = flag(
        None, help="Head of that layer of the --reverse model, counted from 1; 0: mean of its heads; null: the best"
    )
    reverse_shift: bool | None = flag(
        None,
        help="Use the attention row of the next step in the --reverse model; null: the better row",
        kind=FlagKind.switch,
    )
    gold: str | None = flag(
        None,
        help="File of reference alignments (0-0, or 1?2 for a possible link) that select heads by "
        "alignment error rate; null: none",
    )
    valid_src: str | None = flag(
        None, help="File of source sentences for selecting heads; null: the first pairs of --src and --ref"
    )
    valid_ref: str | None = flag(
        None, help="File of translations for selecting heads; null: the first pairs of --src and --ref"
    )
    valid_count: int = flag(1000, help="Maximum number of sentence pairs for selecting heads")
    max_tokens: int | None = flag(
        None, help="Maximum batch size in tokens per side, padding included; null: depends on the device"
    )
    max_source_length: int = flag(
        1024, help="Maximum number of tokens read per sentence on either side; the words beyond it stay unaligned"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", layer=self.layer, reverse_layer=self.reverse_layer, valid_count=self.valid_count)
        require_positive("", max_tokens=self.max_tokens, max_source_length=self.max_source_length)
        require_not_negative("", head=self.head or 0, reverse_head=self.reverse_head or 0)
        refuse(*self._options_of_others())

    def _options_of_others(self) -> Refusals:
        """Options that have no effect without another one."""
        of_reverse = {
            "--symmetrize": None if self.symmetrize is Symmetrization.none else self.symmetrize,
            "--reverse-layer": self.reverse_layer,
            "--reverse-head": self.reverse_head,
            "--reverse-shift": self.reverse_shift,
        }
        named = [name for name, value in of_reverse.items() if value is not None]
        yield (
            self.reverse is None and named,
            f"{', '.join(named)}: only with --reverse; name the model of the opposite direction, or leave the option out",
        )
        yield (
            (self.valid_src is None) != (self.valid_ref is None),
            "validation pairs need two files: give both --valid-src and --valid-ref",
        )
        yield validation_without_criterion(self.valid_src, self.gold, self.reverse)

    @property
    def rule(self) -> Symmetrization:
        """How both directions become one."""
        return self.symmetrize or USUAL_RULE
