"""The options of the commands after training: nmt-generate, nmt-score, nmt-average-checkpoints and nmt-shortlist."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import Rules, refuse, require_device, require_not_negative, require_positive
from nmt.config.choices import (
    AlignmentKind,
    InputFormat,
    InvalidText,
    LongLines,
    MbrMetric,
    NumberFormat,
    OutputFormat,
    PairedTest,
    PieceMarks,
    ProgressStyle,
    ScoreFormat,
)
from nmt.config.option import FlagKind, flag, group, section, user_dir_option
from nmt.config.roles import AnySearch, CommandConfig, SearchConfig
from nmt.config.scored_text import ScoredTextConfig
from nmt.config.sections import MAX_LINE_BYTES, DeviceConfig

IN_C, ON_A_CPU, ON_A_GPU = 512, 1024, 4096  # pieces of a batch; on a CPU half and twice as many are slower (measured)
SAMPLES_TO_COMPARE = 32  # unless the user says how many to choose among


@dataclass
class GenerateConfig(CommandConfig):
    """nmt-generate: lines of text (or a split of a corpus) in, translations out."""

    data: list[str] = flag([], help="corpus folder; without one, lines of text are read")
    path: str = flag("", help="run folder, checkpoint, or several joined by ':' (ensemble)")
    ensemble_weights: list[float] = flag([], help="how much each model of an ensemble counts; default: all alike")
    shortlist: str | None = flag(
        None, help="file of nmt-shortlist: only target pieces that a sentence may need are looked at"
    )
    dtype: NumberFormat | None = flag(
        None,
        help="numbers that weights are kept in: float32, bfloat16, float16 or int8 (on a CPU); default: as --precision says",
    )
    engine: str = flag(
        "auto",
        help="what translates: torch (the model itself), native (C, on a CPU), graphs (recorded steps, on a GPU), one of a "
        "plugin, or auto",
    )
    gen_subset: str = flag("test", help="split of the corpus to translate")
    search: AnySearch = group("search", help="how translations are found", flag="--search")
    tag: str | None = flag(
        None, help="language to translate into, of a model with language tags; null: that of its (first) corpus"
    )
    input: str | None = flag(None, help="file to translate; default, and -: standard input")
    input_format: InputFormat = flag(
        InputFormat.text,
        help="text: a sentence a line; tsv: with phrases after it that the translation must contain, or not if they begin "
        "with !; jsonl: text, prefix, include, exclude, reference, min_length, max_length, tag",
    )
    output: str | None = flag(
        None, help="file to write, compressed if its name ends in .gz or .xz; default standard output"
    )
    overwrite: bool = flag(False, help="replace an existing output file")
    resume_output: bool = flag(
        False,
        help="go on where the same command was stopped: until it is complete, the output grows under its name and .partial",
    )
    format: OutputFormat = flag(OutputFormat.text, help="text, fairseq or jsonl")
    remove_bpe: PieceMarks | None = flag(
        None,
        help="join pieces of text that was cut before the corpus was made: none (also --no-remove-bpe), subword_nmt (the "
        "flag alone) or sentencepiece; null: as the corpus says",
        implied=PieceMarks.subword_nmt,
    )
    nbest: int = flag(1, help="translations shown per sentence")
    score_reference: bool = flag(
        False, help="score given translations instead of finding some: those of the corpus, or of lines in tsv or jsonl"
    )
    mbr: MbrMetric = flag(
        MbrMetric.none,
        help="show what is most like all else that the search finds (minimum Bayes risk), by chrf or bleu",
    )
    rerank: str | None = flag(
        None,
        help="model of the other direction (run folder or checkpoint): what it finds the source probable of comes first",
    )
    rerank_weight: float = flag(1.0, help="what the other direction's score counts beside the search's own")
    choose_among: int | None = flag(
        None, help="translations of a line that --mbr and --rerank choose among; null: as many as --beam, or 32 samples"
    )
    print_alignment: AlignmentKind = flag(
        AlignmentKind.none,
        help="A- lines from attention: none, hard (the flag alone) or soft",
        implied=AlignmentKind.hard,
    )
    replace_unk: bool = flag(
        False,
        help="in place of an unknown word, write the source word that it attends to most, or its translation in "
        "--unk-dictionary",
    )
    unk_dictionary: str | None = flag(None, help="for --replace-unk: a source word, a space and its translation a line")
    batch_size: int | None = flag(None, help="largest number of sentences in a batch")
    max_tokens: int | None = flag(
        None,
        help=f"largest batch in source pieces, padding included; null: {IN_C} for the native engine, "
        f"{ON_A_CPU} elsewhere on a CPU, {ON_A_GPU} on a GPU",
    )
    workers: int | None = flag(
        None, help="processes that share the work on a CPU, each with one thread; null: one a thread"
    )
    cuda_graphs: bool = flag(False, help="on a GPU: record what a step of a model launches, and repeat it")
    buffer_size: int = flag(4096, help="lines read ahead and sorted by length")
    max_source_length: int = flag(1024, help="most pieces of a source that are translated at once")
    long_lines: LongLines = flag(
        LongLines.split, help="what becomes of longer ones, with a warning: split (translated in parts) or truncate"
    )
    on_invalid_utf8: InvalidText = flag(
        InvalidText.replace, help="bytes that are not UTF-8: error, replace or skip (an empty line)"
    )
    max_line_bytes: int = flag(MAX_LINE_BYTES, help="longest line read, in bytes")
    device: DeviceConfig = section(DeviceConfig, help="where the work is done")
    user_dir: str | None = user_dir_option()
    progress: ProgressStyle = flag(ProgressStyle.auto, help="auto, bar, lines or none")

    def __post_init__(self) -> None:
        require_positive("", nbest=self.nbest, batch_size=self.batch_size, max_tokens=self.max_tokens)
        require_positive("", workers=self.workers, buffer_size=self.buffer_size)
        require_positive("", max_source_length=self.max_source_length, max_line_bytes=self.max_line_bytes)
        require_positive("", choose_among=self.choose_among)
        require_not_negative("", rerank_weight=self.rerank_weight)
        refuse(*self._options_of_others(), *self._choices())

    def _options_of_others(self) -> Rules:
        """Options that mean nothing without another one, or beside it."""
        yield (
            self.score_reference and (self.nbest > 1 or self.chooses),
            "--score-reference has one translation of each line; leave out --nbest, --mbr and --rerank",
        )
        yield (
            self.unk_dictionary is not None and not self.replace_unk,
            f"--unk-dictionary {self.unk_dictionary} is for --replace-unk; add it",
        )
        yield (
            self.mbr is not MbrMetric.none and self.rerank is not None,
            "--mbr and --rerank each put translations in an order of their own; give one",
        )
        yield (
            self.rerank is None and self.rerank_weight != 1.0,
            f"--rerank-weight {self.rerank_weight:g} is for --rerank; name the other direction's model",
        )
        yield (
            self.choose_among is not None and not self.chooses,
            f"--choose-among {self.choose_among} is for --mbr and --rerank; give one of them",
        )

    def _choices(self) -> Rules:
        """Whether there are as many translations as are shown, and as are chosen among."""
        if self.search is None:
            return
        asked, most = self.candidates(), self.search.finds_at_most
        too_many = self.chooses and most is not None and asked > most
        yield asked < self.nbest, f"--nbest {self.nbest} is more than there is to choose among; raise --choose-among"
        if self.choose_among is None:
            how = "--mbr" if self.rerank is None else "--rerank"
            advice = f"and the search finds {most} of a line; use --search beam or sampling"
            yield too_many, f"{how} chooses among several translations, {advice}"
        else:
            advice = f"lower it, or use --search beam with --beam {self.choose_among}"
            yield (
                too_many,
                f"--choose-among {self.choose_among} is more than the search finds of a line ({most}); {advice}",
            )

    @property
    def instead_of_standard_input(self) -> str | None:
        """The flag that is to be given where standard input cannot be read; None if it is not read anyway."""
        return "--input" if self.input in (None, "-") and not self.data else None

    @property
    def search_facts(self) -> SearchConfig:
        """The search; where none is chosen, what is assumed of one."""
        return self.search or SearchConfig()

    @property
    def chooses(self) -> bool:
        """Whether more is found than shown."""
        return self.mbr is not MbrMetric.none or self.rerank is not None

    def candidates(self) -> int:
        """How many translations of a line the search is asked for."""
        if not self.chooses:
            return self.nbest
        return self.choose_among or self.search_facts.beam_size or SAMPLES_TO_COMPARE


@dataclass
class ScoreConfig(ScoredTextConfig):
    """nmt-score: hypotheses and references in, scores with their signatures out."""

    src: str | None = flag(None, help="sources, one a line, for comet, metricx, --signs and --split-by length")
    confidence: bool = flag(False, help="intervals that 95 of 100 resampled texts stay within (bootstrap)")
    paired: PairedTest = flag(
        PairedTest.none,
        help="p-values of the differences to the first system: none, bootstrap or randomization",
    )
    resamples: int | None = flag(
        None,
        help="resampled texts, or trials of --paired randomization; null: 1,000 texts, 10,000 trials",
    )
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
        require_positive("", resamples=self.resamples)
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
class AverageConfig(CommandConfig):
    """nmt-average-checkpoints: several checkpoints in, one without training state out."""

    inputs: list[str] = flag([], help="run folder, or checkpoints", kind=FlagKind.many)
    output: str = flag("", help="folder to write")
    num_update_checkpoints: int | None = flag(None, help="average the last this many written by updates or minutes")
    num_epoch_checkpoints: int | None = flag(None, help="average the last this many written at an epoch's end")
    num_best_checkpoints: int | None = flag(None, help="average this many of the best, by their scores in validation")
    metric: str | None = flag(None, help="what the best are best by: loss, bleu, ...; null: the best-checkpoint metric")
    checkpoint_upper_bound: int | None = flag(None, help="leave out checkpoints after this update (or epoch)")
    validate: bool = flag(True, help="measure the average on the validation set too")
    data: list[str] = flag([], help="corpus folders with that set; default: those of the run")
    device: str = flag("auto", help="where it is measured: auto, cpu, cuda or cuda:N")
    overwrite: bool = flag(False, help="replace an existing output folder")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_device(self.device)
        require_positive("", num_update_checkpoints=self.num_update_checkpoints)
        require_positive("", num_epoch_checkpoints=self.num_epoch_checkpoints)
        require_positive("", num_best_checkpoints=self.num_best_checkpoints)


@dataclass
class ShortlistConfig(CommandConfig):
    """nmt-shortlist: a corpus folder in, a list of the target pieces that each source piece may become out."""

    data: list[str] = flag([], help="corpus folder")
    output: str = flag("", help="file to write")
    per_piece: int = flag(50, help="target pieces for each source piece")
    frequent: int = flag(100, help="the most frequent target pieces, which any sentence may need")
    max_pairs: int = flag(100_000, help="learn from the first so many sentence pairs")
    overwrite: bool = flag(False, help="replace an existing file")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_positive("", per_piece=self.per_piece, max_pairs=self.max_pairs)
        require_not_negative("", frequent=self.frequent)
