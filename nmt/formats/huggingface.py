"""Models of Hugging Face's transformers: Marian and Pegasus folders in and out, FSMT folders in.

Marian (OPUS-MT) has norms after each sublayer, Pegasus before it; both have sinusoids in halves. FSMT is fairseq's
Transformer with two vocabularies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.data.imported_vocabularies import read_huggingface_vocabulary
from nmt.data.language_pair import LanguagePair
from nmt.data.segmentation import sentencepiece_of
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.bpe_codes import BpeCodes, BpeCodesConfig, WordEnds
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.tokenizers.sentencepiece_list import is_language_token
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.formats import Format, PortableModel, Written, formats
from nmt.formats.layers import LayerReader, count_of, dropouts_of, number_of, require_same_sides
from nmt.formats.model_card import TEXT, about_length_penalty, cut_by_sentencepiece, example, pieces_for
from nmt.formats.order import Order, in_our_order
from nmt.formats.stream import ORIGINAL_LAYOUT, interleaved, without_zero_biases
from nmt.formats.tensors import Tensors, as_formula_if_alike
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import Activation, Array, Linear, StackWeights, TransformerWeights
from nmt.search.config import LengthPenalty
from nmt.storage.checkpoints import mapped_tensors
from nmt.storage.files import read_json
from nmt.storage.run_folder import split_paths
from nmt.storage.torch_file import read_torch_file

_FIRST_POSITION_OF_FSMT = 2
_BEAM, _WIDEST_BEAM, _HIGHEST_PENALTY = 5, 1000, 10.0
_ACTIVATIONS = {"relu": Activation.relu, "gelu": Activation.gelu, "swish": Activation.swish, "silu": Activation.swish}
_NORM_FIRST = {"marian": False, "pegasus": True, "fsmt": False}
# What is missing for models that look as if they could be read.
_MISSING = {
    "m2m_100": "its sentences begin with tokens of their languages, and a model of ours has one direction",
    "nllb-moe": "its sentences begin with tokens of their languages, and a model of ours has one direction",
    "mbart": "it has a norm of its embeddings, which no model of ours has",
    "bart": "it has a norm of its embeddings, which no model of ours has",
    "t5": "its relative positions are of a kind that no model of ours has",
}

_OF_TEXT = """With transformers and sentencepiece (`pip install torch transformers sentencepiece`):

from transformers import AutoModelForSeq2SeqLM, MarianTokenizer

folder = "."  # where this file stands
tokenizer = MarianTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
inputs = tokenizer(["$text"], return_tensors="pt", padding=True)
for found in model.generate(**inputs):
    print(tokenizer.decode(found, skip_special_tokens=True))
"""
_OF_PIECES = """With transformers (`pip install torch transformers`). Text has to be cut into pieces as it was for training.

import json
import torch
from transformers import AutoModelForSeq2SeqLM

folder = "."  # where this file stands
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
with open(f"{folder}/vocab.json", encoding="utf-8") as file:
    ids = json.load(file)
inputs = [*(ids[piece] for piece in $pieces), model.config.eos_token_id]
found = model.generate(input_ids=torch.tensor([inputs]))
with open(f"{folder}/$vocabulary", encoding="utf-8") as file:
    pieces = list(json.load(file))  # in the order of their ids
