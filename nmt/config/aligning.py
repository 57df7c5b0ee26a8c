"""The options of nmt-align."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt.config.checks import Refusals, refuse, require_not_negative, require_positive
from nmt.config.choices import Symmetrization
from nmt.config.common_options import (
    DeviceOption,
    OutputOption,
    OverwriteOption,
    PluginOption,
    ProgressOption,
    ReadingOptions,
    TagOption,
    ThreadsOption,
)
from nmt.config.option import FlagKind, flag
from nmt.config.roles import CommandConfig

USUAL_RULE = Symmetrization.grow_diag_final_and


def validation_without_criterion(validation: object, gold: object, reverse: str | None) -> tuple[object, str]:
    """Refuse validation pairs (None: not given) with neither gold alignments nor a model of the other direction."""
    return (
        validation is not None and gold is None and reverse is None,
        "validation pairs are to choose by: give gold alignments (--gold) or a model of the other direction (--reverse) "
        "too, or leave them out",
    )


@dataclass
class AlignConfig(
    TagOption,
    OutputOption,
    PluginOption,
    ProgressOption,
    ReadingOptions,
    ThreadsOption,
    DeviceOption,
    OverwriteOption,
    CommandConfig,
):
    """nmt-align: sentences, their translations and a trained model in, word alignments out."""

    command: ClassVar[str] = "align"
    path: str = flag("", help="run folder, checkpoint, or several joined by ':' (ensemble) whose attention aligns")
    src: str | None = flag(None, help="sentences, one a line")
    ref: str | None = flag(None, help="their translations, line for line")
    reverse: str | None = flag(
        None, help="model of the other direction (run folder or checkpoint), to choose by and to symmetrize with"
    )
    symmetrize: Symmetrization | None = flag(
        None,
        help="how both directions become one: intersection, union, grow-diag, grow-diag-final, grow-diag-final-and, or none "
        "(that of --path alone); null: grow-diag-final-and with --reverse",
    )
    layer: int | None = flag(None, help="layer of the decoder whose attention is read, from 1; null: the best")
    head: int | None = flag(None, help="its head, from 1; 0: the mean of its heads; null: the best")
    shift: bool | None = flag(
        None,
        help="read the row after a piece, where the decoder has read it, not that where it was written; null: the better",
        kind=FlagKind.switch,
    )
    reverse_layer: int | None = flag(None, help="the same of --reverse: layer")
    reverse_head: int | None = flag(None, help="the same of --reverse: head")
    reverse_shift: bool | None = flag(None, help="the same of --reverse: row", kind=FlagKind.switch)
    gold: str | None = flag(
        None,
        help="given alignments of the validation pairs, by whose error rate the best is chosen: lines of links such as 0-0, "
        "or 1?2 if it is only possible",
    )
    valid_src: str | None = flag(
        None, help="sentences of the validation pairs, by which the best is chosen; null: the first of --src"
    )
    valid_ref: str | None = flag(None, help="their translations")
    valid_count: int = flag(1000, help="at most so many validation pairs")
    max_tokens: int | None = flag(None, help="largest batch in pieces of a side, padding included; null: by the device")
    max_source_length: int = flag(
        1024, help="most pieces of a source or of its translation that are read; the words after them stay unaligned"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", layer=self.layer, reverse_layer=self.reverse_layer, valid_count=self.valid_count)
        require_positive("", max_tokens=self.max_tokens, max_source_length=self.max_source_length)
        require_not_negative("", head=self.head or 0, reverse_head=self.reverse_head or 0)
        refuse(*self._options_of_others())

    def _options_of_others(self) -> Refusals:
        """Options that have no effect without another one."""
        named = [name for name, value in self._of_reverse.items() if value is not None]
        yield (
            self.reverse is None and named,
            f"{', '.join(named)}: for --reverse alone; name the model of the other direction, or leave them out",
        )
        yield (
            (self.valid_src is None) != (self.valid_ref is None),
            "validation pairs are two files: give both --valid-src and --valid-ref",
        )
        yield validation_without_criterion(self.valid_src, self.gold, self.reverse)

    @property
    def _of_reverse(self) -> dict[str, object]:
        rule = None if self.symmetrize is Symmetrization.none else self.symmetrize
        return {
            "--symmetrize": rule,
            "--reverse-layer": self.reverse_layer,
            "--reverse-head": self.reverse_head,
            "--reverse-shift": self.reverse_shift,
        }

    @property
    def rule(self) -> Symmetrization:
        """How both directions become one."""
        return self.symmetrize or USUAL_RULE
