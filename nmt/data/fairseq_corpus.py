"""Data folders of fairseq-preprocess: reading them, and making a corpus folder of one.

    dict.<lang>.txt                        see ``read_fairseq_dictionary``
    <split>.<source>-<target>.<lang>.bin   the ids of all sentences, one after the other, each ending in fairseq's eos
    <split>.<source>-<target>.<lang>.idx   how many each sentence has

There are two formats of both files. That of ``--dataset-impl mmap`` begins with "MMIDIDX" and has ids as they are; that of
``lazy`` and ``cached`` begins with "TNTIDX" and has every id one higher.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.plain import to_plain
from nmt.config.preprocessing import FilterConfig
from nmt.data.corpus import FORMAT, KIND, ragged_writer, sentence_files
from nmt.data.encoding import EncodedPairs, EncodedSide, Keys, token_type
from nmt.data.filters import PairFilter, Reason
from nmt.data.finding_text import TRAIN
from nmt.data.imported_vocabularies import FAIRSEQ_SPECIALS, read_fairseq_dictionary
from nmt.data.language_pair import LanguagePair
from nmt.data.preprocess import text_facts
from nmt.data.report import PreprocessReport, SplitTally
from nmt.data.tokenizers import Tokenizer
from nmt.data.vocabulary import EOS, SPECIALS, UNK, Ids, Ints
from nmt.errors import DataError, MissingInputError
from nmt.progress import ReportPairs, unseen
from nmt.storage.files import check_destination, new_folder, write_manifest
from nmt.storage.lock import remove_leftovers_of

_MAPPED, _COUNTED_FROM_ONE, _CODED = b"MMIDIDX\x00\x00", b"TNTIDX\x00\x00", b"HUFFIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQ")  # magic, version, type, sentences
_OLD_HEADER = struct.Struct("<8sQQQQQ")  # magic, version, type, bytes of a number, sentences, sizes
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}
_THEIR_EOS = FAIRSEQ_SPECIALS.index("</s>")
_CHUNK = 10_000  # sentences
_ABSENT = -1  # instead of an id

logger = logging.getLogger("nmt.data.fairseq_corpus")


@dataclass(frozen=True)
class BinarisedText:
    """One language of a split as fairseq stored it. The numbers stay on the disk until they are looked at."""

    path: Path  # without .bin and .idx
    tokens: Ids
    offsets: Ints  # [sentences + 1]
    lowest: int  # what stands for fairseq's id 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sentence(self, index: int) -> Ints:
        """The ids in fairseq's dictionary, eos included if it was written."""
        return self.part(index, index + 1)[0]

    def part(self, begin: int, end: int) -> tuple[Ints, Ints]:
        """The ids of some sentences, one after the other, and how many each has."""
        offsets = self.offsets[begin : end + 1]
        return self.tokens[offsets[0] : offsets[-1]].astype(np.int64) - self.lowest, np.diff(offsets)


def read_binarised(path: Path) -> BinarisedText:
    """``path`` is without .bin and .idx. Both files are mapped, and the index is compared with their sizes."""
    index, content = Path(f"{path}.idx"), Path(f"{path}.bin")
    numbers = _mapped(index)
    head = numbers[: _OLD_HEADER.size].tobytes()
    if head.startswith(_CODED):
        raise DataError(f"{index} is of fairseq's compressed format; write it again with --dataset-impl mmap")
    if head.startswith(_MAPPED) and len(head) >= _HEADER.size:
        lengths, starts, code = _index(index, numbers)
    elif head.startswith(_COUNTED_FROM_ONE) and len(head) == _OLD_HEADER.size:
        lengths, starts, code = _old_index(index, numbers)
    else:
        raise DataError(f"{index} is damaged: it does not begin as an index of fairseq does")
    tokens = _mapped(content)
    type_ = np.dtype(_TYPES[code])
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if bool(np.any(lengths < 0)) or bool(np.any(starts != offsets[:-1])) or offsets[-1] * type_.itemsize != len(tokens):
        raise DataError(f"{index} is damaged: its sentences do not lie one after the other in {content.name}")
    return BinarisedText(path, tokens.view(type_), offsets, int(head.startswith(_COUNTED_FROM_ONE)))


def _index(path: Path, numbers: Ids) -> tuple[Ints, Ints, int]:
    """Lengths of the sentences, where each begins, and the type of the numbers."""
    _, version, code, count = _HEADER.unpack(numbers[: _HEADER.size].tobytes())
    _check_header(path, version, code, len(numbers), _HEADER.size + count * 12)
    lengths = numbers[_HEADER.size : _HEADER.size + 4 * count].view("<i4").astype(np.int64)
    places = numbers[_HEADER.size + 4 * count :].view("<i8").astype(np.int64)
    return lengths, places // np.dtype(_TYPES[code]).itemsize, code


