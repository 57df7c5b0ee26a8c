"""The routes of a server, as an ASGI application."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import nmt
from nmt.config.serving import ServeConfig
from nmt.serving import answering
from nmt.serving.asking import Asked, Reader
from nmt.serving.body import ClientGone, read_body
from nmt.serving.dispatching import Dispatcher
from nmt.serving.metrics import Metrics
from nmt.serving.models import Models
from nmt.serving.refusals import Refused, busy
from nmt.translation import Translation

DEFECT = "the server has a defect; its log says more"
logger = logging.getLogger("nmt.serving")

PAGE = Path(__file__).with_name("page.html")
NO_LONGER_THERE = 499  # what servers log where the client has gone; nobody reads it

# Names of languages, for clients that show them; others are shown by their codes.
LANGUAGES = dict(
    pair.split("=")
    for pair in (
        "ar=Arabic bg=Bulgarian bn=Bengali ca=Catalan cs=Czech da=Danish de=German el=Greek en=English eo=Esperanto "
        "es=Spanish et=Estonian eu=Basque fa=Persian fi=Finnish fr=French ga=Irish gl=Galician he=Hebrew hi=Hindi "
        "hr=Croatian hu=Hungarian id=Indonesian is=Icelandic it=Italian ja=Japanese ko=Korean lt=Lithuanian lv=Latvian "
        "mk=Macedonian ms=Malay nb=Norwegian nl=Dutch pl=Polish pt=Portuguese ro=Romanian ru=Russian sk=Slovak "
        "sl=Slovenian sq=Albanian sr=Serbian sv=Swedish sw=Swahili th=Thai tl=Tagalog tr=Turkish uk=Ukrainian ur=Urdu "
        "vi=Vietnamese zh=Chinese"
    ).split()
)
Answer = Callable[[Request], Awaitable[Response]]


def as_json(tree: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """What is no text (a lone surrogate that a client sent, in a sentence about it) is replaced."""
    content = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(content, status, headers, media_type="application/json")


def refusal(error: Refused) -> Response:
    return as_json({"error": error.sentence}, error.status, error.headers)


@dataclass
class Service:
    """What the routes need. ``stopping``: no new work is begun elsewhere; health says so."""

    config: ServeConfig
    models: Models
    dispatcher: Dispatcher
    metrics: Metrics
    stopping: bool = False
    active: int = 0  # requests that are being translated, or read

    def __post_init__(self) -> None:
        self._reader = Reader(self.models, self.config)

    def application(self) -> ASGIApp:
        routes = [
            Route("/v1/translate", self.translate, methods=["POST"]),
            Route("/v1/models", self.tell_models),
            Route("/translate", self.libretranslate, methods=["POST"]),
            Route("/detect", self.detect, methods=["POST"]),
            Route("/languages", self.languages),
            Route("/frontend/settings", self.settings),
            Route("/api/translate", self.opus, methods=["POST"]),
            Route("/api/languages", self.opus_languages),
            Route("/api/ready", self.health),
            Route("/translator/translate", self.opennmt, methods=["POST"]),
            Route("/health", self.health),
            Route("/metrics", self.tell_metrics),
        ]
        if self.config.web_page:
            routes.append(Route("/", self.page))
        app = Starlette(
            routes=routes, exception_handlers={HTTPException: _no_such_route, Refused: _refused, Exception: _defect}
        )
        self._paths = {route.path for route in routes}
        return self._watched(app)

    def _watched(self, app: ASGIApp) -> ASGIApp:
        """Counts and logs each request. A defect is told in the log, and the client gets one sentence."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            status, begin = NO_LONGER_THERE, time.perf_counter()

            async def noted(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, noted)
            except ClientGone:
                status = NO_LONGER_THERE
            except Exception:
                logger.exception("%s %s failed", scope["method"], scope["path"])
                if status == NO_LONGER_THERE:
                    await as_json({"error": DEFECT}, HTTPStatus.INTERNAL_SERVER_ERROR)(scope, receive, noted)
            seconds = time.perf_counter() - begin
            route = scope["path"] if scope["path"] in self._paths else "other"
            self.metrics.requests[route, status] += 1
            self.metrics.seconds.add(seconds)
            if self.config.access_log:
                client = (scope.get("client") or ("-",))[0]
                logger.info("%s %s %s %d %.0f ms", client, scope["method"], route, status, seconds * 1000)

        return watched

    async def _translated(self, request: Request, read: Callable[[bytes], Asked]) -> tuple[Asked, list[Translation]]:
        """The request as ``read`` understands it, and its translations."""
        if self.active >= self.config.max_requests:
            raise busy(f"{self.active:,} requests are being answered already; try again in a moment")
        self.active += 1
        try:
            asked = read(await read_body(request, self.config))
            gone: asyncio.Future[object] = asyncio.ensure_future(request.receive())  # nothing more comes but its end
            try:
                return asked, await self.dispatcher.translate(asked, gone)
            except asyncio.CancelledError:
                if gone.done() and not gone.cancelled():
                    raise ClientGone from None
                raise
            finally:
                gone.cancel()
        finally:
            self.active -= 1

    async def translate(self, request: Request) -> Response:
        asked, found = await self._translated(request, self._reader.own)
        return as_json(answering.own(asked, found))

    async def libretranslate(self, request: Request) -> Response:
        detected: list[str] = []

        def read(body: bytes) -> Asked:
            asked, auto = self._reader.libretranslate(body, request.headers.get("content-type", ""))
            detected.extend([asked.model.source] if auto else [])
            return asked

        asked, found = await self._translated(request, read)
        return as_json(answering.libretranslate(asked, found, detected=detected[0] if detected else None))

    async def opus(self, request: Request) -> Response:
        return as_json(answering.opus(*await self._translated(request, self._reader.opus)))

    async def opennmt(self, request: Request) -> Response:
        return as_json(answering.opennmt(*await self._translated(request, self._reader.opennmt)))

    async def detect(self, request: Request) -> Response:
        body = await read_body(request, self.config)
        language = self._reader.detected(body, request.headers.get("content-type", ""))
        return as_json([{"language": language, "confidence": 100.0}])

    async def languages(self, request: Request) -> Response:
        found = [
            {"code": source, "name": LANGUAGES.get(source, source), "targets": targets}
            for source, targets in self.models.languages().items()
        ]
        named = {tree["code"] for tree in found}
        targets = dict.fromkeys(target for tree in found for target in tree["targets"])
        found += [
            {"code": code, "name": LANGUAGES.get(code, code), "targets": []} for code in targets if code not in named
        ]
        return as_json(found)

    async def settings(self, request: Request) -> Response:
        """What LibreTranslate's own page asks first."""
        first = self.models.all[0]
        languages = {
            side: {"code": code, "name": LANGUAGES.get(code, code)}
            for side, code in (("source", first.source), ("target", first.target))
        }
        tree = {"apiKeys": False, "charLimit": self.config.max_line_chars, "keyRequired": False, "language": languages}
        more = {"suggestions": False, "filesTranslation": False, "supportedFilesFormat": [], "frontendTimeout": 500}
        return as_json(tree | more)

    async def opus_languages(self, request: Request) -> Response:
        return as_json({"languages": self.models.languages()})

    async def tell_models(self, request: Request) -> Response:
        limits = ("max_beam", "max_body_bytes", "max_line_chars", "max_lines")
        models = [
            {"name": model.name, "source": model.source, "target": model.target, "search": model.search}
            | {"source_name": LANGUAGES.get(model.source, model.source)}
            | {"target_name": LANGUAGES.get(model.target, model.target)}
            for model in self.models.all
        ]
        return as_json({"models": models, "limits": {name: getattr(self.config, name) for name in limits}})

    async def health(self, request: Request) -> Response:
        ready = not self.stopping and self.dispatcher.workers > 0
        status = "ready" if ready else "stopping" if self.stopping else "starting"
        tree = {"status": status, "version": nmt.__version__, "waiting_lines": self.dispatcher.waiting_lines}
        return as_json(tree, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def tell_metrics(self, request: Request) -> Response:
        dispatcher = self.dispatcher
        text = self.metrics.text(
            waiting_lines=dispatcher.waiting_lines,
            active_requests=self.active,
            workers=dispatcher.workers,
            busy_workers=dispatcher.busy_workers,
        )
        return Response(text, media_type="text/plain; version=0.0.4")

    async def page(self, request: Request) -> Response:
        content = PAGE.read_text(encoding="utf-8")
        headers = {
            "Content-Security-Policy": policy_of(content),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        return Response(content, headers=headers, media_type="text/html")


def policy_of(page: str) -> str:
    """What the page may do: run its own script, look as its own style says, and ask this server."""
    allowed = [
        f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for kind, tag in (("script", "script"), ("style", "style"))
        for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
    ]
    rest = ["connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return "; ".join(["default-src 'none'", *allowed, *rest])


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(error)


async def _defect(request: Request, error: Exception) -> Response:
    """The log has its traceback."""
    return as_json({"error": DEFECT}, HTTPStatus.INTERNAL_SERVER_ERROR)


async def _no_such_route(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    sentence = f"there is no {request.method} {request.url.path}; docs/serving.md has the routes"
    return as_json({"error": sentence}, error.status_code, dict(error.headers or {}))
