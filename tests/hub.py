"""A small server that speaks the part of the Hugging Face Hub's protocol that huggingface_hub uses for models.

Repositories are dictionaries from names of files to contents, one for each commit. Large files (.safetensors) are uploaded
by the LFS protocol, others within the commit.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _cache_assets

from nmt import hub as nmt_hub

TOKEN = "hf_ofTheTest"

Files = Mapping[str, bytes]


@dataclass
class Repository:
    private: bool = False
    gated: bool = False
    commits: dict[str, Files] = field(default_factory=dict)  # oldest first
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Files) -> str:
        """Add the files in a new commit, and return its name."""
        all_files = {**self.files(), **files}
        commit = hashlib.sha1(repr((len(self.commits), sorted(all_files.items()))).encode()).hexdigest()
        self.commits[commit] = all_files
        return commit

    def resolve(self, revision: str) -> str | None:
        if revision == "main":
            return list(self.commits)[-1] if self.commits else "0" * 40
        return self.tags.get(revision, revision if revision in self.commits else None)

    def files(self) -> Files:
        return self.commits[list(self.commits)[-1]] if self.commits else {}


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass
class Hub:
    """The server: its repositories, and what was requested."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)  # "GET /api/models/..."
    objects: dict[str, bytes] = field(default_factory=dict)  # uploaded large files, by checksum
    fault: int = 0  # status of every answer; 0: the right one

    def add(self, name: str, files: Path | Files, **facts: Any) -> str:
        """Add a commit to a repository, and return its name."""
        repository = self.repositories.setdefault(name, Repository(**facts))
        return repository.commit(files_in(files) if isinstance(files, Path) else files)

    def downloads(self) -> list[str]:
        """Return the names of the files that were downloaded."""
        return [
            request.rpartition("/")[2]
            for request in self.requests
            if request.startswith("GET") and "/resolve/" in request
        ]


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def handle_any(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.body = b"".join(iter(self._chunk, b""))
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        self.hub.requests.append(f"{self.command} {unquote(urlsplit(self.path).path)}")
        if self.hub.fault:
            self.answer({"error": "told to fail"}, self.hub.fault)
        elif parts[:3] == ["api", "repos", "create"]:
            self.create()
        elif parts == ["api", "validate-yaml"]:
            wrong = [{"message": '"license" must be one of ...'}] if "license: unheard-of" in self.body.decode() else []
            self.answer({"errors": wrong, "warnings": []}, 400 if wrong else 200)
        elif parts[0] == "objects":
            self.hub.objects[parts[1]] = self.body
            self.answer({})
        elif parts[:2] == ["api", "models"]:
            self.of_repository("/".join(parts[2:4]), parts[4:])
        elif parts[2:3] == ["info"]:  # OWNER/NAME.git/info/lfs/objects/batch
            objects = json.loads(self.body)["objects"]
            uploads = [{"upload": {"href": f"{self.hub.url}/objects/{each['oid']}"}} for each in objects]
            self.answer({"objects": [{**each, "actions": actions} for each, actions in zip(objects, uploads)]})
        else:
            self.of_repository("/".join(parts[:2]), parts[2:])

    do_GET = do_HEAD = do_POST = do_PUT = handle_any

    def _chunk(self) -> bytes:
        content = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return content

    @property
    def known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def create(self) -> None:
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        if not self.known or asked["organization"] != "me":
            message = f'You don\'t have the rights to create a model under the namespace "{asked["organization"]}"'
            self.answer({"error": message}, 403)
            return
        status = 409 if name in self.hub.repositories else 200
        self.hub.repositories.setdefault(name, Repository(private=asked.get("visibility") == "private"))
        self.answer({"url": f"{self.hub.url}/{name}"}, status)

    def of_repository(self, name: str, action: list[str]) -> None:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not self.known):
            self.refuse("RepoNotFound", 404 if self.known else 401)
            return
        kind, revision, *rest = action or ["revision", "main"]
        commit = repository.resolve(revision)
        if commit is None:
            self.refuse("RevisionNotFound", 404)
        elif kind == "revision":
            siblings = [{"rfilename": path} for path in repository.commits.get(commit, {})]
            self.answer({"id": name, "sha": commit, "private": repository.private, "siblings": siblings})
        elif kind == "tree":
            files = repository.commits[commit].items()
            self.answer(
                [{"type": "file", "path": path, "size": len(content), "oid": _oid(content)} for path, content in files]
            )
        elif kind == "resolve" and repository.gated and not self.known:
            self.refuse("GatedRepo", 403)
        elif kind == "resolve":
            content = repository.commits[commit]["/".join(rest)]
            self.reply(200, content, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": commit})
        elif kind == "preupload":
            paths = [file["path"] for file in json.loads(self.body)["files"]]
            modes = {path: "lfs" if path.endswith(".safetensors") else "regular" for path in paths}
            self.answer({"files": [{"path": path, "uploadMode": modes[path], "shouldIgnore": False} for path in paths]})
        else:
            assert kind == "commit", self.path
            lines = [json.loads(line) for line in self.body.splitlines()]
            files = {line["value"]["path"]: self.content(line) for line in lines if line["key"] != "header"}
            commit = repository.commit(files)
            self.answer({"commitUrl": f"{self.hub.url}/{name}/commit/{commit}", "commitOid": commit})

    def content(self, line: Any) -> bytes:
        value = line["value"]
        return base64.b64decode(value["content"]) if line["key"] == "file" else self.hub.objects[value["oid"]]

    def refuse(self, code: str, status: int) -> None:
        self.answer({"error": code}, status, {"X-Error-Code": code})

    def answer(self, tree: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.reply(status, json.dumps(tree).encode(), {"Content-Type": "application/json", **(headers or {})})

    def reply(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextlib.contextmanager
def running_hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve, and point huggingface_hub of this process and of those that it starts to the server and an empty cache."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_ASSETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    facts = {
        "ENDPOINT": hub.url,
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
    }
    facts |= {"HF_TOKEN_PATH": str(home / "token"), "HF_HUB_DISABLE_TELEMETRY": True}
    facts |= {"HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}"}
    for name, value in facts.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(_cache_assets, "HF_ASSETS_CACHE", str(home / "assets"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    nmt_hub._cached_model.cache_clear()
    try:
        yield hub
    finally:
        nmt_hub._cached_model.cache_clear()
        server.shutdown()
        server.server_close()
        thread.join()
