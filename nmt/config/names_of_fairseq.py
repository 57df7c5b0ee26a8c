"""Choices that fairseq calls otherwise: by group and fairseq's name, what to write here."""

from __future__ import annotations

_GUIDED = "use --criterion guided_alignment with any model that attends to the source"

NAMES_OF_FAIRSEQ: dict[str, dict[str, str]] = {
    "model": {"transformer_align": _GUIDED, "transformer_wmt_en_de_big_align": _GUIDED},
    "criterion": {
        "label_smoothed_cross_entropy_with_alignment": "use guided_alignment, on a corpus made with --align-suffix; "
        "--alignment-lambda is the same",
        "adaptive_loss": "there is no adaptive softmax; use label_smoothed_cross_entropy",
    },
    "scheduler": {
        "reduce_lr_on_plateau": "use plateau; its --lr-shrink is 0.5 unless given (fairseq's is 0.1)",
        "fixed": "use constant; where --force-anneal N was given, halving with --halve-after N-1",
        "tri_stage": "use wsd",
    },
}
