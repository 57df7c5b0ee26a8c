"""The corpora of a run: opened, checked against each other, and cut into updates."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.config.batching import BatchingConfig
from nmt.config.sampling import Mix
from nmt.config.sections import TrainConfig, metric_of
from nmt.criterions import criterions
from nmt.data.batching.mixing import Mixture, Stage
from nmt.data.batching.variation import CorpusTag, Variation, refuse_cut_text
from nmt.data.corpus.folder import Corpus, Split, chain, open_corpora
from nmt.data.corpus.lengths import Lengths, blocks, longest
from nmt.data.corpus.stored_text import StoredPairs, text_identity
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import Flags, Ints
from nmt.errors import DataError, UsageError, quantity
from nmt.interface import EncoderDecoder
from nmt.training.loop.batches import TrainingBatches
from nmt.training.loop.validation import ValidatedDirection

# Limits of planning to count the updates of a run: about ten seconds at a microsecond a sentence.
MOST_EPOCHS, MOST_SENTENCES = 1000, 10_000_000
MOST_DRAWN = 100_000  # sentences whose text is drawn to be planned: about ten seconds


@dataclass(frozen=True)
class Datasets:
    """The corpora of a run, opened."""

    pair: LanguagePair
    tokenizer: Path  # the folder that holds the pair
    train: Split
    valid: Split | None  # of all directions; None: validation is switched off
    longest: tuple[int, int]  # tokens of the longest source and of the longest target of training
    identities: list[str]  # of the training data, by corpus
    reports: list[dict[str, Any]] = field(default_factory=list)  # of preprocessing, by corpus
    valid_identities: list[str] = field(default_factory=list)  # of the validation data, by corpus that has some
    sizes: tuple[int, ...] = ()  # training pairs, by corpus
    folders: tuple[str, ...] = ()  # of the training data, by corpus
    directions: Mapping[str, int] = field(default_factory=dict)  # training pairs, by direction
    validated: tuple[ValidatedDirection, ...] = ()
    variation: Variation | None = None  # of the training pairs; None: they are the same in each epoch


def open_datasets(config: TrainConfig) -> Datasets:
    opened = open_corpora(config.data, config.verify)
    corpora = [corpus for corpus in opened if not corpus.is_zero_shot]
    if not corpora:
        raise DataError(f"{', '.join(config.data)} has only zero-shot directions, so there is nothing to train on")
    parts = [corpus.split(config.train_subset) for corpus in corpora]
    train = chain(parts)
    if config.criterion.needs_alignments and train.alignments is None:
        without = [corpus for corpus, part in zip(corpora, parts) if part.alignments is None]
        raise DataError(
            f"the criterion needs word alignments, but split '{train.name}' of "
            f"{', '.join(str(corpus.folder) for corpus in without)} has none; make the corpus with nmt-preprocess "
            f"--align-suffix"
        )
    _check_weights(config, train)
    validates = config.validation.is_on
    validated = _validated(config.valid_subset, opened) if validates else ()
    valid = _validation_split(config.valid_subset, opened) if validates else None
    for direction in validated:
        if direction.split.weights is not None and direction.split.weights.are_zero:
            raise DataError(
                f"all weights of split '{direction.split.name}' ({direction.name}) are 0: its loss would mean nothing; give "
                "other weights"
            )
    _check_best_metric(config.validation.best_metric, validated)
    return Datasets(
        pair=_pair_of_run(corpora, opened),
        tokenizer=corpora[0].tokenizer,
        train=train,
        valid=valid,
        longest=_longest(train),
        variation=_variation(config, corpora, parts) if config.variation.is_on else None,
        identities=[_identity(config, corpus) for corpus in corpora],
        reports=[{**corpus.report, "folder": str(corpus.folder)} for corpus in corpora],
        valid_identities=_valid_identities(config.valid_subset, opened) if validates else [],
        sizes=tuple(map(len, parts)),
        folders=tuple(str(corpus.folder) for corpus in corpora),
        directions=_counts(corpora, parts),
        validated=validated,
    )


def _pair_of_run(corpora: Sequence[Corpus], opened: Sequence[Corpus]) -> LanguagePair:
    """Return the pair of the first corpus, with the languages and directions of all."""
    first, known = corpora[0].pair, [corpus.pair.languages for corpus in opened if corpus.pair.languages is not None]
    if not known:
        return first
    tokens = dict(itertools.chain.from_iterable(languages.tokens.items() for languages in known))
    trained = tuple(dict.fromkeys(corpus.direction for corpus in corpora))
    zero_shot = tuple(dict.fromkeys(corpus.direction for corpus in opened if corpus.direction not in trained))
    return replace(first, languages=replace(known[0], tokens=tokens, trained=trained, zero_shot=zero_shot))


def _counts(corpora: Sequence[Corpus], parts: Sequence[Split]) -> dict[str, int]:
    counts = Counter[str]()
    for corpus, part in zip(corpora, parts):
        counts[corpus.direction] += len(part)
    return dict(counts)


def _validated(valid_subset: str, corpora: Sequence[Corpus]) -> tuple[ValidatedDirection, ...]:
    """Return the directions that have validation text, each with the text of all its corpora."""
    by_name: dict[str, list[Corpus]] = {}
    for corpus in corpora:
        if valid_subset in corpus.splits:
            by_name.setdefault(corpus.direction, []).append(corpus)
    return tuple(
        ValidatedDirection(
            name,
            chain([corpus.split(valid_subset) for corpus in same]),
            same[0].pair.direction(),
            all(corpus.is_zero_shot for corpus in same),
        )
        for name, same in by_name.items()
    )


def _variation(config: TrainConfig, corpora: list[Corpus], parts: list[Split]) -> Variation:
    text = None
    if config.variation.augment:
        for corpus in corpora:
            refuse_cut_text(corpus.pair)
        text = StoredPairs(corpora, config.train_subset)
    padded = config.batching.count_padding
    tags = [CorpusTag(len(part), corpus.pair.direction()) for corpus, part in zip(corpora, parts)]
    return Variation(chain(parts), corpora[0].pair, config.variation, config.seed, text, padded=padded, tags=tags)


def _identity(config: TrainConfig, corpus: Corpus) -> str:
    """Return the checksum of the training data of a corpus; its text counts only if augmentation reads it."""
    pieces = corpus.fingerprint(config.train_subset)
    return f"{pieces} {text_identity(corpus, config.train_subset)}" if config.variation.augment else pieces


def open_validation(folders: Sequence[str], valid_subset: str) -> Datasets:
    """Open the validation splits only, to score a model without training; they also replace the training split."""
    corpora = open_corpora(folders)
    identities = _valid_identities(valid_subset, corpora)
    if not identities:
        raise DataError(f"no corpus of {', '.join(folders)} has a split '{valid_subset}' to validate on")
    split, tokenizer = _validation_split(valid_subset, corpora), corpora[0].tokenizer
    validated = _validated(valid_subset, corpora)
    most = _longest(split)
    return Datasets(
        corpora[0].pair, tokenizer, split, split, most, [], valid_identities=identities, validated=validated
    )


def stages_of(config: TrainConfig, datasets: Datasets) -> list[Stage]:
    """Return the stages of training, each with its mixture and its start."""
    sampling = config.sampling
    stages = [Stage(_mixture(config, datasets, sampling.first), name=str(sampling.first))]
    for later in sampling.later_mixes():
        mixture = _mixture(config, datasets, later.mix)
        stages.append(Stage(mixture, from_update=later.update, from_epoch=later.epoch, name=str(later.mix)))
    return stages


def _mixture(config: TrainConfig, datasets: Datasets, mix: Mix) -> Mixture | None:
    """Return how an epoch mixes the corpora; None: every sentence once."""
    sizes, weights = datasets.sizes, mix.weights
    if mix.temperature is not None:
        return Mixture.of_temperature(sizes, mix.temperature)
    if not weights:
        return None
    require_weights(mix, datasets.folders)
    for folder, size, weight in zip(datasets.folders, sizes, weights):
        if weight and not size:
            raise UsageError(
                f"{folder} has no training pairs but weight {weight:g}; omit this corpus, or set its weight to 0"
            )
    return Mixture.of_weights(sizes, weights)


def require_weights(mix: Mix, folders: Sequence[str]) -> None:
    """Refuse a mix whose weights do not fit the corpora."""
    if mix.weights and len(mix.weights) != len(folders):
        listed = " ".join(f"{weight:g}" for weight in mix.weights)
        raise UsageError(
            f"{quantity(len(mix.weights), 'weight')} ({listed}) for {len(folders)} corpora ({', '.join(folders)}); give "
            f"one weight for each corpus, in their order (--sampling-weights, --sampling-stages)"
        )


def number_of_updates(config: TrainConfig, batches: TrainingBatches, datasets: Datasets) -> int | None:
    """Return how many updates the limits allow; None: unknown.

    Epochs have equal length, except with a sort window, mixed corpora or changed text. Then the first epochs are counted,
    and their mean stands for the rest, since epochs of a large corpus hardly differ. Fewer epochs are counted if each
    of them is drawn before it is planned.
    """
    limits, batching = config.training, config.batching
    last = limits.last_update
    if limits.max_epoch is None or (batching.exceeded(datasets.longest) and not batching.skip_long):
        return last
    epochs_counted = 1
    changed = bool(config.variation.augment) and config.variation.headroom is not None
    if batching.sort_window is not None or config.sampling.is_on or changed:
        drawn = config.variation.is_on and config.variation.headroom is None
        most = MOST_DRAWN if drawn else MOST_SENTENCES
        epochs_counted = min(limits.max_epoch, MOST_EPOCHS, max(1, most // len(datasets.train)))
    made = 0
    for epoch in range(1, epochs_counted + 1):
        made += batches.updates_in_epoch(epoch)
        if last is not None and made >= last:
            return last
    by_epochs = made * limits.max_epoch // epochs_counted
    return by_epochs if last is None else min(by_epochs, last)


def _check_weights(config: TrainConfig, train: Split) -> None:
    """Refuse weights that would have no effect, or no meaning."""
    if train.weights is None:
        return
    if not config.criterion.uses_weights:
        raise UsageError(
            f"split '{train.name}' has weights, which criterion {criterions.name_of(type(config.criterion))} does not use; "
            f"choose another --criterion, or prepare the corpus without weights"
        )
    if train.weights.of_tokens and config.variation.is_on:
        raise UsageError(
            "this corpus has weights of tokens, which fit only its stored tokens; omit --bpe-dropout, --unigram-alpha and "
            "--augment, or prepare the corpus with weights of pairs"
        )
    if train.weights.are_zero:
        raise DataError(f"all weights of split '{train.name}' are 0: there is nothing to train on; give other weights")


def _check_best_metric(figure: str, validated: Sequence[ValidatedDirection]) -> None:
    """Refuse the metric of a direction that is not validated."""
    name, names = figure.rpartition(".")[0], [direction.figure for direction in validated]
    if name and validated and (name not in names or len(names) == 1):
        single = f"one direction; name its metric {metric_of(figure)}"
        example = f"{names[0]}.{metric_of(figure)}"
        listed = f"{', '.join(names)}; name the metric of one of these, such as {example}" if len(names) > 1 else single
        raise UsageError(f"validation.best_metric={figure}: the run validates {listed} (--best-checkpoint-metric)")


def sides(split: Split) -> tuple[Lengths, Lengths]:
    """Return the lengths of sources and targets; for a split without targets, those of the sources twice."""
    return split.source_lengths, split.source_lengths if split.target_lengths is None else split.target_lengths


def check_lengths(model: EncoderDecoder, datasets: Datasets, batching: BatchingConfig) -> None:
    """Refuse sentences that are too long for the model, before training starts."""
    kept = batching.limits if batching.skip_long else (None, None)  # pairs with more tokens on a side are skipped
    _check_lengths(model, datasets.train, kept)
    if datasets.valid is not None:
        _check_lengths(model, datasets.valid, (None, None))


def _check_lengths(model: EncoderDecoder, split: Split, kept: tuple[int | None, int | None]) -> None:
    too_long = "raise its limit, or preprocess with a smaller --max-length and shorter validation sentences"
    limit, most = model.max_source_length(), 0
    beyond: tuple[int, int] | None = None  # length of a target, and the limit of the model
    for block in blocks(len(split)):
        source, target = (side[block] for side in sides(split))
        used = np.ones(len(source), dtype=bool)
        for side, longest_kept in zip((source, target), kept):
            used &= True if longest_kept is None else side <= longest_kept
        source, target = source[used], target[used]
        most = max(most, int(source.max(initial=0)))
        limits = model.max_target_lengths(torch.from_numpy(source))
        if beyond is None and limits is not None and (exceeds := target > limits.numpy()).any():
            first = int(exceeds.argmax())
            beyond = int(target[first]), int(limits[first])
    if limit is not None and most > limit:
        raise DataError(
            f"the longest source of split '{split.name}' has {most} tokens, but the model reads at most {limit}; {too_long}"
        )
    if beyond is not None:
        raise DataError(
            f"a target of split '{split.name}' has {beyond[0]} tokens, but the model writes at most {beyond[1]}; {too_long}"
        )


def readable(model: EncoderDecoder) -> Callable[[Ints, Ints], Flags] | None:
    """Return a function from lengths of sources and targets to the pairs that fit the model; None: it has no limits."""
    if model.max_source_length() is None and model.max_target_lengths(torch.ones(1, dtype=torch.int64)) is None:
        return None

    def fits(source: Ints, target: Ints) -> Flags:
        longest, targets = model.max_source_length(), model.max_target_lengths(torch.from_numpy(source))
        flags = np.ones(len(source), dtype=bool) if longest is None else source <= longest
        return flags if targets is None else flags & (target <= targets.numpy())

    return fits


def _validation_split(valid_subset: str, corpora: list[Corpus]) -> Split:
    """Return the concatenation of the validation splits of all corpora that have one."""
    having = [corpus for corpus in corpora if valid_subset in corpus.splits]
    if not having:
        raise DataError(
            f"{corpora[0].folder} has no split '{valid_subset}' to validate on, only "
            f"{', '.join(corpora[0].splits)}; name one with --valid-subset, or switch validation off with "
            f"validation.interval=null"
        )
    split = chain([corpus.split(valid_subset) for corpus in having])
    if not len(split):
        raise DataError(f"split '{split.name}' is empty: there is nothing to validate on")
    return split


def _valid_identities(valid_subset: str, corpora: list[Corpus]) -> list[str]:
    return [corpus.fingerprint(valid_subset) for corpus in corpora if valid_subset in corpus.splits]


def _longest(split: Split) -> tuple[int, int]:
    if split.target_lengths is None:
        raise DataError(f"split '{split.name}' has no target side; preprocess it without --only-source")
    if not len(split):
        raise DataError(f"split '{split.name}' is empty: there is nothing to train on")
    return longest(split.source_lengths), longest(split.target_lengths)
