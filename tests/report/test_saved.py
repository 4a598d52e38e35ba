"""Verdicts in files: those of schema 1, which earlier versions wrote, are read; those of schema 2 lose nothing."""

from __future__ import annotations

import json
import math
import pickle
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import policytest as pt
from builders import TWO, assert_same_verdict
from policytest.report import render
from policytest.results.load import from_data, read
from policytest.results.provenance import LIBRARIES
from policytest.results.verdict import Verdict

OLD = Path(__file__).parent / "schema_1"
NAMES = sorted(path.stem for path in OLD.glob("*.json"))
PROOF = {"solves", "proof_samples", "lower_bound", "dimension", "proved", "refuted"}
SIM = pt.TabularSimulator(TWO.kernel)


def flat(document):
    """The keys of a document of schema 2 as schema 1 has them."""
    groups = {**document["proof"], "method": document["provenance"]["method"]}
    later = ("schema", "proof", "provenance", "approximate", "doubts")
    rest = {key: value for key, value in document.items() if key not in later}
    return {"schema": 1, **rest, **groups}


# ---------------------------------------------------------------- schema 1


@pytest.mark.parametrize("name", NAMES)
def test_a_document_of_schema_1_is_read_whole(name):
    """What a version that wrote schema 1 said is what the verdict has, and what it writes in schema 2."""
    old, verdict = json.loads((OLD / f"{name}.json").read_text(encoding="utf-8")), read(OLD / f"{name}.json")
    assert old["schema"] == 1
    assert flat(json.loads(verdict.to_json())) == old
    for key in ("answer", "samples", "certified", "threshold", "delta", "method", "solves", "proof_samples", "about"):
        assert getattr(verdict, key) == old[key]
    for key in ("evidence", "interval", "proved", "refuted", "one_look"):
        given = old.get(key)
        assert getattr(verdict, key) == (None if given is None else tuple(float(end) for end in given))
    assert verdict.dimension == old["dimension"]
    for key in ("required", "p_value", "lower_bound", "estimate"):  # null is no number
        np.testing.assert_equal(getattr(verdict, key), math.nan if old[key] is None else float(old[key]))
    assert (verdict.provenance.seed, verdict.provenance.versions, verdict.snapshot) == (None, {}, {})
    assert str(verdict) == str(from_data(json.loads(verdict.to_json())))
    assert "<h1>" in render(verdict)


def test_the_documents_of_schema_1_are_of_every_kind():
    found = {name: read(OLD / f"{name}.json") for name in NAMES}
    assert {verdict.answer for verdict in found.values()} == {"above", "below", "within", None}
    assert {verdict.about for verdict in found.values()} == {"value", "difference"}
    assert found["logged"].ladder is not None
    assert found["counts"].one_look is not None
    assert found["undecided"].forecast.needed is not None
    assert found["decided"].changes[0].visits == 121
    assert found["episodes"].counts.episodes == 20


# ---------------------------------------------------------------- schema 2


def a_log():
    rng = np.random.default_rng(5)
    s, a = rng.integers(2, size=300), rng.integers(2, size=300)
    return pt.Transitions(s, a, SIM.draw(s, a, rng))


def walk(rng):
    return rng.random(5)


OTHER = replace(TWO.task, policy=TWO.alternative_policy)
MADE = {
    "decided": lambda: pt.decide(TWO.task, SIM, 0.0, method=pt.PTST(), rng=7),
    "undecided": lambda: pt.decide(TWO.task, SIM, 0.25, 1e-6, max_samples=60),
    "within": lambda: pt.decide(TWO.task, SIM, 0.2, indifference=0.3, rng=1),
    "known": lambda: pt.decide(TWO.task, SIM, 1e6),
    "compared": lambda: pt.compare(TWO.task, OTHER, SIM, margin=0.1, rng=3),
    "compared on a log": lambda: pt.compare(TWO.task, OTHER, a_log()),
    "log": lambda: pt.assess(TWO.task, a_log(), 0.0),
    "counts": lambda: pt.assess(TWO.task, a_log().counts(TWO.task, 300), 0.0),
    "episodes": lambda: pt.decide(pt.Episodes(walk, horizon=5, reward_range=(0, 1)), threshold=2.0),
}


