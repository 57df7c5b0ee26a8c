"""Training and validation with weights of pairs: a weight of 2 is a second copy of the pair, 0 its absence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.batching import BatchingConfig
from nmt.config.choices import WeightKind
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig, TrainingConfig
from nmt.config.variation import VariationConfig
from nmt.criterions.config import ExpectedRewardConfig
from nmt.data.corpus.folder import Corpus, open_corpora
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.errors import DataError, UsageError
from nmt.models.transformer.config import TransformerConfig
from nmt.optim.config import SgdConfig
from nmt.optim.schedules import ConstantConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.run_folder import checkpoints_in
from nmt.storage.tensor_file import read_tensors
from nmt.training.assemble import train

LINES = ["a b c", "h g", "c c d e f", "b", "e f g"]
LINES_OF_WEIGHTS = [" ".join("0.5" for _ in line.split()) for line in LINES]


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[..., Path]:
    def make(
        name: str,
        lines: Sequence[str],
        weights: Sequence[object] | None,
        like: Path | None = None,
        valid: Sequence[object] | None = None,
        **options: Any,
    ) -> Path:
        """``valid``: weights of the validation text; None: those of the training text."""
        prefix, splits = tmp_path / name, ("train", "valid")
        for split in splits:
            for side in ("src", "tgt"):
                (tmp_path / f"{name}-{split}.{side}").write_text("".join(f"{line}\n" for line in lines))
            of_split = valid if split == "valid" and valid is not None else weights
            if of_split is not None:
                (tmp_path / f"{name}-{split}.weight").write_text("".join(f"{weight}\n" for weight in of_split))
        known = {} if like is None else {"srcdict": str(like), "tgtdict": str(like)}
        text = {f"{split}pref": f"{prefix}-{split}" for split in splits}
        suffix = None if weights is None else "weight"
        config = PreprocessConfig("src", "tgt", destdir=str(prefix), weight_suffix=suffix, **(text | known | options))
        if like is None:
            config.tokenizer, config.joined_dictionary = WordsConfig(), True
        preprocess(config)
        return prefix

    return make


def run(make: Callable[..., TrainConfig], folder: Path, *corpora: Path, **changes: Any) -> dict[str, torch.Tensor]:
    parts = {
        "data": [str(corpus) for corpus in corpora],
        "model": TransformerConfig(1, 1, d_model=16, d_ff=24, num_heads=2, dropout=0.0),
        "optimizer": SgdConfig(lr=0.1),
        "scheduler": ConstantConfig(),
        "batching": BatchingConfig(max_tokens=400),
        "training": TrainingConfig(max_update=2, clip_norm=0.0),
    }
    config = make(folder, **(parts | changes))
    train(config)
    return read_tensors(checkpoints_in(folder / "run")[-1] / "model.safetensors")


def close(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.allclose(first[name], second[name], rtol=1e-5, atol=1e-6) for name in first)


def test_weights_are_copies_and_absences_in_training_and_validation(
    make_run: Callable[..., TrainConfig], corpus: Callable[..., Path], tmp_path: Path
) -> None:
    weighted = corpus("weighted", LINES, [2, 0, 1, 1, 0])
    repeated = corpus("repeated", [LINES[0], LINES[0], LINES[2], LINES[3]], None, like=weighted)
    plain = corpus("plain", LINES, None, like=weighted)
    folders = [tmp_path / f"run-{name}" for name in ("weighted", "repeated", "plain")]
    parameters = [run(make_run, folder, data) for folder, data in zip(folders, (weighted, repeated, plain))]
    assert close(parameters[0], parameters[1]) and not close(parameters[0], parameters[2])
    scores = [Path(checkpoints_in(folder / "run")[-1] / "manifest.json").read_text() for folder in folders]
    figures = [dict(zip(("loss", "nll"), _figures(text))) for text in scores]
    assert figures[0] == pytest.approx(figures[1], rel=1e-5) and figures[0] != pytest.approx(figures[2], rel=1e-3)


def _figures(manifest: str) -> tuple[float, float]:
    tree = json.loads(manifest)["scores"]
    return tree["loss"], tree["nll"]


@pytest.mark.parametrize("factor", [1e-15, 1e5])
def test_only_ratios_of_weights_matter(
    make_run: Callable[..., TrainConfig], corpus: Callable[..., Path], tmp_path: Path, factor: float
) -> None:
    weights = [2, 0, 1, 1, 0]
    plain = corpus("plain", LINES, weights)
    scaled = corpus("scaled", LINES, [factor * weight for weight in weights], like=plain)
    assert close(*(run(make_run, tmp_path / data.name / "r", data) for data in (plain, scaled)))


def test_a_corpus_without_weights_has_weights_of_one_in_a_mixture(
    make_run: Callable[..., TrainConfig], corpus: Callable[..., Path], tmp_path: Path
) -> None:
    weighted = corpus("weighted", LINES, [2, 0, 1, 1, 0])
    plain = corpus("plain", LINES[:2], None, like=weighted)
    ones = corpus("ones", LINES[:2], [1, 1], like=weighted)
    of_both = [run(make_run, tmp_path / name, weighted, other) for name, other in (("a", plain), ("b", ones))]
    assert all(torch.equal(of_both[0][name], of_both[1][name]) for name in of_both[0])


def test_an_update_without_weight_changes_nothing_and_says_so(
    make_run: Callable[..., TrainConfig], corpus: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weighted = corpus("weighted", LINES, [0, 0, 1, 0, 0])
    options = {"batching": BatchingConfig(batch_size=1), "training": TrainingConfig(max_update=2)}
    after = run(make_run, tmp_path / "w", weighted, **options)
    assert "is repeated with other data: all weights of its pairs are 0" in caplog.text
    single = corpus("single", LINES[2:3], None, like=weighted)
    assert close(after, run(make_run, tmp_path / "s", single, **options))


def test_a_run_ends_if_the_pairs_that_fit_have_no_weight(
    make_run: Callable[..., TrainConfig], corpus: Callable[..., Path], tmp_path: Path
) -> None:
    weighted = corpus("weighted", LINES, [0, 0, 1, 0, 0])  # the third is the longest
    options = {"batching": BatchingConfig(max_tokens=5, skip_long=True), "training": TrainingConfig(max_update=4)}
    with pytest.raises(DataError, match="no pair of a whole epoch has a weight above 0"):
        run(make_run, tmp_path / "r", weighted, **options)


def test_weights_without_effect_or_meaning_are_refused(
    make_run: Callable[..., TrainConfig], corpus: Callable[..., Path], tmp_path: Path
) -> None:
    weighted, zero = corpus("weighted", LINES, [1] * 5), corpus("zero", LINES, [0] * 5)
    unvalidated = corpus("unvalidated", LINES, [1] * 5, valid=[0] * 5)
    tokens = corpus("tokens", LINES, LINES_OF_WEIGHTS, weight_kind=WeightKind.token, keep_text=True)
    assert open_corpora([tokens])[0].split("train").weights is not None
    for data, changes, error, message in (
        (weighted, {"criterion": ExpectedRewardConfig()}, UsageError, "criterion expected_reward does not use"),
        (
            tokens,
            {"variation": VariationConfig(augment=["drop_words=1"])},
            UsageError,
            "weights of tokens, which fit only its stored tokens",
        ),
        (zero, {}, DataError, "all weights of split 'train' are 0"),
        (unvalidated, {}, DataError, "all weights of split 'valid' .src-tgt. are 0: its loss would mean nothing"),
    ):
        with pytest.raises(error, match=message):
            run(make_run, tmp_path / "no", data, **changes)
    assert not (tmp_path / "no").exists()


def test_each_validated_direction_needs_a_weight(
    make_run: Callable[..., TrainConfig], corpus: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weighted = corpus("weighted", LINES, [1] * 5)
    unvalidated = corpus("unvalidated", LINES, [1] * 5, like=weighted, valid=[0] * 5)
    data = [str(weighted), str(unvalidated)]
    train(make_run(tmp_path / "one direction", data=data, training=TrainingConfig(max_update=4)))
    monkeypatch.setattr(Corpus, "direction", property(lambda self: self.folder.name))
    with pytest.raises(DataError, match="all weights of split 'valid' .unvalidated. are 0"):
        train(make_run(tmp_path / "two directions", data=data, training=TrainingConfig(max_update=4)))


def test_varied_text_keeps_the_weights_of_pairs(
    make_run: Callable[..., TrainConfig], corpus: Callable[..., Path], tmp_path: Path
) -> None:
    weighted = corpus("weighted", LINES, [2, 0, 1, 1, 0], keep_text=True)
    repeated = corpus("repeated", [LINES[0], LINES[0], LINES[2], LINES[3]], None, like=weighted, keep_text=True)
    variation = VariationConfig(augment=["upper_case=1"])
    both = [run(make_run, tmp_path / data.name / "r", data, variation=variation) for data in (weighted, repeated)]
    assert close(*both)
    assert Corpus.open(weighted).split("train").weights is not None
