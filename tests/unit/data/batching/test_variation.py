"""Pairs that differ from epoch to epoch: what they depend on, that they fit, and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.choices import PieceMarks, Sides
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import BatchingConfig
from nmt.config.variation import VariationConfig
from nmt.data.batching.mixing import Mixture, Stage
from nmt.data.batching.variation import PlannedBatch, SideLimits, Variation, refuse_cut_text
from nmt.data.corpus.folder import Corpus
from nmt.data.corpus.stored_text import StoredPairs, text_identity
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.data.vocabulary import EOS
from nmt.errors import DataError, UsageError
from nmt.preprocessing.preprocess import preprocess
from nmt.training.checkpoints.run_state import DataPosition
from nmt.training.loop.batches import TrainingBatches, readers_of
from nmt.training.setup.datasets import sides

ALL = ["upper_case=0.2", "typos=0.3", "noise_lines=0.1", "drop_final_punctuation=0.2", "title_case=0.1"]


def make(folder: Path, **options: Any) -> Corpus:
    words = random.Random(1)
    vocabulary = "tower towers towering house houses household under over undergo overgo build builder rebuild".split()
    lines = [" ".join(words.choices(vocabulary, k=words.randint(1, 9))) + " ." for _ in range(200)]
    for language, side in {"en": lines, "de": [line[::-1].title() for line in lines]}.items():
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    config = PreprocessConfig("en", "de", trainpref=str(folder / "train"), destdir=str(folder / "corpus"))
    config = replace(config, tokenizer=BpeConfig(vocab_size=150, hard_vocab_limit=False), joined_dictionary=True)
    preprocess(replace(config, **({"keep_text": True} | options)))
    return Corpus.open(folder / "corpus")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make(tmp_path_factory.mktemp("varied"))


def vary(corpus: Corpus, seed: int = 1, padded: bool = True, **options: Any) -> Variation:
    text = StoredPairs([corpus], "train") if options.get("augment") else None
    return Variation(corpus.split("train"), corpus.pair, VariationConfig(**options), seed, text, padded=padded)


def read(variation: Variation, *numbers: int, epoch: int = 1, most: SideLimits = (None, None)) -> list[list[int]]:
    sources, targets = variation.read(PlannedBatch(np.array(numbers), epoch, most))
    return [[*source.tolist(), -1, *target.tolist()] for source, target in zip(sources, targets)]


def test_a_pair_depends_on_seed_epoch_and_number_alone(corpus: Corpus) -> None:
    options: dict[str, Any] = {"bpe_dropout": 0.3, "augment": ALL}
    together = read(vary(corpus, **options), *range(50))
    fresh = vary(corpus, **options)
    read(fresh, *range(100, 150), epoch=7)
    assert [read(fresh, number)[0] for number in reversed(range(50))] == together[::-1]
    assert read(fresh, *range(50), epoch=2) != together != read(vary(corpus, seed=2, **options), *range(50))


def test_without_options_a_pair_is_that_of_the_corpus(corpus: Corpus) -> None:
    split = corpus.split("train")
    expected = [[*split.source(number).tolist(), -1, *split.target(number).tolist()] for number in range(200)]
    assert read(vary(corpus), *range(200)) == expected


@pytest.mark.parametrize(("sides", "changed"), [(Sides.source, [0]), (Sides.target, [1]), (Sides.both, [0, 1])])
def test_pieces_of_the_sides_that_are_asked_for_are_drawn(corpus: Corpus, sides: Sides, changed: list[int]) -> None:
    variation, some = vary(corpus, bpe_dropout=0.3, sampled_sides=sides), PlannedBatch(np.arange(60), 1)
    both = zip(variation.read(some), variation.usual(some))
    differs = [any(not np.array_equal(new, old) for new, old in zip(*side)) for side in both]
    assert [place for place in (0, 1) if differs[place]] == changed


def test_an_augmentation_changes_its_share_of_the_pairs_and_others_in_each_epoch(corpus: Corpus) -> None:
    variation = vary(corpus, augment=["upper_case=0.2"])
    usual = read(vary(corpus), *range(200))
    changed = [{n for n, one in enumerate(read(variation, *range(200), epoch=e)) if one != usual[n]} for e in (1, 2)]
    assert 20 < len(changed[0]) < 60 and 20 < len(changed[1]) < 60
    assert changed[0] != changed[1]
    for number in changed[0]:
        text = StoredPairs([corpus], "train")[number]
        tokenizers = corpus.pair.source, corpus.pair.target
        source, target = (one.encode([line.upper()])[0].tolist() for one, line in zip(tokenizers, text))
        assert read(variation, number) == [[*source, EOS, -1, *target, EOS]]


def filled(corpus: Corpus, padded: bool, **options: Any) -> tuple[int, float, int]:
    """The most that a batch of an epoch takes, how full batches are in the mean, and how many pairs stayed as they are."""
    variation = vary(corpus, padded=padded, **options)
    batching = BatchingConfig(max_tokens=120, count_padding=padded)
    batches = TrainingBatches(corpus.split("train"), batching, 1, variation=variation)
    sizes, numbers, stayed = list[int](), list[int](), 0
    for number in range(batches.updates_in_epoch(1)):
        sentences = batches.at(DataPosition(1, number)).batches[0]
        batch = batches.batch(sentences)
        lengths = batch.source_lengths.numpy(), batch.target_lengths.numpy()
        sizes.append(max(len(side) * side.max() if padded else side.sum() for side in lengths))
        numbers += batch.sentence_ids.tolist()
        free = variation.read(PlannedBatch(sentences.numbers, 1))[0]
        stayed += sum(len(new) != length for new, length in zip(free, lengths[0].tolist()))
    assert sorted(numbers) == list(range(200))
    return max(sizes), float(np.mean(sizes)) / 120, stayed


@pytest.mark.slow
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("headroom", [None, 1.0, 1.2, 2.0])
def test_batches_stay_within_their_budget(corpus: Corpus, headroom: float | None, padded: bool) -> None:
    assert filled(corpus, padded, bpe_dropout=0.4, augment=ALL, headroom=headroom)[0] <= 120


@pytest.mark.parametrize("padded", [True, False])
def test_an_epoch_that_is_drawn_beforehand_has_full_batches_and_keeps_every_draw(corpus: Corpus, padded: bool) -> None:
    _, full, stayed = filled(corpus, padded, bpe_dropout=0.3)
    assert full > 0.85 and stayed == 0
    _, full, stayed = filled(corpus, padded, bpe_dropout=0.3, headroom=1.1)
    assert stayed > 20
    _, full, stayed = filled(corpus, padded, bpe_dropout=0.3, headroom=4.0)
    assert full < 0.75 and stayed < 20


@pytest.mark.slow
@pytest.mark.parametrize("headroom", [None, 1.5])
def test_a_pair_that_a_batch_of_its_own_cannot_hold_stays(corpus: Corpus, headroom: float | None) -> None:
    limit = int(corpus.split("train").source_lengths.max())
    variation = vary(corpus, augment=["upper_case=1"], headroom=headroom)
    batches = TrainingBatches(corpus.split("train"), BatchingConfig(max_tokens=limit), 1, variation=variation)
    longest = usual = 0
    for number in range(batches.updates_in_epoch(1)):
        sentences = batches.at(DataPosition(1, number)).batches[0]
        batch = batches.batch(sentences)
        longest = max(longest, int(batch.source_lengths.max()), int(batch.target_lengths.max()))
        before = batch_lengths(corpus, sentences)
        usual += sum(new == old for new, old in zip(batch.source_lengths.tolist(), before))
    assert longest <= limit and 10 < usual < 190


def batch_lengths(corpus: Corpus, sentences: PlannedBatch) -> list[int]:
    return [int(length) for length in corpus.split("train").source_lengths[sentences.numbers]]


def test_readers_draw_an_epoch_as_training_does(corpus: Corpus) -> None:
    split, options = corpus.split("train"), BatchingConfig(max_tokens=100)
    plans = []
    for count in (0, 2):
        variation = vary(corpus, bpe_dropout=0.3)
        with readers_of(variation, count) as readers:
            batches = TrainingBatches(split, options, 1, variation=variation, readers=readers)
            ends = range(batches.updates_in_epoch(3))
            plans.append([batches.at(DataPosition(3, number)).batches[0].numbers.tolist() for number in ends])
    assert plans[0] == plans[1] and len(plans[0]) > 5


@pytest.mark.slow
@pytest.mark.parametrize("headroom", [None, 1.2])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("max_padding", [None, 0.05])
def test_batches_of_a_mixture_in_stages_stay_within_the_budget_of_each_side(
    corpus: Corpus, headroom: float | None, padded: bool, max_padding: float | None
) -> None:
    variation = vary(corpus, padded=padded, bpe_dropout=0.4, augment=ALL, headroom=headroom)
    options = BatchingConfig(
        max_tokens=None, max_source_tokens=90, max_target_tokens=60, count_padding=padded, max_padding=max_padding
    )
    stages = [Stage(Mixture((100, 100), (100, 20))), Stage(Mixture((100, 100), (30, 150)), from_update=9), Stage()]
    batches = TrainingBatches(corpus.split("train"), options, 1, 1, stages, variation)
    position, longest, parts, stages_seen = DataPosition(), np.zeros(2), 0, set[int]()
    for update in range(1, 30):
        stages_seen.add(position.stage)
        planned = batches.at(position, update)
        assert planned == batches.at(position, update)
        made = [batches.batch(sentences) for sentences in planned.batches]
        sizes = np.zeros(2)
        for batch in made:
            lengths = batch.source_lengths.numpy(), batch.target_lengths.numpy()
            sizes += [len(side) * side.max() if padded else side.sum() for side in lengths]
        longest, parts = np.maximum(longest, sizes), max(parts, len(made))
        position = planned.following
    assert (longest > (50, 40)).all() and (longest <= (90, 60)).all()
    assert stages_seen == {0, 1} and (parts > 1) == (max_padding is not None)


def test_lengths_of_an_epoch_are_found_alike_one_by_one_and_together(corpus: Corpus) -> None:
    variation = vary(corpus, bpe_dropout=0.2, augment=ALL, headroom=1.1)
    for side, usual in zip(variation.planned_lengths(3, (40, 25), []), sides(corpus.split("train"))):
        every = side[:]
        numbers = np.array([7, 199, 0, 7], dtype=np.uint32)
        assert len(side) == len(every) == 200 and (every >= usual[:]).all() and (every > usual[:]).any()
        assert side[numbers].tolist() == every[numbers].tolist() == [int(side[int(number)]) for number in numbers]
        assert side[150:300].tolist() == every[150:].tolist()
    free, _ = variation.planned_lengths(3, (None, 25), [])
    assert free[:].tolist() == corpus.split("train").source_lengths[:].tolist()


def test_a_pair_that_outgrows_its_place_is_that_of_the_corpus(corpus: Corpus) -> None:
    variation = vary(corpus, bpe_dropout=0.9, headroom=1.0)
    usual, free = read(vary(corpus), *range(40)), read(variation, *range(40))
    most = 14  # pieces of a side
    for before, wanted, got in zip(usual, free, read(variation, *range(40), most=(most, most))):
        fits = max(wanted.index(-1), len(wanted) - wanted.index(-1) - 1) <= most
        assert got == (wanted if fits else before)


def test_halves_of_a_batch_hold_what_the_whole_holds(corpus: Corpus) -> None:
    """A batch that finds no memory is done in halves."""
    variation = vary(corpus, bpe_dropout=0.5, headroom=1.1)
    batches = TrainingBatches(corpus.split("train"), BatchingConfig(max_tokens=150), 1, variation=variation)
    whole = batches.at(DataPosition()).batches[0]
    middle = len(whole) // 2
    both = [batches.batch(part).targets.tolist() for part in (whole[:middle], whole[middle:])]
    assert both[0] + both[1] == batches.batch(whole).targets.tolist()


def test_a_pair_beyond_the_limits_of_the_model_is_that_of_the_corpus(corpus: Corpus) -> None:
    batches = TrainingBatches(
        corpus.split("train"), BatchingConfig(max_tokens=400), 1, variation=vary(corpus, bpe_dropout=0.5)
    )
    sentences = batches.at(DataPosition()).batches[0]
    free = batches.batch(sentences)
    assert free.source_lengths.max() > 12
    batches.limits = lambda source, target: source <= 12
    usual = corpus.split("train").source_lengths[sentences.numbers]
    expected = [length if length <= 12 else int(old) for length, old in zip(free.source_lengths.tolist(), usual)]
    assert batches.batch(sentences).source_lengths.tolist() == expected != free.source_lengths.tolist()


def test_text_is_kept_for_the_pairs_that_are_kept(tmp_path: Path) -> None:
    corpus = make(tmp_path, filters=replace(PreprocessConfig().filters, max_length=7))
    split, text = corpus.split("train"), StoredPairs([corpus], "train")
    assert 50 < len(split) < 200
    for number in range(len(split)):
        (source,), (target,) = (
            tokenizer.encode([line]) for tokenizer, line in zip((corpus.pair.source, corpus.pair.target), text[number])
        )
        assert source.tolist() == split.source(number).tolist()[:-1]
        assert target.tolist() == split.target(number).tolist()[:-1]
    lines = (tmp_path / "corpus/train.en.txt").read_text(encoding="utf-8").splitlines()
    assert split.sources.text() == lines == [text[number][0] for number in range(len(split))]


def test_text_of_several_corpora_stands_one_after_the_other(corpus: Corpus) -> None:
    several = StoredPairs([corpus, corpus], "train")
    assert [several[number] for number in (0, 199, 200, 399)] == [several[number] for number in (0, 199, 0, 199)]
    assert several[0] != several[199]


def test_a_corpus_without_text_is_refused_with_what_to_do(tmp_path: Path) -> None:
    corpus = make(tmp_path, keep_text=False)
    assert not (tmp_path / "corpus/train.en.txt").exists()
    with pytest.raises(DataError, match=r"--augment.*corpus stores only its tokens.*nmt-preprocess --keep-text"):
        StoredPairs([corpus], "train")


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("train.en.txt", lambda content: content.replace(b"tower", b"t\xffwer", 1), "is not UTF-8"),
        ("train.en.txt", lambda content: content[:-20], "do not divide"),
        ("train.en.txt", lambda content: content.replace(b"tower", b"t\nwer", 1), "does not end where it should"),
        ("train.en.txt", lambda content: content.replace(b"\n", b" ", 1), "does not end where it should"),
        ("train.en.text-offsets.npy", lambda content: content[:-8], "mmap|size|bytes"),
        ("train.en.text-offsets.npy", lambda content: b"no array", "pickle|magic|array"),
    ],
)
def test_damaged_text_is_said_with_its_file(tmp_path: Path, name: str, change: Any, expected: str) -> None:
    corpus = make(tmp_path)
    path = tmp_path / "corpus" / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=rf"train\.en\..* is damaged: .*{expected}"):
        text = StoredPairs([corpus], "train")
        [text[number] for number in range(200)]


def test_text_is_recognised_by_its_contents(corpus: Corpus, tmp_path: Path) -> None:
    same = make(tmp_path)
    assert text_identity(corpus, "train") == text_identity(same, "train")
    path = tmp_path / "train.en"
    path.write_text(path.read_text(encoding="utf-8").replace("tower", "TOWER", 1), encoding="utf-8")
    config = PreprocessConfig(
        "en", "de", trainpref=str(tmp_path / "train"), destdir=str(tmp_path / "other"), keep_text=True
    )
    preprocess(replace(config, tokenizer=WordsConfig()))
    assert text_identity(corpus, "train") != text_identity(Corpus.open(tmp_path / "other"), "train")


def test_text_that_was_cut_before_is_not_changed(corpus: Corpus) -> None:
    cut = replace(corpus.pair, source=corpus.pair.source.joining(PieceMarks.subword_nmt))
    refuse_cut_text(cut)  # a tokenizer that cuts once more takes no note of marks
    corpus.pair.source.marks = PieceMarks.subword_nmt
    with pytest.raises(UsageError, match="segmented by subword_nmt before"):
        refuse_cut_text(corpus.pair)
    corpus.pair.source.marks = PieceMarks.none


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"bpe_dropout": 1.0}, "variation.bpe_dropout=1.0 must be at least 0 and less than 1"),
        ({"unigram_alpha": 0.0}, "variation.unigram_alpha=0.0 must be"),
        ({"bpe_dropout": 0.1, "unigram_alpha": 0.1}, "exclude each other"),
        ({"headroom": 0.9}, "variation.headroom=0.9 must be at least 1"),
        ({"readers": -1}, "variation.readers=-1 must be"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        VariationConfig(**options)