@pytest.fixture(scope="module")
def verdicts():
    return {name: make() for name, make in MADE.items()}


@pytest.mark.parametrize("name", MADE)
def test_a_document_of_schema_2_is_read_whole(verdicts, name):
    verdict = verdicts[name]
    document = json.loads(verdict.to_json(), parse_constant=pytest.fail)
    assert next(iter(document)) == "schema"
    assert (document["schema"], set(document["proof"])) == (2, PROOF)
    again = from_data(document)
    assert again.to_json() == verdict.to_json()
    assert_same_shown(again, verdict)
    assert again.provenance.method == verdict.method
    assert again.provenance.versions == verdict.provenance.versions
    assert again.settings is again.witness is again.certificate is None
    assert (again.snapshot, again.forecast.forecaster, again.may_be_forecast) == ({}, None, False)
    with pytest.raises(pt.InputError, match="read from a file"):
        again.still_needed()


def assert_same_shown(again, verdict):
    assert [row.shown for row in again.summary.rows] == [row.shown for row in verdict.summary.rows]
    for name in ("evidence", "proved", "refuted", "dimension", "lower_bound", "solves", "proof_samples", "reason"):
        np.testing.assert_equal(getattr(again, name), getattr(verdict, name))


def test_a_kept_forecast_is_read_whole(verdicts):
    verdict = pt.decide(TWO.task, SIM, 0.25, 1e-6, method=pt.PTST(), max_samples=60)
    kept = replace(verdict, forecast=replace(verdict.forecast, needed=verdict.still_needed()))
    again = from_data(json.loads(kept.to_json()))
    assert again.to_json() == kept.to_json()
    assert again.forecast.needed.words == kept.forecast.needed.words
    assert kept.forecast.needed.words in str(again)


def test_the_seed_and_the_versions_are_told(verdicts):
    """A seed repeats the run; a Generator, a resumed run and recorded counts have none to tell."""
    assert (verdicts["decided"].provenance.seed, verdicts["compared"].provenance.seed) == (7, 3)
    assert verdicts["counts"].provenance.seed is None
    about = {"task": TWO.task, "sim": SIM, "threshold": 0.25, "delta": 1e-6}
    part = pt.decide(**about, max_samples=60, rng=np.random.default_rng(0))
    assert part.provenance.seed is None
    assert pt.decide(**about, max_samples=90, resume=part).provenance.seed is None
    assert tuple(verdicts["decided"].provenance.versions) == LIBRARIES
    assert verdicts["decided"].provenance.versions["policytest"] == pt.__version__


# ---------------------------------------------------------------- the class


def test_a_verdict_has_few_fields_of_its_own():
    assert len(fields(Verdict)) <= 16


@pytest.mark.parametrize("name", MADE)
def test_a_verdict_is_pickled_and_copied(verdicts, name):
    """Also one that is undecided, which then goes on or is forecast as before. Two verdicts are never equal."""
    verdict = verdicts[name]
    for again in (pickle.loads(pickle.dumps(verdict)), deepcopy(verdict), replace(verdict)):
        assert_same_verdict(again, verdict)
        assert again.to_json() == verdict.to_json()
        assert again.may_be_forecast == verdict.may_be_forecast
        assert again != verdict
        assert len({again, verdict, verdict}) == 2
    if verdict.answer is None and verdict.snapshot:
        going_on = [pt.decide(TWO.task, SIM, 0.25, 1e-6, max_samples=200, resume=part) for part in (again, verdict)]
        assert_same_verdict(*going_on)


def test_a_forecast_of_a_pickled_comparison():
    verdict = pt.compare(TWO.task, OTHER, a_log().first(40), delta=1e-6)
    assert verdict.answer is None
    again = pickle.loads(pickle.dumps(verdict))
    assert again.still_needed(max_samples=400).words == verdict.still_needed(max_samples=400).words


@pytest.mark.parametrize("name", MADE)
def test_a_repr_has_numbers_and_words_only(verdicts, name):
    said = repr(verdicts[name])
    assert len(said) < 800
    assert "array(" not in said
    for part in (f"answer={verdicts[name].answer!r}", "evidence=(", "method='", "interval=("):
        assert part in said
