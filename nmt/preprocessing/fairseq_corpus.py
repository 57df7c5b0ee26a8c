"""Import a data folder of fairseq-preprocess as a corpus folder.

dict.<lang>.txt                        see ``read_fairseq_dictionary``
<split>.<source>-<target>.<lang>.bin   the ids of all sentences in one array, each ending in fairseq's eos
<split>.<source>-<target>.<lang>.idx   the length of each sentence

There are two formats of both files. That of ``--dataset-impl mmap`` begins with "MMIDIDX" and stores ids unchanged. That of
``lazy`` and ``cached`` begins with "TNTIDX" and stores each id plus 1.
"""

from __future__ import annotations

import hashlib
import logging
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.config.preprocessing import FilterConfig
from nmt.data.corpus.folder import KIND
from nmt.data.imported.vocabularies import FAIRSEQ_SPECIALS, read_fairseq_dictionary
from nmt.data.language_pair import LanguagePair
from nmt.data.text.provenance import text_record
from nmt.data.tokenizers import Tokenizer
from nmt.data.vocabulary import EOS, SPECIALS, UNK, Ids, Ints
from nmt.errors import DataError, MissingInputError, quantity
from nmt.preprocessing.corpus_writer import CorpusWriter
from nmt.preprocessing.filters import PairFilter
from nmt.preprocessing.input_text import TRAIN
from nmt.preprocessing.pairs import COLUMNS, EncodedPairs, EncodedSide, Keys, token_type
from nmt.progress import ReportPairs, unseen
from nmt.reporting.preprocess_report import PreprocessReport
from nmt.storage.files import check_destination, new_folder
from nmt.storage.lock import remove_leftovers_of

_FAIRSEQ_EOS = FAIRSEQ_SPECIALS.index("</s>")
_CHUNK = 10_000  # sentences
_ABSENT = -1  # instead of an id
_MAPPED, _PLUS_ONE, _COMPRESSED = b"MMIDIDX\x00\x00", b"TNTIDX\x00\x00", b"HUFFIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQ")  # magic, version, type, sentences
_OLD_HEADER = struct.Struct("<8sQQQQQ")  # magic, version, type, bytes of a number, sentences, sizes
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}

logger = logging.getLogger("nmt.preprocessing")


@dataclass(frozen=True)
class _TokenIds:
    """The ids of fairseq of one language, and ours."""

    language: str
    tokenizer: Tokenizer
    symbols: Sequence[str]
    ours: Ints  # by fairseq's id; _ABSENT: unknown to the tokenizer

    @classmethod
    def read(cls, folder: Path, language: str, tokenizer: Tokenizer) -> _TokenIds:
        """Match tokens by their spelling; special symbols within a sentence become unknown."""
        symbols = read_fairseq_dictionary(folder / f"dict.{language}.txt")
        known = tokenizer.vocabulary
        ids = [UNK] * len(FAIRSEQ_SPECIALS) + [known.id(symbol) for symbol in symbols[len(FAIRSEQ_SPECIALS) :]]
        numbers = [
            _ABSENT if number == UNK and symbol not in SPECIALS else number for number, symbol in zip(ids, symbols)
        ]
        return cls(language, tokenizer, symbols, np.array(numbers, dtype=np.int64))

    def encoded(self, text: FairseqTokens, begin: int, end: int) -> EncodedSide:
        ids, lengths = text.sentences(begin, end)
        if bool(np.any((ids < 0) | (ids >= len(self.ours)))):
            raise DataError(
                f"{text.path}.bin is damaged: it holds ids beyond the {len(self.ours)} tokens of its dictionary"
            )
        ends = np.cumsum(lengths)
        whole = (lengths > 0) & (np.append(ids, UNK)[ends - 1] == _FAIRSEQ_EOS)
        ids, lengths = np.insert(ids, ends[~whole], _FAIRSEQ_EOS), lengths + ~whole
        tokens = self.ours[ids]
        tokens[np.cumsum(lengths) - 1] = EOS
        if bool(np.any(tokens == _ABSENT)):
            piece = self.symbols[int(ids[int(np.argmax(tokens == _ABSENT))])]
            raise DataError(
                f"{text.path}.bin holds the token {piece!r}, which the tokenizer of '{self.language}' does not know: it was "
                f"made with a different dictionary than the model's"
            )
        return EncodedSide(tokens.astype(token_type(self.tokenizer.vocabulary)), lengths)


