"""PRISM's explicit files and Storm's dialect: told apart by the first line, read alike, refused with file and line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import policytest as pt
from builders import each
from paths import ROOT
from policytest._base.errors import InputError
from policytest.mdp.values import value
from policytest.sources import load_model
from source_builders import assert_model_refused

PRISM = {
    "robot.tra": """3 5 7
0 0 1 0.75 right
0 0 2 0.25 right
0 1 0 1 wait
1 0 0 1/3 back
1 0 2 2/3 back
1 1 1 1 wait
2 0 2 1 wait
""",
    "robot.sta": "(x,done)\n0:(0,false)\n1:(1,false)\n2:(1,true)\n",
    "robot.lab": '0="init" 1="deadlock" 2="end"\n0: 0\n2: 1 2\n',
    "robot.srew": "3 2\n0 1.5\n1 -1\n",
    "robot.trew": "3 5 2\n0 0 1 2\n1 0 2 -0.5\n",
}
STORM = {
    "robot.tra": """mdp
0 0 1 0.75
0 0 2 0.25
0 1 0 1
1 0 0 0.3333333333333333
1 0 2 0.6666666666666667
1 1 1 1
2 1 2 1
""",
    "robot.lab": "#DECLARATION\ninit end\n#END\n0 init\n2 end\n",
    "robot.state.rew": "0 1.5\n1 -1\n",
    "robot.trans.rew": "0 0 1 2\n1 0 2 -0.5\n",
}
SETTINGS = {"discount": 0.9, "policy": "uniform"}


def written(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "robot.tra"


def assert_refused(path, *words, **settings):
    assert_model_refused(path, *words, **(SETTINGS | settings))


def test_what_the_files_say(tmp_path):
    model = load_model(written(tmp_path, PRISM), **SETTINGS)
    task, q = model.task, model.kernel
    assert task.states == ("(0,false)", "(1,false)", "(1,true)")
    assert task.actions == ("right", "wait", "back")
    assert task.initial.tolist() == [1, 0, 0]
    assert task.policy.tolist() == [[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 1, 0]]
    np.testing.assert_allclose(q[1, 2], [1 / 3, 0, 2 / 3], rtol=1e-15)
    assert q[0, 2].sum() == q[2, 0].sum() == 0
    assert task.rewards[0, 0].tolist() == [1.5, 3.5, 1.5]  # the state's, and on one transition 2 more
    assert task.rewards[1, 2].tolist() == [-1, -1, -1.5]
    assert task.rewards[2].tolist() == [[0, 0, 0]] * 3


def test_both_dialects_have_one_value(tmp_path):
    """Storm's choices are numbers: the loop of state 2 is its choice 1, since no choice 0 is listed there."""
    values = []
    for files in (PRISM, STORM):
        folder = tmp_path / f"{len(values)}"
        folder.mkdir()
        model = load_model(written(folder, files), known_support=True, **SETTINGS)
        values.append(pt.value(model.task, model.kernel))
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    # by hand: V2 = 0, V1 = -1 + (0.9/3 V0 - 1/3 + 0.9 V1)/2, V0 = 1.5 + (0.75 (2 + 0.9 V1) + 0.9 V0)/2
    gamma = 0.9
    matrix = np.array([[1 - gamma / 2, -0.75 * gamma / 2], [-gamma / 6, 1 - gamma / 2]])
    by_hand = np.linalg.solve(matrix, [1.5 + 0.75, -1 - 1 / 6])
    assert values[0] == pytest.approx(by_hand[0], rel=1e-12)


def test_policies_by_names(tmp_path):
    path = written(tmp_path, PRISM)
    chosen = {"(0,false)": "right", "(1,false)": {"back": 0.5, "wait": 0.5}, "(1,true)": "wait"}
    assert load_model(path, discount=0.5, policy=chosen).task.policy[1].tolist() == [0, 0.5, 0.5]
    assert_refused(path, "policy takes (s=0 '(0,false)', a=2 'back')", policy=chosen | {"(0,false)": "back"})
    assert load_model(path, initial="(1,false)", **SETTINGS).task.initial.tolist() == [0, 1, 0]
    assert load_model(path, initial="end", **SETTINGS).task.initial.tolist() == [0, 0, 1]


def test_companions_are_optional(tmp_path):
    path = written(tmp_path, {"robot.tra": PRISM["robot.tra"], "robot.srew": PRISM["robot.srew"]})
    model = load_model(path, initial=[0.5, 0.5, 0], **SETTINGS)
    assert model.task.states is None
    assert model.task.rewards.tolist() == [[1.5, 1.5, 0], [0, -1, -1], [0, 0, 0]]
    assert_refused(path, "no states are labelled init")


