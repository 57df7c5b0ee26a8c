"""Functions for a user's own training loop: tokenizer, model, criterion, batches, and the model folder at its end.

They agree with nmt-train in names, options and defaults, in the weights of a seed, and in the batches of an epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.config.batching import AUTO
from nmt.config.checks import require_positive
from nmt.config.composing.composition import from_keywords, keys_by_keyword
from nmt.config.plain import to_plain
from nmt.config.sections import TrainConfig
from nmt.criterions import Criterion
from nmt.data.batching.batch import Batch, collate
from nmt.data.batching.plan import plan_batches, split_batch
from nmt.data.corpus.folder import Corpus
from nmt.data.corpus.lengths import Lengths
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.vocabulary import Ids, Ints
from nmt.devices import device_named
from nmt.distributed.world import World
from nmt.errors import DataError, MissingInputError, UsageError, quantity, shown
from nmt.hub import checkpoint_at, is_hub_name
from nmt.interface import EncoderDecoder
from nmt.keywords import with_default_components
from nmt.models.building import options_of
from nmt.models.ignored import build_model, without_effect
from nmt.models.loading import load_model
from nmt.plugins import load_plugins, preset_folders
from nmt.preprocessing.encoding import encode_all
from nmt.preprocessing.program_data import program_pairs
from nmt.storage.checkpoints import KIND, CheckpointInfo, write_checkpoint
from nmt.storage.files import check_destination
from nmt.storage.lock import remove_leftovers_of
from nmt.training.loop.batches import read_batch
from nmt.training.loop.learner import seed_torch
from nmt.training.setup.parts import build_criterion

logger = logging.getLogger("nmt.training")

Sides = tuple[Lengths, Lengths]  # of sources and of targets


def tokenizer(folder: str | Path) -> LanguagePair:
    """Return the tokenizers of both languages of a corpus, run or model folder, a checkpoint, or a model of the hub."""
    load_plugins()
    place = checkpoint_at(folder) if is_hub_name(str(folder)) else Path(folder)
    pair_folder = find_pair(place) or find_pair(place.resolve().parent)  # of a checkpoint: its run folder
    if pair_folder is None:
        raise MissingInputError(
            f"{folder} holds no tokenizer (working directory: {Path.cwd()}); give a corpus, run or model folder"
        )
    return LanguagePair.load(pair_folder)


def model(architecture: Any, tokenizer: LanguagePair, /, *, seed: int = 1, **options: Any) -> EncoderDecoder:
    """Return a model in training mode, on the CPU.

    ``architecture``: the name of a preset or of a model, or the dataclass of its options. ``options`` change them: flags
    with underscores, or keys without ``model.``, such as ``dropout=0.1, d_model=64``. ``seed``: nmt-train with this seed
    begins with the same weights. Or ``architecture`` is the folder of a trained model, and ``options`` are refused.
    """
    _require_tokenizer(tokenizer)
    if isinstance(architecture, (str, Path)) and ("/" in str(architecture) or Path(architecture).is_dir()):
        if options:
            raise UsageError(f"nmt.model: the model in {architecture} has its own options; omit {', '.join(options)}")
        load_plugins()
        loaded = load_model(architecture, "cpu")
        _require_equal_vocabularies(architecture, loaded.pair, tokenizer)
        return loaded.module.train()
    config = _composed("model", options, architecture)
    with torch.random.fork_rng(devices=[]):
        seed_torch(seed)
        built = build_model(config.model, tokenizer.sizes)
    if built.ignored:
        raise UsageError(f"{without_effect(built.ignored)}; omit it, or choose another architecture")
    return built


def criterion(objective: Any = "label_smoothed_cross_entropy", /, **options: Any) -> Criterion:
    """Return a training objective: ``criterion(model, batch)`` is a ``LossReport`` of sums.

    ``objective``: the name of a criterion, or the dataclass of its options. ``options`` change them, as for ``model``.
    """
    return build_criterion(_composed("criterion", options, objective), None, torch.device("cpu"), World())


def batches(
    data: Any,
    tokenizer: LanguagePair | None = None,
    /,
    *,
    split: str = "train",
    epoch: int | None = None,
    seed: int = 1,
    device: str | torch.device = "cpu",
    **options: Any,
) -> Batches:
    """Return the batches of one epoch.

    ``data``: a corpus folder with this ``split``; or sentence pairs as a list, data set or data frame, which are tokenized
    at each call. ``epoch``: its number, from 1; the order is that of nmt-train with this ``seed``. None: short sentences
    first. ``options``: ``max_tokens``, ``batch_size``, ``max_padding``, ``skip_long`` and the other options of
    batches in nmt-train.
    """
    require_positive("nmt.batches", epoch=epoch)
    config = _composed("batching", options).batching
    if config.max_tokens == AUTO or (config.update_freq, config.tokens_per_update) != (1, None):
        of_updates = "max_tokens=auto, update_freq and tokens_per_update"
        raise UsageError(f"nmt.batches: {of_updates} are for the updates of nmt-train; omit them, or set max_tokens=N")
    lengths, read = _of_corpus(data, split, tokenizer) if isinstance(data, (str, Path)) else _of_text(data, tokenizer)
    plan: Sequence[Ints] = plan_batches(*lengths, config, seed, epoch or 1, shuffle=epoch is not None)
    if config.max_padding is not None:
        plan = [part for numbers in plan for part in split_batch(numbers, lengths, config.max_padding)]
    return Batches(plan, read, torch.device(device_named(str(device))))


@dataclass(frozen=True, repr=False)
class Batches:
    """The batches of an epoch: iterate over them as often as you like; ``len`` is their number."""

    plan: Sequence[Ints]
    read: Callable[[Ints], Batch]
    device: torch.device

    def __repr__(self) -> str:
        return f"<{quantity(len(self), 'batch', 'batches')}>"

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[Batch]:
        return (self.read(numbers).to(self.device) for numbers in self.plan)


def save(model: EncoderDecoder, tokenizer: LanguagePair, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a model folder, which ``nmt.load`` and the commands accept, and return its path.

    ``model``: from ``nmt.model`` or ``load_model``. The folder is written as a whole or not at all. ``overwrite``: replace a
    model folder; other folders are refused.
    """
    if not isinstance(model, EncoderDecoder):
        raise UsageError(
            f"nmt.save takes a model of nmt.model, not a {type(model).__name__}; if this wraps a model, give the wrapped one"
        )
    _require_tokenizer(tokenizer)
    options, undescribed = options_of(model, tokenizer.sizes)
    if undescribed:
        raise UsageError(
            f"{undescribed}; a folder stores options and parameters only: register the model (docs/how-to/extend), and "
            f"build it with nmt.model"
        )
    config, path = with_default_components(TrainConfig(model=options)), Path(folder)
    remove_leftovers_of(path)
    check_destination(path, KIND, "folder", overwrite=overwrite)
    info = CheckpointInfo(0, 0, ("own loop",), {}, {"vocabularies": tokenizer.digest()})
    parts: dict[str, Any] = {"model": model.state_dict(), "config": to_plain(config), "info": info}
    write_checkpoint(path, **parts, tokenizer=tokenizer.save, overwrite=overwrite)
    logger.info("wrote %s", path)
    return path


