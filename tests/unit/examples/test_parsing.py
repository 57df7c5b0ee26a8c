"""Trees to lines and back, on trees that hypothesis makes and on the treebank sample; and whatever a model may write."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.mark import ParameterSet
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import DataError
from nmt.scoring.brackets import read_tree
from tests.documents import all_commands

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "parsing"
NAMES = ("trees", "linear", "prepare", "classes", "restore", "baseline", "words")


def load() -> dict[str, ModuleType]:
    """The scripts, which import each other by name as they do when they are run; the names are free again afterwards."""
    sys.path.insert(0, str(FOLDER))
    try:
        return {name: import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in NAMES:
            sys.modules.pop(name, None)


scripts = load()
trees, linear, prepare, classes, restore, baseline, cutting = (scripts[name] for name in NAMES)

TEXT = """
( (S (NP-SBJ-1 (DT The) (NN dog) )
     (VP (VBD wanted) (S (NP-SBJ (-NONE- *-1) ) (VP (TO to) (VP (VB bark) ))))
     (. .) ))
(TOP (NP=2 (NNP John) (POS ')))
( (FRAG (NP (-NONE- *)) (UH Yes)) (. .))
( (X (-NONE- *)))
( (UH No))
"""
READ = (
    "(S (NP (DT The) (NN dog)) (VP (VBD wanted) (S (VP (TO to) (VP (VB bark))))) (. .))",
    "(NP (NNP John) (POS '))",
    "(TOP (FRAG (UH Yes)) (. .))",
    "(TOP (UH No))",
)

labels = st.sampled_from(("S", "NP", "VP", "SBAR", "ADVP|PRT", "X"))
tags = st.sampled_from(("NN", "VBZ", "PRP$", "-LRB-", "$", "#", "XX", "NNP"))
PLAIN = "The dog IBM 's 35.2 -LRB- \u00a0x \u2028y f\u00fcr <unk>".split(
    " "
)  # other white space than ASCII's is of words
plain_words = st.sampled_from(PLAIN)
words = st.sampled_from([*PLAIN, "'", *linear.PUNCTUATION])


def nodes() -> st.SearchStrategy[list[tuple[str, str]]]:
    """Nodes as lists of (symbol, word); the word of a bracket is empty."""
    leaves = st.tuples(tags, plain_words).map(lambda leaf: [leaf])

    def node(children: st.SearchStrategy[list[tuple[str, str]]]) -> st.SearchStrategy[list[tuple[str, str]]]:
        inner = st.lists(children, min_size=1, max_size=4).map(lambda parts: sum(parts, []))
        return st.builds(lambda label, parts: [("(" + label, ""), *parts, (")" + label, "")], labels, inner)

    return node(st.recursive(leaves, node, max_leaves=12))


made_trees = nodes().map(
    lambda parts: trees.Tree(tuple(symbol for symbol, _ in parts), tuple(word for _, word in parts if word))
)
symbols = st.one_of(st.sampled_from("(S (NP (VP )S )NP )VP ) XX NN , . ( () (A(B a)b <unk>".split()), words)


def test_traces_functions_and_outer_brackets_are_left_out() -> None:
    assert tuple(map(str, trees.parse(TEXT))) == READ


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN dog))\n(S (NN dog)", "line 2: the tree that begins here is not closed"),
        ("(S (NN dog)))", "line 1: a bracket closes nothing"),
        ("(S\n dog", "line 2: 'dog' neither begins nor ends a node"),
        ("\n(NN dog)", "line 2: the word 'dog' is outside any tree"),
        ("(S (NN (dog)))", "line 1: the node '(dog)' is empty: a word needs a tag, (NN word)"),
    ],
)
def test_what_is_no_tree_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        list(trees.parse(text))


@given(made_trees)
def test_a_tree_is_read_as_it_was_written(tree: trees.Tree) -> None:  # type: ignore[name-defined]
    assert list(trees.parse(str(tree))) == [tree]
    assert list(trees.parse(f"( {str(tree).replace('(', ' ( ')} )")) == [tree]


@given(made_trees, st.booleans())
def test_a_line_with_tags_and_the_words_are_the_tree_again(tree: trees.Tree, closers: bool) -> None:  # type: ignore[name-defined]
    restored, repairs = linear.restore(linear.linearise(tree, closers=closers, tags=True), tree.words)
    assert (restored, repairs) == (tree, Counter())


@given(made_trees, st.booleans())
def test_a_line_without_tags_has_the_tree_s_nodes(tree: trees.Tree, closers: bool) -> None:  # type: ignore[name-defined]
    restored, repairs = linear.restore(linear.linearise(tree, closers=closers), tree.words)
    assert restored.words == tree.words and not repairs
    assert read_tree(str(restored)).spans == read_tree(str(tree)).spans


@given(st.lists(symbols, max_size=60), st.lists(words, min_size=1, max_size=12))
def test_whatever_was_written_becomes_a_tree_of_the_words(line: list[str], sentence: list[str]) -> None:
    tree, repairs = linear.restore(" ".join(line), sentence)
    assert list(trees.parse(str(tree))) == [tree]  # well-formed, no empty node
    assert tree.words == tuple(sentence)
    assert set(repairs) <= set(linear.REPAIRS) and all(repairs.values())
    again, no_more = linear.restore(linear.linearise(tree, tags=True), sentence)
    assert (again, no_more) == (tree, Counter())


@pytest.mark.parametrize(
    ("line", "expected", "repairs"),
    [
        ("(S (NP NN )NP (VP VBZ )VP )S", "(S (NP (NN a)) (VP (VBZ b)))", {}),
        ("(S (NP NN ) (VP VBZ ) )", "(S (NP (NN a)) (VP (VBZ b)))", {}),
        ("(S (NP NN )VP (VP VBZ )VP )S", "(S (NP (NN a) (VP (VBZ b))))", {"unopened": 1, "unclosed": 1}),
        ("(S (NP NN (VP VBZ", "(S (NP (NN a) (VP (VBZ b))))", {"unclosed": 3}),
        ("(S (NP NN )NP (VP VBZ NN )VP (NP NN )NP )S", "(S (NP (NN a)) (VP (VBZ b)))", {"surplus": 2, "empty": 1}),
        ("(NP NN )NP", "(NP (NN a) (XX b))", {"missing": 1}),
        ("(NP NN )NP (VP VBZ )VP", "(S (NP (NN a)) (VP (VBZ b)))", {"rootless": 1}),
        ("((S (NP NN VBZ )NP", "(NP (NN a) (VBZ b))", {"strange": 1}),
        ("", "(S (XX a) (XX b))", {"rootless": 1, "missing": 2}),
    ],
)
def test_repairs(line: str, expected: str, repairs: dict[str, int]) -> None:
    tree, counted = linear.restore(line, ["a", "b"])
    assert (str(tree), counted) == (expected, repairs)


def test_punctuation_has_its_own_tag_and_nothing_else_has() -> None:
    sentence = "` Dogs ' , dogs ' bones -- ?".split()
    tree, _ = linear.restore("(S XX , : NN , XX NN XX NN )S", sentence)
    assert [symbol for symbol in tree.symbols if trees.is_tag(symbol)] == [
        "``",
        "XX",
        "''",
        ",",
        "XX",
        "POS",
        "NN",
        ":",
        ".",
    ]


def test_a_sentence_without_words_is_refused() -> None:
    with pytest.raises(DataError, match="without words"):
        linear.restore("(S XX )S", [])


def treebank() -> Iterator[ParameterSet]:
    """The files of the sample, if there is one; that of 3,396 trees at night."""
    for path in sorted(Path(os.environ.get("NMT_DATA", "nowhere"), "treebank").glob("*.mrg.gz")):
        yield pytest.param(path, id=path.name, marks=[pytest.mark.nightly] if path.name.startswith("train") else [])


@pytest.mark.parametrize("path", list(treebank()))
def test_the_treebank_comes_back(path: Path) -> None:
    """With tags exactly, else with the same brackets and without an error of EVALB; one "Wa" is tagged as a comma."""
    different = []
    for tree in trees.read_trees(path):
        tagged, repairs = linear.restore(linear.linearise(tree, closers=False, tags=True), tree.words)
        assert not repairs
        untagged, repairs = linear.restore(linear.linearise(tree), tree.words)
        assert not repairs
        gold = read_tree(str(tree))
        if tagged != tree or read_tree(str(untagged)).spans != gold.spans or read_tree(str(tagged)).words != gold.words:
            different.append(tree.words)
    assert [sentence for sentence in different if "Wa" not in sentence] == []


def test_alignments_point_at_the_words() -> None:
    (tree,) = trees.parse("(S (NP (DT The) (NN dog)) (VP (VBZ barks)))")
    assert prepare.alignment(tree, "leaves") == "0-2 1-3 2-6"
    assert prepare.alignment(tree, "next") == "0-0 0-1 0-2 1-3 2-4 2-5 2-6"


@pytest.mark.parametrize(
    ("word", "first", "expected"),
    [
        ("barking", False, "UNK-lower-ing"),
        ("Barking", True, "UNK-capital-first-ing"),
        ("Dogs", True, "UNK-capital-known-s"),
        ("IBM", False, "UNK-capitals"),
        ("35.2", False, "UNK-number"),
        ("1950s", False, "UNK-digits-s"),
        ("third-rated", False, "UNK-lower-dash-ed"),
        ("--", False, "UNK"),
    ],
)
def test_classes(word: str, first: bool, expected: str) -> None:
    assert classes.class_of(word, first, {"dogs"}) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("A man's dog.", "A man 's dog ."),
        ("Mr. Potato, of 18th St. outside", "Mr. Potato , of 18th St. outside"),
        (
            "The dogs' owners don't (yet) know: it's 10:30!",
            "The dogs ' owners do n't -LRB- yet -RRB- know : it 's 10:30 !",
        ),
        ('“No”, said a sign, "it’s 1,000..."', "`` No '' , said a sign , `` it 's 1,000 ... ''"),
        (
            "They cannot pay US$5, or 62%-owned $5; 10% [sic]",
            "They can not pay US$ 5 , or 62%-owned $ 5 ; 10 % -LSB- sic -RSB-",
        ),
        ("I know (it was him.)", "I know -LRB- it was him . -RRB-"),
        ("", ""),
    ],
)
def test_sentences_are_cut_as_the_treebank_cuts_them(sentence: str, expected: str) -> None:
    assert cutting.treebank_words(sentence) == expected


@pytest.mark.parametrize("path", list(treebank()))
def test_the_words_of_the_treebank_are_left_as_they_are(path: Path) -> None:
    """But for names with an apostrophe, which no rule knows, and a sentence that ends in D.C."""
    sentences = [" ".join(tree.words) for tree in trees.read_trees(path)]
    changed = [line for line in sentences if cutting.treebank_words(line) != line]
    assert [line for line in changed if not re.search(r"Dunkin'|CREATOR'S|D\.C\.$", line)] == []


def test_right_branching() -> None:
    assert (
        baseline.right_branching("The dog barks loudly . ''".split(), "VP") == "(S XX (VP XX (VP XX XX )VP )VP XX XX )S"
    )
    assert baseline.right_branching(["Yes"], "VP") == "(S XX )S"
    assert baseline.right_branching([".", "."], "VP") == "(S XX XX )S"


@given(st.lists(words, min_size=1, max_size=12))
def test_right_branching_needs_no_repair(sentence: list[str]) -> None:
    assert not linear.restore(baseline.right_branching(sentence, "NP"), sentence)[1]


def test_the_first_hypothesis_that_needs_no_repair_is_taken() -> None:
    lines = ["(S XX )S", "(S XX XX )S", "(NP XX XX )NP"]
    tree, repairs, number = restore.best(lines, ["a", "b"])
    assert (str(tree), repairs, number) == ("(S (XX a) (XX b))", Counter(), 1)
    tree, repairs, number = restore.best(["(NP XX )NP", "XX"], ["a", "b"])
    assert (str(tree), repairs, number) == ("(NP (XX a) (XX b))", {"missing": 1}, 0)


def run(script: str, *arguments: object, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / script), *map(str, arguments)]
    done = subprocess.run(command, input=given.encode("utf-8", "surrogateescape"), capture_output=True, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_commands_from_trees_to_trees(tmp_path: Path) -> None:
    """Two hypotheses a sentence: nothing, and what is right."""
    (tmp_path / "some.mrg.gz").write_bytes(gzip.compress(TEXT.encode()))
    made = run("prepare.py", tmp_path / "some.mrg.gz", tmp_path / "text/some", "--closers", "plain", "--tags", "keep")
    assert made.returncode == 0, made.stderr
    text = {path.suffix: path.read_text(encoding="utf-8") for path in (tmp_path / "text").iterdir()}
    assert text[".trees"].splitlines() == list(READ)
    assert text[".tgt"].startswith("(S (NP DT NN ) (VP VBD (S (VP TO (VP VB ) ) ) ) . )\n")
    assert text[".align"].startswith("0-2 1-3 2-6 3-9 4-11 5-16\n")
    twice = "".join(f"\n{line}" for line in text[".tgt"].splitlines(keepends=True))
    restored = run("restore.py", tmp_path / "text/some.src", "--nbest", 2, given=twice)
    assert (restored.returncode, restored.stdout) == (0, text[".trees"])
    assert restored.stderr == "0 of 4 sentences repaired, 4 taken from a later hypothesis\n"
    repaired = run("restore.py", tmp_path / "text/some.src", given="\n" * 4)
    assert "4 of 4 sentences repaired" in repaired.stderr and "missing: 11 leaves" in repaired.stderr
    replaced = run("classes.py", tmp_path / "text/some.src", given=text[".src"])
    assert replaced.stdout.startswith("UNK-capital-first UNK-lower UNK-lower-ed")
    branching = run("baseline.py", given=text[".src"])
    assert branching.stdout.splitlines()[1] == "(S (XX John) (POS '))"
    labelled = run("baseline.py", "--label", "NP", given="a b c\n")
    assert labelled.stdout == "(S (XX a) (NP (XX b) (XX c)))\n"
    assert run("published.py", tmp_path / "none.json").returncode == 0
    rows = json.loads((tmp_path / "none.json").read_text(encoding="utf-8"))
    assert len(rows) == 12 and {"row": "Transformer, WSJ only", "published": 91.3}.items() <= rows[4].items()
    assert sum(row.get("setting") == "a system of others" for row in rows) == 8


@pytest.mark.parametrize(
    ("script", "arguments", "given", "message"),
    [
        ("prepare.py", ["bad.mrg", "out"], "", "bad.mrg: line 1: the tree that begins here is not closed"),
        ("prepare.py", ["empty.mrg", "out"], "", "empty.mrg has no tree"),
        ("prepare.py", ["none.mrg", "out"], "", "cannot read none.mrg: No such file or directory"),
        ("prepare.py", ["torn.mrg.gz", "out"], "", "torn.mrg.gz after 7 lines; it was cut short"),
        ("prepare.py", ["good.mrg", "words/out"], "", "cannot create words: File exists"),
        ("restore.py", ["words"], "(S XX )S\n", "1 line of hypotheses for 2 sentences"),
        ("restore.py", ["words"], "\n\n", "line 2: a sentence without words has no tree"),
        ("restore.py", ["words"], "\n\udcff\n", "standard input:2:"),
        ("baseline.py", [], "a (b c\n", "the word '(b' has a bracket, which marks a node of a tree"),
        ("restore.py", ["words", "--nbest", "0"], "", "--nbest must be at least 1, not 0"),
        ("restore.py", ["none"], "", "cannot read none: No such file or directory"),
        ("classes.py", ["none"], "a\n", "cannot read none: No such file or directory"),
        ("classes.py", ["words"], "\udcff\n", "standard input:1:"),
        ("words.py", [], "a\n\udcff\n", "standard input:2:"),
        ("baseline.py", [], "a\n\n", "line 2 has no words"),
        ("baseline.py", [], "a\n\udcff\n", "standard input:2:"),
        ("split.py", ["none", "out"], "", "none has no file for train, dev, test; it should hold wsj_0001.mrg"),
        ("split.py", ["sample", "words/out"], "", "cannot create words/out: Not a directory"),
    ],
)
def test_what_a_user_can_do_wrong_is_one_sentence(
    script: str, arguments: list[str], given: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.mrg").write_text("(S (NN dog)\n", encoding="utf-8")
    (tmp_path / "empty.mrg").write_text("", encoding="utf-8")
    (tmp_path / "good.mrg").write_text("(S (NN dog))\n", encoding="utf-8")
    (tmp_path / "torn.mrg.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    (tmp_path / "words").write_text("a b\n\n", encoding="utf-8")
    write_sample(tmp_path / "sample")
    result = run(script, *arguments, given=given)
    assert result.returncode in (2, 65, 66, 73) and result.stdout.count("\n") <= 1
    assert message in result.stderr and result.stderr.splitlines()[-1].startswith(f"{script}: ")


@pytest.mark.parametrize("script", [["words.py"], ["baseline.py"], ["classes.py", "text"], ["restore.py", "text"]])
def test_a_reader_that_has_seen_enough_is_no_error(script: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\n" * 9999, encoding="utf-8")
    line = f"{sys.executable} {FOLDER}/{script[0]} {' '.join(script[1:])} < text | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[1] == "141" and done.stderr == ""


def write_sample(folder: Path) -> None:
    """Five files in the place of NLTK's, each with a tree of a word that is the file's number."""
    folder.mkdir()
    for number in (159, 179, 180, 1, 160):
        (folder / f"wsj_{number:04}.mrg").write_text(f"\n( (S (NN {number})))\n", encoding="utf-8")
    (folder / "wsj_notes.mrg").write_text("not a tree", encoding="utf-8")


def test_the_sample_is_divided_by_its_files(tmp_path: Path) -> None:
    write_sample(tmp_path / "sample")
    done = run("split.py", tmp_path / "sample", tmp_path / "parts")
    assert (done.returncode, done.stdout) == (
        0,
        "train: 2 trees of 2 files\ndev: 2 trees of 2 files\ntest: 1 tree of 1 file\n",
    )
    assert "split.py: the figures of README.md are of 3,396 trees for train; yours may differ" in done.stderr
    parts = {path.name: [tree.words for tree in trees.read_trees(path)] for path in (tmp_path / "parts").iterdir()}
    assert parts == {
        "train.mrg.gz": [("1",), ("159",)],
        "dev.mrg.gz": [("160",), ("179",)],
        "test.mrg.gz": [("180",)],
    }


def test_the_recipes_decide_on_search_and_length() -> None:
    """The parsers of Table 4 differ in both."""
    of_script = [command for command in all_commands() if command.document == "examples/parsing/run.sh"]
    options = {option for command in of_script for option in command.arguments if option.startswith("--")}
    assert options.isdisjoint({"--beam", "--lenpen", "--max-len-a", "--max-len-b", "--max-epoch", "--max-update"})
    trained = {option for command in of_script for option in command.arguments if option.startswith("recipe=")}
    assert trained == {"recipe=parsing_small", "recipe=parsing_small_transformer", "recipe=parsing_vinyals"}


def test_a_parser_that_is_none_is_refused_before_any_work(tmp_path: Path) -> None:
    environment = {**os.environ, "NMT_DATA": str(tmp_path), "SYSTEMS": "lstm lstmm"}
    done = subprocess.run(
        ["bash", str(FOLDER / "run.sh"), str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and list(tmp_path.iterdir()) == []
    assert (
        done.stderr == "run.sh: SYSTEMS names 'lstmm', which is not a parser; there are lstm, transformer and vinyals\n"
    )
