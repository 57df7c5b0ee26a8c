"""The options of nmt-train, and sections that commands share. Other options are in preprocessing.py and commands.py.

A field holds the default, help text and flag of an option. Options of a component (model sizes, learning rate, beam)
are defined next to that component. Commands that share a section share its dataclass, so its options mean the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from nmt.config.batching import AUTO as AUTO  # these two are imported from here by many
from nmt.config.batching import BatchingConfig as BatchingConfig
from nmt.config.checks import require_device, require_threads
from nmt.config.checks import require_not_negative as require_not_negative  # plug-ins import these three from here too
from nmt.config.checks import require_positive as require_positive
from nmt.config.checks import require_share as require_share
from nmt.config.choices import Compilation, Precision, Strategy
from nmt.config.common_options import CommonOptions, PluginOption, SeedOption
from nmt.config.option import ShortRepr, flag, group, option, section, threads_option
from nmt.config.reporting import ReportConfig
from nmt.config.roles import AnyCriterion, AnyOptimizer, AnyScheduler, AnySearch, CommandConfig
from nmt.config.sampling import CorpusSamplingConfig
from nmt.config.translation import TranslationOptions
from nmt.config.variation import VariationConfig
from nmt.errors import UsageError
from nmt.storage.files import Verify

# Without any limit: the updates of the base model in "Attention Is All You Need".
DEFAULT_MAX_UPDATE = 100_000


@dataclass
class TrainingConfig(ShortRepr):
    """When training ends, and what guards it."""

    max_update: int | None = flag(
        None,
        help=f"Maximum number of updates; 0: no limit; null: {DEFAULT_MAX_UPDATE:,} if epochs and hours "
        "are unlimited too",
    )
    max_epoch: int | None = flag(None, help="Maximum number of epochs; null or 0: no limit")
    stop_time_hours: float | None = flag(None, help="Maximum training time in hours; null or 0: no limit")
    clip_norm: float = flag(0.0, help="Maximum norm of the gradient; 0: no clipping")
    clip_value: float = flag(0.0, help="Maximum absolute value of each gradient element; 0: no clipping")
    max_bad_updates: int = option(
        10, help="Number of consecutive updates with a non-finite gradient after which training stops"
    )
    divergence_patience: int | None = flag(
        5000,
        help="Number of updates without progress, at a loss no better than token frequencies, after which training "
        "stops; a tenth if worse than random; null: never",
    )
    ema_decay: float | None = flag(
        None, help="Decay of the parameters' moving average, which validation and checkpoints use; null: no average"
    )
    checkpoint_activations: bool = flag(False, help="Recompute layers in the backward pass: less memory, more time")
    expandable_segments: bool = flag(
        False,
        help="Let segments of torch's CUDA allocator grow, which saves memory with varying batch sizes; "
        "NVIDIA and AMD GPUs",
    )
    compile: Compilation = flag(
        Compilation.none,
        help="Scope of torch.compile on a GPU: none, layers (each layer) or step (model and criterion)",
    )

    def __post_init__(self) -> None:
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise UsageError(
                f"training.ema_decay={self.ema_decay} must lie between 0 and 1; 0.999 is usual (--ema-decay)"
            )
        require_positive("training", max_bad_updates=self.max_bad_updates, divergence_patience=self.divergence_patience)
        require_not_negative("training", clip_norm=self.clip_norm, clip_value=self.clip_value)
        require_not_negative("training", max_update=self.max_update or 0, max_epoch=self.max_epoch or 0)
        require_not_negative("training", stop_time_hours=self.stop_time_hours or 0)
        says_none = 0 in (self.max_epoch, self.stop_time_hours)
        self.max_epoch = self.max_epoch or None
        self.stop_time_hours = self.stop_time_hours or None
        if says_none and self.takes_default_limit:
            self.max_update = 0

    @property
    def takes_default_limit(self) -> bool:
        """Whether the user set no limit at all. ``max_update=0`` is set: training then has no limit."""
        return self.max_update is None and self.max_epoch is None and self.stop_time_hours is None

    @property
    def last_update(self) -> int | None:
        """The update that training ends with; None: updates are not limited."""
        return DEFAULT_MAX_UPDATE if self.takes_default_limit else self.max_update or None


LARGEST_FACTOR = 1e4


class Decayed(Enum):
    """What weight decay applies to."""

    all = "all"
    matrices = "matrices"


@dataclass
class ParametersConfig(ShortRepr):
    """Patterns are those of a shell (``*``, ``?``, ``[abc]``) and must match a whole name; ``*`` crosses dots."""

    freeze: list[str] = flag([], help="Parameters to keep fixed, by name patterns such as 'encoder.*'")
    train_only: list[str] = flag(
        [],
        help="Parameters to train, by name patterns such as '*bias'; empty: all. With --lora-rank: parameters to train in "
        "addition to the adapter; empty: none",
    )
    source_embeddings: str | None = flag(
        None,
        help="File of initial source embeddings: word2vec's text format, or safetensors with a row per token; null: random",
    )
    target_embeddings: str | None = flag(None, help="Target embeddings, as for --source-embeddings; null: random")
    freeze_embeddings: bool = flag(False, help="Keep embeddings of --source-embeddings and --target-embeddings fixed")
    lora_rank: int | None = flag(
        None, help="Rank of a low-rank adapter (LoRA) to train instead of the model's parameters; null: no adapter"
    )
    lora_alpha: float | None = flag(None, help="Alpha of the adapter's scale, alpha / rank; null: twice the rank")
    lora_dropout: float = flag(0.0, help="Dropout of the adapter's input features; 0: no dropout")
    lora_on: list[str] = flag(
        [],
        help="Matrices to adapt, by name patterns such as 'decoder.*attention.*'; empty: all but embeddings, output layer",
    )
    lr_scales: list[str] = flag(
        [], help="Learning rate factors, as pattern=factor of parameter names; the last match applies"
    )
    decay: Decayed = option(
        Decayed.all,
        help="Parameters with weight decay: all, or matrices (no biases, norms, other vectors or initial states)",
        flag="--weight-decay-of",
    )

    def __post_init__(self) -> None:
        self.factors()
        require_positive("parameters", lora_rank=self.lora_rank, lora_alpha=self.lora_alpha)
        require_share("parameters", lora_dropout=self.lora_dropout)
        if self.freeze_embeddings and self.source_embeddings is None and self.target_embeddings is None:
            raise UsageError(
                "--freeze-embeddings needs embeddings from files; set --source-embeddings or --target-embeddings"
            )
        if self.lora_rank is None and (self.lora_alpha is not None or self.lora_dropout or self.lora_on):
            raise UsageError(
                "--lora-alpha, --lora-dropout and --lora-on need an adapter; set its rank with --lora-rank, such as 16"
            )

    @property
    def alpha(self) -> float:
        """The numerator of the adapter's scale."""
        return 2.0 * (self.lora_rank or 0) if self.lora_alpha is None else self.lora_alpha

    def factors(self) -> list[tuple[str, float]]:
        factors = []
        for item in self.lr_scales:
            pattern, _, number = item.rpartition("=")
            factor = 0.0
            with contextlib.suppress(ValueError):
                factor = float(number)
            if not pattern or not 0.0 < factor <= LARGEST_FACTOR:
                raise UsageError(
                    f"parameters.lr_scales={item} must be a pattern, '=' and a factor above 0 and at most "
                    f"{LARGEST_FACTOR:g} (--lr-scales 'encoder.*=0.1'); to keep parameters fixed, use --freeze"
                )
            factors.append((pattern, factor))
        return factors


