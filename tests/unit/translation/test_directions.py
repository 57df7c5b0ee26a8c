"""Models of several languages: where their tokens are read, and which direction a line has."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.commands import GenerateConfig
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.translation import TranslationOptions
from nmt.data.corpus.folder import Corpus
from nmt.data.corpus.shortlist import Shortlist
from nmt.data.languages import LanguageTokens
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.vocabulary import EOS
from nmt.errors import DataError, UsageError
from nmt.preprocessing.preprocess import preprocess
from nmt.search.config import BeamConfig, GreedyConfig, LengthPenalty, SamplingConfig
from nmt.search.decoding import Engine
from nmt.search.requests import Request, Sentences
from nmt.translation import Line, Translator, attention
from nmt.translation.aligning import Aligner, HeadChoice
from nmt.translation.choosing import ReverseModel
from nmt.translation.doubtful_lines import DoubtfulLines
from nmt.translation.options import TranslationMethod
from tests.commands import run_copy
from tests.tiny_models import LANGUAGES, WORDS, write_multilingual_model

LINES = ["ein mann", "zwei hunde laufen", "rot schnee", "mann", "hunde rot"]


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_multilingual_model(tmp_path_factory.mktemp("nllb") / "model")


class Recorded:
    """An engine that keeps the sources and the tokens of the first steps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.sources: list[list[int]] = []
        self.steps: list[list[int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def begin(self, sources: Any, *options: Any) -> Any:
        self.sources += [ids.tolist() for ids in sources]
        decoding, steps = self._engine.begin(sources, *options), self.steps

        class Steps:
            def __getattr__(self, name: str) -> Any:
                return getattr(decoding, name)

            def step(self, tokens: Any, *more: Any) -> Any:
                steps.append(tokens.tolist())
                return decoding.step(tokens, *more)

        return Steps()


def read(model: Path, line: Line, **options: Any) -> tuple[list[str], list[str]]:
    """The tokens of the source, and those of the first two steps of the decoder."""
    translator = Translator.load(model, device="cpu", engine="torch")
    engine = Recorded(translator._engine)
    translator._engine = engine  # type: ignore[assignment]
    translator.translate([line], search="greedy", max_len_b=2, **options)
    pieces = translator.pair.source.pieces
    return pieces(engine.sources[0]), pieces([step[0] for step in engine.steps[:2]])


@pytest.mark.parametrize(
    ("shape", "source", "target"),
    [
        ("nllb", "eng_Latn", "deu_Latn"),
        ("madlad", "<2de>", None),
        ("target", None, "<2de>"),
        ("both", "<2de>", "<2de>"),
    ],
)
def test_the_tokens_are_where_the_model_reads_them(
    tmp_path: Path, shape: str, source: str | None, target: str | None
) -> None:
    languages = LANGUAGES[shape]
    model = write_multilingual_model(tmp_path / "model", languages)
    names = ("eng_Latn", "deu_Latn") if shape == "nllb" else ("en", "de")
    line = Line("ein mann", source_lang=names[0], target_lang=names[1])
    begun, steps = read(model, line)
    assert begun == [*([source] if source else []), "ein", "mann", "</s>"]
    assert steps[0] == "<s>" and (steps[1] == target or target is None)
    assert read(model, Line("ein mann"), source_lang=names[0], target_lang=names[1]) == (begun, steps)
    assert Translator.load(model).pair.languages == languages


def translations(translator: Translator, lines: list[str | Line], **options: Any) -> list[tuple[str, Any]]:
    return [
        (hypothesis.text, pytest.approx([hypothesis.score, *hypothesis.token_scores], abs=1e-4))
        for translation in translator.translations(lines, **options)
        for hypothesis in translation.hypotheses
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 4, "nbest": 3},
        {"search": "greedy"},
        {"search": "sampling", "nbest": 2},
        {"search": "diverse_beam", "beam": 4, "groups": 2},
        {"beam": 3, "no_repeat_ngram_size": 1, "coverage_penalty": 0.2},
    ],
)
def test_directions_in_one_batch_are_those_of_each_alone_with_both_engines(nllb: Path, options: dict[str, Any]) -> None:
    options = options | {"max_len_b": 6}
    lines = [
        Line(text, source_lang=source, target_lang=target)
        for text in LINES
        for source, target in (("eng_Latn", "deu_Latn"), ("deu_Latn", "fra_Latn"))
    ]
    torch_engine = Translator.load(nllb, device="cpu", engine="torch")
    together = translations(torch_engine, lines, **options)
    same_in_c = translations(Translator.load(nllb, device="cpu", engine="native"), lines, **options)
    alone = [found for line in lines for found in translations(torch_engine, [line], **options)]
    for found, in_c, by_itself in zip(together, same_in_c, alone, strict=True):
        assert found[0] == in_c[0] == by_itself[0]
        assert found[1] == in_c[1].expected and found[1] == by_itself[1].expected
    assert len({text for text, _ in together}) > len(LINES)  # the direction matters


