"""Decide which requests are accepted: by Host, size of the headers, Content-Type and API key."""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from nmt.data.text.lines import Reading
from nmt.errors import DataError
from nmt.serving.config import ServeConfig
from nmt.serving.refusals import Refused

MOST_HEADER_BYTES = 2**15
ANY_HOST = "*"
_HOSTS = 64  # cached host names: clients send few, and parsing them took 5 % of the server's time
_SIMPLE_TYPES = ("", "application/x-www-form-urlencoded", "text/plain")  # with JSON: curl -d, fetch of Node.js


@dataclass(frozen=True)
class ApiKeys:
    """API keys from a file with one key per line, kept as digests."""

    digests: Sequence[bytes]

    @classmethod
    def read(cls, path: Path) -> ApiKeys:
        """Read a file with one key per line. Empty lines and lines that begin with # are skipped."""
        lines = ((line or "").strip() for line in Reading().lines(path))
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise DataError(f"{path} has no API key; write one key per line (--api-keys)")
        return cls([_digest(key) for key in keys])

    def require(self, key: object) -> None:
        """Raise ``Refused`` if the key is missing or not in the file."""
        if not isinstance(key, str) or not key:
            sentence = "an API key is required; send the header 'Authorization: Bearer KEY'"
            raise Refused(HTTPStatus.UNAUTHORIZED, sentence)
        if not any(hmac.compare_digest(_digest(key), digest) for digest in self.digests):
            raise Refused(HTTPStatus.FORBIDDEN, "the API key is invalid")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


def key_of(headers: Headers) -> str | None:
    """Return the API key in the headers of a request."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else headers.get("x-api-key")


def check_headers(headers: Headers, config: ServeConfig) -> None:
    """Raise ``Refused`` if the headers are too large, or name another host.

    A web page whose host name was pointed at this machine (DNS rebinding) sends that name as Host.
    """
    if sum(len(name) + len(value) for name, value in headers.raw) > MOST_HEADER_BYTES:
        sentence = f"the request headers have more than {MOST_HEADER_BYTES:,} bytes; send fewer"
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence, closes=True)
    host = headers.get("host")
    if host is not None and not _is_ours(_name_of(host), config):
        sentence = f"Host {host!r} is not accepted; add it to --allowed-hosts"
        raise Refused(HTTPStatus.MISDIRECTED_REQUEST, sentence)


def _is_ours(name: str, config: ServeConfig) -> bool:
    allowed = [host.lower() for host in config.allowed_hosts]
    if ANY_HOST in allowed or (not allowed and not _is_loopback(config.host)):
        return True
    return name in allowed or name == config.host.lower() or _is_loopback(name)


@functools.lru_cache(_HOSTS)
def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


@functools.lru_cache(_HOSTS)
def _name_of(host: str) -> str:
    """Return a Host header without its port, in lower case."""
    try:
        return (urlsplit(f"//{host.strip()}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def check_content_type(headers: Headers) -> None:
    """Raise ``Refused`` if the body is neither JSON nor a form.

    A browser sends forms and plain text to other sites without a preflight request, so pages of another origin may only send
    JSON.
    """
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media in ("application/json", "text/json") or media.endswith("+json"):
        return
    origin, host = headers.get("origin"), headers.get("host", "")
    if media in _SIMPLE_TYPES and (origin is None or urlsplit(origin).netloc.lower() == host.lower()):
        return
    where = "" if media not in _SIMPLE_TYPES else f" from the origin {origin!r}"
    sentence = f"Content-Type {media!r}{where} is not accepted; send JSON as application/json"
    raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence)
