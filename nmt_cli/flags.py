"""What each command accepts as a flag: those declared on options, and spellings that users bring from fairseq."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

from nmt.config.option import Flag, FlagKind, flags_of, groups_of, options_of
from nmt.registry import registry_for
from nmt_cli.argv import Grammar
from nmt_cli.bare import instead_of_bare
from nmt_cli.foreign_flags import FOREIGN

# Other spellings of flags, for every command that has the flag they lead to.
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
    "--sampling": ("--search", "sampling"),
    "--relu-dropout": ("--activation-dropout",),
    "--post-process": ("--remove-bpe",),
    "--no-remove-bpe": ("--remove-bpe", "none"),
}

# Flags of fairseq that have no counterpart, with what to do instead.
ADVICE: dict[str, str] = {
    "--scoring": "use nmt-score --metrics bleu,chrf,ter, or --valid-metrics while training",
    "--eval-tokenized-bleu": "use --valid-tokenize none if the corpus was made of tokenised text; of other text sacreBLEU's "
    "own 13a is meant, which is the default",
    "--load-alignments": "--criterion guided_alignment takes the alignments of its corpus; leave it out",
    "--sentence-avg": "gradients are divided by target tokens, or by sentences where the criterion says so; leave it out",
    "--min-lr": "training ends by --max-update, --max-epoch, --stop-time-hours or --patience; leave it out",
    "--stop-min-lr": "training ends by --max-update, --max-epoch, --stop-time-hours or --patience; leave it out",
    "--dry-run": "--cfg job prints what a command line composes to and does nothing; nmt-train --max-update 1 tries it",
    "--nwordssrc": "use --vocab-size",
    "--nwordstgt": "use --vocab-size",
    "--dataset-impl": "a corpus has one format; leave it out",
    "--padding-factor": "a vocabulary is as large as --vocab-size says; leave it out",
    "--max-source-positions": "use model.max_positions=N with model.positions=learned; sinusoids have no limit",
    "--max-target-positions": "use model.max_positions=N with model.positions=learned; sinusoids have no limit",
    "--left-pad-source": "padding changes nothing here; leave it out",
    "--left-pad-target": "padding changes nothing here; leave it out",
    "--required-batch-size-multiple": "batches take what --max-tokens allows; leave it out",
    "--batch-size-valid": "validation has batches of its own size; leave it out",
    "--max-tokens-valid": "validation has batches of its own size; leave it out",
    "--find-unused-parameters": "all parameters are used; leave it out",
    "--bpe": "text is cut by the tokenizer: tokenizer=bpe",
    "--report-accuracy": "use --valid-metrics exact for whole sentences",
    "--num-shards": "start the processes with torchrun, which share the lines",
    "--shard-id": "start the processes with torchrun, which share the lines",
    "--sacrebleu": "nmt-score prints sacreBLEU's scores with their signature",
    "--results-path": "use --output FILE",
    "--tensorboard-logdir": "use --tensorboard; the events go to the run folder",
    "--restore-file": "the same command again continues from the last checkpoint of --save-dir",
    "--no-epoch-checkpoints": "use checkpoint.save_interval=null",
    "--disable-validation": "use validation.interval=null",
    "--force-anneal": "use --lr-scheduler halving --halve-after N-1",
    "--distributed-world-size": "start the processes with torchrun --nproc-per-node N -m nmt_cli.train",
    "--distributed-init-method": "start the processes with torchrun, whose --rdzv-endpoint says where they meet",
    "--quiet": "standard output holds translations only; --progress none silences the display",
    "--model-overrides": "a model is what its checkpoint says; leave it out",
    "--no-save-optimizer-state": "use --keep-training-states N, the number of last checkpoints that keep it",
    "--store-ema": "use --ema-decay 0.999 alone; the average is what is stored",
    "--write-checkpoints-asynchronously": "it is so anyway; --no-async-checkpoints turns it off",
    "--thresholdsrc": "use --min-count with tokenizer=words or tokenizer=char",
    "--thresholdtgt": "use --min-count with tokenizer=words or tokenizer=char",
    "--constraints": "use --input-format tsv (phrases after tabs) or jsonl",
    "--prefix-size": "give each line its own prefix with --input-format jsonl",
    "--unkpen": "there is no penalty for unknown pieces; leave it out, or forbid them with --forbid-unk",
    **{
        f"--{side}-{flag}": f"use {instead} (it holds for both sides)"
        for side in ("encoder", "decoder")
        for flag, instead in (
            ("embed-dim", "model.d_model=N"),
            ("ffn-embed-dim", "model.d_ff=N"),
            ("attention-heads", "model.num_heads=N"),
            ("normalize-before", "model.norm=pre"),
            ("learned-pos", "model.positions=learned"),
        )
    },
}

# Other spellings of values: fairseq names the marks of pieces themselves.
VALUES = {("--remove-bpe", marks): "subword_nmt" for marks in ("@@", "@@ ")}

# What fairseq-score calls them; elsewhere -s is a language, and -r is Hydra's.
ALIASES_OF_SCORING = {"-s": ("--sys",), "-r": ("--ref",)}

# Flags of one command that users also give to others.
_LANGUAGES = "only nmt-preprocess needs it, corpora and models know their languages; leave it out"
_RAW = "text goes in as nmt-preprocess was given it, and the model's own tokenizer cuts it; leave it out"
_PIECES = "nmt-generate and nmt-score have it; validation joins pieces where the corpus says so: leave it out"
ADVICE_ELSEWHERE = {
    **dict.fromkeys(("-s", "-t", "--source-lang", "--target-lang"), _LANGUAGES),
    **dict.fromkeys(("--remove-bpe", "--post-process"), _PIECES),
    "--seed": "only sampling draws anything, and has --sampling-seed; leave it out",
}
_ELSEWHERE = dict.fromkeys(FOREIGN, "this command has no use for it; leave it out")


def grammar(config_class: type, groups: Iterable[str]) -> Grammar:
    """The grammar of a command; every group can also be chosen as ``--group preset``."""
    groups = frozenset(groups)
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
        bare="data" if "data" in names else None,
        instead_of_bare=functools.partial(instead_of_bare, flags),
        values=VALUES,
        aliases={alias: words for alias, words in spellings.items() if words[0] in flags and alias not in flags},
        foreign={name: flag for name, flag in FOREIGN.items() if flag.needs in flags and name not in flags},
        keys=functools.partial(_keys, config_class),
        advice={**_ELSEWHERE, **ADVICE, **of_text, **elsewhere},
    )


def _keys(config_class: type) -> dict[str, str]:
    """By the flags that one might expect (--d-model, --model.d-model): the keys of the options."""
    options = options_of(config_class)
    for group, role in groups_of(config_class).items():
        registry = registry_for(role)
        options += [flag for name in registry.names() for flag in options_of(registry.config_class(name), f"{group}.")]
    keys: dict[str, str] = {}
    for flag in options:
        spelling = flag.key.replace("_", "-")
        keys[f"--{spelling}"] = flag.key
        if flag.name.endswith("="):
            keys[f"--{spelling.rpartition('.')[2]}"] = flag.key
    return keys
