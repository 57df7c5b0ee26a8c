"""The manifest of an export: checksums that nmt-export writes and nmt-import compares."""

from __future__ import annotations

from pathlib import Path

from nmt.formats import model_card
from nmt.storage.files import MANIFEST, Verify, read_manifest, write_manifest
from nmt.storage.reading import read_json

KIND, FORMAT = "export", 1


def write_export_manifest(folder: Path, format_name: str) -> None:
    """Write the sizes and checksums of all files."""
    write_manifest(folder, KIND, FORMAT, of=format_name)


def require_unchanged_export(folder: Path) -> None:
    """Compare a folder that nmt-export wrote with its checksums; only the model card may be edited.

    Two of the three keys identify our manifest, so that damage to one key cannot hide the checksums.
    """
    if not (folder / MANIFEST).is_file():
        return
    manifest = read_json(folder / MANIFEST)
    if isinstance(manifest, dict) and len({"checksum", "files", "written_by"} & manifest.keys()) > 1:
        read_manifest(folder, KIND, FORMAT, verify=Verify.full, unchecked=(model_card.NAME,))
