"""From lines to their translations.

A line goes in five steps: pieces, a window of lines, a batch of like lengths (reading.py), the search, text again.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.checks import choice_named
from nmt.config.choices import AlignmentKind, MbrMetric, NumberFormat, Precision
from nmt.config.commands import GenerateConfig
from nmt.config.option import flags_of
from nmt.config.plain import from_plain, to_plain, validated_search
from nmt.data.corpus import Split
from nmt.data.language_pair import LanguagePair
from nmt.data.shortlist import Shortlist
from nmt.data.text import one_line
from nmt.data.vocabulary import EOS, Hypothesis
from nmt.devices import device_named, kind_of
from nmt.distributed.workers import one_by_one, possible, side_by_side
from nmt.engines import AUTO, Wanted, choose_format, engine_for
from nmt.errors import DataError, UsageError, did_you_mean
from nmt.models.stored import load_model
from nmt.plugins import UserDir, load_plugins
from nmt.search import EngineSearch, Search, searches
from nmt.search.config import BeamConfig, LengthPenalty, SamplingConfig
from nmt.search.decoding import Engine
from nmt.search.requests import Request, Sentences, in_ids, in_places
from nmt.storage.run_folder import split_paths
from nmt.translation.choosing import minimum_bayes_risk
from nmt.translation.halving import in_halves
from nmt.translation.lines import Given, Line, TranslatedText, Translation, read_dictionary, together, with_known_words
from nmt.translation.reading import Batch, Found, Part, Progress, Reader, Window, batches_of, in_order

Find = Callable[[Engine, Sentences], list[list[Hypothesis]]]
Stored = Mapping[str, Mapping[str, Any]]  # configurations as plain trees, by the model that each is of

# Options of GenerateConfig that `Translator.translate` takes too, beside those of a search.
_OPTIONS = (
    "nbest batch_size max_tokens buffer_size max_source_length long_lines replace_unk unk_dictionary mbr choose_among "
    "remove_bpe tag"
).split()


class Translator:
    """One model, or several as an ensemble, with the tokenizers of both languages."""

    def __init__(
        self,
        members: Sequence[Engine],
        pair: LanguagePair,
        ensemble_weights: Sequence[float] = (),
        workers: int = 1,
        shortlist: Shortlist | None = None,
        validated: Stored | None = None,
    ) -> None:
        """``members`` are on one device and belong to ``pair``. ``validated``: with the search that is used by default."""
        self.pair = pair
        self._members = members
        if len(members) == 1 and not ensemble_weights:
            self._engine = members[0]
        else:
            from nmt.search.in_torch import together_as_one

            self._engine = together_as_one(members, ensemble_weights)
        self.device = self._engine.device
        self._workers = workers if self.device == "cpu" and possible() else 1
        self._shortlist = shortlist
        self._validated = validated

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str = "auto",
        precision: Precision | str = Precision.fp32,
        user_dir: UserDir = None,
        ensemble_weights: Sequence[float] = (),
        workers: int = 1,
        shortlist: str | Path | None = None,
        dtype: NumberFormat | str | None = None,
        cuda_graphs: bool = False,
        engine: str = AUTO,
    ) -> Translator:
        """A run folder (its best checkpoint), a checkpoint, or several joined by ``:`` as an ensemble.

        ``user_dir``: the plugins that the model's class comes from, folders of packages or Python files.
        ``ensemble_weights``: how much each model's probabilities count, all alike if there are none. ``workers``:
        processes that share the work where there is more than one batch of it, on a CPU; they are forked, so leave it at
        1 in a program that has threads. ``shortlist``: a file of nmt-shortlist. ``dtype``: what weights are kept in,
        "float32", "bfloat16", "float16" or "int8"; None: as ``precision`` says. ``engine``: "torch", "native" (C, on a CPU),
        "graphs" (on a GPU, record what a step launches and repeat it; ``cuda_graphs`` is the same), one of a plugin, or
        "auto".
        """
        load_plugins(user_dir)
        chosen = device_named(device)
        if cuda_graphs:
            _check_recording(chosen, shortlist)
            engine = "graphs"
        paths = split_paths(str(path))
        loaded = [load_model(one, chosen) for one in paths]
        pair = loaded[0].pair
        for other, model in zip(paths[1:], loaded[1:]):
            if model.pair.digest() != pair.digest():
                raise UsageError(
                    f"{paths[0]} and {other} have different vocabularies, so they cannot translate together; "
                    f"an ensemble's models are trained on one corpus folder"
                )
            if model.pair.is_reverse_of(pair):
                raise UsageError(
                    f"{paths[0]} translates from {pair.source_lang} to {pair.target_lang}, and {other} the other way; "
                    f"an ensemble's models share their direction"
                )
        wanted = None if dtype is None else choice_named(NumberFormat, "dtype", dtype)
        number_format = choose_format(wanted, choice_named(Precision, "precision", precision), chosen)
        members = [engine_for(engine, model, Wanted(chosen, number_format)) for model in loaded]
        short = None if shortlist is None else Shortlist.load(Path(shortlist), pair)
        validated = {one: model.tree for one, model in zip(paths, loaded)}
        return cls(members, pair, ensemble_weights, workers, short, validated)

    def translate(self, lines: Iterable[str | Line], **options: Any) -> list[str]:
        """The translation of each line; an empty one of an empty line.

        ``options`` are those of nmt-generate under the names of its flags (``beam=4, lenpen=0.6, max_len_b=100``) or of
        the configuration (``beam_size=4``), beside ``search="beam"``, ``"greedy"`` or ``"sampling"``, ``batch_size``,
        ``max_tokens``, ``buffer_size`` and ``max_source_length``. The search is the one that the model was validated
        with, as far as options do not say otherwise. With ``nbest=n`` each line has n translations, one after the other.
        """
        config = self.configuration(**options)
        found = self.hypotheses(_several(lines, "translate"), config)
        return [text for translation in found for text in best_texts(translation, config.nbest)]

    @property
    def usual_tokens(self) -> int:
        """Largest batch in source pieces where no option says it."""
        return self._engine.usual_tokens

    def configuration(self, **options: Any) -> GenerateConfig:
        """What the ``options`` of ``translate`` mean for this model."""
        return translation_options(options, self._validated)

    def translations(
        self, lines: Iterable[str | Line], *, alignment: bool = False, **options: Any
    ) -> list[Translation]:
        """What there is to know of the translations of each line, with the ``options`` of ``translate``.

        Of each line its pieces, and as ``hypotheses`` its ``nbest`` best translations (as many as the search finds), best
        first: text, score (what the search ranks by), pieces and their natural log-probabilities. ``alignment`` keeps the
        attention to the source, and thereby which source piece each target piece is aligned with.
        """
        config = self.configuration(**options)
        if alignment:
            config = dataclasses.replace(config, print_alignment=AlignmentKind.hard)
        found = list(self.hypotheses(_several(lines, "translations"), config))
        if alignment and any(one.source_pieces and one.hypotheses[0].attention is None for one in found):
            raise UsageError("the model has no attention, which alignments are made of; leave out alignment=True")
        return found

    def hypotheses(
        self,
        lines: Iterable[Given],
        config: GenerateConfig,
        progress: Progress | None = None,
        numbers: Iterable[int] | None = None,
        called: str = "line",
    ) -> Iterator[Translation]:
        """Translate a stream of lines, in its order and in constant memory; None counts as an empty line.

        ``config.buffer_size`` lines are read ahead and translated by length; what was read before a ``PAUSE`` is
        translated before more is read. Attention is kept if ``config.print_alignment`` asks for alignments.
        ``numbers``: those of the lines, from 0; by default they are counted. ``called``: what messages call the lines.
        """
        config = _with_search(config)
        reader = Reader(self.pair, config, self._engine, called)
        windows = reader.windows_of_lines(lines, itertools.count() if numbers is None else numbers)
        return self._translate(windows, config, progress)

    def hypotheses_of_split(
        self,
        split: Split,
        config: GenerateConfig,
        progress: Progress | None = None,
        numbers: Iterable[int] | None = None,
    ) -> Iterator[Translation]:
        """Translate the sources of a split, or of these ``numbers`` alone; the corpus has this translator's vocabularies."""
        config = _with_search(config)
        reader = Reader(self.pair, config, self._engine)
        windows = reader.windows_of_split(split, range(len(split)) if numbers is None else numbers)
        return self._translate(windows, config, progress)

    def decoded(self, lines: Iterable[Line], config: GenerateConfig) -> Iterator[list[tuple[Part, Hypothesis]]]:
        """Of each batch of lines the pieces that are read, and the best hypothesis; empty lines are left out."""
        config = _with_search(config)
        find = _search_of(config)
        for batch in self.batches(lines, config, itertools.count()):
            found = self._search(find, batch, False, config.score_reference)
            yield [(part, hypotheses[0]) for part, hypotheses in zip(batch, found)]

    def batches(self, lines: Iterable[Line], config: GenerateConfig, numbers: Iterable[int]) -> Iterator[Batch]:
        """What is read of lines with these ``numbers``, in batches of like lengths; empty lines are left out."""
        for window in Reader(self.pair, config, self._engine).windows_of_lines(lines, numbers):
            yield from batches_of(list(window.parts), config.max_tokens or self.usual_tokens, config.batch_size)

    @property
    def members(self) -> Sequence[Engine]:
        """The engines of its models."""
        return self._members

    def writing(self, config: GenerateConfig) -> LanguagePair:
        """The pair whose target side joins pieces of text that was cut before, as ``config`` says or else the corpus."""
        if config.remove_bpe is None:
            return self.pair
        return dataclasses.replace(self.pair, target=self.pair.target.joining(config.remove_bpe))

    def _translate(
        self, windows: Iterable[Window], config: GenerateConfig, progress: Progress | None
    ) -> Iterator[Translation]:
        find, shown = _search_of(config), config.print_alignment is not AlignmentKind.none
        pair = self.writing(config)
        unknown = _dictionary(config) if config.replace_unk else None

        def answer(batch: Batch) -> Found:
            found = self._search(find, batch, shown or unknown is not None, config.score_reference)
            return [[_as_text(one, part, pair, unknown, shown) for one in some] for some, part in zip(found, batch)]

        def run(batches: Iterator[Batch | None]) -> Iterator[tuple[Batch, Found] | None]:
            return side_by_side(answer, batches, self._workers) if self._workers > 1 else one_by_one(answer, batches)

        def plan(parts: list[Part]) -> list[Batch]:
            return batches_of(parts, config.max_tokens or self.usual_tokens, config.batch_size)

        def translations() -> Iterator[Translation]:
            for source, found, closes in in_order(windows, plan, run, progress or (lambda count: None)):
                pieces = self.pair.source.pieces([number for part in source.parts for number in part.tolist()])
                texts = together(found, drawn=drawn)
                yield Translation(source.number, source.text, pieces, texts, len(source.parts), closes, source.cut)

        drawn = isinstance(config.search, SamplingConfig)
        if config.mbr is MbrMetric.none:
            return translations()
        return minimum_bayes_risk(translations(), config.mbr.value, config.nbest, posterior=not drawn)

    def _search(self, find: Find, batch: Batch, attention: bool, given: bool) -> list[list[Hypothesis]]:
        """``given``: translations are, to be scored."""
        advice = "lower --max-source-length, --beam or --nbest"
        return in_halves(lambda part: self._found(find, part, attention, given), batch, self._members, advice)

    def _found(self, find: Find, batch: Batch, attention: bool, given: bool) -> list[list[Hypothesis]]:
        requests: Sequence[Request] | None = [one.request for one in batch]
        if not given and all(one.request == Request() for one in batch):
            requests = None
        lists = None
        if self._shortlist is not None and not given:
            wanted = [itertools.chain(one.request.prefix, *one.request.include) for one in batch]
            lists = [self._shortlist.of(one.ids, more) for one, more in zip(batch, wanted)]
            requests = in_places(requests, lists)
        sentences = Sentences([np.append(one.ids, EOS) for one in batch], attention, requests, lists)
        found = find(self._engine, sentences)
        return found if lists is None else in_ids(found, lists)