def import_corpus(
    folder: Path,
    pair: LanguagePair,
    destination: Path,
    *,
    filters: FilterConfig | None = None,
    overwrite: bool = False,
    option: str = "--destdir",
    progress: ReportPairs = unseen,
) -> PreprocessReport:
    """Import a data folder of fairseq as the corpus folder ``destination``, in either direction of ``pair``.

    ``option`` is the flag that named ``destination``, for messages. ``filters`` apply to the training split. The corpus has
    no text, since the folder has none.
    """
    remove_leftovers_of(destination)
    check_destination(destination, KIND, option, overwrite=overwrite)
    splits = _find_splits(folder, pair)
    only_source = all(len(paths) == 1 for paths in splits.values())
    vocabularies = [_TokenIds.read(folder, *side) for side in pair.sides(only_source)]
    pair_filter = PairFilter(filters or FilterConfig())
    with new_folder(destination, overwrite=overwrite) as made:
        writer = CorpusWriter(made, pair, progress, only_source=only_source)
        for split, paths in splits.items():
            texts = [read_fairseq_tokens(path) for path in paths]
            if any(len(text) != len(texts[0]) for text in texts):
                raise DataError(
                    f"{paths[0]} has {quantity(len(texts[0]), 'sentence')}, but {paths[-1]} has {len(texts[-1])}"
                )
            filters_here = pair_filter if split == TRAIN else None
            writer.write(split, _chunks(texts, vocabularies), len(texts[0]), filters_here)
            if split == TRAIN:
                writer.tallies[split].require_enough()
        records = [text_record(Path(f"{path}.bin")) for paths in splits.values() for path in paths]
        return writer.complete(str(destination), imported_from="fairseq", text=records)


def _find_splits(folder: Path, pair: LanguagePair) -> dict[str, list[Path]]:
    """Return the files of each split, without .bin and .idx: source and target, or the source alone if no split has more."""
    if not folder.is_dir():
        raise MissingInputError(f"{folder} is not a folder; give the one that fairseq-preprocess wrote")
    source, target = pair.source_lang, pair.target_lang
    names = sorted(path.name for path in folder.iterdir())
    files: dict[str, list[Path]] = {}
    for direction in (f"{source}-{target}", f"{target}-{source}", f"{source}-None"):
        for name in names:
            split, ending, rest = name.partition(f".{direction}.{source}.idx")
            if ending and not rest and split:
                paths = [folder / f"{split}.{direction}.{language}" for language in (source, target)]
                existing = [path for path in paths if f"{path.name}.idx" in names]
                if len(existing) > len(files.get(split, ())):
                    files[split] = existing
    if not files:
        raise MissingInputError(
            f"{folder} holds no split of fairseq from {source} to {target}, such as train.{source}-{target}.{source}.idx; "
            f"name the languages as its files do"
        )
    most = max(map(len, files.values()))
    for split in (incomplete := [split for split, paths in files.items() if len(paths) < most]):
        logger.warning(f"{folder}: split '{split}' has no file of '{target}', and is skipped")
    order = {TRAIN: 0, "valid": 1, "test": 2}
    kept = sorted(files.keys() - incomplete, key=lambda split: (order.get(split.rstrip("0123456789"), 3), split))
    return {split: files[split] for split in kept}


def _chunks(texts: Sequence[FairseqTokens], vocabularies: Sequence[_TokenIds]) -> Iterator[EncodedPairs]:
    """Encode the sentences; no filter for text applies, since only ids are known."""
    for begin in range(0, len(texts[0]), _CHUNK):
        end = min(begin + _CHUNK, len(texts[0]))
        sides = [vocabulary.encoded(text, begin, end) for vocabulary, text in zip(vocabularies, texts)]
        sentences = [_sentences(side) for side in sides]
        columns = np.zeros(end - begin, dtype=COLUMNS)
        columns["number"] = np.arange(begin, end)
        columns["source_key"] = _keys(sentences[0])
        columns["pair_key"] = _keys([b"".join(pair) for pair in zip(*sentences)])
        for name, side in zip(("blank_source", "blank_target"), sides):
            columns[name] = side.lengths == 1
        yield EncodedPairs(sides, columns)


