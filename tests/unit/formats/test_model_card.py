"""The model card of an export: what the log of a run knows, and examples that run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.config.exchange import ExportConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers.sentencepiece import BpeConfig, SentencePieceBuilder
from nmt.formats.exporting import export_model
from nmt.models.loading import load_model
from nmt.storage.files import replace_manifest
from tests.unit.formats.stored import PAIR, run_example, store

pytestmark = pytest.mark.slow
LINES = [f"A sentence to translate, number {number} of many." for number in range(150)]
NEEDED = {"ctranslate2": "ctranslate2", "huggingface": "transformers", "safetensors": "safetensors"}


@pytest.fixture(scope="module")
def cut() -> LanguagePair:
    """Text cut by sentencepiece, each language by pieces of its own."""
    source, target = (SentencePieceBuilder(BpeConfig(vocab_size=size)).train(LINES, seed=1) for size in (60, 64))
    return LanguagePair("en", "de", source, target, shared=False)


def card(run: Path, output: Path, name: str = "safetensors", **options: Any) -> str:
    pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed: nmt-toolkit[{name}]")
    export_model(
        ExportConfig(path=str(run), format=name, output=str(output), sentences=2, longest=300, tolerance=1.0, **options)
    )
    return (output / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("whole_words", [False, True], ids=["text", "pieces"])
def test_the_example_of_a_card_translates(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cut: LanguagePair,
    name: str,
    whole_words: bool,
) -> None:
    run = store(tmp_path / "run", PAIR if whole_words else cut)
    card(run, tmp_path / "there", name)
    capsys.readouterr()
    run_example(tmp_path / "there", monkeypatch)
    line = capsys.readouterr().out.splitlines()[-1]
    assert line and (not whole_words or set(line.split()) & {*PAIR.target.vocabulary.pieces})


@pytest.mark.slow
def test_the_example_of_a_model_with_language_tokens_begins_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MarianTokenizer would cut a space before it."""
    tags = {"en": "<2en>", "de": "<2de>"}
    options = BpeConfig(vocab_size=66, user_defined_symbols=[*tags.values()])
    tokenizer = SentencePieceBuilder(options).train(LINES, seed=1)
    languages = LanguageTokens(tags, SourceToken.target)
    run = store(tmp_path / "run", LanguagePair("en", "de", tokenizer, tokenizer, shared=True, languages=languages))
    assert "for token in ['<2de>', " in card(run, tmp_path / "there", "huggingface")
    capsys.readouterr()
    run_example(tmp_path / "there", monkeypatch)
    assert capsys.readouterr().out.strip()


EVENTS: list[dict[str, Any]] = [
    {
        "event": "start",
        "update": 0,
        "environment": {"device": "cuda", "gpu": "NVIDIA H100", "sacrebleu": "2.4.3"},
        "data": {
            "splits": {
                "train": {"sentences": 29000, "source": {"pieces": 400000}, "target": {"pieces": 450000}},
                "valid": {"sentences": 1014, "source": {"pieces": 14000}},
            }
        },
        "devices": 2,
    },
    {"event": "train", "update": 100, "epoch": 1, "tokens": 1000, "seconds": 5.0},
    {
        "event": "end",
        "update": 4000,
        "epoch": 12,
        "ending": "x",
        "tokens": 123456789,
        "seconds": 7325.0,
        "flops_counted": 1.5e17,
    },
]


def trained(folder: Path, reasons: list[str]) -> Path:
    """A model as a run would leave it."""
    checkpoint = store(folder / "checkpoint-0012-00003900")
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest |= {"reasons": reasons, "update": 3900, "epoch": 12}
    manifest["scores"] = {"loss": 2.5, "nll": 2.0, "ppl": 7.389, "bleu": 34.127, "chrf": 61.0, "of_a_plugin": 1.0}
    replace_manifest(checkpoint, manifest)
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    (folder / "config.yaml").write_text(yaml.safe_dump({"train_subset": "train", "valid_subset": "valid"}))
    return checkpoint