LOSSES = ("loss", "nll", "ppl")  # figures of every validation, lower is better; other metrics are scorers


def metric_of(figure: str) -> str:
    """Return the metric of a figure of one direction, such as ``en-de.bleu``, or of all."""
    return figure.rpartition(".")[2]


@dataclass
class ValidationConfig(ShortRepr):
    """When and how the validation set is used."""

    interval: int | None = option(1, help="Validation interval in epochs; null: none", flag="--validate-interval")
    interval_updates: int | None = option(
        None, help="Validation interval in updates; null: none", flag="--validate-interval-updates"
    )
    metrics: list[str] = option(
        [],
        help="Metrics of the translated validation split: bleu, chrf, ter, exact, ...; empty: none",
        flag="--valid-metrics",
    )
    tokenize: str = option("13a", help="sacreBLEU tokenizer of the validation metrics", flag="--valid-tokenize")
    lowercase: bool = option(False, help="Score lowercased validation translations", flag="--valid-lowercase")
    max_sentences: int | None = option(
        None, help="Maximum number of validation sentences to translate; null: all", flag="--valid-max-sentences"
    )
    samples: int = option(2, help="Number of translations in the log at each validation", flag="--valid-samples")
    best_metric: str = option(
        "loss",
        help="Metric of the best checkpoint: loss, nll, ppl or a validation metric; with several directions their "
        "mean, or that of one, such as en-de.bleu",
        flag="--best-checkpoint-metric",
    )
    patience: int | None = flag(
        None, help="Number of validations without improvement after which training stops; null: no limit"
    )

    def __post_init__(self) -> None:
        self.best_metric = self.best_metric.removeprefix("valid.")  # as curves name it
        require_positive("validation", interval=self.interval, interval_updates=self.interval_updates)
        if self.samples < 0:
            raise UsageError(f"validation.samples={self.samples} must not be negative; 0 shows none (--valid-samples)")
        require_positive("validation", patience=self.patience, max_sentences=self.max_sentences)
        metric = metric_of(self.best_metric)
        if metric not in (*LOSSES, *self.metrics):
            raise UsageError(
                f"validation.best_metric={self.best_metric} is not computed; add it to validation.metrics "
                f"(--valid-metrics {','.join([*self.metrics, metric])}) or use loss"
            )

    @property
    def is_on(self) -> bool:
        """Whether there are validations."""
        return self.interval is not None or self.interval_updates is not None

    def is_due(self, update: int | None, epoch: int | None) -> bool:
        """Whether a validation follows this update, or the end of this epoch; None: an update or epoch that was not made."""
        by_updates = self.interval_updates is not None and update is not None and update % self.interval_updates == 0
        by_epochs = self.interval is not None and epoch is not None and epoch % self.interval == 0
        return by_updates or by_epochs


