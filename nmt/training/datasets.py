"""The corpora of a run: opened, checked against each other, and cut into updates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt.config.sections import TrainConfig
from nmt.data.corpus import Corpus, Split, chain, open_corpora
from nmt.data.language_pair import LanguagePair
from nmt.errors import DataError, UsageError
from nmt.training.batches import TrainingBatches
from nmt.training.contradictions import validates


@dataclass(frozen=True)
class Datasets:
    """What training reads."""

    pair: LanguagePair
    tokenizer: Path  # the folder that holds the pair
    train: Split
    valid: Split | None  # None: validation is switched off
    longest: int  # pieces of the longest side of a training pair
    identities: list[str]  # of the training data, by corpus


def open_datasets(config: TrainConfig) -> Datasets:
    corpora = open_corpora(config.data)
    train = chain([corpus.split(config.train_subset) for corpus in corpora])
    return Datasets(
        pair=corpora[0].pair,
        tokenizer=corpora[0].folder / "tokenizer",
        train=train,
        valid=_validation_split(config, corpora) if validates(config) else None,
        longest=_longest(train),
        identities=[corpus.fingerprint(config.train_subset) for corpus in corpora],
    )


def number_of_updates(config: TrainConfig, batches: TrainingBatches, longest: int) -> int | None:
    """How many updates the limits allow; epochs are converted with the length of the first one."""
    limits, batching = config.training, config.batching
    fits = batching.max_tokens is None or batching.skip_long or longest <= batching.max_tokens
    if limits.max_epoch is None or not fits:
        return limits.max_update
    by_epochs = limits.max_epoch * batches.updates_in_epoch(1)
    return by_epochs if limits.max_update is None else min(by_epochs, limits.max_update)


def _validation_split(config: TrainConfig, corpora: list[Corpus]) -> Split:
    """The validation splits of all corpora that have one, as one."""
    having = [corpus for corpus in corpora if config.valid_subset in corpus.splits]
    if not having:
        raise UsageError(
            f"{corpora[0].folder} has no split '{config.valid_subset}' to validate on, only "
            f"{', '.join(corpora[0].splits)}; name one with --valid-subset, or switch validation off with "
            f"validation.interval=null"
        )
    split = chain([corpus.split(config.valid_subset) for corpus in having])
    if not len(split):
        raise DataError(f"split '{split.name}' is empty: there is nothing to validate on")
    return split


def _longest(split: Split) -> int:
    if split.target_lengths is None:
        raise DataError(f"split '{split.name}' has no target side: it was made with only_source")
    if not len(split):
        raise DataError(f"split '{split.name}' is empty: there is nothing to train on")
    return int(max(split.source_lengths.max(), split.target_lengths.max()))