def test_requests_without_languages_have_the_direction_of_the_options(nllb: Path) -> None:
    translator = Translator.load(nllb, device="cpu")
    names = {"source_lang": "eng_Latn", "target_lang": "fra_Latn"}
    of_options = translator.translate(LINES, **names)
    assert of_options == translator.translate([Line(text, **names) for text in LINES])
    mixed = [Line(LINES[0], target_lang="deu_Latn"), *LINES[1:]]
    assert translator.translate(mixed, **names)[1:] == of_options[1:]


@pytest.mark.parametrize("search", [BeamConfig(beam_size=4, lenpen=1.0), GreedyConfig(), SamplingConfig()])
@pytest.mark.parametrize("engine", ["torch", "native"])
def test_a_scored_reference_has_the_scores_of_the_search(nllb: Path, search: Any, engine: str) -> None:
    translator = Translator.load(nllb, device="cpu", engine=engine)
    names = {"source_lang": "eng_Latn", "target_lang": "fra_Latn"}
    search = dataclasses.replace(search, max_len_a=0.0, max_len_b=5)
    found = [*translator.hypotheses(LINES, TranslationOptions(search=search, **names))]
    lines = [Line(one.source, reference=one.hypotheses[0].text) for one in found if one.hypotheses[0].text]
    scored = [*translator.hypotheses(lines, TranslationOptions(search=search, score_reference=True, **names))]
    expected = [one.hypotheses[0] for one in found if one.hypotheses[0].text]
    assert len(expected) >= 3
    for forced, free in zip((one.hypotheses[0] for one in scored), expected):
        assert forced.pieces == free.pieces
        assert forced.token_scores == pytest.approx(free.token_scores, abs=1e-4)
        if isinstance(search, BeamConfig):
            assert forced.score == pytest.approx(free.score, abs=1e-4)


def test_the_length_penalty_counts_the_forced_token_and_the_limits_do_not(nllb: Path) -> None:
    translator = Translator.load(nllb, device="cpu", engine="torch")
    search = BeamConfig(beam_size=2, length_penalty=LengthPenalty.power, lenpen=1.0, max_len_a=0, max_len_b=3)
    start = translator.pair.direction("eng_Latn", "deu_Latn").target
    batch = Sentences([np.array([8, 9, EOS])], requests=[Request(start=start, min_length=3)])
    (hypothesis,) = TranslationMethod.of(TranslationOptions(search=search)).search.find(translator.members[0], batch)[0]
    assert len(hypothesis.tokens) == 4 and len(start) == 1
    assert hypothesis.score == pytest.approx(hypothesis.log_probability / 5, rel=1e-5)  # as transformers counts
    assert hypothesis.log_probability == pytest.approx(float(hypothesis.token_scores.sum()), rel=1e-5)


def test_a_prefix_follows_the_token_and_alignments_are_those_of_the_text(nllb: Path) -> None:
    translator = Translator.load(nllb, device="cpu")
    line = Line("ein mann", prefix="two dogs", source_lang="eng_Latn", target_lang="deu_Latn", max_length=4)
    (translation,) = translator.translations([line], alignment=True)
    best = translation.hypotheses[0]
    assert best.pieces[:2] == ["two", "dogs"] and translation.source_pieces == ["eng_Latn", "ein", "mann"]
    assert best.attention is not None and best.attention.shape == (len(best.pieces) + 1, 4)


