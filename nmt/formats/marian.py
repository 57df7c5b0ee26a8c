"""Models of Marian: a numpy archive (.npz) with arrays and options, and separate vocabulary files.

``marian train`` writes a ``decoder.yml`` with each model, which names all files. OPUS-MT publishes folders with one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

from nmt.config.choices import Segmentation
from nmt.config.exchange import ImportConfig
from nmt.data.imported.tokenizers import require_languages, sentencepiece_of, tokenizer_of
from nmt.data.imported.vocabularies import is_sentencepiece, read_marian_vocabulary
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.sentencepiece_list import is_language_token
from nmt.data.vocabulary import PAD
from nmt.errors import DataError, MissingInputError, UsageError, unquoted
from nmt.formats import Format, PortableModel, formats
from nmt.formats.layout import FormatLayout, LayoutReader, require_whole_heads
from nmt.formats.stored_options import number_of, required_count
from nmt.formats.tensors import Tensors
from nmt.formats.vocabulary_order import VocabularyOrder, in_our_order, require_equal_vocabularies
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import Activation, LinearWeights, TransformerWeights
from nmt.search.config import LARGEST_FACTOR, WIDEST_BEAM, LengthPenalty, StopRule
from nmt.storage.npz import read_npz
from nmt.storage.reading import Malformed, parse_yaml, read_file
from nmt.storage.run_folder import split_paths

LAYOUT = FormatLayout(
    layer="{side}_l{number}_",
    self_attention={f"self_*{part[0]}": part for part in ("query", "key", "value", "output")},
    cross_attention={f"context_*{part[0]}": part for part in ("query", "key", "value", "output")},
    feed_forward={"ffn_*1": "inner", "ffn_*2": "outer"},
    norms=("self_Wo_*", "context_Wo_*", "ffn_ffn_*"),
    final_norm="{side}_top_*",
    embeddings=("encoder_Wemb", "decoder_Wemb"),
    output="decoder_ff_logit_out",
    first_layer=1,
    linear_names=("W", "b"),
    norm_names=("ln_scale", "ln_bias"),
    transposed=True,
)
_PRE_NORMS = ("self_Wo_*_pre", "context_Wo_*_pre", "ffn_ffn_*_pre")  # in models with norms before each sublayer
_RMS_NORM = ("rms_scale", "")
_SHARED = "Wemb"  # the embedding of both sides
_OPTIONS = "special:model.yml"
_DECODER = "decoder.yml"
_EPSILON = 1e-6
_UNK, _EOS = "<unk>", "</s>"
_FACTORED = ".fsv"
_BEAM, _HIGHEST_PENALTY = 12, 10.0
_LONGEST = 3.0  # maximum target length, in source lengths
_ACTIVATIONS = {"relu": Activation.relu, "swish": Activation.swish}
# Options of the model, and their values that our Transformer supports.
_HELD: dict[str, tuple[object, ...]] = {
    "type": ("transformer",),
    "input-types": ([], None),
    "right-left": (False,),
    "ulr": (False,),
    "lemma-dim-emb": (0,),
    "transformer-pool": (False,),
    "transformer-no-projection": (False,),
    "transformer-no-affine": (False,),
    "transformer-rnn-projection": (False,),
    "transformer-tied-layers": ([], None),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-attention-mask": ("default",),
    "transformer-disable-position-embeddings": (False,),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-ffn-activation": tuple(_ACTIVATIONS),
    "transformer-postprocess-emb": ("", "d"),
}


@formats.register("marian", make_dataclass("MarianConfig", ()))
class Marian(Format):
    """Reads models of ``marian train``; several are an ensemble."""

    name = "marian"

    def recognizes(self, folder: Path) -> bool:
        return (folder / _DECODER).is_file()

    def read(self, options: ImportConfig) -> list[PortableModel]:
        files = _Files.of(options)
        for path in files.vocabularies:
            if path.suffix == _FACTORED:
                raise DataError(f"{path} is a factored vocabulary, which nmt does not support")
        vocabularies = [read_marian_vocabulary(path) for path in files.vocabularies]
        models = [_read_model(path, [len(symbols) for symbols in vocabularies]) for path in files.models]
        sizes = {(len(weights.source.embedding), len(weights.target.embedding)) for weights in models}
        require_equal_vocabularies(sizes, options.path)
        orders = [_order(symbols[:size], path) for symbols, size, path in zip(vocabularies, *sizes, files.vocabularies)]
        same = orders[0] == orders[1]
        pair = files.pair(orders, same=same)
        orders = [orders[0], orders[0]] if same else orders
        return [PortableModel(in_our_order(weights, *orders), pair, {}, files.search()) for weights in models]


def _order(symbols: list[str], path: Path) -> VocabularyOrder:
    for special in (_UNK, _EOS):
        if special not in symbols:
            raise DataError(f"{path} has no token {special}, which every vocabulary of Marian has")
    bos = symbols.index("<s>") if "<s>" in symbols else None
    return VocabularyOrder.of(symbols, (None, symbols.index(_UNK), bos, symbols.index(_EOS)), str(path))


@dataclass(frozen=True)
class _Files:
    """The files of a model, by the command line and by its ``decoder.yml``."""

    options: ImportConfig
    models: Sequence[Path]
    vocabularies: Sequence[Path]  # of source and target
    listed: Mapping[str, Any]  # the options that Marian decodes with

    @classmethod
    def of(cls, options: ImportConfig) -> _Files:
        """``options.path``: models, a folder with a decoder.yml, or such a file."""
        require_languages(options.source_lang, options.target_lang)
        paths = [Path(path) for path in split_paths(options.path)]
        list_of = paths[0] / _DECODER if paths[0].is_dir() else paths[0]
        if list_of.suffix not in (".yml", ".yaml"):
            list_of = paths[0].with_name(f"{paths[0].name}.{_DECODER}")
        elif len(paths) > 1:
            raise UsageError(
                f"{options.path} names several files; name one list of models (.yml), or only models (.npz)"
            )
        elif not list_of.is_file():
            raise MissingInputError(f"{list_of} is missing; name the model itself: --path {paths[0] / 'model.npz'}")
        else:
            paths = []
        listed = _yaml(read_file(list_of), str(list_of)) if list_of.is_file() else {}
        models = paths or _listed(listed, "models", list_of)
        if options.tgtdict and not options.srcdict:
            raise UsageError(f"--tgtdict {options.tgtdict} names only the target vocabulary; give --srcdict too")
        vocabularies = [Path(path) for path in (options.srcdict, options.tgtdict or options.srcdict) if path]
        if not vocabularies:
            if "vocabs" not in listed:
                raise UsageError(
                    f"name the vocabularies of {options.path}: --srcdict FILE, and --tgtdict FILE if the target "
                    "language has another"
                )
            vocabularies = _listed(listed, "vocabs", list_of)
        if len(vocabularies) != 2:
            raise DataError(
                f"{list_of} names {len(vocabularies)} vocabularies; nmt needs one for the source and one for the target"
            )
        return cls(options, models, vocabularies, listed)

    def pair(self, orders: Sequence[VocabularyOrder], *, same: bool) -> LanguagePair:
        source, target = (self._tokenizer(number, order) for number, order in enumerate(orders))
        return LanguagePair(self.options.source_lang, self.options.target_lang, source, target, same)

    def _tokenizer(self, number: int, order: VocabularyOrder) -> Tokenizer:
        """Return the tokenizer of source (0) or target (1)."""
        if self.options.bpe is Segmentation.none and self.options.bpe_model is None and not self.options.moses:
            if is_sentencepiece(self.vocabularies[number]):
                return sentencepiece_of(self.vocabularies[number], order.pieces)
            beside = self.models[0].parent / ("source.spm", "target.spm")[number]  # as OPUS-MT has it
            if beside.is_file():
                tagged = any(map(is_language_token, order.pieces))
                return sentencepiece_of(beside, order.pieces, language_tokens=tagged)
        return tokenizer_of(self.options, order.pieces, target=number == 1)

    def search(self) -> dict[str, Any]:
        """Return the search options that Marian uses by default."""
        beam = round(number_of(self.listed, "beam-size", default=0, highest=WIDEST_BEAM))
        return {
            "beam_size": beam or _BEAM,
            "length_penalty": LengthPenalty.power,
            "lenpen": number_of(self.listed, "normalize", default=0.0, highest=_HIGHEST_PENALTY),
            "stop": StopRule.shrink,
            "max_len_a": number_of(self.listed, "max-length-factor", default=_LONGEST, highest=LARGEST_FACTOR),
            "forbid_unknown": self.listed.get("allow-unk") is not True,
        }


def _listed(listed: Mapping[str, Any], name: str, list_of: Path) -> list[Path]:
    """Return the files in a list. A file that does not exist there is expected in the folder of the list."""
    names = listed.get(name)
    if not isinstance(names, list) or not names or not all(isinstance(entry, str) for entry in names):
        raise DataError(f"{list_of} has no {name}; name them on the command line")
    folder = list_of.parent if listed.get("relative-paths") else Path()
    paths = [folder / entry for entry in names]
    return [path if path.is_file() else list_of.parent / path.name for path in paths]


def _yaml(content: bytes, origin: str) -> dict[str, Any]:
    try:
        tree = parse_yaml(content.rstrip(b"\0"))
    except Malformed as error:
        raise DataError(f"{origin} is damaged: {error}") from None
    if not isinstance(tree, dict):
        raise DataError(f"{origin} is damaged: it is not a mapping of options in YAML")
    return tree


def _read_model(path: Path, pieces: Sequence[int]) -> TransformerWeights:
    """Read a model. ``pieces``: sizes of the vocabularies; a model may use only their first entries."""
    arrays = read_npz(path)
    if _OPTIONS not in arrays:
        raise DataError(f"{path} has no options ({_OPTIONS}); give a model that marian train wrote")
    options = _yaml(arrays.pop(_OPTIONS).tobytes(), f"{path}: {_OPTIONS}")
    _require(options, str(path))
    tensors = Tensors(arrays, str(path))
    weights = _read_weights(tensors, options)
    tensors.require_all_read()
    for stack, there, side in zip((weights.source, weights.target), pieces, ("source", "target")):
        if len(stack.embedding) > there:
            raise DataError(
                f"{path} has {len(stack.embedding)} {side} tokens, but the vocabulary has {there}; give the "
                f"vocabularies that it was trained with (--srcdict, --tgtdict)"
            )
    return weights


def _require(options: Mapping[str, Any], path: str) -> None:
    """Refuse options that our Transformer lacks."""
    for name, values in _HELD.items():
        if name in options and options[name] not in values:
            reads = " or ".join(str(value) or "nothing" for value in values if value is not None)
            raise DataError(f"{path} was trained with {name}={unquoted(options[name])}; supported: {reads}")
    inner = [options.get("transformer-dim-ffn"), options.get("transformer-decoder-dim-ffn")]
    if inner[1] and inner[1] != inner[0]:
        widths = " and ".join(map(unquoted, inner))
        raise DataError(
            f"{path} has the feed-forward widths {widths} in its encoder and decoder; nmt supports only equal ones"
        )


def _read_weights(tensors: Tensors, options: Mapping[str, Any]) -> TransformerWeights:
    origin = tensors.origin
    heads, width = required_count(options, "transformer-heads", origin), required_count(options, "dim-emb", origin)
    require_whole_heads(width, heads, origin)
    shared = _SHARED if _SHARED in tensors else None
    source, target = (tensors.take(shared or name, None, width) for name in LAYOUT.embeddings)
    output = target
    if f"{LAYOUT.output}_Wt" in tensors:
        output = tensors.take(f"{LAYOUT.output}_Wt", len(target), width)
    elif f"{LAYOUT.output}_W" in tensors:  # of older versions
        output = tensors.take(f"{LAYOUT.output}_W", width, len(target)).T
    norm_first = _has_norms_first(options, origin)
    layout = replace(LAYOUT, norms=_PRE_NORMS) if norm_first else LAYOUT
    if layout.layer_name("encoder", 0) + layout.norms[0].replace("*", _RMS_NORM[0]) in tensors:
        layout = replace(layout, norm_names=_RMS_NORM)
    activation = _ACTIVATIONS[str(options.get("transformer-ffn-activation", "swish"))]
    reader = LayoutReader(tensors, layout, width, heads, activation, _EPSILON)
    bias = reader.vector(f"{LAYOUT.output}_b", len(target)) if f"{LAYOUT.output}_b" in tensors else None
    stacks = [
        reader.stack(
            side,
            embedding,
            math.sqrt(width),
            Sinusoids(width, SinusoidLayout.halves, Wavelengths.tensor2tensor),
            norm_first=norm_first,
            count=required_count(options, f"{side[:3]}-depth", origin),
        )
        for side, embedding in zip(LAYOUT.sides, (source, target))
    ]
    start = PAD  # a row of zeros, which the file lacks: Marian's decoder begins with zeros
    return TransformerWeights(stacks[0], stacks[1], LinearWeights(output, bias), heads, start)


def _has_norms_first(options: Mapping[str, Any], origin: str) -> bool:
    """Whether a norm precedes each sublayer.

    Marian spells what happens before and after each sublayer, and after the last: d dropout, a add, n layer
    normalization, r RMSNorm. Dropout has no effect here.
    """
    names = [f"transformer-{place}" for place in ("preprocess", "postprocess", "postprocess-top")]
    steps = [str(options.get(name) or "").replace("d", "").replace("r", "n") for name in names]
    if steps not in (["n", "a", "n"], ["", "an", ""]):
        values = ", ".join(f"{name}={unquoted(options.get(name) or '')}" for name in names)
        raise DataError(
            f"{origin} has {values}; nmt supports norms after each sublayer (dan), or before each sublayer and at "
            f"the top (n, da, n)"
        )
    return bool(steps[0])
