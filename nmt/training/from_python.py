"""``nmt.train``: train from Python, on data of the program or on corpus folders."""

from __future__ import annotations

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
from nmt.keywords import with_default_components
from nmt.plugins import load_plugins, preset_folders
from nmt.preprocessing.from_python import REPLACED, Preparation
from nmt.preprocessing.program_data import is_paths, paths_in
from nmt.progress import logs_are_hidden, resolved
from nmt.reporting.callbacks import Callback
from nmt.reporting.notebook_lines import NotebookLines
from nmt.storage.run_folder import checkpoints_in
from nmt.storage.run_status import has_ranks
from nmt.training.result import TrainingResult, refuse_dry_run

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
    config: TrainConfig | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a model; the same call resumes an interrupted run. Without an option, the default of nmt-train applies.

    ``data``: sentence pairs (a list, data set or data frame), text files, or corpus folders. Pairs and text become a corpus
    in the run folder, as ``nmt.preprocess`` makes it with ``valid``, ``valid_share``, ``source_lang``, ``target_lang``,
    ``tokenizer`` and further options of nmt-preprocess. ``data`` may also be a ``TrainConfig``.
    ``model``: a preset, such as ``"transformer_tiny"``, or the options of a model. ``save_dir``: the run folder.
    ``lr``: the peak learning rate. ``max_update``, ``max_epoch``: the end of training.
    ``callbacks``: objects that receive the events of the run (``nmt.Callback``), or names.
    ``options``: further options of nmt-train, named like its flags; or all of them as ``config``.
    """
    if isinstance(data, TrainConfig):
        if config is not None:
            raise UsageError("train got two dataclasses of options; give one")
        config, data = data, None
    named = {"model": model, "save_dir": save_dir, "lr": lr, "max_update": max_update, "max_epoch": max_epoch}
    of_text = {"source_lang": source_lang, "target_lang": target_lang}
    options |= {name: value for name, value in (named | of_text).items() if value is not None}
    training, text = _divided(options)
    if config is not None and training:
        raise UsageError("train takes a dataclass of options or keyword arguments; give one of the two")
    if config is None:
        if data is None:
            raise UsageError("train needs data: train(data=PAIRS), a corpus folder, or a TrainConfig")
        load_plugins(training.get("user_dir"))
        config = from_keywords(TrainConfig, training, "train", folders=preset_folders())
    else:
        config = with_default_components(config)
    refuse_dry_run(config)
    text |= {"valid": valid, "valid_share": valid_share, "tokenizer": tokenizer}
    if data is not None:
        config = dataclasses.replace(config, data=_corpora(data, config, text))
    elif unused := [name for name, value in text.items() if value is not None]:
        raise UsageError(
            f"train: {unused[0]}= needs data=: a TrainConfig names corpus folders, which are prepared already"
        )
    from nmt.training.assemble import train as run  # imports torch; wrong options and data are refused before

    hides_lines = logs_are_hidden() and resolved(config.report.progress) is ProgressStyle.lines
    return run(config, [*callbacks, NotebookLines()] if hides_lines else callbacks)


def _divided(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide keyword arguments into options of nmt-train and those of nmt-preprocess alone."""
    of_training, of_text = (keys_by_keyword(each) for each in (TrainConfig, PreprocessConfig))
    training: dict[str, Any] = {}
    text: dict[str, Any] = {}
    for name, value in options.items():
        section = name.partition(".")[0]
        if section in of_training:
            training[name] = value
        elif section in of_text and section not in REPLACED:
            text[name] = value
        else:
            known = [*of_training, *(other for other in of_text if other not in REPLACED)]
            raise UsageError(f"train has no option '{name}'{did_you_mean(name, known)}")
    return training, text


def _corpora(data: Any, config: TrainConfig, text: dict[str, Any]) -> list[str]:
    """Return the corpus folders of data. Pairs and text become one in the run folder."""
    if is_paths(data):
        paths = paths_in(data)
        folders = [path for path in paths if Path(path).is_dir()]
        if len(folders) == len(paths):
            if unused := [name for name, value in text.items() if value is not None]:
                raise UsageError(f"train: {unused[0]}= needs text, but {folders[0]} is a corpus folder; leave it out")
            return folders
        if folders:
            raise UsageError(f"data names both corpus folders ({folders[0]}) and text; make a corpus of the text first")
    if has_ranks():
        raise UsageError(
            "several processes cannot train on data in memory; make a corpus with nmt.preprocess, and name it"
        )
    valid, share, tokenizer = (text.pop(name) for name in ("valid", "valid_share", "tokenizer"))
    from nmt.training.checkpoints.store import fallback_folder

    usual = {"seed": config.seed, "progress": config.report.progress, "user_dir": config.user_dir}
    usual |= {"keep_text": True} if config.variation.augment else {}
    preparation = Preparation.of(data, valid, share, tokenizer, usual | text, "train")
    folder, fallback = Path(config.checkpoint.save_dir), fallback_folder(config.checkpoint)
    trained = checkpoints_in(folder, *([] if fallback is None else [fallback]))
    preparation.ensure(folder / CORPUS, replace=not trained)
    return [str(folder / CORPUS)]