BY_UPDATES, BY_MINUTES, BY_EPOCH = "update", "minutes", "epoch"  # reasons for a checkpoint, as its file names them


@dataclass
class CheckpointConfig(ShortRepr):
    """When checkpoints are written, and which are kept."""

    save_dir: str = flag("checkpoints", help="Run folder")
    save_interval: int | None = flag(1, help="Checkpoint interval in epochs; null: none")
    save_interval_updates: int | None = flag(None, help="Checkpoint interval in updates; null: none")
    save_interval_minutes: float | None = flag(None, help="Checkpoint interval in minutes; null: none")
    keep_last_epochs: int | None = flag(None, help="Number of most recent end-of-epoch checkpoints to keep; null: all")
    keep_interval_updates: int | None = flag(
        None, help="Number of most recent checkpoints saved by updates or minutes to keep; null: all"
    )
    keep_best: int = option(
        1, help="Number of best checkpoints to keep in addition to the most recent ones", flag="--keep-best-checkpoints"
    )
    keep_training_states: int | None = flag(
        3, help="Number of most recent checkpoints that keep their training state for resuming; null: all"
    )
    max_failed_saves: int = option(3, help="Number of consecutive failed saves after which training stops")
    max_unsaved_minutes: float | None = option(
        None, help="Minutes since the last checkpoint after which a failed save stops training; null: no limit"
    )
    fallback_dir: str | None = flag(
        None, help="Folder for checkpoints that do not fit on the run folder's disk; null: none"
    )
    asynchronous: bool = option(
        True, help="Write checkpoints in the background; otherwise training waits", flag="--async-checkpoints"
    )
    finetune_from_model: str | None = flag(
        None, help="Run folder or checkpoint whose parameters a new run starts from; null: random initialization"
    )
    finetune_map_vocabulary: bool = flag(
        False, help="Allow other vocabularies in --finetune-from-model; tokens missing there start randomly"
    )
    restore: bool = option(
        True, help="Resume from the last checkpoint of the run folder; otherwise refuse a run folder with checkpoints"
    )
    reset: bool = flag(False, help="Resume even if any option changed")
    reset_dataloader: bool = flag(
        False,
        help="Resume with other data, corpus sampling, text variation, seed or batching, from the start of the epoch",
    )
    reset_optimizer: bool = flag(
        False, help="Resume with a fresh optimizer state and other options of optimizer, parameters or training"
    )
    reset_lr_scheduler: bool = flag(False, help="Resume with another scheduler or learning rate")
    reset_meters: bool = flag(False, help="Resume without the best score, patience count and validation history")

    def __post_init__(self) -> None:
        if not self.save_dir.strip():
            raise UsageError("checkpoint.save_dir is empty; name a folder for the run with --save-dir")
        require_positive("checkpoint", save_interval=self.save_interval, keep_last_epochs=self.keep_last_epochs)
        require_positive("checkpoint", save_interval_updates=self.save_interval_updates)
        require_positive("checkpoint", max_failed_saves=self.max_failed_saves)
        require_positive("checkpoint", max_unsaved_minutes=self.max_unsaved_minutes)
        if self.fallback_dir is not None and not self.fallback_dir.strip():
            raise UsageError("checkpoint.fallback_dir is empty; name a folder with --fallback-dir, or omit it")
        require_positive("checkpoint", save_interval_minutes=self.save_interval_minutes)
        require_positive("checkpoint", keep_interval_updates=self.keep_interval_updates, keep_best=self.keep_best)
        require_positive("checkpoint", keep_training_states=self.keep_training_states)

    def reasons_to_save(self, update: int | None, epoch: int | None, minutes: float) -> tuple[str, ...]:
        """Return the reasons for a checkpoint after this update and this epoch, ``minutes`` after the last one for that
        reason; None: an update or epoch that was not made."""
        by_updates, by_epochs, by_minutes = self.save_interval_updates, self.save_interval, self.save_interval_minutes
        reasons = {
            BY_UPDATES: by_updates is not None and update is not None and update % by_updates == 0,
            BY_MINUTES: by_minutes is not None and minutes >= by_minutes,
            BY_EPOCH: by_epochs is not None and epoch is not None and epoch % by_epochs == 0,
        }
        return tuple(reason for reason, applies in reasons.items() if applies)


