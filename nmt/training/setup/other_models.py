"""Models of other runs that a run needs: one to start from, one to learn from."""

from __future__ import annotations

import logging

import torch

from nmt.config.plain import to_plain
from nmt.config.sections import TrainConfig
from nmt.data.language_pair import LanguagePair
from nmt.errors import DataError
from nmt.interface import EncoderDecoder
from nmt.models.stored import architecture, load_model
from nmt.storage.checkpoints import FORMAT, KIND, load_parameters, resolve
from nmt.storage.files import read_manifest
from nmt.training.setup.differences import differences
from nmt.training.setup.vocabulary_mapping import mapped_state

logger = logging.getLogger("nmt.training")


def start_from(config: TrainConfig, model: EncoderDecoder, pair: LanguagePair) -> None:
    """Give ``model`` the parameters of ``--finetune-from-model``, which must have the same architecture.

    Other vocabularies are refused unless they are to be mapped.
    """
    path = config.checkpoint.finetune_from_model
    assert path is not None, "the caller asks for it"
    loaded = load_model(path, torch.device("cpu"))
    other, other_pair, stored = loaded.module, loaded.pair, loaded.tree
    others = differences(architecture(stored["model"]), architecture(to_plain(config)["model"]))
    if others:  # where shapes do not fit either, loading says so
        listed = "; ".join(f"model.{key}: {change}" for key, change in others.items())
        logger.warning("the model of %s has other options (%s): what its parameters mean may be lost", path, listed)
    state = other.state_dict()
    if other_pair.digest() != pair.digest():
        if not config.checkpoint.finetune_map_vocabulary:
            raise _other_vocabularies(
                path, "; or take over what belongs to pieces that both have, with --finetune-map-vocabulary"
            )
        state = mapped_state(model, config.model, pair, other, other_pair, path)
    load_parameters(model, state, path)
    logger.info("the model starts from the parameters of %s", path)


def load_teacher(path: str, pair: LanguagePair, device: torch.device) -> EncoderDecoder:
    """A trained model that will not change, of any architecture."""
    loaded = load_model(path, device)
    teacher, other_pair = loaded.module, loaded.pair
    if other_pair.digest() != pair.digest():
        raise _other_vocabularies(path)
    return teacher.requires_grad_(False)


def identity(path: str) -> str:
    """What the parameters of a run folder or checkpoint are recognised by."""
    manifest = read_manifest(resolve(path), KIND, FORMAT)
    return str(manifest["files"]["model.safetensors"]["sha256"])


def _other_vocabularies(path: str, more_advice: str = "") -> DataError:
    return DataError(
        f"{path} was trained with other vocabularies than those of the corpus; make the corpus with its tokenizer: "
        f"nmt-preprocess --srcdict {path} --tgtdict {path}{more_advice}"
    )
