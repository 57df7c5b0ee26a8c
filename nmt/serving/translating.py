"""Translate windows of lines in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from nmt.config.choices import AlignmentKind
from nmt.data.tokenizers import Tokenizer
from nmt.devices import device_named, make_current
from nmt.engines.step_hook import StepHook
from nmt.errors import DeviceError, NMTError, UsageError
from nmt.search import searches
from nmt.search.validated_search import described
from nmt.serving.config import ServeConfig
from nmt.serving.costs import cost_of, hypotheses_of, window_cost
from nmt.serving.models import ServedModel, names_of
from nmt.serving.refusals import Refused, too_large, wrong
from nmt.serving.rendering import Form, rendered
from nmt.serving.request_forms import MAX_REQUESTED_LENGTH
from nmt.serving.waiting import Outcome
from nmt.translation import Line, Translation, Translator
from nmt.translation.options import keys_of

# Largest window that may form one batch of twice the usual size: a second batch would be too small (measured).
SMALL_WINDOW = 32
# Largest cost of a line in a slice, as a multiple of the smallest: cheap lines do not wait for expensive ones.
_ALIKE = 4


@dataclass(frozen=True)
class Window:
    """Lines that are sent to a worker together. ``number``: of the window; ``numbers``: of each line in its request."""

    number: int
    model: str
    options: Mapping[str, Any]
    alignment: AlignmentKind
    lines: Sequence[Line]
    numbers: Sequence[int]
    forms: Sequence[Form]  # contents of the answer, by line


@dataclass(frozen=True)
class LoadedModels:
    """The models of a server, ready to translate."""

    translators: Mapping[str, Translator]
    config: ServeConfig
    common: Mapping[str, Any]  # options of every translation that its window does not set

    @classmethod
    def load(cls, config: ServeConfig) -> LoadedModels:
        device = config.device
        make_current(device_named(device.name))
        translators = {
            name: Translator.load(
                path,
                device.name,
                device.precision,
                config.user_dir,
                dtype=config.dtype,
                engine=config.engine,
                encoder_layers_to_keep=config.encoder_layers_to_keep,
                decoder_layers_to_keep=config.decoder_layers_to_keep,
            )
            for name, path in names_of(config.path).items()
        }
        common = config.search.options() | {"max_source_length": config.max_source_length}
        common |= {name: getattr(config, name) for name in ("batch_size", "max_tokens") if getattr(config, name)}
        for name, translator in translators.items():
            try:
                translator.options(common)
            except UsageError as error:
                raise UsageError(f"model {name}: {error}") from None
        return cls(translators, config, common)

    def with_step_hook(self, hook: StepHook) -> LoadedModels:
        """Return the same models, with ``hook`` called before each search step."""
        return replace(
            self, translators={name: translator.with_step_hook(hook) for name, translator in self.translators.items()}
        )

    def models(self) -> tuple[ServedModel, ...]:
        models = []
        for name, translator in self.translators.items():
            search = described(translator.options(self.common).search)
            pair, languages = translator.pair, translator.pair.language_tokens
            several = languages if languages.tokens else None
            models.append(ServedModel(name, pair.source_lang, pair.target_lang, search, several))
        return tuple(models)

    def source_tokens(self, window: Window) -> list[int]:
        """Count the source tokens of each line."""
        return _token_counts(self.translators[window.model].pair.source, [line.text for line in window.lines])

    def refused(self, window: Window, source_tokens: Sequence[int]) -> dict[int, Outcome]:
        """Return a refusal for each line with too many tokens, by position in the window."""
        target = self.translators[window.model].pair.target
        refusals: dict[int, Outcome] = {}
        sides = (
            ("the text", self.config.max_line_tokens, source_tokens),
            ("the prefix", MAX_REQUESTED_LENGTH, _token_counts(target, [line.prefix for line in window.lines])),
        )
        for name, limit, counts in sides:
            for place, tokens in enumerate(counts):
                if tokens > limit:
                    where = f"text {window.numbers[place] + 1}: {name} has {tokens:,} tokens"
                    refusals[place] = too_large(f"{where}, more than {limit:,}; send its sentences one by one")
        return refusals

    def slices(self, window: Window, places: Sequence[int], source_tokens: Sequence[int]) -> Iterator[list[int]]:
        """Divide the lines at these positions into slices that are answered one after another, the cheapest lines first."""
        costs = {place: cost_of(window.lines[place], window.options, source_tokens[place]) for place in places}
        most = max(1, int(self.config.buffer_size / hypotheses_of(window.options)))
        some, budget, limit = list[int](), 0.0, 0.0
        for place in sorted(places, key=lambda place: costs[place]):
            if some and (costs[place] > min(budget, limit) or len(some) == most):
                yield some
                some = []
            if not some:
                budget, limit = window_cost(self.config.buffer_size), _ALIKE * costs[place]
            some.append(place)
            budget -= costs[place]
        if some:
            yield some

    def translate(self, window: Window, places: Sequence[int]) -> list[Translation | Refused]:
        """Return the translations of each line at these positions, or its refusal.

        If one line fails, the lines are translated one by one.
        """
        lines, numbers = [window.lines[place] for place in places], [window.numbers[place] for place in places]
        try:
            return list(self._translate(window, lines, numbers))
        except NMTError as error:
            if len(lines) == 1:
                return [_refusal(error)]
        outcomes = list[Translation | Refused]()
        for line, number in zip(lines, numbers):
            try:
                outcomes.extend(self._translate(window, [line], [number]))
            except NMTError as error:
                outcomes.append(_refusal(error))
        return outcomes

    def render(self, form: Form, translation: Translation | Refused, pause: Callable[[], None]) -> Outcome:
        """Return the outcome of a line. ``pause`` is called repeatedly; its errors end the rendering."""
        if isinstance(translation, Refused):
            return translation
        try:
            return rendered(translation, form, self.config.max_answer_bytes, pause)
        except Refused as error:
            return error

    def _translate(self, window: Window, lines: Sequence[Line], numbers: Sequence[int]) -> list[Translation]:
        translator = self.translators[window.model]
        keywords = self._keywords(window.options)
        if len(lines) <= SMALL_WINDOW:
            keywords = {"max_tokens": 2 * translator.usual_tokens, **keywords}
        options = translator.options(keywords, print_alignment=window.alignment)
        translations = list(translator.hypotheses(lines, options, numbers=numbers))
        aligned = window.alignment is not AlignmentKind.none
        if aligned and any(
            translation.source_pieces and translation.hypotheses[0].attention is None for translation in translations
        ):
            raise UsageError("alignment needs attention, which the model does not have; omit alignment")
        return translations

    def _keywords(self, requested: Mapping[str, Any]) -> dict[str, Any]:
        """Combine the options of a request with those of the server that apply to its search. If neither chooses a search,
        it is that of ``nmt-generate``."""
        common = dict(self.common)
        if "search" in requested:
            known = keys_of(searches.config_class(requested["search"]))
            common = {name: value for name, value in common.items() if name in known} | {"search": requested["search"]}
        if "search" in common:
            for name in requested.keys() - keys_of(searches.config_class(common["search"])):
                raise UsageError(
                    f'the search {common["search"]} has no option "{name}"; omit it, or choose another "search"'
                )
        return {**common, **requested}


def _refusal(error: NMTError) -> Refused:
    if isinstance(error, DeviceError):  # memory is short
        return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
    return wrong(str(error))


def _token_counts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Count the tokens of each text. Lone surrogates, which translation refuses, count like other characters."""
    readable = (text.encode("utf-8", "replace").decode() if text.strip() else "" for text in texts)
    return [len(ids) for ids in tokenizer.encode([*readable])]
