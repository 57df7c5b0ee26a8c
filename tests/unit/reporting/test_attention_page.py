"""The page of attention: what it holds is what was measured, and it asks nobody for anything."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from nmt.reporting.attention_page import attention_page
from nmt.reporting.sentence_attention import SentenceAttention


def sentence(pieces: int, layers: int = 2, heads: int = 3, number: int = 0, word: str = "w") -> SentenceAttention:
    chance = np.random.default_rng(pieces)
    words = [*(f"{word}{place}" for place in range(pieces - 1)), "</s>"]
    maps = {
        kind: chance.dirichlet(np.ones(pieces), (layers, heads, pieces)).astype(np.float32)
        for kind in ("encoder", "decoder", "cross")
    }
    return SentenceAttention(number, words, words, ["<s>", *words[:-1]], maps, {"runs/a": maps})


def data_of(page: str) -> list[dict[str, object]]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(text)


def unpacked(facts: dict[str, object]) -> np.ndarray:
    shape = (facts["layers"], facts["heads"], len(facts["rows"]), len(facts["columns"]))
    return np.frombuffer(base64.b64decode(facts["weights"]), dtype=np.uint8).reshape(shape) / 255


def test_the_page_has_every_weight_to_a_255th():
    one = sentence(5)
    (shown,) = data_of(attention_page([one], "runs/x"))
    assert set(shown["kinds"]) == {"encoder", "decoder", "cross"}
    for kind, facts in shown["kinds"].items():
        np.testing.assert_allclose(unpacked(facts), one.weights[kind], atol=0.5001 / 255)
        assert facts["rows"] == list(one.rows(kind)) and facts["columns"] == list(one.columns(kind))


def test_sixty_pieces_in_six_layers_of_eight_heads_take_seven_hundred_kilobytes():
    assert len(attention_page([sentence(61, 6, 8)], "runs/x").encode()) < 750_000


def test_the_menu_has_the_texts_and_the_columns_have_the_pieces():
    one = replace(sentence(3, word="\u2581w"), source_text="w0 w1", target_text="W0 W1")
    (shown,) = data_of(attention_page([one], "runs/x"))
    assert (shown["source"], shown["target"]) == ("w0 w1", "W0 W1")
    assert shown["kinds"]["cross"]["rows"] == ["\u2581w0", "\u2581w1", "</s>"]


def test_the_drawing_takes_the_width_that_words_leave():
    page = attention_page([sentence(3)], "runs/x")
    (columns,) = re.findall(r"^\.columns {.*grid-template-columns: (.*?) }", page, flags=re.MULTILINE)
    assert columns == "minmax(0, auto) minmax(4rem, 1fr) minmax(0, auto)"


def test_an_empty_line_is_left_out_and_lines_keep_their_numbers():
    shown = data_of(attention_page([SentenceAttention(0, (), (), (), {}), sentence(3, number=1)], "runs/x"))
    assert [one["line"] for one in shown] == [2]


def test_a_member_of_an_ensemble_is_shown_alone():
    one = sentence(4)
    page = attention_page(
        [SentenceAttention(0, one.source, one.target, one.read, {}, one.members)], "a:b", "", "runs/a"
    )
    assert set(data_of(page)[0]["kinds"]) == {"encoder", "decoder", "cross"}


@pytest.mark.parametrize(
    "word", ["</script><script>alert(1)</script>", "<b>&'\"", "\u0645\u0631\u062d\u0628\u0627", "\u732b"]
)
def test_words_are_text_whatever_they_are(word):
    page = attention_page([sentence(3, word=word)], word)
    assert page.count("<script") == 2 and "<b>" not in page
    assert data_of(page)[0]["kinds"]["cross"]["rows"][0] == f"{word}0"


def test_the_page_may_not_and_does_not_ask_for_anything():
    page = attention_page([sentence(3)], "runs/x")
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|fetch\(|XMLHttpRequest|import\(|<link rel=\"stylesheet\"|src=\"", page)
