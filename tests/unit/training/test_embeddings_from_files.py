"""Embeddings from files: which rows they fill, whether these rows stay, and faulty files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.sections import ParametersConfig, TrainConfig, TrainingConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.vocabulary import Vocabulary
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.models.recurrent.config import LSTMConfig
from nmt.optim.config import AdamWConfig
from nmt.storage.run_folder import checkpoints_in
from nmt.storage.tensor_file import read_tensors, write_tensors
from nmt.training.assemble import train
from nmt.training.setup.embeddings_from_files import _of_text

NAME = "source_input.embedding.table.weight"
MakeConfig = Callable[..., TrainConfig]


@pytest.fixture
def vocabulary(copy_corpus: Path) -> Vocabulary:
    return Corpus.open(copy_corpus).pair.source.vocabulary


def vectors(path: Path, tokens: list[str], width: int = 16, header: bool = True) -> Path:
    lines = [f"{len(tokens)} {width}"] if header else []
    lines += [
        " ".join([token, *(f"{number + place / 100:.2f}" for place in range(width))])
        for number, token in enumerate(tokens)
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def trained(config: TrainConfig) -> torch.Tensor:
    train(config)
    return read_tensors(checkpoints_in(Path(config.checkpoint.save_dir))[-1] / "model.safetensors")[NAME]


@pytest.mark.parametrize("header", [True, False])
def test_rows_start_from_the_vectors_and_are_trained_or_stay(
    tiny_run: MakeConfig, tmp_path: Path, vocabulary: Vocabulary, header: bool
) -> None:
    path = vectors(tmp_path / "vectors.txt", ["c", "unknown", "a"], header=header)
    expected = torch.arange(16) / 100
    for freeze in (True, False):
        parameters = ParametersConfig(source_embeddings=str(path), freeze_embeddings=freeze)
        config = tiny_run(parameters=parameters, training=TrainingConfig(max_update=4))
        config.checkpoint.save_dir = str(tmp_path / f"run-{freeze}")
        table = trained(config)
        kept = [
            torch.allclose(table[vocabulary.id(token)], expected + first, atol=1e-6)
            for token, first in (("c", 0), ("a", 2))
        ]
        near = [
            torch.allclose(table[vocabulary.id(token)], expected + first, atol=0.2)
            for token, first in (("c", 0), ("a", 2))
        ]
        assert all(near) and kept == [freeze, freeze]
    assert not torch.allclose(table[vocabulary.id("b")], expected, atol=0.5)


def test_a_resumed_run_keeps_its_rows(tiny_run: MakeConfig, tmp_path: Path, vocabulary: Vocabulary) -> None:
    parameters = ParametersConfig(target_embeddings=str(vectors(tmp_path / "v.txt", ["c"])), freeze_embeddings=True)
    tables = [trained(tiny_run(parameters=parameters, training=TrainingConfig(max_update=count))) for count in (4, 8)]
    row = vocabulary.id("c")
    assert torch.equal(tables[0][row], tables[1][row]) and not torch.equal(tables[0], tables[1])


def test_a_resumed_run_reads_only_frozen_vectors_and_refuses_others(
    tiny_run: MakeConfig, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    def run(name: str, updates: int, freeze: bool, **options: Any) -> torch.Tensor:
        path = tmp_path / f"{name}.txt"
        parameters = ParametersConfig(source_embeddings=str(path), freeze_embeddings=freeze)
        config = tiny_run(parameters=parameters, training=TrainingConfig(max_update=updates))
        config.checkpoint = replace(config.checkpoint, save_dir=str(tmp_path / name), **options)
        return trained(config)

    for name in ("trained", "frozen"):
        vectors(tmp_path / f"{name}.txt", ["c"])
        run(name, 4, name == "frozen")
    (tmp_path / "trained.txt").unlink()
    run("trained", 8, False)
    vectors(tmp_path / "frozen.txt", ["b", "c"])
    with pytest.raises(UsageError, match=r"parameters.source_embeddings: the file or --freeze-embeddings changed"):
        run("frozen", 8, True)
    (tmp_path / "frozen.txt").unlink()
    with pytest.raises(MissingInputError, match=r"frozen.txt does not exist"):
        run("frozen", 8, True)
    vectors(tmp_path / "frozen.txt", ["c"])
    assert run("frozen", 8, True)[vocabulary.id("c")].tolist() == pytest.approx([place / 100 for place in range(16)])


def test_a_matrix_has_a_row_for_each_token(tiny_run: MakeConfig, tmp_path: Path, vocabulary: Vocabulary) -> None:
    matrix = torch.randn(len(vocabulary), 16)
    write_tensors(tmp_path / "m.safetensors", {"any": matrix})
    parameters = ParametersConfig(source_embeddings=str(tmp_path / "m.safetensors"), freeze_embeddings=True)
    assert torch.equal(trained(tiny_run(parameters=parameters, training=TrainingConfig(max_update=4))), matrix)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["the 1 2", "a 3 4", "a 7 8", "b 0 0"], {"\u2581the": [1, 2], "\u2581a": [3, 4]}),
        (["the 1 2", "a 3 4", "\u2581a 5 6"], {"the": [1, 2], "\u2581a": [5, 6]}),
    ],
)
def test_words_are_the_tokens_that_begin_them_unless_the_file_has_their_marks(
    tmp_path: Path, lines: list[str], expected: dict[str, list[float]]
) -> None:
    tokens = Vocabulary(["\u2581the", "the", "\u2581a", "a\u2581b"])
    path = tmp_path / "v.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert {tokens.pieces[number]: row.tolist() for number, row in _of_text(path, tokens).items()} == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2 3\n", "has vectors of 3 numbers, but this model needs vectors of 16"),
        ("x 1 2 3\n", "has no vector for any token of the vocabulary"),
        ("a 1 2 3\nb 1 2\n", r"v.txt:2 has 2 numbers after the token; expected 3"),
        ("a 1 x 3\n", r"v.txt:1: the vector '1 [a-z0-9]+ 3' must have finite numbers only"),
        ("a 1 inf 3\n", r"v.txt:1: the vector '1 [a-z0-9]+ 3' must have finite numbers only"),
        ("a 1 1e300 3\n", r"v.txt:1: the vector '1 [a-z0-9]+ 3' must have finite numbers only"),
        ("a 1 \udcff 3\n", r"v.txt:1:4: byte 0xff is not UTF-8 .*; give a text file in the format of word2vec"),
        ("", "has no vector for any token"),
    ],
)
def test_faulty_files_are_refused(tiny_run: MakeConfig, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "v.txt").write_text(content, errors="surrogateescape")
    with pytest.raises(DataError, match=message), warnings.catch_warnings():
        warnings.simplefilter("error")
        train(tiny_run(parameters=ParametersConfig(source_embeddings=str(tmp_path / "v.txt"))))
    assert not (tmp_path / "run").exists()


def test_a_matrix_of_another_size_is_refused(tiny_run: MakeConfig, tmp_path: Path) -> None:
    write_tensors(tmp_path / "m.safetensors", {"any": torch.zeros(3, 16)})
    with pytest.raises(DataError, match=r"must hold one matrix with 12 rows, one for each token; it has: \[3, 16\]"):
        train(tiny_run(parameters=ParametersConfig(source_embeddings=str(tmp_path / "m.safetensors"))))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            torch.tensor(float("nan")),
            "m.safetensors has NaN or infinity; give a matrix of finite floating-point numbers",
        ),
        (torch.tensor(1e300, dtype=torch.float64), "m.safetensors has NaN or infinity"),
        (torch.tensor(1), "m.safetensors has numbers of type int64; give a matrix of"),
    ],
)
def test_numbers_of_other_kinds_are_refused(
    tiny_run: MakeConfig, tmp_path: Path, vocabulary: Vocabulary, value: torch.Tensor, message: str
) -> None:
    write_tensors(tmp_path / "m.safetensors", {"any": value.expand(len(vocabulary), 16)})
    with pytest.raises(DataError, match=message):
        train(tiny_run(parameters=ParametersConfig(source_embeddings=str(tmp_path / "m.safetensors"))))
    assert not (tmp_path / "run").exists()


def test_options_that_contradict_are_refused(tiny_run: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--freeze-embeddings needs embeddings from files; set"):
        ParametersConfig(freeze_embeddings=True)
    path = vectors(tmp_path / "v.txt", ["a"])
    parameters: Any = ParametersConfig(source_embeddings=str(path), freeze_embeddings=True)
    with pytest.raises(UsageError, match="but weight decay would shrink them; set --weight-decay 0"):
        train(tiny_run(parameters=parameters, optimizer=AdamWConfig(weight_decay=0.1)))


def test_a_recurrent_model_has_embeddings_too(
    tiny_run: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nmt.training")
    path = vectors(tmp_path / "v.txt", ["a", "b"], width=8)
    model = LSTMConfig(num_layers=1, embedding_size=8, hidden_size=8)
    train(
        tiny_run(
            model=model, parameters=ParametersConfig(source_embeddings=str(path)), training=TrainingConfig(max_update=4)
        )
    )
    assert f"2 of 12 source embeddings start from {path}" in caplog.text
