"""docs/how-to/extend: the files of its pages do what the pages say of them. Another test of documents runs the commands."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from nmt import plugins
from nmt.data.augmentations import augmentations, chosen
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers import tokenizers
from nmt.models.loading import load_model
from nmt.plugins import load_plugins
from nmt.storage.files import MANIFEST
from tests.commands import run_copy
from tests.documents import ROOT, fenced_blocks, files_of
from tests.tiny_models import in_english, some_lines, write_tiny_model
from tests.unit.formats.stored import store

FOLDER = ROOT / "docs" / "how-to" / "extend"
PAGES = "index criterion optimizer-and-scheduler search scorer tokenizer augmentation format".split()
TINY = (
    "model=transformer_tiny model.encoder_layers=1 model.decoder_layers=1 model.d_model=16 model.d_ff=16 model.num_heads=2 "
    "model.dropout=0 --batch-size 60 --validate-interval null --valid-samples 0 --save-interval null --no-html "
    "--no-count-flops --cpu"
).split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("components")
    for page in PAGES:
        write_files_of(page, made)
    return made


def text_of(page: str) -> str:
    return (FOLDER / f"{page}.md").read_text(encoding="utf-8")


def write_files_of(page: str, folder: Path) -> None:
    for name, content in files_of(text_of(page)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def logged(run: Path, event: str) -> list[dict[str, float]]:
    events = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [found for found in events if found["event"] == event]


@pytest.fixture(scope="module")
def train(folder: Path, copy_corpus: Path) -> Callable[..., list[dict[str, float]]]:
    """The figures of each update of a run with a plugin of the page."""

    def run(plugin: str, *options: str, corpus: str = str(copy_corpus)) -> list[dict[str, float]]:
        place = folder / f"run-{len(list(folder.glob('run-*')))}"
        limits = ["--max-update", "3", "--log-interval", "1", "--save-dir", str(place)]
        done = run_copy("train", corpus, *TINY, "--user-dir", plugin, *limits, *options, cwd=folder)
        assert done.returncode == 0, done.stderr.decode()
        return logged(place, "train")

    return run


def test_the_pages_show_a_file_of_each_role(folder: Path) -> None:
    names = sorted(path.stem for path in folder.glob("*.py"))
    expected = "focal half_life npz pairs restarts shortest signum without_accents word_overlap"
    assert names == expected.split()
    shown = [block for page in PAGES for language, block in fenced_blocks(text_of(page)) if language == "python"]
    assert len(shown) == len(names), "every block of Python is a file that is tested"


def test_a_page_of_each_role_is_in_the_table() -> None:
    linked = set(re.findall(r"\]\(([\w-]+)\.md\)", text_of("index")))
    assert linked == {path.stem for path in FOLDER.glob("*.md")} - {"index"}


def test_the_schedule_restarts(train: Callable[..., list[dict[str, float]]]) -> None:
    options = ["--lr-scheduler", "restarts", "--cycle-updates", "2", "--lr", "0.004"]
    assert [update["lr"] for update in train("restarts.py", *options)] == pytest.approx([0.004, 0.002, 0.004])


def test_the_package_to_publish_names_its_module_and_includes_its_presets(tmp_path: Path) -> None:
    write_files_of("publish", tmp_path)
    (project,) = (block for language, block in fenced_blocks(text_of("publish")) if language == "toml")
    (module,) = re.findall(r'^\[project\.entry-points\."nmt\.plugins"\]\n\w+ = "(\w+)"$', project, flags=re.MULTILINE)
    assert (tmp_path / module / "__init__.py").is_file() and f'packages = ["{module}"]' in project
    (pattern,) = re.findall(
        rf'^\[tool\.setuptools\.package-data\]\n{module} = \["(.+)"\]$', project, flags=re.MULTILINE
    )
    assert set((tmp_path / module).rglob("*.yaml")) == set((tmp_path / module).glob(pattern)) != set()


def test_without_its_exponent_the_focal_loss_is_cross_entropy(train: Callable[..., list[dict[str, float]]]) -> None:
    plain = train("focal.py", "--criterion", "focal", "--focal-gamma", "0")
    assert [update["loss"] for update in plain] == pytest.approx([update["nll"] for update in plain])
    strong = train("focal.py", "--criterion", "focal")
    assert all(update["loss"] < 0.95 * update["nll"] for update in strong)


def test_a_preset_beside_the_file_changes_what_it_says(train: Callable[..., list[dict[str, float]]]) -> None:
    losses = [train("focal.py", *choice)[0]["loss"] for choice in (["criterion=focal_mild"], ["criterion=focal"])]
    given = train("focal.py", "criterion=focal", "--focal-gamma", "0.5")
    assert losses[0] == given[0]["loss"] > losses[1]


def test_the_optimizer_steps_by_its_rate(train: Callable[..., list[dict[str, float]]]) -> None:
    options = ["--optimizer", "signum", "--lr-scheduler", "constant", "--lr", "0.01"]
    made = train("signum.py", *options)
    assert made[-1]["loss"] < made[0]["loss"]
    assert [update["lr"] for update in made] == [0.01] * 3


def test_the_rate_halves(train: Callable[..., list[dict[str, float]]]) -> None:
    options = ["--lr-scheduler", "half_life", "--half-life", "1", "--lr", "0.004"]
    assert [update["lr"] for update in train("half_life.py", *options)] == [0.004, 0.002, 0.001]


def test_the_scorer_counts_words_in_common(folder: Path) -> None:
    (folder / "said").write_text("a b\nA c\n", encoding="utf-8")
    (folder / "wanted").write_text("b a\nc a d\n", encoding="utf-8")
    given = ["--user-dir", "word_overlap.py", "--sys", "said", "--ref", "wanted", "--metrics", "word_overlap"]
    for options, expected in (([], 60.0), (["--lowercase"], 80.0)):
        done = run_copy("score", *given, *options, "--format", "json", cwd=folder)
        (score,) = json.loads(done.stdout)["scores"]
        assert score["score"] == pytest.approx(expected)


def test_the_search_shows_the_shortest_of_the_beam(folder: Path) -> None:
    model = write_tiny_model(folder / "model", updates=80)
    lines = some_lines(8, seed=5)
    given = ["--path", str(model), "--beam", "6", "--format", "jsonl", "--cpu"]
    text = "".join(f"{line}\n" for line in lines).encode()
    shown = [
        [
            json.loads(line)["hypotheses"]
            for line in run_copy("generate", *given, *more, stdin=text, cwd=folder).stdout.splitlines()
        ]
        for more in (["--nbest", "6"], ["--user-dir", "shortest.py", "--search", "shortest"])
    ]
    beams, chosen = shown
    assert len(chosen) == len(lines)
    for beam, (one,) in zip(beams, chosen):
        assert len(one["tokens"]) == min(len(hypothesis["tokens"]) for hypothesis in beam)
    assert any(one["text"] != beam[0]["text"] for beam, (one,) in zip(beams, chosen))


def test_the_tokenizer_cuts_pairs_and_gives_the_text_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = some_lines(30, seed=2)
    for language, side in (("de", lines), ("en", [in_english(line) for line in lines])):
        (folder / f"text.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    given = ["--user-dir", "pairs.py", "--source-lang", "de", "--target-lang", "en", "--trainpref", "text"]
    done = run_copy("preprocess", *given, "--validpref", "text", "--destdir", "data", "tokenizer=pairs", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    pieces = json.loads((folder / "data/tokenizer/source.json").read_text(encoding="utf-8"))
    assert {len(piece) for piece in pieces} == {1, 2}, "a line of odd length ends in a single character"
    monkeypatch.setattr(tokenizers, "_entries", dict(tokenizers._entries))  # other tests count what is registered
    monkeypatch.setattr(plugins, "_loaded", dict(plugins._loaded))
    monkeypatch.setattr(sys, "path", list(sys.path))
    load_plugins(folder / "pairs.py")
    monkeypatch.setitem(sys.modules, "pairs", sys.modules.pop("pairs"))  # gone afterwards
    pair = LanguagePair.load(folder / "data/tokenizer")
    assert [pair.source.decode(ids.tolist()) for ids in pair.source.encode(lines)] == lines


def test_the_augmentation_takes_accents_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentations, "_entries", dict(augmentations._entries))
    monkeypatch.setattr(plugins, "_loaded", dict(plugins._loaded))
    monkeypatch.setattr(sys, "path", list(sys.path))
    load_plugins(folder / "without_accents.py")
    monkeypatch.setitem(sys.modules, "without_accents", sys.modules.pop("without_accents"))  # gone afterwards
    for item, expected in (("without_accents=1", "schon grun"), ("without_accents=1:words=0", "schön grün")):
        (augment,) = chosen([item])
        assert augment.change("schön grün", "été", Random(1)) == (expected, "été")


def test_an_augmentation_of_a_plugin_is_one_of_training(
    folder: Path, train: Callable[..., list[dict[str, float]]]
) -> None:
    lines = ["schön grün", "dünn öde"] * 30
    for language in ("de", "en"):
        (folder / f"accents.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    given = [
        "--source-lang",
        "de",
        "--target-lang",
        "en",
        "--trainpref",
        "accents",
        "--destdir",
        "accents",
        "--keep-text",
    ]
    done = run_copy("preprocess", *given, "tokenizer=char", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    changed = train("without_accents.py", "--augment", "without_accents=1", corpus="accents")
    assert changed[0]["loss"] != train("without_accents.py", corpus="accents")[0]["loss"]


def test_the_format_gives_a_model_back(folder: Path) -> None:
    model = store(folder / "exported")
    for command, *line in (
        ("export", "--path", str(model), "--format", "npz", "--output", "x.npz", "--sentences", "2"),
        ("import_", "--from", "npz", "--path", "x.npz", "--output", "again"),
    ):
        done = run_copy(command, *line, "--user-dir", "npz.py", cwd=folder)
        assert done.returncode == 0, done.stderr.decode()
    before, after = (load_model(path, "cpu") for path in (model, folder / "again"))
    np.testing.assert_equal(dict(after.arrays), dict(before.arrays))
    (folder / "x.npz/model.npz").write_bytes(b"PK")
    done = run_copy("import_", *line, "--overwrite", "--user-dir", "npz.py", cwd=folder)
    assert done.returncode == 65 and b"model.npz is damaged" in done.stderr  # its checksum is in the manifest
    (folder / "x.npz" / MANIFEST).unlink()
    done = run_copy("import_", *line, "--overwrite", "--user-dir", "npz.py", cwd=folder)
    assert done.returncode == 65 and b"model.npz cannot be read" in done.stderr
