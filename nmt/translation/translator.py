"""From lines to their translations.

A line goes through here in five steps: pieces, a window of lines, a batch of like lengths, the search, text again.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.config.choices import AlignmentKind, MbrMetric, Precision
from nmt.config.generation import GenerateConfig
from nmt.config.option import flags_of
from nmt.config.plain import from_plain, to_plain
from nmt.data.batch import Ids, pad
from nmt.data.batching import plan_batches
from nmt.data.corpus import Split
from nmt.data.language_pair import LanguagePair
from nmt.data.text import one_line, require_text
from nmt.data.vocabulary import EOS, UNK
from nmt.devices import choose_device, parameter_type, precision_named
from nmt.errors import DataError, DeviceError, UsageError, did_you_mean
from nmt.interface import Decodable, EncoderDecoder, Hypothesis
from nmt.models.stored import load_model
from nmt.plugins import load_plugins
from nmt.search import Search, searches
from nmt.search.beam import BeamConfig
from nmt.search.ensemble import Ensemble
from nmt.search.forced import ForcedSearch
from nmt.search.length_penalty import LengthPenalty
from nmt.search.requests import Request
from nmt.search.sampling import SamplingConfig
from nmt.translation.choosing import MinimumBayesRisk
from nmt.translation.lines import Line, TranslatedText, Translation

logger = logging.getLogger("nmt.translation")

# Options of GenerateConfig that `Translator.translate` takes too.
_OPTIONS = ("nbest", "batch_size", "max_tokens", "buffer_size", "max_source_length", "mbr", "choose_among")

Progress = Callable[[int], None]  # called with the number of lines that were just translated


@dataclass(frozen=True)
class _Source:
    """One line on its way to a batch."""

    number: int
    text: str
    ids: Ids  # without eos; empty: nothing to translate
    request: Request = Request()


class Translator:
    """One model, or several as an ensemble, with the tokenizers of both languages."""

    def __init__(
        self,
        members: Sequence[EncoderDecoder],
        pair: LanguagePair,
        device: torch.device,
        ensemble_weights: Sequence[float] = (),
    ) -> None:
        """``members`` are on ``device`` and in eval mode, and all belong to ``pair``."""
        self.pair = pair
        self.device = device
        together = len(members) > 1 or ensemble_weights
        self._model: Decodable = Ensemble(members, ensemble_weights) if together else members[0]
        limits = [limit for limit in (member.max_source_length() for member in members) if limit is not None]
        self._max_source_pieces = min(limits) - 1 if limits else None  # eos takes one position

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str = "auto",
        precision: Precision | str = Precision.fp32,
        user_dir: str | None = None,
        ensemble_weights: Sequence[float] = (),
    ) -> Translator:
        """A run folder (its best checkpoint), a checkpoint, or several joined by ``:`` as an ensemble.

        ``user_dir``: the folder of a plugin package that the model's class comes from. ``ensemble_weights``: how much
        each model's probabilities count, all alike if there are none.
        """
        load_plugins(user_dir)
        chosen = choose_device(device)
        paths = _split_paths(str(path))
        loaded = [load_model(one, chosen) for one in paths]
        _, pair, _ = loaded[0]
        for other, (_, other_pair, _) in zip(paths[1:], loaded[1:]):
            if other_pair.digest() != pair.digest():
                raise UsageError(
                    f"{paths[0]} and {other} have different vocabularies, so they cannot translate together; "
                    f"an ensemble's models are trained on one corpus folder"
                )
        number_type = parameter_type(chosen, precision_named(precision))
        return cls([model.to(number_type) for model, _, _ in loaded], pair, chosen, ensemble_weights)

    def translate(self, lines: Iterable[str | Line], **options: Any) -> list[str]:
        """The translation of each line; an empty one of an empty line.

        ``options`` are those of nmt-generate under the names of its flags (``beam=4, lenpen=0.6, max_len_b=100``) or of
        the configuration (``beam_size=4``), beside ``search="beam"``, ``"greedy"`` or ``"sampling"``, ``batch_size``,
        ``max_tokens``, ``buffer_size`` and ``max_source_length``. With ``nbest=n`` each line has n translations, one
        after the other.
        """
        if isinstance(lines, str):
            raise UsageError("translate takes a list of lines; put a single one in brackets: translate([line])")
        config = translation_options(options)
        return [text for found in self.hypotheses(lines, config) for text in best_texts(found, config.nbest)]

    def hypotheses(
        self, lines: Iterable[str | Line | None], config: GenerateConfig, progress: Progress | None = None
    ) -> Iterator[Translation]:
        """Translate a stream of lines, in its order and in constant memory; None counts as an empty line.

        ``config.buffer_size`` lines are read ahead and translated by length. Attention is kept if
        ``config.print_alignment`` asks for alignments.
        """
        config = _with_search(config)
        return self._chosen(self._translate(self._windows_of_lines(lines, config), config, progress), config)

    def hypotheses_of_split(
        self, split: Split, config: GenerateConfig, progress: Progress | None = None
    ) -> Iterator[Translation]:
        """Translate the source side of a split; the corpus has this translator's vocabularies."""
        config = _with_search(config)
        return self._chosen(self._translate(self._windows_of_split(split, config), config, progress), config)

    def _windows_of_lines(self, lines: Iterable[str | Line | None], config: GenerateConfig) -> Iterator[list[_Source]]:
        stream, first = iter(lines), 0
        while window := list(itertools.islice(stream, config.buffer_size)):
            asked = [line if isinstance(line, Line) else Line(line or "") for line in window]
            texts = [line.text for line in asked]
            require_text(texts, first + 1)
            ids = self.pair.source.encode([text if text.strip() else "" for text in texts])
            yield [
                self._cut(_Source(first + i, texts[i], ids[i], self._request(asked[i], first + i + 1)), config)
                for i in range(len(window))
            ]
            first += len(window)

    def _request(self, line: Line, number: int) -> Request:
        if line == Line(line.text):
            return Request()
        texts = [line.prefix, line.reference, *line.include, *line.exclude]
        prefix, target, *phrases = (tuple(ids.tolist()) for ids in self.pair.target.encode(texts))
        for text, ids in zip((*line.include, *line.exclude, line.prefix), (*phrases, prefix or (EOS,))):
            if UNK in ids or not ids:
                raise DataError(f"line {number}: the model's vocabulary has no pieces for {text!r}; leave it out")
        return Request(prefix, tuple(phrases[: len(line.include)]), tuple(phrases[len(line.include) :]), target)

    def _windows_of_split(self, split: Split, config: GenerateConfig) -> Iterator[list[_Source]]:
        texts = split.source_text()
        for first in range(0, len(split), config.buffer_size):
            window = []
            for number in range(first, min(first + config.buffer_size, len(split))):
                ids = split.source(number)[:-1]
                text = texts[number] if texts is not None else self.pair.source.decode(ids.tolist())
                request = (
                    Request(target=tuple(split.target(number).tolist()[:-1])) if config.score_reference else Request()
                )
                window.append(self._cut(_Source(number, text, ids, request), config))
            yield window

    def _cut(self, source: _Source, config: GenerateConfig) -> _Source:
        """A line that is too long to translate loses its end, and the user is told."""
        limit, reason = config.max_source_length, "raise --max-source-length to translate more"
        if self._max_source_pieces is not None and self._max_source_pieces < limit:
            limit, reason = self._max_source_pieces, "the model has no positions for more"
        if len(source.ids) <= limit:
            return source
        logger.warning(
            f"line {source.number + 1} has {len(source.ids)} pieces; only its first {limit} are translated ({reason})"
        )
        return dataclasses.replace(source, ids=source.ids[:limit])

    def _chosen(self, translations: Iterator[Translation], config: GenerateConfig) -> Iterator[Translation]:
        """What is to be shown of what was found."""
        if config.mbr is MbrMetric.none:
            return translations
        samples = isinstance(config.search, SamplingConfig)
        return MinimumBayesRisk(config.mbr.value, config.nbest, posterior=not samples)(translations)

    def _translate(
        self, windows: Iterable[list[_Source]], config: GenerateConfig, progress: Progress | None
    ) -> Iterator[Translation]:
        search = _search_of(config)
        attention = config.print_alignment is not AlignmentKind.none
        for window in windows:
            sources = [source for source in window if len(source.ids)]
            found: dict[int, list[Hypothesis]] = {}
            for batch in _batches(sources, config):
                results = self._search(search, batch, attention)
                found |= {source.number: result for source, result in zip(batch, results)}
                if progress is not None:
                    progress(len(batch))
            if progress is not None and len(sources) < len(window):
                progress(len(window) - len(sources))
            for source in window:
                yield self._as_text(source, found.get(source.number))

    def _search(self, search: Search, batch: list[_Source], attention: bool) -> list[list[Hypothesis]]:
        """A batch that does not fit into the GPU's memory is halved until it does."""
        source, lengths = pad([np.append(one.ids, EOS) for one in batch])
        asked = [one.request for one in batch]
        requests = asked if isinstance(search, ForcedSearch) or any(request != Request() for request in asked) else None
        try:
            return search(
                self._model, source.to(self.device), lengths.to(self.device), attention=attention, requests=requests
            )
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                raise DeviceError(
                    f"line {batch[0].number + 1} ({len(batch[0].ids)} pieces) does not fit into the memory of "
                    f"{self.device}; lower --max-source-length or --beam, or use --device cpu"
                ) from None
        logger.warning(f"a batch of {len(batch)} lines does not fit into the memory of {self.device}; it is halved")
        torch.cuda.empty_cache()
        middle = len(batch) // 2
        return self._search(search, batch[:middle], attention) + self._search(search, batch[middle:], attention)

    def _as_text(self, source: _Source, found: list[Hypothesis] | None) -> Translation:
        if found is None:
            return Translation(source.number, source.text, [], [TranslatedText("", [], 0.0, [], None, True)])
        texts = []
        for hypothesis in found:
            ids = hypothesis.tokens.tolist()[:-1]
            texts.append(
                TranslatedText(
                    text=one_line(self.pair.target.decode(ids)),
                    pieces=self.pair.target.pieces(ids),
                    score=hypothesis.score,
                    token_scores=hypothesis.token_scores.tolist(),
                    attention=hypothesis.attention,
                    finished=hypothesis.finished,
                )
            )
        return Translation(source.number, source.text, self.pair.source.pieces(source.ids.tolist()), texts)


