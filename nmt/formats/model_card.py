"""README.md of an export: architecture, data, scores, cost and usage of the model.

The facts come from the checkpoint and the log of its run. Unknown facts are omitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml

import nmt
from nmt.config.sections import LOSSES
from nmt.data.language_tags import is_tag, piece_of
from nmt.data.tokenizers.sentencepiece import SentencePieceTokenizer
from nmt.errors import quantity
from nmt.formats import ExportComparison, Format, PortableModel
from nmt.layers.sinusoids import Sinusoids
from nmt.models.loading import LoadedModel
from nmt.models.transformer.weights import PositionsInHeads, StackWeights
from nmt.pages.numbers import duration, figure, scientific
from nmt.registry import registered_name
from nmt.reporting.run_record import RunRecord
from nmt.scoring import TextOptions, scorers
from nmt.search.config import BeamConfig, LengthPenalty

NAME, TEXT = "README.md", "A sentence to translate."
_DROPPED_FROM_SIGNATURE = re.compile(r"\|version:[^|]*")


def write(
    folder: Path, loaded: LoadedModel, model: PortableModel, writer: Format, comparison: ExportComparison
) -> None:
    """Write the model card. ``comparison``: of the export with the model."""
    record = _record(loaded)
    sections = {
        "Model": _model(loaded, model),
        "Data": _data(record),
        "Scores": _scores(loaded, model, record),
        "Cost": _cost(loaded, record),
        "Use": writer.usage(model),
        "Check": _check(writer, comparison),
    }
    pair = model.pair
    head = yaml.safe_dump(_front(writer, model), sort_keys=False, allow_unicode=True)
    parts = [f"---\n{head}---", f"# Translation from {pair.source_lang} to {pair.target_lang}"]
    parts += [f"## {title}\n\n{text}" for title, text in sections.items() if text]
    (folder / NAME).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def example(template: str, **values: Any) -> str:
    """Return a sentence and a block of code, with ``$name`` replaced by its value."""
    sentence, code = template.split("\n\n", 1)
    return f"{sentence}\n\n```python\n{Template(code).substitute(values)}```"


def cut_by_sentencepiece(model: PortableModel) -> bool:
    """Whether SentencePiece cuts both sides, so that other toolkits can read text instead of tokens."""
    return all(isinstance(side, SentencePieceTokenizer) for side in (model.pair.source, model.pair.target))


def pieces_for(model: PortableModel) -> list[str]:
    """Return two source tokens for an example, after the special ones."""
    return list(model.pair.source.vocabulary.pieces[4:6])


def about_length_penalty(model: PortableModel, where: str) -> str:
    """Say that the length penalty of the other toolkit differs from the one of the validation."""
    note = f"`length_penalty` in {where} divides the log-probability by length^p, not by GNMT's ((5 + length) / 6)^p"
    search = BeamConfig(**model.search)
    if model.search and search.length_penalty is LengthPenalty.gnmt:
        note += (
            f". The model was validated with GNMT's (`--lenpen {search.lenpen:g}`), so scores and some "
            f"translations differ"
        )
    return f"{note}."


def _front(writer: Format, model: PortableModel) -> dict[str, Any]:
    """Return the metadata for the Hugging Face Hub. Owner and license are unknown."""
    languages = {"language": list(dict.fromkeys((model.pair.source_lang, model.pair.target_lang)))}
    library = {"library_name": writer.library} if writer.library else {}
    return languages | library | {"pipeline_tag": "translation"}


def _record(loaded: LoadedModel) -> RunRecord | None:
    """Return the log of the run that wrote the checkpoint."""
    path = loaded.path.resolve()
    if "import" in loaded.info.reasons:
        return None
    records = (RunRecord.read(folder) for folder in (path, path.parent))
    return next((record for record in records if record.events), None)


def _model(loaded: LoadedModel, model: PortableModel) -> str:
    weights, info = model.weights, loaded.info
    first, source, target = weights.source.layers[0], weights.source, weights.target
    inner, gated = len(first.feed_forward.inner.weight), ", gated" if first.feed_forward.gate is not None else ""
    norm = "layer normalization" if first.self_norm.bias is not None else "RMSNorm"
    order = (
        _order(source)
        if source.norm_first is target.norm_first
        else f"{_order(source)}, in the decoder {_order(target)}"
    )
    pair, size = model.pair, sum(array.size for array in loaded.arrays.values())
    sizes = len(pair.source.vocabulary), len(pair.target.vocabulary)
    pieces = f"{sizes[0]:,} tokens for both languages" if pair.shared else f"{sizes[0]:,} and {sizes[1]:,} tokens"
    cut = dict.fromkeys(str(registered_name(type(side.config))) for side in (pair.source, pair.target))
    lines = [
        f"A Transformer with {len(source.layers)} encoder and {len(target.layers)} decoder layers of width {weights.width}, "
        f"{weights.num_heads} heads, feed-forward networks of {inner:,} ({first.feed_forward.activation.value}{gated}), "
        f"{_positions(source)} positions and {norm} {order}: {size:,} parameters. Its vocabulary has {pieces} "
        f"({', '.join(cut)})."
    ]
    if pair.tag is not None:
        known = [piece for piece in pair.source.vocabulary.pieces if is_tag(piece)]
        lines.append(
            f"The first token of each source must be the tag of a target language, here `{piece_of(pair.tag)}` "
            f"(supported: {', '.join(f'`{piece}`' for piece in known)}). Add it before the tokens of the text."
        )
    if origin := info.made.get("imported_from"):
        lines.append(f"It was imported from {origin}.")
    return " ".join(lines)


def _order(stack: StackWeights) -> str:
    return "before each sublayer" if stack.norm_first else "after each sublayer"


def _positions(stack: StackWeights) -> str:
    positions = stack.positions
    if isinstance(positions, PositionsInHeads):
        return positions.value
    return "sinusoidal" if isinstance(positions, Sinusoids) else "learned"


def _data(record: RunRecord | None) -> str:
    """Describe the splits, as the last start of the run logged them."""
    data = {} if record is None else record.last("start").get("data", {})
    config = {} if record is None else record.config
    lines = []
    for name, what in (("train_subset", "Training"), ("valid_subset", "Validation")):
        split = _at(data, "splits", config.get(name))
        if (sentences := _at(split, "sentences")) is None:
            continue
        sides = {side: _at(split, side, "pieces") for side in ("source", "target")}
        pieces = " and ".join(f"{count:,} {side} tokens" for side, count in sides.items() if count is not None)
        lines.append(f"- {what}: {sentences:,} sentence pairs" + (f" of {pieces}" if pieces else ""))
    return "\n".join(lines)


def _scores(loaded: LoadedModel, model: PortableModel, record: RunRecord | None) -> str:
    """List the validation scores of the checkpoint."""
    info, validation = loaded.info, loaded.tree.get("validation")
    named = {name: value for name, value in info.scores.items() if name not in LOSSES or name == "ppl"}
    if not named:
        return ""
    options = validation if isinstance(validation, dict) else {}
    version = None if record is None else _at(record.last("start"), "environment", "sacrebleu")
    lines = []
    for name, value in named.items():
        signature = None if name in LOSSES else _signature(name, options, version)
        title = "perplexity per token" if name == "ppl" else name
        lines.append(f"- {title}: {figure(value)}" + (f" (`{signature}`)" if signature else ""))
    most = options.get("max_sentences")
    where = f"the first {most:,} sentences of the validation split" if isinstance(most, int) else "the validation split"
    return f"On {where}{_searched(model)}:\n\n" + "\n".join(lines)


def _searched(model: PortableModel) -> str:
    if not model.search:
        return ""
    search = BeamConfig(**model.search)
    return f", with beam width {search.beam_size} and length penalty {search.length_penalty.value} {search.lenpen:g}"


def _signature(name: str, options: Mapping[str, Any], version: Any) -> str | None:
    """Return sacreBLEU's signature with the version of the run; without a version if it is unknown."""
    try:
        text = TextOptions(str(options["tokenize"]), bool(options["lowercase"]))
        signature = scorers.build(scorers.config_class(name)(), text)(["a"], [["a"]]).signature
    except Exception:  # a scorer of a plugin that is not loaded, or without its packages
        return None
    return _DROPPED_FROM_SIGNATURE.sub(f"|version:{version}" if version else "", signature)


