"""When source, target and output use one matrix."""

from __future__ import annotations

from nmt.errors import UsageError


def shares_embeddings(wanted: bool | None, joint: bool) -> bool:
    """What ``model.share_all_embeddings`` comes to; null shares if the vocabulary is joint."""
    if wanted and not joint:
        raise UsageError(
            "model.share_all_embeddings needs one vocabulary for both languages; preprocess with --joined-dictionary, "
            "or leave it out"
        )
    return joint if wanted is None else wanted
