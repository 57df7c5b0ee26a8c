"""Which requests are let in."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.datastructures import Headers

from nmt.errors import DataError, MissingInputError
from nmt.serving.admission import MOST_HEADER_BYTES, ApiKeys, check_content_type, check_headers, key_of
from nmt.serving.config import ServeConfig
from nmt.serving.refusals import Refused

LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"


@pytest.mark.parametrize(
    ("listens", "allowed", "host", "let_in"),
    [
        (LOOPBACK, [], "localhost:8000", True),
        (LOOPBACK, [], "LOCALHOST", True),
        (LOOPBACK, [], "127.0.0.1:8000", True),
        (LOOPBACK, [], "127.1.2.3", True),
        (LOOPBACK, [], "[::1]:8000", True),
        (LOOPBACK, [], "nmt.localhost", True),
        (LOOPBACK, [], None, True),
        (LOOPBACK, [], "evil.example", False),
        (LOOPBACK, [], "localhost.evil.example", False),
        (LOOPBACK, [], "localhost@evil.example", False),
        (LOOPBACK, [], "[", False),
        (LOOPBACK, [], "", False),
        (LOOPBACK, ["mt.example"], "MT.example:443", True),
        (LOOPBACK, ["mt.example"], "evil.example", False),
        (LOOPBACK, ["mt.example"], "localhost", True),
        (LOOPBACK, ["*"], "evil.example", True),
        (EVERYWHERE, [], "any.example", True),
        ("::", [], "any.example", True),
        (EVERYWHERE, ["mt.example"], "any.example", False),
        ("192.0.2.7", ["mt.example"], "192.0.2.7:8000", True),
    ],
)
def test_the_host_header_must_be_a_name_of_the_server(
    listens: str, allowed: list[str], host: str | None, let_in: bool
) -> None:
    headers = Headers({} if host is None else {"host": host})
    config = ServeConfig(host=listens, allowed_hosts=allowed)
    if let_in:
        check_headers(headers, config)
        return
    with pytest.raises(Refused, match="--allowed-hosts") as refused:
        check_headers(headers, config)
    assert refused.value.status == 421


def test_headers_have_a_limit() -> None:
    check_headers(Headers({"x": "a" * (MOST_HEADER_BYTES - 1)}), ServeConfig())
    with pytest.raises(Refused, match="32,768 bytes") as refused:
        check_headers(Headers({"x": "a" * MOST_HEADER_BYTES}), ServeConfig())
    assert (refused.value.status, refused.value.closes) == (431, True)


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("headers", "let_in"),
    [
        ({"content-type": "application/json; charset=utf-8"}, True),
        ({"content-type": "application/problem+json", "origin": "https://evil.example"}, True),
        ({}, True),
        ({"content-type": FORM}, True),
        ({"content-type": "text/plain;charset=UTF-8"}, True),
        ({"content-type": FORM, "origin": "http://localhost:8000", "host": "localhost:8000"}, True),
        ({"content-type": FORM, "origin": "https://evil.example", "host": "localhost:8000"}, False),
        ({"content-type": FORM, "origin": "null", "host": "localhost:8000"}, False),
        ({"content-type": "text/plain", "origin": "http://localhost:9000", "host": "localhost:8000"}, False),
        ({"origin": "https://evil.example", "host": "localhost:8000"}, False),
        ({"content-type": "application/xml"}, False),
        ({"content-type": "multipart/form-data; boundary=x"}, False),
    ],
)
def test_bodies_are_json_or_a_form_and_of_other_sites_json_alone(headers: dict[str, str], let_in: bool) -> None:
    """A browser asks a server before it sends JSON from another site, and not before it sends a form."""
    if let_in:
        check_content_type(Headers(headers))
        return
    with pytest.raises(Refused, match="application/json") as refused:
        check_content_type(Headers(headers))
    assert refused.value.status == 415


def test_keys_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# of the team\n\n first \nzweiter-schlüssel\n")
    keys = ApiKeys.read(path)
    keys.require("first")
    keys.require("zweiter-schlüssel")
    for key, status in ((None, 401), ("", 401), (7, 401), ("third", 403), ("# of the team", 403)):
        with pytest.raises(Refused) as refused:
            keys.require(key)
        assert refused.value.status == status
        assert ("WWW-Authenticate" in refused.value.headers) == (status == 401)


def test_a_file_without_a_key_and_one_that_is_missing_are_told(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none yet\n")
    with pytest.raises(DataError, match="has no API key"):
        ApiKeys.read(tmp_path / "keys")
    with pytest.raises(MissingInputError):
        ApiKeys.read(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({"authorization": "Bearer abc"}, "abc"),
        ({"authorization": "bearer  abc"}, "abc"),
        ({"x-api-key": "abc"}, "abc"),
        ({"authorization": "Basic abc"}, None),
        ({}, None),
    ],
)
def test_a_key_stands_in_the_headers(headers: dict[str, str], key: str | None) -> None:
    assert key_of(Headers(headers)) == key
