"""Tokenizers of M2M100, NLLB and mBART-50: a sentencepiece model, the ids of its tokens, and tokens that name languages.

NLLB and mBART-50 number the tokens <s>, <pad>, </s> and <unk>, those of the sentencepiece model, the languages and <mask>.
M2M100 has a vocab.json and then the languages. Embeddings may have a few more rows, which fairseq added for speed.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.config.exchange import ImportConfig
from nmt.data.imported.tokenizer_json import TokenizerJson, added_tokens
from nmt.data.imported.vocabularies import FAIRSEQ_SPECIALS, read_huggingface_vocabulary
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers.sentencepiece_files import damage_named, read_foreign_model
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList, SentencePieceListConfig
from nmt.errors import DataError, MissingInputError
from nmt.models.transformer.weights import TransformerWeights
from nmt.storage.reading import read_mapping

MULTILINGUAL = ("m2m_100", "mbart")
SENTENCEPIECE, MASK = "sentencepiece.bpe.model", "<mask>"
_JSON, _OPTIONS = "tokenizer.json", "tokenizer_config.json"
_LANGUAGE = re.compile(r"__([a-z]{2,3})__|([a-z]{2,3}_[A-Z][A-Za-z]{1,3})")  # M2M100's; those of the others
_FILLERS = {"m2m_100": (2,), "mbart": (0,)}  # rows of NLLB and mBART-50 after the last token
_MOST_FILLERS = 8  # rows after the last token: fairseq's sizes are multiples of 8, and M2M100 has 8 more
# Languages of M2M100 in the order of their ids, by the option language_codes; newer folders do not list them.
M2M100_LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht "
    "hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}


def _checksum(codes: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(codes).encode()).hexdigest()[:16]


# Checksums of the languages of M2M100, WMT21, NLLB-200 and mBART-50, in the order of their ids.
_ORDERS = {*map(_checksum, map(str.split, M2M100_LANGUAGES.values())), "352fad64dcddc764", "0da159ac33c9f831"}


@dataclass(frozen=True)
class MultilingualTokenizer:
    """The tokenizer of a folder."""

    folder: Path
    options: Mapping[str, Any]  # of the tokenizer
    model: bytes
    symbols: list[str]  # tokens in the order of their ids
    languages: LanguageTokens
    fillers: Sequence[int]  # numbers of embedding rows without a token that the model may have

    @classmethod
    def read(cls, folder: Path, config: Mapping[str, Any]) -> MultilingualTokenizer:
        """``config``: of the model."""
        options = _mapping(folder / _OPTIONS)
        _require_prefix(folder, config, options)
        model, ids = stored_tokenizer(folder, SENTENCEPIECE)
        if (folder / "vocab.json").is_file():
            first = read_huggingface_vocabulary(folder / "vocab.json")
        else:
            with damage_named(folder / SENTENCEPIECE):
                processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            first = [*FAIRSEQ_SPECIALS, *processor.id_to_piece(list(range(3, processor.vocab_size())))]
        ids |= _ids_of_added(folder, options)
        listed = [*dict.fromkeys(_listed(folder, options))]
        has_both = (folder / SENTENCEPIECE).is_file() and (folder / _JSON).is_file()
        if has_both:  # ids are certain, the order of a list is not
            ids |= added_tokens(folder / _JSON)
        unnumbered = [code for token in listed if token not in ids and (code := _code(token))]
        if unnumbered and _checksum(unnumbered) not in _ORDERS:
            raise DataError(
                f"{folder}: the tokenizer lists {len(unnumbered)} languages without ids, and their order is unknown; copy "
                "tokenizer.json of the original model into the folder, or its special_tokens_map.json if it has none"
            )
        symbols = _in_order(folder, first, ids, listed)
        tokens = {code: token for token in symbols[len(first) :] if (code := _code(token))}
        if not tokens:
            raise DataError(
                f"{folder}: the files of the tokenizer list no languages; copy tokenizer.json of the original model into it"
            )
        fillers: Sequence[int] = range(_MOST_FILLERS + 1)
        if unnumbered:  # they follow the other tokens, so the number of these must be that of the original
            fillers = (0, 8) if (folder / "vocab.json").is_file() else _FILLERS[str(config["model_type"])]
        languages = LanguageTokens(tokens, SourceToken.source, target=True)
        own = config.get("langs")  # of nmt-export
        if isinstance(own, list) and len(own) == 2:
            options |= {"src_lang": own[0], "tgt_lang": own[1]}
        return cls(folder, options, model, symbols, languages, fillers)

    def require_rows(self, weights: TransformerWeights) -> None:
        """Refuse embeddings of another size."""
        require_rows(self.folder, weights, len(self.symbols), self.fillers)

    def pair(self, pieces: Sequence[str], options: ImportConfig, forced: object) -> LanguagePair:
        """``pieces``: without special tokens; ``forced``: the id that translations begin with by default, or None."""
        with damage_named(self.folder / SENTENCEPIECE):
            tokenizer = SentencePieceList(SentencePieceListConfig(hide_others=True), self.model, pieces)
        own = [self.options.get(f"{side}_lang") for side in ("src", "tgt")]
        if None in own:  # transformers stores a source language that nobody chose
            token = self.symbols[forced] if type(forced) is int and 0 <= forced < len(self.symbols) else None
            own = [None, token]
        stored = [self.languages.code(str(name)) or "" for name in own]
        chosen = [self.languages.known(name) for name in (options.source_lang, options.target_lang)]
        source, target = (code or default for code, default in zip(chosen, stored))
        return LanguagePair(source, target, tokenizer, tokenizer, True, self.languages).checked()


def require_rows(folder: Path, weights: TransformerWeights, tokens: int, fillers: Sequence[int]) -> None:
    """Refuse embeddings of another size. ``fillers``: allowed numbers of rows of no token, which are dropped."""
    rows = len(weights.source.embedding)
    if rows - tokens not in fillers:
        raise DataError(
            f"{folder} has embeddings of {rows:,} tokens, but its tokenizer has {tokens:,}; take both from the same model"
        )


def _require_prefix(folder: Path, config: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse models whose sources end in the language token: mBART-25, and old uses of NLLB."""
    name = str(options.get("tokenizer_class") or config.get("tokenizer_class"))
    start, eos = config.get("decoder_start_token_id"), config.get("eos_token_id")
    if name.removesuffix("Fast") == "MBartTokenizer" or options.get("legacy_behaviour") is True or start != eos:
        raise DataError(
            f"{folder} is a model whose sources end in the token of their language, as in mBART-25; nmt reads models whose "
            "sources begin with it (M2M100, NLLB, mBART-50)"
        )