def best_texts(translation: Translation, nbest: int) -> list[str]:
    """Exactly ``nbest`` lines for one line: empty ones where the search found fewer."""
    texts = [hypothesis.text for hypothesis in translation.hypotheses[:nbest]]
    return texts + [""] * (nbest - len(texts))


def translation_options(options: dict[str, Any]) -> GenerateConfig:
    """Keyword arguments of ``translate`` as a configuration; an unknown name is an error that lists the known ones."""
    remaining = dict(options)
    search_class = searches.config_class(remaining.pop("search", "beam"))
    aliases = {flag.name.lstrip("-").replace("-", "_"): flag.key for flag in flags_of(search_class)}
    aliases |= {field.name: field.name for field in dataclasses.fields(search_class)}
    ours = {name: remaining.pop(name) for name in _OPTIONS if name in remaining}
    for name in remaining:
        if name not in aliases:
            known = sorted({*_OPTIONS, *aliases, "search"})
            raise UsageError(
                f"translate has no option '{name}'{did_you_mean(name, known)}; there are: {', '.join(known)}"
            )
    theirs = {aliases[name]: to_plain(value) for name, value in remaining.items()}
    try:
        search: Any = from_plain(search_class, theirs, origin="translate", where="search")
        return dataclasses.replace(from_plain(GenerateConfig, ours, origin="translate"), search=search)
    except DataError as error:
        raise UsageError(str(error)) from None


