"""Storm's DRN files: what they say is what is read, what is wrong is refused with its line, writing is the inverse."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import policytest as pt
from builders import each
from paths import ROOT
from policytest import instances
from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.cli import main
from policytest.mdp.task import Task
from policytest.mdp.values import value
from policytest.sources import load_model, save_model
from source_builders import COMMANDS, assert_model_refused

ROBOT = """// A robot on six fields; three reward models, choices by name
@type: MDP
@value_type: double
@parameters

@reward_models
steps fuel time
@nr_states
6
@nr_choices
10
@model
state 0 [0, 2.5, 1] init
\taction down [1, 0, 0]
\t\t1 : 0.1
\t\t3 : 0.8
\t\t4 : 0.1
\taction right [1, 0, 0]
\t\t0 : 0.4
\t\t1 : 0.6
state 1 [0, 2.5, 1] "risky place" wet
\taction down [1, 0, 0]
\t\t2 : 0.5
\t\t4 : 0.5
\taction right [1, 0, 0]
\t\t2 : 1
state 2 [0, 0.1, 1] goal
\taction stuck [0, 3.5, 0]
\t\t2 : 1
state 3 [0, 0.1, 1] goal
\taction stuck [0, 3.5, 0]
\t\t3 : 1
state 4 [0, 2.5, 1]
\taction left [1, 0, 0]
\t\t3 : 3/5
\t\t4 : 2/5
\taction right [1, 0, 0]
\t\t5 : 1
state 5 [0, 2.5, 1] home
\taction up [1, 0, 0]
\t\t2 : 0.9
\t\t5 : 0.1
\taction left [1, 0, 0]
\t\t4 : 1
"""
PLAIN = """@type: MDP
@reward_models
r
@nr_states
2
@model
state 0 [1] init
action 0 [0]
0 : 0.5
1 : 0.5
action 1 [2]
1 : 1
state 1
action 0
1 : 1
"""
SETTINGS = {"discount": 0.9, "policy": "uniform"}


def written(folder, text, name="model.drn"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def assert_refused(path, *words, **settings):
    assert_model_refused(path, *words, **(SETTINGS | settings))


def test_what_a_file_says(tmp_path):
    model = load_model(written(tmp_path, ROBOT), rewards="fuel", **SETTINGS)
    task, q = model.task, model.kernel
    assert task.actions == ("down", "right", "stuck", "left", "up")
    assert task.states is None
    assert task.initial.tolist() == [1, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(q[0, 0], [0, 0.1, 0, 0.8, 0.1, 0])
    np.testing.assert_allclose(q[4, 3], [0, 0, 0, 0.6, 0.4, 0])
    assert q[0, 2].sum() == 0  # nothing is known about a pair that is not there
    assert (task.policy > 0).sum(axis=1).tolist() == [2, 2, 1, 1, 2, 2]
    assert task.rewards[0].tolist() == [2.5, 2.5, 0, 0, 0]
    assert task.rewards[2, 2] == pytest.approx(3.6)
    assert task.support is None


def test_the_value_by_hand(tmp_path):
    """Two states: V(1) = 0 and V(0) = 1 + 1/2 (0 + 0.9 V(0)/2) + 1/2 * 2, so V(0) = 2 / (1 - 0.225)."""
    model = load_model(written(tmp_path, PLAIN), **SETTINGS)
    assert pt.value(model.task, model.kernel) == pytest.approx(2 / (1 - 0.9 / 4), rel=1e-12)
    only = load_model(written(tmp_path, PLAIN), discount=0.5, policy={0: 1, 1: 0})
    assert pt.value(only.task, only.kernel) == pytest.approx(3.0, rel=1e-12)


def test_known_support(tmp_path):
    """With the graph known, rows with one successor are known, and the range of values is smaller."""
    path = written(tmp_path, ROBOT)
    free = load_model(path, rewards="steps", **SETTINGS)
    known = load_model(path, rewards="steps", known_support=True, **SETTINGS)
    assert known.task.support.tolist() == (known.kernel > 0).tolist()
    assert known.task.known_rows.sum() == 5
    low, high = pt.value_range(free.task)
    assert low <= pt.value_range(known.task)[0] <= pt.value(known.task, known.kernel) <= pt.value_range(known.task)[1]
    assert pt.value_range(known.task)[1] <= high
    assert pt.value_range(known.task) != (low, high)


def test_the_test_runs_on_such_a_model(tmp_path):
    """Pairs that are not there are never sampled."""
    model = load_model(written(tmp_path, ROBOT), rewards="steps", known_support=True, **SETTINGS)
    verdict = pt.decide(model.task, pt.TabularSimulator(model.kernel), threshold=0.5, delta=0.1, rng=1)
    assert verdict.answer == "above"
    assert verdict.counts.visits[model.task.policy == 0].sum() == 0


def test_policies_keep_to_what_is_offered(tmp_path):
    path = written(tmp_path, ROBOT)
    chosen = {0: "down", 1: "right", 2: "stuck", 3: "stuck", 4: "left", 5: {"up": 0.5, "left": 0.5}}
    model = load_model(path, rewards="time", discount=0.5, policy=chosen)
    assert model.task.policy[5].tolist() == [0, 0, 0, 0.5, 0.5]
    words = ["policy takes (s=0, a=4 'up') with probability 1", "the actions there are: 0 'down', 1 'right'"]
    assert_refused(path, *words, rewards="time", policy=chosen | {0: "up"})
    words = ["policy takes (s=0, a=2 'stuck') with probability 0.2"]
    assert_refused(path, *words, rewards="time", policy=np.full((6, 5), 0.2))


def test_initial_states(tmp_path):
    path = written(tmp_path, ROBOT)
    assert load_model(path, rewards="time", initial="goal", **SETTINGS).task.initial.tolist() == [0, 0, 0.5, 0.5, 0, 0]
    assert load_model(path, rewards="time", initial={"5": 1.0}, **SETTINGS).task.initial[5] == 1
    assert load_model(path, rewards="time", initial="risky place", **SETTINGS).task.initial[1] == 1
    path = written(tmp_path, ROBOT.replace("home", "init"))
    assert_refused(path, "2 states are labelled init", 'initial="init"', rewards="time")
    assert load_model(path, rewards="time", initial="init", **SETTINGS).task.initial[[0, 5]].tolist() == [0.5, 0.5]
    assert_refused(written(tmp_path, ROBOT.replace("init", "")), "no states are labelled init", rewards="time")


def test_side_files(tmp_path):
    path = written(tmp_path, PLAIN)
    side = {"discount": 0.5, "threshold": 2.0, "policy": ["1", 0], "support": "kernel", "initial": {"0": 1.0}}
    written(tmp_path, json.dumps(side), "model.task.json")
    model = load_model(path)
    assert (model.task.discount, model.threshold) == (0.5, 2.0)
    assert pt.value(model.task, model.kernel) == pytest.approx(3.0)
    assert load_model(path, discount=0.25, threshold=1).task.discount == 0.25
    written(tmp_path, "discount = 0.5\n", "model.task.toml")
    assert_refused(path, "two side files", "model.task.toml and model.task.json")
    (tmp_path / "model.task.json").unlink()
    written(tmp_path, "kernel = [[[1.0]]]\n", "model.task.toml")
    assert_refused(path, "model.task.toml: a side file has no kernel")
    written(tmp_path, "discont = 0.5\n", "model.task.toml")
    assert_refused(path, "model.task.toml: unknown key 'discont'", "'discount'")
    written(tmp_path, "actions = 3\n", "model.task.toml")
    assert_refused(path, "actions is 3")


def test_what_no_side_file_said(tmp_path):
    path = written(tmp_path, PLAIN)
    with pytest.raises(InputError, match=r"missing: policy, discount.*--policy.*\.task\.toml"):
        load_model(path)
    with pytest.raises(InputError, match=r"missing: discount.*pass discount="):
        load_model(path, policy="uniform")
    without = re.sub(r" \[.\]", "", PLAIN.replace("r\n", "\n", 1))
    assert_refused(written(tmp_path, without), "missing: rewards", ".task.toml")
    assert load_model(path, rewards=np.ones((2, 2)), **SETTINGS).task.rewards.tolist() == [[1, 1], [1, 1]]


def test_chains_have_one_action(tmp_path):
    text = PLAIN.replace("MDP", "DTMC").replace("action 1 [2]\n1 : 1\n", "")
    model = load_model(written(tmp_path, text), **SETTINGS)
    assert model.task.policy.tolist() == [[1], [1]]


def test_choices_without_names(tmp_path):
    """Some named, some not, one twice: every choice of a state is an action of its own."""
    text = PLAIN.replace("action 0 [0]", "action go [0]").replace("action 1 [2]", "action go [2]")
    model = load_model(written(tmp_path, text.replace("action 0\n", "action __NOLABEL__\n")), **SETTINGS)
    assert model.task.actions == ("go", "go#2", "#0")
    assert model.task.policy.tolist() == [[0.5, 0.5, 0], [0, 0, 1]]


def test_large_models_stay_sparse(tmp_path):
    """A ring of 30,000 states and two actions: the dense table would take 14 GB."""
    S = 30_000
    lines = ["@type: MDP", "@reward_models", "r", "@nr_states", str(S), "@model"]
    for s in range(S):
        lines += [f"state {s} [1]{' init' if s == 0 else ''}", "action 0", f"{(s + 1) % S} : 0.5", f"{s} : 0.5"]
        lines += ["action 1", f"{(s + 7) % S} : 1"]
    model = load_model(written(tmp_path, "\n".join(lines)), known_support=True, **SETTINGS)
    assert arrays.is_sparse(model.kernel)
    assert model.kernel.shape == (2 * S, S)
    assert pt.value(model.task, model.kernel) == pytest.approx(10.0)


REFUSED = {
    "type": (PLAIN.replace("MDP", "POMDP"), ["@type is POMDP"]),
    "no type": (PLAIN.replace("@type: MDP\n", ""), ["@type is missing"]),
    "parameters": (PLAIN.replace("@reward", "@parameters\np q\n@reward"), ["parameters p q"]),
    "placeholders": (PLAIN.replace("@reward", "@placeholders\n$0 : 1/3\n@reward"), ["@placeholders"]),
    "interval values": (PLAIN.replace("@reward", "@value_type: double-interval\n@reward"), ["double-interval"]),
    "interval": (PLAIN.replace("0 : 0.5", "0 : [0.4,0.6]"), ["line 9", "interval"]),
    "twice": (PLAIN.replace("@reward", "@nr_states\n2\n@reward"), ["line 6: @nr_states is there twice"]),
    "section": (PLAIN.replace("@reward_models", "@rewards"), ["line 2: @rewards is not known"]),
    "other file": ("hello\n", ["line 1", "not a DRN file"]),
    "empty": ("", ["no @model"]),
    "too few states": (PLAIN.replace("2\n@model", "3\n@model"), ["@nr_states says 3, but there are 2", "cut short"]),
    "cut short": (PLAIN[: PLAIN.index("state 1")], ["@nr_states says 2, but there are 1", "cut short"]),
    "huge": (PLAIN.replace("2\n@model", f"{10**14}\n@model"), ["@nr_states says"]),
    "choices": (PLAIN.replace("@model", "@nr_choices\n9\n@model"), ["@nr_choices says 9, but there are 3"]),
    "order": (PLAIN.replace("state 1", "state 2"), ["line 13: state 2 where state 1 is due"]),
    "target": (PLAIN.replace("1 : 1\n", "7 : 1\n", 1), ["line 12: there is no state 7", "0 to 1"]),
    "negative target": (PLAIN.replace("0 : 0.5", "-1 : 0.5"), ["line 9: '-1' is no state"]),
    "sum": (PLAIN.replace("0 : 0.5", "0 : 0.4"), ["kernel at (s=0, a=0) sums to 0.9", '"normalise" to true in model']),
    "negative": (PLAIN.replace("0 : 0.5", "0 : -0.5"), ["line 9: -0.5", "negative"]),
    "not a number": (PLAIN.replace("0 : 0.5", "0 : half"), ["line 9: 'half' is not a number"]),
    "nan": (PLAIN.replace("0 : 0.5", "0 : nan"), ["line 9: 'nan' is not a number"]),
    "infinite": (PLAIN.replace("0 : 0.5", "0 : 1e999"), ["line 9: 1e999 is out of range"]),
    "division": (PLAIN.replace("0 : 0.5", "0 : 1/0"), ["line 9: 1/0 divides by 0"]),
    "target twice": (PLAIN.replace("1 : 0.5", "0 : 0.5"), ["line 10", "before"]),
    "no colon": (PLAIN.replace("0 : 0.5", "0 0.5"), ["line 9: expected `target : probability`"]),
    "no action": (PLAIN.replace("action 0 [0]\n", ""), ["line 8: expected `state` or `action`"]),
    "action first": (PLAIN.replace("state 0 [1] init\n", ""), ["line 7: an action before the first state"]),
    "no choice": (PLAIN.replace("action 0\n1 : 1\n", ""), ["state 1 has no transitions"]),
    "action twice": (PLAIN.replace("action 1", "action 0"), ["state 0 has the choice 0 twice"]),
    "rate": (PLAIN.replace("state 1", "state 1 !3"), ["line 13: rates"]),
    "observation": (PLAIN.replace("state 1", "state 1 {3}"), ["line 13: rates (!) and observations"]),
    "reward": (PLAIN.replace("[2]", "[two]"), ["line 11: 'two' is not a number"]),
    "after the action": (PLAIN.replace("[2]", "[2] what"), ["line 11: 'what' after the action"]),
    "many actions": (PLAIN.replace("action 1", f"action {10**12}"), ["pairs"]),
}


@each("name", REFUSED)
def test_refused(tmp_path, name):
    text, words = REFUSED[name]
    assert_refused(written(tmp_path, text), *words)


def test_reward_models(tmp_path):
    path = written(tmp_path, ROBOT)
    assert_refused(path, "reward models 'steps', 'fuel', 'time'", "rewards='steps'")
    assert_refused(path, "rewards is 'money'", "'steps', 'fuel', 'time'", rewards="money")


STORM = ROOT / "tests" / "sources" / "storm"
"""Models that Storm exported, and Storm's values of them; made by the script there."""
VALUES = json.loads((STORM / "values.json").read_text())


