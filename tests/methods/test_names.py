"""Names of methods, boundaries, sampling rules and solvers: each leads somewhere, the command line has no others."""

from __future__ import annotations

import numpy as np
import pytest

import policytest
from policytest import InputError, instances
from policytest.cli import options
from policytest.methods import checkpoint, names
from policytest.methods.td_betting import TDBetting
from policytest.questions.driver import COMBINED

TABLES = (names.METHODS, names.BOUNDARIES, names.SAMPLING_RULES, names.SOLVERS)


@pytest.mark.parametrize("entry", [entry for table in TABLES for entry in table.values() if entry is not None])
def test_every_name_leads_somewhere(entry):
    made = entry.load()
    assert callable(made)
    assert made.__name__ == entry.name.split(".")[-1]


def test_a_method_by_its_name_or_its_class():
    for spelling in ("betting", "TDBetting", "tdbetting", "Betting"):
        assert names.method_entry("here", spelling).load() is TDBetting
    for name, entry in names.METHODS.items():
        assert names.method_entry("here", entry.name) is names.method_entry("here", name) is entry
    for wrong, words in (("TDBeting", "did you mean 'TDBetting'?"), (3, "pass one of TDBetting, LogBetting")):
        with pytest.raises(InputError, match="here: there is no") as caught:
            names.method_entry("here", wrong)
        assert caught.value.remedy.startswith(words.rstrip("?"))
        assert str(caught.value) == f"{caught.value.what}; {caught.value.remedy}"


def test_a_method_of_an_earlier_version_says_what_replaces_it():
    words = r"Combined is gone; write TDBetting\(\) \(the default\), or PTST\(\) for very small delta"
    with pytest.raises(InputError, match=f"here: {words}"):
        names.method_entry("here", "Combined")
    for ask in ("policytest.Combined", "from policytest import Combined"):
        with pytest.raises(ImportError, match=words):
            exec(ask, {"policytest": policytest})


def test_a_checkpoint_of_such_a_method_says_so_too(tmp_path):
    two = instances.paper(2)
    ask = {"task": two.task, "sim": policytest.TabularSimulator(two.kernel), "threshold": 0.0, "max_samples": 20}
    kept, file = policytest.decide(**ask).snapshot, tmp_path / "run.npz"
    checkpoint.write(file, {**kept, "fingerprint": np.array("another"), "method": np.array(COMBINED)})
    with pytest.raises(InputError, match=r"that run had the method Combined\(\), which is gone; write TDBetting\(\)"):
        policytest.decide(**ask, resume=file)


def test_the_command_line_offers_what_is_there():
    for choice in (options.OnePolicyMethod, options.PairsMethod, options.SearchMethod):
        assert {str(name) for name in choice} <= set(names.METHODS)
    assert {str(name) for name in options.BoundaryName} == set(names.BOUNDARIES)
    assert {str(name) for name in options.AllocationName} == set(names.SAMPLING_RULES)


def test_sampling_rules_and_boundaries_are_made():
    two = instances.paper(2)
    for name in names.SAMPLING_RULES:
        assert names.make_sampling_rule(name, two.kernel) is not None
    assert names.make_boundary("mixture", 0.25).prior == 0.25
