"""Translate lines with a trained model.

A line becomes tokens, part of a window, and part of a batch of similar lengths (source_windows.py); then it is searched and
detokenized.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.config.checks import choice_named
from nmt.config.choices import AlignmentKind, MbrMetric, NumberFormat, Precision
from nmt.config.translation import TranslationOptions
from nmt.data.corpus.folder import Split
from nmt.data.corpus.shortlist import Shortlist
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import Direction
from nmt.data.text.lines import one_line
from nmt.data.vocabulary import EOS, Hypothesis
from nmt.devices import device_named, kind_of
from nmt.engines import AUTO, EngineSpec, choose_format, engine_for, format_of
from nmt.engines.step_hook import HookedEngine, StepHook
from nmt.errors import DeviceError, UsageError
from nmt.models.layer_subset import with_layers
from nmt.models.loading import CopiedModel, load_model
from nmt.plugins import UserDir, load_plugins
from nmt.progress import Count
from nmt.search.config import SamplingConfig
from nmt.search.decoding import Engine
from nmt.search.requests import Request, Sentences, in_ids, in_places
from nmt.storage.run_folder import split_paths
from nmt.translation.choosing import minimum_bayes_risk
from nmt.translation.lines import Line, LineOrPause, TranslatedText, Translation, join_parts, replace_unknown_words
from nmt.translation.options import StoredConfigs, TranslationMethod, translation_options
from nmt.translation.source_windows import Batch, SourcePart, SourceReader, SourceWindow, batches_of, in_order
from nmt.translation.splitting_batches import in_halves
from nmt.workers import WorkerEnded, possible, side_by_side

if TYPE_CHECKING:
    from nmt.interface import EncoderDecoder


class Translator:
    """One model, or several as an ensemble, with the tokenizers of both languages."""

    def __init__(
        self,
        members: Sequence[Engine],
        pair: LanguagePair,
        ensemble_weights: Sequence[float] = (),
        workers: int = 1,
        shortlist: Shortlist | None = None,
        validated: StoredConfigs | None = None,
    ) -> None:
        """``members`` are on one device and belong to ``pair``. ``validated``: configurations with the default search."""
        self.pair = pair
        self.members = members  # the engines of its models
        if len(members) == 1 and not ensemble_weights:
            self._engine = members[0]
        else:
            from nmt.engines.ensemble import EnsembleEngine

            self._engine = EnsembleEngine(members, ensemble_weights)
        self.device = self._engine.device
        self._workers = workers if self.device == "cpu" and possible() else 1
        self._shortlist = shortlist
        self._validated = validated

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str = "auto",
        precision: Precision | str = Precision.usual,
        user_dir: UserDir = None,
        ensemble_weights: Sequence[float] = (),
        workers: int = 1,
        shortlist: str | Path | None = None,
        dtype: NumberFormat | str | None = None,
        cuda_graphs: bool = False,
        engine: str = AUTO,
        encoder_layers_to_keep: Sequence[int] = (),
        decoder_layers_to_keep: Sequence[int] = (),
    ) -> Translator:
        """Load a run folder (its best checkpoint), a checkpoint, or several joined by ``:`` as an ensemble.

        ``user_dir``: plugins with the class of the model, as folders of packages or Python files. ``ensemble_weights``:
        weights of the probabilities of each model; empty: equal. ``workers``: processes for several batches, on a CPU only;
        they are forked, so leave it at 1 in a program with threads. ``shortlist``: a file of nmt-shortlist. ``dtype``: data
        type of the weights, "float32", "bfloat16", "float16" or "int8"; None: that of ``precision``. ``engine``: "torch",
        "native" (C, on a CPU), "graphs" (CUDA graphs, on a GPU; also ``cuda_graphs``), one of a plugin, or "auto".
        ``encoder_layers_to_keep``, ``decoder_layers_to_keep``: some layers of a Transformer, counted from 1; empty: all."""
        load_plugins(user_dir)
        chosen = device_named(device)
        if cuda_graphs:
            _require_recording(chosen)
            engine = "graphs"
        if engine == "graphs" and shortlist is not None:
            raise UsageError(
                "--shortlist changes the output layer for every batch, which --engine graphs (--cuda-graphs) cannot "
                "record; omit one of them"
            )
        paths = split_paths(str(path))
        loaded = [
            with_layers(load_model(member_path, chosen), encoder_layers_to_keep, decoder_layers_to_keep)
            for member_path in paths
        ]
        pair = loaded[0].pair
        for other, model in zip(paths[1:], loaded[1:]):
            if model.pair.digest() != pair.digest():
                raise UsageError(
                    f"{paths[0]} and {other} have different vocabularies, so they cannot form an ensemble; "
                    f"use models trained on the same corpus folder"
                )
            if (model.pair.languages and model.pair.languages.read) != (pair.languages and pair.languages.read):
                raise UsageError(
                    f"{paths[0]} and {other} have different language tokens, so they cannot form an ensemble; use models of "
                    f"the same languages"
                )
            if pair.languages is None and model.pair.is_reverse_of(pair):
                raise UsageError(
                    f"{paths[0]} translates from {pair.source_lang} to {pair.target_lang}, but {other} the other way; "
                    f"use models with the same direction"
                )
        weight_format = None if dtype is None else choice_named(NumberFormat, "dtype", dtype)
        precision = choice_named(Precision, "precision", precision)
        number_format = choose_format(weight_format, precision, chosen)
        if kind_of(chosen) != "cpu":
            from nmt.devices.kinds import device_of

            device_of(chosen).allow_tf32(weight_format is None and precision is not Precision.fp32)
        formats = [format_of(model, weight_format, number_format) for model in loaded]
        members = [engine_for(engine, model, EngineSpec(chosen, own)) for model, own in zip(loaded, formats)]
        short = None if shortlist is None else Shortlist.load(Path(shortlist), pair)
        validated = {member_path: model.tree for member_path, model in zip(paths, loaded)}
        return cls(members, pair, ensemble_weights, workers, short, validated)

    @classmethod
    def from_model(
        cls,
        model: EncoderDecoder,
        tokenizer: LanguagePair,
        device: str | None = None,
        precision: Precision | str = Precision.usual,
        dtype: NumberFormat | str | None = None,
        engine: str = AUTO,
    ) -> Translator:
        """Return a translator with a copy of a model in memory, such as one in training.

        The model, its weights and its mode stay as they are; the translator does not see later updates. ``device``: None:
        that of the model. The other options are those of ``load``, which chooses the engine in the same way. The default
        search is that of nmt-generate for a model without validation."""
        chosen = str(next(model.parameters()).device) if device is None else device_named(device)
        weight_format = None if dtype is None else choice_named(NumberFormat, "dtype", dtype)
        number_format = choose_format(weight_format, choice_named(Precision, "precision", precision), chosen)
        copied = CopiedModel.of(model, tokenizer, chosen)
        return cls([engine_for(engine, copied, EngineSpec(chosen, number_format))], tokenizer)

    def __repr__(self) -> str:
        models = "" if len(self.members) == 1 else f", {len(self.members)} models"
        return f"<Translator {self.pair.called} on {self.device}{models}>"

    def translate(self, lines: Iterable[str | Line], **options: Any) -> list[str]:
        """Return the translation of each line; an empty line has an empty one.

        ``options`` are those of nmt-generate under the names of its flags (``beam=4, lenpen=0.6, max_len_b=100``) or of the
        configuration (``beam_size=4``), such as ``search="beam"``, ``"greedy"`` or ``"sampling"``, ``batch_size``,
        ``max_tokens``, ``buffer_size`` and ``max_source_length``. The default search is that of the validation of the model.
        With ``nbest=n``, each line has n consecutive translations.
        """
        chosen = self.options(options)
        translations = self.hypotheses(_several(lines, "translate"), chosen)
        return [text for translation in translations for text in best_texts(translation, chosen.nbest)]

    @property
    def usual_tokens(self) -> int:
        """Default of the largest batch in source tokens."""
        return self._engine.usual_tokens

    @property
    def interleaves(self) -> bool:
        """Whether other lines may be translated between two search steps."""
        return self._engine.interleaves

    def with_step_hook(self, hook: StepHook) -> Translator:
        """Return the same translator with ``hook`` called before each search step; its errors end the search."""
        hooked = copy.copy(self)
        hooked._engine = HookedEngine(self._engine, hook)
        return hooked

    def options(self, keywords: Mapping[str, Any], **fixed: Any) -> TranslationOptions:
        """Return the options of ``keywords`` of ``translate`` for this model; ``fixed``: fields that the caller sets."""
        return translation_options(keywords, self._validated, **fixed)

    def translations(
        self, lines: Iterable[str | Line], *, alignment: bool = False, **options: Any
    ) -> list[Translation]:
        """Return the translations of each line with scores and tokens, with the ``options`` of ``translate``.

        Each line has its tokens and up to ``nbest`` ``hypotheses``, best first: text, score (by which the search ranks),
        tokens and their natural log-probabilities. ``alignment``: keep the attention to the source, and the source token
        that each target token is aligned to."""
        kind = AlignmentKind.hard if alignment else AlignmentKind.none
        chosen = self.options(options, print_alignment=kind)
        translations = list(self.hypotheses(_several(lines, "translations"), chosen))
        if alignment and any(
            translation.source_pieces and translation.hypotheses[0].attention is None for translation in translations
        ):
            raise UsageError("alignment=True needs attention, which the model does not have; omit it")
        return translations

    def hypotheses(
        self,
        lines: Iterable[LineOrPause],
        options: TranslationOptions | TranslationMethod,
        progress: Count | None = None,
        numbers: Iterable[int] | None = None,
        called: str = "line",
    ) -> Iterator[Translation]:
        """Translate a stream of lines, in its order and in constant memory; None counts as an empty line.

        ``options.buffer_size`` lines are read ahead and translated by length. Lines before a ``PAUSE`` are translated before
        more are read. Attention is kept if ``options.print_alignment`` is set. ``numbers``: those of the lines, from 0;
        default: counted. ``called``: noun for the lines in messages.
        """
        method = TranslationMethod.of(options)
        reader = SourceReader(self.pair, method.options, self._engine, called)
        windows = reader.windows_of_lines(lines, itertools.count() if numbers is None else numbers)
        return self._translate(windows, method, progress)

    def hypotheses_of_split(
        self,
        split: Split,
        options: TranslationOptions | TranslationMethod,
        progress: Count | None = None,
        numbers: Iterable[int] | None = None,
        stored: Direction | None = None,
    ) -> Iterator[Translation]:
        """Translate the sources of a split, or those with these ``numbers``. The corpus has the vocabularies of the
        model. ``stored``: the direction of the corpus, whose sources have its language tokens; None: that of the options."""
        method = TranslationMethod.of(options)
        reader = SourceReader(self.pair, method.options, self._engine)
        windows = reader.windows_of_split(split, range(len(split)) if numbers is None else numbers, stored)
        return self._translate(windows, method, progress)

    def decoded(
        self, lines: Iterable[Line], options: TranslationOptions
    ) -> Iterator[list[tuple[SourcePart, Hypothesis]]]:
        """Yield the parts of each batch of lines with their best hypotheses, without empty lines."""
        method = TranslationMethod.of(options)
        for batch in self.batches(lines, method.options, itertools.count()):
            yield [(part, ranked[0]) for part, ranked in zip(batch, self._search(method, batch, attention=False))]

    def batches(self, lines: Iterable[Line], options: TranslationOptions, numbers: Iterable[int]) -> Iterator[Batch]:
        """Read lines with these ``numbers`` in batches of similar lengths, without empty lines."""
        for window in SourceReader(self.pair, options, self._engine).windows_of_lines(lines, numbers):
            yield from self._plan(list(window.parts), options)

    def _plan(self, parts: list[SourcePart], options: TranslationOptions) -> list[Batch]:
        return batches_of(parts, options.max_tokens or self.usual_tokens, options.batch_size)

    def writing(self, options: TranslationOptions) -> LanguagePair:
        """Return the language pair that joins subwords of the training text by ``options``, or by default as the corpus
        says."""
        if options.remove_bpe is None:
            return self.pair
        return dataclasses.replace(self.pair, target=self.pair.target.joining(options.remove_bpe))

    def _translate(
        self, windows: Iterable[SourceWindow], method: TranslationMethod, progress: Count | None
    ) -> Iterator[Translation]:
        options, dictionary = method.options, method.dictionary
        pair = self.writing(options)

        def answer(batch: Batch) -> list[list[TranslatedText]]:
            ranked_hypotheses = self._search(method, batch, options.aligns or dictionary is not None)
            return [
                [_as_text(hypothesis, part, pair, dictionary, options.aligns) for hypothesis in ranked]
                for ranked, part in zip(ranked_hypotheses, batch)
            ]

        def run(batches: Iterator[Batch | None]) -> Iterator[tuple[Batch, list[list[TranslatedText]]] | None]:
            try:
                yield from side_by_side(answer, batches, self._workers)
            except WorkerEnded as end:
                raise DeviceError(
                    f"a worker process ended ({end}); if memory ran out, lower --max-tokens or --workers"
                ) from None

        def translations() -> Iterator[Translation]:
            plan, report = partial(self._plan, options=options), progress or (lambda count: None)
            for source, ranked_hypotheses, ends_window in in_order(windows, plan, run, report):
                pieces = self.pair.source.pieces([number for part in source.parts for number in part.tolist()])
                texts = join_parts(ranked_hypotheses, sampled=sampled)
                facts = len(source.parts), ends_window, source.truncated, source.direction
                yield Translation(source.number, source.text, pieces, texts, *facts)

        sampled = isinstance(options.search, SamplingConfig)
        if options.mbr is MbrMetric.none:
            return translations()
        return minimum_bayes_risk(translations(), options.mbr.value, options.nbest, posterior=not sampled)

    def _search(self, method: TranslationMethod, batch: Batch, attention: bool) -> list[list[Hypothesis]]:
        advice = "lower --max-source-length, --beam or --nbest"
        return in_halves(lambda half: self._search_at_once(method, half, attention), batch, self.members, advice)

    def _search_at_once(self, method: TranslationMethod, batch: Batch, attention: bool) -> list[list[Hypothesis]]:
        scores_references = method.options.score_reference
        requests: Sequence[Request] | None = [part.request for part in batch]
        if not scores_references and all(part.request == Request() for part in batch):
            requests = None
        lists = None
        if self._shortlist is not None and not scores_references:
            required = [
                itertools.chain(part.request.start, part.request.prefix, *part.request.include) for part in batch
            ]
            self._shortlist.require(self.pair, [part.direction for part in batch])
            lists = [self._shortlist.of(part.ids, more) for part, more in zip(batch, required)]
            requests = in_places(requests, lists)
        sentences = Sentences([np.append(part.ids, EOS) for part in batch], attention, requests, lists)
        hypotheses = method.search.find(self._engine, sentences)
        return hypotheses if lists is None else in_ids(hypotheses, lists)


def _as_text(
    hypothesis: Hypothesis, part: SourcePart, pair: LanguagePair, dictionary: Mapping[str, str] | None, attention: bool
) -> TranslatedText:
    ids = hypothesis.tokens.tolist()[:-1]
    text = pair.target.decode(ids)
    if dictionary is not None:
        text = replace_unknown_words(
            hypothesis, part.text, part.first, pair, dictionary, part.tags, part.num_text_pieces
        )
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
    """Return exactly ``nbest`` texts for a line; missing ones are empty."""
    texts = [hypothesis.text for hypothesis in translation.hypotheses[:nbest]]
    return texts + [""] * (nbest - len(texts))


def _require_recording(device: str) -> None:
    from nmt.devices.kinds import device_of

    if not device_of(device).records:
        raise UsageError(f"--cuda-graphs needs an NVIDIA GPU, but the device is {device}; omit it")
