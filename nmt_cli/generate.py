"""nmt-generate: lines of text, or a split of a corpus, in; translations out, in the same order.

Standard output (or ``--output``) carries translations only. Everything else, fairseq's closing line with the score of a
corpus split among it, goes to the log on standard error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import logging
import lzma
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, BinaryIO, cast

from nmt.config.choices import AlignmentKind, InputFormat, MbrMetric, OutputFormat
from nmt.config.generation import GenerateConfig
from nmt.data.corpus import Corpus, Split
from nmt.data.text import read_lines, read_stream
from nmt.devices import set_threads
from nmt.errors import DataError, OutputError, StorageError, UsageError
from nmt.scoring import TextOptions, scorers
from nmt.storage.files import atomic_write
from nmt.translation import Translation, Translator
from nmt.translation.choosing import ReverseModel, check_reverse
from nmt_cli.formats import Formatter, formatter
from nmt_cli.inputs import parsed
from nmt_cli.launch import launch
from nmt_cli.progress import show_progress

logger = logging.getLogger("nmt.generate")

_STDIN = "standard input"

Choice = Callable[[Iterator[Translation]], Iterator[Translation]]


def run(config: GenerateConfig) -> None:
    """Translate, write, and sum up in the log."""
    _check(config)
    if config.input == "-":  # as other programs call standard input
        config = dataclasses.replace(config, input=None)
    if not config.data and config.input is None and sys.stdin.isatty():
        logger.info("reading from the terminal, one sentence a line; end with Ctrl-D, or name a file: --input FILE")
        config = dataclasses.replace(config, buffer_size=1)  # each line is answered before the next is typed
    set_threads(config.device.threads)
    place = config.device
    translator = Translator.load(config.path, place.name, place.precision, ensemble_weights=config.ensemble_weights)
    logarithms = config.mbr is MbrMetric.none
    form = formatter(config.format, config.nbest, config.print_alignment, logarithms=logarithms)
    choose = _choice(translator, config)
    if config.data:
        _translate_split(translator, config, form, choose)
    else:
        _translate_lines(translator, config, form, choose)


def main() -> None:
    launch("generate", GenerateConfig, run)


def _choice(translator: Translator, config: GenerateConfig) -> Choice:
    """What becomes of translations before they are shown."""
    if config.rerank is None:
        return iter
    backward = Translator.load(config.rerank, config.device.name, config.device.precision)
    check_reverse(translator.pair, backward.pair, config.rerank)
    return ReverseModel(backward.hypotheses, config.rerank_weight, config)


def _check(config: GenerateConfig) -> None:
    """What costs nothing to find out before a model is loaded."""
    if len(config.data) > 1:
        raise UsageError(f"one corpus folder can be translated at a time, not {len(config.data)}")
    if config.data and config.input is not None:
        raise UsageError(f"give a corpus folder ({config.data[0]}) or --input {config.input}, not both")
    if config.data and config.input_format is not InputFormat.text:
        raise UsageError(f"--input-format {config.input_format.value} is for lines of text, not for a corpus folder")
    if config.score_reference and not config.data and config.input_format is InputFormat.text:
        raise UsageError("--score-reference needs references: give a corpus folder, or --input-format tsv or jsonl")
    if config.score_reference and config.format is OutputFormat.text:
        raise UsageError("--format text shows no scores; add --format jsonl or fairseq to --score-reference")
    if config.output is not None:
        _check_output(Path(config.output), config.overwrite)


def _check_output(output: Path, overwrite: bool) -> None:
    if not output.exists() or _is_stream(output):
        return
    if not output.is_file():
        raise OutputError(f"{output} is a folder or a device, where no file can be written; choose another --output")
    if not overwrite:
        raise OutputError(f"{output} exists already; choose another name, or replace it with --overwrite")


def _is_stream(path: Path) -> bool:
    """Whether a path is something to write into, not a file to make: a named pipe, a terminal, /dev/null."""
    return path.is_fifo() or path.is_char_device()


def _translate_lines(translator: Translator, config: GenerateConfig, form: Formatter, choose: Choice) -> None:
    if config.input is None:
        lines = read_stream(
            sys.stdin.buffer, _STDIN, invalid=config.on_invalid_utf8, max_line_bytes=config.max_line_bytes
        )
    else:
        lines = read_lines(Path(config.input), invalid=config.on_invalid_utf8, max_line_bytes=config.max_line_bytes)
    with show_progress(config.progress, "translated", "lines") as progress, _output(config) as write:
        seen = _Seen(config)
        asked = parsed(lines, config.input_format, config.input or _STDIN, references=config.score_reference)
        for translation in choose(translator.hypotheses(asked, config, progress)):
            seen.add(translation)
            write(form(translation, None))
    seen.report()


def _translate_split(translator: Translator, config: GenerateConfig, form: Formatter, choose: Choice) -> None:
    folder = Path(config.data[0])
    corpus = Corpus.open(folder)
    if corpus.pair.source.vocabulary != translator.pair.source.vocabulary:
        raise DataError(
            f"{folder} was made with another source vocabulary than {config.path}; translate its raw text with --input, "
            f"or preprocess it with the model's: --srcdict and --tgtdict"
        )
    if config.score_reference and corpus.pair.target.vocabulary != translator.pair.target.vocabulary:
        raise DataError(
            f"{folder} was made with another target vocabulary than {config.path}; score its raw text with --input and "
            f"--input-format tsv"
        )
    split = corpus.split(config.gen_subset)
    references = _references(corpus, split)
    if config.score_reference and references is None:
        raise UsageError(
            f"split '{config.gen_subset}' of {folder} has no references to score; leave out --score-reference"
        )
    best: list[str] = []
    with show_progress(config.progress, "translated", "lines", len(split)) as progress, _output(config) as write:
        seen = _Seen(config)
        for translation in choose(translator.hypotheses_of_split(split, config, progress)):
            seen.add(translation)
            best.append(translation.hypotheses[0].text)
            write(form(translation, references[translation.number] if references else None))
    seen.report()
    if references and not config.score_reference:
        _report_score(config, best, references)


def _references(corpus: Corpus, split: Split) -> list[str] | None:
    """The target side as text; of the training split, whose text is not kept, as decoded pieces."""
    if split.targets is None:
        return None
    texts = split.target_text()
    if texts is not None:
        return texts
    return [corpus.pair.target.decode(split.target(number).tolist()) for number in range(len(split))]


def _report_score(config: GenerateConfig, hypotheses: list[str], references: list[str]) -> None:
    scorer = scorers.build(scorers.config_class("bleu")(), TextOptions())
    score = scorer(hypotheses, [references])
    beam = getattr(config.search, "beam_size", 1)
    logger.info(
        f"Generate {config.gen_subset} with beam={beam}: {score.name}|{score.signature} = {score.value:.2f} {score.detail}"
    )


@contextlib.contextmanager
def _output(config: GenerateConfig) -> Iterator[Callable[[Iterator[str]], None]]:
    """Where lines go: standard output or a pipe, each flushed at once, or a file that appears when it is complete."""
    if config.output is None:

        def to_stdout(lines: Iterator[str]) -> None:
            for line in lines:
                sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

        yield to_stdout
        return
    output = Path(config.output)
    if _is_stream(output):
        with _stream(output) as write:
            yield write
        return
    with atomic_write(output.resolve()) as raw, _packed(raw, output.suffix) as file:  # of a link the file that it names

        def to_file(lines: Iterator[str]) -> None:
            for line in lines:
                file.write(f"{line}\n".encode())

        yield to_file


def _packed(raw: BinaryIO, suffix: str) -> AbstractContextManager[IO[bytes]]:
    """What a file's name promises of its contents; the same translations give the same bytes."""
    if suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
    if suffix == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(raw, "wb"))
    return contextlib.nullcontext(raw)