def _old_index(path: Path, numbers: Ids) -> tuple[Ints, Ints, int]:
    """The same. It could hold tensors of any shape; those of sentences have one dimension."""
    _, version, code, size, count, sizes = _OLD_HEADER.unpack(numbers[: _OLD_HEADER.size].tobytes())
    _check_header(path, version, code, len(numbers), _OLD_HEADER.size + 8 * (2 * (count + 1) + sizes))
    dimensions, starts, lengths = np.split(numbers[_OLD_HEADER.size :].view("<i8"), [count + 1, 2 * (count + 1)])
    if sizes != count or size != np.dtype(_TYPES[code]).itemsize or bool(np.any(np.diff(dimensions) != 1)):
        raise DataError(f"{path} is damaged: it describes something else than sentences")
    return lengths.astype(np.int64), starts[:-1].astype(np.int64), code


def _check_header(path: Path, version: int, code: int, size: int, needed: int) -> None:
    if version != 1 or code not in _TYPES:
        raise DataError(f"{path} is of version {version} with numbers of type {code}, which nmt does not know")
    if size != needed:
        raise DataError(f"{path} is damaged: {size} bytes instead of {needed}")


def _mapped(path: Path) -> Ids:
    try:
        if path.stat().st_size == 0:
            return np.zeros(0, dtype=np.uint8)
        return np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None