def test_each_part_of_a_long_line_has_both_tokens(nllb: Path) -> None:
    translator = Translator.load(nllb, device="cpu")
    names = {"source_lang": "eng_Latn", "target_lang": "deu_Latn"}
    (whole,) = translator.translations(["ein mann zwei hunde"], max_source_length=3, **names)
    assert whole.source_pieces == ["eng_Latn", "ein", "mann", "eng_Latn", "zwei", "hunde"]
    parts = translator.translate(["ein mann", "zwei hunde"], **names)
    assert whole.hypotheses[0].text == " ".join(filter(None, parts))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            {},
            "the model translates between 3 languages: give source_lang and target_lang .*; it has deu_Latn, eng_Latn",
        ),
        ({"target_lang": "deu_Latn"}, r"between 3 languages: give source_lang \(--source-lang\); it has deu_Latn"),
        ({"source_lang": "deu_Latn"}, r"between 3 languages: give target_lang \(--target-lang\); it has deu_Latn"),
        (
            {"source_lang": "deu_Latn", "target_lang": "eng"},
            r"no language 'eng' \(did you mean eng_Latn\?\); it has deu_Latn, eng_Latn, fra_Latn",
        ),
        ({"source_lang": "Deu_Latn", "target_lang": "eng_Latn"}, r"no language 'Deu_Latn' \(did you mean deu_Latn"),
    ],
)
def test_a_direction_that_the_model_lacks_is_refused(nllb: Path, names: dict[str, str], message: str) -> None:
    translator = Translator.load(nllb, device="cpu")
    with pytest.raises(UsageError, match=message):
        translator.pair.direction(**names)
    with pytest.raises(DataError, match=f"line 2: .*{message}"):
        translator.translate(["", Line("rot", **names)])


def test_of_many_languages_a_message_lists_a_few() -> None:
    tokens = LanguageTokens({f"{first}{second}": "x" for first in "abcdefghij" for second in "klmnopqrst"})
    message = str(tokens.refusal("a"))
    assert "no language 'a' (did you mean ak or al or am?)" in message and "and 80 more" in message
    assert len(message) < 250


def test_a_default_direction_is_used_and_a_language_is_not_translated_to_itself_unasked(tmp_path: Path) -> None:
    translator = Translator.load(
        write_multilingual_model(tmp_path / "model", LANGUAGES["nllb"], ("eng_Latn", "deu_Latn")), device="cpu"
    )
    (usual,) = translator.translations(["rot"])
    assert usual.source_pieces[0] == "eng_Latn" and usual.direction == ("eng_Latn", "deu_Latn")
    with pytest.raises(
        UsageError, match="^the default of the other language is 'eng_Latn' too; give source_lang and target_lang"
    ):
        translator.translate(["rot"], target_lang="eng_Latn")
    with pytest.raises(UsageError, match="^the default of the other language is 'deu_Latn' too"):
        translator.translate(["rot"], source_lang="deu_Latn")
    assert translator.translate(["rot"], source_lang="eng_Latn", target_lang="eng_Latn")


def test_a_typed_token_is_the_target_language_of_models_that_read_only_that(tmp_path: Path) -> None:
    for shape, source, steps in (("madlad", ["<2de>"], 1), ("both", ["<2de>"], 2), ("target", [], 2)):
        model = write_multilingual_model(tmp_path / shape, LANGUAGES[shape])
        begun, first = read(model, Line("<2de> rot"))
        assert begun == [*source, "rot", "</s>"] and first[1:steps] == ["<2de>"][: steps - 1]
        assert read(model, Line("<2de> rot", source_lang="en"))[0] == begun
        assert read(model, Line("<2de> rot", target_lang="en"))[0] == [token.replace("de", "en") for token in begun]
        with pytest.raises(DataError, match="line 1: the model translates between 2 languages"):
            read(model, Line("rot"))


def test_ensembles_must_agree_on_languages(nllb: Path, tmp_path: Path) -> None:
    other = write_multilingual_model(tmp_path / "other", dataclasses.replace(LANGUAGES["nllb"], target=False))
    with pytest.raises(UsageError, match="different language tokens, so they cannot form an ensemble"):
        Translator.load(f"{nllb}:{other}", device="cpu")
    ensemble = Translator.load(f"{nllb}:{nllb}", device="cpu", engine="torch")
    names = {"source_lang": "eng_Latn", "target_lang": "deu_Latn"}
    alone = Translator.load(nllb, device="cpu", engine="torch")
    assert ensemble.translate(LINES, **names) == alone.translate(LINES, **names)


