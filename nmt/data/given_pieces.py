"""Text that is to be cut by another toolkit's segmenter: its list of pieces is given, or counted in the training text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from nmt.config.choices import Segmentation
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.imported_vocabularies import FAIRSEQ_SPECIALS, read_fairseq_dictionary, read_marian_vocabulary
from nmt.data.language_pair import LanguagePair
from nmt.data.parallel_text import ParallelText
from nmt.data.segmentation import tokenizer_of
from nmt.data.text import Reading
from nmt.data.vocabulary import SPECIALS
from nmt.errors import DataError, UsageError
from nmt.progress import going_on
from nmt.storage.foreign import is_dictionary_of_fairseq


def cut_pair(config: PreprocessConfig, text: ParallelText | None, reading: Reading) -> LanguagePair:
    """Both tokenizers by ``--bpe`` and its files; ``text``: the training split."""
    named = [config.srcdict, config.tgtdict]
    if config.joined_dictionary and None not in named and named[0] != named[1]:
        raise UsageError("--joined-dictionary has one vocabulary: give --srcdict or --tgtdict, not two different ones")
    shared = config.joined_dictionary or (named[0] == named[1] is not None)
    if shared:
        pieces = _pieces(config, named[0] or named[1], text, reading, 0, 1)
        lists = [pieces, pieces]
    else:
        lists = [_pieces(config, one, text, reading, side) for side, one in enumerate(named[: 2 - config.only_source])]
    source = tokenizer_of(config, lists[0])
    one_tokenizer = shared and not config.moses and config.target_bpe_model is None
    target = source if one_tokenizer or len(lists) == 1 else tokenizer_of(config, lists[1], target=True)
    return LanguagePair(config.source_lang, config.target_lang, source, target, shared or len(lists) == 1)


def _pieces(
    config: PreprocessConfig, named: str | None, text: ParallelText | None, reading: Reading, *sides: int
) -> list[str]:
    """Of a list that is named, or of the training text on these sides (0: source, 1: target), the most frequent first."""
    if named is not None:
        return _listed(Path(named))
    if config.bpe is Segmentation.sentencepiece:
        raise UsageError(
            "--bpe sentencepiece is for a list of pieces beside the model: name it (--srcdict dict.txt); a model alone is "
            "given as --srcdict MODEL, without --bpe"
        )
    if text is None:
        raise UsageError(
            "pieces are counted in the training text: give --trainpref, or their list with --srcdict and --tgtdict"
        )
    counts: Counter[str] = Counter()
    with going_on("counting pieces", config.progress):
        for side in sides[: 1 + text.has_target]:
            cutting = tokenizer_of(config, [], target=side == 1)
            for line in text.side(side, reading):
                counts.update(cutting.surfaces(line or ""))
    for special in SPECIALS:
        counts.pop(special, None)
    return sorted(counts, key=lambda piece: (-counts[piece], piece))


def _listed(path: Path) -> list[str]:
    """In the order of their ids, without specials."""
    if path.is_file() and is_dictionary_of_fairseq(path):
        return read_fairseq_dictionary(path)[len(FAIRSEQ_SPECIALS) :]
    pieces = read_marian_vocabulary(path)
    if with_space := next((piece for piece in pieces if " " in piece), None):
        raise DataError(
            f"{path}: {with_space[:60]!r} holds a space, as no piece does; each line holds a piece, or each a piece and its "
            f"count"
        )
    return [piece for piece in pieces if piece not in SPECIALS]