def test_older_endings_and_remarks(tmp_path):
    files = {
        "robot.tra": "# Transitions\n" + PRISM["robot.tra"],
        "robot.lab": "# Labels\n" + PRISM["robot.lab"],
        "robot.rews": '# Reward structure: "a"\n# State rewards\n' + PRISM["robot.srew"],
        "robot.rewt": PRISM["robot.trew"],
    }
    new, old = tmp_path / "new", tmp_path / "old"
    new.mkdir()
    old.mkdir()
    expected, model = (load_model(written(at, part), **SETTINGS) for at, part in ((new, PRISM), (old, files)))
    np.testing.assert_array_equal(model.task.rewards, expected.task.rewards)


def test_several_reward_structures(tmp_path):
    files = {name: text for name, text in PRISM.items() if not name.endswith("rew")}
    files |= {"robot1.srew": "3 1\n0 1\n", "robot2.srew": "3 1\n0 2\n", "robot2.trew": "3 5 1\n0 0 1 7\n"}
    path = written(tmp_path, files)
    assert load_model(path, rewards="1", **SETTINGS).task.rewards[0].tolist() == [1, 1, 0]
    assert load_model(path, rewards="2", **SETTINGS).task.rewards[0, 0].tolist() == [2, 9, 2]
    assert_refused(path, "several reward structures", 'rewards="1"')
    assert_refused(path, "rewards is '3', but there is no robot3.srew", rewards="3")


def test_chains(tmp_path):
    for head, rest in (("2 3", ""), ("dtmc", "")):
        path = written(tmp_path, {"robot.tra": f"{head}\n0 0 0.5\n0 1 0.5\n1 1 1{rest}\n"})
        model = load_model(path, rewards=np.array([[1.0], [0.0]]), initial=[1, 0], discount=0.9)
        assert model.task.policy.tolist() == [[1], [1]]  # there is nothing to choose
        assert model.kernel.tolist() == [[[0.5, 0.5]], [[0, 1]]]


def test_rewards_on_the_transitions_of_a_chain():
    """Three columns, in both dialects; the value is Storm's."""
    storm = ROOT / "tests" / "sources" / "storm"
    model = load_model(storm / "coin.tra", discount=0.95)
    assert model.task.rewards[:, 0].tolist() == [[0, 1, 3], [12, 2, 2], [0.625, 0.5, 0.5]]
    expected = json.loads((storm / "values.json").read_text())["coin"][""][0]
    assert value(model.task, model.kernel) == pytest.approx(expected, rel=1e-6)


def test_the_columns_of_rewards_are_those_of_the_model(tmp_path):
    """PRISM's .trew of a chain has three columns too, and four are refused."""
    chain = {"robot.tra": "2 3\n0 0 0.5\n0 1 0.5\n1 1 1\n", "robot.trew": "2 1\n0 1 5\n"}
    model = load_model(written(tmp_path, chain), initial=0, discount=0.9)
    assert model.task.rewards[:, 0].tolist() == [[0, 5], [0, 0]]
    assert_refused(
        written(tmp_path, chain | {"robot.trew": "2 2 1\n0 0 1 5\n"}), "robot.trew: the first line says 2 2 1"
    )


