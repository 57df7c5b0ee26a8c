"""nmt-export: a model written for another toolkit, read back from disk with that toolkit, and compared."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.config.choices import NumberFormat
from nmt.config.exchange import ExportConfig
from nmt.data.text import Reading
from nmt.data.vocabulary import EOS, SPECIALS, Ids, Vocabulary
from nmt.devices import device_named
from nmt.engines import Wanted, engine_for
from nmt.errors import DataError, UsageError
from nmt.formats import Format, PortableModel, Written, format_named
from nmt.models.stored import LoadedModel, load_model
from nmt.models.transformer.config import PositionKind
from nmt.models.transformer.own_weights import describe, undescribed
from nmt.search import EngineSearch, searches
from nmt.search.config import GreedyConfig, LengthPenalty
from nmt.search.requests import Request, Sentences
from nmt.storage.files import check_destination, new_folder, write_manifest
from nmt.storage.lock import remove_leftovers_of

logger = logging.getLogger("nmt.export")

KIND, FORMAT = "export", 1
_MORE = 20  # pieces: how much longer than the longest source a translation may become
_LONGEST_RANDOM = 30  # pieces


@dataclass(frozen=True)
class Comparison:
    """What the model that was written says beside ours."""

    sentences: int
    difference: float  # largest, of the log-probability of a translation, for one of its pieces
    equal: int  # translations


def export_model(config: ExportConfig) -> Comparison:
    """Write ``config.path`` as ``config.format`` to ``config.output``; nothing is left there if it is not the same model."""
    if not config.path:
        raise UsageError("name the model: --path FOLDER (a run folder or a checkpoint)")
    if not config.output:
        raise UsageError("say where to write the model: --output FOLDER")
    writer, output = format_named(config.format, "--format"), Path(config.output)
    remove_leftovers_of(output)
    check_destination(output, KIND, "--output", overwrite=config.overwrite)
    loaded = load_model(config.path, device_named("cpu"))
    missing = undescribed(loaded.config)
    if missing is not None:
        raise UsageError(f"{config.path} cannot be exported: {missing} is nothing that other toolkits have")
    weights = describe(loaded.config, loaded.sizes, loaded.arrays, loaded.origin)
    model = PortableModel(weights, loaded.pair)
    with new_folder(output, overwrite=config.overwrite) as folder:
        writer.write(model, folder, config)
        found = _compare(loaded, writer, folder, config)
        if not found.difference <= config.allowed():
            raise DataError(
                f"the model that was written says something else: log-probabilities differ by {found.difference:.2g} for a "
                f"piece, more than --tolerance {config.allowed():g}; nothing was left in {output}"
            )
        write_manifest(folder, KIND, FORMAT, of=config.format)
    logger.info(
        "wrote %s; read back by %s, %d of %d sentences translate the same, and log-probabilities differ by at most %.2g",
        output,
        config.format,
        found.equal,
        found.sentences,
        found.difference,
    )
    return found


def _compare(loaded: LoadedModel, writer: Format, folder: Path, config: ExportConfig) -> Comparison:
    there: Written = writer.written(folder)
    limit = min([config.longest, *_learned_positions(loaded)]) - 2  # pieces; the end has a position, some step further
    sources = _sources(loaded, config, limit)
    ours = _Ours(loaded)
    pieces = [_spelt(one, loaded.pair.source.vocabulary) for one in sources]
    longest = min(max(map(len, sources)) + _MORE, limit)
    translations = ours.translate(sources, longest)
    targets = [_spelt(one, loaded.pair.target.vocabulary) for one in translations]
    said = there.log_probabilities(pieces, targets)
    expected = ours.log_probabilities(sources, translations)
    lengths = [len(one) + 1 for one in translations]
    difference = max(abs(one - other) / length for one, other, length in zip(said, expected, lengths))
    found = there.translate(pieces, longest)
    most = longest - 2  # pieces: how a translation ends that is cut off differs
    equal = sum(one[:most] == other[:most] for one, other in zip(found, targets))
    return Comparison(len(sources), difference, equal)


def _spelt(ids: Ids, vocabulary: Vocabulary) -> list[str]:
    return [vocabulary.pieces[number] for number in ids]


class _Ours:
    """The model as it translates here."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._engine = engine_for("torch", loaded, Wanted("cpu", NumberFormat.float32))

    def translate(self, sources: Sequence[Ids], longest: int) -> list[Ids]:
        search = searches.build(GreedyConfig(max_len_a=0.0, max_len_b=longest), 1)
        assert isinstance(search, EngineSearch)
        found = search.find(self._engine, _asked(sources))
        return [one[0].tokens[: -1 if one[0].finished else None] for one in found]

    def log_probabilities(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[float]:
        from nmt.search.forced import ForcedSearch
        from nmt.search.in_torch import find_in_torch

        requests = [Request(target=tuple(map(int, one))) for one in targets]
        found = find_in_torch(ForcedSearch(LengthPenalty.power, 0.0), self._engine, _asked(sources, requests))
        return [one[0].log_probability for one in found]


def _asked(sources: Sequence[Ids], requests: Sequence[Request] | None = None) -> Sentences:
    return Sentences([np.append(one, EOS) for one in sources], requests=requests)


def _learned_positions(loaded: LoadedModel) -> list[int]:
    """How many there are, if there are some."""
    return [loaded.config.max_positions] if loaded.config.positions is PositionKind.learned else []


def _sources(loaded: LoadedModel, config: ExportConfig, limit: int) -> list[Ids]:
    """Sentences of at most ``limit`` pieces, in ids: of a file, or of random pieces."""
    tokenizer = loaded.pair.source
    if config.sample is None:
        random = np.random.default_rng(1)
        lengths = random.integers(1, min(_LONGEST_RANDOM, limit), size=config.sentences, endpoint=True)
        return [random.integers(len(SPECIALS), len(tokenizer.vocabulary), size=length) for length in lengths]
    lines = itertools.islice(filter(None, Reading().lines(Path(config.sample))), config.sentences)
    found: list[Ids] = [ids for ids in tokenizer.encode(list(lines)) if 0 < len(ids) <= limit]
    if not found:
        raise DataError(f"{config.sample} holds no sentence of 1 to {limit} pieces to compare with")
    return found
