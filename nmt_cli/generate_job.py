"""The work of nmt-generate: read an input, translate it with a model, write the output."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nmt.config.choices import (
    InputFormat,
    InvalidText,
    MbrMetric,
    PieceMarks,
    ProgressStyle,
)
from nmt.config.commands import GenerateConfig
from nmt.config.sections import DistributedConfig
from nmt.config.translation import TranslationOptions
from nmt.data.corpus.folder import Corpus, Split
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import STORED, Direction, NoDirection, SourceToken, listed
from nmt.data.text.lines import PAUSE, Pause, Reading
from nmt.data.text.piece_marks import joined_lines
from nmt.data.tokenizers import Tokenizer
from nmt.devices import device_named, make_current, own_device
from nmt.distributed.joining import join
from nmt.distributed.world import Chunks, World
from nmt.errors import DataError, NMTError, UsageError, quantity
from nmt.progress import Count, going_on, show_progress
from nmt.scoring import TextOptions, scorers
from nmt.threads import count_threads, set_threads
from nmt.translation import Translation, Translator
from nmt.translation.choosing import ReverseModel, require_reverse
from nmt.translation.lines import LineOrPause
from nmt.translation.options import TranslationMethod
from nmt_cli.formats import formatter, parse_lines
from nmt_cli.outputs import ResumableOutput, Write, check_output, claim, opened

logger = logging.getLogger("nmt.generate")

_STDIN = "standard input"
_PATIENCE = 24 * 60.0  # minutes that a process waits for a chunk of another process

Choice = Callable[[Iterator[Translation]], Iterator[Translation]]


def translate(config: GenerateConfig) -> None:
    """Translate, write, and sum up in the log."""
    typed = not config.data and config.input is None and sys.stdin.isatty()
    config = config.for_typed_lines() if typed else config
    method = TranslationMethod.of(config)
    check_output(config)
    if typed:
        logger.info("reading from the terminal, one sentence a line; end with Ctrl-D, or name a file: --input FILE")
    workers = 1 if typed else config.workers or count_threads(config.device.threads)
    device = device_named(own_device(config.device.name))
    make_current(device)
    with join(DistributedConfig(timeout_minutes=_PATIENCE), device) as world:
        if world.size > 1 and not config.data and config.input is None:
            raise UsageError("several processes cannot share standard input; name a file: --input FILE")
        translator = Translator.load(
            config.path,
            device,
            config.device.precision,
            ensemble_weights=config.ensemble_weights,
            workers=workers,
            shortlist=config.shortlist,
            dtype=config.dtype,
            cuda_graphs=config.cuda_graphs,
            engine=config.engine,
            encoder_layers_to_keep=config.encoder_layers_to_keep,
            decoder_layers_to_keep=config.decoder_layers_to_keep,
        )
        width, pieces = config.search_facts.beam_size, len(translator.pair.target.vocabulary)
        if width is not None and width > pieces:  # probably a mistyped number
            raise UsageError(
                f"search.beam_size={width} exceeds the {pieces} tokens of the target vocabulary; lower it (--beam 4)"
            )
        direction = _direction(config, translator.pair)
        _tell_of_pieces(config.remove_bpe, translator.pair.target)
        choice = _choice(translator, config, device, workers, direction)
        if "torch" in sys.modules:  # an engine that needs torch has imported it
            set_threads(config.device.threads)
        gc.freeze()  # the collector skips objects of the loaded model, which stay
        InputTranslation(config, method, translator, world, Chunks(world, config.buffer_size), choice).run()


def _choice(
    translator: Translator, config: GenerateConfig, device: str, workers: int, direction: Direction | None
) -> Choice:
    """Return the function that reranks translations before they are written."""
    if config.rerank is None:
        return iter
    backward = Translator.load(
        config.rerank, device, config.device.precision, workers=workers, dtype=config.dtype, engine=config.engine
    )
    if direction is not None:
        require_reverse(direction.names, backward.pair, f"--rerank {config.rerank}")

    def score(
        lines: Iterator[LineOrPause], numbers: Iterator[int], options: TranslationOptions
    ) -> Iterator[Translation]:
        return backward.hypotheses(lines, options, numbers=numbers, called="a translation of line")

    joins = translator.writing(config).target.marks is not PieceMarks.none
    return ReverseModel(score, config.rerank_weight, config, in_pieces=joins and backward.pair.source.keeps_pieces)


def _direction(config: GenerateConfig, pair: LanguagePair) -> Direction | None:
    """Return the direction of the input, and log it if the model has several and nobody chose one. None: each line, or the
    corpus, names its own. Refuse languages that the model lacks before any output."""
    chosen = config.source_lang is not None or config.target_lang is not None
    try:
        direction = pair.direction(config.source_lang, config.target_lang)
    except NoDirection:
        typed = pair.languages is not None and pair.languages.source is not SourceToken.source
        if not (typed or config.data or config.input_format is InputFormat.jsonl):
            raise
        return None
    if pair.languages is not None and len(pair.languages.tokens) > 1 and not chosen and not config.data:
        source = f"from {direction.source_lang} " if direction.source_lang else ""
        logger.info(
            f"translating {source}to {direction.target_lang}; choose another direction with --source-lang and "
            f"--target-lang: {listed([*pair.languages.tokens], STORED)}"
        )
    return direction


def _tell_of_pieces(marks: PieceMarks | None, target: Tokenizer) -> None:
    """Log marks of --remove-bpe that translations do not have."""
    if marks in (None, PieceMarks.none, target.marks):
        return
    if not target.keeps_pieces:
        logger.info("--remove-bpe has no effect: the model's tokenizer already joins tokens into words")
    elif target.marks is not PieceMarks.none:
        logger.warning(
            f"--remove-bpe {marks.value} does not match the training text of the model; use {target.marks.value}"
        )


@dataclass(frozen=True)
class InputTranslation:
    """The translation of one input: reading, dividing among processes, writing."""

    config: GenerateConfig
    method: TranslationMethod
    translator: Translator
    world: World
    chunks: Chunks
    choose: Choice

    def run(self) -> None:
        with contextlib.ExitStack() as stack:
            self.world.on_main(lambda: stack.enter_context(claim(self.config)))
            growing = stack.enter_context(ResumableOutput(self.config)) if self.config.resume_output else None
            done = self.world.on_main(growing.begin) if growing else 0
            if self.config.data:
                self._split(growing, done)
            else:
                self._lines(growing, done)

    def _lines(self, growing: ResumableOutput | None, done: int) -> None:
        config, name = self.config, self.config.input
        reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
        text_lines = reading.live(sys.stdin.buffer, _STDIN) if name is None else reading.lines(Path(name))
        references, first = config.score_reference, done + 1
        source_lines = parse_lines(
            _after(text_lines, done), config.input_format, name or _STDIN, first=first, references=references
        )
        lines, numbers = self.chunks.own(source_lines, done)
        count = _count_lines(config) if self.world.main else None
        total = None if count is None else max(count - done, 0)
        self._write(lambda progress: self.translator.hypotheses(lines, self.method, progress, numbers), growing, total)

    def _split(self, growing: ResumableOutput | None, done: int) -> None:
        config, folder = self.config, Path(self.config.data[0])
        corpus = Corpus.open_one(folder, config.source_lang, config.target_lang)
        _check_corpus(corpus, folder, self.translator, config)
        stored = None
        if config.source_lang is None and config.target_lang is None:
            stored = corpus.pair.direction()
        split = corpus.split(config.gen_subset)
        if config.score_reference and split.targets is None:
            raise UsageError(
                f"split '{config.gen_subset}' of {folder} has no references to score; omit --score-reference"
            )
        numbers, _ = self.chunks.own(range(done, len(split)), done)
        to_score = self.world.main and split.targets is not None and len(split) > 0 and not config.score_reference
        pairs: list[tuple[str, str]] | None = [] if to_score and not done else None
        marks = self.translator.writing(config).target.marks
        reference_of = _references(corpus, split, marks) if self.world.main else None

        def translations(progress: Count) -> Iterator[Translation]:
            return self.translator.hypotheses_of_split(split, self.method, progress, numbers, stored)

        self._write(translations, growing, len(split) - done, reference_of, pairs)
        if pairs is not None:  # the best translations and their references
            hypotheses, references = zip(*pairs)
            score = scorers.build(scorers.config_class("bleu")(), TextOptions())(hypotheses, [references])
            beam = config.search_facts.beam_size or 1
            result = f"{score.name}|{score.signature} = {score.value:.2f} {score.detail}"
            logger.info(f"Generate {config.gen_subset} with beam={beam}: {result}")
        elif to_score:
            before = f"the first {quantity(done, 'line')} had been translated before"
            logger.info(f"not scored: {before}; score the whole file with nmt-score")

    def _write(
        self,
        translations: Callable[[Count], Iterator[Translation]],
        growing: ResumableOutput | None,
        total: int | None,
        reference_of: Callable[[int], str] | None = None,
        pairs: list[tuple[str, str]] | None = None,
    ) -> None:
        """``pairs`` receives the best translation of each line and its reference."""
        config = self.config
        logarithms = config.mbr is MbrMetric.none
        form = formatter(config.format, config.nbest, config.print_alignment, logarithms=logarithms)
        cut_off: list[int] = []  # numbers of lines
        with contextlib.ExitStack() as stack:
            progress: Count = _nowhere
            write: Write = _nowhere
            if self.world.main:
                progress = stack.enter_context(show_progress(config.progress, "translated", "lines", total))
                write = stack.enter_context(opened(config.output, growing))
            for translation in self.chunks.merged(self.choose(translations(progress)), progress):
                best = translation.hypotheses[0]
                if config.aligns and translation.source_pieces and best.attention is None:
                    raise UsageError(f"the model in {config.path} has no attention to print; omit --print-alignment")
                if not best.finished and not config.score_reference:
                    cut_off.append(translation.number + 1)
                reference = reference_of(translation.number) if reference_of is not None else None
                write(form(translation, reference))
                if pairs is not None and reference is not None:
                    pairs.append((best.text, reference))
        if self.world.main and cut_off:
            own = " (or max_length in the line)" if config.input_format is InputFormat.jsonl else ""
            logger.warning(
                f"the length limit cut off {quantity(len(cut_off), 'translation')}, the first on line {cut_off[0]}; "
                f"raise --max-len-a or --max-len-b{own} for complete ones"
            )


def _count_lines(config: GenerateConfig) -> int | None:
    """Return the number of lines of ``--input FILE``, for the progress display.

    None if nothing shows it, if the input can be read only once, or if it is damaged: the translation reports that.
    """
    if config.input is None or config.progress is ProgressStyle.none or not Path(config.input).is_file():
        return None
    with contextlib.suppress(NMTError):
        reading = Reading(InvalidText.replace, config.max_line_bytes)
        with going_on(
            f"counting the lines of {config.input}", config.progress
        ):  # 500 MB a second, if the disk keeps up
            return sum(map(len, reading.blocks(Path(config.input), quiet=True)))
    return None


def _after(lines: Iterator[str | Pause | None], count: int) -> Iterator[str | Pause | None]:
    """Yield the lines after the first ``count``, which are translated already."""
    missing = count
    for line in lines:
        if missing == 0:
            yield line
        elif line is not PAUSE:
            missing -= 1
    if missing:
        raise DataError(
            f"the input has {quantity(count - missing, 'line')}, but {count:,} were translated before: the input is "
            f"different; delete the .partial file to start over"
        )


def _check_corpus(corpus: Corpus, folder: Path, translator: Translator, config: GenerateConfig) -> None:
    if translator.pair.languages is None and corpus.pair.is_reverse_of(translator.pair):
        raise DataError(
            f"{folder} goes from {corpus.pair.source_lang} to {corpus.pair.target_lang}, but {config.path} translates in "
            f"the opposite direction; name a model or a corpus folder of the same direction"
        )
    ours, stored = translator.pair.languages, corpus.pair.languages
    named = config.source_lang is not None or config.target_lang is not None
    if ours is not None and not named and (stored is None or stored.read[1:] != ours.read[1:]):
        raise UsageError(
            f"{folder} and {config.path} have language tokens in different places; name the direction: --source-lang "
            f"{corpus.pair.source_lang} --target-lang {corpus.pair.target_lang}"
        )
    if corpus.pair.source.vocabulary != translator.pair.source.vocabulary:
        raise DataError(
            f"{folder} has a different source vocabulary than {config.path}; translate its raw text with --input, "
            f"or preprocess it with the model's vocabularies: --srcdict and --tgtdict"
        )
    if config.score_reference and corpus.pair.target.vocabulary != translator.pair.target.vocabulary:
        raise DataError(
            f"{folder} has a different target vocabulary than {config.path}; score its raw text with --input and "
            f"--input-format tsv"
        )


def _references(corpus: Corpus, split: Split, marks: PieceMarks) -> Callable[[int], str] | None:
    """Return the references by number, with pieces joined as in translations. A split without text is decoded from ids."""
    if split.targets is None:
        return None
    texts = split.targets.text()
    if texts is not None:
        return joined_lines(texts, marks).__getitem__
    target = corpus.pair.target.joining(marks)
    return lambda number: target.decode(split.target(number).tolist())


def _nowhere(shown: object) -> None:
    """Discard progress or output, on ranks other than 0."""
