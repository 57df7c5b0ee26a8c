"""``nmt.train``: train from Python, on sentence pairs, text files or corpus folders."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nmt.criterions
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - their options are known from here on
from nmt.config.choices import ProgressStyle
from nmt.config.composing.composition import from_keywords, keys_by_keyword
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig
from nmt.data.language_pair import LanguagePair
from nmt.errors import UsageError, did_you_mean
from nmt.keywords import configured, with_default_components
from nmt.plugins import load_plugins, preset_folders
from nmt.preprocessing.from_python import REPLACED, Preparation
from nmt.preprocessing.program_data import is_paths, paths_in
from nmt.progress import logs_are_hidden, resolved
from nmt.reporting.callbacks import Callback
from nmt.reporting.notebook_lines import NotebookLines
from nmt.storage.lock import one_writer
from nmt.storage.run_folder import checkpoints_in
from nmt.storage.run_status import has_ranks
from nmt.training.result import TrainingResult

CORPUS = "corpus"  # folder in the run folder with the data of a Python program


def train(
    data: Any = None,
    *,
    valid: Any = None,
    model: Any = None,
    save_dir: str | os.PathLike[str] | None = None,
    lr: float | None = None,
    max_update: int | None = None,
    max_epoch: int | None = None,
    callbacks: Sequence[Callback | str] = (),
    source_lang: str | None = None,
    target_lang: str | None = None,
    tokenizer: str | os.PathLike[str] | LanguagePair | Any = None,
    valid_share: float | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a model; the same call resumes an interrupted run. Omitted options have the defaults of nmt-train.

    ``data``: sentence pairs (a list, data set or data frame), text files, or corpus folders. Or a ``TrainConfig`` with all
    options. Pairs and text become a corpus in the run folder; ``valid``, ``valid_share``, ``source_lang``, ``target_lang``,
    ``tokenizer`` and further options of nmt-preprocess have the same effect as in ``nmt.preprocess``.
    ``model``: a preset, such as ``"transformer_tiny"``, or the options of a model. ``save_dir``: the run folder.
    ``lr``: the peak learning rate. ``max_update``, ``max_epoch``: the limits of training.
    ``callbacks``: objects that receive the events of the run (``nmt.Callback``), or texts ``"NAME:OPTION=VALUE"``.
    ``options``: further options of nmt-train, named like its flags.
    """
    named = {"model": model, "save_dir": save_dir, "lr": lr, "max_update": max_update, "max_epoch": max_epoch}
    of_text = {"source_lang": source_lang, "target_lang": target_lang, "valid": valid, "valid_share": valid_share}
    of_text |= {"tokenizer": tokenizer}
    options |= {name: value for name, value in named.items() if value is not None}
    training, text = _divided(options)
    text |= {name: value for name, value in of_text.items() if value is not None}
    if data is None:
        raise UsageError("train needs data: train(PAIRS), a corpus folder, or a TrainConfig")
    if isinstance(data, TrainConfig):
        config = with_default_components(configured(TrainConfig, data, training | text, "train"))
    else:
        load_plugins(training.get("user_dir"))
        config = from_keywords(TrainConfig, training, "train", folders=preset_folders())
    if config.dry_run:
        raise UsageError(
            "dry_run=true does not train; omit it, or call dry_run(config) of the module nmt.training.assemble"
        )
    if not isinstance(data, TrainConfig):
        config = dataclasses.replace(config, data=_corpora(data, config, text))
    from nmt.training.assemble import train as run  # imports torch; wrong options and data are refused before

    hides_lines = logs_are_hidden() and resolved(config.report.progress) is ProgressStyle.lines
    return run(config, [*callbacks, NotebookLines()] if hides_lines else callbacks)


def _divided(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide keyword arguments into options of nmt-train and those of nmt-preprocess alone."""
    of_training = keys_by_keyword(TrainConfig)
    of_text = [name for name in keys_by_keyword(PreprocessConfig) if name not in REPLACED]
    training, text = dict[str, Any](), dict[str, Any]()
    for name, value in options.items():
        section = name.partition(".")[0]
        if section not in (known := [*of_training, *of_text]):
            raise UsageError(f"train has no option '{name}'{did_you_mean(name, known)}")
        (training if section in of_training else text)[name] = value
    return training, text


def _corpora(data: Any, config: TrainConfig, text: dict[str, Any]) -> list[str]:
    """Return the corpus folders of data. Pairs and text become one in the run folder. ``text``: options for them."""
    paths = paths_in(data) if is_paths(data) else []
    folders = [path for path in paths if Path(path).is_dir()]
    if folders and text:
        raise UsageError(f"train: {[*text][0]}= needs text, but {folders[0]} is a corpus folder; omit {[*text][0]}")
    if folders and len(folders) < len(paths):
        raise UsageError(f"data has both a corpus folder ({folders[0]}) and text; make a corpus of the text first")
    if folders:
        return folders
    if has_ranks():
        raise UsageError(
            "several processes cannot prepare pairs or text; make a corpus with nmt.preprocess, and give its folder"
        )
    from nmt.training.checkpoints.store import fallback_folder

    valid, share, tokenizer = (text.pop(name, None) for name in ("valid", "valid_share", "tokenizer"))
    usual = {"seed": config.seed, "progress": config.report.progress, "user_dir": config.user_dir}
    usual |= {"keep_text": True} if config.variation.augment else {}
    preparation = Preparation.of(data, valid, share, tokenizer, usual | text, "train")
    folder, fallback = Path(config.checkpoint.save_dir), fallback_folder(config.checkpoint)
    with one_writer(folder) if folder.is_dir() else contextlib.nullcontext():  # it may be in training
        trained = checkpoints_in(folder, *([] if fallback is None else [fallback]))
        preparation.ensure(folder / CORPUS, replace=not trained)
    return [str(folder / CORPUS)]
