"""nmt-generate as a user starts it: lines in, lines out, in every format."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import lzma
import math
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import nmt.progress
from nmt.config.choices import AlignmentKind, InputFormat, MbrMetric, OutputFormat
from nmt.config.commands import GenerateConfig
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.corpus.folder import Split
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.distributed.world import World
from nmt.errors import DataError, NMTError, UsageError
from nmt.native.library import library
from nmt.preprocessing.preprocess import preprocess
from nmt.search import searches
from nmt.search.config import BeamConfig, GreedyConfig
from nmt.translation import Translator
from nmt_cli import generate_job
from nmt_cli.generate import run
from nmt_cli.outputs import Write
from tests.commands import run_copy
from tests.tiny_models import WORDS, in_english, some_lines, write_tiny_model

T = TypeVar("T")
LINES = ["ein mann", "", "zwei hunde laufen", "rot"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "lstm")


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "transformer", model="transformer")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """Train, valid and test splits with the model's vocabulary; one test reference is wrong, one source empty."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = some_lines(12, seed=9, longest=3)
    for split, sources in (("train", lines), ("valid", lines), ("test", [*lines, ""])):
        write(folder / f"{split}.de", sources)
        write(folder / f"{split}.en", [in_english(line) for line in sources[:-2]] + ["wrong reference", ""][-2:])
    preprocess(
        PreprocessConfig(
            source_lang="de",
            target_lang="en",
            trainpref=str(folder / "train"),
            validpref=str(folder / "valid"),
            testpref=str(folder / "test"),
            destdir=str(folder / "bin"),
            srcdict=str(model / "tokenizer"),
            tgtdict=str(model / "tokenizer"),
            tokenizer=WordsConfig(),
        )
    )
    return folder / "bin"


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def nmt_generate(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    done = run_copy("generate", *arguments, stdin=stdin.encode())
    assert done.returncode == 0, done.stderr
    return subprocess.CompletedProcess(done.args, 0, done.stdout.decode(), done.stderr.decode())


def generated(capsys: pytest.CaptureFixture[str], **options: object) -> list[str]:
    """The lines that the command prints, run in this process."""
    run(GenerateConfig(**({"search": BeamConfig()} | options)))
    return capsys.readouterr().out.split("\n")[:-1]


def test_the_search_is_built_once(model, tmp_path, monkeypatch):
    built, build = [], searches.build
    monkeypatch.setattr(searches, "build", lambda *parts: built.append(parts) or build(*parts))
    source = tmp_path / "source.de"
    source.write_text("ein mann\n")
    run(GenerateConfig(path=str(model), input=str(source), output=str(tmp_path / "out"), search=BeamConfig()))
    assert len(built) == 1 and (tmp_path / "out").read_text() == "a man\n"


def test_lines_on_standard_input_become_lines_on_standard_output(model):
    result = nmt_generate(
        "--path", model, "--beam", "4", "--lenpen", "0.6", stdin="ein mann\n\nzwei hunde laufen\nrot\n"
    )
    assert result.stdout == "a man\n\ntwo dogs run\nred\n"


WITHOUT_TORCH = "import atexit, os, sys; atexit.register(lambda: 'torch' in sys.modules and os._exit(3))"


@pytest.mark.skipif(library() is None, reason="the C part was not built: no C compiler")
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--dtype", "int8", "--workers", "2", "--batch-size", "1"],
        ["--search", "diverse_beam", "--diverse-beam-groups", "2", "--beam", "4", "--nbest", "2"],
        ["--format", "jsonl", "--print-alignment"],
        ["--search", "greedy"],
        ["--input-format", "tsv", "--no-repeat-ngram-size", "2"],
    ],
)
def test_the_native_engine_needs_no_torch(transformer: Path, options: list[str]) -> None:
    line = ("--path", transformer, "--cpu", *options)
    done = run_copy("generate", *line, stdin=b"ein mann\n\nrot\n", before=WITHOUT_TORCH, torch=False)
    assert done.returncode == 0, done.stderr
    assert b"a man" in done.stdout and b"red" in done.stdout


