"""README.md of an export: architecture, data, scores, cost and usage of the model.

The facts come from the checkpoint and the log of its run. Unknown facts are omitted.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import nmt
from nmt import DISTRIBUTION
from nmt.config.exchange import ExportConfig
from nmt.config.sections import LOSSES, metric_of
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.text.languages import short_code
from nmt.data.tokenizers.sentencepiece import SentencePieceTokenizer
from nmt.errors import NMTError, quantity
from nmt.formats import ExportComparison, Format, PortableModel
from nmt.hub import HubName, is_hub_name
from nmt.layers.sinusoids import Sinusoids
from nmt.models.loading import LoadedModel
from nmt.models.transformer.weights import Buckets, PositionsInHeads, StackWeights, TransformerWeights
from nmt.pages.numbers import duration, figure, scientific
from nmt.registry import registered_name
from nmt.reporting.run_record import RunRecord
from nmt.scoring import TextOptions, scorers
from nmt.search.config import BeamConfig, LengthPenalty
from nmt.storage.checkpoints import CARD, read_info
from nmt.storage.files import yaml_text
from nmt.storage.run_folder import resolve

NAME, TEXT = CARD, "A sentence to translate."
_OWN_USAGE = f"""With [nmt]({nmt.REPOSITORY}) and huggingface_hub:

import nmt

