"""What model checkers say beside the transitions: labels, values of variables, schedulers, choices that differ."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import policytest as pt
from builders import each
from paths import ROOT
from policytest._base.errors import InputError
from policytest.cli import main
from policytest.sources import load_model, load_policy, save_model
from source_builders import assert_model_refused

STORM = ROOT / "tests" / "sources" / "storm"
"""Models that Storm exported, schedulers, and Storm's values of them; made by the script there."""
SETTINGS = {"discount": 0.9, "policy": "uniform"}
SWITCH = """@type: MDP
@reward_models
r
@nr_states
4
@nr_choices
6
@model
state 0 [1] init
//[!on	& x=0	& i=0]
	action go [0]
		1 : 0.5
		2 : 0.5
	action stay [0]
		0 : 1
state 1 [0] low
//[!on	& x=1	& i=0]
	action stay [0]
		1 : 1
	action go [0]
		3 : 1
state 2 [0]
//[	& x=1	& i=0]
	action stay [0]
		2 : 1
state 3 [0] low goal
//[!on	& x=2	& i=-3]
	action stay [0]
		3 : 1
"""
"""As Storm writes it: nothing stands for a truth value that holds (state 2)."""
CHOSEN = [
    {
        "s": {"on": False, "x": 0, "i": 0},
        "c": [{"index": 0, "labels": ["go"], "prob": 0.25}, {"index": 1, "prob": "3/4"}],
    },
    {"s": {"i": 0, "on": False, "x": 1}, "c": [{"index": 3, "labels": ["go"], "prob": 1.0}]},
]