def _as_text(
    hypothesis: Hypothesis, part: Part, pair: LanguagePair, unknown: Mapping[str, str] | None, attention: bool
) -> TranslatedText:
    ids = hypothesis.tokens.tolist()[:-1]
    text = pair.target.decode(ids)
    if unknown is not None:
        text = with_known_words(hypothesis, part.text, part.first, pair, unknown, part.tags, part.of)
    return TranslatedText(
        text=one_line(text),
        pieces=pair.target.pieces(ids),
        score=hypothesis.score,
        token_scores=hypothesis.token_scores.tolist(),
        attention=hypothesis.attention if attention else None,
        finished=hypothesis.finished,
    )


def _several(lines: Iterable[str | Line], method: str) -> Iterable[str | Line]:
    if isinstance(lines, (str, Line)):
        raise UsageError(f"{method} takes a list of lines; put a single one in brackets: {method}([line])")
    return lines


def best_texts(translation: Translation, nbest: int) -> list[str]:
    """Exactly ``nbest`` lines for one line: empty ones where the search found fewer."""
    texts = [hypothesis.text for hypothesis in translation.hypotheses[:nbest]]
    return texts + [""] * (nbest - len(texts))


def _check_recording(device: str, shortlist: str | Path | None) -> None:
    if kind_of(device) != "cuda":
        raise UsageError(f"--cuda-graphs is for NVIDIA GPUs, and the device is {device}; leave it out")
    if shortlist is not None:
        raise UsageError(
            "--shortlist gives every batch another output layer, which --cuda-graphs cannot record; leave one of them out"
        )