def extreme_values(path, name):
    """The least and the largest value of the deterministic policies, in a small model."""
    model = load_model(path, rewards=name, policy="uniform", discount=0.95)
    offered = [np.flatnonzero(row) for row in model.task.policy > 0]
    policies = (np.eye(model.task.n_actions)[list(choice)] for choice in itertools.product(*offered))
    values = [value(replace(model.task, policy=policy), model.kernel) for policy in policies]
    return [min(values), max(values)]


@pytest.mark.parametrize(("file", "digits"), [("{}.drn", 7), ("{}.exact.drn", 12)], ids=["double", "exact"])
@pytest.mark.parametrize("model", sorted(set(VALUES) - {"coin"}))
def test_models_that_storm_exported_have_its_values(model, file, digits):
    """For every reward model, named or not, in whichever place Storm puts it; min and max over all policies."""
    path = STORM / file.format(model)
    for name, ends in VALUES[model].items():
        np.testing.assert_allclose(extreme_values(path, name), ends, rtol=10.0**-digits)
    if len(VALUES[model]) > 1:
        assert_refused(path, "reward models", *(repr(name) for name in VALUES[model]))
    else:
        np.testing.assert_allclose(extreme_values(path, None), ends, rtol=10.0**-digits)


def test_the_unnamed_reward_model_is_never_guessed(tmp_path):
    """Columns and names must fit: a blank that an editor removed is noticed, unless it makes no difference."""
    lone, beside = (STORM / f"{name}.drn" for name in ("weather", "walk"))
    stripped = written(tmp_path, "\n".join(line.strip() for line in lone.read_text().splitlines()))
    np.testing.assert_allclose(extreme_values(stripped, ""), VALUES["weather"][""], rtol=1e-7)
    assert_refused(lone, "rewards is 'x'; the reward models of the file are ''", rewards="x")
    text = beside.read_text().replace("cost  \n", "cost\n")
    assert_refused(written(tmp_path, text), "line 14: 2 rewards, but @reward_models has 'cost'")
    assert_refused(written(tmp_path, text.replace("cost\n", "cost cost \n")), "a name twice", "one blank")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_reads_a_model_has_the_options_that_its_messages_name(command, capsys):
    ask = [*command.format(*[str(STORM / "walk.drn")] * 2).split(), "--discount", "0.95"]
    assert main(ask) == 2
    assert "say which with --rewards cost" in capsys.readouterr().err
    assert main([*ask, "--rewards", "", "--initial", "nowhere"]) == 2
    assert "unknown state 'nowhere' in initial" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "code"), [(["--rewards", ""], 0), (["--rewards", "cost"], 1)])
