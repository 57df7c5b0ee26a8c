"""nmt-export: write a model for another toolkit, read it back with that toolkit, and compare both."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.exchange import ExportConfig, Quantization
from nmt.data.text.lines import Reading
from nmt.data.vocabulary import SPECIALS, Ids
from nmt.devices import device_named
from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.formats import ComparedModel, ExportComparison, Format, PortableModel, format_named, model_card
from nmt.formats.export_manifest import KIND, write_export_manifest
from nmt.formats.translating import computed_by_torch, imported_in_memory
from nmt.hub import checkpoint_at, destination, upload
from nmt.models.layer_subset import with_layers
from nmt.models.loading import PACKING, LoadedModel, load_model
from nmt.models.transformer.config import PositionKind
from nmt.models.transformer.own_weights import describe, undescribed
from nmt.search.config import BeamConfig
from nmt.search.validated_search import validated_search
from nmt.storage import checkpoints
from nmt.storage.adapted import ADAPTER
from nmt.storage.checkpoints import CheckpointInfo, read_info
from nmt.storage.files import check_destination, copy_folder, new_folder, write_manifest, yaml_text
from nmt.storage.lock import remove_leftovers_of
from nmt.storage.run_folder import CONFIG, MODEL, tokenizer_folder
from nmt.storage.tensor_file import write_numbers
from nmt.threads import set_threads

logger = logging.getLogger("nmt.export")

_MORE = 20  # tokens that a translation may be longer than the longest source
_LONGEST_RANDOM = 30  # tokens


def export_model(config: ExportConfig) -> ExportComparison:
    """Write the model ``config.path`` to ``config.output``, and upload it to ``config.push``.

    If the export differs from the model, nothing is left there, and nothing is uploaded.
    """
    if not config.path:
        raise UsageError("name the model: --path FOLDER (a run folder or a checkpoint)")
    if not config.output and config.push is None:
        raise UsageError("name the folder to write: --output FOLDER")
    name = None if config.push is None else destination(config.push)
    with contextlib.ExitStack() as stack:
        folder = config.output or stack.enter_context(tempfile.TemporaryDirectory(prefix="nmt-export-")) + "/model"
        comparison = _write(config, Path(folder))
        if name is None:
            return comparison
        return replace(comparison, url=upload(Path(folder), name, private=config.private))


def _write(config: ExportConfig, output: Path) -> ExportComparison:
    """Write the export with its model card and checksums. Without a format, it is a model folder of nmt."""
    rewrites = config.merge or bool(config.encoder_layers_to_keep or config.decoder_layers_to_keep)
    if rewrites and config.format:
        raise UsageError(
            f"--merge, --encoder-layers-to-keep and --decoder-layers-to-keep write a model folder of nmt; omit "
            f"--format {config.format}, and then export that folder"
        )
    plain = not config.format and (config.push is not None or rewrites)
    if not config.format and not rewrites and _is_adapter(config.path):
        raise UsageError(
            f"{config.path} is an adapter; add --merge to write a whole model folder of nmt, or --format to export the "
            f"adapted model"
        )
    writer = None if plain else format_named(config.format, "--format")
    remove_leftovers_of(output)
    kind = checkpoints.KIND if writer is None or writer.own_folders else KIND
    check_destination(output, kind, "--output", overwrite=config.overwrite)
    loaded = load_model(config.path, device_named("cpu"))
    loaded = with_layers(loaded, config.encoder_layers_to_keep, config.decoder_layers_to_keep)
    missing, model = undescribed(loaded.config), None
    if missing is None:
        weights = describe(loaded.config, loaded.sizes, loaded.arrays, loaded.origin)
        training = {name: value for name, value in vars(loaded.config).items() if "dropout" in name}
        model = PortableModel(weights, loaded.pair, training, _of_search(loaded))
    elif writer is not None:
        raise UsageError(f"{config.path} cannot be exported: other toolkits do not support {missing}")
    if config.quantization is not Quantization.float32 and not (writer and writer.quantizes):
        raise UsageError(f"--quantization {config.quantization.value} is only for ctranslate2 and native; omit it")
    set_threads(config.threads)
    with new_folder(output, overwrite=config.overwrite) as folder:
        if model is None or writer is None:
            return (_rewrite if rewrites else _copy)(loaded, model, folder, config)
        return _write_for(writer, model, loaded, folder, config)


def _write_for(
    writer: Format, model: PortableModel, loaded: LoadedModel, folder: Path, config: ExportConfig
) -> ExportComparison:
    """Write a model for another toolkit, and compare what is read back with the model."""
    writer.write(model, folder, config)
    info = loaded.info
    if writer.own_folders:
        packed = {checkpoints.PACKED: config.quantization.value, "packing": PACKING}
        info = _of_whole_model(replace(info, made={**info.made, **packed}))
        _copy_description(loaded, folder)
        _write_manifest(folder, info)
    comparison = _compare(loaded, writer.read_export(folder) or imported_in_memory(writer, folder), config)
    if not comparison.difference <= config.allowed():
        raise DataError(
            f"the exported model differs from {config.path}: log-probabilities differ by {comparison.difference:.2g} per "
            f"token, more than --tolerance {config.allowed():g}; nothing was written to {config.output or config.push}"
        )
    model_card.write(folder, loaded, model, (writer, comparison), config)
    if writer.own_folders:
        _write_manifest(folder, info)  # with the model card
    else:
        write_export_manifest(folder, config.format)
    logger.info(
        "wrote %s; read back by %s, %d of %d sentences translate the same, and log-probabilities differ by at most "
        "%.2g per token",
        config.output or "the export",
        config.format,
        comparison.equal,
        comparison.sentences,
        comparison.difference,
    )
    return comparison


def _copy(loaded: LoadedModel, model: PortableModel | None, folder: Path, config: ExportConfig) -> ExportComparison:
    """Copy a checkpoint without its training state, and compare the checksums of the copy with the original."""
    shutil.copyfile(loaded.path / MODEL, folder / MODEL)
    _copy_description(loaded, folder)
    model_card.write(folder, loaded, model, None, config)
    _write_manifest(folder, loaded.info)
    copied, original = checkpoints.checksums(folder), checkpoints.checksums(loaded.path)
    if any(copied[name] != original[name] for name in (MODEL, CONFIG)):
        raise DataError(f"the copy of {loaded.path} has other checksums; check the disk, and try again")
    return ExportComparison(0, 0.0, 0)


def _rewrite(loaded: LoadedModel, model: PortableModel | None, folder: Path, config: ExportConfig) -> ExportComparison:
    """Write a model folder with an adapter added to the weights, or with some of the layers, and read it back."""
    info = _of_whole_model(loaded.info)
    write_numbers(folder / MODEL, loaded.arrays)
    _copy_description(loaded, folder)
    (folder / CONFIG).write_text(yaml_text(loaded.tree), encoding="utf-8")
    model_card.write(folder, loaded, model, None, config)
    _write_manifest(folder, info)
    try:
        parameters = sum(tensor.numel() for tensor in load_model(folder, device_named("cpu")).module.parameters())
    except UsageError as error:
        if loaded.names is None:
            raise
        raise UsageError(
            f"{config.path}: the layers to keep do not form a valid model ({error}); keep other layers"
        ) from None
    logger.info("wrote a model of %s parameters to %s", f"{parameters:,}", config.output or "the export")
    return ExportComparison(0, 0.0, 0)


def _is_adapter(path: str) -> bool:
    with contextlib.suppress(MissingInputError):
        return ADAPTER in read_info(checkpoint_at(path)).made
    return False


def _of_whole_model(info: CheckpointInfo) -> CheckpointInfo:
    """Return the facts of a model that needs no base, made of an adapter."""
    return replace(info, made={name: fact for name, fact in info.made.items() if name != ADAPTER})


def _copy_description(loaded: LoadedModel, folder: Path) -> None:
    """Copy everything but the weights."""
    shutil.copyfile(loaded.path / CONFIG, folder / CONFIG)
    copy_folder(tokenizer_folder(loaded.path), folder / "tokenizer")


def _write_manifest(folder: Path, info: CheckpointInfo) -> None:
    write_manifest(folder, checkpoints.KIND, checkpoints.FORMAT, **dataclasses.asdict(info))


def _of_search(loaded: LoadedModel) -> dict[str, Any]:
    """Return the options of the beam search of the validation; empty if it was another search."""
    with contextlib.suppress(NMTError):  # the search of a plugin that is not loaded
        search = validated_search({loaded.origin: loaded.tree}, None, ())
        if type(search) is BeamConfig:
            return vars(search)
    return {}


def _compare(loaded: LoadedModel, export: ComparedModel, config: ExportConfig) -> ExportComparison:
    learned = loaded.config.positions is PositionKind.learned
    positions = min(config.longest, loaded.config.max_positions) if learned else config.longest
    limit = positions - 2  # tokens; the end has a position too, and some models take one more step
    before, first = model_card.language_tokens_for(loaded.pair)
    pieces = loaded.pair.source.vocabulary.pieces
    sources = [[*before, *(pieces[number] for number in ids)] for ids in _sources(loaded, config, limit - len(before))]
    ours = computed_by_torch(loaded.module, loaded.pair)
    longest = min(max(map(len, sources)) + _MORE, limit - len(first))
    translations = ours.translate(sources, longest, first)
    whole = [[*first, *translation] for translation in translations]
    exported, expected = (model.log_probabilities(sources, whole) for model in (export, ours))
    lengths = [len(translation) + 1 for translation in whole]
    difference = max(abs(theirs - own) / length for theirs, own, length in zip(exported, expected, lengths))
    most = longest - 2  # tokens; toolkits end a truncated translation differently
    translated = export.translate(sources, longest, first)
    equal = sum(theirs[:most] == own[:most] for theirs, own in zip(translated, translations))
    return ExportComparison(len(sources), difference, equal)


def _sources(loaded: LoadedModel, config: ExportConfig, limit: int) -> list[Ids]:
    """Return source ids of at most ``limit`` tokens for each sentence: of ``--sample``, or random."""
    tokenizer = loaded.pair.source
    if config.sample is None:
        random = np.random.default_rng(1)
        lengths = random.integers(1, min(_LONGEST_RANDOM, limit), size=config.sentences, endpoint=True)
        return [random.integers(len(SPECIALS), len(tokenizer.vocabulary), size=length) for length in lengths]
    lines = itertools.islice(filter(None, Reading().lines(Path(config.sample))), config.sentences)
    sentences: list[Ids] = [ids for ids in tokenizer.encode(list(lines)) if 0 < len(ids) <= limit]
    if not sentences:
        raise DataError(
            f"{config.sample} has no sentence of 1 to {limit} tokens to compare with; give another --sample"
        )
    return sentences