def switch(folder, text=SWITCH, name="switch.drn"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def begins(path, state):
    """The states in which an episode begins that is said to begin there."""
    return np.flatnonzero(load_model(path, initial=state, **SETTINGS).task.initial).tolist()


def test_states_are_named_after_their_variables(tmp_path):
    path = switch(tmp_path)
    names = ("!on & x=0 & i=0", "!on & x=1 & i=0", "on & x=1 & i=0", "!on & x=2 & i=-3")
    assert load_model(path, **SETTINGS).task.states == names
    assert [begins(path, name) for name in names] == [[0], [1], [2], [3]]
    assert [begins(path, at) for at in ("x=1", "x=1 & on", "i=0&!on", "low", "2")] == [[1, 2], [2], [0, 1], [1, 3], [2]]
    assert_model_refused(path, "unknown state 'lo' in initial", "did you mean 'low'?", initial="lo", **SETTINGS)
    words = "initial: no state satisfies 'x=7'; choose another condition"
    assert_model_refused(path, words, initial="x=7", **SETTINGS)


CONDITIONS = {
    "x!=1": [0, 3],
    "x<2": [0, 1, 2],
    "x <= 1": [0, 1, 2],
    "x>=1": [1, 2, 3],
    "i<0": [3],
    "i=-3 | x=0": [0, 3],
    "(x=1 | x=2)": [1, 2, 3],
    "(x=1 | x=2) & !on": [1, 3],
    "!x=1": [0, 3],  # as in PRISM: !(x=1)
    "!(on | x=0)": [1, 3],
    "x=1 | x=0 & on": [1, 2],
    "!on & low": [1, 3],
    '"low" & x!=1': [3],
    '!"low"': [0, 2],
    "on=true": [2],
    "on!=true": [0, 1, 3],
    "x>i": [1, 2, 3],
    "x=i": [0],
    "0<x": [1, 2, 3],
    "!!on": [2],
}
"""On the states of `SWITCH`; a name is a variable, or a label."""
NOT_CONDITIONS = {
    "x<": "expected a variable, a label or a number, found the end",
    "x=1 &": "found the end",
    "(x=1": "a parenthesis is not closed",
    "x=1)": "unexpected ')'",
    "x=1 x=2": "unexpected 'x'",
    "x=1 ; x=2": "unexpected ';'",
    "y=1": "there is no variable or label 'y'; known are 'on', 'x', 'i'",
    '"lo" | x=1': "there is no label 'lo'; did you mean 'low'?",
    "on<1": "< compares numbers",
    "on=1": "= compares numbers, or two truth values",
    "!x": "compare it, as in x=2",
    "x & on": "compare it, as in x=2",
    "x>7": "no state satisfies 'x>7'; choose another condition",
}


@each("condition", CONDITIONS)
def test_conditions_name_the_states_in_which_they_hold(tmp_path, condition):
    path, holds = switch(tmp_path), CONDITIONS[condition]
    assert begins(path, condition) == holds
    others = sorted({0, 1, 2, 3} - set(holds))
    switch(tmp_path, f"terminal = ['{condition}']\n", "switch.task.toml")
    assert load_model(path, initial=[0.25] * 4, **SETTINGS).task.ends == holds
    (tmp_path / "switch.task.toml").unlink()
    if others:
        task = load_model(path, goal=[condition], initial=int(others[0]), policy="uniform").task
        assert task.goals.tolist() == holds


@each("condition", NOT_CONDITIONS)
def test_conditions_that_are_refused(tmp_path, condition):
    words = f"goal: no state satisfies {condition!r}" if "satisfies" in NOT_CONDITIONS[condition] else "the condition"
    assert_model_refused(switch(tmp_path), words, NOT_CONDITIONS[condition], goal=[condition], policy="uniform")


def test_conditions_without_variables_are_about_labels(tmp_path):
    bare = "".join(line + "\n" for line in SWITCH.splitlines() if not line.startswith("//"))
    path = switch(tmp_path, bare)
    assert begins(path, "low & !goal") == [1]
    assert_model_refused(path, "there is no variable or label 'x'", initial="x=1", **SETTINGS)


def test_a_goal_that_is_to_be_avoided_counts_as_reached(tmp_path, capsys):
    """As in PCTL's !low U goal, where state 3 is both: the same as avoiding state 1 alone."""
    path = switch(tmp_path)
    expected = load_model(path, goal=["goal"], avoid=["x=1 & !on"], policy="uniform")
    with pytest.warns(UserWarning, match="goal and avoid both have the state 3 .*: entering it counts as reaching"):
        model = load_model(path, goal=["goal"], avoid=["low"], policy="uniform")
    assert model.task.ends == expected.task.ends == [1, 3]
    assert pt.value(model.task, model.kernel) == pt.value(expected.task, expected.kernel)
    ask = ["decide", str(path), "--goal", "goal", "--avoid", "low", "--policy", "uniform", "--threshold", "0.5"]
    assert main([*ask, "--max-samples", "2", "--quiet"]) in (1, 3)
    assert "warning: goal and avoid both have the state 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changed",
    [
        ("//[!on	& x=0	& i=0]\n", ""),
        ("x=2	& i=-3", "x=1	& i=0"),
        ("& i=-3", ""),
        ("x=2", "y=2"),
        ("//[	& x=1", "//[!on	& x=1"),
    ],
    ids=["one is missing", "two are the same", "one is shorter", "another variable", "the same twice"],
)
def test_remarks_that_do_not_name_every_state_name_none(tmp_path, changed):
    assert changed[0] in SWITCH
    assert load_model(switch(tmp_path, SWITCH.replace(*changed)), **SETTINGS).task.states is None


def test_values_of_variables_in_prisms_files(tmp_path):
    for name, text in {
        "model.tra": "3 3 3\n0 0 1 1\n1 0 2 1\n2 0 2 1\n",
        "model.sta": "(x,done)\n0:(0,false)\n1:(1,false)\n2:(1,true)\n",
        "model.lab": '0="init" 1="deadlock" 2="end"\n0: 0\n2: 2\n',
        "model.srew": "3 1\n0 1\n",
    }.items():
        (tmp_path / name).write_text(text)
    path = tmp_path / "model.tra"
    assert [begins(path, at) for at in ("(1,true)", "x=1", "done", "!done & x=1", "end")] == [
        [2],
        [1, 2],
        [2],
        [1],
        [2],
    ]
    assert_model_refused(path, "no state has the label 'deadlock'", initial="deadlock", **SETTINGS)