def test_a_reward_model_on_the_command_line(options, code):
    """The values are 1997 and 6.6."""
    ask = ["decide", str(STORM / "walk.drn"), "--discount", "0.95", "--threshold", "20", "--quiet"]
    assert main([*ask, *options]) == code
    assert main([*ask, *options, "--initial", "4"]) == code


def test_options_that_are_not_for_this_model(capsys):
    for option, words in (("--rewards", "a reward model of a .drn or .tra file"), ("--initial", "is for task files")):
        assert main(["decide", "paper-2", "--threshold", "0", option, "0"]) == 2
        assert words in capsys.readouterr().err


def test_rounded_numbers(tmp_path):
    path = written(tmp_path, PLAIN.replace("0.5", "0.333"))
    assert_refused(path, "sums to 0.666")
    assert load_model(path, normalise=True, **SETTINGS).kernel[0, 0].tolist() == [0.5, 0.5]


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "model.drn"
    path.write_bytes(b"@type: MDP\n\xff")
    assert_refused(path, "byte 11 is not UTF-8")


def test_damage_is_refused_or_read(tmp_path):
    """Whatever one wrong character does: a model or an InputError, never another exception."""
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(120):
        text = list(PLAIN)
        text[rng.integers(len(text))] = rng.choice(list("0123456789:[]/.-eE@! \nstateaction{}\x00é"))
        path = written(tmp_path, "".join(text))
        try:
            load_model(path, **SETTINGS)
        except InputError:
            refused += 1
    assert 40 < refused < 120


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("form", [np.asarray, lambda q: sparse.csr_array(q.reshape(-1, q.shape[-1]))])
@pytest.mark.parametrize("make", [lambda: instances.paper(3), lambda: instances.grid_world(3, 2)])
def test_a_model_written_is_read_back(tmp_path, make, form):
    instance = make()
    path = tmp_path / "model.drn"
    save_model(path, instance.task, form(instance.kernel), threshold=0.25)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.drn", "model.task.json"]
    model = load_model(path)
    for name in ("rewards", "policy", "initial", "support"):
        np.testing.assert_array_equal(getattr(model.task, name), getattr(instance.task, name))
    assert (model.task.states, model.task.actions) == (instance.task.states, instance.task.actions)
    np.testing.assert_array_equal(model.kernel, instance.kernel)
    assert (model.task.discount, model.threshold) == (instance.task.discount, 0.25)


