"""The report: one HTML file with nothing outside it, whose first line is the answer, and which claims no more."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import policytest
from builders import each
from paths import ROOT
from policytest import instances, report
from policytest._base.errors import InputError
from policytest._base.table import Row, Table
from policytest.cli import main
from policytest.cli.output import OUTPUT, _without_output, provenance
from policytest.data.counts import Counts
from policytest.data.simulators import TabularSimulator
from policytest.mdp.task import Task
from policytest.methods.ptst import PTST
from policytest.plots import Trace
from policytest.questions.compare import compare
from policytest.questions.decide import decide
from policytest.questions.evaluate import evaluate
from policytest.questions.identify import Selection, identify
from policytest.report.story import verdict_story
from policytest.results import sentences
from policytest.results.estimate import Estimate
from policytest.results.load import from_data
from policytest.results.plan import Plan
from policytest.study.table import Study
from policytest.worst_case import Status
from policytest.worst_case.lower_bound import Allocation
from policytest.worst_case.projection_free import ProjectionFree

TWO = instances.paper(2)
SIM = TabularSimulator(TWO.kernel)
NASTY = "<b>&\"'</title></script><script>alert(1)</script>-->"
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """What a page consists of; every element must be closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.links = [], [], [], []
        self.attributes, self.words = [], []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.attributes.append((tag, found))
        if "id" in found:
            self.ids.append(found["id"])
        self.links += [found[name] for name in ("href", "src", "xlink:href", "action", "data") if name in found]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))

    def all(self, tag):
        return [found for name, found in self.attributes if name == tag]