def _composed(section: str, options: Mapping[str, Any], choice: Any = None) -> TrainConfig:
    """Return the options of nmt-train, with ``options`` of one section and the ``choice`` of its component.

    ``options``: flags with underscores, or keys without the section.
    """
    load_plugins()
    keys = {name: key for name, key in keys_by_keyword(TrainConfig).items() if key.startswith(f"{section}.")}
    keywords = {keys.get(name, f"{section}.{name}"): value for name, value in options.items()}
    if choice is not None:
        keywords[section] = choice
    return from_keywords(TrainConfig, keywords, f"nmt.{section}", folders=preset_folders())


def _require_tokenizer(tokenizer: Any) -> None:
    if not isinstance(tokenizer, LanguagePair):
        raise UsageError(f"the tokenizer is {shown(tokenizer)}; give that of a folder: nmt.tokenizer('FOLDER')")


def _require_equal_vocabularies(folder: str | Path, pair: LanguagePair, tokenizer: LanguagePair) -> None:
    if pair.digest() != tokenizer.digest():
        raise DataError(f"{folder} and the tokenizer have different vocabularies; use nmt.tokenizer({str(folder)!r})")


def _of_corpus(folder: str | Path, split: str, tokenizer: LanguagePair | None) -> tuple[Sides, Callable[[Ints], Batch]]:
    """Return the lengths of a split of a corpus folder, and the reader of its sentences."""
    load_plugins()
    corpus = Corpus.open(Path(folder))
    _require_equal_vocabularies(folder, corpus.pair, tokenizer or corpus.pair)
    stored = corpus.split(split)
    if stored.target_lengths is None:
        raise DataError(f"split '{split}' of {folder} has no target side; preprocess it without --only-source")
    if not len(stored):
        raise DataError(f"split '{split}' of {folder} is empty")
    return (stored.source_lengths, stored.target_lengths), partial(read_batch, stored)


def _of_text(pairs: Any, pair: Any) -> tuple[Sides, Callable[[Ints], Batch]]:
    """Return the lengths of sentence pairs in memory, and the reader of their ids."""
    _require_tokenizer(pair)
    text = program_pairs(pairs, "data", languages=(pair.source_lang, pair.target_lang)).read()
    rows: tuple[list[Ids], list[Ids]] = [], []
    for chunk in encode_all(text, pair, only_source=False, workers=1):
        for side, encoded in zip(rows, chunk.sides):
            side += np.split(encoded.tokens, np.cumsum(encoded.lengths)[:-1])

    def read(numbers: Ints) -> Batch:
        source, target = ([side[number] for number in numbers] for side in rows)
        return collate(source, target, numbers.tolist(), started=len(pair.direction().target))

    source_lengths, target_lengths = (np.array([*map(len, side)], dtype=np.int64) for side in rows)
    return (source_lengths, target_lengths), read