@pytest.mark.slow
def test_the_command_translates_in_any_direction_and_writes_nothing_in_one_that_is_missing(
    nllb: Path, tmp_path: Path
) -> None:
    output = tmp_path / "output"

    def run(*options: str, stdin: str = "ein mann\nrot\n") -> tuple[int, str]:
        output.unlink(missing_ok=True)
        command = ("--path", nllb, "--device", "cpu", "--output", output, *options)
        done = run_copy("generate", *command, stdin=stdin.encode())
        return done.returncode, done.stderr.decode()

    names = {"source_lang": "eng_Latn", "target_lang": "fra_Latn"}
    status, log = run("--source-lang", "eng_Latn", "--target-lang", "fra_Latn")
    expected = Translator.load(nllb, device="cpu").translate(["ein mann", "rot"], **names)
    assert status == 0 and output.read_text().splitlines() == expected
    status, log = run(
        "--input-format", "jsonl", "--tag", "fra_Latn", stdin='{"text": "rot", "source_lang": "eng_Latn"}'
    )
    assert status == 0 and output.read_text().splitlines() == expected[1:]
    status, log = run()
    assert status == 2 and "give source_lang and target_lang" in log and not output.exists()
    status, log = run("--source-lang", "eng_Latn", "--target-lang", "fra")
    assert status == 2 and "has no language 'fra' (did you mean fra_Latn?)" in log and not output.exists()
    lines = [{"text": "rot", **names}, {"text": "rot", "target_lang": "deu_Latn"}]
    status, log = run("--input-format", "jsonl", stdin="\n".join(map(json.dumps, lines)))
    assert status == 65 and "line 2: the model translates between 3 languages" in log and not output.exists()


def test_a_shortlist_is_for_the_direction_that_it_was_made_for(nllb: Path, tmp_path: Path) -> None:
    translator = Translator.load(nllb, device="cpu")
    tokens, size = (
        [translator.pair.target.vocabulary.id(word) for word in ("two", "dogs")],
        len(LANGUAGES["nllb"].tokens) + len(WORDS) + 4,
    )
    arrays = {"offsets": np.zeros(size + 1, dtype=np.int64), "pieces": np.array([], dtype=np.int64)}
    always = np.array([0, 1, 2, 3, *sorted(tokens)])
    Shortlist(**arrays, always=always, digest=translator.pair.digest(), languages=("eng_Latn", "deu_Latn")).save(
        tmp_path / "short"
    )
    names = {"source_lang": "eng_Latn", "target_lang": "deu_Latn"}
    for engine in ("torch", "native"):
        short = Translator.load(nllb, device="cpu", engine=engine, shortlist=tmp_path / "short")
        found = short.translate(LINES, **names, beam=2, max_len_b=3)
        assert set(" ".join(found).split()) <= {"two", "dogs", "<unk>", "deu_Latn"} and any(found)
        with pytest.raises(
            UsageError, match="was made for translating from eng_Latn to deu_Latn, not from fra_Latn to"
        ):
            short.translate(LINES, source_lang="fra_Latn", target_lang="deu_Latn")


def test_aligning_and_attention_read_the_tokens_of_the_direction(nllb: Path) -> None:
    translator = Translator.load(nllb, device="cpu", engine="torch")
    pairs = [("ein mann", "a man"), ("zwei hunde laufen", "two dogs run")]
    found = {}
    for names in (("eng_Latn", "deu_Latn"), ("fra_Latn", "deu_Latn"), ("eng_Latn", "fra_Latn")):
        aligner = Aligner(translator, str(nllb), source_lang=names[0], target_lang=names[1])
        aligned = [*aligner.align(pairs, aligner.candidate_heads(HeadChoice()))]
        assert [links.shape[1] for links in aligned] == [2, 3]
        found[names] = str([links.tolist() for links in aligned])
    assert len(set(found.values())) > 1
    line = Line("ein mann", source_lang="eng_Latn", target_lang="deu_Latn")
    (shown,) = attention(nllb, [line], ["a man"], device="cpu")
    assert shown.source == ["eng_Latn", "ein", "mann", "</s>"] and shown.target == ["a", "man", "</s>"]
    assert shown.read == ["<s>", "deu_Latn", "a", "man"]
    assert {kind: maps.shape[2:] for kind, maps in shown.weights.items()} == {
        "encoder": (4, 4),
        "decoder": (3, 4),
        "cross": (3, 4),
    }


