"""The routes of a server, as an ASGI application."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import nmt
from nmt.data.text.languages import short_code
from nmt.errors import quantity
from nmt.serving import answering
from nmt.serving.admission import ApiKeys, check_content_type, check_headers, key_of
from nmt.serving.body import ClientGone, Turns, read_body
from nmt.serving.config import ServeConfig
from nmt.serving.dispatching import Dispatcher
from nmt.serving.metrics import Metrics
from nmt.serving.models import Models
from nmt.serving.refusals import Refused, busy
from nmt.serving.rendering import Rendered, json_bytes
from nmt.serving.request_forms import RequestParser, TranslationRequest, fields_of

T = TypeVar("T")
DEFECT = "internal server error; see the server's log"
logger = logging.getLogger("nmt.serving")

PAGE = Path(__file__).with_name("page.html")
KEY_IN_BODY = ("/translate", "/detect")  # routes of LibreTranslate
NO_LONGER_THERE = 499  # status in the log and the metrics if the client has disconnected

# Names of languages for clients; other languages are shown by their codes.
_LANGUAGES = dict(
    pair.split("=")
    for pair in (
        "ar=Arabic bg=Bulgarian bn=Bengali ca=Catalan cs=Czech da=Danish de=German el=Greek en=English eo=Esperanto "
        "es=Spanish et=Estonian eu=Basque fa=Persian fi=Finnish fr=French ga=Irish gl=Galician he=Hebrew hi=Hindi "
        "hr=Croatian hu=Hungarian id=Indonesian is=Icelandic it=Italian ja=Japanese ko=Korean lt=Lithuanian lv=Latvian "
        "mk=Macedonian ms=Malay nb=Norwegian nl=Dutch no=Norwegian pl=Polish pt=Portuguese ro=Romanian ru=Russian sk=Slovak "
        "sl=Slovenian sq=Albanian sr=Serbian sv=Swedish sw=Swahili th=Thai tl=Tagalog tr=Turkish uk=Ukrainian ur=Urdu "
        "vi=Vietnamese zh=Chinese"
    ).split()
)


def language_names(targets: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the name of each language, with its code if several have the same name, such as Chinese in two scripts.

    ``targets``: the target languages of each source language."""
    codes = dict.fromkeys([*targets, *itertools.chain(*targets.values())])
    names = {code: _LANGUAGES.get(short_code(code), code) for code in codes}
    counts = Counter(names.values())
    return {code: name if counts[name] == 1 else f"{name} ({code})" for code, name in names.items()}


def as_json(tree: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json_bytes(tree), status, headers, media_type="application/json")