def _sentences(side: EncodedSide) -> list[bytes]:
    ends = np.cumsum(side.lengths)
    return [side.tokens[begin:end].tobytes() for begin, end in zip((ends - side.lengths).tolist(), ends.tolist())]


def _keys(sentences: Sequence[bytes]) -> Keys:
    """Return 64 bits of each sentence, as for text."""
    digests = (hashlib.blake2b(sentence, digest_size=8).digest() for sentence in sentences)
    return np.frombuffer(b"".join(digests), dtype="<u8")


@dataclass(frozen=True)
class FairseqTokens:
    """One language of a split as fairseq stored it, mapped into memory."""

    path: Path  # without .bin and .idx
    tokens: Ids
    offsets: Ints  # [sentences + 1]
    lowest: int  # the stored number of fairseq's id 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sentences(self, begin: int, end: int) -> tuple[Ints, Ints]:
        """Return the ids of some sentences in one array, and their lengths; eos only if fairseq stored it."""
        offsets = self.offsets[begin : end + 1]
        return self.tokens[offsets[0] : offsets[-1]].astype(np.int64) - self.lowest, np.diff(offsets)


def read_fairseq_tokens(path: Path) -> FairseqTokens:
    """Map both files; ``path`` is without .bin and .idx."""
    index, content = Path(f"{path}.idx"), Path(f"{path}.bin")
    numbers = _mapped(index)
    head = numbers[: _OLD_HEADER.size].tobytes()
    if head.startswith(_COMPRESSED):
        raise DataError(f"{index} is in fairseq's compressed format; write it again with --dataset-impl mmap")
    if head.startswith(_MAPPED) and len(head) >= _HEADER.size:
        lengths, starts, code = _index(index, numbers)
    elif head.startswith(_PLUS_ONE) and len(head) == _OLD_HEADER.size:
        lengths, starts, code = _old_index(index, numbers)
    else:
        raise DataError(f"{index} is damaged: it does not begin like a fairseq index")
    tokens = _mapped(content)
    type_ = np.dtype(_TYPES[code])
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if bool(np.any(lengths < 0)) or bool(np.any(starts != offsets[:-1])) or offsets[-1] * type_.itemsize != len(tokens):
        raise DataError(f"{index} is damaged: its sentences are not contiguous in {content.name}")
    return FairseqTokens(path, tokens.view(type_), offsets, int(head.startswith(_PLUS_ONE)))


def _index(path: Path, numbers: Ids) -> tuple[Ints, Ints, int]:
    """Return the lengths of the sentences, their starts, and the type of the numbers."""
    _, version, code, count = _HEADER.unpack(numbers[: _HEADER.size].tobytes())
    _check_header(path, version, code, len(numbers), _HEADER.size + count * 12)
    lengths = numbers[_HEADER.size : _HEADER.size + 4 * count].view("<i4").astype(np.int64)
    places = numbers[_HEADER.size + 4 * count :].view("<i8").astype(np.int64)
    return lengths, places // np.dtype(_TYPES[code]).itemsize, code


def _old_index(path: Path, numbers: Ids) -> tuple[Ints, Ints, int]:
    """The same of the old format, whose sentences are tensors of one dimension."""
    _, version, code, size, count, sizes = _OLD_HEADER.unpack(numbers[: _OLD_HEADER.size].tobytes())
    _check_header(path, version, code, len(numbers), _OLD_HEADER.size + 8 * (2 * (count + 1) + sizes))
    dimensions, starts, lengths = np.split(numbers[_OLD_HEADER.size :].view("<i8"), [count + 1, 2 * (count + 1)])
    if sizes != count or size != np.dtype(_TYPES[code]).itemsize or bool(np.any(np.diff(dimensions) != 1)):
        raise DataError(f"{path} is damaged: it does not describe sentences")
    return lengths.astype(np.int64), starts[:-1].astype(np.int64), code


def _check_header(path: Path, version: int, code: int, size: int, needed: int) -> None:
    if version != 1 or code not in _TYPES:
        raise DataError(f"{path} has version {version} and number type {code}, which nmt does not support")
    if size != needed:
        raise DataError(f"{path} is damaged: {size} bytes instead of {needed}")


def _mapped(path: Path) -> Ids:
    try:
        if path.stat().st_size == 0:
            return np.zeros(0, dtype=np.uint8)
        return np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None