@given(st.data())
def test_any_model_is_read_back_exactly(tmp_path_factory, data):
    """Pairs that the policy never takes may be missing; names may be such that a DRN file cannot hold them."""
    S, A = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    taken = np.array(data.draw(st.lists(st.booleans(), min_size=S * A, max_size=S * A))).reshape(S, A)
    taken[np.arange(S), data.draw(st.lists(st.integers(0, A - 1), min_size=S, max_size=S))] = True
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    kernel = rng.dirichlet(np.ones(S), size=(S, A)) * taken[:, :, None]
    names = st.text(min_size=1, max_size=3) | st.sampled_from(["go", "0", "a b", "__NOLABEL__", "#0"])
    actions = data.draw(st.none() | st.lists(names, min_size=A, max_size=A, unique=True))
    rewards = np.where(taken, rng.normal(size=(S, A)), 0.0)
    task = Task(rewards, taken / taken.sum(axis=1, keepdims=True), rng.dirichlet(np.ones(S)), 0.9, actions=actions)
    path = tmp_path_factory.mktemp("any") / "model.drn"
    save_model(path, task, kernel)
    model = load_model(path)
    np.testing.assert_array_equal(model.kernel, kernel)
    np.testing.assert_array_equal(model.task.rewards, task.rewards)
    np.testing.assert_array_equal(model.task.policy, task.policy)
    np.testing.assert_array_equal(model.task.initial, task.initial)
    assert model.task.actions == task.actions


def test_what_a_drn_file_cannot_hold(tmp_path):
    path = tmp_path / "model.drn"
    two = instances.paper(2)
    for task, kernel, words in (
        (two.task, None, "pass the kernel"),
        (Task(np.ones((2, 2, 2)), two.task.policy, two.task.initial, 0.9), two.kernel, "rewards are on"),
    ):
        with pytest.raises(InputError, match=words):
            save_model(path, task, kernel)
    written(tmp_path, "discount = 0.5\n", "model.task.toml")
    with pytest.raises(InputError, match="there is a side file"):
        save_model(path, two.task, two.kernel)
    assert [file.name for file in tmp_path.iterdir()] == ["model.task.toml"]
    with pytest.raises(InputError, match=r"'.tra', which cannot be written; use .json, .toml, .npz or .drn"):
        save_model(tmp_path / "model.tra", two.task, two.kernel)
