"""The options of the commands after training: nmt-generate, nmt-score, nmt-average-checkpoints and nmt-shortlist."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from nmt.config.checks import Refusals, refuse, require_not_negative, require_positive
from nmt.config.choices import (
    InputFormat,
    InvalidText,
    MbrMetric,
    OutputFormat,
    PairedTest,
    ProgressStyle,
    ScoreFormat,
)
from nmt.config.common_options import (
    DeviceOption,
    EngineOptions,
    OutputOption,
    OverwriteOption,
    PluginOption,
    ProgressOption,
    ReadingOptions,
    ThreadsOption,
    invalid_text_option,
)
from nmt.config.option import FlagKind, default_of, flag, keyword_of, not_for_scoring
from nmt.config.roles import CommandConfig
from nmt.config.scored_text import ScoredTextConfig
from nmt.config.sections import DeviceSection
from nmt.config.translation import TranslationOptions


@dataclass
class GenerateConfig(
    DeviceSection,
    OutputOption,
    PluginOption,
    ProgressOption,
    OverwriteOption,
    ReadingOptions,
    EngineOptions,
    TranslationOptions,
    CommandConfig,
):
    """nmt-generate: lines of text (or a split of a corpus) in, translations out."""

    command: ClassVar[str] = "generate"
    data: list[str] = flag([], help="corpus folder; without one, lines of text are read")
    path: str = flag("", help="run folder, checkpoint, or several joined by ':' (ensemble)")
    ensemble_weights: list[float] = flag([], help="weight of each model of an ensemble; default: equal weights")
    shortlist: str | None = flag(None, help="file of nmt-shortlist: each sentence is restricted to its target tokens")
    gen_subset: str = flag("test", help="split of the corpus to translate")
    input: str | None = flag(None, help="file to translate; default, and -: standard input")
    input_format: InputFormat = flag(
        InputFormat.text,
        help="text: a sentence a line; tsv: with phrases after it that the translation must contain, or not if they begin "
        "with !; jsonl: text, prefix, include, exclude, reference, min_length, max_length, tag",
    )
    resume_output: bool = flag(
        False,
        help="resume the same command where it was stopped: until it is complete, the output grows under its name and "
        ".partial",
    )
    format: OutputFormat = flag(OutputFormat.text, help="text, fairseq or jsonl")
    rerank: str | None = flag(
        None,
        help="reverse model (run folder or checkpoint): rerank by its probability of the source given the hypothesis",
    )
    rerank_weight: float = flag(1.0, help="weight of the reverse model's score relative to the search's own")
    cuda_graphs: bool = flag(False, help="on a GPU: record what a step of a model launches, and repeat it")
    on_invalid_utf8: InvalidText = invalid_text_option(InvalidText.replace, "an empty line")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("", rerank_weight=self.rerank_weight)
        if self.input == "-":  # as other programs call standard input
            self.input = None

    def _dependent_options(self) -> Refusals:
        yield from super()._dependent_options()
        yield from self._inputs()
        yield from self._hidden_by_format()
        if self.score_reference:
            yield from self._not_for_scoring()
        yield (
            self.mbr is not MbrMetric.none and self.rerank is not None,
            "--mbr and --rerank each put translations in an order of their own; give one",
        )
        yield (
            self.rerank is None and self.rerank_weight != 1.0,
            f"--rerank-weight {self.rerank_weight:g} is for --rerank; name the other direction's model",
        )

    def _inputs(self) -> Refusals:
        """Contradictions between inputs."""
        if self.data:
            yield len(self.data) > 1, f"one corpus folder can be translated at a time, not {len(self.data)}"
            yield self.input is not None, f"give a corpus folder ({self.data[0]}) or --input {self.input}, not both"
            yield (
                self.input_format is not InputFormat.text,
                f"--input-format {self.input_format.value} is for lines of text, not for a corpus folder",
            )
        yield (
            self.gen_subset != "test" and not self.data,
            f"--gen-subset {self.gen_subset} is a split of a corpus folder; name the folder too",
        )
        yield (
            self.score_reference and not self.data and self.input_format is InputFormat.text,
            "--score-reference needs references: give a corpus folder, or --input-format tsv or jsonl",
        )

    def _hidden_by_format(self) -> Refusals:
        """Results that the output format does not show."""
        if self.format is OutputFormat.text:
            advice = "add --format jsonl or fairseq to"
            yield self.score_reference, f"--format text shows no scores; {advice} --score-reference"
            yield self.aligns, f"--format text shows no alignments; {advice} --print-alignment"

    def _not_for_scoring(self) -> Refusals:
        """Options that do not apply to scoring references."""
        yield self.shortlist is not None, "--score-reference looks at all pieces; leave out --shortlist"
        yield self.replace_unk, "--score-reference shows the text that it scores; leave out --replace-unk"
        for name, field in not_for_scoring(self.search).items():
            flag_name = keyword_of(field).replace("_", "-")
            set_by_user = getattr(self.search, name) != default_of(field)
            yield set_by_user, f"--score-reference takes no account of --{flag_name}; leave it out"

    def for_typed_lines(self) -> GenerateConfig:
        """Return these options for lines typed at a terminal: each is answered before the next, and no bar disturbs
        typing."""
        progress = self.progress if self.progress is ProgressStyle.lines else ProgressStyle.none
        return dataclasses.replace(self, buffer_size=1, progress=progress)

    @property
    def instead_of_standard_input(self) -> str | None:
        """The flag to give where standard input cannot be read; None: it is not read anyway."""
        return "--input" if self.input is None and not self.data else None

    @property
    def chooses(self) -> bool:
        return super().chooses or self.rerank is not None


@dataclass
class ScoreConfig(ScoredTextConfig):
    """nmt-score: hypotheses and references in, scores with their signatures out."""

    command: ClassVar[str] = "score"
    src: str | None = flag(None, help="sources, one a line, for comet, metricx, --signs and --split-by length")
    confidence: bool = flag(False, help="intervals that 95 of 100 resampled texts stay within (bootstrap)")
    sentence: bool = flag(False, help="the scores of each line, in columns between tabs, in place of those of the text")
    split_by: str | None = flag(
        None, help="scores of parts of the text: length (words of the source, or the reference), or a file of labels"
    )
    signs: bool = flag(
        False, help="what scores hide: empty, over-long and repetitive translations; with --src copies and odd lengths"
    )
    format: ScoreFormat = flag(ScoreFormat.text, help="text, json, markdown or latex")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(
            (
                self.sentence
                and (self.confidence or self.paired is not PairedTest.none or self.split_by is not None or self.signs),
                "--sentence has the scores of single lines; leave out --confidence, --paired, --split-by and --signs",
            ),
            (
                self.paired is not PairedTest.none and len(self.sys) < 2,
                "--paired compares systems with the first one; name more than one (--sys A B)",
            ),
            (
                self.resamples is not None and not self.confidence and self.paired is PairedTest.none,
                f"--resamples {self.resamples} is for --confidence and --paired; give one of them",
            ),
            (
                self.src is not None
                and self.split_by != "length"
                and not self.signs
                and not {"comet", "metricx"} & set(self.metrics),
                f"--src {self.src} is for --signs, --split-by length and the metrics comet and metricx; add one of them, or "
                f"leave --src out",
            ),
        )


@dataclass
class AverageConfig(PluginOption, OverwriteOption, ThreadsOption, DeviceOption, CommandConfig):
    """nmt-average-checkpoints: several checkpoints in, one without training state out."""

    command: ClassVar[str] = "average_checkpoints"
    inputs: list[str] = flag([], help="run folder, or checkpoints", kind=FlagKind.many)
    output: str = flag("", help="folder for the averaged checkpoint")
    num_update_checkpoints: int | None = flag(None, help="average the last this many written by updates or minutes")
    num_epoch_checkpoints: int | None = flag(None, help="average the last this many written at an epoch's end")
    num_best_checkpoints: int | None = flag(None, help="average this many of the best, by their scores in validation")
    metric: str | None = flag(None, help="what the best are best by: loss, bleu, ...; null: the best-checkpoint metric")
    checkpoint_upper_bound: int | None = flag(None, help="leave out checkpoints after this update (or epoch)")
    validate: bool = flag(True, help="measure the average on the validation set too")
    data: list[str] = flag([], help="corpus folders with that set; default: those of the run")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", num_update_checkpoints=self.num_update_checkpoints)
        require_positive("", num_epoch_checkpoints=self.num_epoch_checkpoints)
        require_positive("", num_best_checkpoints=self.num_best_checkpoints)


@dataclass
class ShortlistConfig(PluginOption, OverwriteOption, CommandConfig):
    """nmt-shortlist: a corpus folder in, a list of the target pieces that each source piece may become out."""

    command: ClassVar[str] = "shortlist"
    data: list[str] = flag([], help="corpus folder")
    output: str = flag("", help="file to write")
    per_piece: int = flag(50, help="target pieces for each source piece")
    frequent: int = flag(100, help="the most frequent target pieces, which any sentence may need")
    max_pairs: int = flag(100_000, help="learn from the first so many sentence pairs")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", per_piece=self.per_piece, max_pairs=self.max_pairs)
        require_not_negative("", frequent=self.frequent)