@dataclass
class Service:
    """The routes of a server and their state. ``stopping``: the health route tells load balancers to send no more."""

    config: ServeConfig
    models: Models
    dispatcher: Dispatcher
    metrics: Metrics
    keys: ApiKeys | None = None  # None: no request needs one
    stopping: bool = False
    active: int = 0  # requests that are being read or translated

    def __post_init__(self) -> None:
        self._parser = RequestParser(self.models, self.config)
        self._turns = Turns()
        self._routes: dict[str, tuple[str, Callable[[Request], Awaitable[Response]]]] = {
            "/v1/translate": ("POST", self.translate),
            "/v1/models": ("GET", self.list_models),
            "/translate": ("POST", self.libretranslate),
            "/detect": ("POST", self.detect),
            "/languages": ("GET", self.languages),
            "/frontend/settings": ("GET", self.settings),
            "/api/translate": ("POST", self.opus),
            "/api/languages": ("GET", self.opus_languages),
            "/api/ready": ("GET", self.health),
            "/translator/translate": ("POST", self.opennmt),
            "/health": ("GET", self.health),
            "/metrics": ("GET", self.show_metrics),
        }
        if self.config.web_page:
            self._routes["/"] = ("GET", self.page)

    @property
    def load(self) -> str:
        """Return the active requests in words."""
        return f"{quantity(self.active, 'request')} in progress"

    def _check(self, scope: Scope) -> None:
        """Raise ``Refused`` if the request is not accepted."""
        headers = Headers(scope=scope)
        check_headers(headers, self.config)
        if scope["method"] == "POST":
            check_content_type(headers)
            if self.keys is not None and scope["path"] not in KEY_IN_BODY:
                self.keys.require(key_of(headers))

    def _allowed_fields(self, request: Request, body: bytes) -> dict[str, Any]:
        """Return the fields of a client of LibreTranslate, whose key is in the headers or in one of them."""
        fields = fields_of(body, request.headers.get("content-type", ""))
        if self.keys is not None:
            self.keys.require(key_of(request.headers) or fields.get("api_key"))
        return fields

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI), count it and log it."""
        scope["path"] = scope["path"].rstrip("/") or "/"  # a slash at the end makes no difference
        begin = time.perf_counter()
        try:
            response = await self._response(scope, receive)
            status = response.status_code
            await response(scope, receive, send)
        except ClientGone:
            status = NO_LONGER_THERE
        seconds = time.perf_counter() - begin
        route = scope["path"] if scope["path"] in self._routes else "other"
        self.metrics.requests[route, status] += 1
        self.metrics.seconds.add(seconds)
        if self.config.access_log:
            client = (scope.get("client") or ("-",))[0]
            logger.info("%s %s %s %d %.0f ms", client, scope["method"], route, status, seconds * 1000)

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        """The answer of the route, or the refusal. A defect is logged, and the client gets one sentence."""
        method, path = scope["method"], scope["path"]
        try:
            self._check(scope)
            allowed, answer = self._routes.get(path, ("", None))
            if answer is None or method not in (allowed, allowed.replace("GET", "HEAD")):
                sentence = f"unknown route {method} {path}; routes: {nmt.DOCUMENTATION}/reference/http/"
                if answer is None:
                    return as_json({"error": sentence}, HTTPStatus.NOT_FOUND)
                return as_json({"error": sentence}, HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": allowed})
            return await answer(Request(scope, receive))
        except Refused as error:
            return as_json({"error": error.sentence}, error.status, error.headers)
        except ClientGone:
            raise
        except Exception:
            logger.exception("%s %s failed", method, path)
            return as_json({"error": DEFECT}, HTTPStatus.INTERNAL_SERVER_ERROR)

    @contextlib.asynccontextmanager
    async def _parsed(
        self, request: Request, read: Callable[[bytes], T]
    ) -> AsyncIterator[tuple[T, asyncio.Future[object]]]:
        """Count an active request. Yield its body, parsed by ``read``, and a future that is done when the client
        disconnects."""
        if self.active >= self.config.max_requests:
            raise busy(f"{self.load}; try again in a moment")
        self.active += 1
        try:
            body = await read_body(request, self.config)
            # The next message of a client is its end.
            disconnection: asyncio.Future[object] = asyncio.ensure_future(request.receive())
            try:
                yield await self._turns.parse(body, read, disconnection), disconnection
            except asyncio.CancelledError:
                if disconnection.done() and not disconnection.cancelled():
                    raise ClientGone from None
                raise
            finally:
                disconnection.cancel()
        finally:
            self.active -= 1

    async def _translated(
        self, request: Request, read: Callable[[bytes], TranslationRequest]
    ) -> tuple[TranslationRequest, list[Rendered]]:
        """Return the request, parsed by ``read``, and its translations."""
        async with self._parsed(request, read) as (parsed, disconnection):
            return parsed, await self.dispatcher.translate(parsed, disconnection)

    async def translate(self, request: Request) -> Response:
        parsed, translations = await self._translated(request, self._parser.own)
        return Response(answering.own(parsed, translations), media_type="application/json")

    async def libretranslate(self, request: Request) -> Response:
        detected: list[str] = []

        def read(body: bytes) -> TranslationRequest:
            parsed, auto = self._parser.libretranslate(self._allowed_fields(request, body))
            detected.extend([parsed.model.source] if auto and parsed.model.reads_source else [])
            return parsed

        parsed, translations = await self._translated(request, read)
        return as_json(answering.libretranslate(parsed, translations, detected=detected[0] if detected else None))

    async def opus(self, request: Request) -> Response:
        return as_json(answering.opus(*await self._translated(request, self._parser.opus)))

    async def opennmt(self, request: Request) -> Response:
        return as_json(answering.opennmt(*await self._translated(request, self._parser.opennmt)))

    async def detect(self, request: Request) -> Response:
        def read(body: bytes) -> str:
            return self._parser.detected(self._allowed_fields(request, body))

        async with self._parsed(request, read) as (language, _):
            return as_json([{"language": language, "confidence": 100.0}])

    async def languages(self, request: Request) -> Response:
        targets = self.models.languages()
        return as_json(
            [
                {"code": code, "name": name, "targets": targets.get(code, [])}
                for code, name in language_names(targets).items()
            ]
        )

    async def settings(self, request: Request) -> Response:
        """Settings that the web page of LibreTranslate reads first."""
        first, names = self.models.all[0], language_names(self.models.languages())
        languages = {
            side: {"code": code, "name": names.get(code, code)}
            for side, code in (
                ("source", first.source or first.sources[0]),
                ("target", first.target or first.targets[-1]),
            )
        }
        tree = {
            "apiKeys": self.keys is not None,
            "charLimit": self.config.max_line_chars,
            "keyRequired": self.keys is not None,
            "language": languages,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "frontendTimeout": 500,
        }
        return as_json(tree)

    async def opus_languages(self, request: Request) -> Response:
        return as_json({"languages": self.models.languages()})

    async def list_models(self, request: Request) -> Response:
        names = language_names(self.models.languages())
        limits = ("max_beam", "max_body_bytes", "max_line_chars", "max_line_tokens", "max_lines")
        models = [
            {"name": model.name, "source": model.source, "target": model.target, "search": model.search}
            | {"source_name": names.get(model.source, model.source)}
            | {"target_name": names.get(model.target, model.target)}
            | ({"sources": model.sources, "targets": model.targets} if model.languages else {})
            for model in self.models.all
        ]
        return as_json({"models": models, "limits": {name: getattr(self.config, name) for name in limits}})

    async def health(self, request: Request) -> Response:
        dispatcher = self.dispatcher
        ready = not self.stopping and dispatcher.workers > 0
        status = "ready" if ready else "stopping" if self.stopping else "starting"
        tree = {
            "status": status,
            "version": nmt.__version__,
            "waiting_lines": dispatcher.waiting_lines,
            "workers": dispatcher.workers,
            "busy_workers": dispatcher.busy_workers,
            "oldest_request_seconds": round(dispatcher.oldest_request_seconds, 3),
        }
        return as_json(tree, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def show_metrics(self, request: Request) -> Response:
        dispatcher = self.dispatcher
        text = self.metrics.text(
            waiting_lines=dispatcher.waiting_lines,
            active_requests=self.active,
            workers=dispatcher.workers,
            busy_workers=dispatcher.busy_workers,
            oldest_request_seconds=dispatcher.oldest_request_seconds,
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
    """Return a Content-Security-Policy: the page may use its own script and style, and send requests to this server."""
    allowed = [
        f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for kind, tag in (("script", "script"), ("style", "style"))
        for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
    ]
    rest = ["connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return "; ".join(["default-src 'none'", *allowed, *rest])
