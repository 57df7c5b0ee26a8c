"""The flags that each command accepts: those declared on options, and those of fairseq. Others are refused with advice.

A flag of fairseq that keeps its meaning becomes arguments of ours, or has no effect; the log reports which. A flag that
would lose its meaning is refused with advice.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from nmt.config.choices import Symmetrization
from nmt.config.composing.presets import default_presets
from nmt.config.option import Flag, FlagKind, flags_of, options_of
from nmt.config.roles import CommandConfig
from nmt.errors import UsageError, did_you_mean
from nmt.storage.foreign import is_dictionary_of_fairseq
from nmt_cli.command_line.grammar import NAMES_OF_SAVE_DIR, ForeignFlag, Grammar

# Options in --eval-bleu-args: fairseq's name, and our key.
_SEARCH = {
    "beam": "search.beam_size",
    "lenpen": "search.lenpen",
    "max_len_a": "search.max_len_a",
    "max_len_b": "search.max_len_b",
    "min_len": "search.min_len",
    "no_repeat_ngram_size": "search.no_repeat_ngram",
}


def _search(name: str, value: str) -> Sequence[str]:
    """Return assignments to the search. fairseq divides by length**lenpen, which is not the default length penalty here."""
    try:
        options = json.loads(value)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise UsageError(f"""{name} {value}: the value must be JSON, such as '{{"beam": 5, "lenpen": 1}}'""")
    words: list[str] = []
    for option, setting in options.items():
        if option not in _SEARCH:
            raise UsageError(
                f"{name}: '{option}' is not supported{did_you_mean(option, _SEARCH)}; give {', '.join(_SEARCH)} here, "
                f"and other options with --search"
            )
        if isinstance(setting, bool) or not isinstance(setting, (int, float)):
            raise UsageError(f"{name}: {option} must be a number, not {json.dumps(setting)}")
        words += ["search.length_penalty=power"] if option == "lenpen" else []
        words.append(f"{_SEARCH[option]}={setting}")
    return words


_JOINED = ("@@", "@@ ", "sentencepiece", "subword_nmt")  # marks that nmt knows too
_FLOAT32 = "parameters stay in float32 during training"
_TEXT_AS_GIVEN = "translations have the form of the text that nmt-preprocess read"

_of_validation = functools.partial(ForeignFlag, "--valid-metrics")
FOREIGN: dict[str, ForeignFlag] = {
    "--task": ForeignFlag(
        "--data",
        "translation is the only task",
        takes_value=True,
        words={"translation": ()},
        advice="translation is the only task; omit it",
    ),
    "--eval-bleu": _of_validation(words={"": ("--valid-metrics=bleu",)}),
    "--eval-bleu-args": _of_validation(takes_value=True, words=_search),
    "--eval-bleu-detok": _of_validation(f"{_TEXT_AS_GIVEN}, detokenized if that was raw text", takes_value=True),
    "--eval-bleu-detok-args": _of_validation("translations are detokenized already", takes_value=True),
    "--eval-bleu-remove-bpe": _of_validation(
        "tokens are joined into words if the corpus has recorded their marks",
        optional=frozenset({*_JOINED, "letter", "_EOW", "none"}),
        words=dict.fromkeys(("", *_JOINED), ()),
        advice="the corpus records how tokens are joined; omit it (nmt-preprocess --pieces sets it)",
    ),
    "--eval-bleu-print-samples": _of_validation(
        "each validation shows translations in the log (--valid-samples N: how many)"
    ),
    "--maximize-best-checkpoint-metric": _of_validation(
        "the direction of every metric is known; higher BLEU is better"
    ),
    "--skip-invalid-size-inputs-valid-test": ForeignFlag(
        "--data", "no sentence is skipped for its length; a long one gets a separate batch"
    ),
    "--memory-efficient-fp16": ForeignFlag("--precision", _FLOAT32, words={"": ("--precision", "fp16")}),
    "--memory-efficient-bf16": ForeignFlag("--precision", _FLOAT32, words={"": ("--precision", "bf16")}),
    "--log-format": ForeignFlag(
        "--progress",
        takes_value=True,
        words={"simple": ("--progress", "lines"), "tqdm": ("--progress", "bar"), "none": ("--progress", "none")},
        advice="use --progress lines or --progress bar; the run folder holds log.jsonl",
    ),
    "--num-workers": ForeignFlag("--data", "batches are read from memory-mapped files", takes_value=True),
    "--ddp-backend": ForeignFlag(
        "--distributed-strategy",
        "torchrun starts the processes, and torch's DDP connects them",
        takes_value=True,
        words=dict.fromkeys(("c10d", "pytorch_ddp", "no_c10d", "legacy_ddp"), ()),
        advice="torchrun starts the processes; omit it, or use --distributed-strategy fsdp for fully_sharded",
    ),
}

# Advice for a file among the corpus folders, by command; {file} is its name.
_FILES = {
    "generate": "to translate a file, give --input {file}",
    "train": "make a corpus folder from text: nmt-preprocess --trainpref {prefix} ...",
    "shortlist": "make a corpus folder with nmt-preprocess",
    "average_checkpoints": "give checkpoints with --inputs",
}
_OF_DICTIONARY = "make a corpus folder from text: nmt-preprocess --trainpref TEXT (--srcdict FILE reads a dictionary)"


def instead_of_bare(flags: Collection[str], argument: str) -> str:
    """Return advice for a bare argument of a command that takes none and has these flags."""
    if "--trainpref" in flags:
        return _filled("give text without the suffix of its language: --trainpref {prefix}", argument)
    return "--help all lists the flags"


def refuse_files(command: str, config: CommandConfig) -> None:
    """Refuse files among the corpus folders."""
    for name in config.data:
        path = Path(name).expanduser()
        if command in _FILES and path.is_file():
            what, advice = "a file", _filled(_FILES[command], name)
            if is_dictionary_of_fairseq(path):
                what, advice = "a fairseq dictionary", _OF_DICTIONARY
            raise UsageError(f"{name} is {what}, not a corpus folder; {advice}")


def _filled(advice: str, argument: str) -> str:
    prefix = argument.removesuffix(".gz").removesuffix(".xz").rpartition(".")[0] or argument
    return advice.format(file=argument, prefix=prefix)


# Other spellings of flags, for every command that has the flag.
ALIASES: dict[str, tuple[str, ...]] = {
    "-a": ("--arch",),
    "-s": ("--source-lang",),
    "-t": ("--target-lang",),
    "--cpu": ("--device", "cpu"),
    "--bf16": ("--precision", "bf16"),
    "--fp16": ("--precision", "fp16"),
    "--amp": ("--precision", "auto"),
    "--no-progress-bar": ("--progress", "lines"),
    "--validate-every": ("--validate-interval-updates",),
    "--ignore-case": ("--lowercase",),
    "--reference": ("--ref",),
    "--hypotheses": ("--sys",),
    "--max-sentences": ("--batch-size",),
    "--warmup-steps": ("--warmup-updates",),
    "--learning-rate": ("--lr",),
    **dict.fromkeys(("--epochs", "--num-epochs", "--num-train-epochs", "--max-epochs"), ("--max-epoch",)),
    **dict.fromkeys(("--steps", "--max-steps", "--train-steps"), ("--max-update",)),
    **dict.fromkeys(NAMES_OF_SAVE_DIR[1:], NAMES_OF_SAVE_DIR[:1]),
    **dict.fromkeys(("--beam-size", "--num-beams"), ("--beam",)),
    "--gpu": ("--device", "cuda"),
    "--sampling": ("--search", "sampling"),
    "--relu-dropout": ("--activation-dropout",),
    "--post-process": ("--remove-bpe",),
    "--no-remove-bpe": ("--remove-bpe", "none"),
}

# Flags of fairseq that have no counterpart, with what to do instead.
ADVICE: dict[str, str] = {
    "--scoring": "use nmt-score --metrics bleu,chrf,ter, or --valid-metrics while training",
    "--eval-tokenized-bleu": "use --valid-tokenize none if the corpus was made from tokenized text; for other text omit it: "
    "sacreBLEU's 13a is the default",
    "--load-alignments": "--criterion guided_alignment uses the alignments in the corpus; omit it",
    "--sentence-avg": "the criterion divides gradients by target tokens or by sentences; omit it",
    **dict.fromkeys(
        ("--min-lr", "--stop-min-lr"), "use --max-update, --max-epoch, --stop-time-hours or --patience to end training"
    ),
    **dict.fromkeys(("--nwordssrc", "--nwordstgt"), "use --vocab-size"),
    "--dataset-impl": "corpora have only one format; omit it",
    **dict.fromkeys(("--shell-completion", "-sc"), "nmt completion install adds completion to your shell"),
    "--padding-factor": "use --vocab-multiple with tokenizer=words or tokenizer=char, else a suitable --vocab-size",
    "--max-source-positions": "use model.max_positions=N with model.positions=learned; sinusoids have no limit",
    "--max-target-positions": "use model.max_positions=N with model.positions=learned; sinusoids have no limit",
    **dict.fromkeys(("--left-pad-source", "--left-pad-target"), "padding has no effect on translations; omit it"),
    "--required-batch-size-multiple": "--max-tokens sets the batch size; omit it",
    **dict.fromkeys(("--batch-size-valid", "--max-tokens-valid"), "validation chooses its batch size; omit it"),
    "--upsample-primary": "use --sampling-weights, one weight per corpus folder",
    "--sampling-method": "use --sampling-temperature T, or --sampling-weights",
    "--find-unused-parameters": "all parameters are used; omit it",
    "--report-accuracy": "use --valid-metrics exact for whole sentences",
    **dict.fromkeys(("--num-shards", "--shard-id"), "start processes with torchrun; they share the lines"),
    "--sacrebleu": "nmt-score prints sacreBLEU's scores with their signature",
    "--results-path": "use --output FILE",
    "--tensorboard-logdir": "use --tensorboard; the events go to the run folder",
    **dict.fromkeys(
        ("--resume", "--continue", "--resume-from-checkpoint", "--load-checkpoint", "--restore-file"),
        "the same command resumes from the last checkpoint of --save-dir; omit it",
    ),
    **dict.fromkeys(
        ("--gpus", "--num-gpus"), "torchrun starts one process per GPU: torchrun --nproc-per-node N -m nmt_cli.train"
    ),
    "--no-epoch-checkpoints": "use checkpoint.save_interval=null",
    "--disable-validation": "use validation.interval=null",
    "--force-anneal": "use --lr-scheduler halving --halve-after N-1",
    "--distributed-world-size": "start the processes with torchrun --nproc-per-node N -m nmt_cli.train",
    "--distributed-init-method": "start the processes with torchrun, whose --rdzv-endpoint is their address",
    "--layernorm-embedding": "use model.embedding_norm=true",
    "--quiet": "standard output holds translations only; --progress none silences the display",
    "--model-overrides": "the checkpoint defines the model; omit it",
    "--no-save-optimizer-state": "use --keep-training-states N, the number of last checkpoints with the state",
    "--store-ema": "use --ema-decay 0.999; checkpoints then store the average",
    "--write-checkpoints-asynchronously": "this is the default; --no-async-checkpoints turns it off",
    **dict.fromkeys(("--thresholdsrc", "--thresholdtgt"), "use --min-count with tokenizer=words or tokenizer=char"),
    "--constraints": "use --input-format tsv (phrases after tabs) or jsonl",
    "--prefix-size": "give each line a prefix with --input-format jsonl",
    "--unkpen": "unknown tokens have no penalty; omit it, or forbid them with --forbid-unk",
    "--encoder-embed-path": "use --source-embeddings FILE",
    "--decoder-embed-path": "use --target-embeddings FILE",
    **{
        f"--{side}-{flag}": f"use {instead} (it sets both sides)"
        for side in ("encoder", "decoder")
        for flag, instead in (
            ("embed-dim", "model.d_model=N"),
            ("ffn-embed-dim", "model.d_ff=N"),
            ("attention-heads", "model.num_heads=N"),
            ("normalize-before", "model.norm=pre"),
            ("learned-pos", "model.positions=learned"),
            ("layerdrop", "--layer-dropout P"),
            ("freeze-embed", "--freeze-embeddings"),
        )
    },
}

# Other spellings of values: fairseq names the marks of pieces themselves, Moses writes hyphens.
VALUES = {("--remove-bpe", marks): "subword_nmt" for marks in ("@@", "@@ ")}
VALUES |= {("--symmetrize", rule.value.replace("_", "-")): rule.name for rule in Symmetrization}

# Names of fairseq-score; elsewhere -s is a language, and -r belongs to Hydra.
ALIASES_OF_SCORING = {"-s": ("--sys",), "-r": ("--ref",)}

# Advice for flags of one command that users give to others.
_LANGUAGES = "corpora and models record their languages; omit it"
_RAW = "give text in the form that nmt-preprocess read; the tokenizer of the model splits it: omit it"
_PIECES = "only nmt-generate and nmt-score have it; validation joins tokens as the corpus records: omit it"
_LAYERS = "nmt-generate, nmt-serve and nmt-export have it, for trained models; omit it here"
ADVICE_ELSEWHERE = {
    **dict.fromkeys(("-s", "-t", "--source-lang", "--target-lang"), _LANGUAGES),
    **dict.fromkeys(("--remove-bpe", "--post-process"), _PIECES),
    **dict.fromkeys(("--encoder-layers-to-keep", "--decoder-layers-to-keep"), _LAYERS),
    "--seed": "only sampling is random; use --sampling-seed for it, or omit it",
}
_ELSEWHERE = dict.fromkeys(FOREIGN, "this command does not use it; omit it")


def grammar_of(config_class: type) -> Grammar:
    """Return the grammar of a command. Each group has a flag of its name: ``--group PRESET``."""
    groups = frozenset(default_presets(config_class))
    flags = {flag.name: flag for flag in flags_of(config_class)}
    for group in groups:
        by_group = Flag(f"--{group}", group, FlagKind.plain, f"preset of the group {group}", None)
        flags.setdefault(by_group.name, by_group)
    names = frozenset(field.name for field in dataclasses.fields(config_class))
    of_text = {} if "--tokenizer" in flags else dict.fromkeys(("--tokenizer", "--bpe"), _RAW)
    elsewhere = {flag: text for flag, text in ADVICE_ELSEWHERE.items() if flag not in flags}
    spellings = ALIASES | ALIASES_OF_SCORING if "--sys" in flags else ALIASES
    return Grammar(
        flags=flags,
        groups=groups,
        names=names,
        bare=next((name for name in ("data", "sys", "runs") if name in names), None),
        instead_of_bare=functools.partial(instead_of_bare, flags),
        values=VALUES,
        aliases={alias: words for alias, words in spellings.items() if words[0] in flags and alias not in flags},
        foreign={name: flag for name, flag in FOREIGN.items() if flag.needs in flags and name not in flags},
        keys=functools.partial(_keys, config_class),
        advice={**_ELSEWHERE, **ADVICE, **of_text, **elsewhere},
    )


def _keys(config_class: type) -> dict[str, str]:
    """Return the keys of options by the flags that users may expect: --d-model, --model.d-model."""
    keys: dict[str, str] = {}
    for flag in options_of(config_class):
        spelling = flag.key.replace("_", "-")
        keys[f"--{spelling}"] = flag.key
        if flag.name.endswith("="):
            keys[f"--{spelling.rpartition('.')[2]}"] = flag.key
    return keys
