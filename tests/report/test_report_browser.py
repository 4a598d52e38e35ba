"""The report in a real browser: nothing is fetched, nothing complains, nothing runs off the page."""

from __future__ import annotations

import struct

import pytest

from browser import Browser, find
from policytest import instances, report
from policytest.data.simulators import TabularSimulator
from policytest.mdp.task import Task
from policytest.plots import Trace
from policytest.questions.decide import decide

pytestmark = pytest.mark.skipif(find() is None, reason="no browser is installed (Debian: apt-get install chromium)")
LONG = "a-very-long-name-without-any-place-to-break-" * 4


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One ordinary report, and one with everything that is too long."""
    folder, two = tmp_path_factory.mktemp("pages"), instances.paper(2)
    sim, trace = TabularSimulator(two.kernel), Trace()
    verdict = decide(two.task, sim, threshold=0.0, method=trace.watch())
    plain = report.write(verdict, folder / "plain.html", trace=trace, provenance={"seed": 0})
    task = Task(
        two.task.rewards, two.task.policy, two.task.initial, 0.9, states=(LONG, LONG + "2"), actions=("a", LONG)
    )
    long = report.write(
        decide(task, sim, threshold=0.0), folder / "long.html", title=LONG, warnings=[LONG], background=LONG,
        provenance={"files": [LONG], LONG: 1, "command": f"policytest decide {LONG}"},
    )  # fmt: skip
    return {"plain": plain, "long": long}


@pytest.mark.parametrize("name", ["plain", "long"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_nothing_is_fetched_and_nothing_runs_off_the_page(browser, pages, tmp_path, name, width, height):
    browser.open(pages[name], width, height)
    asked = [event["request"]["url"] for event in browser.of_kind("Network.requestWillBeSent")]
    assert asked == [pages[name].resolve().as_uri()]
    assert browser.of_kind("Log.entryAdded") == []
    assert browser.of_kind("Runtime.consoleAPICalled") == []
    assert browser.of_kind("Runtime.exceptionThrown") == []
    root = "document.documentElement"
    assert browser.ask(f"{root}.clientWidth") == width
    assert browser.ask(f"{root}.scrollWidth") <= width
    assert browser.ask("document.querySelector('h1').getBoundingClientRect().top") < height / 2
    drawings = browser.ask(
        "JSON.stringify([...document.querySelectorAll('svg')].map(s => [s.clientWidth, s.clientHeight]))"
    )
    assert drawings != "[]"
    assert "[0," not in drawings
    assert ",0]" not in drawings
    picture = tmp_path / "page.png"
    browser.picture(picture)
    seen, tall = struct.unpack(">II", picture.read_bytes()[16:24])
    assert seen == width
    assert tall > height


def test_letters_on_a_telephone_can_be_read(browser, pages):
    browser.open(pages["plain"], 390, 844)
    smallest = browser.ask(
        "Math.min(...[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height))"
    )
    assert smallest > 7.0
    assert browser.ask("parseFloat(getComputedStyle(document.body).fontSize)") >= 16


def test_the_screen_reader_gets_names(browser, pages):
    browser.open(pages["plain"], 1280, 900)
    tree = browser("Accessibility.getFullAXTree")["nodes"]
    named = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node.get("ignored", False)
    }
    roles = {role for role, _ in named}
    assert {"main", "heading", "table", "figure"} & roles >= {"main", "heading", "table"}
    pictures = [name for role, name in named if role in ("image", "img", "graphics-document")]
    assert "Where the value lies" in pictures
    assert all(pictures)
    assert ("heading", "Yes. Its value is above 0.") in named


def test_dark_and_printed(browser, pages, tmp_path):
    behind = "getComputedStyle(document.body).backgroundColor"
    browser.open(pages["plain"], 1280, 900)
    light = browser.ask(behind)
    browser.open(pages["plain"], 1280, 900, dark=True)
    assert browser.ask(behind) != light
    browser.printed(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_the_check_notices(browser, pages, tmp_path):
    """Negative control: a page that fetches, complains and is too wide."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        pages["plain"].read_text(encoding="utf-8")
        .replace("default-src 'none'; ", "")
        .replace("</main>", '<div style="width: 3000px">x</div><img src="missing.png"></main>'),
        encoding="utf-8",
    )  # fmt: skip
    browser.open(bad, 390, 844)
    assert len(browser.of_kind("Network.requestWillBeSent")) > 1
    assert browser.of_kind("Log.entryAdded")
    assert browser.ask("document.documentElement.scrollWidth") > 390
