"""Views into models: attention in translations, position vectors and embeddings.

Models are not changed: a teacher-forced pass returns the weights of every layer and head (``AttentionRequest``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.config.choices import LongLines
from nmt.data.text.lines import visible_spaces
from nmt.data.tokenizers import Tokenizer
from nmt.data.vocabulary import BOS, EOS, SPECIALS, UNK, Floats, Hypothesis, Ids
from nmt.errors import DataError, UsageError, quantity
from nmt.models.loading import load_model
from nmt.plugins import UserDir, load_plugins
from nmt.reporting.attention_page import ShownAttention
from nmt.reporting.sentence_attention import KINDS
from nmt.search.decoding import Engine
from nmt.storage.run_folder import split_paths
from nmt.translation.lines import Line
from nmt.translation.source_windows import Batch, SourcePart
from nmt.translation.splitting_batches import in_halves
from nmt.translation.translator import Translator

if TYPE_CHECKING:
    from torch import Tensor

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
    """Return the attention weights for each line and its translation: of a model, or of each model of an ensemble and their
    mean.

    ``path``, ``device``, ``user_dir`` and ``ensemble_weights`` are those of ``nmt.load``. Without ``translations``, the
    search of the model finds them, with the ``options`` of ``translate``."""
    if isinstance(lines, (str, Line)) or isinstance(translations, str):
        raise UsageError("attention takes lists of lines; put a single one in brackets: attention(path, [line])")
    translator = Translator.load(path, device, user_dir=user_dir, ensemble_weights=ensemble_weights, engine="torch")
    sources = [line if isinstance(line, Line) else Line(line) for line in lines]
    scores = translations is not None
    chosen = translator.options(options, long_lines=LongLines.truncate, score_reference=scores)
    if translations is not None:
        references = list(translations)
        if len(references) != len(sources):
            raise DataError(
                f"{quantity(len(sources), 'line')} but {quantity(len(references), 'translation')}; give one "
                "translation per line"
            )
        for number, ids in enumerate(translator.pair.target.encode(references), 1):
            if len(ids) > chosen.max_source_length:
                raise DataError(
                    f"the translation of line {number} has {len(ids)} tokens, more than the maximum of "
                    f"{chosen.max_source_length} for attention; give a shorter translation"
                )
        sources = [dataclasses.replace(line, reference=text) for line, text in zip(sources, references)]
    names, shares = split_paths(str(path)), ensemble_weights or [1.0] * len(translator.members)
    source, target = translator.pair.source, translator.writing(chosen).target
    maps_of_lines = [ShownAttention(number, (), (), (), {}, model=str(path)) for number in range(len(sources))]
    for batch in translator.decoded(sources, chosen):
        for (part, hypothesis), maps in zip(batch, _of_members(translator.members, batch)):
            reference, written = sources[part.number].reference, hypothesis.tokens[:-1].tolist()
            pieces = _pieces(target, written, target.surfaces(reference))
            maps_of_lines[part.number] = ShownAttention(
                part.number,
                [*_pieces(source, part.ids.tolist(), _surfaces_of_source(source, part)), SPECIALS[EOS]],
                [*pieces, SPECIALS[EOS]],
                [SPECIALS[BOS], *target.pieces(part.request.start), *pieces],
                _mean(maps, shares),
                dict(zip(names, maps)),
                source_text=part.text.strip(),
                target_text=(reference or target.decode(written)).strip(),
                model=str(path),
            )
    if any(shown.source for shown in maps_of_lines) and not any(
        maps for shown in maps_of_lines for maps in shown.members.values()
    ):
        raise UsageError(f"the model {path} has no attention to show; use a model with attention")
    return maps_of_lines


def _pieces(tokenizer: Tokenizer, ids: Sequence[int], surfaces: Sequence[str]) -> list[str]:
    """Return the pieces of ``ids``. An unknown token is shown as its surface, its text, if that is known."""
    pieces = tokenizer.pieces(ids)
    for place, (number, surface) in enumerate(zip(ids, surfaces)):
        if number == UNK:
            pieces[place] = visible_spaces(surface)
    return pieces


def _surfaces_of_source(tokenizer: Tokenizer, part: SourcePart) -> list[str]:
    """Return the text of each token of ``part``; tags before the line are shown as they are."""
    surfaces = tokenizer.surfaces(part.text)
    return [*tokenizer.pieces(part.ids[: part.tags].tolist()), *surfaces[len(surfaces) - part.num_text_pieces :]]


def module_of(engine: Engine) -> EncoderDecoder:
    """Return the model of a ``torch`` engine."""
    from nmt.engines.model_engine import ModelEngine
    from nmt.interface import EncoderDecoder

    assert isinstance(engine, ModelEngine) and isinstance(engine.model, EncoderDecoder)
    return engine.model


def attention_maps(
    engine: Engine, sources: Sequence[Ids], targets: Sequence[Ids], kinds: Sequence[str]
) -> tuple[Padded, Mapping[str, tuple[Tensor, ...]]]:
    """Return a batch of sentence pairs, which end in eos, and its attention by kind: for each layer [B, H, rows, columns].

    The model of a ``torch`` engine reads whole targets (teacher forcing).
    """
    import torch

    from nmt.data.batching.batch import collate
    from nmt.interface import AttentionRequest

    batch = collate(sources, targets).to(torch.device(engine.device))
    with torch.inference_mode():
        attention = module_of(engine)(batch, AttentionRequest(tuple(kinds))).attention
    return batch, {} if attention is None else attention.maps


def _of_members(
    members: Sequence[Engine], batch: Sequence[tuple[SourcePart, Hypothesis]]
) -> list[tuple[dict[str, Floats], ...]]:
    """Return for each pair the maps of each model."""
    tokens = {part.number: hypothesis.tokens for part, hypothesis in batch}
    started = len(batch[0][0].request.start) if batch else 0

    def at_once(parts: Batch) -> list[tuple[dict[str, Floats], ...]]:
        pairs = [(np.append(part.ids, EOS), np.append(part.request.start, tokens[part.number])) for part in parts]
        return list(zip(*(_of_pairs(member, pairs, started) for member in members)))

    return in_halves(at_once, [part for part, _ in batch], members, "give a shorter sentence")


def _of_pairs(member: Engine, pairs: Sequence[tuple[Ids, Ids]], started: int) -> list[dict[str, Floats]]:
    """Return for each pair the attention by kind [L, H, R, C], without padding, and without the first ``started`` rows of
    targets, whose tokens are not predicted."""
    import torch

    sources, targets = ([side.astype(np.int64) for side in sides] for sides in zip(*pairs))
    batch, of_kinds = attention_maps(member, sources, targets, tuple(KINDS))
    maps = {kind: torch.stack(layers, 1).float().cpu().numpy() for kind, layers in of_kinds.items() if layers}
    return [dict(_cut(maps, batch, number, started)) for number in range(len(pairs))]


def _cut(maps: Maps, batch: Padded, number: int, started: int) -> Iterator[tuple[str, Floats]]:
    """Yield the attention of a sentence from maps [B, L, H, R, C], without padding."""
    source, target = int(batch.source_lengths[number]), int(batch.target_lengths[number])
    for kind, weights in maps.items():
        rows, columns = source if kind == "encoder" else target, target if kind == "decoder" else source
        yield kind, weights[number, :, :, 0 if kind == "encoder" else started : rows, :columns]


def _mean(members: Sequence[Maps], shares: Sequence[float]) -> dict[str, Floats]:
    """Return the weighted mean of each kind whose maps have one shape in all models that have the kind."""
    means = {}
    for kind in KINDS:
        having = [(share, maps[kind]) for share, maps in zip(shares, members) if kind in maps]
        if len({maps.shape for _, maps in having}) == 1:
            total = sum(share for share, _ in having)
            means[kind] = np.sum([maps * np.float32(share / total) for share, maps in having], axis=0)
    return means


def positions(path: str | Path, side: str, count: int, *, user_dir: UserDir = None) -> Floats:
    """Return the vectors [count, D] that a model adds to the embeddings of the first positions of a side, "source" or
    "target"; fewer, if it has learned fewer."""
    import torch

    from nmt.layers.embeddings import NoPositions, Positions

    load_plugins(user_dir)
    model = load_model(single(path, "positions"), "cpu").module
    encodings = [
        module for module in model.modules() if isinstance(module, Positions) and not isinstance(module, NoPositions)
    ]
    if not encodings:
        raise UsageError(f"the model {path} adds no position vectors to its embeddings, so there are none to show")
    table = encodings[0 if side == "source" else -1]
    count = count if table.limit is None else min(count, table.limit)
    with torch.inference_mode():
        vectors: Floats = table.at(torch.arange(count), count).float().numpy()
    return vectors


def embeddings(
    path: str | Path, side: str, count: int, lines: Iterable[str] | None = None, *, user_dir: UserDir = None
) -> tuple[list[str], Floats]:
    """Return the ``count`` most frequent tokens of a side, "source" or "target", and their vectors [count, D].

    Tokens are counted in ``lines``; without lines, the first tokens of the vocabulary are taken as the most frequent.
    """
    from nmt.layers.embeddings import Embedding

    load_plugins(user_dir)
    loaded = load_model(single(path, "embeddings"), "cpu")
    tokenizer = loaded.pair.source if side == "source" else loaded.pair.target
    size, ids = len(tokenizer.vocabulary), np.arange(len(SPECIALS), len(tokenizer.vocabulary))
    tables = [part for part in loaded.module.modules() if isinstance(part, Embedding) and len(part.weight) == size]
    if not tables:
        raise UsageError(f"the model {path} has no embedding table with one vector per token")
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
    """Refuse an ensemble; return the path of the model."""
    paths = split_paths(str(path))
    if len(paths) > 1:
        raise UsageError(f"{what} can be shown for only one model, but --path names {len(paths)}; name one of them")
    return paths[0]