print(" ".join(pieces[number] for number in found[0]))
"""


@formats.register("huggingface", make_dataclass("HuggingFaceConfig", ()))
class HuggingFace(Format):
    """Reads and writes folders of ``save_pretrained``."""

    name = "huggingface"
    whole = True
    library = "transformers"

    def read(self, given: ImportConfig) -> list[PortableModel]:
        return [_Folder(Path(path), given).model() for path in split_paths(given.path)]

    def write(self, model: PortableModel, folder: Path, options: ExportConfig) -> None:
        from nmt.formats.huggingface_writer import write

        write(model, folder, options)

    def written(self, folder: Path) -> Written:
        from nmt.formats.huggingface_writer import WrittenModel

        return WrittenModel(folder)

    def usage(self, model: PortableModel) -> str:
        if cut_by_sentencepiece(model):
            how = example(_OF_TEXT, text=TEXT)
        else:
            vocabulary = "vocab.json" if model.pair.shared else "target_vocab.json"
            how = example(_OF_PIECES, pieces=pieces_for(model), vocabulary=vocabulary)
        return f"{how}\n\n{about_length_penalty(model, 'transformers')}"


@dataclass
class _Folder:
    """A folder as ``save_pretrained`` leaves it."""

    path: Path
    given: ImportConfig

    def model(self) -> PortableModel:
        config = self._config()
        kind = str(config.get("model_type"))
        if kind not in _NORM_FIRST:
            what = _MISSING.get(kind, f"of these models {', '.join(_NORM_FIRST)} can be read")
            raise DataError(f"{self.path} is a model of the type {kind}: {what}")
        _require(config, self.path)
        symbols = self._symbols(kind, config)
        specials = [self._specials(kind, config, some) for some in symbols]
        orders = [Order.of(some, own, str(self.path)) for some, own in zip(symbols, specials)]
        tensors = Tensors(self._tensors(), str(self.path))
        weights = _Reader(tensors, config, kind, start_of(config, specials[-1])).model()
        tensors.require_all_read()
        if config.get(ORIGINAL_LAYOUT) == SinusoidLayout.interleaved.value:  # of a model of ours
            weights = interleaved(weights)
        for stack, some in ((weights.source, symbols[0]), (weights.target, symbols[-1])):
            if len(stack.embedding) != len(some):
                raise DataError(
                    f"{self.path} has {len(stack.embedding)} embeddings, but its vocabulary has {len(some)} pieces"
                )
        pair = self._pair(kind, config, orders)
        source, target = orders[0], orders[-1]
        return PortableModel(in_our_order(weights, source, target), pair, dropouts_of(config), self._search(config))

    def _config(self) -> dict[str, Any]:
        config = read_json(self.path / "config.json")
        if not isinstance(config, dict):
            raise DataError(f"{self.path / 'config.json'} is damaged: it should be a mapping")
        return config

    def _symbols(self, kind: str, config: Mapping[str, Any]) -> list[list[str]]:
        """The pieces of both sides in the order of their ids; a single list if they are one."""
        if kind == "fsmt":
            lists = [read_huggingface_vocabulary(self.path / f"vocab-{side}.json") for side in ("src", "tgt")]
            return lists[:1] if lists[0] == lists[1] else lists
        source = read_huggingface_vocabulary(self.path / "vocab.json")
        if config.get("share_encoder_decoder_embeddings", True) or not (self.path / "target_vocab.json").is_file():
            return [source]
        return [source, read_huggingface_vocabulary(self.path / "target_vocab.json")]

    def _specials(self, kind: str, config: Mapping[str, Any], symbols: list[str]) -> list[int | None]:
        """Where pad, unk, bos and eos stand in one of the vocabularies."""
        places = {symbol: number for number, symbol in enumerate(symbols)}
        if kind == "fsmt":
            return [places.get(special) for special in SPECIALS]
        pad, eos, start = (config.get(f"{name}_token_id") for name in ("pad", "eos", "decoder_start"))
        for name, number in (("pad", pad), ("eos", eos), ("decoder_start", eos if start is None else start)):
            if type(number) is not int or not 0 <= number < len(symbols):
                raise DataError(f"{self.path / 'config.json'}: {name}_token_id={number!r} is no id of the vocabulary")
        bos = places.get("<s>") if start in (None, pad, eos) else start
        return [pad, places.get("<unk>"), bos, eos]

    def _tensors(self) -> dict[str, Any]:
        if (self.path / "model.safetensors").is_file():
            return dict(mapped_tensors(self.path / "model.safetensors"))
        if (self.path / "pytorch_model.bin").is_file():
            found = read_torch_file(self.path / "pytorch_model.bin")
            if isinstance(found, dict):
                return found
        raise MissingInputError(f"{self.path} holds neither model.safetensors nor pytorch_model.bin")

    def _pair(self, kind: str, config: Mapping[str, Any], orders: Sequence[Order]) -> LanguagePair:
        languages = [self.given.source_lang, self.given.target_lang]
        if kind == "fsmt":
            own = config.get("langs")
            own = own if isinstance(own, list) and len(own) == 2 else ["", ""]
            languages = [given or str(one) for given, one in zip(languages, own)]
        if not all(languages):
            raise UsageError("name the languages of the model: --source-lang en --target-lang de")
        source = self._tokenizer(kind, "source", orders[0], languages[0])
        target = self._tokenizer(kind, "target", orders[-1], languages[1])
        return LanguagePair(languages[0], languages[1], source, target, len(orders) == 1)

    def _tokenizer(self, kind: str, side: str, order: Order, language: str) -> Tokenizer:
        if kind == "fsmt":
            codes = self.path / "merges.txt"
            if not codes.is_file():
                raise MissingInputError(f"{codes} is missing: it says how words are cut")
            config = BpeCodesConfig(WordEnds.end_of_word, moses=True, language=language, normalize_punctuation=True)
            return BpeCodes(config, codes.read_bytes(), order.pieces)
        model = self.path / f"{side}.spm"
        if not model.is_file():
            return WordTokenizer(WordsConfig(), order.pieces)
        return sentencepiece_of(model, order.pieces, language_tokens=any(map(is_language_token, order.pieces)))

    def _search(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """As ``generate`` would search by default."""
        path = self.path / "generation_config.json"
        more = read_json(path) if path.is_file() else {}
        used = dict(config) | (more if isinstance(more, dict) else {})
        return {
            "beam_size": round(number_of(used, "num_beams", default=0, highest=_WIDEST_BEAM)) or _BEAM,
            "length_penalty": LengthPenalty.power,
            "lenpen": number_of(used, "length_penalty", default=1.0, highest=_HIGHEST_PENALTY),
        }


def _require(config: Mapping[str, Any], path: Path) -> None:
    """Refuse what ours are not."""
    activation = config.get("activation_function", "relu")
    if str(activation) not in _ACTIVATIONS:
        raise DataError(f"{path} has the activation {activation}; ours have relu, gelu or swish")
    origin = str(path / "config.json")
    require_same_sides(config, ("attention_heads", "ffn_dim"), origin)
    for name in ("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads"):
        if count_of(config, name, origin) is None:
            raise DataError(f"{origin} does not say {name}")


def start_of(config: Mapping[str, Any], specials: Sequence[int | None]) -> int:
    """Our id of what the decoder reads first."""
    start = config.get("decoder_start_token_id")
    ours = {specials[PAD]: PAD, specials[EOS]: EOS}
    return ours.get(start, BOS) if start is not None else EOS


@dataclass
class _Reader:
    tensors: Tensors
    config: Mapping[str, Any]
    kind: str
    start: int

    def model(self) -> TransformerWeights:
        tensors, config, width = self.tensors, self.config, self.config["d_model"]
        heads = config["encoder_attention_heads"]
        layers = LayerReader(tensors, width, heads, _ACTIVATIONS[config.get("activation_function", "relu")])
        shared = tensors.optional("model.shared.weight", None, width)
        source, target = (self._embedding(side, shared) for side in ("encoder", "decoder"))
        output = target
        for name in ("lm_head.weight", "model.decoder.output_projection.weight"):
            if name in tensors:
                own = tensors.take(name, *target.shape)
                output = target if np.array_equal(own, target) else own
        bias = tensors.optional("final_logits_bias", 1, len(target))
        bias = None if bias is None or not bias.any() else bias.reshape(-1)
        stacks = self._stack("encoder", source, layers), self._stack("decoder", target, layers)
        return without_zero_biases(TransformerWeights(*stacks, Linear(output, bias), heads, self.start))

    def _embedding(self, side: str, shared: Array | None) -> Array:
        """Often stored under several names."""
        name = f"model.{side}.embed_tokens.weight"
        if shared is not None and name not in self.tensors:
            return shared
        own = self.tensors.take(name, None, self.config["d_model"])
        return shared if shared is not None and np.array_equal(own, shared) else own

    def _stack(self, side: str, embedding: Array, layers: LayerReader) -> StackWeights:
        norm_first = _NORM_FIRST[self.kind]
        formula = Sinusoids(layers.width, SinusoidLayout.halves)
        if self.kind == "fsmt":
            formula = replace(formula, wavelengths=Wavelengths.tensor2tensor, offset=_FIRST_POSITION_OF_FSMT)
        table = self.tensors.optional(f"model.{side}.embed_positions.weight", None, layers.width)
        count = self.config[f"{side}_layers"]
        return StackWeights(
            embedding,
            math.sqrt(layers.width) if self.config.get("scale_embedding") else 1.0,
            as_formula_if_alike(None if table is None else table[formula.offset :], formula),
            tuple(layers.layer(f"model.{side}.layers.{number}", reads=side == "decoder") for number in range(count)),
            layers.norm(f"model.{side}.layer_norm") if norm_first else None,
            norm_first,
        )
