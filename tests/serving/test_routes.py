"""What a server answers, in each of the forms that clients know."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlencode

import pytest

import nmt
from nmt import Translator
from nmt.search.config import GreedyConfig
from nmt.serving.app import PAGE
from nmt.translation import Line
from tests.serving.servers import Server, running, until
from tests.tiny_models import some_lines, write_tiny_model

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def translator(model: Path) -> Translator:
    return Translator.load(model, "cpu")


def test_texts_are_translated_in_their_order(server: Server, translator: Translator) -> None:
    lines = [*some_lines(40), ""]
    assert server.translate(*lines) == translator.translate(lines)


def test_one_text_has_one_translation_and_the_model_is_named(server: Server) -> None:
    answer = server.post("/v1/translate", {"text": "zwei hunde", "target": "en"})
    assert answer.status == 200
    expected = {"model": "de-en", "source": "de", "target": "en", "translations": [{"text": "two dogs"}]}
    assert answer.json == expected


def test_the_direction_chooses_the_model(server: Server) -> None:
    answer = server.post("/v1/translate", {"text": "two dogs", "source": "en"})
    assert answer.json["model"] == "en-de"


def test_scores_and_alignments_are_those_of_the_translator(server: Server, translator: Translator) -> None:
    asked = {"text": "zwei hunde laufen", "model": "de-en", "nbest": 2, "beam": 3, "scores": True, "alignment": "hard"}
    (told,) = server.post("/v1/translate", asked).json["translations"]
    (found,) = translator.translations(["zwei hunde laufen"], nbest=2, beam=3, alignment=True)
    assert told["source_tokens"] == found.source_pieces
    for one, best in zip(told["hypotheses"], found.hypotheses, strict=True):
        assert (one["text"], one["score"], one["tokens"]) == (best.text, best.score, best.pieces)
        assert one["token_scores"] == best.token_scores
        assert [tuple(pair) for pair in one["alignment"]] == best.alignment


def test_attention_has_a_row_for_each_piece_and_the_end(server: Server) -> None:
    asked = {"text": "zwei hunde", "source": "de", "alignment": "soft"}
    (told,) = server.post("/v1/translate", asked).json["translations"]
    (best,) = told["hypotheses"]
    assert [len(row) for row in best["attention"]] == [3, 3, 3]
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in best["attention"])


def test_what_a_translation_must_contain_it_contains(server: Server, translator: Translator) -> None:
    asked = {"text": [{"text": "ein mann", "include": ["snow"]}, {"text": "rot", "exclude": ["red"]}, "rot"]}
    answer = server.post("/v1/translate", {**asked, "model": "de-en"}).json["translations"]
    lines = [Line("ein mann", include=("snow",)), Line("rot", exclude=("red",)), "rot"]
    assert [one["text"] for one in answer] == translator.translate(lines)
    assert "snow" in answer[0]["text"] and "red" not in answer[1]["text"]


def test_a_wish_that_cannot_be_met_spoils_no_other_request(server: Server) -> None:
    bad = server.post("/v1/translate", {"text": "rot", "model": "de-en", "prefix": "unheard"})
    assert bad.status == 422 and "no tokens for 'unheard'" in bad.json["error"]
    assert server.translate("rot") == ["red"]


REFUSED = [
    ("no JSON", b"{", 400, "not JSON"),
    ("not UTF-8", b'{"text":"\xff"}', 400, "not JSON"),
    ("nested", b"[" * 10_000, 400, "nested too deeply"),
    ("a number that is none", b'{"lenpen": NaN}', 400, "NaN is not a JSON number"),
    ("no object", b"[]", 400, "must be a JSON object"),
    ("no text", b"{}", 422, "give the source and the target language"),
    ("no such target", b'{"text":"rot","target":"fr"}', 404, "available: de to en, en to de"),
    ("no such model", b'{"text":"rot","model":"de-em"}', 404, "did you mean 'de-en'?"),
    ("a typo", b'{"text":"rot","modle":"de-en"}', 422, "did you mean 'model'?"),
    ("a wide beam", b'{"text":"rot","source":"de","beam":1000}', 422, "from 1 to 20"),
    ("more than the beam finds", b'{"text":"rot","source":"de","beam":2,"nbest":3}', 422, "nbest=3"),
    ("two lines as one", b'{"text":"rot\\nrot","source":"de"}', 422, "has a line break"),
    ("a lone surrogate", b'{"text":"\\ud800","source":"de"}', 422, "lone surrogate"),
    ("a name that is no text", b'{"text":"rot","model":"\\ud800"}', 404, "unknown model"),
    (
        "a number with too many digits",
        b'{"text":"rot","source":"de","lenpen":' + b"9" * 400 + b"}",
        422,
        "is not a number",
    ),
    (
        "what the search has not",
        b'{"text":"rot","source":"de","search":"greedy","beam":2}',
        422,
        'greedy has no option "beam"',
    ),
    ("many lines", b'{"text":[' + b",".join([b'""'] * 1001) + b'],"source":"de"}', 413, "1,001 lines"),
    ("a long line", b'{"text":"' + b"x" * 10_001 + b'","source":"de"}', 413, "more than 10,000 characters"),
    ("a large body", b" " * 20_001, 413, "has more than 20,000 bytes"),
]


@pytest.mark.parametrize(("body", "status", "sentence"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_wrong_is_told_in_a_sentence(server: Server, body: bytes, status: int, sentence: str) -> None:
    answer = server.ask("POST", "/v1/translate", body)
    assert (answer.status, sentence in answer.json["error"]) == (status, True), answer


@pytest.mark.slow
def test_a_request_may_choose_another_search_than_a_server_with_options(model: Path, translator: Translator) -> None:
    with running("--path", model, "--workers", "1", "--beam", "3", "--lenpen", "1") as started:
        assert started.translate("rot", search="greedy") == translator.translate(["rot"], search="greedy")
        assert started.translate("rot") == translator.translate(["rot"], beam=3, lenpen=1.0)


@pytest.mark.slow
def test_where_nobody_names_a_search_it_is_that_of_the_options(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "greedy", model="transformer", updates=150, search=GreedyConfig())
    with running("--path", path, "--workers", "1") as started:
        assert started.translate("rot", beam=2) == Translator.load(path, "cpu").translate(["rot"], beam=2)


@pytest.mark.slow
def test_a_defect_is_one_sentence_and_a_traceback_in_the_log(model: Path) -> None:
    spoil = "import nmt.serving.app as app\ndef fail(*words): raise RuntimeError('spoilt')\napp.fields_of = fail\n"
    with running("--path", model, "--workers", "1", before=spoil) as started:
        answer = started.post("/translate", {"q": "rot", "source": "de", "target": "en"})
        assert (answer.status, answer.json) == (500, {"error": "internal server error; see the server's log"})
        until(lambda: any("RuntimeError: spoilt" in line for line in started.log))


def test_a_name_of_another_host_is_refused(server: Server) -> None:
    answer = server.ask("GET", "/v1/models", headers={"Host": "evil.example"})
    assert answer.status == 421 and "'evil.example' is not accepted" in answer.json["error"]
    assert server.ask("GET", "/v1/models", headers={"Host": "localhost"}).status == 200


def test_a_form_from_a_page_of_another_site_is_refused_and_from_curl_it_is_not(server: Server) -> None:
    body = b'{"text": "rot", "source": "de"}'
    assert server.ask("POST", "/v1/translate", body, FORM).status == 200
    answer = server.ask("POST", "/v1/translate", body, FORM | {"Origin": "https://evil.example"})
    assert answer.status == 415 and "application/json" in answer.json["error"]


@pytest.mark.parametrize("whole", [True, False], ids=["headers that end", "headers without an end"])
def test_headers_that_are_too_large_are_refused(server: Server, whole: bool) -> None:
    with server.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000 + b"\r\n\r\n" * whole)
        assert client.recv(100).startswith(b"HTTP/1.1 431 ")


def test_a_slash_at_the_end_makes_no_difference(server: Server) -> None:
    assert server.post("/v1/translate/", {"text": "rot", "source": "de"}).status == 200
    assert server.ask("GET", "/health/").status == 200


def test_with_a_file_of_keys_each_translation_needs_one(model: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    asked, theirs = {"text": "rot"}, {"q": "rot", "source": "de", "target": "en"}
    with running("--path", model, "--workers", "1", "--api-keys", tmp_path / "keys") as started:

        def status(path: str, tree: object, **headers: str) -> int:
            return started.ask("POST", path, json.dumps(tree).encode(), headers).status

        assert [started.post("/v1/translate", asked).status, started.post("/translate", theirs).status] == [401, 401]
        assert status("/v1/translate/", asked, Authorization="Bearer wrong") == 403
        assert status("/v1/translate", asked, Authorization="Bearer secret") == 200
        assert status("/translator/translate", [{"src": "rot"}], **{"X-API-Key": "secret"}) == 200
        assert status("/translate", theirs, Authorization="Bearer secret") == 200
        assert status("/translate", theirs | {"api_key": "secret"}) == 200
        assert status("/detect", {"q": "rot", "api_key": "wrong"}) == 403
        form = urlencode(theirs | {"api_key": "secret"}).encode()
        assert started.ask("POST", "/translate", form, FORM).status == 200
        assert started.ask("GET", "/frontend/settings").json["keyRequired"] is True
        assert started.ask("GET", "/health").status == 200


def test_an_unknown_route_and_a_wrong_method_are_told(server: Server) -> None:
    assert server.ask("GET", "/v2/translate").status == 404
    answer = server.ask("GET", "/v1/translate")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_a_client_of_libretranslate_works(server: Server) -> None:
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(f"http://127.0.0.1:{server.port}")
    assert client.translate("zwei hunde\nrot", "de", "en") == "two dogs\nred"
    assert {one["code"] for one in client.languages()} == {"de", "en"}


def test_libretranslate_takes_json_and_lists_and_gives_alternatives(server: Server) -> None:
    asked = {"q": ["rot", "zwei hunde"], "source": "de", "target": "en", "alternatives": 2}
    answer = server.post("/translate", asked).json
    assert answer["translatedText"] == ["red", "two dogs"]
    assert [len(some) for some in answer["alternatives"]] == [2, 2]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"q": "rot", "source": "de", "target": "en"}, 200),
        ({"q": "rot", "source": "de"}, 400),
        ({"q": "rot", "source": "de", "target": "en", "format": "html"}, 400),
        ({"q": "rot", "source": "auto", "target": "en"}, 400),
        ({"q": "rot", "source": "de", "target": "fr"}, 404),
        ({"q": "rot", "source": "de", "target": "en", "alternatives": "1" * 5000}, 400),
    ],
)
def test_a_form_of_libretranslate_is_understood_or_answered_with_a_sentence(
    server: Server, fields: dict[str, str], status: int
) -> None:
    answer = server.ask("POST", "/translate", urlencode(fields).encode(), FORM)
    assert (answer.status, answer.json.keys()) == (status, {"translatedText"} if status == 200 else {"error"})


def test_a_language_is_not_guessed(server: Server) -> None:
    answer = server.post("/detect", {"q": "rot"})
    assert answer.status == 400 and "does not detect languages" in answer.json["error"]


def test_parts_of_a_form_are_refused(server: Server) -> None:
    answer = server.ask("POST", "/translate", b"--x", {"Content-Type": "multipart/form-data; boundary=x"})
    assert answer.status == 415


def test_a_client_of_opus_mt_works(server: Server) -> None:
    answer = server.post("/api/translate", {"from": "de", "to": "en", "source": "zwei hunde"})
    assert answer.json == {"translation": "two dogs"}
    assert server.ask("GET", "/api/languages").json == {"languages": {"de": ["en"], "en": ["de"]}}
    assert server.ask("GET", "/api/ready").status == 200


def test_a_client_of_opennmt_works(server: Server) -> None:
    (answers,) = server.post("/translator/translate", [{"src": "rot", "id": 0}, {"src": "ein mann", "id": 0}]).json
    assert [one["tgt"] for one in answers] == ["red", "a man"]
    assert all(one["pred_score"] < 0 for one in answers)


def test_health_says_that_it_is_ready(server: Server) -> None:
    answer = server.ask("GET", "/health")
    assert (answer.status, answer.json["status"], answer.json["version"]) == (200, "ready", nmt.__version__)
    assert answer.json["workers"] == 2
    assert {"busy_workers", "waiting_lines", "oldest_request_seconds"} <= answer.json.keys()


def test_metrics_count_lines_and_requests(server: Server) -> None:
    before = server.metric('nmt_lines_total{model="de-en"}') if server.translate("rot") else 0
    server.translate("rot", "ein mann")
    assert server.metric('nmt_lines_total{model="de-en"}') == before + 2
    assert server.metric('nmt_requests_total{route="/v1/translate",status="200"}') >= 2
    assert server.metric("nmt_workers") == 2
    assert server.metric("nmt_oldest_request_seconds") == 0


def test_every_line_of_the_metrics_has_the_form_of_prometheus(server: Server) -> None:
    for line in server.ask("GET", "/metrics").body.decode().splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) nmt_\w+ .+|nmt_\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [\d.e+-]+', line), line


def test_models_are_told_with_the_limits(server: Server) -> None:
    tree = server.ask("GET", "/v1/models").json
    assert [(one["name"], one["source"], one["target"]) for one in tree["models"]] == [
        ("de-en", "de", "en"),
        ("en-de", "en", "de"),
    ]
    assert tree["limits"]["max_body_bytes"] == 20_000


def test_the_page_names_no_other_place_and_may_run_its_own_script_alone(server: Server) -> None:
    answer = server.ask("GET", "/")
    text = answer.body.decode()
    assert answer.status == 200 and text == PAGE.read_text(encoding="utf-8")
    assert re.search(r"https?:|src=|@import|url\(", text) is None
    policy = answer.headers["content-security-policy"]
    for kind in ("script", "style"):
        (inside,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_the_page_says_in_words_that_the_server_does_not_answer() -> None:
    """The only ``fetch`` is followed by a branch whose sentence is shown as an error."""
    (script,) = re.findall(r"<script>(.*?)</script>", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (after,) = re.findall(r"\bawait fetch\(.*", script, flags=re.DOTALL)
    caught = re.search(r"\} catch \(error\) \{(.*?)\n  \}", after, flags=re.DOTALL)
    assert caught and re.search(r'throw new Error\("The server does not respond\.[^"]+"\)', caught[1])
    shown = re.findall(r"\bsay\(error\.message, true\)", script)
    assert len(shown) == 2  # of a translation, and of the list of models


def test_long_words_wrap_on_the_page() -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for selector in ("body", "#target", ".word", "#looked li"):
        rules = re.findall(rf"^{re.escape(selector)} \{{(.*?)\}}", style, flags=re.DOTALL | re.MULTILINE)
        assert any("overflow-wrap: anywhere" in rule for rule in rules), selector


def test_the_script_of_the_page_runs_in_a_browser(server: Server, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no chromium on this machine")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += (
        f" --disable-component-update --disable-sync --user-data-dir={tmp_path} --virtual-time-budget=4000 --dump-dom"
    )
    line = [browser, *flags.split(), f"http://127.0.0.1:{server.port}/"]
    shown = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "German to English (de-en)</option>" in shown
