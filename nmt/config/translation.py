"""The options of translating: what the library, the server, validation, alignment and reranking need, without files."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from nmt.config.checks import Refusals, refuse, require_positive
from nmt.config.choices import AlignmentKind, LongLines, MbrMetric, PieceMarks
from nmt.config.common_options import CommonOptions, DirectionOptions
from nmt.config.option import flag, group
from nmt.config.roles import AnySearch, SearchConfig

IN_C, ON_A_CPU, ON_A_GPU = 512, 1024, 4096  # tokens of a batch; on a CPU half and twice as many are slower (measured)
SAMPLES_TO_COMPARE = 32  # default of choose_among for a search without a beam


@dataclass(kw_only=True)
class BatchOptions(CommonOptions):
    """How lines form batches."""

    batch_size: int | None = flag(None, help="Maximum batch size in sentences; null: no limit")
    max_tokens: int | None = flag(
        None,
        help=f"Maximum batch size in source tokens, padding included; null: {IN_C} for the native engine, "
        f"{ON_A_CPU} for others on a CPU, {ON_A_GPU} on a GPU",
    )
    max_source_length: int = flag(
        1024, help="Maximum sentence length in source tokens; by default, longer lines are translated in parts"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", batch_size=self.batch_size, max_tokens=self.max_tokens)
        require_positive("", max_source_length=self.max_source_length)


@dataclass(kw_only=True)
class TranslationOptions(DirectionOptions, BatchOptions):
    """How lines are translated. Every field is a keyword of ``Translator.translate``, unless it says otherwise."""

    search: AnySearch = group("search", help="Search algorithm", flag="--search", http=True, preset="beam")
    remove_bpe: PieceMarks | None = flag(
        None,
        help="Subword marks to remove from translations: none (also --no-remove-bpe), subword_nmt (flag "
        "without value) or sentencepiece; null: as in the corpus",
        implied=PieceMarks.subword_nmt,
    )
    nbest: int = flag(1, help="Number of hypotheses shown per sentence", http=True)
    score_reference: bool = flag(
        False,
        help="Score given references instead of translating: those of the corpus, or of tsv or jsonl lines",
        keyword=False,
    )
    mbr: MbrMetric = flag(
        MbrMetric.none,
        help="Metric of minimum Bayes risk, which shows the hypothesis most similar to all others: chrf, bleu or none",
    )
    choose_among: int | None = flag(
        None, help="Number of hypotheses per sentence for --mbr and --rerank; null: --beam, or 32 samples"
    )
    print_alignment: AlignmentKind = flag(
        AlignmentKind.none,
        help="Alignments from attention: none, hard (flag without value) or soft",
        implied=AlignmentKind.hard,
        keyword=False,
    )
    replace_unk: bool = flag(
        False,
        help="Replace unknown words by the source word with most attention, or its entry in --unk-dictionary",
    )
    unk_dictionary: str | None = flag(
        None, help="Dictionary for --replace-unk: source word, space and translation on each line; null: none"
    )
    buffer_size: int = flag(4096, help="Number of lines read ahead and sorted by length")
    long_lines: LongLines = flag(
        LongLines.split,
        help="Handling of lines longer than --max-source-length, with a warning: split (translated in "
        "parts) or truncate",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", nbest=self.nbest, buffer_size=self.buffer_size, choose_among=self.choose_among)
        refuse(*self._dependent_options(), *self._candidate_counts())

    def _dependent_options(self) -> Refusals:
        """Options that have no effect without another one, or together with it."""
        yield (
            self.score_reference and (self.nbest > 1 or self.chooses),
            "--score-reference scores one translation per line; omit --nbest, --mbr and --rerank",
        )
        yield (
            self.unk_dictionary is not None and not self.replace_unk,
            f"--unk-dictionary {self.unk_dictionary} is for --replace-unk; add it",
        )
        yield (
            self.choose_among is not None and not self.chooses,
            f"--choose-among {self.choose_among} is for --mbr and --rerank; give one of them",
        )

    def _candidate_counts(self) -> Refusals:
        """The search must find as many hypotheses as are shown, and as are chosen among."""
        if self.search is None:
            return
        count, most = self.candidates(), self.search.finds_at_most
        too_many = self.chooses and not self.search.finds(count)
        yield (
            count < self.nbest,
            f"--nbest {self.nbest} exceeds the {count} hypotheses to choose from; raise --choose-among",
        )
        if self.choose_among is None:
            how = "--rerank" if self.mbr is MbrMetric.none else "--mbr"
            advice = f"but the search finds {most}; use --search beam or sampling"
            yield too_many, f"{how} needs several hypotheses per line, {advice}"
        else:
            advice = f"lower it, or use --search beam with --beam {self.choose_among}"
            yield (
                too_many,
                f"--choose-among {self.choose_among} is too many: the search finds {most} per line; {advice}",
            )

    @property
    def search_facts(self) -> SearchConfig:
        """The search; if none is chosen, what is assumed of one."""
        return self.search or SearchConfig()

    @property
    def chooses(self) -> bool:
        """Whether the search finds more hypotheses than are shown, to choose among them."""
        return self.mbr is not MbrMetric.none

    @property
    def aligns(self) -> bool:
        """Whether attention is kept for alignments."""
        return self.print_alignment is not AlignmentKind.none

    def candidates(self) -> int:
        """Return the number of hypotheses of a line that the search is asked for."""
        if not self.chooses:
            return self.nbest
        return self.choose_among or self.search_facts.beam_size or SAMPLES_TO_COMPARE

    def scoring(self) -> TranslationOptions:
        """Return options that score references with the same search, batches and limits, in any direction."""
        batches = {field.name: getattr(self, field.name) for field in dataclasses.fields(BatchOptions)}
        return TranslationOptions(
            **batches,
            buffer_size=self.buffer_size,
            search=self.search,
            score_reference=True,
            long_lines=LongLines.truncate,
        )