def _with_search(config: GenerateConfig) -> GenerateConfig:
    return config if config.search is not None else dataclasses.replace(config, search=BeamConfig())


def _search_of(config: GenerateConfig) -> Search:
    options = config.search
    if not config.score_reference:
        return searches.build(options, config.candidates())
    if isinstance(options, BeamConfig):
        return ForcedSearch(options.length_penalty, options.lenpen)
    return ForcedSearch(LengthPenalty.power, 0.0)


def _split_paths(path: str) -> list[str]:
    if not path:
        raise UsageError("name the model: --path FOLDER (a run folder or checkpoint; several joined by ':')")
    paths = [path] if Path(path).exists() else [part for part in path.split(":") if part]
    if not paths:
        raise UsageError(f"--path {path} names no model; give folders, several joined by ':'")
    return paths


def _batches(sources: list[_Source], config: GenerateConfig) -> list[list[_Source]]:
    """The longest first: if memory is short, that shows at once."""
    if not sources:
        return []
    lengths = np.array([len(source.ids) + 1 for source in sources], dtype=np.int64)
    budget = max(config.max_tokens, int(lengths.max()))  # a line alone is always let through
    plan = plan_batches(lengths, None, max_tokens=budget, batch_size=config.batch_size, shuffle=False)
    return [[sources[index] for index in batch] for batch in reversed(plan)]