print(nmt.load("$name").translate(["{TEXT}"])[0])
"""
_DROPPED_FROM_SIGNATURE = re.compile(r"\|version:[^|]*")


def write(
    folder: Path,
    loaded: LoadedModel,
    model: PortableModel | None,
    export: tuple[Format, ExportComparison] | None,
    config: ExportConfig,
) -> None:
    """Write the model card. ``model``: None if it is not a Transformer. ``export``: the format of another toolkit, and the
    comparison of the export with the model; None: it is a model folder of nmt."""
    record = _record(loaded)
    sections = {
        "Model": _model(loaded, model),
        "Data": _data(record),
        "Scores": _scores(loaded, model, record),
        "Cost": _cost(loaded, record),
        "Use": example(_OWN_USAGE, name=config.push) if export is None or model is None else export[0].usage(model),
        "Check": _check(loaded, export),
    }
    pair = loaded.pair
    head = yaml_text(_front(DISTRIBUTION if export is None else export[0].library, loaded, config.license))
    has_direction = pair.source_lang and pair.target_lang
    ends = f"from {pair.source_lang} to {pair.target_lang}" if has_direction else f"between {pair.called}"
    if pair.languages is not None and len(pair.languages.trained) > 1:
        ends = f"in {len(pair.languages.trained)} directions"
    parts = [f"---\n{head}---", f"# Translation {ends}"]
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


def language_tokens_for(pair: LanguagePair) -> tuple[list[str], list[str]]:
    """Return the tokens before the source and before the translation of an example; each is one or none.

    This is the default direction. Without one: from English, or else the first language, to the last other language."""
    codes = [*pair.languages.tokens] if pair.languages else [""]
    first = next((code for code in codes if short_code(code) == "en"), codes[0])
    source_lang = pair.source_lang or first
    last = next((code for code in reversed(codes) if code != source_lang), codes[-1])
    direction = pair.direction(source_lang, pair.target_lang or last)
    source, target = pair.source.vocabulary.pieces, pair.target.vocabulary.pieces
    return [source[number] for number in direction.source], [target[number] for number in direction.target]


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


def _front(library: str, loaded: LoadedModel, license_name: str | None) -> dict[str, Any]:
    """Return the metadata for the Hugging Face Hub."""
    languages = loaded.pair.languages.tokens if loaded.pair.languages else ()
    ends = loaded.pair.source_lang, loaded.pair.target_lang
    facts = {
        "language": [*dict.fromkeys(_iso(code) for code in (*ends, *languages) if code)],
        "license": license_name,
        "library_name": library,
        "pipeline_tag": "translation",
        "base_model": _base(loaded),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _iso(code: str) -> str:
    """Return the code of a language as the hub accepts it, without script or country: deu for deu_Latn, zh for zh_CN."""
    return re.split("[_-]", code)[0].lower()


def _base(loaded: LoadedModel) -> str | None:
    """Return the repository on the hub that the model was imported from, or fine-tuned from."""
    path = _at(loaded.tree, "checkpoint", "finetune_from_model")
    with contextlib.suppress(NMTError):  # the folder may be gone
        if path and is_hub_name(path):
            return HubName.parse(path).repository
        info = read_info(resolve(path)) if path else loaded.info
        return str(info.made["repository"]) if "repository" in info.made else None
    return None


def _record(loaded: LoadedModel) -> RunRecord | None:
    """Return the log of the run that wrote the checkpoint."""
    path = loaded.path.resolve()
    if "import" in loaded.info.reasons:
        return None
    records = (RunRecord.read(folder) for folder in (path, path.parent))
    return next((record for record in records if record.events), None)


def _transformer(weights: TransformerWeights) -> str:
    first, source, target = weights.source.layers[0], weights.source, weights.target
    inner, gated = len(first.feed_forward.inner.weight), ", gated" if first.feed_forward.gate is not None else ""
    norm = "layer normalization" if first.self_norm.bias is not None else "RMSNorm"
    order = (
        _order(source)
        if source.norm_first is target.norm_first
        else f"{_order(source)}, in the decoder {_order(target)}"
    )
    return (
        f"A Transformer with {len(source.layers)} encoder and {len(target.layers)} decoder layers of width {weights.width}, "
        f"{weights.num_heads} heads, feed-forward networks of {inner:,} ({first.feed_forward.activation.value}{gated}), "
        f"{_positions(source)} positions and {norm} {order}"
    )


def _model(loaded: LoadedModel, model: PortableModel | None) -> str:
    pair, info, size = loaded.pair, loaded.info, sum(array.size for array in loaded.arrays.values())
    what = (
        f"A model of the architecture {registered_name(type(loaded.config))}"
        if model is None
        else _transformer(model.weights)
    )
    sizes = len(pair.source.vocabulary), len(pair.target.vocabulary)
    pieces = f"{sizes[0]:,} tokens for both languages" if pair.shared else f"{sizes[0]:,} and {sizes[1]:,} tokens"
    cut = dict.fromkeys(str(registered_name(type(side.config))) for side in (pair.source, pair.target))
    lines = [f"{what}: {size:,} parameters. Its vocabulary has {pieces} ({', '.join(cut)})."]
    if pair.languages is not None:
        lines.append(_languages(pair.languages))
    if origin := info.made.get("imported_from"):
        repository, commit = info.made.get("repository"), info.made.get("commit")
        lines.append(f"It was imported from {origin}" + (f", {repository} at commit {commit}." if repository else "."))
    return " ".join(lines)


def _languages(languages: LanguageTokens) -> str:
    """Say where the tokens of the languages are, and list the languages."""
    where = {
        SourceToken.source: "Each source must begin with the token of its language.",
        SourceToken.target: "Each source must begin with the token of the target language.",
        SourceToken.none: "",
    }[languages.source]
    forced = (
        "Each translation begins with the token of the target language, which must be forced."
        if languages.target
        else ""
    )
    tokens = ", ".join(f"`{token}`" + f" ({code})" * (code != token) for code, token in languages.tokens.items())
    directions = [
        f"It was trained on {', '.join(languages.trained)}." if languages.trained else "",
        f"The training data had no text for {', '.join(languages.zero_shot)}." if languages.zero_shot else "",
    ]
    return " ".join(filter(None, (where, forced, f"The tokens are {tokens}.", *directions)))


def _order(stack: StackWeights) -> str:
    return "before each sublayer" if stack.norm_first else "after each sublayer"


def _positions(stack: StackWeights) -> str:
    positions = stack.positions
    if isinstance(positions, PositionsInHeads):
        return positions.value
    if isinstance(positions, Buckets):
        return "bucketed"
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


def _scores(loaded: LoadedModel, model: PortableModel | None, record: RunRecord | None) -> str:
    """List the validation scores of the checkpoint."""
    info, validation = loaded.info, loaded.tree.get("validation")
    named = {name: value for name, value in info.scores.items() if metric_of(name) not in LOSSES or name == "ppl"}
    if not named:
        return ""
    options = validation if isinstance(validation, dict) else {}
    version = None if record is None else _at(record.last("start"), "environment", "sacrebleu")
    lines = []
    for name, value in named.items():
        signature = None if name in LOSSES else _signature(metric_of(name), options, version)
        title = "perplexity per token" if name == "ppl" else name
        lines.append(f"- {title}: {figure(value)}" + (f" (`{signature}`)" if signature else ""))
    most = options.get("max_sentences")
    where = f"the first {most:,} sentences of the validation split" if isinstance(most, int) else "the validation split"
    return f"On {where}{_searched(model)}:\n\n" + "\n".join(lines)


def _searched(model: PortableModel | None) -> str:
    if model is None or not model.search:
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


def _check(loaded: LoadedModel, export: tuple[Format, ExportComparison] | None) -> str:
    if export is None and (loaded.base or loaded.names):
        return f"Written by nmt {nmt.__version__}; `manifest.json` holds the checksums."
    if export is None:
        return f"Copied by nmt {nmt.__version__} without changes; `manifest.json` holds the checksums."
    writer, comparison = export
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