def stored_tokenizer(folder: Path, name: str) -> tuple[bytes, dict[str, int]]:
    """Return the sentencepiece model ``name``, or that of tokenizer.json, with the ids of its tokens."""
    if (folder / name).is_file():
        return read_foreign_model(folder / name), {}
    if not (folder / _JSON).is_file():
        raise MissingInputError(f"{folder} holds no tokenizer: neither {name} nor {_JSON}")
    stored = TokenizerJson.read(folder / _JSON)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / name
        path.write_bytes(stored.model)
        try:
            return read_foreign_model(path), {**stored.ids}
        except DataError:
            raise DataError(f"{folder / _JSON} is damaged: its tokens are not those of a sentencepiece model") from None


def _ids_of_added(folder: Path, options: Mapping[str, Any]) -> dict[str, int]:
    """Return the ids of added tokens, as transformers stores them since version 4.34, and before."""
    tree = options.get("added_tokens_decoder")
    newer = {_content(token): number for number, token in tree.items()} if isinstance(tree, dict) else {}
    try:
        return {token: int(number) for token, number in {**_mapping(folder / "added_tokens.json"), **newer}.items()}
    except (TypeError, ValueError):
        raise DataError(f"{folder} has an added token whose id is not a number") from None


def _listed(folder: Path, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield added tokens that are listed without ids, in their order; then those of M2M100 and <mask>."""
    for tree in (_mapping(folder / "special_tokens_map.json"), options):
        for name in ("additional_special_tokens", "extra_special_tokens"):
            listed = tree.get(name)
            yield from map(_content, listed if isinstance(listed, list) else [])
    if (folder / "vocab.json").is_file():
        yield from (f"__{code}__" for code in M2M100_LANGUAGES.get(str(options.get("language_codes")), "").split())
    elif not (folder / _JSON).is_file():
        yield MASK


def _in_order(folder: Path, first: list[str], ids: Mapping[str, int], listed: Sequence[str]) -> list[str]:
    """Return all tokens by id: ``first``, those with ids, those without."""
    by_id = dict(enumerate(first))
    for token, number in ids.items():
        if by_id.setdefault(number, token) != token:
            raise DataError(
                f"{folder}: the id {number} is that of {by_id[number]!r} and {token!r}; take all files of the tokenizer "
                "from the same model"
            )
    missing = next((number for number in range(len(by_id)) if number not in by_id), None)
    if missing is not None:
        raise DataError(f"{folder}: no token has the id {missing}; take all files of the tokenizer from the same model")
    known = {*by_id.values()}
    return [*(by_id[number] for number in range(len(by_id))), *(token for token in listed if token not in known)]


def _code(token: str) -> str | None:
    match = _LANGUAGE.fullmatch(token)
    return match and (match[1] or match[2])


def _content(token: object) -> str:
    """Return the text of an added token, which may have properties."""
    return str(token["content"] if isinstance(token, dict) and "content" in token else token)


def _mapping(path: Path) -> dict[str, Any]:
    return read_mapping(path) if path.is_file() else {}
