"""Looking into models: what they attended to in given or found translations, their positions and their embeddings.

Nothing of a model is changed for it: a teacher-forced pass returns the weights of every layer and head
(``AttentionRequest``), and tables are read where they stand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.config.choices import LongLines
from nmt.data.attention import KINDS
from nmt.data.vocabulary import BOS, EOS, SPECIALS, Floats, Hypothesis
from nmt.errors import DataError, UsageError
from nmt.models.stored import load_model
from nmt.plugins import UserDir, load_plugins
from nmt.reporting.attention_page import ShownAttention
from nmt.search.decoding import Engine
from nmt.storage.run_folder import split_paths
from nmt.translation.halving import in_halves
from nmt.translation.lines import Line
from nmt.translation.reading import Batch, Part
from nmt.translation.translator import Translator

if TYPE_CHECKING:
    from nmt.interface import Batch as Padded
    from nmt.interface import EncoderDecoder

Maps = Mapping[str, Floats]  # by kind [layers, heads, rows, columns]


def attention(
    path: str | Path,
    lines: Iterable[str | Line],
    translations: Iterable[str] | None = None,
    *,
    device: str = "auto",
    user_dir: UserDir = None,
    ensemble_weights: Sequence[float] = (),
    **options: Any,
) -> list[ShownAttention]:
    """All attention weights of a model, or of each of an ensemble and their mean, for each line and its translation.

    ``path``, ``device``, ``user_dir`` and ``ensemble_weights`` are those of ``nmt.load``. Where no ``translations`` are
    given, the model's search finds them, with the ``options`` of ``translate``.
    """
    if isinstance(lines, (str, Line)) or isinstance(translations, str):
        raise UsageError("attention takes lists of lines; put a single one in brackets: attention(path, [line])")
    translator = Translator.load(path, device, user_dir=user_dir, ensemble_weights=ensemble_weights, engine="torch")
    sources = [line if isinstance(line, Line) else Line(line) for line in lines]
    config = dataclasses.replace(translator.configuration(**options), long_lines=LongLines.truncate)
    if translations is not None:
        references = list(translations)
        if len(references) != len(sources):
            raise DataError(
                f"there are {len(sources)} lines and {len(references)} translations; each line needs its own"
            )
        for number, ids in enumerate(translator.pair.target.encode(references), 1):
            if len(ids) > config.max_source_length:
                raise DataError(
                    f"the translation of line {number} has {len(ids)} pieces, and attention is kept of "
                    f"{config.max_source_length} at most; give a shorter one"
                )
        sources = [dataclasses.replace(line, reference=text) for line, text in zip(sources, references)]
        config = dataclasses.replace(config, score_reference=True)
    names, shares = split_paths(str(path)), ensemble_weights or [1.0] * len(translator.members)
    found = [ShownAttention(number, (), (), (), {}, model=str(path)) for number in range(len(sources))]
    for batch in translator.decoded(sources, config):
        for (part, hypothesis), maps in zip(batch, _of_members(translator.members, batch)):
            target = hypothesis.tokens
            found[part.number] = ShownAttention(
                part.number,
                translator.pair.source.pieces([*part.ids.tolist(), EOS]),
                translator.pair.target.pieces(target.tolist()),
                [SPECIALS[BOS], *translator.pair.target.pieces(target[:-1].tolist())],
                _mean(maps, shares),
                dict(zip(names, maps)),
                str(path),
            )
    if any(one.source for one in found) and not any(maps for one in found for maps in one.members.values()):
        raise UsageError(f"the model {path} has no attention")
    return found


def module_of(engine: Engine) -> EncoderDecoder:
    """The model itself, of the engine ``torch``."""
    from nmt.interface import EncoderDecoder

    model = engine.decodable
    assert isinstance(model, EncoderDecoder)
    return model


def _of_members(
    members: Sequence[Engine], batch: Sequence[tuple[Part, Hypothesis]]
) -> list[tuple[dict[str, Floats], ...]]:
    """Of each pair the maps of each model."""
    tokens = {part.number: hypothesis.tokens for part, hypothesis in batch}

    def at_once(parts: Batch) -> list[tuple[dict[str, Floats], ...]]:
        pairs = [(np.append(part.ids, EOS), tokens[part.number]) for part in parts]
        return list(zip(*(_of_pairs(module_of(member), pairs, member.device) for member in members)))

    return in_halves(at_once, [part for part, _ in batch], members, "give a shorter sentence")


def _of_pairs(model: EncoderDecoder, pairs: Sequence[tuple[Any, Any]], device: str) -> list[dict[str, Floats]]:
    """Of each pair by kind [L, H, R, C], without padding."""
    import torch

    from nmt.data.batch import collate
    from nmt.interface import AttentionRequest

    sources, targets = ([side.astype(np.int64) for side in sides] for sides in zip(*pairs))
    batch = collate(sources, targets).to(torch.device(device))
    with torch.inference_mode():
        asked = model(batch, AttentionRequest(tuple(KINDS))).attention
    maps = {kind: torch.stack(layers, 1).float().cpu().numpy() for kind, layers in asked.maps.items() if layers}
    return [dict(_cut(maps, batch, number)) for number in range(len(pairs))]


def _cut(maps: Maps, batch: Padded, number: int) -> Iterator[tuple[str, Floats]]:
    """The real positions of one sentence of maps [B, L, H, R, C]."""
    source, target = int(batch.source_lengths[number]), int(batch.target_lengths[number])
    for kind, weights in maps.items():
        rows, columns = source if kind == "encoder" else target, target if kind == "decoder" else source
        yield kind, weights[number, :, :, :rows, :columns]


def _mean(members: Sequence[Maps], shares: Sequence[float]) -> dict[str, Floats]:
    """Of each kind whose maps are of one shape in all models that have it."""
    means = {}
    for kind in KINDS:
        having = [(share, maps[kind]) for share, maps in zip(shares, members) if kind in maps]
        if len({maps.shape for _, maps in having}) == 1:
            total = sum(share for share, _ in having)
            means[kind] = np.sum([maps * np.float32(share / total) for share, maps in having], axis=0)
    return means


def positions(path: str | Path, side: str, count: int, *, user_dir: UserDir = None) -> Floats:
    """The vectors [count, D] that a model adds to the embeddings of the first ``count`` positions of a side, "source" or
    "target"; fewer, if it has learned fewer."""
    import torch

    from nmt.layers.embeddings import NoPositions, Positions

    load_plugins(user_dir)
    module = load_model(single(path, "positions"), "cpu").module
    found = [part for part in module.modules() if isinstance(part, Positions) and not isinstance(part, NoPositions)]
    if not found:
        raise UsageError(
            f"the model {path} adds no positions to its embeddings: where a piece stands, its layers know in other ways"
        )
    table = found[0 if side == "source" else -1]
    count = count if table.limit is None else min(count, table.limit)
    with torch.inference_mode():
        vectors: Floats = table.at(torch.arange(count), count).float().numpy()
    return vectors


def embeddings(
    path: str | Path, side: str, count: int, lines: Iterable[str] | None = None, *, user_dir: UserDir = None
) -> tuple[list[str], Floats]:
    """The ``count`` most frequent pieces of a side, "source" or "target", and their vectors [count, D].

    They are counted in ``lines``; where there are none, those that the vocabulary lists first are taken to be frequent.
    """
    from nmt.layers.embeddings import Embedding

    load_plugins(user_dir)
    loaded = load_model(single(path, "embeddings"), "cpu")
    tokenizer = loaded.pair.source if side == "source" else loaded.pair.target
    size, ids = len(tokenizer.vocabulary), np.arange(len(SPECIALS), len(tokenizer.vocabulary))
    tables = [part for part in loaded.module.modules() if isinstance(part, Embedding) and len(part.weight) == size]
    if not tables:
        raise UsageError(f"the model {path} has no table of embeddings, a vector for each piece")
    if lines is not None:
        counts = np.bincount(
            np.concatenate([np.array([], dtype=np.int64), *tokenizer.encode(list(lines))]), minlength=size
        )
        ids = ids[np.argsort(-counts[ids], kind="stable")]
        ids = ids[counts[ids] > 0]
    ids = ids[:count]
    table = tables[0 if side == "source" else -1].weight.detach().float().numpy()
    return tokenizer.pieces(ids.tolist()), table[ids]


def single(path: str | Path, what: str) -> str:
    """Refuse an ensemble where one model is looked into."""
    paths = split_paths(str(path))
    if len(paths) > 1:
        raise UsageError(f"{what} are those of one model, and --path names {len(paths)}; name one of them")
    return paths[0]
