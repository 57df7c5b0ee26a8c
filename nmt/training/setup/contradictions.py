"""Options of a training run that cannot go together, refused before anything is built, all in one message."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import Rules, refuse
from nmt.config.choices import Strategy
from nmt.config.roles import CriterionConfig, OptimizerConfig, SchedulerConfig
from nmt.config.sections import AUTO, TrainConfig
from nmt.errors import UsageError
from nmt.optim import Horizon, default_warmup, schedulers
from nmt.optim.config import AdamThenSgdConfig
from nmt.optim.schedules import ConstantConfig


@dataclass(frozen=True)
class Case:
    """What the rules look at."""

    config: TrainConfig
    longest: int | None  # pieces of the longest side of a training pair; None: no corpus is open
    max_update: int | None  # estimated from the epochs where only these are limited


def check(case: Case) -> None:
    """Refuse a configuration, with all that is wrong with it in one message."""
    refuse(*_what_is_missing(case.config), *_rates(case), *_processes(case.config), *_rest(case))


def _what_is_missing(config: TrainConfig) -> Rules:
    chosen = {
        "model": config.model,
        "criterion": config.criterion,
        "optimizer": config.optimizer,
        "scheduler": config.scheduler,
    }
    missing = [role for role, component in chosen.items() if component is None]
    translates = config.validation.metrics or config.validation.samples
    yield not config.data, "no corpus is given; name the folder that nmt-preprocess wrote"
    yield missing, f"no {', no '.join(missing)} is chosen"
    yield (
        translates and config.search is None,
        "no search is chosen to translate the validation set; set validation.samples=0 if you want none",
    )
    yield config.seed < 0, f"seed={config.seed} must not be negative"


def _rates(case: Case) -> Rules:
    """The learning rate, and what may stand in for a schedule."""
    optimizer, scheduler = case.config.optimizer or OptimizerConfig(), case.config.scheduler or SchedulerConfig()
    warmup, ema_decay = scheduler.warmup_updates, case.config.training.ema_decay
    yield (
        warmup is not None and case.max_update is not None and warmup > case.max_update,
        f"scheduler.warmup_updates={warmup} is more than the {case.max_update} updates of the whole run; lower "
        f"--warmup-updates, or train longer (--max-update or --max-epoch)",
    )
    yield (
        scheduler.sets_rate and optimizer.lr is not None,
        f"optimizer.lr={optimizer.lr} has no effect: this scheduler computes the rate from the model's width; leave --lr "
        f"out and use scheduler.factor, or choose --lr-scheduler inverse_sqrt",
    )
    if isinstance(optimizer, AdamThenSgdConfig):
        yield (
            scheduler.sets_rate,
            f"optimizer.sgd_lr={optimizer.sgd_lr} has no effect: this scheduler computes one rate from the model's width, "
            f"and this optimizer needs two; choose --lr-scheduler halving or constant",
        )
    yield (
        optimizer.schedule_free and type(scheduler) not in (SchedulerConfig, ConstantConfig),
        "this optimizer averages weights in place of lowering the rate; choose --lr-scheduler constant, with "
        "--warmup-updates",
    )
    yield (
        optimizer.schedule_free and ema_decay is not None,
        f"training.ema_decay={ema_decay}, but this optimizer averages weights itself; leave --ema-decay out",
    )
    refusal = _refusal_of_scheduler(case, optimizer.base_rate)
    yield refusal, refusal


def _refusal_of_scheduler(case: Case, base_rate: float) -> str:
    """Why the schedule cannot be made for this run; empty if it can, or if the run's updates are counted later."""
    counted_later = case.max_update is None and case.config.training.max_epoch is not None
    if case.config.scheduler is not None and not counted_later:
        warmup = default_warmup(case.max_update)
        horizon = Horizon(case.max_update, model_width=1, base_rate=base_rate, warmup_updates=warmup)
        try:
            schedulers.build(case.config.scheduler, horizon)
        except UsageError as error:
            return str(error)
    return ""


def _processes(config: TrainConfig) -> Rules:
    """What each process holds, and what is recorded there."""
    divided, training = config.distributed.strategy is Strategy.fsdp, config.training
    yield (
        divided and config.optimizer is not None and config.optimizer.whole_matrices,
        "this optimizer looks at whole matrices, of which with distributed.strategy=fsdp each process holds some rows; "
        "choose another --optimizer, or --distributed-strategy ddp",
    )
    yield (
        divided and config.batching.max_tokens == AUTO,
        "batching.max_tokens=auto tries the whole model in one process, which distributed.strategy=fsdp is there to avoid; "
        "give a number (--max-tokens)",
    )
    yield (
        training.cuda_graphs and not training.compile,
        "training.cuda_graphs=true replays compiled layers; add --compile",
    )
    yield (
        training.cuda_graphs and training.checkpoint_activations,
        "training.cuda_graphs=true and training.checkpoint_activations=true exclude each other: layers that run again in "
        "the backward pass are not recorded; leave --cuda-graphs or --checkpoint-activations out",
    )


def _rest(case: Case) -> Rules:
    """Clipping, other models, validation and batches."""
    config, training, validation, batching = (
        case.config,
        case.config.training,
        case.config.validation,
        case.config.batching,
    )
    criterion, scheduler = config.criterion or CriterionConfig(), config.scheduler or SchedulerConfig()
    yield (
        training.clip_norm and training.clip_value,
        f"training.clip_norm={training.clip_norm} and training.clip_value={training.clip_value} exclude each other; set one "
        f"of --clip-norm and --clip-value",
    )
    yield (
        criterion.teacher == "",
        "this criterion learns from a teacher; name its run folder or checkpoint with --teacher",
    )
    yield (
        config.checkpoint.finetune_map_vocabulary and config.checkpoint.finetune_from_model is None,
        "checkpoint.finetune_map_vocabulary=true maps nothing; name a trained model with --finetune-from-model",
    )
    yield (
        validation.patience is not None and not validation.is_on,
        f"validation.patience={validation.patience}, but validation is switched off; set --validate-interval 1",
    )
    yield (
        scheduler.uses_validation and not validation.is_on,
        "this scheduler follows the validations, but validation is switched off; set --validate-interval 1",
    )
    limit = None if batching.max_tokens == AUTO or batching.skip_long else batching.token_limit
    yield (
        case.longest is not None and limit is not None and case.longest > limit,
        f"batching.max_tokens={limit} is less than the {case.longest} pieces of the longest training sentence; raise "
        f"--max-tokens, or leave such pairs out with --skip-long",
    )
