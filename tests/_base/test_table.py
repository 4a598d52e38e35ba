"""One table, three renderings: aligned text, escaped HTML, valid JSON."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytest._base.table import Row, Table, escape, page, paragraph, to_json
from policytest._base.text import nats, number, plain, plural, probability

HOSTILE = """<script>alert("1")</script> & 'quotes' \x1b[2J\nnext"""
VOID = {"meta", "br", "hr", "link"}
RESOURCES = {"src", "href", "action", "srcset"}


class Reader(HTMLParser):
    """Tags, their attributes, and the text; notices tags that are not closed."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open, f"not closed: {reader.open}"
    return reader


def example():
    return Table(
        "above: the value exceeds 0",
        (
            Row("samples", "45,096", key="samples", raw=45096),
            Row("value estimate", "0.209", "in the empirical kernel", key="estimate", raw=0.209),
            Row("answer", "above"),
        ),
        ("Not certified.",),
    )


def test_text_is_aligned_and_has_no_trailing_spaces():
    assert example().text() == (
        "above: the value exceeds 0\n"
        "  samples         45,096\n"
        "  value estimate  0.209   in the empirical kernel\n"
        "  answer          above\n"
        "Not certified."
    )


def test_an_empty_table_is_its_title():
    assert Table("nothing", ()).text() == "nothing"
    assert read(Table("nothing", ()).html()).words[0] == "nothing"


def test_html_has_one_header_for_each_row_and_a_caption():
    reader = read(example().html())
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("table") == tags.count("caption") == 1
    assert [attrs.get("scope") for tag, attrs in reader.tags if tag == "th"] == ["row"] * 3
    shown = {word for row in example().rows for word in (row.label, row.shown, row.remark) if word}
    assert shown | {example().title, "Not certified."} <= set(reader.words)


@pytest.mark.parametrize("place", ["title", "label", "shown", "remark", "notes", "heading"])
def test_hostile_names_stay_text(place):
    row = {"label": "label", "shown": "shown", "remark": "remark"}
    row |= {place: HOSTILE} if place in row else {}
    table = Table(HOSTILE if place == "title" else "title", (Row(**row),), (HOSTILE,) if place == "notes" else ())
    html = page(HOSTILE if place == "heading" else "heading", table.html())
    reader = read(html)
    assert "script" not in {tag for tag, _ in reader.tags}
    assert plain(HOSTILE) in reader.words
    text = table.text()
    assert "\x1b" not in html + text
    assert len(text.splitlines()) == 2 + (place == "notes")


def test_a_page_is_complete_and_needs_nothing_from_elsewhere():
    html = page("A title & more", example().html(), paragraph("a < b"))
    reader = read(html.removeprefix("<!DOCTYPE html>"))
    assert html.startswith("<!DOCTYPE html>\n")
    tags = dict(reader.tags)
    assert tags["html"] == {"lang": "en"}
    metas = [attrs for tag, attrs in reader.tags if tag == "meta"]
    assert {"charset": "utf-8"} in metas
    assert any(attrs.get("name") == "viewport" for attrs in metas)
    assert not [attrs for _, attrs in reader.tags if RESOURCES & set(attrs)]
    assert "url(" not in html
    assert "@import" not in html
    assert reader.words.count("A title & more") == 2  # title and heading
    assert "a < b" in reader.words


def test_data_has_the_rows_with_a_key():
    assert example().data() == {"samples": 45096, "estimate": 0.209}


def test_json_is_valid_whatever_the_numbers():
    data = {
        "nan": math.nan,
        "inf": np.float64(np.inf),
        "array": np.array([[1.5, -np.inf], [0.0, 2.0]]),
        "whole": np.int64(3),
        "yes": np.True_,
        "nested": {"list": [math.inf, None, "text", True], "tuple": (1, np.float32(0.5))},
        "big": 10**30,
    }
    read_back = json.loads(to_json(data), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert read_back == {
        "nan": None,
        "inf": "inf",
        "array": [[1.5, "-inf"], [0.0, 2.0]],
        "whole": 3,
        "yes": True,
        "nested": {"list": ["inf", None, "text", True], "tuple": [1, 0.5]},
        "big": 10**30,
    }
    assert float(read_back["array"][0][1]) == -math.inf


@pytest.mark.parametrize("data", [{"x": object()}, {"x": {1: 2}}, {"x": 1j}, {"x": np.array([1j])}])
def test_json_refuses_what_it_cannot_say(data):
    with pytest.raises(TypeError):
        to_json(data)


@given(st.floats())
def test_json_keeps_every_float(x):
    written = json.loads(to_json({"x": x}))["x"]
    assert written is None if math.isnan(x) else float(written) == x


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        (45096, "45,096"),
        (np.int64(1_000_000), "1,000,000"),
        (-1234, "-1,234"),
        (45096.0, "45,096"),
        (0.123456789, "0.123457"),
        (1.5e-9, "1.5e-09"),
        (-0.0, "0"),
        (math.inf, "infinite"),
        (-math.inf, "-infinite"),
        (math.nan, "unknown"),
        (np.float64(2.5), "2.5"),
    ],
)
def test_numbers(x, shown):
    assert number(x) == shown


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        (0.05, "0.05"),
        (1e-15, "1e-15"),
        (0.0, "below 1e-300"),
        (1.0, "1"),
        (0.5, "0.5"),
        (1 - 1e-12, "1 - 1e-12"),
        (math.nan, "unknown"),
    ],
)
def test_probabilities(x, shown):
    assert probability(x) == shown


@given(st.floats(min_value=0.0, max_value=1.0, exclude_min=True, exclude_max=True))
def test_a_probability_is_never_rounded_to_a_certainty(x):
    assert probability(x) not in ("0", "1", "0.0", "1.0")


@pytest.mark.parametrize(
    ("x", "shown"),
    [(2.995732, "2.996 nats"), (1.0, "1 nat"), (-0.0, "0 nats"), (math.inf, "infinite"), (math.nan, "unknown")],
)
def test_nats(x, shown):
    assert nats(x) == shown


@pytest.mark.parametrize(("n", "shown"), [(0, "0 samples"), (1, "1 sample"), (45096, "45,096 samples")])
def test_plurals(n, shown):
    assert plural(n, "sample") == shown
    assert plural(2, "policy", "policies") == "2 policies"


@given(st.text())
def test_escaped_text_is_one_line_without_markup(text):
    escaped = escape(text)
    assert not set("<>\"'") & set(escaped)
    assert len(plain(text).splitlines()) <= 1
    assert all(c.isprintable() for c in plain(text))