def _with_search(config: GenerateConfig) -> GenerateConfig:
    return config if config.search is not None else dataclasses.replace(config, search=BeamConfig())


def check_search(config: GenerateConfig) -> None:
    """Refuse what would be refused when the first line is translated, at a time when no model has been loaded."""
    _search_of(_with_search(config))
    _dictionary(config)


def _search_of(config: GenerateConfig) -> Find:
    search: Search
    if config.score_reference:
        from nmt.search.forced import ForcedSearch

        penalty = LengthPenalty.power, 0.0
        if isinstance(config.search, BeamConfig):
            penalty = config.search.length_penalty, config.search.lenpen
        search = ForcedSearch(*penalty)
    else:
        search = searches.build(config.search, config.candidates())
    if isinstance(search, EngineSearch):
        return search.find
    from nmt.search.in_torch import find_in_torch

    return functools.partial(find_in_torch, search)


def _dictionary(config: GenerateConfig) -> dict[str, str]:
    return {} if config.unk_dictionary is None else read_dictionary(Path(config.unk_dictionary))


def translation_options(options: dict[str, Any], validated: Stored | None = None) -> GenerateConfig:
    """Keyword arguments of ``translate`` as a configuration. What they leave open is as ``validated``, or by default."""
    remaining = dict(options)
    chosen = remaining.pop("search", None)
    ours = {name: remaining.pop(name) for name in _OPTIONS if name in remaining}
    stored = validated_search(validated or {}, chosen, [_option_of(name) for name in remaining])
    search_class = searches.config_class(chosen or "beam") if stored is None else type(stored)
    aliases = _aliases(search_class)
    for name in remaining:
        if name not in aliases:
            known = sorted(options_of(search_class))
            raise UsageError(
                f"translate has no option '{name}'{did_you_mean(name, known)}; there are: {', '.join(known)}"
            )
    theirs = {} if stored is None else to_plain(stored)
    theirs.pop("name", None)
    theirs |= {aliases[name]: to_plain(value) for name, value in remaining.items()}
    try:
        search: Any = from_plain(search_class, theirs, origin="translate", where="search")
        return dataclasses.replace(from_plain(GenerateConfig, ours, origin="translate"), search=search)
    except DataError as error:
        raise UsageError(str(error)) from None


def options_of(search_class: type) -> set[str]:
    """The names of all options that ``translate`` takes for a search of this class."""
    return {*_OPTIONS, *_aliases(search_class), "search"}


def _aliases(search_class: type) -> dict[str, str]:
    """Names of the options of a search, by those that ``translate`` knows them under."""
    flags = {flag.name.lstrip("-").replace("-", "_"): flag.key for flag in flags_of(search_class)}
    return flags | {field.name: field.name for field in dataclasses.fields(search_class)}


def _option_of(name: str) -> str:
    """The option that a keyword means in whichever search has it."""
    every = (_aliases(searches.config_class(search)) for search in searches.names())
    return next((aliases[name] for aliases in every if name in aliases), name)
