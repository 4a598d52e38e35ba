"""What a gate asks of a verdict: the required answer passes, and everything else raises, with the verdict in short."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from functools import cache

import pytest

import policytest as pt
from builders import TWO, assert_refused, each
from policytest.results.load import parse

SIM = pt.TabularSimulator(TWO.kernel)
COIN = pt.Episodes(lambda rng: rng.random() < 0.7, return_range=(0, 1))
OTHER = replace(TWO.task, policy=TWO.alternative_policy)
ASKED = {
    "above": lambda: pt.decide(COIN, threshold=0.5),
    "below": lambda: pt.decide(COIN, threshold=0.9),
    "within": lambda: pt.decide(COIN, threshold=0.7, indifference=0.2),
    None: lambda: pt.decide(COIN, threshold=0.5, budget=5),
    "searched": lambda: pt.decide(TWO.task, SIM, threshold=0.0, method=pt.PTST(solver=pt.ProjectionFree())),
    "compared": lambda: pt.compare(TWO.task, OTHER, SIM),
}


@cache
def told(name):
    return ASKED[name]()


def raised(verdict, answer, **settings):
    with pytest.raises(pt.NotGoodEnough) as caught:
        verdict.require(answer, **settings)
    assert caught.value.verdict is verdict
    return caught.value


def test_each_answer_passes_where_it_is_required_and_nowhere_else():
    for found in ("above", "below", "within", None):
        verdict = told(found)
        assert verdict.answer == found
        for wanted in ("above", "below", "within", ("above", "within"), ["below"]):
            if found is not None and found in wanted:
                assert verdict.require(wanted) is verdict
            else:
                assert isinstance(raised(verdict, wanted), pt.Undecided) == (found is None)


def test_a_comparison_is_required_too():
    verdict = told("compared")
    assert verdict.require(verdict.answer) is verdict
    assert str(raised(verdict, "within")).startswith("Policy A is ")


def test_the_message_is_the_verdict_in_short():
    lines = str(raised(told("below"), "above")).splitlines()
    assert lines[0] == "The mean return is below the threshold (certified)"
    for words in ("threshold", "estimated", "interval", "samples"):
        assert sum(line.startswith("  ") and words in line.partition("  each")[0] for line in lines) == 1, words
    required = "  required answer +above +wrong with probability 0.05 at most"
    assert re.fullmatch(required, lines[1])
    assert len(lines) < 10 < len(str(told("below")).splitlines())
    undecided = str(raised(told(None), ("above", "within")))
    assert undecided.startswith("Undecided: the budget of 5 episodes is used up\n")
    assert "above or within" in undecided


def test_an_uncertified_answer_raises_and_says_how_to_accept_it():
    assert (told("searched").answer, told("searched").certified) == ("above", False)
    message = str(raised(told("searched"), "above"))
    assert message.startswith("No reliable answer: ")
    assert message.endswith('require("above", accept_uncertified=True).')
    assert told("searched").require("above", accept_uncertified=True) is told("searched")
    assert "accept_uncertified" not in str(raised(told("searched"), "below", accept_uncertified=True))
    assert not isinstance(raised(told("searched"), "above"), pt.Undecided)


@pytest.mark.filterwarnings("ignore:returns have no known range:policytest.AssumptionWarning")
def test_a_large_sample_is_not_enough_unless_it_is_accepted():
    verdict = pt.decide(pt.Episodes(lambda rng: rng.normal(10, 20)), threshold=0)
    message = str(raised(verdict, "above"))
    assert "wrong with probability about 0.05" in message
    assert verdict.require("above", accept_uncertified=True) is verdict


def test_what_the_data_refute_is_never_accepted():
    refuted = replace(told("above"), interval=(0.9, 0.6))  # no value is left
    assert refuted.refutes_model
    for accepts in (False, True):
        message = str(raised(refuted, "above", accept_uncertified=accepts))
        assert "because the data refute what" in message
        assert "=True" not in message


def test_saved_verdicts_are_required_alike():
    for name in ("above", "below", "within", None, "searched"):
        verdict, found = told(name), told(name).answer
        saved = parse(verdict.to_json(), "verdict.json")
        if name not in (None, "searched"):
            assert saved.require(found) is saved
        else:
            assert str(raised(saved, "above")) == str(raised(verdict, "above"))
    assert parse(told("searched").to_json(), "verdict.json").require("above", accept_uncertified=True)


@each(
    ("answer", "fragment"),
    [
        ("abov", 'answer is \'abov\'; did you mean \'above\'? pass "above", "below" or "within"'),
        ("undecided", "answer is 'undecided'; pass"),
        (("above", None), "answer is None; pass"),
        ((), "answer is empty; pass"),
        (0, "answer is 0; pass"),
    ],
)
def test_a_wrong_word_is_refused_whatever_the_verdict_says(answer, fragment):
    for verdict in (told("above"), told(None)):
        assert_refused(lambda v=verdict: v.require(answer), fragment)


def test_acceptance_is_true_or_false():
    assert_refused(lambda: told("above").require("above", accept_uncertified="yes"), "accept_uncertified is 'yes'")


def test_the_errors_can_be_caught_and_sent():
    assert issubclass(pt.Undecided, pt.NotGoodEnough)
    assert not issubclass(pt.NotGoodEnough, ValueError)  # the input is not at fault
    error = raised(parse(told(None).to_json(), "verdict.json"), "above")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.verdict.answer) == (pt.Undecided, str(error), None)