@pytest.mark.parametrize("ending", ["srew", "trew"])
def test_what_messages_about_numbered_rewards_and_starts_promise(tmp_path, capsys, ending):
    """Every option that a message names does what it says."""
    first = "2 1\n0 1\n" if ending == "srew" else "2 2 1\n0 0 1 1\n"
    for name, text in {
        "model.tra": "2 2 3\n0 0 0 0.5\n0 0 1 0.5\n1 0 1 1\n",
        "model.lab": '0="init" 1="end"\n0: 0\n1: 0 1\n',
        f"model1.{ending}": first,
        f"model2.{ending}": first.replace(" 1\n", " 9\n").replace("2 9", "2 1", 1),
    }.items():
        (tmp_path / name).write_text(text)
    ask = ["decide", str(tmp_path / "model.tra"), "--threshold", "0.3", "--quiet"]
    for words, option in (
        (f"several reward structures (model1.{ending}, ...); say which with --rewards 1", ["--rewards", "1"]),
        ("2 states are labelled init; pass --initial init to begin in each of them", ["--initial", "init"]),
        ("missing: discount, which this .tra file does not hold; pass --discount, or", ["--discount", "0.5"]),
    ):
        assert main(ask) == 2
        assert words in capsys.readouterr().err
        ask += option
    assert main(ask) == 0
    assert main([*ask, "--initial", "end"]) == 1


def test_a_label_names_the_states_where_episodes_end(tmp_path):
    path = switch(tmp_path)
    task = load_model(path, **SETTINGS).task
    assert task.terminal is None
    switch(tmp_path, 'terminal = ["low", "x=1 & on"]\n', "switch.task.toml")
    task = load_model(path, **SETTINGS).task
    assert task.ends == [1, 2, 3]
    switch(tmp_path, 'terminal = ["goals"]\n', "switch.task.toml")
    assert_model_refused(path, "unknown state 'goals' in terminal", "did you mean 'goal'?", **SETTINGS)


def test_what_happens_after_the_end_of_an_episode_is_left_out(tmp_path):
    """State 0 earns 1 and is left again: as an end it is followed by itself at reward 0, as in Storm's R [F ...]."""
    path = switch(tmp_path, SWITCH.replace("		1 : 1\n", "		0 : 1\n"))
    switch(tmp_path, 'terminal = ["goal", "x=0"]\n', "switch.task.toml")
    model = load_model(path, initial="x=1 & !on", **SETTINGS)
    assert model.kernel[0].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
    assert model.task.rewards[0].tolist() == [0, 0]
    assert pt.value(model.task, model.kernel) == 0


# ---------------------------------------------------------------- schedulers


def scheduler(folder, entries, name="chosen.json"):
    path = folder / name
    path.write_text(json.dumps(entries))
    return path


def test_a_scheduler_is_a_policy(tmp_path):
    """Choice 3 of the model is the second one of state 1, `go`, which is its first action."""
    path = switch(tmp_path)
    assert load_model(path, **SETTINGS).task.actions == ("go", "stay")
    by_values = load_model(path, discount=0.9, policy=scheduler(tmp_path, CHOSEN)).task.policy
    assert by_values.tolist() == [[0.25, 0.75], [1, 0], [0, 1], [0, 1]]
    numbered = [{**entry, "s": s} for s, entry in enumerate(CHOSEN)]
    assert (
        load_model(path, discount=0.9, policy=scheduler(tmp_path, numbered)).task.policy.tolist() == by_values.tolist()
    )
    ask = ["decide", str(path), "--discount", "0.9", "--threshold", "1.1", "--quiet"]
    assert main([*ask, "--policy", str(tmp_path / "chosen.json")]) == 0
    assert main([*ask, "--policy", str(scheduler(tmp_path, [{"s": 0, "c": [{"index": 0}]}, numbered[1]]))]) == 1