@dataclass(frozen=True)
class _Side:
    """A language of the corpus, and how its ids become ours."""

    language: str
    tokenizer: Tokenizer
    symbols: Sequence[str]
    ours: Ints  # by fairseq's id; _ABSENT: the tokenizer does not know the piece

    @classmethod
    def read(cls, folder: Path, language: str, tokenizer: Tokenizer) -> _Side:
        """Pieces are told by their spelling; specials within a sentence are text that has no piece."""
        symbols = read_fairseq_dictionary(folder / f"dict.{language}.txt")
        known = tokenizer.vocabulary
        ids = [UNK] * len(FAIRSEQ_SPECIALS) + [known.id(symbol) for symbol in symbols[len(FAIRSEQ_SPECIALS) :]]
        found = [
            _ABSENT if number == UNK and symbol not in SPECIALS else number for number, symbol in zip(ids, symbols)
        ]
        return cls(language, tokenizer, symbols, np.array(found, dtype=np.int64))

    def encoded(self, text: BinarisedText, begin: int, end: int) -> EncodedSide:
        ids, lengths = text.part(begin, end)
        if bool(np.any((ids < 0) | (ids >= len(self.ours)))):
            raise DataError(f"{text.path}.bin is damaged: it holds ids beyond the {len(self.ours)} of its dictionary")
        ends = np.cumsum(lengths)
        whole = (lengths > 0) & (np.append(ids, UNK)[ends - 1] == _THEIR_EOS)
        ids, lengths = np.insert(ids, ends[~whole], _THEIR_EOS), lengths + ~whole
        tokens = self.ours[ids]
        tokens[np.cumsum(lengths) - 1] = EOS
        if bool(np.any(tokens == _ABSENT)):
            piece = self.symbols[int(ids[int(np.argmax(tokens == _ABSENT))])]
            raise DataError(
                f"{text.path}.bin holds the piece {piece!r}, which the tokenizer of '{self.language}' does not know: it was "
                f"made with another dictionary than the model's"
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
    """Make the corpus folder ``destination`` of a data folder of fairseq in the languages of ``pair``, in either direction.

    ``option`` is the flag that named ``destination``, for messages. ``filters`` choose from the training split as
    nmt-preprocess does. There is no text in the folder, so that the corpus has none beside its ids.
    """
    remove_leftovers_of(destination)
    check_destination(destination, KIND, option, overwrite=overwrite)
    splits = _find_splits(folder, pair)
    only_source = all(len(paths) == 1 for paths in splits.values())
    both = ((pair.source_lang, pair.source), (pair.target_lang, pair.target))
    sides = [_Side.read(folder, *side) for side in both[: 1 if only_source else 2]]
    with new_folder(destination, overwrite=overwrite) as made:
        pair.save(made / "tokenizer")
        rules = PairFilter(filters or FilterConfig())
        tallies = [_write(made, name, paths, sides, rules, progress) for name, paths in splits.items()]
        report = PreprocessReport(
            folder=str(destination),
            source_entries=len(pair.source.vocabulary),
            target_entries=len(pair.target.vocabulary),
            shared=pair.shared,
            splits=[tally.report(*(side.language for side in sides)) for tally in tallies],
            overlaps=[later.overlap(one) for number, later in enumerate(tallies) for one in tallies[:number]],
        )
        write_manifest(
            made,
            KIND,
            FORMAT,
            splits=list(splits),
            source_lang=pair.source_lang,
            target_lang=pair.target_lang,
            only_source=only_source,
            vocabularies=pair.digest(),
            report=to_plain(report),
            imported_from="fairseq",
            text=[text_facts(Path(f"{path}.bin")) for paths in splits.values() for path in paths],
        )
    return report


def _find_splits(folder: Path, pair: LanguagePair) -> dict[str, list[Path]]:
    """The files of each split without their endings: source and target, or the source alone where no split has more."""
    if not folder.is_dir():
        raise MissingInputError(f"{folder} is not a folder; give the one that fairseq-preprocess wrote")
    source, target = pair.source_lang, pair.target_lang
    names = sorted(path.name for path in folder.iterdir())
    found: dict[str, list[Path]] = {}
    for direction in (f"{source}-{target}", f"{target}-{source}", f"{source}-None"):
        for name in names:
            split, ending, rest = name.partition(f".{direction}.{source}.idx")
            if ending and not rest and split:
                paths = [folder / f"{split}.{direction}.{language}" for language in (source, target)]
                there = [path for path in paths if f"{path.name}.idx" in names]
                if len(there) > len(found.get(split, ())):
                    found[split] = there
    if not found:
        raise MissingInputError(
            f"{folder} holds no split of fairseq from {source} to {target}, such as train.{source}-{target}.{source}.idx; "
            f"name the languages as its files do"
        )
    most = max(map(len, found.values()))
    for split in (alone := [split for split, paths in found.items() if len(paths) < most]):
        logger.warning(f"{folder}: split '{split}' has no file of '{target}', and is left out")
    order = {TRAIN: 0, "valid": 1, "test": 2}
    kept = sorted(found.keys() - alone, key=lambda split: (order.get(split.rstrip("0123456789"), 3), split))
    return {split: found[split] for split in kept}


def _write(
    folder: Path, split: str, paths: list[Path], sides: list[_Side], rules: PairFilter, progress: ReportPairs
) -> SplitTally:
    """One split; only training pairs are filtered."""
    texts = [read_binarised(path) for path in paths]
    count = len(texts[0])
    if any(len(text) != count for text in texts):
        raise DataError(f"{paths[0]} has {count} sentences, but {paths[-1]} has {len(texts[-1])}")
    tally = SplitTally(split)
    with contextlib.ExitStack() as stack:
        appending = [
            stack.enter_context(
                ragged_writer(*sentence_files(folder, split, side.language), token_type(side.tokenizer.vocabulary))
            )
            for side in sides
        ]
        for pairs in _chunks(texts, sides):
            codes = rules.judge(pairs) if split == TRAIN else np.zeros(len(pairs.invalid), dtype=np.int8)
            kept = pairs.take(codes == Reason.kept)
            tally.add(codes, kept)
            for append, encoded in zip(appending, (kept.source, kept.target)):
                assert encoded is not None
                append(encoded.tokens, encoded.lengths)
            progress(split, tally.counts["read"], count)
    if split == TRAIN:
        tally.require_enough()
    return tally


def _chunks(texts: list[BinarisedText], sides: list[_Side]) -> Iterator[EncodedPairs]:
    for begin in range(0, len(texts[0]), _CHUNK):
        end = min(begin + _CHUNK, len(texts[0]))
        source, *rest = (side.encoded(text, begin, end) for side, text in zip(sides, texts))
        target = rest[0] if rest else None
        none = np.zeros(end - begin, dtype=bool)
        keys: list[Any] = [_sentences(side) for side in (source, *rest)]
        yield EncodedPairs(
            source=source,
            target=target,
            invalid=none,
            blank_source=source.lengths == 1,
            blank_target=none if target is None else target.lengths == 1,
            copied=none,  # ids of two vocabularies do not tell
            source_keys=_keys(keys[0]),
            pair_keys=_keys([b"".join(pair) for pair in zip(*keys)]),
            source_words=np.zeros(end - begin, dtype=np.int64),
            target_words=np.zeros(end - begin, dtype=np.int64),
            text_reasons=np.zeros(end - begin, dtype=np.int8),  # nothing is known of the text
        )


def _sentences(side: EncodedSide) -> list[bytes]:
    ends = np.cumsum(side.lengths)
    return [side.tokens[begin:end].tobytes() for begin, end in zip((ends - side.lengths).tolist(), ends.tolist())]


def _keys(sentences: Sequence[bytes]) -> Keys:
    """64 bits of each sentence, as of text that nmt-preprocess reads."""
    digests = (hashlib.blake2b(sentence, digest_size=8).digest() for sentence in sentences)
    return np.frombuffer(b"".join(digests), dtype="<u8")