def check(text):
    """What holds of every report."""
    page = Page(text)
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert len(text.encode()) < 1_000_000
    assert not {"script", "iframe", "object", "embed", "form", "base", "img", "image"} & set(page.tags)
    assert not [name for _, found in page.attributes for name in found if name.startswith("on")]
    assert all(link.startswith(("#", "data:,")) for link in page.links), page.links
    assert not re.search(r"@import|url\((?!#)|https?:|//[a-z]", text)
    assert len(page.ids) == len(set(page.ids)), "an id occurs twice"
    known = set(page.ids)
    for target in re.findall(r'(?:href="|url\()#([^")]+)', text):
        assert target in known, f"nothing has the id {target}"
    for found in (found for _, found in page.attributes if "aria-labelledby" in found):
        assert {found["aria-labelledby"], found.get("aria-describedby", found["aria-labelledby"])} <= known
    drawings = page.all("svg")
    assert all(found.get("role") == "img" and "aria-labelledby" in found and "viewBox" in
               {key.replace("viewbox", "viewBox") for key in found} for found in drawings)  # fmt: skip
    assert page.tags.count("title") == 1 + len(drawings)
    assert page.tags.count("h1") == page.tags.count("main") == page.tags.count("footer") == 1
    assert all(found.get("scope") in ("row", "col") for found in page.all("th"))
    policy = next(found for found in page.all("meta") if found.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy["content"]
    assert "script-src" not in policy["content"]
    assert any(found.get("name") == "viewport" for found in page.all("meta"))
    return page


@pytest.fixture(scope="module")
def traced():
    trace = Trace()
    return decide(TWO.task, SIM, threshold=0.0, method=trace.watch()), trace


@pytest.fixture(scope="module")
def by_ball():
    """By the KL rule without a proof: not certified."""
    return decide(TWO.task, SIM, threshold=0.0, method=PTST(solver=ProjectionFree()))


@pytest.fixture(scope="module")
def compared():
    other = Task(TWO.task.rewards, TWO.alternative_policy, TWO.task.initial, TWO.task.discount)
    return compare(TWO.task, other, SIM)


def a_plan(**changes):
    settings = {
        "task": TWO.task, "threshold": 0.0, "delta": 0.05, "value": 0.3, "time": (20.0, 22.0), "bound": 55.0,
        "allocation": Allocation(np.full((2, 2), 0.25), 20.0, 0.05, Status.CONVERGED), "saving": 1.3,
        "samples": {"TDBetting": (120.0, 100.0, 140.0), "PTST": (900.0, 800.0, math.inf)}, "methods": {},
        "at_least": frozenset({"PTST"}), "notes": ("Beware: a note.", "Another one."),
        "guesses": 400,
    }  # fmt: skip
    return Plan(**{**settings, **changes})


def a_selection(**changes):
    settings = {
        "policy": TWO.task.policy, "index": 1, "samples": 70, "certified": True, "answered": True,
        "values": np.array([0.1, 0.4]), "delta": 0.05, "settled": 1, "questions": 1,
        "counts": Counts.from_array(np.ones((2, 2, 2), dtype=int)),
    }  # fmt: skip
    return Selection(**{**settings, **changes})


def an_estimate(**changes):
    counts = Counts.from_array(np.full((2, 2, 2), 9))
    settings = {
        "value": 0.3, "lower": 0.2, "upper": 0.4, "samples": 72, "certified": True, "epsilon": 0.1, "delta": 0.05,
        "reached": True, "method": "betting", "counts": counts,
    }  # fmt: skip
    return Estimate(**{**settings, **changes})


# ---------------------------------------------------------------- the page


def test_a_verdict_with_everything(traced):
    verdict, trace = traced
    text = report.render(verdict, trace=trace, provenance={"files": ["a.csv", "b.csv"], "rows": 12345, "seed": 7})
    page = check(text)
    assert len(page.all("svg")) == 5
    assert "Yes. Its value is above 0." in page.text
    assert f"Answered after {verdict.samples} samples, with a probability of error of at most 0.05." in page.text
    assert "certified" in page.text
    for words in ("a.csv", "b.csv", "12,345", f"policytest {policytest.__version__}", "numpy"):
        assert words in page.text
    for row in verdict.summary.rows:
        assert row.label in page.text
        assert row.shown in page.text
    first = re.search(r"<main>\s*(<header.*?</header>)", text, re.DOTALL)
    assert first is not None, "the answer comes first"
    assert "above 0" in first.group(1)


def test_the_same_result_gives_the_same_file(traced, tmp_path):
    verdict, trace = traced
    first = report.render(verdict, trace=trace)
    path = report.write(verdict, tmp_path / "r.html", trace=trace)
    assert path.read_text(encoding="utf-8") == first
    assert not re.search(r"\b20\d\d-\d\d-\d\d", first), "no dates"


def test_names_are_escaped_everywhere(tmp_path):
    task = Task(
        TWO.task.rewards, TWO.task.policy, TWO.task.initial, 0.9, states=(NASTY, "日本 $x$"), actions=(NASTY, "\x1b[2J")
    )
    trace = Trace()
    verdict = decide(task, SIM, threshold=0.0, method=trace.watch())
    text = report.render(
        verdict, trace=trace, title=NASTY, background=NASTY, warnings=[NASTY],
        provenance={NASTY: NASTY, "list": [NASTY], "command": f"policytest {NASTY}\nsecond line"},
    )  # fmt: skip
    page = check(text)
    assert "alert(1)" in page.text
    assert "<b>" not in text
    assert "\x1b" not in text
    assert "日本" in text
    assert "second line" in page.text


@pytest.mark.parametrize(
    "result",
    [a_plan(), a_plan(allocation=None, samples={}), a_selection(), a_selection(index=None, values=np.array([0.0, 1.0])),
     a_selection(answered=False, certified=False, reason="all used"), an_estimate(),
     an_estimate(reached=False, certified=False, upper=math.inf)],
)  # fmt: skip
def test_every_kind_of_result(result):
    page = check(report.render(result))
    assert result.summary.rows[0].label in page.text


def test_a_result_of_another_kind_has_its_table():
    table = Table("Something was found", (Row("how much", "12", "or so"),), ("A note.",))
    page = check(report.render(SimpleNamespace(summary=table)))
    for words in ("Something was found", "how much", "12", "or so", "A note."):
        assert words in page.text


def test_a_study():
    known = dict.fromkeys(("value", "threshold", "uniform_time", "best_time", "lower_bound", "best_bound"), 1.0)
    rows = [
        {"instance": "one", "method": method, "delta": delta, "seed": seed, "samples": 100 + seed, "answer": "above",
         "correct": seed > 0, "certified": True, "cut": False, "solves": 0, **known}
        for method in ("A", NASTY)
        for delta in (0.1, 0.01)
        for seed in range(3)
    ]  # fmt: skip
    study = Study("A study", rows, notes=("Noted.",))
    page = check(report.render(study))
    assert len(page.all("svg")) == 2
    several = [{**row, "instance": name} for name in ("one", "two", NASTY) for row in rows]
    study_of_three = Study("", several)
    assert len(check(report.render(study_of_three)).all("svg")) == 3 + 1  # one for each instance, and all together
    for words in ("6 runs of 2 methods on 1 instance.", "4 wrong answers", "A study", "Noted.", "0.577"):
        assert words in page.text


def test_a_thousand_states_stay_a_small_file():
    large = instances.random(0, 1000, 3, successors=4)
    counts = Counts(1000, 3, sparse=True)
    rng = np.random.default_rng(0)
    counts.record(rng.integers(0, 1000, 5000), rng.integers(0, 3, 5000), rng.integers(0, 1000, 5000))
    verdict = replace(decide(large.task, TabularSimulator(large.kernel), 1e9), counts=counts, samples=5000)
    page = check(report.render(verdict))
    assert "985 others" in page.text


# ---------------------------------------------------------------- the words


def story(verdict, **changes):
    return verdict_story(replace(verdict, **changes))


@each(
    ("about", "answer", "certified", "threshold", "words"),
    [
        ("value", "above", True, 0.5, "Yes. Its value is above 0.5."),
        ("value", "below", True, 0.5, "No. Its value is below 0.5."),
        ("value", "within", True, 0.5, "Practically equal. Its value is within 0.1 of 0.5."),
        ("value", None, False, 0.5, "Not settled yet. The data do not yet say whether its value is above 0.5."),
        ("value", "above", False, 0.5, "No reliable answer. Not certified: its value is above 0.5."),
        ("value", "below", False, 0.5, "No reliable answer. Not certified: its value is below 0.5."),
        ("difference", "above", True, 0.0, "Yes. Policy A is better than policy B."),
        ("difference", "above", True, 0.2, "Yes. Policy A is better than policy B by more than 0.2."),
        ("difference", "below", True, 0.0, "No. Policy A is worse than policy B."),
        ("difference", "below", True, 0.2, "No. Policy A is not better than policy B by more than 0.2."),
        ("difference", "within", True, 0.0, "Practically equal. The difference is within 0.1 of 0."),
        (
            "difference",
            None,
            False,
            0.0,
            "Not settled yet. The data do not yet say whether policy A is better than policy B.",
        ),
    ],
)
def test_the_headline(by_ball, about, answer, certified, threshold, words):
    told = story(by_ball, about=about, answer=answer, certified=certified, threshold=threshold, indifference=0.1)
    assert told.headline == words
    colour = {"above": "yes", "below": "no"}.get(answer, "open")
    assert told.tone == (colour if certified or answer is None else "uncertified")
    claims = " ".join((told.lead, told.proof, *told.warnings, *told.guarantee))
    assert ("The answer is proved" in claims) == (certified and answer is not None)
    assert ("local search" in claims) == (not certified and answer is not None)
    assert bool(told.next_steps) == (answer is None)


@each(("answer", "margin"), [("above", 0.0), ("above", 0.2), ("below", 0.0), ("below", 0.2), ("below", -0.2)])
def test_the_terminal_and_the_page_say_the_same_of_two_policies(by_ball, answer, margin):
    verdict = replace(by_ball, about="difference", answer=answer, certified=True, threshold=margin)
    said = verdict_story(verdict).headline.partition(" ")[2].rstrip(".")
    assert said.startswith("Policy A is ")
    assert verdict.summary.title == f"{said} (certified)"
    assert verdict.summary.rows[0].shown == said.removeprefix("Policy A ")
    word = {("below", True): "worse", ("below", False): "not better"}.get((answer, margin == 0), "better")
    assert f"“A is {word}”" in sentences.guarantee(verdict)[0]


def test_a_verdict_without_proof_says_so_at_once(by_ball):
    assert not by_ball.certified
    page = check(report.render(by_ball))
    assert "No reliable answer. Not certified: its value is above 0." in page.text
    assert "The answer is proved" not in page.text
    assert "For this answer to be wrong, all of these, and more, would have to be true at once:" in page.text


@pytest.mark.parametrize("flag", ["selected", "other_rewards"])
def test_flawed_data_have_no_guarantee(by_ball, flag):
    counts = Counts(2, 2, **{flag: True})
    counts.record([0, 1], [0, 1], [1, 0])
    verdict = replace(by_ball, counts=counts)
    for found in (verdict, from_data(json.loads(verdict.to_json()))):
        page = check(report.render(found))
        assert "no guarantee" in page.text
        assert counts.flaws[0] in page.text
        assert "delta bounds nothing here" in page.text
        assert "with a probability of error of at most" not in page.text
        assert "The answer is proved" not in page.text


def test_an_undecided_verdict_says_how_to_go_on():
    verdict = decide(TWO.task, SIM, 0.25, 1e-6, max_samples=60)
    page = check(report.render(verdict))
    assert verdict.answer is None
    for words in ("Not settled yet.", "--checkpoint", "--indifference", "the sample limit is reached"):
        assert words in page.text
    assert "decide(" not in page.text.split("How to reproduce")[0]


def test_a_verdict_says_what_was_tested_before_the_pictures():
    task = Task(
        [[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]],
        [[0.25, 0.75], [0.0, 1.0], [1.0, 0.0]],
        [0.5, 0.5, 0.0],
        0.9,
        states=["new", "old", "gone"],
        actions=["wait", "call"],
        terminal=["gone"],
    )
    page = check(
        report.render(policytest.assess(task, Counts.from_array(np.full((3, 2, 3), 4.0) * [[[1]], [[1]], [[0]]]), 5.0))
    )
    before = page.text.split("In pictures")[0]
    for words in (
        "above 5?",
        "counting 0.9 times as much",
        "between 0 and 3",
        "new: wait (0.25), call (0.75); old: call.",
        "Start: new (0.5), old (0.5).",
        "Ends: gone.",
    ):
        assert words in before


ILL = {"states": ["ill", "well", "dead"], "actions": ["wait"]}
WAIT, FIRST = np.ones((3, 1)), [0.75, 0.25, 0.0]
COURSE = np.array([[[0.5, 0.3, 0.2]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])


def words_of(result):
    return " ".join(" ".join(Page(report.render(result)).words).split())


def test_the_page_of_a_goal_speaks_of_it():
    task = Task.reaching(["well"], ["dead"], policy=WAIT, initial=FIRST, within=30, **ILL)
    sim = TabularSimulator(COURSE)
    page = words_of(decide(task, sim, 0.5))
    assert "Its probability of reaching the goal is above 0.5." in page
    assert "Is the probability that this policy reaches well before dead within 30 steps above 0.5?" in page
    assert "An episode that starts there has reached it." in page
    assert "If the probability of reaching the goal were 0.5 or less" in page
    assert "Goal, policy and start are the ones given" in page
    assert "reward" not in page.partition("All numbers")[0]
    estimate = words_of(evaluate(task, sim, 0.2))
    assert "The probability of reaching the goal is 0." in estimate
    assert "What is the probability that this policy reaches well before dead within 30 steps?" in estimate
    elsewhere = Task.reaching(["well"], policy=WAIT, initial=[1.0, 0.0, 0.0], **ILL)
    page = words_of(decide(elsewhere, sim, 0.2, max_samples=5))
    assert "whether its probability of reaching the goal is above 0.2" in page
    assert "this policy reaches well above 0.2?" in page
    assert "An episode that starts there" not in page


def test_the_page_of_observed_rewards_names_their_range_the_horizon_and_the_bound():
    sim = TabularSimulator(COURSE, rewards=lambda s, a, x, rng: 2.0 * (x == 1))
    noisy = Task(policytest.Observed(0.0, 20.0), WAIT, FIRST, 1.0, horizon=12, **ILL)
    page = words_of(decide(noisy, sim, 4.0, max_samples=200))
    assert "the expected sum of the rewards of the first 12 steps" in page
    assert "A reward is between 0 and 20, and is observed with the transition." in page
    assert "The next state and the reward depend on the current state and the action alone" in page
    assert "The range of rewards, policy" in page
    listed = Task(policytest.Observed(values=[0, 2, 5]), WAIT, FIRST, 0.8, **ILL)
    page = words_of(decide(listed, sim, 1.0, method=PTST(solver=ProjectionFree())))
    assert "counting 0.8 times as much. A reward is one of 0, 2, 5, and is observed with the transition." in page
    assert "ill: wait; well: wait; dead: wait. Start: ill (0.75), well (0.25)." in page
    bounded = Task(WAIT * [[1.0], [0.0], [0.0]], WAIT, FIRST, 1.0, terminal=[1, 2], total_rewards=(0, 90), **ILL)
    page = words_of(decide(bounded, TabularSimulator(COURSE), 1.0, max_samples=9))
    assert "all rewards from the start on, until an episode ends." in page
    assert "The total of any episode is between 0 and 90." in page
    plan = words_of(policytest.plan(noisy, COURSE, 4.0, rewards=np.full((3, 1), 1.0), runs=4, max_samples=500))
    assert "No lower bound is known for such a task." in plan
    assert "fewer than 0 on average" not in plan


def test_an_undecided_page_is_no_proof():
    page = check(report.render(decide(TWO.task, SIM, 0.25, 1e-6, max_samples=60)))
    assert "The answer is proved" not in page.text


def test_an_answer_without_samples():
    page = check(report.render(decide(TWO.task, SIM, threshold=1e6)))
    assert "follows from the rewards alone" in page.text


def test_a_comparison_speaks_of_both_policies(compared):
    page = check(report.render(compared))
    assert "Yes. Policy A is better than policy B." in page.text
    assert "Which policy is better?" in page.text
    assert "margin" in page.text
    assert "pt.compare(" in page.text


def test_a_plan_promises_nothing():
    page = check(report.render(a_plan()))
    assert "About 120 samples, with TDBetting." in page.text
    assert "A plan promises nothing" in page.text
    assert "Beware: a note." in page.text
    assert "The answer is proved" not in page.text
    hopeless = a_plan(bound=math.inf, time=(math.inf, math.inf), samples={"A": (math.inf,) * 3})
    page = check(report.render(hopeless))
    assert "No number of samples is enough." in page.text
    assert "no test ever ends" in page.text


def test_an_estimate_that_is_not_reached():
    page = check(report.render(an_estimate(reached=False)))
    assert "The wanted precision, 0.1, is not reached." in page.text
    assert check(report.render(an_estimate())).text.count("not reached") == 0


def test_colours_have_contrast():
    """WCAG: text against what is behind it, at least 4.5 to 1, in every scheme."""
    style = (Path(report.__file__).parent / "page.html").read_text(encoding="utf-8")

    def light(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(first, second):
        dark, bright = sorted((light(first), light(second)))
        return (bright + 0.05) / (dark + 0.05)

    light_part, rest = style.split("@media (prefers-color-scheme: dark)")
    dark_part, print_part = rest.split("* { box-sizing")[0], style.split("@media print")[1]
    for scheme in (light_part, dark_part, print_part):
        found = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", scheme))
        tints = re.findall(r"\.(yes|no|open|uncertified) \{[^}]*--tint: (#[0-9a-f]{6})", scheme)
        assert len(tints) == 4 or scheme is print_part
        for text in ("ink", "muted"):
            for behind in ("paper", "card"):
                assert contrast(found[text], found[behind]) >= 4.5, (text, behind)
        for tone, tint in tints:
            for text in ("ink", "muted", tone):
                assert contrast(found[text], tint) >= 4.5, (text, tone)


# ---------------------------------------------------------------- small cells


def test_small_counts_are_not_shown(by_ball):
    N = np.array([[[3, 0], [400, 210]], [[150, 161], [2, 1]]])
    verdict = replace(by_ball, counts=Counts.from_array(N), samples=int(N.sum()))
    full = check(report.render(verdict)).text
    shown = report.render(verdict, suppress_below=10)
    page = check(shown)
    assert page.text.count(" few ") >= 2
    assert "Counts from 1 to 9 are not shown" in page.text
    for change in verdict.changes:
        if change.visits < 10:
            assert f"{change.needed:.3f}" in full
            assert f"{change.needed:.3f}" not in page.text
    few = replace(by_ball, counts=Counts.from_array(N), samples=7)
    page = check(report.render(few, suppress_below=10))
    assert "fewer than 10 samples" in page.text
    assert "after 7 " not in page.text


# ---------------------------------------------------------------- saved results


@pytest.mark.parametrize("kind", ["verdict", "uncertified", "comparison", "estimate", "plan", "selection", "undecided"])
def test_a_saved_result_says_the_same(kind, traced, by_ball, compared, tmp_path):
    result = {
        "verdict": lambda: traced[0],
        "uncertified": lambda: by_ball,
        "comparison": lambda: compared,
        "estimate": lambda: evaluate(TWO.task, SIM, 0.3),
        "plan": a_plan,
        "selection": a_selection,
        "undecided": lambda: decide(TWO.task, SIM, 0.25, 1e-6, max_samples=60),
    }[kind]()
    file = tmp_path / "result.json"
    file.write_text(result.to_json(), encoding="utf-8")
    saved = report.read(file)
    assert type(saved) is type(result)
    if kind == "comparison":  # there is no lower bound
        assert json.loads(file.read_text(encoding="utf-8"))["proof"]["lower_bound"] is None
        assert math.isnan(saved.lower_bound)
    texts = [report.render(found) for found in (result, saved)]
    first, second = map(check, texts)
    heading = re.compile(r"<h1>.*?</h1>.*?</header>", re.DOTALL)
    assert heading.search(texts[0]).group() == heading.search(texts[1]).group()
    assert [row.shown for row in saved.summary.rows] == [row.shown for row in result.summary.rows]
    assert len(second.all("svg")) >= len(first.all("svg")) - 1


def named(task=TWO.task):
    return replace(task, states=("calm sea", "storm"), actions=("<wait>", "sail"), assumptions=("the sea is Markov",))


NAMED = {
    "verdict": (
        lambda: decide(named(), SIM, threshold=0.0, method=PTST()),
        "The answer is proved, if the sea is Markov.",
    ),
    "estimate": (lambda: evaluate(named(), SIM, 0.3), "The interval is proved, if the sea is Markov."),
    "plan": (lambda: a_plan(task=named()), "that of (s=0 'calm sea', a=0 '<wait>')."),
    "selection": (
        lambda: identify(
            TWO.task.rewards, TWO.task.initial, TWO.task.discount, SIM, states=named().states, actions=named().actions,
            assumptions=named().assumptions,
        ),
        "The answer is proved, if the sea is Markov.",
    ),
    "comparison": (
        lambda: compare(replace(named(), assumptions=()), replace(named(), policy=TWO.alternative_policy), SIM),
        "The answer is proved, if the sea is Markov.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", NAMED)
def test_a_saved_result_keeps_names_and_assumptions(kind, tmp_path):
    """In words, in JSON, in the report, and in that of ``policytest report``."""
    make, words = NAMED[kind]
    result, file = make(), tmp_path / "result.json"
    file.write_text(result.to_json(), encoding="utf-8")
    data = json.loads(file.read_text())
    assert (data["states"], data["actions"]) == (["calm sea", "storm"], ["<wait>", "sail"])
    assert data["assumptions"] == ["the sea is Markov"]
    assert main(["report", str(file), "--out", str(tmp_path / "page.html")]) == 0
    for page in map(check, (report.render(result), (tmp_path / "page.html").read_text(encoding="utf-8"))):
        for part in (words, "The sea is Markov.", "storm"):
            assert part in page.text
        assert ("(s=0 'calm sea', a=1 'sail', x=" in page.text) is (kind == "verdict")
    for found in (result, report.read(file)):
        assert ("proved, if the sea is Markov" in str(found)) is (kind != "plan")


def test_the_kind_of_an_interval_is_told(by_ball):
    """Each end of a verdict's interval holds with probability 1 - delta; files of before say nothing: two-sided."""
    data = json.loads(by_ball.to_json())
    assert data["interval_kind"] == "one-sided ends, 1 - delta each"
    assert "each end holds with probability 0.95, at any time" in str(by_ball)
    assert str(from_data(data)).partition("\nFor this")[0] == str(by_ball).partition("\nFor this")[0]
    del data["interval_kind"]
    assert "anytime-valid 95% interval (two-sided)" in str(from_data(data))
    known = decide(TWO.task, SIM, threshold=1e6)
    assert json.loads(known.to_json())["interval_kind"].startswith("certain")
    assert json.loads(an_estimate().to_json())["interval_kind"] == "two-sided, 1 - delta"


@each(
    ("document", "words"),
    [
        ([], "expected an object"),
        ({}, "schema is None"),
        ({"schema": 3}, "schema is 3, expected 1 or 2"),
        ({"schema": 1}, "no kind of result"),
        ({"schema": 2, "answer": "above"}, "'proof' is missing"),
        ({"schema": 2, "answer": "above", "proof": 1, "provenance": {}}, "does not describe a result"),
        ({"schema": 1, "answer": "above"}, "'threshold' is missing"),
        ({"schema": 1, "answer": "yes"}, "answer is 'yes'"),
    ],
)
def test_documents_that_are_no_results(document, words):
    with pytest.raises(InputError, match=re.escape(words)):
        from_data(document)


@each(
    ("change", "words"),
    [
        ({"certified": "no"}, "certified is 'no'"),
        ({"certified": 1}, "certified is 1"),
        ({"delta": 2.0}, "delta is 2.0"),
        ({"interval": [1.0]}, "does not describe a result"),
        ({"evidence": None}, "does not describe a result"),
        ({"samples": "many"}, "does not describe a result"),
        ({"states": ["one"]}, "states is not a list of 2 names"),
        ({"actions": "ab"}, "actions is not a list of 2 names"),
        ({"assumptions": "none"}, "assumptions is 'none'"),
        ({"visits": [], "states": []}, "changes has the index"),
    ],
)
def test_a_damaged_verdict_is_refused(by_ball, change, words):
    """Above all: what is not certified does not become so."""
    with pytest.raises(InputError, match=re.escape(words)):
        from_data({**json.loads(by_ball.to_json()), **change})


def test_bad_arguments(traced):
    for arguments, words in (
        ({"result": 3}, "result is a int"),
        ({"result": traced[0], "trace": [1]}, "trace is a list"),
        ({"result": traced[0], "provenance": "seed 0"}, "provenance is a str"),
        ({"result": traced[0], "suppress_below": 1.5}, "suppress_below"),
        ({"result": traced[0], "suppress_below": -1}, "suppress_below is -1"),
    ):
        with pytest.raises(InputError, match=words):
            report.render(**arguments)
    with pytest.raises(InputError, match="there is no folder"):
        report.write(traced[0], "nowhere/at/all.html")


def test_a_diagnosis_goes_into_the_report(traced):
    table = Table("Warnings", (Row("next states alike", "p = 0.001", "after correction"),))
    page = check(report.render(traced[0], diagnosis=SimpleNamespace(warnings=("Rows are missing.",), summary=table)))
    for words in ("Before you rely on it", "Rows are missing.", "next states alike", "p = 0.001"):
        assert words in page.text


# ---------------------------------------------------------------- the command line


def test_report_command(by_ball, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("v.json").write_text(by_ball.to_json(), encoding="utf-8")
    assert main(["report", "v.json", "--out", "v.html", "--title", "Shall we <ship> it?"]) == 0
    assert "v.html" in capsys.readouterr().out
    page = check(Path("v.html").read_text(encoding="utf-8"))
    assert "Shall we <ship> it?" in page.text
    assert re.search(r"v\.json, [\d,]+ bytes, sha256 [0-9a-f]{16}", page.text)
    monkeypatch.setattr("sys.stdin", io.StringIO(by_ball.to_json()))
    assert main(["report", "-", "--out", "w.html"]) == 0
    assert "standard input" in Path("w.html").read_text(encoding="utf-8")
    for argv, words in (
        (["report", "nothing.json", "--out", "x.html"], "cannot be read"),
        (["report", "v.html", "--out", "x.html"], "not a JSON document"),
        (["report", "v.json", "--out", "."], "is a folder"),
        (["report", "v.json"], "--out"),
    ):
        assert main(argv) == 2
        assert words in capsys.readouterr().err
    assert not Path("x.html").exists()


def test_decide_writes_the_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plain = main(["decide", "paper-2", "--quiet", "--json"]), capsys.readouterr().out
    watched = main(["decide", "paper-2", "--quiet", "--json", "--html", "a page.html"]), capsys.readouterr().out
    assert watched == plain, "the report changes nothing"
    page = check(Path("a page.html").read_text(encoding="utf-8"))
    assert "How the evidence grew" in page.text
    assert "policytest decide paper-2" in page.text
    assert "a page.html" not in page.text


def test_the_other_commands_write_it_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "paper-2", "--epsilon", "0.3", "--html", "e.html", "--quiet"]) == 0
    page = check(Path("e.html").read_text(encoding="utf-8"))
    assert "How the interval narrowed" in page.text
    assert main(["demo", "--delta", "0.3", "--html", "d.html"]) == 0
    page = check(Path("d.html").read_text(encoding="utf-8"))
    assert "is the value of its policy above 0?" in page.text
    assert "T* kl(delta, 1-delta)" in page.text
    assert len(page.all("svg")) >= 4


def test_without_the_packages_there_is_a_plain_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("policytest.cli.output.can_report", lambda: False)
    assert main(["decide", "paper-2", "--quiet", "--html", "p.html"]) == 0
    assert "pip install 'jinja2>=3.1' 'matplotlib>=3.8' gives it pictures" in capsys.readouterr().err
    text = Path("p.html").read_text(encoding="utf-8")
    assert "<svg" not in text
    assert "above the threshold" in text
    monkeypatch.setitem(sys.modules, "jinja2", None)
    Path("v.json").write_text(json.dumps({"schema": 1}), encoding="utf-8")
    assert main(["report", "v.json", "--out", "x.html"]) == 2


def test_the_command_line_in_the_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.json").write_text("{}", encoding="utf-8")
    given = ["decide", "m.json", "--html", "x.html", "--json", "--seed", "3", "--html=y.html", "--delta=0.1"]
    assert _without_output(given) == ["decide", "m.json", "--seed", "3", "--delta=0.1"]
    assert set(OUTPUT) >= {"--html", "--json", "--quiet"}
    monkeypatch.setattr("policytest.cli.output.arguments", SimpleNamespace(get=lambda: tuple(given)))
    found = provenance()
    assert found["command"] == "policytest decide m.json --seed 3 --delta=0.1"
    assert found["files"] == ["m.json, 2 bytes, sha256 44136fa355b3678a"]


# ---------------------------------------------------------------- what is shipped


def test_the_template_ships():
    folder = Path(report.__file__).parent
    assert (folder / "page.html").is_file()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    build = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["packages"] == ["src/policytest"]
    assert "exclude" not in build
    assert any(name.startswith("jinja2") for name in settings["project"]["optional-dependencies"]["report"])


def test_recorded_trials_are_named_and_their_tasks_listed():
    tasks = np.tile(["lift", "push"], 30)
    a, b = (
        policytest.LoggedEpisodes(None, np.arange(60) % 10 < many, return_range=(0, 1), agent=name, task=tasks)
        for name, many in (("new", 9), ("old", 2))
    )
    for page in (report.render(compare(a, b)), report.render(policytest.assess(a, threshold=0.5))):
        assert "lift" in page
        assert "trials are independent runs" in page
    assert "new is better than old" in report.render(compare(a, b))
