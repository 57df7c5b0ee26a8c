"""The parts of a user's own training loop: tokenizer, model, criterion, batches, and the model folder at its end.

They are those of nmt-train: the same names, options and defaults, the same weights for a seed, the same batches of an epoch.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.config.batching import AUTO, BatchingConfig
from nmt.config.checks import require_positive
from nmt.config.composing.composition import assigned, preset
from nmt.config.composing.presets import component_names, preset_names, unknown_preset
from nmt.config.option import keyword_of
from nmt.config.plain import component_from_plain, from_plain, to_plain
from nmt.config.sections import TrainConfig
from nmt.criterions import Criterion
from nmt.data.batching.batch import Batch, collate
from nmt.data.batching.plan import plan_batches, split_batch
from nmt.data.corpus.folder import open_corpora
from nmt.data.corpus.lengths import Lengths
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.vocabulary import Ids, Ints
from nmt.devices import device_named
from nmt.distributed.world import World
from nmt.errors import DataError, MissingInputError, UsageError, shown
from nmt.interface import EncoderDecoder
from nmt.keywords import with_default_components
from nmt.models.building import options_of
from nmt.models.ignored import build_model, without_effect
from nmt.models.loading import load_model
from nmt.plugins import load_plugins, preset_folders
from nmt.preprocessing.encoding import encode_all
from nmt.preprocessing.program_data import ProgramReader
from nmt.registry import registry_for
from nmt.storage.checkpoints import KIND, CheckpointInfo, write_checkpoint
from nmt.storage.files import check_destination
from nmt.storage.lock import remove_leftovers_of
from nmt.training.loop.batches import read_batch
from nmt.training.loop.learner import seed_torch
from nmt.training.setup.parts import build_criterion

logger = logging.getLogger("nmt.training")

OF_UPDATES = ("update_freq", "tokens_per_update")  # options of an update, which the loop makes itself

Sides = tuple[Lengths, Lengths]  # of sources and of targets


def tokenizer(folder: str | Path) -> LanguagePair:
    """Return the tokenizers of both languages of a corpus folder, run folder, model folder or checkpoint."""
    load_plugins()
    pair_folder = find_pair(Path(folder)) or find_pair(Path(folder).resolve().parent)  # of a checkpoint: its run folder
    if pair_folder is None:
        raise MissingInputError(
            f"{folder} holds no tokenizer (working directory: {Path.cwd()}); give a corpus, run or model folder"
        )
    return LanguagePair.load(pair_folder)


def model(architecture: Any, tokenizer: LanguagePair, /, *, seed: int = 1, **options: Any) -> EncoderDecoder:
    """Return a model in training mode, on the CPU.

    ``architecture``: the name of a preset or of a model, or the dataclass of its options. ``options`` change them: flags
    with underscores, or keys without ``model.``, such as ``dropout=0.1, d_model=64``. ``seed``: nmt-train with this seed
    begins with the same weights. Or ``architecture`` is the folder of a trained model, which keeps its options.
    """
    sizes = _required(tokenizer).sizes
    is_path = isinstance(architecture, (str, Path)) and str(architecture) not in _names("model")
    if is_path and ("/" in str(architecture) or Path(architecture).is_dir()):
        return _trained(architecture, tokenizer, options)
    config = _component("model", architecture, options)
    with torch.random.fork_rng(devices=[]):
        seed_torch(seed)
        built = build_model(config, sizes)
    if built.ignored:
        raise UsageError(f"{without_effect(built.ignored)}; leave it out, or choose another architecture")
    return built


def criterion(objective: Any = "label_smoothed_cross_entropy", /, **options: Any) -> Criterion:
    """Return a training objective: ``criterion(model, batch)`` is a ``LossReport`` of sums.

    ``objective``: the name of a criterion, or the dataclass of its options. ``options`` change them, as for ``model``.
    """
    config = _component("criterion", objective, options)
    return build_criterion(TrainConfig(criterion=config), None, torch.device("cpu"), World())


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

    ``data``: a corpus folder with this ``split``, or sentence pairs as ``nmt.preprocess`` takes them, which ``tokenizer``
    cuts at each call. ``epoch``: its number, from 1, which gives the order of nmt-train with this ``seed``; None: a fixed
    order, short sentences first. ``options``: ``max_tokens``, ``batch_size``, ``max_padding``, ``skip_long`` and the other
    options of batches in nmt-train.
    """
    require_positive("nmt.batches", epoch=epoch)
    config = _batching(options)
    lengths, read = _of_corpus(data, split, tokenizer) if isinstance(data, (str, Path)) else _of_text(data, tokenizer)
    plan: Sequence[Ints] = plan_batches(*lengths, config, seed, epoch or 1, shuffle=epoch is not None)
    if config.max_padding is not None:
        plan = [part for numbers in plan for part in split_batch(numbers, lengths, config.max_padding)]
    return Batches(plan, read, torch.device(device_named(str(device))))


class Batches:
    """The batches of an epoch: iterate over them as often as you like; ``len`` is their number."""

    def __init__(self, plan: Sequence[Ints], read: Callable[[Ints], Batch], device: torch.device) -> None:
        self._plan, self._read, self._device = plan, read, device

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[Batch]:
        for numbers in self._plan:
            yield self._read(numbers).to(self._device)


def save(model: EncoderDecoder, tokenizer: LanguagePair, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a model folder, which ``nmt.load`` and every command accept, and return its path.

    The model comes from ``nmt.model``, a folder or a training run. The folder is written as a whole. ``overwrite``: it may
    replace a model folder, but nothing else.
    """
    if not isinstance(model, EncoderDecoder):
        raise UsageError(
            f"nmt.save takes a model of nmt.model, not a {type(model).__name__}; if this wraps a model, give the model"
        )
    options = options_of(model, _required(tokenizer).sizes)
    config = with_default_components(TrainConfig(model=options))
    path = Path(folder)
    remove_leftovers_of(path)
    check_destination(path, KIND, "folder", overwrite=overwrite)
    info = CheckpointInfo(0, 0, ("own loop",), {}, {"vocabularies": tokenizer.digest()})
    state, tree = model.state_dict(), to_plain(config)
    write_checkpoint(path, model=state, config=tree, info=info, tokenizer=tokenizer.save, overwrite=overwrite)
    logger.info("wrote %s", path)
    return path


def _trained(folder: str | Path, tokenizer: LanguagePair, options: Mapping[str, Any]) -> EncoderDecoder:
    if options:
        raise UsageError(f"nmt.model: the model in {folder} has its own options; leave {', '.join(options)} out")
    load_plugins()
    loaded = load_model(folder, "cpu")
    _require_equal_vocabularies(folder, loaded.pair, tokenizer)
    return loaded.module.train()


def _required(tokenizer: LanguagePair | None) -> LanguagePair:
    """Refuse anything else than the tokenizers of a language pair, such as the name of their folder."""
    if not isinstance(tokenizer, LanguagePair):
        raise UsageError(f"the tokenizer is {shown(tokenizer)}; give that of a folder: nmt.tokenizer('FOLDER')")
    return tokenizer


def _names(role: str) -> list[str]:
    return [*component_names(role), *preset_names(role, preset_folders())]


def _require_equal_vocabularies(folder: str | Path, pair: LanguagePair, tokenizer: LanguagePair) -> None:
    if pair.digest() != tokenizer.digest():
        raise DataError(f"{folder} and the tokenizer have different vocabularies; use nmt.tokenizer({str(folder)!r})")


def _component(role: str, choice: Any, options: Mapping[str, Any]) -> Any:
    """Return the options of a component: ``choice`` names it or a preset of it, or holds its options."""
    load_plugins()
    called, folders = f"nmt.{role}", preset_folders()
    if isinstance(choice, str) and choice not in _names(role):
        raise unknown_preset(role, choice, folders)
    tree = dict(preset(role, choice, folders)) if isinstance(choice, str) else to_plain(choice)
    config_class = registry_for(role).config_class(tree["name"]) if isinstance(choice, str) else type(choice)
    registry_for(role).name_of(config_class)  # refuses the options of something else
    fields = dataclasses.fields(config_class)
    keys = {name: field.name for field in fields for name in (keyword_of(field), field.name)}
    tree |= {each.key: each.value for each in assigned(options, keys, called)}
    return component_from_plain(role, tree, origin=called)


def _batching(options: Mapping[str, Any]) -> BatchingConfig:
    names = [field.name for field in dataclasses.fields(BatchingConfig) if field.name not in OF_UPDATES]
    tree = {each.key: each.value for each in assigned(options, {name: name for name in names}, "nmt.batches")}
    config = from_plain(BatchingConfig, tree, origin="nmt.batches", where="batching")
    if config.max_tokens == AUTO:
        raise UsageError("nmt.batches: max_tokens=auto needs a training run; give a number")
    return config


def _of_corpus(folder: str | Path, split: str, tokenizer: LanguagePair | None) -> tuple[Sides, Callable[[Ints], Batch]]:
    """Return the lengths of a split of a corpus folder, and the reader of its sentences."""
    load_plugins()
    (corpus,) = open_corpora([folder])
    _require_equal_vocabularies(folder, corpus.pair, tokenizer or corpus.pair)
    stored = corpus.split(split)
    if stored.target_lengths is None:
        raise DataError(f"split '{split}' of {folder} has no target side; preprocess it without --only-source")
    if not len(stored):
        raise DataError(f"split '{split}' of {folder} is empty")
    return (stored.source_lengths, stored.target_lengths), partial(read_batch, stored)


def _of_text(pairs: Any, tokenizer: LanguagePair | None) -> tuple[Sides, Callable[[Ints], Batch]]:
    """Return the lengths of sentence pairs in memory, and the reader of their ids."""
    pair = _required(tokenizer)
    reader = ProgramReader(pairs, "data", languages=(pair.source_lang, pair.target_lang))
    rows: tuple[list[Ids], list[Ids]] = [], []
    for chunk in encode_all(reader.pairs(), pair, only_source=False, workers=1):
        for side, encoded in zip(rows, chunk.sides):
            side += np.split(encoded.tokens, np.cumsum(encoded.lengths)[:-1])

    def read(numbers: Ints) -> Batch:
        source, target = ([side[number] for number in numbers] for side in rows)
        return collate(source, target, numbers.tolist(), started=len(pair.direction().target))

    source_lengths, target_lengths = (np.array([*map(len, side)], dtype=np.int64) for side in rows)
    return (source_lengths, target_lengths), read