@dataclass
class DeviceConfig(ShortRepr):
    """Where and in which precision the work is done."""

    name: str = option(
        "auto", help="Device: auto, cpu, cuda, cuda:N, mps, xpu, xpu:N, or a device of a torch plugin", flag="--device"
    )
    precision: Precision = flag(
        Precision.usual,
        help="Precision: fp32, tf32, bf16, fp16, bf16_output, auto (by device and size) or usual (auto on "
        "GPU, fp32 on CPU)",
    )
    threads: int | None = threads_option()

    def __post_init__(self) -> None:
        require_device(self.name)
        require_threads("device", self.threads)


@dataclass(kw_only=True)
class DeviceSection(CommonOptions):
    """Where a command computes, with a choice of precision."""

    device: DeviceConfig = section(DeviceConfig, help="hardware, precision and CPU threads")


@dataclass
class DistributedConfig(ShortRepr):
    """Several processes, started by torchrun, that train one model."""

    strategy: Strategy = option(
        Strategy.ddp,
        help="State held by each process: ddp (all of it) or fsdp (a part of parameters, gradients and "
        "optimizer state)",
        flag="--distributed-strategy",
    )
    timeout_minutes: float = option(
        30.0, help="Maximum wait for other processes in minutes, then an error", flag="--distributed-timeout-minutes"
    )

    def __post_init__(self) -> None:
        require_positive("distributed", timeout_minutes=self.timeout_minutes)


@dataclass
class TrainConfig(DeviceSection, SeedOption, PluginOption, CommandConfig):
    """nmt-train: train a model on corpus folders; writes a run folder."""

    command: ClassVar[str] = "train"
    recipes: ClassVar[str | None] = "recipe"
    data: list[str] = flag([], help="Corpus folders, also as bare arguments")
    model: Any = group("model", help="Model architecture", flag="--arch", preset="transformer_base")
    criterion: AnyCriterion = group(
        "criterion", help="Training objective", flag="--criterion", preset="label_smoothed_cross_entropy"
    )
    optimizer: AnyOptimizer = group("optimizer", help="Optimizer", flag="--optimizer", preset="adam")
    scheduler: AnyScheduler = group(
        "scheduler", help="Learning rate schedule", flag="--lr-scheduler", preset="inverse_sqrt"
    )
    search: AnySearch = group("search", help="Search algorithm for validation", flag="--search", preset="beam")
    sampling: CorpusSamplingConfig = section(CorpusSamplingConfig, help="weights of several corpora")
    batching: BatchingConfig = section(BatchingConfig, help="micro-batch and update sizes")
    variation: VariationConfig = section(VariationConfig, help="random changes of the training text in each epoch")
    training: TrainingConfig = section(TrainingConfig, help="limits, gradient clipping, averaging and memory")
    parameters: ParametersConfig = section(ParametersConfig, help="freezing, adapters, embeddings and weight decay")
    validation: ValidationConfig = section(ValidationConfig, help="intervals, metrics and early stopping")
    checkpoint: CheckpointConfig = section(CheckpointConfig, help="saving, keeping and resuming")
    report: ReportConfig = section(ReportConfig, help="logging and reports")
    distributed: DistributedConfig = section(DistributedConfig, help="training with several processes")
    verify: Verify = flag(
        Verify.fast,
        help="Check of corpora against their manifests before training: fast (sizes, small files) or full "
        "(all checksums)",
    )
    train_subset: str = flag("train", help="Training split")
    valid_subset: str = flag("valid", help="Validation split")
    dry_run: bool = flag(
        False, help="Estimate batches, memory and time of the training, then exit without writing anything"
    )

    @property
    def translation(self) -> TranslationOptions:
        return TranslationOptions(search=self.search)
