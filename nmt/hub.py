"""Models on the Hugging Face Hub: names ``hf://OWNER/NAME[@REVISION]``, downloads and uploads.

Cache, offline mode and tokens are those of huggingface_hub. A model of another toolkit is imported once per commit, into
the folder that its cache has for other libraries.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nmt
from nmt.config.choices import ProgressStyle
from nmt.errors import DataError, MissingInputError, NMTError, OutputError, UsageError, needing
from nmt.progress import going_on, resolved
from nmt.storage.files import MANIFEST
from nmt.storage.reading import read_json
from nmt.storage.run_folder import resolve, split_paths

logger = logging.getLogger("nmt.hub")

_NAME = re.compile(r"hf:/{1,2}(?P<repository>[^\s/@:]+/[^\s/@:]+)(?:@(?P<revision>[^\s@:]+))?")  # Path drops a slash
_LOGIN = "log in with 'hf auth login', or set HF_TOKEN"
_SAFE_WEIGHTS = ["model.safetensors", "model-*.safetensors"]  # one file, or shards
# Patterns of the files that a model folder or an import may need. Other weights are large, and needed only without these.
_TOKENIZERS = ["*.spm", "sentencepiece.bpe.model", "spiece.model", "merges.txt", "*vocabulary.txt", "tokenizer/*"]
_FILES = ["*.json", "*.yml", "*.yaml", *_TOKENIZERS, *_SAFE_WEIGHTS]
_OTHER_WEIGHTS = ["pytorch_model.bin", "pytorch_model-*.bin", "model.bin", "*.npz"]
_USER_AGENT = {"library_name": "nmt", "library_version": nmt.__version__}


@dataclass(frozen=True)
class HubName:
    """The name of a model on the hub. Without a revision, it means the newest commit of the main branch."""

    repository: str  # OWNER/NAME
    revision: str | None = None

    @classmethod
    def parse(cls, path: str | Path) -> HubName:
        match = _NAME.fullmatch(str(path))
        if match is None:
            raise UsageError(
                f"{path} does not name one model of the hub; write hf://OWNER/NAME or hf://OWNER/NAME@REVISION"
            )
        return cls(match["repository"], match["revision"])

    def __str__(self) -> str:
        return f"hf://{self.repository}" + (f"@{self.revision}" if self.revision else "")


def is_hub_name(path: str | Path) -> bool:
    return str(path).startswith("hf:/")


def checkpoint_at(path: str | Path) -> Path:
    """Return the checkpoint at a path, as ``resolve`` does, or in the cache for the name of a model on the hub."""
    return resolve(_cached_model(str(path)) if is_hub_name(path) else path)


def require_models(*paths: str | None) -> None:
    """Refuse models that are missing, and download those of the hub, before anything is loaded.

    A path may name several models, joined by ':'.
    """
    for path in (path for joined_paths in paths if joined_paths is not None for path in split_paths(joined_paths)):
        if not Path(path).exists():
            checkpoint_at(path)  # names what is missing


@functools.cache  # a process uses one commit of a branch, and asks for it once
def _cached_model(path: str) -> Path:
    """Return the folder of a model: that of the hub's cache, or the imported one."""
    name = HubName.parse(path)
    snapshot = download(name)
    if holds_own_model(snapshot):
        return snapshot
    assets = _library().cached_assets_path("nmt", nmt.__version__, name.repository.replace("/", "--"))
    folder = Path(assets) / snapshot.name
    if not (folder / MANIFEST).is_file():
        _import(replace(name, revision=snapshot.name), folder)
    return folder


def holds_own_model(folder: Path) -> bool:
    """Whether a folder is a model folder of nmt, by its manifest."""
    manifest = read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else None
    return isinstance(manifest, dict) and manifest.get("kind") == "checkpoint"


def _import(name: HubName, folder: Path) -> None:
    """Import a model into the cache, in a process of its own: importing needs torch and twice the memory of the model.

    If two processes do so, the first one that ends names the folder, and the other one uses it.
    """
    command = [sys.executable, "-m", "nmt_cli.import_", "--path", str(name), "--output", str(folder)]
    logger.info("importing %s into %s, once", name, folder)
    with going_on(f"importing {name}"):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode and not (folder / MANIFEST).is_file():
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("nmt-import: ")
        raise NMTError(
            f"{name} cannot be imported: {reason}; options help: nmt-import --path {name} --output MODEL",
            done.returncode if done.returncode > 0 else None,  # below 0: a signal ended it
        )