def test_a_reverse_model_scores_each_line_in_the_direction_back(nllb: Path) -> None:
    translator = Translator.load(nllb, device="cpu")
    search = BeamConfig(beam_size=2, max_len_a=0.0, max_len_b=3, min_len=1)
    config = GenerateConfig(rerank="back", search=search)
    directions = [("eng_Latn", "deu_Latn"), ("fra_Latn", "eng_Latn")]
    lines = [Line("ein mann", source_lang=source, target_lang=target) for source, target in directions]

    def score(lines: Any, numbers: Any, options: TranslationOptions) -> Any:
        return translator.hypotheses(lines, options, numbers=numbers)

    reranked = [*ReverseModel(score, 1.0, config)(translator.hypotheses(lines, config))]
    for line, ranked in zip(lines, reranked, strict=True):
        back = Line(
            ranked.hypotheses[0].text,
            "",
            reference=line.text,
            source_lang=line.target_lang,
            target_lang=line.source_lang,
        )
        (backward,) = translator.hypotheses([back], config.scoring())
        forward = translator.translations([line], beam=2, max_len_a=0.0, max_len_b=3, min_len=1, nbest=2)[0].hypotheses
        found = next(one for one in forward if one.text == ranked.hypotheses[0].text)
        expected = found.score + backward.hypotheses[0].score
        assert ranked.hypotheses[0].score == pytest.approx(expected, abs=1e-4)


def test_lines_in_the_target_language_are_told_by_direction(nllb: Path, caplog: pytest.LogCaptureFixture) -> None:
    translator = Translator.load(nllb, device="cpu")
    english, german = "the man and the two dogs", "der Mann und die zwei Hunde"
    lines = [
        Line(text, source_lang=source, target_lang=target)
        for source, target in (("deu_Latn", "eng_Latn"), ("eng_Latn", "deu_Latn"))
        for text in (english, german)
    ]
    doubtful = DoubtfulLines(translator.pair)
    for number, line in enumerate(lines, 1):
        direction = translator.pair.direction(line.source_lang, line.target_lang)
        doubtful.look_at(number, line.text, np.array([8, 9]), direction)
    with caplog.at_level("WARNING"):
        doubtful.warn()
    assert [record.getMessage()[:60] for record in caplog.records] == [
        "1 line (1): the text looks like eng_Latn, the target languag",
        "1 line (4): the text looks like deu_Latn, the target languag",
    ]


def test_a_corpus_is_translated_in_its_own_direction_unless_another_is_named(nllb: Path, tmp_path: Path) -> None:
    translator = Translator.load(nllb, device="cpu")
    for language, side in (("eng_Latn", ["ein mann", "rot"]), ("deu_Latn", ["a man", "red"])):
        (tmp_path / f"test.{language}").write_text("".join(f"{line}\n" for line in side))
    given = str(nllb.with_name("model-tokenizer"))
    config = PreprocessConfig("eng_Latn", "deu_Latn", testpref=f"{tmp_path}/test", destdir=f"{tmp_path}/corpus")
    config = dataclasses.replace(config, tokenizer=WordsConfig(), srcdict=given, tgtdict=given, tag="deu_Latn")
    corpus = Corpus.open(Path(preprocess(config).folder))
    split, own = corpus.split("test"), corpus.pair.direction()
    for names, stored in ((("eng_Latn", "deu_Latn"), own), (("fra_Latn", "eng_Latn"), None)):
        lines = [Line(text, source_lang=names[0], target_lang=names[1]) for text in ("ein mann", "rot")]
        expected = translations(translator, lines)
        options = {} if stored else {"source_lang": names[0], "target_lang": names[1]}
        found = [
            one.hypotheses[0].text
            for one in translator.hypotheses_of_split(split, translator.options(options), stored=stored)
        ]
        assert found == [text for text, _ in expected]
    scoring = translator.options({}, score_reference=True)
    scored = [*translator.hypotheses_of_split(split, scoring, stored=own)]
    assert [one.hypotheses[0].pieces for one in scored] == [["a", "man"], ["red"]]
