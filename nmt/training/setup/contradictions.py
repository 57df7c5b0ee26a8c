"""Refuse a configuration whose options contradict each other."""

from __future__ import annotations

from nmt.config.checks import Refusals, refuse
from nmt.config.choices import Compilation, Strategy
from nmt.config.roles import CriterionConfig, OptimizerConfig, SchedulerConfig
from nmt.config.sections import AUTO, TrainConfig
from nmt.errors import UsageError, quantity
from nmt.optim import Horizon, default_warmup, schedulers
from nmt.optim.config import AdamThenSgdConfig
from nmt.optim.schedules import ConstantConfig
from nmt.training.checkpoints.fingerprint import COMPONENTS


def check(config: TrainConfig, longest: tuple[int, int] | None, max_update: int | None) -> None:
    """Refuse a configuration that contradicts itself, with all faults in one message. ``longest``: tokens of the longest
    source and target of training; None: no corpus is open. ``max_update``: estimated if only epochs are limited."""
    refuse(
        *_what_is_missing(config),
        *_rates(config, max_update),
        *_schedule(config, max_update),
        *_processes(config),
        *_rest(config, longest),
    )


def _what_is_missing(config: TrainConfig) -> Refusals:
    missing = [role for role in COMPONENTS if getattr(config, role) is None]
    translates = config.validation.metrics or config.validation.samples
    yield not config.data, "no corpus is given; name the folder that nmt-preprocess wrote"
    yield missing, f"no {', no '.join(missing)} is chosen"
    yield (
        translates and config.search is None,
        "no search is chosen to translate the validation set; choose one, or set validation.samples=0 without "
        "validation.metrics",
    )
    yield config.seed < 0, f"seed={config.seed} must not be negative"


def _rates(config: TrainConfig, max_update: int | None) -> Refusals:
    """Check the learning rate, and options that take the place of a schedule."""
    optimizer, scheduler = config.optimizer or OptimizerConfig(), config.scheduler or SchedulerConfig()
    warmup, ema_decay = scheduler.warmup_updates, config.training.ema_decay
    yield (
        warmup is not None and max_update is not None and warmup > max_update,
        f"scheduler.warmup_updates={warmup} is more than the whole run of {quantity(max_update or 0, 'update')}; lower "
        f"--warmup-updates, or train longer (--max-update or --max-epoch)",
    )
    yield (
        scheduler.sets_rate and optimizer.lr is not None,
        f"optimizer.lr={optimizer.lr} has no effect: this scheduler computes the learning rate from the model's width; "
        f"leave --lr out and use scheduler.factor, or choose --lr-scheduler inverse_sqrt",
    )
    if isinstance(optimizer, AdamThenSgdConfig):
        yield (
            scheduler.sets_rate,
            f"optimizer.sgd_lr={optimizer.sgd_lr} has no effect: this scheduler computes one learning rate from the model's "
            f"width, but this optimizer needs two; choose --lr-scheduler halving or constant",
        )
    yield (
        optimizer.schedule_free and type(scheduler) not in (SchedulerConfig, ConstantConfig),
        "this optimizer averages weights instead of lowering the learning rate; choose --lr-scheduler constant, with "
        "--warmup-updates",
    )
    yield (
        optimizer.schedule_free and ema_decay is not None,
        f"training.ema_decay={ema_decay}, but this optimizer averages weights itself; omit --ema-decay",
    )


def _schedule(config: TrainConfig, max_update: int | None) -> Refusals:
    """Build the schedule and drop it: only its builder knows which lengths and rates it refuses."""
    counted_later = max_update is None and config.training.max_epoch is not None
    if config.scheduler is None or counted_later:
        return
    base_rate = (config.optimizer or OptimizerConfig()).base_rate
    try:
        schedulers.build(config.scheduler, Horizon(max_update, 1, base_rate, default_warmup(max_update)))
    except UsageError as error:
        yield True, str(error)


def _processes(config: TrainConfig) -> Refusals:
    """Check the options of ranks."""
    divided = config.distributed.strategy is Strategy.fsdp
    yield (
        divided and config.optimizer is not None and config.optimizer.whole_matrices,
        "this optimizer needs whole matrices, but distributed.strategy=fsdp divides their rows among processes; choose "
        "another --optimizer, or --distributed-strategy ddp",
    )
    yield (
        divided and config.parameters.freeze_embeddings,
        "--freeze-embeddings needs whole matrices, but distributed.strategy=fsdp divides them among processes; choose "
        "--distributed-strategy ddp",
    )
    yield (
        divided and config.parameters.lora_rank is not None,
        "distributed.strategy=fsdp cannot divide an adapter (--lora-rank); choose --distributed-strategy ddp",
    )
    yield (
        divided and config.batching.max_tokens == AUTO,
        "batching.max_tokens=auto tries the whole model in one process, but distributed.strategy=fsdp divides it among "
        "processes; give a number (--max-tokens)",
    )


def _rest(config: TrainConfig, longest: tuple[int, int] | None) -> Refusals:
    """Check clipping, other models, validation and batches."""
    training, validation, batching = config.training, config.validation, config.batching
    criterion, scheduler = config.criterion or CriterionConfig(), config.scheduler or SchedulerConfig()
    yield (
        criterion.needs_alignments and config.variation.is_on,
        "this criterion needs word alignments, which exist only for the stored tokens; omit --bpe-dropout, "
        "--unigram-alpha and --augment, or choose another --criterion",
    )
    yield (
        training.clip_norm and training.clip_value,
        f"training.clip_norm={training.clip_norm} and training.clip_value={training.clip_value} exclude each other; set one "
        f"of --clip-norm and --clip-value",
    )
    yield (
        criterion.teacher == "",
        "this criterion needs a teacher; name its run folder or checkpoint with --teacher",
    )
    yield (
        config.parameters.freeze_embeddings and (config.optimizer or OptimizerConfig()).weight_decay > 0,
        "--freeze-embeddings keeps vectors fixed, but weight decay would shrink them; set --weight-decay 0",
    )
    yield (
        config.checkpoint.finetune_map_vocabulary and config.checkpoint.finetune_from_model is None,
        "checkpoint.finetune_map_vocabulary=true has no model to map; name one with --finetune-from-model",
    )
    yield (
        config.parameters.lora_rank is not None and config.checkpoint.finetune_from_model is None,
        "--lora-rank needs a trained model to adapt; name it with --finetune-from-model",
    )
    embeddings = config.parameters.source_embeddings or config.parameters.target_embeddings
    yield (
        config.parameters.lora_rank is not None and (config.checkpoint.finetune_map_vocabulary or embeddings),
        "--lora-rank keeps the base model; omit --finetune-map-vocabulary, --source-embeddings and --target-embeddings",
    )
    yield (
        config.parameters.lora_rank is not None and training.compile is not Compilation.none,
        "--compile would compile the model again at each update with --lora-rank; omit it",
    )
    yield (
        validation.patience is not None and not validation.is_on,
        f"validation.patience={validation.patience}, but validation is switched off; set --validate-interval 1",
    )
    yield (
        scheduler.uses_validation and not validation.is_on,
        "this scheduler depends on validations, but validation is switched off; set --validate-interval 1",
    )
    if longest is not None and batching.max_tokens != AUTO and not batching.skip_long:
        for option, (limit, needed) in batching.exceeded(longest).items():
            yield (
                True,
                f"batching.{option}={limit} is less than the {needed} tokens of the longest training sentence; raise "
                f"--{option.replace('_', '-')}, or skip such pairs with --skip-long",
            )
