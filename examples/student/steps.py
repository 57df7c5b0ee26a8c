"""The stages from a corpus to a student: their commands and their options.

The options are dataclasses, composed from conf/ and the command line. A mapping of options becomes flags of a command:
``max_epoch: 8`` becomes ``--max-epoch 8``, and ``true`` a flag without a value. A key with a dot (``model.d_model:
192``) stays an override. ``null`` omits a flag.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.errors import MissingInputError, UsageError
from nmt.pipelines.commands import Command, words_of
from nmt.pipelines.stages import PipelineStage
from nmt.pipelines.text import keep_lines, make_pairs

PACKED = ("", ".gz", ".xz", ".zst")
HERE = Path(__file__).resolve().parent

Options = dict[str, Any]
command = functools.partial(Command, scripts=HERE)


@dataclass
class Text:
    """The text to learn from."""

    source_lang: str = "en"
    target_lang: str = "de"
    train: str = "???"  # path without the suffixes for language and compression
    valid: str = "???"
    tests: list[str] = field(default_factory=list)  # test sets; the first one compares student and teacher
    lines: int = 0  # number of first pairs of train to use; 0: all
    only_source: str | None = None  # file of source-language sentences
    only_target: str | None = None  # file of target-language sentences
    source_lines: int = 0  # pairs of train of which only the source is used, if only_source is null
    target_lines: int = 0  # pairs of train of which only the target is used, if only_target is null
    longest: int = 500  # maximum characters of a monolingual sentence; longer ones are skipped; 0: no limit


@dataclass
class BackTranslation:
    tag: str = ""  # word before each back-translated source
    generate: Options = field(default_factory=dict)  # options of nmt-generate, such as search=sampling


@dataclass
class Teacher:
    seeds: list[int] = field(default_factory=lambda: [1, 2])
    train: Options = field(default_factory=dict)


@dataclass
class Distillation:
    nbest: int = 1  # hypotheses to choose from
    choose_by: str = "search"  # search: the best hypothesis; bleu: the nearest to the reference
    generate: Options = field(default_factory=dict)
    drop_share: float = 0.05  # share of pairs to drop: the least likely ones by the reverse model


@dataclass
class Evaluation:
    teacher: Options = field(default_factory=dict)  # options of nmt-generate
    student: Options = field(default_factory=dict)
    rounds: int = 5
    lines: int = 0  # lines of the first test set for the speed; 0: all


@dataclass
class Config:
    """All options of the command line."""

    output: str = "???"
    text: Text = field(default_factory=Text)
    clean: Options = field(default_factory=dict)  # options of nmt-preprocess
    reverse: Options = field(default_factory=dict)  # options of nmt-train
    back_translation: BackTranslation = field(default_factory=BackTranslation)
    teacher: Teacher = field(default_factory=Teacher)
    distillation: Distillation = field(default_factory=Distillation)
    align: Options = field(default_factory=dict)  # options of nmt-align
    student: Options = field(default_factory=dict)  # options of nmt-train
    shortlist: Options = field(default_factory=dict)  # options of nmt-shortlist
    export: Options = field(default_factory=dict)  # options of nmt-export
    evaluation: Evaluation = field(default_factory=Evaluation)
    experiment: str = "Student"  # name of the results
    threads: int = 1  # threads of each command
    stages: list[str] = field(default_factory=list)  # run only these stages
    until: str | None = None  # run this stage and the stages that it needs
    dry_run: bool = False


def file_of(prefix: str, language: str) -> Path:
    """Return the file of one language, plain or compressed."""
    found = [path for end in PACKED if (path := Path(f"{prefix}.{language}{end}")).exists()]
    if not found:
        raise MissingInputError(f"there is no {prefix}.{language}, plain or packed (.gz, .xz, .zst); name it in text=")
    return found[0].resolve()


class Steps:
    """The stages of a configuration, in order."""

    def __init__(self, config: Config) -> None:
        self.config, text = config, config.text
        self.source, self.target = text.source_lang, text.target_lang
        if not text.tests:
            raise UsageError("text.tests is empty; name a test text with text.tests=[PREFIX]")
        if config.distillation.choose_by not in ("search", "bleu"):
            raise UsageError(
                f"distillation.choose_by={config.distillation.choose_by} is unknown; choose search or bleu"
            )
        if not 0 <= config.distillation.drop_share < 1:
            raise UsageError(
                f"distillation.drop_share={config.distillation.drop_share:g} must be at least 0 and less than 1"
            )
        if config.evaluation.rounds < 1:
            raise UsageError(f"evaluation.rounds={config.evaluation.rounds} must be at least 1")
        for name, number, least in (
            ("text.lines", text.lines, 0),
            ("text.source_lines", text.source_lines, 0),
            ("text.target_lines", text.target_lines, 0),
            ("text.longest", text.longest, 0),
            ("distillation.nbest", config.distillation.nbest, 1),
            ("evaluation.lines", config.evaluation.lines, 0),
            ("threads", config.threads, 1),
        ):
            if number < least:
                raise UsageError(f"{name}={number} must be at least {least}")
        if self.source == self.target:
            raise UsageError(f"text.source_lang and text.target_lang are both {self.source}; name two languages")
        if not config.teacher.seeds:
            raise UsageError("teacher.seeds=[] gives no teacher; name at least one seed")
        self.valid = str(Path(text.valid).resolve())
        self.of_valid = {self.valid: [file_of(text.valid, self.source), file_of(text.valid, self.target)]}
        self.teachers = [f"teacher-{number}" for number, _ in enumerate(config.teacher.seeds, 1)]
        self.back = (text.target_lines > 0 or text.only_target is not None) and len(config.reverse) > 0
        self.ensemble = ":".join(f"../{name}/run" for name in self.teachers)

    def stages(self) -> list[PipelineStage]:
        made = [self.split(), self.clean(), self.reverse()]
        made += [self.back_translate()] if self.back else []
        made += [self.teacher(name, seed) for name, seed in zip(self.teachers, self.config.teacher.seeds)]
        made += [self.distill(), self.filter(), self.align(), self.student(), self.shortlist()]
        return [*made, self.export(), self.evaluate()]

    def split(self) -> PipelineStage:
        text = self.config.text
        read = {"--source": file_of(text.train, self.source), "--target": file_of(text.train, self.target)}
        for flag, given in (("--only-source", text.only_source), ("--only-target", text.only_target)):
            if given is not None:
                if not Path(given).is_file():
                    raise MissingInputError(f"there is no file {given} ({flag.strip('-').replace('-', '_')})")
                read[flag] = Path(given).resolve()
        line = ["text.py", "split", *(word for flag, path in read.items() for word in (flag, str(path)))]
        line += ["--lines", str(text.lines)] if text.lines else []
        line += ["--languages", self.source, self.target]
        line += ["--source-lines", str(text.source_lines), "--target-lines", str(text.target_lines)]
        line += ["--longest", str(text.longest), "--output", "."]
        return stage("split", line, outside={str(path): [path] for path in read.values()})

    def clean(self) -> PipelineStage:
        tag = self.config.back_translation.tag
        symbols = ["--user-defined-symbols", tag] if tag else []
        corpus = self._preprocess(
            self.source, self.target, "../split/train", *symbols, *words_of(self.config.clean, "clean")
        )
        keep = [
            Command(
                (f"train.{side}:", "kept pairs"),
                action=functools.partial(keep_lines, [f"../split/train.{side}"], f"train.{side}"),
            )
            for side in (self.source, self.target)
        ]
        return stage("clean", [*corpus, "--keep-dropped", "dropped.tsv"], *keep, needs=["split"], outside=self.of_valid)

    def reverse(self) -> PipelineStage:
        corpus = self._preprocess(self.target, self.source, "../clean/train", *self._vocabulary())
        train = self._train(self.config.reverse, "corpus", seed=1)
        return stage("reverse", corpus, train, needs=["clean"], outside=self.of_valid)

    def back_translate(self) -> PipelineStage:
        config, only = self.config.back_translation, f"../split/only.{self.target}"
        line = ["nmt-generate", "--path", "../reverse/run", "--input", only, "--output", f"only.{self.source}"]
        sides, pairs = [f"only.{self.source}", only], [f"pairs.{self.source}", f"pairs.{self.target}"]
        pair = functools.partial(make_pairs, sides, pairs, config.tag, [])
        return stage(
            "back-translate",
            [*line, "--resume-output", *words_of(config.generate, "back_translation.generate")],
            Command((*pairs, "from", *sides, f"with tag={config.tag or 'none'}"), action=pair),
            self._preprocess(self.source, self.target, "pairs", *self._vocabulary()),
            needs=["split", "clean", "reverse"],
            outside=self.of_valid,
        )

    def teacher(self, name: str, seed: int) -> PipelineStage:
        corpora = ["../clean/corpus", *(["../back-translate/corpus"] if self.back else [])]
        needs = ["clean", *(["back-translate"] if self.back else [])]
        return stage(name, self._train(self.config.teacher.train, *corpora, seed=seed), needs=needs)

    def distill(self) -> PipelineStage:
        """Translate all sources with the ensemble of the teachers."""
        config, sides = self.config.distillation, [f"distilled.{self.source}", f"distilled.{self.target}"]
        line = [
            "nmt-generate",
            "--path",
            self.ensemble,
            "--input",
            "sources",
            "--output",
            "nbest.jsonl",
            "--resume-output",
        ]
        line += ["--format", "jsonl", "--nbest", str(config.nbest), *words_of(config.generate, "distillation.generate")]
        choose = ["text.py", "choose", "--nbest", "nbest.jsonl", "--references", f"../clean/train.{self.target}"]
        return PipelineStage(
            "distill",
            (
                Command(("cat", f"../clean/train.{self.source}", f"../split/only.{self.source}"), "sources"),
                Command(tuple(line)),
                command((*choose, "--by", config.choose_by, "--output", *sides)),
            ),
            ("split", "clean", *self.teachers),
        )

    def filter(self) -> PipelineStage:
        sides = ["--source", f"../distill/distilled.{self.source}", "--target", f"../distill/distilled.{self.target}"]
        score = ["nmt-generate", "--path", "../reverse/run", "--input", "reversed.jsonl", "--input-format", "jsonl"]
        score += ["--score-reference", "--length-penalty", "power", "--lenpen", "1", "--format", "jsonl"]
        drop = [
            "text.py",
            "drop",
            "--scores",
            "scores.jsonl",
            "--share",
            str(self.config.distillation.drop_share),
            *sides,
        ]
        return stage(
            "filter",
            ["text.py", "reversed", *sides, "--output", "reversed.jsonl"],
            [*score, "--output", "scores.jsonl", "--resume-output"],
            [*drop, "--output", f"kept.{self.source}", f"kept.{self.target}"],
            needs=["reverse", "distill"],
        )

    def align(self) -> PipelineStage:
        """Make the student's corpus: its text, with word alignments."""
        kept = [f"../filter/kept.{side}" for side in (self.source, self.target)]
        line = ["nmt-align", "--path", f"../{self.teachers[0]}/run", "--src", kept[0], "--ref", kept[1]]
        corpus = self._preprocess(self.source, self.target, "kept", *self._vocabulary(), "--align-suffix", "links")
        return stage(
            "align",
            ["cp", *kept, "."],
            [*line, "--output", "kept.links", "--overwrite", *words_of(self.config.align, "align")],
            corpus,
            needs=["clean", "reverse", self.teachers[0], "filter"],
            outside=self.of_valid,
        )

    def student(self) -> PipelineStage:
        return stage("student", self._train(self.config.student, "../align/corpus", seed=1), needs=["align"])

    def shortlist(self) -> PipelineStage:
        line = ["nmt-shortlist", "../align/corpus", "--output", "shortlist.safetensors", "--overwrite"]
        return stage("shortlist", [*line, *words_of(self.config.shortlist, "shortlist")], needs=["align"])

    def export(self) -> PipelineStage:
        line = [
            "nmt-export",
            "--path",
            "../student/run",
            "--output",
            "model",
            "--overwrite",
            *words_of(self.config.export, "export"),
        ]
        return stage("export", [*line, "--sample", f"../filter/kept.{self.source}"], needs=["filter", "student"])

    def evaluate(self) -> PipelineStage:
        outside = dict[str, list[Path]]()
        commands = []
        for number, prefix in enumerate(self.config.text.tests):
            source, reference = file_of(prefix, self.source), file_of(prefix, self.target)
            outside |= {str(path): [path] for path in (source, reference)}
            for name, options in self._systems().items():
                output = f"{number}.{name}"
                line = ["nmt-generate", *options, "--input", str(source), "--output", output, "--overwrite"]
                commands.append(Command(tuple(line)))
                score = ["nmt-score", "--sys", output, "--ref", str(reference), "--metrics", "bleu,chrf"]
                commands.append(Command((*score, "--format", "json"), f"{output}.json"))
        first = str(file_of(self.config.text.tests[0], self.source))
        commands += [*self._shown(first), *self._measured(first)]
        needs = ["clean", *self.teachers, "student", "shortlist"]
        return PipelineStage("evaluate", tuple(commands), tuple(needs), outside)

    def _systems(self) -> dict[str, list[str]]:
        """Return the systems to compare, with their options of nmt-generate."""
        evaluation = self.config.evaluation
        teachers = {
            name: ["--path", f"../{name}/run", *words_of(evaluation.teacher, "evaluation.teacher")]
            for name in self.teachers
        }
        if len(teachers) > 1:
            teachers["ensemble"] = ["--path", self.ensemble, *words_of(evaluation.teacher, "evaluation.teacher")]
        student = ["--path", "../student/run"]
        plain = [*student, *words_of(evaluation.teacher, "evaluation.teacher")]
        short = [
            "--shortlist",
            "../shortlist/shortlist.safetensors",
            *words_of(evaluation.student, "evaluation.student"),
        ]
        return {**teachers, "student-searched-as-the-teacher": plain, "student": [*student, *short]}

    def _shown(self, source: str) -> Iterator[Command]:
        """Align the first test set and its translations with the guided attention of the student.

        Without ``student.alignment_layer``, the last layer has the guided attention.
        """
        layer = self.config.student.get("alignment_layer")
        place = [] if layer is None else ["--layer", str(layer), "--head", "0", "--no-shift"]
        line = ["nmt-align", "--path", "../student/run", "--src", source, "--ref", "0.student", *place]
        yield Command((*line, "--output", "0.student.links", "--overwrite"))

    def _measured(self, source: str) -> Iterator[Command]:
        evaluation = self.config.evaluation
        line = ["speed.py", "--input", source, "--lines", str(evaluation.lines), "--rounds", str(evaluation.rounds)]
        systems = [word for name, said in self._systems().items() for word in ("--system", name, *said, "--end")]
        yield command((*line, "--output", "speed.json", *systems))
        results = ["report.py", "--experiment", self.config.experiment, "--speeds", "speed.json"]
        tests = self.config.text.tests
        names = [Path(prefix).name for prefix in tests]
        results += ["--teacher", self.teachers[0], "--tests", *(names if len(set(names)) == len(names) else tests)]
        yield command((*results, "--systems", *self._systems()), "report.md")

    def _preprocess(self, source: str, target: str, prefix: str, *more: str) -> list[str]:
        line = ["nmt-preprocess", "--source-lang", source, "--target-lang", target, "--trainpref", prefix]
        return [*line, "--validpref", self.valid, "--destdir", "corpus", "--overwrite", "--joined-dictionary", *more]

    def _vocabulary(self) -> list[str]:
        return ["--srcdict", "../clean/corpus", "--tgtdict", "../clean/corpus"]

    def _train(self, options: Options, *corpora: str, seed: int) -> list[str]:
        return ["nmt-train", *corpora, "--save-dir", "run", "--seed", str(seed), *words_of(options, "train")]


def stage(
    name: str,
    *lines: list[str] | Command,
    needs: list[str] | None = None,
    outside: Mapping[str, list[Path]] | None = None,
) -> PipelineStage:
    commands = (line if isinstance(line, Command) else command(tuple(line)) for line in lines)
    return PipelineStage(name, tuple(commands), tuple(needs or ()), outside or {})