WRONG = {
    "memory": ([{**CHOSEN[0], "m": 0}], "entry 0 has a memory state"),
    "twice": ([CHOSEN[0], CHOSEN[0]], "entry 1: state '!on & x=0 & i=0' is there twice"),
    "another model": ([{"s": {"y": 0}, "c": []}], "entry 0: s is y=0, and 0 states have them"),
    "too few variables": ([{"s": {"x": 1}, "c": []}], "entry 0: s is x=1, and 2 states have them"),
    "no state": ([{"s": 4, "c": []}], "entry 0: s is 4; states are 0 to 3"),
    "no choice": ([{"s": 0, "c": [{"index": 6, "prob": 1}]}], "entry 0: there is no choice 6; the model has 6"),
    "of another state": ([{"s": 0, "c": [{"index": 2, "prob": 1}]}], "choice 2 is one of state '!on & x=1 & i=0'"),
    "not a choice": ([{"s": 0, "c": ["go"]}], "entry 0: a choice is 'go'; expected index and prob"),
    "left out": ([CHOSEN[0]], "there is no choice in state '!on & x=1 & i=0', which has several"),
    "undefined": ([CHOSEN[0], {"s": 1, "c": "undefined"}], "there is no choice in state '!on & x=1 & i=0'"),
    "half": ([{"s": 0, "c": [{"index": 0, "prob": 0.5}]}, CHOSEN[1]], "sums to 0.5, not 1"),
    "odd number": ([{"s": 0, "c": [{"index": 0, "prob": "much"}]}], "'much' is not a number"),
}


@each("name", WRONG)
def test_schedulers_that_are_refused(tmp_path, name):
    entries, words = WRONG[name]
    assert_model_refused(switch(tmp_path), words, discount=0.9, policy=scheduler(tmp_path, entries))


def test_a_scheduler_belongs_to_the_file_of_its_model(tmp_path):
    task = load_model(switch(tmp_path), **SETTINGS).task
    with pytest.raises(InputError, match=r"chosen\.json: this is a scheduler of Storm.*with the \.drn or \.tra file"):
        load_policy(scheduler(tmp_path, CHOSEN), task)


# ---------------------------------------------------------------- actions that differ by state


def test_actions_that_are_not_there(tmp_path):
    """The task knows them: a policy, and a row of a log, that takes one of them is refused."""
    model = load_model(switch(tmp_path), **SETTINGS)
    assert model.task.available.tolist() == [[True, True], [True, True], [False, True], [False, True]]
    log = tmp_path / "log.csv"
    log.write_text("s,a,s_next\n!on & x=0 & i=0,go,on & x=1 & i=0\non & x=1 & i=0,go,on & x=1 & i=0\n")
    with pytest.raises(InputError, match="an action that is not available in that state"):
        pt.sources.logs(log, model.task)
    for form in ("json", "toml", "npz", "drn"):
        copy = tmp_path / f"copy.{form}"
        save_model(copy, model.task, model.kernel)
        assert load_model(copy).task.available.tolist() == model.task.available.tolist()
    assert load_model(STORM / "die.drn", discount=0.9).task.available is None


# ---------------------------------------------------------------- questions that model checkers are asked


QUESTIONS = json.loads((STORM / "questions.json").read_text())
CASES = [(model, policy) for model, asked in QUESTIONS.items() for policy in asked]


def assert_storms_values(path, policy, questions, digits):
    """Probabilities of reaching labels, with and without states to avoid and a bound on the steps; and totals."""
    chosen = policy if policy == "uniform" else STORM / policy
    for asked in questions:
        question = {key: value for key, value in asked.items() if key != "value"}
        model = load_model(path, policy=chosen, **question)
        assert pt.value(model.task, model.kernel) == pytest.approx(asked["value"], rel=digits, abs=digits), question


@pytest.mark.filterwarnings("ignore:goal and avoid both have the state")  # which counts as reached
@pytest.mark.parametrize(("model", "policy"), CASES)
def test_values_of_labels_are_those_of_storm(model, policy):
    """P=? [F goal], P=? [F<=k goal], P=? [!avoid U goal], R=? [F done] and R=? [C<=k], of ten models.

    Goals and states to avoid are labels, or conditions on variables as PRISM writes them; some have states in common.
    """
    assert_storms_values(STORM / f"{model}.exact.drn", policy, QUESTIONS[model][policy], 1e-9)
    assert_storms_values(STORM / f"{model}.drn", policy, QUESTIONS[model][policy], 1e-6)  # ten digits are printed


