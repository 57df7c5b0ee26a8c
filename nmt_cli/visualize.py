"""nmt-visualize: attention, positions and embeddings of a model, or curves of runs, also while they train."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from nmt.config.visualizing import PictureStyle, VisualizeConfig
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import misalignment
from nmt.data.vocabulary import Floats
from nmt.errors import DataError, UsageError, did_you_mean, quantity
from nmt.reporting.sentence_attention import SentenceAttention
from nmt.storage.files import atomic_write
from nmt.storage.lock import claimed
from nmt.storage.run_folder import split_paths
from nmt.storage.sweep_records import RECORDS
from nmt.threads import set_threads
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.visualize")

_STDIN = "standard input"
_PICTURES, _PAGE = (".svg", ".png"), ".html"
_MOST_SENTENCES = 20  # of a picture
_FILES_OF_SWEEPS = (RECORDS, "optimization_results.yaml")  # which runs/sweep/* names too
_HEAVY = 5_000_000  # bytes of a page that no longer opens at once


def run(config: VisualizeConfig) -> None:
    """Draw, and print the name of the file; or serve a live page."""
    if config.watch:
        _watch(config)
    output = _output(config)
    with claimed(output, overwrite=config.overwrite):
        _draw(config, output)
    print(output)


def main() -> None:
    launch(VisualizeConfig, run)


def _output(config: VisualizeConfig) -> Path:
    """Check the options before a model is loaded; return the output."""
    if not config.runs and not config.path:
        raise UsageError("name a model (--path MODEL), or run folders for training curves")
    if not config.output:
        raise UsageError("name the file to write: --output attention.html, or one that ends in .svg or .png")
    output = Path(config.output)
    tables = config.positions or config.embeddings
    endings = _PICTURES if tables else (_PAGE, *_PICTURES)
    if output.suffix not in endings:
        raise UsageError(f"--output {output}: the name must end in {', '.join(endings[:-1])} or {endings[-1]}")
    return output


def _draw(config: VisualizeConfig, output: Path) -> None:
    if config.runs:
        from nmt.reporting.curves import plot_curves

        plot_curves(_folders(config), output, config.over.value, config.smoothing)
    elif config.positions or config.embeddings:
        _draw_table(config, output)
    else:
        _draw_attention(config, output)


def _folders(config: VisualizeConfig) -> list[Path]:
    named = [Path(path) for path in config.runs]
    return [path for path in named if path.name not in _FILES_OF_SWEEPS] or named


def _watch(config: VisualizeConfig) -> NoReturn:
    """Become the process that serves the page: this one has imported much that it does not need."""
    from nmt.reporting.live_page import address_of, command, listener
    from nmt.reporting.runs_page import find_runs

    folders = _folders(config)
    find_runs(folders)  # refuses missing folders
    with listener(config.watch_port) as listening:
        listening.set_inheritable(True)
        logger.info("the live page: %s (Ctrl-C ends it)", address_of(listening))
        started = command(listening, folders, over=config.over.value, smoothing=config.smoothing)
        os.execv(started[0], started)


def _draw_table(config: VisualizeConfig, output: Path) -> None:
    """Draw the positions or the embeddings of a model."""
    from nmt.reporting.model_pictures import plot_embeddings, plot_positions
    from nmt.translation.attention_view import embeddings, positions

    table, owner = (config.path, config.side.value, config.count), f"of {config.path}, {config.side.value}"
    lines = None if config.input is None or config.positions else _lines(config, config.input)
    set_threads(config.threads)
    if config.positions:
        plot_positions(positions(*table, user_dir=config.user_dir), output, f"Positions {owner}")
    else:
        pieces, vectors = embeddings(*table, lines, user_dir=config.user_dir)
        plot_embeddings(pieces, vectors, output, f"Embeddings {owner}")


def _draw_attention(config: VisualizeConfig, output: Path) -> None:
    sources, translations = _pairs(config)
    members = split_paths(config.path)
    if config.member is not None and config.member not in members:
        near = did_you_mean(config.member, members)
        raise UsageError(f"--member {config.member} is not a model of --path{near}; there are: {', '.join(members)}")
    if output.suffix != _PAGE and len(sources) > _MOST_SENTENCES:
        raise UsageError(
            f"a picture has room for {_MOST_SENTENCES} sentences, and there are {len(sources)}; give fewer, or write .html"
        )
    from nmt.translation import attention

    set_threads(config.threads)
    direction: dict[str, Any] = {"source_lang": config.source_lang, "target_lang": config.target_lang}
    sentences = attention(
        config.path, sources, translations, device=config.device, user_dir=config.user_dir, **direction
    )
    shown = [sentence.by_words() if config.words else sentence for sentence in sentences if sentence.source]
    if not shown:
        raise DataError(f"{config.input or _STDIN} has only empty lines; it needs a sentence")
    if config.member is None:
        _check_mean(shown[0], config.kind.value, output)
    if output.suffix == _PAGE:
        _write_page(config, shown, output)
    else:
        _write_picture(config, shown, output)


def _check_mean(sentence: SentenceAttention, kind: str, output: Path) -> None:
    """Refuse an ensemble whose models have no mean of the attention to show; log kinds that a page lacks."""
    every = dict.fromkeys(kind for maps in sentence.members.values() for kind in maps)
    lacking = [kind for kind in every if kind not in sentence.weights]
    needed = every if output.suffix == _PAGE else [kind]
    if not lacking or not any(kind in lacking for kind in needed):
        return
    differ = f"the models differ in the layers or heads of their {' and '.join(lacking)} attention, which has no mean"
    advice = f"choose one: --member {next(iter(sentence.members))}"
    if all(kind in lacking for kind in needed):
        raise UsageError(f"{differ}; {advice}")
    logger.warning(f"{differ} and is omitted; to see it, {advice}")


def _write_page(config: VisualizeConfig, sentences: Sequence[SentenceAttention], output: Path) -> None:
    from nmt.reporting.attention_page import attention_page

    about = f"{config.member} alone" if config.member else "the mean of its models" if ":" in config.path else ""
    page = attention_page(sentences, config.path, about, config.member).encode("utf-8", "replace")
    if len(page) > _HEAVY:
        logger.warning(f"the page has {len(page) / 1e6:.0f} MB, which takes a while to open; give fewer sentences")
    with atomic_write(output) as file:
        file.write(page)


def _write_picture(config: VisualizeConfig, sentences: Sequence[SentenceAttention], output: Path) -> None:
    from nmt.reporting.attention_pictures import AttentionPanel, LinesPanel, plot_attention, plot_attention_lines

    kind = config.kind.value
    lines, maps = list[LinesPanel](), list[AttentionPanel]()
    for sentence in sentences:
        every = sentence.weights if config.member is None else sentence.members[config.member]
        weights, layer, heads = _chosen(every, config)
        rows, columns = sentence.rows(kind), sentence.columns(kind)
        title = f"line {sentence.number + 1}: {kind}, layer {layer}"
        lines.append(LinesPanel(rows, columns, weights, heads, every[kind].shape[1], title))
        which = "" if not config.head else f", head {', '.join(map(str, heads))}"
        maps.append(AttentionPanel(columns, rows, weights.mean(0), f"{title}{which}"))
    if config.style is PictureStyle.map:
        plot_attention(maps, output)
    else:
        plot_attention_lines(lines, output)


def _chosen(weights: Mapping[str, Floats], config: VisualizeConfig) -> tuple[Floats, int, list[int]]:
    """Return the weights [heads, rows, columns] of the chosen layer and heads, and their numbers."""
    kind = config.kind.value
    if kind not in weights:
        raise UsageError(f"--kind {kind}: the model has no such attention; choose from {', '.join(weights)}")
    layers, num_heads = weights[kind].shape[:2]
    layer, heads = config.layer or layers, list(dict.fromkeys(config.head)) or list(range(1, num_heads + 1))
    if layer > layers:
        raise UsageError(
            f"--layer {layer}: the model has {quantity(layers, 'layer')} of {kind} attention; choose from 1 to {layers}"
        )
    for head in heads:
        if head > num_heads:
            raise UsageError(f"--head {head}: a layer has {quantity(num_heads, 'head')}; choose from 1 to {num_heads}")
    return weights[kind][layer - 1, [head - 1 for head in heads]], layer, heads


def _pairs(config: VisualizeConfig) -> tuple[list[str], list[str] | None]:
    """Return sentences and their translations; None: the model finds them."""
    sources = _lines(config, config.input)
    if not sources:
        raise DataError(f"{config.input or _STDIN} is empty; it needs a sentence")
    if config.translations is None:
        return sources, None
    translations = _lines(config, config.translations)
    if len(translations) != len(sources):
        where = f"; {misalignment(sources, translations)}" if translations else ""
        raise DataError(
            f"{config.input or _STDIN} has {quantity(len(sources), 'line')}, {config.translations} has {len(translations)}, "
            f"but each sentence needs its translation on the same line{where}"
        )
    return sources, translations


def _lines(config: VisualizeConfig, name: str | None) -> list[str]:
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    if name not in (None, "-"):
        return [line or "" for line in reading.lines(Path(str(name)))]
    if sys.stdin.isatty():
        logger.info("reading from the terminal, one sentence a line; end with Ctrl-D, or name a file: --input FILE")
    return [line or "" for line in reading.stream(sys.stdin.buffer, _STDIN)]


if __name__ == "__main__":
    main()
