"""nmt-import: make a model folder of a model of another toolkit."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.checks import Refusals, refuse
from nmt.config.choices import ProgressStyle, Segmentation
from nmt.config.exchange import ImportConfig
from nmt.config.plain import to_plain
from nmt.config.sections import TrainConfig
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.data.vocabulary import VocabularySizes
from nmt.errors import DataError, MissingInputError, OutputError, UsageError
from nmt.formats import PortableModel, format_named, format_of
from nmt.formats.export_manifest import require_unchanged_export
from nmt.formats.trimming import trim
from nmt.formats.vocabulary_order import require_equal_vocabularies
from nmt.hub import HubName, download, holds_own_model, is_hub_name
from nmt.interface import EncoderDecoder
from nmt.models import models
from nmt.models.transformer.config import TransformerConfig
from nmt.models.transformer.own_weights import Parameters, configuration, parameters
from nmt.models.transformer.weights import TransformerWeights
from nmt.optim.config import AdamConfig
from nmt.optim.schedules import InverseSqrtConfig
from nmt.progress import ReportPairs, show_progress, unseen
from nmt.search.config import BeamConfig
from nmt.storage.arrays import release, widened
from nmt.storage.checkpoints import KIND, CheckpointInfo, load_parameters, write_checkpoint
from nmt.storage.files import check_destination
from nmt.storage.lock import remove_leftovers_of
from nmt.storage.run_folder import hub_advice, split_paths
from nmt.storage.tensor_file import write_arrays

logger = logging.getLogger("nmt.import")


def import_model(config: ImportConfig, progress: ReportPairs = unseen) -> list[Path]:
    """Write a model folder for each model in ``config.path``: ``config.output``, or numbered folders in it.

    A corpus of another toolkit becomes a corpus folder; ``progress`` receives its number of sentence pairs.
    """
    if not config.path:
        raise UsageError("name the model to read: --path FILE")
    origin = dict[str, str]()
    if is_hub_name(config.path):
        config, origin = _downloaded(config)
    if not config.output:
        raise UsageError("name the model folder to write: --output FOLDER")
    first = Path(split_paths(config.path)[0])
    advice = hub_advice(config.path)
    if not first.exists() and (advice or not config.from_format):
        raise MissingInputError(f"{config.path} does not exist (working directory: {Path.cwd()}){advice}")
    output = Path(config.output)
    from_format = config.from_format or format_of(first)
    reader = format_named(from_format, "--from")
    for path in split_paths(config.path):
        require_unchanged_export(Path(path))
    if reader.has_tokenizers:
        refuse(*_options_of_incomplete_models(config, from_format))
    if reader.import_corpus(config, progress):
        logger.info("wrote the corpus %s", output)
        return [output]
    imported = reader.read(config)
    folders = _destinations(output, len(imported), overwrite=config.overwrite)
    require_equal_vocabularies({model.pair.digest() for model in imported}, config.path)
    imported, trimmed = trim(imported, config)
    converted = [Converted.of(model, config.progress) for model in imported]  # convert all before writing one
    for model, folder in zip(converted, folders):
        facts = {"imported_from": from_format} | origin | trimmed
        write_model(model, folder, facts, overwrite=config.overwrite, style=config.progress)
    if len(folders) > 1:
        logger.info("together they translate with --path %s", ":".join(map(str, folders)))
    return folders


def _downloaded(config: ImportConfig) -> tuple[ImportConfig, dict[str, str]]:
    """Download the model of the hub that ``config.path`` names; return the options of its folder, and its origin."""
    name = HubName.parse(config.path)
    folder = download(name, config.progress)
    if holds_own_model(folder):
        raise UsageError(f"{name} is a model folder of nmt; use it without importing it: --path {name}")
    output = config.output or name.repository.rpartition("/")[2]
    origin = {"repository": name.repository, "commit": folder.name}
    return dataclasses.replace(config, path=str(folder), output=output), origin


def _options_of_incomplete_models(config: ImportConfig, from_format: str) -> Refusals:
    for name in ("srcdict", "tgtdict", "bpe_model", "target_bpe_model", "moses"):
        flag = f"--{name.replace('_', '-')}"
        yield (
            bool(getattr(config, name)),
            f"a folder of {from_format} holds its vocabularies and tokenizers; omit {flag}",
        )
    yield config.bpe is not Segmentation.none, f"a folder of {from_format} holds its tokenizers; omit --bpe"


def _destinations(output: Path, count: int, *, overwrite: bool) -> list[Path]:
    """Return a folder for each model: ``output``, or numbered folders in it, which may hold no other files."""
    folders = [output] if count == 1 else [output / str(number) for number in range(1, count + 1)]
    for folder in folders:
        remove_leftovers_of(folder)
    if count > 1 and output.is_dir() and (others := sorted({*output.glob("[!.]*")} - {*folders})):
        raise OutputError(
            f"{output} already holds {others[0].name}, which is not one of the {count} models; choose another --output"
        )
    for folder in folders:
        check_destination(folder, KIND, "--output", overwrite=overwrite)
    return folders


@dataclass(frozen=True)
class Converted:
    """A model as parameters of our Transformer, compared with the original."""

    model: PortableModel
    sizes: VocabularySizes
    options: TransformerConfig
    arrays: Parameters
    compared: int  # number of arrays

    @classmethod
    def of(cls, model: PortableModel, style: ProgressStyle = ProgressStyle.none) -> Converted:
        model = dataclasses.replace(model, weights=of_one_length(model.weights))
        sizes = model.pair.sizes
        try:
            options = dataclasses.replace(configuration(model.weights, sizes), **model.training)
        except UsageError as error:  # a UsageError blames an option; here it is the file
            raise DataError(f"nmt does not support this model: {error}") from None
        arrays = parameters(options, sizes, model.weights)
        return cls(model, sizes, options, arrays, compare(arrays, style))

    def module(self) -> EncoderDecoder:
        """Return the torch module."""
        import torch

        model = models.build(self.options, self.sizes)
        tensors = {name: torch.from_numpy(array.copy()) for name, array in self.arrays.items()}
        load_parameters(model, tensors, "the imported model")
        return model


def of_one_length(weights: TransformerWeights) -> TransformerWeights:
    """Truncate the longer table of learned positions: our Transformer has one number of positions for both sides."""
    source, target = weights.source.positions, weights.target.positions
    if not (isinstance(source, np.ndarray) and isinstance(target, np.ndarray)) or len(source) == len(target):
        return weights
    length = min(len(source), len(target))
    logger.warning(
        "the model has learned positions for %d source and %d target tokens; only the first %d of each are used",
        len(source),
        len(target),
        length,
    )
    return dataclasses.replace(
        weights,
        source=dataclasses.replace(weights.source, positions=source[:length]),
        target=dataclasses.replace(weights.target, positions=target[:length]),
    )


def write_model(
    converted: Converted, folder: Path, origin: Mapping[str, Any], *, overwrite: bool, style: ProgressStyle
) -> None:
    """Write a model folder, usable like one from training. ``origin``: facts for its manifest."""
    pair, arrays = converted.model.pair, converted.arrays
    info = CheckpointInfo(0, 0, ("import",), {}, {"vocabularies": pair.digest(), **origin})
    config = _tree(converted.options, converted.model.search)
    written = (arrays[name] for name in _counted(arrays.shapes, "writing", style))
    write_checkpoint(
        folder,
        model=lambda path: write_arrays(path, arrays.shapes, written),
        config=config,
        info=info,
        tokenizer=pair.save,
        overwrite=overwrite,
    )
    logger.info(
        "wrote %s: %s parameters, %s source and %s target tokens; %d arrays were imported and verified",
        folder,
        f"{sum(map(math.prod, arrays.shapes.values())):,}",
        f"{converted.sizes.source:,}",
        f"{converted.sizes.target:,}",
        converted.compared,
    )


def compare(arrays: Parameters, style: ProgressStyle) -> int:
    """Refuse our parameters unless they equal the original exactly. Returns the number of arrays compared."""
    for name in _counted(arrays.sources, "converting", style):
        ours = arrays[name]
        for path, rows, original in arrays.sources[name]:
            if not np.array_equal(rows.of(ours), np.asarray(widened(original), dtype=np.float32)):
                raise DataError(f"{path} differs between the original and the imported model; check it for NaN")
            release(original)
    return sum(map(len, arrays.sources.values()))


def _counted(names: Collection[str], what: str, style: ProgressStyle) -> Iterator[str]:
    """Yield the names of arrays, and show the number of those that were used."""
    with show_progress(style, what, "arrays", len(names)) as count:
        for name in names:
            yield name
            count(1)


def _tree(options: TransformerConfig, search: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a training run of this model, so that ``nmt-train --config`` can continue from it."""
    config = TrainConfig(
        model=options,
        criterion=LabelSmoothedCrossEntropyConfig(),
        optimizer=AdamConfig(),
        scheduler=InverseSqrtConfig(),
        search=BeamConfig(**search),
    )
    tree: dict[str, Any] = to_plain(config)
    return tree