def test_output_file_appears_and_standard_output_stays_empty(model, tmp_path):
    source = write(tmp_path / "source.txt", LINES)
    result = nmt_generate("--path", model, "--input", source, "--output", tmp_path / "out.txt", "--search", "greedy")
    assert result.stdout == ""
    assert (tmp_path / "out.txt").read_text() == "".join(f"{in_english(line)}\n" for line in LINES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt", "source.txt"]


def test_corpus_split_in_fairseqs_format_with_its_score_in_the_log(model, corpus):
    result = nmt_generate(corpus, "--path", model, "--gen-subset", "test", "--beam", "3", "--format", "fairseq")
    assert [line.split("\t")[0] for line in result.stdout.splitlines()[:5]] == ["S-0", "T-0", "H-0", "D-0", "P-0"]
    assert "Generate test with beam=3: BLEU|" in result.stderr
    assert "Generate" not in result.stdout


def test_compressed_input_is_read(model, tmp_path, capsys):
    (tmp_path / "source.gz").write_bytes(gzip.compress(b"ein mann\nrot\n"))
    assert generated(capsys, path=str(model), input=str(tmp_path / "source.gz")) == ["a man", "red"]


@pytest.mark.parametrize(("suffix", "unpack"), [("gz", gzip.decompress), ("xz", lzma.decompress)])
def test_output_is_compressed_as_its_name_says(model, tmp_path, suffix, unpack):
    source = write(tmp_path / "source", ["rot", "ein mann"])
    written = []
    for name in (f"one.{suffix}", f"two.{suffix}"):
        run(GenerateConfig(search=BeamConfig(), path=str(model), input=str(source), output=str(tmp_path / name)))
        written.append((tmp_path / name).read_bytes())
    assert unpack(written[0]) == b"red\na man\n"
    assert written[0] == written[1]  # no time, no name in it


def test_nbest_prints_that_many_lines_for_every_line(model, tmp_path, capsys):
    source = write(tmp_path / "source.txt", LINES)
    lines = generated(capsys, path=str(model), input=str(source), nbest=3)
    assert len(lines) == 12
    assert lines[::3] == [in_english(line) for line in LINES]
    assert lines[3:6] == ["", "", ""]


def fields(lines: list[str], kind: str, number: int) -> list[list[str]]:
    return [line.split("\t")[1:] for line in lines if line.startswith(f"{kind}-{number}\t")]


def test_fairseq_lines_hold_source_reference_pieces_text_and_token_scores(model, corpus, capsys):
    lines = generated(capsys, path=str(model), data=[str(corpus)], format=OutputFormat.fairseq, nbest=2)
    source = fields(lines, "S", 0)[0][0]
    assert fields(lines, "T", 0) == [[in_english(source)]]
    pieces, texts, scores = (fields(lines, kind, 0) for kind in "HDP")
    assert len(pieces) == len(texts) == len(scores) == 2
    assert pieces[0][1] == texts[0][1] == in_english(source)
    assert pieces[0][0] == texts[0][0]
    assert len(scores[0][0].split(" ")) == len(pieces[0][1].split(" ")) + 1
    assert all(len(score.split(".")[1]) == 4 for score in scores[0][0].split(" "))


def test_fairseq_lines_are_in_input_order_and_empty_sources_have_theirs(model, corpus, capsys):
    lines = generated(capsys, path=str(model), data=[str(corpus)], format=OutputFormat.fairseq)
    assert [line.split("\t")[0] for line in lines if line.startswith("D-")] == [f"D-{number}" for number in range(13)]
    assert fields(lines, "S", 12) == [[""]]
    assert fields(lines, "D", 12) == [["0.0", ""]]


def test_fairseq_scores_are_in_base_two(model, tmp_path, capsys):
    source = write(tmp_path / "source.txt", ["ein mann"])
    config = GenerateConfig(search=BeamConfig())
    found = next(Translator.load(model).hypotheses(["ein mann"], config)).hypotheses[0]
    lines = generated(capsys, path=str(model), input=str(source), format=OutputFormat.fairseq)
    assert float(fields(lines, "H", 0)[0][0]) == pytest.approx(found.score / math.log(2), abs=1e-5)
    printed = [float(score) for score in fields(lines, "P", 0)[0][0].split(" ")]
    assert printed == pytest.approx([score / math.log(2) for score in found.token_scores], abs=1e-4)
    assert not fields(lines, "T", 0)


def test_alignment_has_a_pair_for_each_piece_and_none_for_an_empty_line(model, tmp_path, capsys):
    source = write(tmp_path / "source.txt", ["zwei hunde laufen", ""])
    lines = generated(
        capsys, path=str(model), input=str(source), format=OutputFormat.fairseq, print_alignment=AlignmentKind.hard
    )
    pairs = [pair.split("-") for pair in fields(lines, "A", 0)[0][0].split(" ")]
    assert [target for _, target in pairs] == ["0", "1", "2"]
    assert {aligned for aligned, _ in pairs} <= {"0", "1", "2"}
    assert fields(lines, "A", 1) == [[""]]


def test_soft_alignment_is_a_distribution_for_each_piece_and_eos(model, tmp_path, capsys):
    source = write(tmp_path / "source.txt", ["zwei hunde laufen"])
    lines = generated(
        capsys, path=str(model), input=str(source), format=OutputFormat.fairseq, print_alignment=AlignmentKind.soft
    )
    rows = [[float(share) for share in row.split(",")] for row in fields(lines, "A", 0)[0][0].split(" ")]
    assert [len(row) for row in rows] == [4, 4, 4, 4]
    assert [sum(row) for row in rows] == pytest.approx([1.0] * 4, abs=1e-4)


def test_json_lines_hold_everything_about_a_hypothesis(model, tmp_path, capsys):
    source = write(tmp_path / "source.txt", LINES)
    lines = generated(
        capsys,
        path=str(model),
        input=str(source),
        nbest=2,
        format=OutputFormat.jsonl,
        print_alignment=AlignmentKind.hard,
    )
    trees = [json.loads(line) for line in lines]
    assert [tree["id"] for tree in trees] == [0, 1, 2, 3]
    assert [tree["source"] for tree in trees] == LINES
    best = trees[2]["hypotheses"][0]
    assert best["text"] == "two dogs run"
    assert best["tokens"] == ["two", "dogs", "run"]
    assert len(best["token_scores"]) == 4
    assert [target for _, target in best["alignment"]] == [0, 1, 2]
    assert best["finished"] is True
    assert [one["text"] for one in trees[1]["hypotheses"]] == [""]
    assert len(trees[2]["hypotheses"]) == 2


def test_json_lines_of_a_corpus_hold_the_reference(model, corpus, capsys):
    lines = generated(capsys, path=str(model), data=[str(corpus)], gen_subset="valid", format=OutputFormat.jsonl)
    tree = json.loads(lines[0])
    assert tree["reference"] == in_english(tree["source"])


def test_training_split_is_translated_although_its_text_is_not_kept(model, corpus, capsys):
    lines = generated(capsys, path=str(model), data=[str(corpus)], gen_subset="train", format=OutputFormat.fairseq)
    assert fields(lines, "T", 0) == [[in_english(fields(lines, "S", 0)[0][0])]]


class Another(World):
    """A process beside the one that writes."""

    rank, size = 1, 2


@pytest.mark.parametrize(("world", "decoded"), [(World(), [*range(11)]), (Another(), [])], ids=["first", "another"])
def test_references_of_a_training_split_are_decoded_one_by_one_where_they_are_written(
    model: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, world: World, decoded: list[int]
) -> None:
    read, at_writes, target = list[int](), list[list[int]](), Split.target

    def reading(split: Split, number: int) -> Any:
        read.append(number)
        return target(split, number)

    monkeypatch.setattr(Split, "target", reading)
    monkeypatch.setattr(generate_job, "join", lambda *_: contextlib.nullcontext(world))
    write: Write = lambda lines: at_writes.append(list(read))  # noqa: E731
    monkeypatch.setattr(generate_job, "opened", lambda *_: contextlib.nullcontext(write))
    options: dict[str, Any] = {"path": str(model), "data": [str(corpus)], "gen_subset": "train", "workers": 1}
    run(GenerateConfig(search=BeamConfig(), **options))
    assert read == decoded and at_writes == [decoded[: number + 1] for number in decoded]


def test_alignment_of_a_model_without_attention_is_refused(tmp_path):
    from nmt.models.recurrent.config import AttentionKind

    path = write_tiny_model(tmp_path / "m", updates=0, attention=AttentionKind.none)
    source = write(tmp_path / "source.txt", ["", "rot"])
    with pytest.raises(UsageError, match="no attention"):
        shown = {"print_alignment": AlignmentKind.hard, "format": OutputFormat.fairseq}
        run(GenerateConfig(path=str(path), input=str(source), **shown))
    with pytest.raises(UsageError, match="--format text shows no alignments; add --format jsonl or fairseq"):
        run(GenerateConfig(path=str(path), input=str(source), print_alignment=AlignmentKind.hard))


def test_corpus_of_another_vocabulary_is_refused(corpus, tmp_path):
    other = write_tiny_model(tmp_path / "m", updates=0, words=("rot",))
    with pytest.raises(DataError, match="has a different source vocabulary than"):
        run(GenerateConfig(path=str(other), data=[str(corpus)]))


def test_translations_cut_off_at_the_limit_are_flagged(tmp_path, capsys, caplog):
    path = write_tiny_model(tmp_path / "m", updates=0)
    source = write(tmp_path / "source.txt", ["", "rot"])
    search = BeamConfig(beam_size=1, max_len_a=0, max_len_b=1)
    with caplog.at_level(logging.WARNING, "nmt"):
        lines = generated(capsys, path=str(path), input=str(source), search=search, format=OutputFormat.jsonl)
    assert json.loads(lines[1])["hypotheses"][0]["finished"] is False
    assert "the length limit cut off 1 translation, the first on line 2" in caplog.text


def test_lines_may_say_what_is_asked_of_their_translations(model: Path, tmp_path: Path) -> None:
    lines = ['{"text": "ein mann", "prefix": "two"}', "", '{"text": "rot", "exclude": ["red"]}']
    file = write(tmp_path / "asked.jsonl", lines)
    found = nmt_generate("--path", model, "--input", file, "--input-format", "jsonl").stdout.split("\n")
    assert found[0].startswith("two") and found[1] == "" and "red" not in found[2].split()
    asked = write(tmp_path / "asked.tsv", ["ein mann\ttwo", "rot"])
    found = nmt_generate("--path", model, "--input", asked, "--input-format", "tsv").stdout.split("\n")
    assert "two" in found[0].split() and found[1] == in_english("rot")


def test_lines_may_say_how_long_their_translations_become(model: Path, tmp_path: Path) -> None:
    lines = ['{"text": "ein mann", "min_length": 6}', '{"text": "ein mann"}', '{"text": "ein mann", "max_length": 1}']
    file = write(tmp_path / "asked.jsonl", lines)
    command = ("--path", model, "--input", file, "--input-format", "jsonl", "--max-len-a", "0", "--max-len-b", "4")
    found = nmt_generate(*command, "--workers", "2", "--batch-size", "1")
    long, usual, short = found.stdout.splitlines()
    assert len(long.split()) == 6 and usual == "a man" and len(short.split()) == 1
    assert "the length limit cut off 2 translations, the first on line 1; raise --max-len-a or --max-len-b " in (
        found.stderr
    )
    assert "(or max_length in the line) for complete ones" in found.stderr


def test_a_corpus_has_no_input_format(model: Path, corpus: Path) -> None:
    with pytest.raises(UsageError, match="--input-format jsonl is for lines of text"):
        run(GenerateConfig(path=str(model), data=[str(corpus)], input_format=InputFormat.jsonl))


def scores_of(lines: list[str]) -> list[float]:
    return [json.loads(line)["hypotheses"][0]["score"] for line in lines]


def test_models_of_an_ensemble_count_as_much_as_their_weights_say(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(write(tmp_path / "lines.de", LINES))
    path = f"{model}:{model}"
    weighted = generated(capsys, path=path, input=file, ensemble_weights=[3.0, 1.0])
    assert weighted == generated(capsys, path=str(model), input=file)
    other = write_tiny_model(tmp_path / "other", seed=2, updates=40)  # learnt less
    both = f"{model}:{other}"
    ours, theirs, equal, first, second = (
        scores_of(generated(capsys, path=one, input=file, format=OutputFormat.jsonl, ensemble_weights=weights))
        for one, weights in [
            (str(model), []),
            (str(other), []),
            (both, []),
            (both, [1e6, 1.0]),
            (both, [1.0, 1e6]),
        ]
    )
    assert first == pytest.approx(ours, abs=1e-3) and second == pytest.approx(theirs, abs=1e-3)
    assert equal != pytest.approx(ours, abs=1e-3) and equal != pytest.approx(theirs, abs=1e-3)
    with pytest.raises(UsageError, match="--ensemble-weights 3: give a positive number for each of the 2 models"):
        generated(capsys, path=path, input=file, ensemble_weights=[3.0])


def test_unknown_words_are_copied_or_looked_up(tmp_path: Path) -> None:
    known = tuple(word for word in WORDS if word not in ("schnee", "snow"))
    model = write_tiny_model(tmp_path / "model", words=known)
    command = ("--path", model, "--max-source-length", "3", "--beam", "2")
    lines = "schnee\nein mann rot schnee rot\nein mann\n"
    plain = nmt_generate(*command, stdin=lines).stdout.splitlines()
    assert all(plain) and "schnee" not in " ".join(plain)
    copied = nmt_generate(*command, "--replace-unk", stdin=lines).stdout.splitlines()
    assert copied == ["schnee", "a man red schnee red", "a man"]
    dictionary = write(tmp_path / "dictionary", ["schnee snow"])
    found = nmt_generate(*command, "--replace-unk", "--unk-dictionary", dictionary, stdin=lines).stdout.splitlines()
    assert found == ["snow", "a man red snow red", "a man"]


def test_minimum_bayes_risk_and_diverse_beams_are_a_flag_away(model: Path) -> None:
    plain = nmt_generate("--path", model, stdin="ein mann\nrot\n").stdout
    chosen = nmt_generate("--path", model, "--mbr", "chrf", "--search", "sampling", stdin="ein mann\nrot\n").stdout
    assert chosen == plain
    diverse = ("--search", "diverse_beam", "--beam", "4", "--diverse-beam-groups", "2", "--nbest", "3")
    found = nmt_generate("--path", model, *diverse, stdin="ein mann\n").stdout.split("\n")
    assert found[0] == plain.split("\n")[0] and len({*found[:3]}) == 3


def test_weights_can_be_kept_in_few_bytes(model: Path) -> None:
    assert nmt_generate("--path", model, "--dtype", "bfloat16", stdin="ein mann\n").stdout == "a man\n"


def test_rules_of_the_search_hold_in_what_is_written(model: Path) -> None:
    rules = ("--no-repeat-ngram-size", "1", "--repetition-penalty", "1.2", "--forbid-unk", "--min-len", "5")
    (found, _) = nmt_generate("--path", model, *rules, stdin="zwei hunde laufen\n").stdout.split("\n")
    assert len(found.split()) >= 5 and len(set(found.split())) == len(found.split()) and "<unk>" not in found


def scored(lines: list[str]) -> list[tuple[str, float]]:
    trees = [json.loads(line)["hypotheses"] for line in lines]
    assert all(len(tree) == 1 for tree in trees)
    return [(tree[0]["text"], tree[0]["score"]) for tree in trees]


def test_references_are_scored_instead_of_translations(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the model translates anyway has the score that the search gave it; anything else has less."""
    options = {"path": str(model), "format": OutputFormat.jsonl}
    file = write(tmp_path / "lines.de", ["ein mann", "rot"])
    found = scored(generated(capsys, input=str(file), **options))
    pairs = [f"ein mann\t{found[0][0]}", f"rot\t{found[1][0]} {found[1][0]}", ""]
    given = write(tmp_path / "pairs.tsv", pairs)
    lines = generated(capsys, input=str(given), input_format=InputFormat.tsv, score_reference=True, **options)
    again = scored(lines[:2])
    assert again[0] == (found[0][0], pytest.approx(found[0][1], abs=1e-4))
    assert again[1][0] == f"{found[1][0]} {found[1][0]}" and again[1][1] < found[1][1] - 1
    tree = {"text": "ein mann", "reference": found[0][0]}
    given = write(tmp_path / "pairs.jsonl", [json.dumps(tree)])
    lines = generated(capsys, input=str(given), input_format=InputFormat.jsonl, score_reference=True, **options)
    assert scored(lines) == [(found[0][0], pytest.approx(found[0][1], abs=1e-4))]
    of_split = generated(capsys, data=[str(corpus)], gen_subset="valid", score_reference=True, **options)
    references = [json.loads(line)["reference"] for line in of_split]
    assert references[10] == "wrong reference", "of unknown words"
    assert [text for text, _ in scored(of_split)][:10] == references[:10]


PAIRS: dict[str, Any] = {"input_format": InputFormat.tsv, "format": OutputFormat.jsonl}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "--score-reference needs references: give a corpus folder, or --input-format tsv or jsonl"),
        ({"input_format": InputFormat.tsv}, "--format text shows no scores; add --format jsonl or fairseq"),
        ({"nbest": 2}, "omit --nbest, --mbr and --rerank"),
        ({**PAIRS, "shortlist": "x"}, "--score-reference uses the full vocabulary; omit --shortlist"),
        ({**PAIRS, "search": BeamConfig(coverage_penalty=1.0)}, "does not use --coverage-penalty; omit it"),
        ({**PAIRS, "search": BeamConfig(repetition_penalty=2.0)}, "does not use --repetition-penalty"),
        ({**PAIRS, "search": BeamConfig(no_repeat_ngram=2)}, "does not use --no-repeat-ngram-size"),
        ({**PAIRS, "search": BeamConfig(forbid_unknown=True)}, "does not use --forbid-unk"),
        ({**PAIRS, "search": BeamConfig(min_len=3)}, "does not use --min-len"),
        ({**PAIRS, "replace_unk": True}, "does not change the scored text; omit --replace-unk"),
    ],
)
def test_scoring_without_references_or_with_several_translations_is_refused(
    model: Path, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        run(GenerateConfig(path=str(model), score_reference=True, **options))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"search": BeamConfig(beam_size=2), "nbest": 3}, "nbest=3 is more than search.beam_size=2; lower --nbest"),
        ({"search": GreedyConfig(), "nbest": 2}, "greedy search finds only one hypothesis"),
        ({"replace_unk": True, "unk_dictionary": "no/dictionary"}, "no/dictionary"),
        ({"gen_subset": "valid"}, "--gen-subset valid is a split of a corpus folder; name the folder too"),
        ({"output": "x.zst"}, "output cannot be compressed as .zst; end the name in .gz or .xz"),
        ({"output": "-"}, "--output - is not a file name; omit it to write to standard output"),
    ],
)
def test_what_no_search_can_do_is_refused_before_a_model_is_looked_for(
    options: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(NMTError, match=complaint):
        run(GenerateConfig(path=str(tmp_path), **options))


def test_a_beam_wider_than_the_vocabulary_is_refused(model: Path, tmp_path: Path) -> None:
    config = GenerateConfig(
        path=str(model), input=str(write(tmp_path / "lines", LINES)), search=BeamConfig(beam_size=99)
    )
    with pytest.raises(UsageError, match=r"beam_size=99 exceeds the \d+ tokens of the target vocabulary; lower it"):
        run(config)


def test_a_line_without_its_reference_is_named(model: Path, tmp_path: Path) -> None:
    given = write(tmp_path / "pairs.tsv", ["rot\tred", "rot"])
    with pytest.raises(DataError, match=r"pairs.tsv, line 2 should have two fields"):
        run(
            GenerateConfig(
                path=str(model),
                search=BeamConfig(),
                input=str(given),
                input_format=InputFormat.tsv,
                score_reference=True,
                format=OutputFormat.fairseq,
            )
        )


def test_a_model_of_the_other_direction_reads_translations_back(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    back = write_tiny_model(tmp_path / "back", reverse=True)
    file = str(write(tmp_path / "lines.de", LINES))
    plain = generated(capsys, path=str(model), input=file)
    reranked = generated(capsys, path=str(model), input=file, rerank=str(back), format=OutputFormat.jsonl)
    texts = [text for text, _ in scored(reranked)]
    assert texts == plain
    forward = scored(generated(capsys, path=str(model), input=file, format=OutputFormat.jsonl))
    pairs = write(tmp_path / "pairs.tsv", [f"{text}\t{line}" if line else "" for text, line in zip(texts, LINES)])
    given = {"input": str(pairs), "input_format": InputFormat.tsv, "score_reference": True}
    backward = scored(generated(capsys, path=str(back), format=OutputFormat.jsonl, **given))
    for (_, both), (_, there), (_, and_back) in zip(scored(reranked), forward, backward):
        assert both == pytest.approx(there + and_back, abs=1e-4)
    with pytest.raises(
        UsageError, match="must translate from en to de: the model translates from de to en, not from en"
    ):
        generated(capsys, path=str(model), input=file, rerank=str(model))


def test_a_corpus_with_other_target_pieces_has_no_references_to_score(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    for language, line in (("de", "rot"), ("en", "other words")):
        write(tmp_path / f"test.{language}", [line])
    other = PreprocessConfig(
        "de", "en", trainpref=str(tmp_path / "test"), destdir=str(tmp_path / "bin"), srcdict=str(model / "tokenizer")
    )
    other.testpref, other.tokenizer = other.trainpref, WordsConfig()
    preprocess(other)
    options = {"path": str(model), "data": [str(tmp_path / "bin")], "format": OutputFormat.jsonl}
    with pytest.raises(DataError, match="has a different target vocabulary than"):
        run(GenerateConfig(search=BeamConfig(), score_reference=True, **options))


def test_similarities_are_no_logarithms(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(write(tmp_path / "lines.de", ["zwei hunde laufen"]))
    options = {"path": str(model), "input": file, "mbr": MbrMetric.chrf}
    (tree,) = generated(capsys, format=OutputFormat.jsonl, **options)
    shown = [line for line in generated(capsys, format=OutputFormat.fairseq, **options) if line.startswith("H-")]
    assert float(shown[0].split("\t")[1]) == pytest.approx(json.loads(tree)["hypotheses"][0]["score"])


def test_progress_of_a_file_has_its_number_of_lines(model: Path, tmp_path: Path) -> None:
    """Of standard input nobody knows it before its end."""
    (tmp_path / "plain").write_text("\n".join(LINES), encoding="utf-8")
    with gzip.open(tmp_path / "packed.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in LINES)
    for name in ("plain", "packed.gz"):
        done = run_copy("generate", "--path", model, "--progress", "lines", "--input", tmp_path / name)
        assert "translated 4 of 4 lines (" in done.stderr.decode() and " a second, 100 %)" in done.stderr.decode()
    done = run_copy("generate", "--path", model, "--progress", "lines", stdin="\n".join(LINES).encode())
    assert "translated 4 lines (" in done.stderr.decode()


def test_a_file_whose_lines_take_long_to_count_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def blocks(*_: object, **options: object) -> Iterator[list[str]]:
        yield ["one", "two"]
        deadline = time.monotonic() + 10
        while not caplog.text and time.monotonic() < deadline:
            time.sleep(0.001)
        yield ["three"]

    monkeypatch.setattr(generate_job.Reading, "blocks", blocks)
    monkeypatch.setattr(nmt.progress, "SECONDS_BETWEEN_LINES", 0.001)
    file = write(tmp_path / "lines.de", LINES)
    with caplog.at_level(logging.INFO, "nmt"):
        assert generate_job._count_lines(GenerateConfig(input=str(file))) == 3
    assert f"counting the lines of {file}: 0 seconds so far" in caplog.text


def test_a_damaged_file_is_reported_where_it_is_read_not_where_it_is_counted(model: Path, tmp_path: Path) -> None:
    packed = gzip.compress("".join(f"{line}\n" for line in LINES).encode())
    (tmp_path / "short.gz").write_bytes(packed[:-9])
    done = run_copy("generate", "--path", model, "--progress", "lines", "--input", tmp_path / "short.gz")
    assert done.returncode == 65 and done.stderr.decode().count("unexpected end of compressed file") == 1
