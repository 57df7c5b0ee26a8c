"""Models of other runs that a run needs: one to start from, one to learn from."""

from __future__ import annotations

import logging

import torch

from nmt.data.language_pair import LanguagePair
from nmt.errors import DataError
from nmt.interface import EncoderDecoder
from nmt.models.stored import load_model
from nmt.storage.checkpoints import FORMAT, KIND, load_parameters, resolve
from nmt.storage.files import read_manifest

logger = logging.getLogger("nmt.training")


def start_from(path: str, model: EncoderDecoder, pair: LanguagePair) -> None:
    """Give ``model`` the parameters of a trained one; it must have the same architecture and vocabularies."""
    other = _load(path, pair, torch.device("cpu"))
    load_parameters(model, other.state_dict(), path)
    logger.info("the model starts from the parameters of %s", path)


def load_teacher(path: str, pair: LanguagePair, device: torch.device) -> EncoderDecoder:
    """A trained model that will not change, of any architecture."""
    teacher = _load(path, pair, device)
    return teacher.requires_grad_(False)


def identity(path: str) -> str:
    """What the parameters of a run folder or checkpoint are recognised by."""
    manifest = read_manifest(resolve(path), KIND, FORMAT)
    return str(manifest["files"]["model.safetensors"]["sha256"])


def _load(path: str, pair: LanguagePair, device: torch.device) -> EncoderDecoder:
    model, other_pair, _ = load_model(path, device)
    if other_pair.digest() != pair.digest():
        raise DataError(
            f"{path} was trained with other vocabularies than those of the corpus; make the corpus with its tokenizer: "
            f"nmt-preprocess --srcdict {path} --tgtdict {path}"
        )
    return model