TRA = PRISM["robot.tra"]
REFUSED = {
    "empty": ({"robot.tra": ""}, ["line 1: expected"]),
    "head": ({"robot.tra": "states 3\n"}, ["line 1: expected `states choices transitions`", "'states 3'"]),
    "POMDP": ({"robot.tra": TRA.replace("3 5 7", "3 5 7 2")}, ["line 1: expected"]),
    "row form": ({"robot.tra": "3 5 7\n0 0.75:1 0.25:2 right\n"}, ["line 2: this is the row form"]),
    "words": ({"robot.tra": TRA.replace("0 1 0 1 wait", "0 1 0")}, ["line 4: 3 words"]),
    "two names": ({"robot.tra": TRA.replace("0.25 right", "0.25 left")}, ["line 3: choice 0 of state 0 has two names"]),
    "choices": ({"robot.tra": TRA.replace("3 5 7", "3 6 7")}, ["says 6 choices, but there are 5", "cut short"]),
    "transitions": ({"robot.tra": TRA.rsplit("\n", 2)[0]}, ["says 5 choices, but there are 4", "cut short"]),
    "too many states": ({"robot.tra": TRA.replace("3 5 7", f"{10**14} 5 7")}, ["state 3 has no transitions"]),
    "too few states": ({"robot.tra": TRA.replace("3 5 7", "2 5 7")}, ["there is a state 2, but 2 states"]),
    "target": ({"robot.tra": TRA.replace("0 1 0 1", "0 1 9 1")}, ["line 4: there is no state 9"]),
    "huge target": ({"robot.tra": STORM["robot.tra"].replace("0 1 0 1", "0 1 99999999 1")}, ["has no transitions"]),
    "sum": ({"robot.tra": TRA.replace("0.75", "0.7")}, ["kernel at (s='(0,false)', a='right') sums to 0.95"]),
    "negative": ({"robot.tra": TRA.replace("0.75", "-0.75")}, ["line 2: -0.75", "negative"]),
    "probability": ({"robot.tra": TRA.replace("0.75", "often")}, ["line 2: 'often' is not a number"]),
    "state": ({"robot.tra": TRA.replace("0 1 0 1", "zero 1 0 1")}, ["line 4: 'zero' is no state"]),
    "twice": ({"robot.tra": TRA.replace("0 0 2 0.25", "0 0 1 0.25")}, ["line 3", "before"]),
    "names": ({"robot.sta": "(x)\n0:(0)\n1:(1)\n"}, ["robot.sta: it names 2 states, but the model has 3"]),
    "names head": ({"robot.sta": "0:(0)\n"}, ["robot.sta: the first line must list the variables"]),
    "names line": ({"robot.sta": "(x)\n0 is here\n"}, ["robot.sta: line 2: expected `0:(...)`"]),
    "labels head": ({"robot.lab": "0: 0\n"}, ["robot.lab: the first line must declare the labels"]),
    "label": ({"robot.lab": '0="init"\n0: 7\n'}, ["robot.lab: line 2: label '7' is not declared"]),
    "label of a state": ({"robot.lab": '0="init"\n9: 0\n'}, ["a reward or a label names state 9"]),
    "storm end": ({"robot.lab": "#DECLARATION\ninit\n0 init\n"}, ["robot.lab: there is #DECLARATION but no #END"]),
    "storm label": ({"robot.lab": "#DECLARATION\na\n#END\n0 b\n"}, ["robot.lab: line 4: label 'b' is not declared"]),
    "rewards head": ({"robot.srew": "4 2\n0 1\n1 1\n"}, ["robot.srew: the first line says 4 2; expected 3 2"]),
    "rewards line": ({"robot.srew": "3 1\n0\n"}, ["robot.srew: line 2: 1 words"]),
    "rewards twice": ({"robot.srew": "3 2\n0 1\n0 1\n"}, ["robot.srew: line 3: state 0 is there twice"]),
    "rewards nan": ({"robot.srew": "3 1\n0 nan\n"}, ["robot.srew: line 2: 'nan' is not a number"]),
    "reward of nothing": ({"robot.trew": "3 5 1\n0 0 0 2\n"}, ["robot.trew: line 2: the model has no transition"]),
    "reward twice": ({"robot.trew": "3 5 2\n0 0 1 2\n0 0 1 2\n"}, ["robot.trew: line 3", "twice"]),
    "binary": ({"robot.srew": "3 1\n\x00 \x00\n"}, ["robot.srew: line 2"]),
}


@each("name", REFUSED)
def test_refused(tmp_path, name):
    files, words = REFUSED[name]
    assert_refused(written(tmp_path, PRISM | files), *words)


def test_no_rewards(tmp_path):
    path = written(tmp_path, {name: text for name, text in PRISM.items() if not name.endswith("rew")})
    assert_refused(path, "missing: rewards")
    assert load_model(path, rewards={"(0,false)": 1.0}, **SETTINGS).task.rewards[0].tolist() == [1, 1, 1]


def test_links_that_go_in_circles(tmp_path):
    for name in ("robot.lab", "robot.task.toml", "robot.tra"):
        path = tmp_path / name
        written(tmp_path, PRISM)
        path.unlink(missing_ok=True)
        path.symlink_to(path)
        assert_refused(tmp_path / "robot.tra", f"{name}: cannot be read")
        path.unlink()


def test_damage_is_refused_or_read(tmp_path):
    """Whatever one wrong character in one of the files does: a model or an InputError, never another exception."""
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(120):
        files = dict(PRISM)
        name = rng.choice(list(files))
        text = list(files[name])
        text[rng.integers(len(text))] = rng.choice(list('0123456789:()/.-eE#=" \nwait\x00é'))
        files[name] = "".join(text)
        try:
            load_model(written(tmp_path, files), **SETTINGS)
        except InputError:
            refused += 1
    assert 40 < refused < 120
