"""The folder that documents speak of, in miniature: its texts, corpora and models have the names that they use."""

from __future__ import annotations

import gzip
import random
import re
import shutil
import string
import subprocess
from pathlib import Path

from tests.documents import ROOT, prepared_names, write_files
from tests.literally.shims import Shims

# The same thing under several names.
SAME = {
    "data-bin/multi30k": "data-bin/en-de",
    "CORPUS": "data-bin/en-de",
    "corpus": "data-bin/en-de",
    "demo/corpus": "data-bin/x",
    "runs/wmt14/en-de/corpus": "data-bin/en-de",
    "data-bin/other": "data-bin/x",
    "data-bin/clean": "data-bin/x",
    "data-bin/back-translated": "data-bin/x",
    "data-bin/iwslt14.tokenized.de-en": "data-bin/x",
    "runs/first": "runs/x",
    "runs/general": "runs/x",
    "runs/likelihood": "runs/x",
    "runs/big": "runs/x",
    "runs/de-en": "runs/x",
    "runs/other": "runs/en-de",
    "models/en-de": "runs/en-de/averaged",
    "data-bin/large": "data-bin/en-de",
    "runs/base": "runs/en-de",
    "checkpoints": "runs/en-de",
} | {
    f"data/{part}.{language}": f"text/{part.replace('news', 'train')}.{language.replace('fr', 'de')}"
    for part in ("train", "valid", "test", "news")
    for language in ("fr", "en", "de")
}

PREPARATION = """
set -e
small='--trainpref text/few --validpref text/valid --source-lang de --target-lang en --vocab-size 150'
nmt-preprocess $small --destdir data-bin/x
nmt-preprocess $small --destdir data-bin/medical --normalization identity
nmt-preprocess --source-lang en --target-lang de --trainpref text/train --validpref text/valid \
    --testpref text/test1,text/test2 --destdir data-bin/en-de --vocab-size 8000 --joined-dictionary
nmt-train data-bin/x --save-dir runs/x &
nmt-train data-bin/en-de --save-dir runs/en-de --valid-metrics bleu
nmt-average-checkpoints --inputs runs/en-de --num-epoch-checkpoints 2 --output runs/en-de/averaged
wait
"""

WORDS, LINES, FEW, TESTED = 4000, 1000, 40, 6


def prepare(folder: Path, shims: Shims) -> None:
    """All of it; takes some seconds."""
    _write_texts(folder)
    log = folder / "preparation.log"
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            ["bash", "-c", PREPARATION], cwd=folder, env=shims.environment, stdout=file, stderr=file, check=False
        )
    assert done.returncode == 0, log.read_text(encoding="utf-8")