@contextlib.contextmanager
def _stream(path: Path) -> Iterator[Callable[[Iterator[str]], None]]:
    """Writes into a named pipe or a device, which stays what it is."""
    file = open(path, "wb")  # noqa: SIM115 - closed below, where a second complaint about a lost reader is of no use

    def to_stream(lines: Iterator[str]) -> None:
        try:
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
        except BrokenPipeError as error:
            raise StorageError(f"writing to {path} failed: whoever read it has closed it") from error

    try:
        yield to_stream
    finally:
        with contextlib.suppress(OSError):
            file.close()


class _Seen:
    """What is worth a word when everything is translated."""

    def __init__(self, config: GenerateConfig) -> None:
        self._config = config
        self._unfinished: list[int] = []

    def add(self, translation: Translation) -> None:
        best = translation.hypotheses[0]
        if not best.finished:
            self._unfinished.append(translation.number + 1)
        asked = self._config.print_alignment is not AlignmentKind.none
        if asked and translation.source_pieces and best.attention is None:
            raise UsageError(f"the model in {self._config.path} has no attention to print; leave out --print-alignment")

    def report(self) -> None:
        if self._unfinished:
            logger.warning(
                f"{len(self._unfinished)} translations were cut off at the length limit, first that of line "
                f"{self._unfinished[0]}; raise --max-len-a or --max-len-b if they should go on"
            )


if __name__ == "__main__":
    main()