def _cost(loaded: LoadedModel, record: RunRecord | None) -> str:
    """Describe the cost of the whole run, also if the checkpoint was written before its end."""
    info = loaded.info
    if record is None or not record.update:
        return ""
    start, end = record.last("start"), record.close
    epochs = max((int(event.get("epoch") or 0) for event in record.events), default=0)
    environment = start.get("environment", {})
    device = _at(environment, "gpu") or _at(environment, "device")
    count = start.get("devices") or 1
    parts = [f"{quantity(record.update, 'update')} in {quantity(epochs, 'epoch')}", f"{record.tokens:,} target tokens"]
    duration_text = f"{duration(record.seconds)} (h:mm:ss)"
    parts.append(duration_text + (f" on {f'{count} x ' if count > 1 else ''}{device}" if device else ""))
    counted = end.get("flops_counted")
    parts += [f"{scientific(counted)} floating-point operations"] if counted else []
    text = f"Training: {', '.join(parts)}."
    if "average" in info.reasons:
        return f"{text} The model is an average of checkpoints; the last one is from update {info.update:,}."
    return f"{text} The model is from update {info.update:,}."


def _check(writer: Format, comparison: ExportComparison) -> str:
    return (
        f"Written by nmt {nmt.__version__} and read back from disk as {writer.name}: {comparison.equal} of "
        f"{comparison.sentences} sentences translate the same as before, and log-probabilities differ by at most "
        f"{comparison.difference:.2g} per token."
    )


def _at(tree: Any, *keys: Any) -> Any:
    """Return the value at a path of keys in nested mappings, or None."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree
