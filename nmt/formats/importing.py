"""nmt-import: a model folder made of what another toolkit wrote."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.checks import Rules, refuse
from nmt.config.choices import Segmentation
from nmt.config.exchange import ImportConfig
from nmt.config.plain import to_plain
from nmt.config.sections import TrainConfig
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.data.vocabulary import VocabularySizes
from nmt.errors import DataError, OutputError, UsageError
from nmt.formats import PortableModel, format_named
from nmt.interface import EncoderDecoder
from nmt.models import models
from nmt.models.transformer.config import TransformerConfig
from nmt.models.transformer.own_weights import configuration, describe, parameters
from nmt.models.transformer.weights import Array, TransformerWeights, arrays_of
from nmt.optim.config import AdamConfig
from nmt.optim.schedules import InverseSqrtConfig
from nmt.progress import ReportPairs, unseen
from nmt.search.config import BeamConfig
from nmt.storage.checkpoints import KIND, CheckpointInfo, load_parameters, write_checkpoint
from nmt.storage.files import check_destination, said_plainly, temporary
from nmt.storage.lock import remove_leftovers_of

logger = logging.getLogger("nmt.import")


def import_model(config: ImportConfig, progress: ReportPairs = unseen) -> list[Path]:
    """Write a model folder of each model that ``config.path`` names: ``config.output``, or several in it.

    A corpus of another toolkit becomes a corpus folder; ``progress`` is told of its pairs.
    """
    if not config.path:
        raise UsageError("name the model to read: --path FILE")
    if not config.output:
        raise UsageError("say where to write the model folder: --output FOLDER")
    output = Path(config.output)
    reader = format_named(config.from_format, "--from")
    if reader.whole:
        refuse(*_beside_a_whole_model(config))
    if reader.import_corpus(config, progress):
        logger.info("wrote the corpus %s", output)
        return [output]
    read = reader.read(config)
    folders = _destinations(output, len(read), overwrite=config.overwrite)
    if any(one.pair.digest() != read[0].pair.digest() for one in read):
        raise UsageError(f"{config.path}: the models have different vocabularies, and cannot be an ensemble")
    found = [Converted.of(one) for one in read]  # all, before the first is written
    for one, folder in zip(found, folders):
        write_model(one, folder, config.from_format, overwrite=config.overwrite)
    if len(folders) > 1:
        logger.info("together they translate with --path %s", ":".join(map(str, folders)))
    return folders


def _beside_a_whole_model(config: ImportConfig) -> Rules:
    for name in ("srcdict", "tgtdict", "bpe_model", "target_bpe_model", "moses"):
        flag = f"--{name.replace('_', '-')}"
        yield (
            bool(getattr(config, name)),
            f"a folder of {config.from_format} holds its vocabularies and tokenizers; leave {flag} out",
        )
    yield config.bpe is not Segmentation.none, f"a folder of {config.from_format} holds its tokenizers; leave --bpe out"


def _destinations(output: Path, count: int, *, overwrite: bool) -> list[Path]:
    """A folder for each model: ``output``, or the numbers in it, beside which nothing may stand."""
    folders = [output] if count == 1 else [output / str(number) for number in range(1, count + 1)]
    for folder in folders:
        remove_leftovers_of(folder)
    if count > 1 and output.is_dir() and (others := sorted({*output.glob("[!.]*")} - {*folders})):
        raise OutputError(
            f"{output} holds {others[0].name}, which is none of the {count} models; choose another --output"
        )
    for folder in folders:
        check_destination(folder, KIND, "--output", overwrite=overwrite)
    return folders


@dataclass(frozen=True)
class Converted:
    """A model as our Transformer has it, compared with what it was made of."""

    model: PortableModel
    sizes: VocabularySizes
    options: TransformerConfig
    arrays: Mapping[str, Array]
    compared: int  # arrays

    @classmethod
    def of(cls, model: PortableModel) -> Converted:
        model = dataclasses.replace(model, weights=of_one_length(model.weights))
        pair = model.pair
        sizes = VocabularySizes(len(pair.source.vocabulary), len(pair.target.vocabulary), pair.shared)
        try:
            options = dataclasses.replace(configuration(model.weights, sizes), **model.training)
        except UsageError as error:  # said of options, which here are the file's
            raise DataError(f"no model of ours is like the one that was read: {error}") from None
        arrays = parameters(options, sizes, model.weights)
        return cls(model, sizes, options, arrays, compare(model, options, sizes, arrays))

    def module(self) -> EncoderDecoder:
        """The model itself."""
        import torch

        model = models.build(self.options, self.sizes)
        tensors = {name: torch.from_numpy(array) for name, array in self.arrays.items()}
        load_parameters(model, tensors, "what was read")
        return model


def of_one_length(weights: TransformerWeights) -> TransformerWeights:
    """The same with as many learned positions on both sides, as in ours: sentences may be as long as the shorter table."""
    source, target = weights.source.positions, weights.target.positions
    if not (isinstance(source, np.ndarray) and isinstance(target, np.ndarray)) or len(source) == len(target):
        return weights
    length = min(len(source), len(target))
    logger.warning(
        "the model has learned positions for %d source and %d target pieces; the first %d of both are taken",
        len(source),
        len(target),
        length,
    )
    return dataclasses.replace(
        weights,
        source=dataclasses.replace(weights.source, positions=source[:length]),
        target=dataclasses.replace(weights.target, positions=target[:length]),
    )


def write_model(one: Converted, folder: Path, origin: str, *, overwrite: bool = False) -> None:
    """A model folder that translates, is averaged, fine-tuned and exported like one that was trained here."""
    import torch

    pair = one.model.pair
    tensors = {name: torch.from_numpy(array) for name, array in one.arrays.items()}
    info = CheckpointInfo(0, 0, ("import",), {}, {"vocabularies": pair.digest(), "imported_from": origin})
    place = temporary(folder)  # beside it, where there must be room anyway
    try:
        with said_plainly(place):
            place.mkdir(parents=True)
        pair.save(place)
        config = _tree(one.options, one.model.search)
        write_checkpoint(folder, model=tensors, config=config, info=info, tokenizer=place, overwrite=overwrite)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    logger.info(
        "wrote %s: %s parameters, %s source and %s target pieces; %d arrays were read, and read back they are the same",
        folder,
        f"{sum(array.size for array in one.arrays.values()):,}",
        f"{one.sizes.source:,}",
        f"{one.sizes.target:,}",
        one.compared,
    )


def compare(
    model: PortableModel, options: TransformerConfig, sizes: VocabularySizes, arrays: Mapping[str, Array]
) -> int:
    """Refuse parameters of ours that do not describe the model that they were made of; how many arrays were compared."""
    ours = dict(arrays_of(describe(options, sizes, arrays, "the model")))
    theirs = dict(arrays_of(model.weights))
    for place, array in theirs.items():
        if not np.array_equal(ours[place], np.asarray(array, dtype=np.float32)):
            raise DataError(f"{place} is not the same in the model that was read and in ours; does it hold NaN?")
    return len(theirs)


def _tree(options: TransformerConfig, search: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of a training run that would have such a model, so that ``nmt-train --config`` can go on from it."""
    config = TrainConfig(
        model=options,
        criterion=LabelSmoothedCrossEntropyConfig(),
        optimizer=AdamConfig(),
        scheduler=InverseSqrtConfig(),
        search=BeamConfig(**search),
    )
    tree: dict[str, Any] = to_plain(config)
    return tree