def test_a_card_says_what_the_run_knows(tmp_path: Path) -> None:
    checkpoint = trained(tmp_path / "run", ["final"])
    text = card(checkpoint, tmp_path / "there")
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front) == {"language": ["en", "de"], "pipeline_tag": "translation"}
    count = sum(parameter.numel() for parameter in load_model(checkpoint, "cpu").module.parameters())
    for said in (
        "# Translation from en to de",
        "2 encoder and 2 decoder layers of width 16, 2 heads, feed-forward networks of 24 (relu), sinusoidal positions",
        f"layer normalization after each sublayer: {count:,} parameters. Its vocabulary has 34 tokens for both languages",
        "- Training: 29,000 sentence pairs of 400,000 source tokens and 450,000 target tokens\n",
        "- Validation: 1,014 sentence pairs of 14,000 source tokens\n",
        "On the validation split, with beam width 5 and length penalty gnmt 0.6:",
        "- perplexity per token: 7.3890\n",
        "- bleu: 34.13 (`nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.4.3`)\n",
        "- chrf: 61.00 (`nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.4.3`)\n",
        "- of_a_plugin: 1.0000\n",
        "Training: 4,000 updates in 12 epochs, 123,456,789 target tokens, 2:02:05 (h:mm:ss) on 2 x NVIDIA H100",
        "floating-point operations. The model is from update 3,900.",
        "read back from disk as safetensors: 2 of 2 sentences translate the same",
    ):
        assert said in body, said
    assert str(tmp_path) not in text


@pytest.mark.parametrize(("code", "iso"), [("de", "de"), ("deu_Latn", "deu"), ("zh_CN", "zh"), ("pt-BR", "pt")])
def test_a_card_names_languages_as_the_hub_accepts_them(tmp_path: Path, code: str, iso: str) -> None:
    text = card(store(tmp_path / "run", replace(PAIR, target_lang=code)), tmp_path / "there")
    assert yaml.safe_load(text.split("---\n", 2)[1])["language"] == ["en", iso]


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    run = store(tmp_path / "run")
    titles = re.findall(r"^## (.*)", card(run, tmp_path / "there"), flags=re.MULTILINE)
    assert titles == ["Model", "Use", "Check"]
    assert "It was imported from nowhere." in card(run, tmp_path / "again")


def test_a_log_beside_an_imported_model_is_not_its_own(tmp_path: Path) -> None:
    text = card(trained(tmp_path / "run", ["import"]), tmp_path / "there")
    assert "## Cost" not in text and "version:" not in text


def test_an_average_says_so(tmp_path: Path) -> None:
    text = card(trained(tmp_path / "run", ["average"]), tmp_path / "there")
    assert "The model is an average of checkpoints; the last one is from update 3,900." in text


@pytest.mark.parametrize("name", ["ctranslate2", "huggingface"])
def test_a_card_says_that_the_length_penalty_is_another_one(tmp_path: Path, name: str) -> None:
    text = card(store(tmp_path / "run"), tmp_path / "there", name)
    assert f"library_name: {NEEDED[name]}\n" in text
    assert "not by GNMT's ((5 + length) / 6)^p. The model was validated with GNMT's (`--lenpen 0.6`)" in text


def test_a_model_of_several_directions_says_what_its_sources_begin_with(tmp_path: Path) -> None:
    config = BpeConfig(vocab_size=60, user_defined_symbols=["<2de>", "<2fr>"])
    tokenizer = SentencePieceBuilder(config).train(LINES, seed=1)
    pair = LanguagePair("en", "de", tokenizer, tokenizer, shared=True).with_tag("de")
    text = card(store(tmp_path / "run", pair), tmp_path / "there")
    assert (
        "Each source must begin with the token of the target language. The tokens are `<2de>` (de), `<2fr>` (fr)."
        in text
    )
    assert "token of the target language" not in card(store(tmp_path / "plain", PAIR), tmp_path / "elsewhere")
