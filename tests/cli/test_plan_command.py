"""The commands `plan` and `evaluate`: pilots, several guesses, progress on a pipe, simulators of the wrong form."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest

import policytest as pt
from policytest.cli import main
from policytest.cli.progress import Lines, progress
from policytest.sources import save_model

TWO = pt.instances.paper(2)


def test_a_plan_from_pilot_draws(here, capsys):
    save_model("model.json", TWO.task, threshold=0.0)  # no kernel: the pilot is the guess
    for name, times in (("first.npz", 100), ("second.npz", 300)):
        pt.Counts.from_array(np.rint(times * TWO.kernel)).save(name)
    assert main(["plan", "model.json", "--pilot", "first.npz", "--pilot", "second.npz", "--json", "--quiet"]) == 0
    shown = capsys.readouterr()
    data = json.loads(shown.out)
    assert shown.err == ""
    assert "1,600 pilot draws" in data["notes"][0]
    assert 0.5 < data["sure"]["TDBetting"] <= 1.0
    assert main(["plan", "model.json", "--pilot", "first.npz", "--guess", "paper-2"]) == 2
    assert "exclude each other" in capsys.readouterr().err
    assert main(["plan", "model.json", "--pilot", "nothing.npz"]) == 2
    assert "nothing.npz" in capsys.readouterr().err
    assert main(["plan", "model.json"]) == 2
    assert "--pilot" in capsys.readouterr().err


def test_a_plan_from_several_guesses(here, capsys):
    save_model("other.json", TWO.task, 0.8 * TWO.kernel + 0.1)
    assert main(["plan", "paper-2", "--guess", "other.json", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["guesses"] == 2
    assert "simulating TDBetting" in shown.err


def test_evaluate_by_either_method_tells_how_far_it_is(here, capsys):
    assert main(["evaluate", "paper-2", "--epsilon", "0.03", "--method", "betting"]) == 0
    err = capsys.readouterr().err.splitlines()
    samples = [int(line.split(" samples")[0].replace(",", "")) for line in err if "value in [" in line]
    assert samples == sorted(samples)
    assert 2 <= len(samples) <= 8  # each time the samples have doubled
    assert main(["evaluate", "paper-2", "--epsilon", "0.3", "--method", "ptst", "--json", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["method"].startswith("PTST")
    assert shown.err == ""


def test_words_are_shown_at_doubling_times_and_broken_streams_are_left_alone():
    stream = io.StringIO()
    with progress(stream) as shown:
        for samples in range(0, 9000, 100):
            shown.tell(samples, "so far")
    assert (
        stream.getvalue()
        == "1,000 samples, so far\n2,000 samples, so far\n4,000 samples, so far\n8,000 samples, so far\n"
    )
    stream.close()
    with Lines(stream) as shown:
        shown.notice("nobody reads this")
        shown.tell(10**6, "nor this")
    Lines(None).tell(10**6, "nothing")


@pytest.mark.parametrize("sim", [lambda s, a: s, lambda: 0, lambda s, a, rng, more: s])
def test_a_simulator_of_another_form_is_named_at_once(sim):
    for ask in (
        lambda: pt.decide(TWO.task, sim, threshold=0.0),
        lambda: pt.decide(TWO.task, sim, threshold=0.0, method=pt.PTST()),
        lambda: pt.evaluate(TWO.task, sim, 0.1),
    ):
        with pytest.raises(pt.InputError, match=r"sim is .* signature is .*draw\(states, actions, rng\)"):
            ask()


def test_one_of_the_same_form_is_taken(monkeypatch, here, capsys):
    (here / "mine.py").write_text("def two(s, a):\n    return s\n")
    assert main(["decide", "paper-2", "--simulator", "mine:two"]) == 2
    assert "signature is (s, a)" in capsys.readouterr().err
    sys.modules.pop("mine", None)

    def any_number(*given):
        return pt.TabularSimulator(TWO.kernel).draw(*given)

    assert pt.decide(TWO.task, any_number, -0.4).answer == "above"