def download(name: HubName, progress: ProgressStyle = ProgressStyle.auto) -> Path:
    """Return the folder of a model in the hub's cache, named after its commit; download what is missing there."""
    fetch = functools.partial(_library().snapshot_download, name.repository, **_USER_AGENT)
    with _transfer(name, "downloading", MissingInputError, progress):
        folder = Path(fetch(revision=name.revision, allow_patterns=_FILES))
        if not any(any(folder.glob(pattern)) for pattern in _SAFE_WEIGHTS):
            fetch(revision=folder.name, allow_patterns=_OTHER_WEIGHTS)
    if not folder.is_dir():
        raise DataError(f"{name} holds no files that nmt reads; choose a repository with a translation model")
    return folder


def destination(path: str) -> HubName:
    """Return the name to upload to; refuse what cannot succeed, before long work."""
    name = HubName.parse(path)
    if name.revision is not None:
        raise UsageError(f"--push {name}: uploads go to the main branch; write --push hf://{name.repository}")
    if _library().get_token() is None:
        raise UsageError(f"--push {name} needs a token that may write: {_LOGIN}")
    return name


def upload(folder: Path, name: HubName, *, private: bool) -> str:
    """Add the files of a folder to a repository, in one commit; create it if it is missing. Returns its address."""
    api, message = _library().HfApi(**_USER_AGENT), f"Upload a model of nmt {nmt.__version__}"
    with _transfer(name, "uploading to", OutputError):
        url = api.create_repo(name.repository, private=private or None, exist_ok=True)
        if private and not api.repo_info(name.repository).private:
            raise OutputError(f"{name} exists and is public; make it private on the hub first, or omit --private")
        api.upload_folder(repo_id=name.repository, folder_path=folder, commit_message=message)
    return str(url)


def _library() -> Any:
    with needing("hub", "hf://"):
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils

    return huggingface_hub


@contextlib.contextmanager
def _transfer(
    name: HubName, what: str, kind: type[NMTError], style: ProgressStyle = ProgressStyle.auto
) -> Iterator[None]:
    """Show the progress of the block, as bars of huggingface_hub or as log lines, and explain its errors."""
    library = _library()
    bars, errors = library.utils, library.errors
    hides = resolved(style) is not ProgressStyle.bar and not bars.are_progress_bars_disabled()
    if hides:
        bars.disable_progress_bars()
    try:
        with going_on(f"{what} {name}", style):
            yield
    except (errors.HTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ValueError) as error:
        raise _explanation(name, error, kind) from None
    finally:
        if hides:
            bars.enable_progress_bars()


def _explanation(name: HubName, error: Exception, kind: type[NMTError]) -> NMTError:
    """Turn an error of huggingface_hub, whose messages are long, into one line that says what to do."""
    constants, errors = _library().constants, _library().errors
    page, lacking, cause = f"{constants.ENDPOINT}/{name.repository}", "", error
    if isinstance(error, ValueError) and not isinstance(error, errors.HTTPError):  # its check of a name or a model card
        return UsageError(f"{name}: {' '.join(str(error).split())}")
    if isinstance(error, errors.LocalEntryNotFoundError):
        lacking = f"{name} is not complete in {constants.HF_HUB_CACHE}, and "
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    for cause_class, message in (
        (errors.OfflineModeIsEnabled, f"{lacking}HF_HUB_OFFLINE forbids the use of the network; unset it"),
        (errors.GatedRepoError, f"{name} is gated: accept its terms at {page}, then {_LOGIN}"),
        (errors.RepositoryNotFoundError, f"{name}: {page} does not exist, or is private; check the name, or {_LOGIN}"),
        (errors.RevisionNotFoundError, f"{name}: there is no branch, tag or commit '{name.revision}'; see {page}"),
    ):
        if isinstance(cause, cause_class):
            return kind(message)
    if isinstance(cause, errors.HfHubHTTPError):
        status, message = cause.response.status_code, " ".join((cause.server_message or "").split())
        advice = _LOGIN if status in (401, 403) else "try again later"
        return kind(f"{lacking}{page} answered with status {status}{message and f' ({message})'}; {advice}")
    return kind(f"{lacking}{constants.ENDPOINT} cannot be reached ({type(cause).__name__}); check the network")