def furnish(document: str, folder: Path, prepared: Path) -> None:
    """What the document's commands find: a copy of what was prepared, the files that it shows, and the examples."""
    for name in prepared_names((ROOT / document).read_text(encoding="utf-8")):
        source = prepared / SAME.get(name, name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    write_files(document, folder)


def _write_texts(folder: Path) -> None:
    """Sentences of invented words, one for one in both languages."""
    chance = random.Random(1)
    (folder / "text").mkdir()
    letters = string.ascii_lowercase + "E"
    lexicon = [["".join(chance.choices(letters, k=chance.randint(3, 6))) for _ in range(WORDS)] for _ in range(2)]
    known = {"de": "Ein Hund das zwei Hunde".split(), "en": "a dog the two dogs his".split()}
    sizes = {"train": LINES, "few": FEW} | dict.fromkeys(("valid", "test", "test1", "test2", "mono"), TESTED)
    for split, size in sizes.items():
        longest = 8 if split == "train" else 3
        sentences = [[chance.randrange(WORDS) for _ in range(chance.randint(1, longest))] for _ in range(size)]
        for words, language in zip(lexicon, ("de", "en")):
            lines = [" ".join(words[number] for number in sentence) for sentence in sentences]
            lines[0] = " ".join([lines[0], *known[language]])
            _write(folder / f"text/{split}.{language}", lines)
            if split in ("train", "valid", "test"):
                _write(folder / f"cut/{split}.{language}", [re.sub(r"(\w{3})(?=\w)", r"\1@@ ", line) for line in lines])
        _write(folder / f"text/{split}.align", [" ".join(f"{n}-{n}" for n in range(len(s))) for s in sentences])
    shutil.copy(folder / "text/test1.de", folder / "text/test1-second.de")
    shutil.copy(folder / "text/test1.en", folder / "source.txt")
    (folder / "source.txt.gz").write_bytes(gzip.compress((folder / "source.txt").read_bytes()))
    _write_results(folder)
    _write_multi30k(folder)
    _write_dates(folder)
    _write_trees(folder)


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _write_results(folder: Path) -> None:
    """What two systems, a parser and an aligner may have said."""
    references = (folder / "text/test.de").read_text(encoding="utf-8").splitlines()
    _write(folder / "systems/base.txt", [" ".join(line.split()[::-1]) for line in references])
    _write(folder / "systems/big.txt", [*references[:-1], ""])
    _write(folder / "systems/domains.txt", ["news", "talks"] * (TESTED // 2))
    _write(folder / "parses/gold.txt", ["(TOP (S (NP (NN a)) (VP (VB b))))"] * 2)
    _write(folder / "parses/found.txt", ["(S (NP (NN a) (VP (VB b))))", "(S (NN a)"])
    _write(folder / "alignments/gold.txt", ["0-0 1-2 2?1", "0-0"])
    _write(folder / "alignments/found.txt", ["0-0 1-2 2-1", "0-0 1-0"])


def _write_multi30k(folder: Path) -> None:
    """The files of examples/multi30k/README.md."""
    names = {"train": "train", "val": "valid", "test_2016_flickr": "test1", "test_2017_flickr": "test2"}
    for name, split in names.items():
        for language in ("de", "en", "fr"):
            text = (folder / f"text/{split}.{language.replace('fr', 'de')}").read_text(encoding="utf-8")
            lines = text.splitlines()
            if language == "en":  # half of the captions are of the sea, which is a domain
                text = "".join(f"{a}\n{b} sea\n" for a, b in zip(lines[::2], lines[1::2]))
            content = gzip.compress(text.encode())
            for place in ("multi30k/{}", "data/multi30k/{}", "data/multi30k_tok/{}.lc.norm.tok"):
                path = folder / f"{place.format(name)}.{language}.gz"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


def _write_dates(folder: Path) -> None:
    dates = [(f"{month}/{day}/1976", f"1976-{month:02}-{day:02}") for month in range(1, 13) for day in range(1, 29)]
    lines = "".join(f"{written:<29}_{meant}\n" for written, meant in dates)
    (folder / "date.txt.gz").write_bytes(gzip.compress(lines.encode()))
    sums = "".join(f"{f'{one}+{other}':<7}_{one + other:<4}\n" for one in range(30) for other in range(30))
    (folder / "addition.txt.gz").write_bytes(gzip.compress(sums.encode()))


def _write_trees(folder: Path) -> None:
    """A treebank, in the form and with the names of NLTK's sample."""
    chance = random.Random(2)
    for first, size in {1: FEW, 160: TESTED, 180: TESTED}.items():  # of training, dev and test
        trees = []
        for _ in range(size):
            subject, verb, thing = (
                chance.choice(words.split()) for words in ("dogs cats", "see hear", "men women birds")
            )
            label = chance.choice("NP PP ADVP ADJP QP SBAR PRT WHNP NX UCP".split())  # more symbols than a beam is wide
            objects = f"({label} (DT the) (NNS {thing}))" if chance.random() < 0.5 else f"({label} (NNS {thing}))"
            trees.append(f"( (S (NP-SBJ (NNS {subject}))\n     (VP (VBP {verb}) {objects}) (. .)))")
        _write(folder / f"nltk_data/corpora/treebank/combined/wsj_{first:04}.mrg", trees)
    _write(folder / "data/treebank/parsed.mrg", trees)
