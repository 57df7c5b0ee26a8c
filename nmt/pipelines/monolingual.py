"""The stages from pairs and monolingual text to a model: back-translation (Sennrich et al. 2016, arXiv:1511.06709), also
iterated (Hoang et al. 2018), and denoising pre-training (Lewis et al. 2020, arXiv:1910.13461).

    pairs-S-T -> pairs-T-S -> reverse -> translate-T -> synthetic-S-T -> forward -> scores

S is the source language and T the target language. The vocabulary of pairs-S-T serves all stages. Each further iteration
adds translate-S, synthetic-T-S and another round from reverse on, with its number in the names. With pre-training, all
models start from the stage ``pretraining``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nmt.config.checks import Refusals, refuse
from nmt.config.monolingual import MonolingualConfig, Options
from nmt.data.augmentations import chosen
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import TwoFiles, file_exists, find_file, require_file
from nmt.errors import UsageError
from nmt.hub import checkpoint_at, is_hub_name
from nmt.pipelines.commands import Command, words_of
from nmt.pipelines.stages import PipelineStage
from nmt.pipelines.text import STRICT, join_lines, keep_lines, make_pairs, require_text
from nmt.storage.files import MANIFEST, write_json
from nmt.storage.reading import read_json

SCORES = "scores.json"
_METRICS = ("--metrics", "bleu,chrf", "--format", "json")
DENOISING: Options = {"augment": ["mask_spans=1.0", "shuffle_sentences=1.0"], "validation.interval": None}
# Keys of options, by command, that other stages depend on, besides those that the stages set.
RESERVED = {
    "nmt-preprocess": tuple(
        "tsv jsonl only_source pairs zero_shot tag shard merge align_suffix weight_column weight_field weight_kind".split()
    ),
    "nmt-train": ("dry_run", "valid_subset"),
    "nmt-generate": ("input_format", "format", "nbest"),
}


def _of_file(path: Path) -> list[Path]:
    return [require_file(path)]


def _of_vocabulary(path: Path) -> list[Path]:
    from nmt.data.language_pair import PAIR_FILE, find_pair  # imports numpy

    folder = find_pair(path)
    return _of_file(path if folder is None else folder / PAIR_FILE)


def _of_model(path: Path) -> list[Path]:
    return [*checkpoint_at(path).glob(MANIFEST)]


# Options that name input, and the function that returns the files that describe its content.
INPUTS: Mapping[str, Callable[[Path], list[Path]]] = (
    dict.fromkeys(("srcdict", "tgtdict"), _of_vocabulary)
    | dict.fromkeys(("finetune_from_model", "teacher", "rerank"), _of_model)
    | dict.fromkeys("source_embeddings target_embeddings bpe_model target_bpe_model".split(), _of_file)
    | dict.fromkeys(("shortlist", "unk_dictionary"), _of_file)
)
SECTIONS = "preprocess train reverse forward pretraining translate".split()


class MonolingualStages:
    """The stages of a configuration, in order. All text is checked before the first stage runs."""

    def __init__(self, config: MonolingualConfig) -> None:
        required = ("source_lang", "target_lang", "trainpref", "validpref", "target_text", "save_dir")
        missing = [f"--{name.replace('_', '-')}" for name in required if not getattr(config, name)]
        if missing:
            raise UsageError(
                f"{' and '.join(missing)} {'has' if len(missing) == 1 else 'have'} no value; --help explains them"
            )
        refuse(*_contradictions(config))
        self._inputs: dict[str, list[Path]] = {}  # by words of the commands
        sections: dict[str, Any] = {name: self._located(getattr(config, name)) for name in SECTIONS}
        self._config = replace(config, **sections)
        self._reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
        words = ["--on-invalid-utf8", config.on_invalid_utf8.name, "--max-line-bytes", str(config.max_line_bytes)]
        self._reading_words = [] if self._reading == STRICT else words
        self._source, self._target = config.source_lang, config.target_lang
        self._pairs_name = f"pairs-{self._source}-{self._target}"
        self._text = {
            language: [require_file(Path(name)).resolve() for name in names]
            for language, names in ((self._source, config.source_text), (self._target, config.target_text))
        }
        for prefix in itertools.chain(*map(_absolute, (config.trainpref, config.validpref, config.testpref or ""))):
            TwoFiles(find_file(prefix, self._source), find_file(prefix, self._target)).count(self._reading)
        for path in itertools.chain(*self._text.values()):
            require_text(path, self._reading)

    def stages(self) -> list[PipelineStage]:
        config, source, target = self._config, self._source, self._target
        stages = [*self._pairs()]
        stages += self._pretraining() if config.pretrain else []
        forward: list[str] = []
        for number in range(1, config.iterations + 1):
            end = f"-{number}" if number > 1 else ""
            reverse = [f"pairs-{target}-{source}"]
            if forward:
                stages += self._synthetic(forward[-1], target, source, end)
                reverse.append(stages[-1].name)
            stages.append(self._training(f"reverse{end}", reverse, "reverse"))
            stages += self._synthetic(f"reverse{end}", source, target, end)
            forward.append(f"forward{end}")
            stages.append(self._training(forward[-1], [self._pairs_name, stages[-1].name], "forward"))
        return [self._with_inputs(stage) for stage in (*stages, *self._scores(forward))]

    def _located(self, options: Options) -> Options:
        """Return options with absolute paths of input, because commands run in other folders. Missing input is an error."""
        located = dict(options)
        for name, value in options.items():
            files_of = INPUTS.get(name.rpartition(".")[2])
            if files_of is not None and value and not is_hub_name(value):
                located[name] = path = str(Path(str(value)).resolve())
                word = f"{name}={path}" if "." in name else path
                self._inputs[word] = [*self._inputs.get(word, []), *files_of(Path(path))]
        return located

    def _with_inputs(self, stage: PipelineStage) -> PipelineStage:
        words = {word for command in stage.commands for word in command.words}
        named = {word: files for word, files in self._inputs.items() if word in words and files}
        return replace(stage, outside={**named, **stage.outside})

    def _pairs(self) -> Iterator[PipelineStage]:
        """Prepare the pairs of both directions, and the vocabulary. The second corpus has the text that filters kept."""
        source, target, options = self._source, self._target, dict(self._config.preprocess)
        if self._config.tag:
            symbols = options.get("user_defined_symbols") or []
            options["user_defined_symbols"] = [*dict.fromkeys([*symbols, self._config.tag])]
        trains, valids = _absolute(self._config.trainpref), _absolute(self._config.validpref)
        train, valid = ",".join(trains), ",".join(valids)
        suffix = options.get("weight_suffix")
        suffixes = [source, target, *([suffix] if suffix else [])]
        outside = {
            name: [find_file(prefix, end) for prefix in prefixes for end in suffixes if file_exists(prefix, end)]
            for name, prefixes in ((train, trains), (valid, valids))
        }
        words = ["--validpref", valid, "--keep-dropped", "dropped.tsv"]
        commands = [self._preprocess(source, target, train, *words, options=options)]
        for end in suffixes:
            names = [str(find_file(prefix, end, "suffix")) for prefix in trains]
            keep = partial(keep_lines, names, f"train.{end}", reading=self._reading)
            commands.append(Command((f"train.{end}:", "kept pairs", *self._reading_words), action=keep))
        yield PipelineStage(self._pairs_name, tuple(commands), (), outside)
        words = ["--validpref", valid, *(["--weight-suffix", suffix] if suffix else [])]
        again = self._preprocess(target, source, f"../{self._pairs_name}/train", *words)
        yield PipelineStage(f"pairs-{target}-{source}", (again,), (self._pairs_name,), {valid: outside[valid]})

    def _pretraining(self) -> Iterator[PipelineStage]:
        """Train a model on sentences of both languages as source and target, with noise on the source."""
        languages = (self._source, self._target)
        names = [f"../{self._pairs_name}/train.{language}" for language in languages]
        names += [str(path) for paths in self._text.values() for path in paths]
        outputs = [f"sentences.{language}" for language in languages]
        join = self._join(names, outputs)
        outside = {str(path): [path] for paths in self._text.values() for path in paths}
        corpus = self._preprocess(*languages, "sentences", "--keep-text")
        yield PipelineStage("sentences", (join, corpus), (self._pairs_name,), outside)
        yield self._training("pretraining", ["sentences"], "pretraining")

    def _synthetic(self, model: str, source: str, target: str, end: str) -> Iterator[PipelineStage]:
        """Translate the text of the language ``target`` by ``model``, and make a corpus of the translations and the text."""
        translated, names, config = f"translate-{target}{end}", [*map(str, self._text[target])], self._config
        join = self._join(names, [f"text.{target}"])
        line = ["nmt-generate", "--path", f"../{model}", "--input", f"text.{target}", "--output", f"text.{source}"]
        generate = _command([*line, "--resume-output"], words_of(config.translate, "translate"))
        yield PipelineStage(translated, (join, generate), (model,), {name: [Path(name)] for name in names})
        sides = [f"../{translated}/text.{language}" for language in (source, target)]
        outputs = [f"pairs.{language}" for language in (source, target)]
        changes = f"with tag={config.tag or 'none'} noise={','.join(config.noise) or 'none'}"
        action = partial(make_pairs, sides, outputs, config.tag, chosen(config.noise))
        pair = Command((*outputs, "from", *sides, changes), action=action)
        commands = (pair, self._preprocess(source, target, "pairs"))
        yield PipelineStage(f"synthetic-{source}-{target}{end}", commands, (self._pairs_name, translated))

    def _join(self, names: Sequence[str], outputs: Sequence[str]) -> Command:
        action = partial(join_lines, names, outputs, reading=self._reading)
        return Command((*outputs, "from", *names, *self._reading_words), action=action)

    def _preprocess(
        self, source: str, target: str, prefix: str, *words: str, options: Options | None = None
    ) -> Command:
        """Return the command that makes a corpus folder. ``options``: of the first corpus; all others use
        its vocabulary."""
        line = ["nmt-preprocess", "--source-lang", source, "--target-lang", target, "--trainpref", prefix]
        line += ["--destdir", "corpus", "--overwrite", "--joined-dictionary", *self._reading_words]
        if options is None:
            corpus, every = f"../{self._pairs_name}/corpus", self._config.preprocess
            shared: Options = {name: every[name] for name in ("workers", "keep_text") if name in every}
            line += ["--srcdict", corpus, "--tgtdict", corpus, *words_of(shared, "preprocess")]
        return _command([*line, *words], words_of(options or {}, "preprocess"))

    def _training(self, name: str, corpora: Sequence[str], section: str) -> PipelineStage:
        start = ["pretraining"] if self._config.pretrain and section != "pretraining" else []
        line = ["nmt-train", *(f"../{corpus}/corpus" for corpus in corpora), "--save-dir", "."]
        line += [word for model in start for word in ("--finetune-from-model", f"../{model}")]
        noise = DENOISING if section == "pretraining" else {}
        options: Options = self._config.train | noise | getattr(self._config, section)
        return PipelineStage(name, (_command(line, words_of(options, section)),), (*corpora, *start))

    def _scores(self, models: Sequence[str]) -> Iterator[PipelineStage]:
        tests = _absolute(self._config.testpref or "")
        commands, outside, results = list[Command](), dict[str, list[Path]](), list[tuple[str, str, str]]()
        for (number, prefix), model in itertools.product(enumerate(tests), models):
            source, reference = (find_file(prefix, language) for language in (self._source, self._target))
            outside |= {str(path): [path] for path in (source, reference)}
            output = f"{number}.{model}"
            line = ["nmt-generate", "--path", f"../{model}", "--input", str(source), "--output", output, "--overwrite"]
            score = ["nmt-score", "--sys", output, "--ref", str(reference), *_METRICS]
            commands.append(Command((*line, *self._reading_words)))
            commands.append(Command((*score, *self._reading_words), f"{output}.json"))
            results.append((prefix, model, f"{output}.json"))
        if tests:
            commands.append(Command((SCORES, "from all scores"), action=partial(_collect, results)))
            yield PipelineStage("scores", tuple(commands), tuple(models), outside)


def _contradictions(config: MonolingualConfig) -> Refusals:
    """Options that contradict each other, and those without effect."""
    yield (
        config.source_lang == config.target_lang,
        f"--source-lang and --target-lang are both {config.source_lang}; name two languages",
    )
    yield (
        config.iterations > 1 and not config.source_text,
        f"--iterations {config.iterations} needs text of the source language: --source-text FILE",
    )
    yield (
        config.source_text and config.iterations == 1 and not config.pretrain,
        "--source-text has no effect; omit it, or use it with --iterations 2 or --pretrain",
    )
    yield (
        config.pretraining and not config.pretrain,
        "the options pretraining.* have no effect without --pretrain; add it, or omit them",
    )
    sections = {"train": config.train, "reverse": config.reverse, "forward": config.forward}
    augmented = [name for name, options in sections.items() if {"augment", "variation.augment"} & options.keys()]
    yield (
        augmented and not config.preprocess.get("keep_text"),
        f"{' and '.join(f'{name}.augment' for name in augmented)}: augmentation reads the stored text of the corpora; add "
        f"preprocess.keep_text=true",
    )


def _command(line: Sequence[str], options: Sequence[str]) -> Command:
    """Return a command of nmt with the options that a user chose."""
    return Command((*line, *options), options=tuple(options), reserved=RESERVED[line[0]])


def _absolute(prefixes: str) -> list[str]:
    """Return comma-separated prefixes of files as absolute paths: commands run in other folders."""
    return [str(Path(name.strip()).resolve()) for name in prefixes.split(",") if name.strip()]


def _collect(results: Sequence[tuple[str, str, str]], folder: Path) -> None:
    rows = ((test, model, read_json(folder / name)["scores"]) for test, model, name in results)
    write_json(folder / SCORES, [{"test": test, "model": model, "scores": scores} for test, model, scores in rows])