def test_all_kinds_of_questions_are_among_them():
    assert len(QUESTIONS) == 10
    asked = [frozenset(question) - {"value", "discount"} for model, by in CASES for question in QUESTIONS[model][by]]
    kinds = [{"goal"}, {"goal", "horizon"}, {"goal", "avoid"}, {"goal", "avoid", "horizon"}]
    kinds += [{"rewards", "terminal"}, {"rewards", "horizon"}]
    assert set(asked) == set(map(frozenset, kinds))
    values = [question["value"] for model, by in CASES for question in QUESTIONS[model][by] if "goal" in question]
    assert sum(0.01 < value < 0.99 for value in values) > 30  # they tell right answers from wrong ones


# ---------------------------------------------------------------- the best of all policies


VALUES = json.loads((STORM / "values.json").read_text())
BEST = {"inventory": "", "network": "sent", "robot": "fuel", "treatment": "price"}


@pytest.mark.parametrize("method", [None, pt.PTST(), pt.KLBTS()], ids=["betting", "ptst", "klb-ts"])
@pytest.mark.parametrize("name", BEST)
def test_the_best_policy_takes_actions_that_are_there(name, method):
    """Its value is the largest one that Storm found; KLB-TS is slow, and asked for its estimate only."""
    model = load_model(
        STORM / f"{name}.exact.drn", rewards=BEST[name], policy="uniform", discount=0.95, known_support=True
    )
    task, most = model.task, VALUES[name][BEST[name]][1]
    found = pt.identify(
        task.rewards,
        task.initial,
        task.discount,
        pt.TabularSimulator(model.kernel),
        support=task.support,
        available=task.available,
        method=method,
        max_samples=20_000,
    )
    assert not task.available.all()
    assert (found.policy[~task.available] == 0).all()
    assert pt.value(replace(task, policy=found.policy), model.kernel) == pytest.approx(most, rel=1e-9)
    choices = int(task.available.sum()) - task.n_states
    assert found.questions == choices
    assert (found.answered, found.certified) == {None: (True, True)}.get(method, (isinstance(method, pt.PTST), False))


def test_the_best_policy_on_the_command_line(capsys):
    ask = ["identify", str(STORM / "treatment.drn"), "--policy", "uniform", "--rewards", "price", "--discount", "0.95"]
    assert main([*ask, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["policy"] == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    candidate = ["--candidate", str(STORM / "treatment.scheduler.json")]
    assert main([*ask, *candidate, "--quiet"]) == 0  # the only one
    capsys.readouterr()


def test_a_scheduler_is_compared_with_the_policy_of_a_model(capsys):
    ask = ["compare", str(STORM / "treatment.drn"), str(STORM / "treatment.scheduler.json"), "--policy", "uniform"]
    assert main([*ask, "--rewards", "price", "--discount", "0.95", "--quiet", "--margin", "-1"]) == 1
    assert main([*ask[:2], str(STORM / "values.json"), *ask[3:], "--rewards", "price", "--discount", "0.95"]) == 2
    assert "values.json is not one" in capsys.readouterr().err  # an object is a task


def test_the_other_model_of_a_comparison_needs_a_policy_of_its_own(tmp_path, capsys):
    """--policy is that of the first model, so that the message names only the side file, which works."""
    path = switch(tmp_path)
    other = switch(tmp_path, name="other.drn")
    ask = ["compare", str(path), str(other), "--policy", "uniform", "--discount", "0.5", "--margin", "-9", "--quiet"]
    assert main(ask) == 2
    said = capsys.readouterr().err
    assert "other.drn: missing: policy, which this .drn file does not hold; write a side file" in said
    switch(tmp_path, 'policy = "uniform"\n', "other.task.toml")
    assert main(ask) == 0
    capsys.readouterr()


def test_what_is_not_there_for_candidates_and_in_states(tmp_path):
    task = load_model(switch(tmp_path), **SETTINGS).task
    sim = pt.TabularSimulator(load_model(switch(tmp_path), **SETTINGS).kernel)
    some = {"available": task.available, "policies": [np.eye(2)[[0, 0, 0, 1]]]}
    with pytest.raises(InputError, match=r"policies\[0\]: policy takes .*not available there"):
        pt.identify(task.rewards, task.initial, 0.9, sim, **some)
    with pytest.raises(InputError, match="available names no action in state 2"):
        pt.identify(task.rewards, task.initial, 0.9, sim, available=task.available & [[1, 1], [1, 1], [0, 0], [1, 1]])
