"""Options that cannot be true together, found before anything is built and said all at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nmt.config.choices import Strategy
from nmt.config.sections import AUTO, TrainConfig
from nmt.errors import UsageError, numbered
from nmt.optim import Horizon, default_warmup, schedulers
from nmt.optim.schedules.constant import ConstantConfig


@dataclass(frozen=True)
class Case:
    """What the rules look at."""

    config: TrainConfig
    longest: int | None  # pieces of the longest side of a training pair; None: no corpus is open
    max_update: int | None  # estimated from the epochs where only these are limited


Rule = Callable[[Case], str | None]


def _no_data(case: Case) -> str | None:
    return None if case.config.data else "no corpus is given; name the folder that nmt-preprocess wrote"


def _no_component(case: Case) -> str | None:
    roles = ("model", "criterion", "optimizer", "scheduler")
    missing = [role for role in roles if getattr(case.config, role) is None]
    return f"no {', no '.join(missing)} is chosen" if missing else None


def _no_search(case: Case) -> str | None:
    validation = case.config.validation
    if case.config.search is not None or not (validation.metrics or validation.samples):
        return None
    return "no search is chosen to translate the validation set; set validation.samples=0 if you want none"


def _negative_seed(case: Case) -> str | None:
    return f"seed={case.config.seed} must not be negative" if case.config.seed < 0 else None


def _warmup_too_long(case: Case) -> str | None:
    warmup = getattr(case.config.scheduler, "warmup_updates", None)
    if warmup is None or case.max_update is None or warmup <= case.max_update:
        return None
    return (
        f"scheduler.warmup_updates={warmup} is more than the {case.max_update} updates of the whole run; lower "
        f"--warmup-updates, or train longer (--max-update or --max-epoch)"
    )


def _two_rates(case: Case) -> str | None:
    if not getattr(case.config.scheduler, "sets_rate", False) or getattr(case.config.optimizer, "lr", None) is None:
        return None
    return (
        f"optimizer.lr={case.config.optimizer.lr} has no effect: this scheduler computes the rate from the model's "
        f"width; leave --lr out and use scheduler.factor, or choose --lr-scheduler inverse_sqrt"
    )


def _one_rate_for_two(case: Case) -> str | None:
    sgd_lr = getattr(case.config.optimizer, "sgd_lr", None)
    if not getattr(case.config.scheduler, "sets_rate", False) or sgd_lr is None:
        return None
    return (
        f"optimizer.sgd_lr={sgd_lr} has no effect: this scheduler computes one rate from the model's width, and this "
        f"optimizer needs two; choose --lr-scheduler halving or constant"
    )


def _two_substitutes_for_a_schedule(case: Case) -> str | None:
    schedule_free = getattr(case.config.optimizer, "schedule_free", False)
    if not schedule_free or case.config.scheduler is None or type(case.config.scheduler) is ConstantConfig:
        return None
    return (
        "this optimizer averages weights in place of lowering the rate; choose --lr-scheduler constant, with "
        "--warmup-updates"
    )


def _two_averages(case: Case) -> str | None:
    decay = case.config.training.ema_decay
    if decay is None or not getattr(case.config.optimizer, "schedule_free", False):
        return None
    return f"training.ema_decay={decay}, but this optimizer averages weights itself; leave --ema-decay out"


def _scheduler_refuses(case: Case) -> str | None:
    counted_later = case.max_update is None and case.config.training.max_epoch is not None
    if case.config.scheduler is None or counted_later:
        return None
    try:
        schedulers.build(
            case.config.scheduler,
            Horizon(
                case.max_update,
                model_width=1,
                base_rate=getattr(case.config.optimizer, "base_rate", 1.0),
                warmup_updates=default_warmup(case.max_update),
            ),
        )
    except UsageError as error:
        return str(error)
    return None


def _divided_matrices(case: Case) -> str | None:
    """What a step of the optimizer to an element depends on must be with the process that has the element."""
    divided = case.config.distributed.strategy is Strategy.fsdp
    if not divided or not getattr(case.config.optimizer, "whole_matrices", False):
        return None
    return (
        "this optimizer looks at whole matrices, of which with distributed.strategy=fsdp each process holds some rows; "
        "choose another --optimizer, or --distributed-strategy ddp"
    )


def _two_clippings(case: Case) -> str | None:
    limits = case.config.training
    if not (limits.clip_norm and limits.clip_value):
        return None
    return (
        f"training.clip_norm={limits.clip_norm} and training.clip_value={limits.clip_value} exclude each other; set one "
        f"of --clip-norm and --clip-value"
    )


def _no_teacher(case: Case) -> str | None:
    if getattr(case.config.criterion, "teacher", None) != "":
        return None
    return "this criterion learns from a teacher; name its run folder or checkpoint with --teacher"


def _mapping_without_model(case: Case) -> str | None:
    checkpoint = case.config.checkpoint
    if checkpoint.finetune_from_model is not None or not checkpoint.finetune_map_vocabulary:
        return None
    return "checkpoint.finetune_map_vocabulary=true maps nothing; name a trained model with --finetune-from-model"


def _patience_without_validation(case: Case) -> str | None:
    validation = case.config.validation
    if validates(case.config) or validation.patience is None:
        return None
    return f"validation.patience={validation.patience}, but validation is switched off; set --validate-interval 1"


def _schedule_without_validation(case: Case) -> str | None:
    if validates(case.config) or not getattr(case.config.scheduler, "uses_validation", False):
        return None
    return "this scheduler follows the validations, but validation is switched off; set --validate-interval 1"


def _batch_too_small(case: Case) -> str | None:
    batching = case.config.batching
    limit = None if batching.max_tokens == AUTO else batching.token_limit
    if case.longest is None or limit is None or batching.skip_long or case.longest <= limit:
        return None
    return (
        f"batching.max_tokens={limit} is less than the {case.longest} pieces of the longest training "
        f"sentence; raise --max-tokens, or leave such pairs out with --skip-long"
    )


def _trial_of_the_whole(case: Case) -> str | None:
    config = case.config
    if config.batching.max_tokens != AUTO or config.distributed.strategy is not Strategy.fsdp:
        return None
    return (
        "batching.max_tokens=auto tries the whole model in one process, which distributed.strategy=fsdp is there to avoid; "
        "give a number (--max-tokens)"
    )


def _nothing_to_replay(case: Case) -> str | None:
    training = case.config.training
    if not training.cuda_graphs or training.compile:
        return None
    return "training.cuda_graphs=true replays compiled layers; add --compile"


def _replay_in_replay(case: Case) -> str | None:
    training = case.config.training
    if not (training.cuda_graphs and training.checkpoint_activations):
        return None
    return (
        "training.cuda_graphs=true and training.checkpoint_activations=true exclude each other: layers that run again in "
        "the backward pass are not recorded; leave --cuda-graphs or --checkpoint-activations out"
    )


RULES: tuple[Rule, ...] = (
    _no_data,
    _no_component,
    _no_search,
    _negative_seed,
    _warmup_too_long,
    _two_rates,
    _one_rate_for_two,
    _two_substitutes_for_a_schedule,
    _two_averages,
    _scheduler_refuses,
    _divided_matrices,
    _two_clippings,
    _no_teacher,
    _mapping_without_model,
    _patience_without_validation,
    _schedule_without_validation,
    _batch_too_small,
    _trial_of_the_whole,
    _nothing_to_replay,
    _replay_in_replay,
)


def validates(config: TrainConfig) -> bool:
    return config.validation.interval is not None or config.validation.interval_updates is not None


def check(case: Case) -> None:
    """Refuse a configuration, with all that is wrong with it in one message."""
    found = [message for message in (rule(case) for rule in RULES) if message is not None]
    if found:
        raise UsageError(numbered(found))
