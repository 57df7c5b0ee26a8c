"""Own training loops: they make the updates of nmt-train, and end in a model folder like any other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nmt
from nmt.config.sections import TrainConfig
from nmt.criterions.config import CrossEntropyConfig
from nmt.data.batching.batch import Batch
from nmt.data.language_pair import LanguagePair
from nmt.engines.model_engine import ModelEngine
from nmt.errors import NMTError
from nmt.interface import EncoderDecoder
from nmt.models.transformer.attention import DotProduct
from nmt.models.transformer.config import TransformerConfig
from nmt.storage.checkpoints import read_checkpoint
from nmt.training.assemble import train
from tests.documents import ROOT, commands_in, compose, fenced_blocks
from tests.tiny_models import WORDS, in_english, some_lines, tiny_pair, write_tiny_corpus

PAGE = ROOT / "docs/how-to/own-loop.md"
LINES = some_lines(40, seed=3)
PAIRS = [(line, in_english(line)) for line in LINES]
SIZES = TransformerConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, num_heads=2, dropout=0.0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def pair() -> LanguagePair:
    return tiny_pair()


def learned(pair: LanguagePair, updates: int = 5) -> EncoderDecoder:
    model = nmt.model(SIZES, pair)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for batch in nmt.batches(PAIRS * updates, pair, epoch=1, batch_size=40):
        report = nmt.criterion("cross_entropy")(model, batch)
        optimizer.zero_grad()
        (report.loss_sum / report.denominator).backward()
        optimizer.step()
    return model


def test_a_plain_loop_makes_the_updates_of_nmt_train_with_the_options_of_the_page(corpus: Path, tmp_path: Path) -> None:
    """Bit for bit, if the loop divides gradients as the trainer does: after the backward pass."""
    blocks = [block for language, block in fenced_blocks(PAGE.read_text(encoding="utf-8")) if language == "bash"]
    (command,) = [each for block in blocks for each in commands_in(block, PAGE.name) if "runs/same" in each.arguments]
    config = compose(command)
    assert isinstance(config, TrainConfig)
    config.data, config.model, config.batching.max_tokens = [str(corpus)], SIZES, 300  # smaller, without dropout
    config.validation.interval, config.checkpoint.save_dir = None, str(tmp_path / "run")
    result = train(config)
    assert result.checkpoint is not None
    model = nmt.model(SIZES, nmt.tokenizer(corpus))
    criterion = nmt.criterion("label_smoothed_cross_entropy")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    updates = 0
    for epoch in range(1, 4):
        for batch in nmt.batches(corpus, epoch=epoch, max_tokens=300):
            report = criterion(model, batch)
            optimizer.zero_grad()
            report.loss_sum.backward()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad /= report.denominator
            optimizer.step()
            updates += 1
    assert updates == result.update > 5
    theirs, ours = read_checkpoint(result.checkpoint).model, model.state_dict()
    assert theirs.keys() == ours.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_the_scores_of_a_model_are_the_logits_of_the_targets(pair: LanguagePair) -> None:
    model, (batch,) = nmt.model(SIZES, pair), nmt.batches(PAIRS, pair)
    logits = model.scores(model(batch).hidden)
    assert logits.shape == (batch.num_tokens, len(pair.target.vocabulary))
    loss = nn.functional.cross_entropy(logits, batch.targets, reduction="sum")
    torch.testing.assert_close(loss, nmt.criterion("cross_entropy")(model, batch).loss_sum)


def as_lists(batch: Batch) -> list[Any]:
    return [batch.source.tolist(), batch.target_in.tolist(), batch.targets.tolist(), batch.sentence_ids.tolist()]


def test_batches_of_text_are_those_of_a_corpus_of_this_text(corpus: Path) -> None:
    lines = [
        (corpus.parent / f"train.{language}").read_text(encoding="utf-8").splitlines() for language in ("de", "en")
    ]
    of_text = nmt.batches([*zip(*lines)], nmt.tokenizer(corpus), epoch=2, max_tokens=300)
    of_corpus = nmt.batches(corpus, epoch=2, max_tokens=300)
    assert len(of_text) == len(of_corpus) > 1 and repr(of_text) == f"<{len(of_text)} batches>"
    assert [*map(as_lists, of_text)] == [*map(as_lists, of_corpus)]


def test_epochs_hold_all_pairs_in_different_orders(corpus: Path) -> None:
    orders = [
        torch.cat([batch.sentence_ids for batch in nmt.batches(corpus, epoch=epoch, batch_size=7)]).tolist()
        for epoch in (1, 1, 2, None)
    ]
    assert orders[0] == orders[1] and len({*map(tuple, orders)}) == 3
    assert [sorted(order) for order in orders] == [[*range(300)]] * 4


def test_without_an_epoch_short_sentences_come_first(corpus: Path) -> None:
    longest = [batch.source.size(1) for batch in nmt.batches(corpus, batch_size=7)]
    assert longest == sorted(longest)


def test_a_batch_with_too_much_padding_is_split(corpus: Path) -> None:
    batches = [*nmt.batches(corpus, epoch=1, batch_size=50, sort_window=50, max_padding=0.05)]
    assert len(batches) == len(nmt.batches(corpus, epoch=1, batch_size=50, sort_window=50, max_padding=0.05)) > 6
    places = sum(batch.source.numel() + batch.target_in.numel() for batch in batches)
    assert sum(batch.num_source_tokens + batch.num_tokens for batch in batches) >= 0.95 * places


def test_the_text_of_a_tagged_pair_begins_with_the_tag() -> None:
    tagged = tiny_pair(("<2en>", *WORDS)).with_tag("en")
    (batch,) = nmt.batches([("ein mann", "a man")], tagged)
    assert batch.source[0, 0] == tagged.direction().source[0] and batch.source_lengths.tolist() == [4]


def test_a_saved_model_translates_as_the_model_in_memory(pair: LanguagePair, tmp_path: Path) -> None:
    model = learned(pair)
    folder = nmt.save(model, pair, tmp_path / "models" / "mine")
    in_memory = nmt.Translator.from_model(model, pair)
    loaded = nmt.load(folder, device="cpu")
    assert [engine.__class__ for engine in loaded.members] == [engine.__class__ for engine in in_memory.members]
    assert loaded.translate(LINES, nbest=2) == in_memory.translate(LINES, nbest=2)


def test_a_saved_model_can_be_trained_further_and_saved_again(pair: LanguagePair, tmp_path: Path) -> None:
    model = learned(pair)
    again = nmt.model(nmt.save(model, pair, tmp_path / "mine"), pair)
    assert again.training and again.built_from == model.built_from
    with torch.no_grad():
        next(again.parameters()).add_(1)
    nmt.save(again, pair, tmp_path / "mine", overwrite=True)
    stored = nmt.model(str(tmp_path / "mine"), pair)
    assert torch.equal(next(stored.parameters()), next(model.parameters()) + 1)


def test_a_folder_is_replaced_only_if_asked_and_only_if_it_holds_a_model(pair: LanguagePair, tmp_path: Path) -> None:
    model = nmt.model(SIZES, pair)
    folder = nmt.save(model, pair, tmp_path / "mine")
    with pytest.raises(NMTError, match="exists and is not empty"):
        nmt.save(model, pair, folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(NMTError, match="notes.txt"):
        nmt.save(model, pair, folder, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine" and nmt.load(folder, device="cpu").translate(["ein"])


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_translator_leaves_the_training_of_its_model_alone(pair: LanguagePair, engine: str) -> None:
    model = learned(pair)
    model.encoder.eval()  # some users freeze a part
    modes = [module.training for module in model.modules()]
    state = copy.deepcopy(model.state_dict())
    gradients = [parameter.grad for parameter in model.parameters()]
    translator = nmt.Translator.from_model(model, pair, engine=engine)
    before = translator.translations(LINES[:5])
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is gradient for parameter, gradient in zip(model.parameters(), gradients))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    after = translator.translations(LINES[:5])
    assert [each.hypotheses[0].score for each in after] == [each.hypotheses[0].score for each in before]


def changed(model: Any) -> EncoderDecoder:
    model.encoder.layers[0].self_attention.attend = DotProduct(0.0)
    return model


def test_a_model_that_was_changed_by_hand_is_computed_as_it_is(pair: LanguagePair) -> None:
    """Its options describe another model to the native engine."""
    translator = nmt.Translator.from_model(changed(nmt.model(SIZES, pair)), pair)
    (engine,) = translator.members
    assert isinstance(engine, ModelEngine)
    assert isinstance(engine.model.encoder.layers[0].self_attention.attend, DotProduct)


def test_options_of_a_preset_are_changed_by_their_flags_and_keys(pair: LanguagePair) -> None:
    model = nmt.model("transformer_tiny", pair, encoder_layers=1, d_model=8, norm="pre", share_decoder_embeddings=True)
    assert model.built_from is not None
    options = model.built_from[0]
    assert (options.encoder_layers, options.d_model, options.norm.name, options.decoder_layers) == (1, 8, "pre", 4)
    renamed = nmt.model(SIZES, pair, share_decoder_input_output_embed=True)
    assert renamed.built_from == (SIZES, pair.sizes)


def test_the_seed_of_a_model_leaves_the_generator_alone(pair: LanguagePair) -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    weights = [next(nmt.model(SIZES, pair, seed=seed).parameters()) for seed in (1, 1, 2)]
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_criterion_of_sampled_translations_gets_its_parts(pair: LanguagePair) -> None:
    (batch,) = nmt.batches(PAIRS[:4], pair)
    report = nmt.criterion("minimum_risk")(nmt.model(SIZES, pair), batch)
    assert report.num_sentences == 4 and report.loss_sum.requires_grad


OTHER = tiny_pair(("other", "words"))
REFUSED: dict[str, tuple[Callable[[LanguagePair, Path], Any], str]] = {
    "unknown model": (lambda pair, _: nmt.model("transformer_tini", pair), "did you mean 'transformer_tiny'"),
    "unknown option": (lambda pair, _: nmt.model("transformer", pair, dropot=0.1), "unknown option model.dropot"),
    "wrong value": (lambda pair, _: nmt.model("transformer", pair, d_model="wide"), "model.d_model"),
    "options of a criterion": (lambda pair, _: nmt.model(CrossEntropyConfig(), pair), "unknown model 'cross_entropy'"),
    "option without effect": (
        lambda pair, _: nmt.model(SIZES, pair, max_positions=9),
        "model.max_positions=9 has no effect",
    ),
    "missing folder": (lambda pair, _: nmt.model("models/none", pair), "models/none does not exist"),
    "folder as a tokenizer": (lambda *_: nmt.model(SIZES, "data"), "nmt.tokenizer"),  # type: ignore[arg-type]
    "first epoch": (lambda pair, _: nmt.batches(PAIRS, pair, epoch=0), "epoch=0"),
    "teacher": (lambda *_: nmt.criterion("word_distillation", teacher="runs/x"), "use nmt.train"),
    "text without a tokenizer": (lambda *_: nmt.batches(PAIRS), "the tokenizer is None; give that of a folder"),
    "lines": (lambda pair, _: nmt.batches(["ein", "zwei"], pair), r"not a pair of strings"),
    "no pairs": (lambda pair, _: nmt.batches([], pair), "has no pairs"),
    "option of updates": (lambda pair, _: nmt.batches(PAIRS, pair, update_freq=2), "are for the updates of nmt-train"),
    "automatic size": (lambda pair, _: nmt.batches(PAIRS, pair, max_tokens="auto"), "set max_tokens"),
    "other split": (lambda _, corpus: nmt.batches(corpus, split="valid"), "has no split 'valid'"),
    "other corpus": (lambda _, corpus: nmt.batches(corpus, OTHER), "different vocabularies"),
    "no tokenizer": (lambda *_: nmt.tokenizer("elsewhere"), "elsewhere holds no tokenizer"),
    "tokenizer of another model": (lambda pair, _: nmt.save(nmt.model(SIZES, pair), OTHER, "m"), "has 6 and 6"),
    "another tokenizer": (lambda pair, _: nmt.Translator.from_model(nmt.model(SIZES, pair), OTHER), "has 6 and 6"),
    "changed model": (lambda pair, _: nmt.save(changed(nmt.model(SIZES, pair)), pair, "m"), "is a DotProduct, but"),
    "wrapped model": (lambda pair, _: nmt.save(nn.Sequential(), pair, "m"), "not a Sequential"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_refused_in_one_line(
    name: str, pair: LanguagePair, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    act, message = REFUSED[name]
    with pytest.raises(NMTError, match=message) as error:
        act(pair, corpus)
    assert "\n" not in str(error.value)
    assert not [*tmp_path.iterdir()], "nothing was written"


def test_a_trained_model_keeps_its_options_and_its_tokenizer(pair: LanguagePair, tmp_path: Path) -> None:
    folder = nmt.save(nmt.model(SIZES, pair), pair, tmp_path / "m")
    with pytest.raises(NMTError, match="has its own options; omit dropout"):
        nmt.model(folder, pair, dropout=0.5)
    with pytest.raises(NMTError, match="different vocabularies"):
        nmt.model(folder, OTHER)


def test_a_model_without_options_translates_but_is_not_saved(pair: LanguagePair, tmp_path: Path) -> None:
    model = nmt.model(SIZES, pair)
    model.built_from = None
    assert nmt.Translator.from_model(model, pair).translate(["ein"])
    with pytest.raises(NMTError, match="was not built from options; a folder stores"):
        nmt.save(model, pair, tmp_path / "m")
