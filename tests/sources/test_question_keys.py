"""Task files that ask beyond the discounted table: goals, horizons, totals and observed rewards."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse

import policytest as pt
from builders import each
from policytest._base.errors import InputError
from policytest.cli import main
from policytest.cli.inputs import find_model
from policytest.cli.options import Question
from policytest.sources import load_model, save_model, start_from_log
from source_builders import COMMANDS, assert_model_refused

CURE = """
states = ["ill", "worse", "cured", "dead"]
actions = ["wait", "treat"]
initial = "ill"
[policy]
ill = "treat"
worse = { wait = 0.5, treat = 0.5 }
cured = "wait"
dead = "wait"
[kernel]
ill.treat = { ill = 0.5, cured = 0.25, worse = 0.25 }
ill.wait = { ill = 0.5, worse = 0.5 }
worse.treat = { ill = 0.5, dead = 0.5 }
worse.wait = { dead = 1.0 }
"""
GOAL = 'goal = ["cured"]\navoid = ["dead"]\n'
PAID = 'terminal = ["cured", "dead"]\ndiscount = 1\n[rewards]\nill = 1.0\n'
FORMATS = ("json", "toml", "npz", "drn")


def written(folder, head="", text=CURE, name="task.toml"):
    """The keys come first: what follows a heading is part of that table."""
    path = folder / name
    keys, _, tables = head.partition("\n[")
    path.write_text(keys + "\n" + text + ("\n[" + tables if tables else ""), encoding="utf-8")
    return path


def worth(path, **given):
    model = load_model(path, **given)
    return pt.value(model.task, model.kernel)


def test_the_probability_of_a_goal_by_hand(tmp_path):
    """V(ill) = V(ill)/2 + 1/4 + V(worse)/4 and V(worse) = V(ill)/4, so V(ill) = 4/7; within 2 steps 3/8."""
    path = written(tmp_path, GOAL)
    assert worth(path) == pytest.approx(4 / 7, rel=1e-12)
    assert worth(path, horizon=2) == pytest.approx(3 / 8, rel=1e-12)
    assert worth(written(tmp_path, GOAL + "horizon = 2\n")) == pytest.approx(3 / 8, rel=1e-12)
    task = load_model(path).task
    assert (task.discount, task.horizon, task.terminal) == (1.0, 2, ("cured", "dead"))
    shorter = CURE.replace('cured = "wait"\ndead = "wait"\n', "")  # what it does after the end does not matter
    assert worth(written(tmp_path, GOAL, shorter)) == worth(written(tmp_path, GOAL))


def test_a_total_by_hand(tmp_path):
    """The mean number of visits of `ill` solves v = 1 + v/2 + w/2 and w = v/4 for the visits w of `worse`: v = 8/3."""
    path = written(tmp_path, PAID)
    assert worth(path) == pytest.approx(1 / (1 - 1 / 2 - 1 / 16), rel=1e-12)
    assert worth(path, horizon=2) == pytest.approx(1.5, rel=1e-12)
    assert worth(path, discount=0.5) < worth(path, horizon=30) < worth(path)


def test_a_goal_that_is_passed_is_another_question(tmp_path):
    """Rewards, discount and threshold of the file are not its own; its terminal states end episodes still."""
    path = written(tmp_path, "threshold = 2.0\n" + PAID)
    model = load_model(path, goal=["cured"])
    assert pt.value(model.task, model.kernel) == pytest.approx(4 / 7, rel=1e-12)
    assert model.threshold is None
    assert load_model(path, goal=["cured"], threshold=0.5).threshold == 0.5
    assert worth(path, goal=["worse"]) == pytest.approx(1 / 2)  # what follows the goal is left out
    assert worth(path, goal=["worse"], avoid=["cured"], horizon=1) == pytest.approx(1 / 4)
    assert load_model(path).threshold == 2.0


def test_observed_rewards(tmp_path):
    path = written(tmp_path, 'reward_range = [-1.0, 2.0]\nterminal = ["cured", "dead"]\ndiscount = 0.9\n')
    task = load_model(path).task
    assert task.observes_rewards
    assert task.reward_bounds == (-1.0, 2.0)
    assert task.rewards.low.tolist() == [[-1, -1], [-1, -1], [0, 0], [0, 0]]
    assert load_model(path, discount=1, horizon=3).task.horizon == 3


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "head", [GOAL, GOAL + "horizon = 3\n", PAID, "horizon = 4\n" + PAID, "total_rewards = [0, 9]\n" + PAID]
)
def test_what_is_saved_is_read_back(tmp_path, head, form):
    model = load_model(written(tmp_path, head))
    copy = tmp_path / f"copy.{form}"
    if form == "drn" and model.task.rewards_on_successor:
        with pytest.raises(InputError, match="rewards are on"):
            save_model(copy, model.task, model.kernel)
        return
    save_model(copy, model.task, model.kernel, 0.25)
    again = load_model(copy)
    assert again.threshold == 0.25
    for name in ("discount", "horizon", "terminal", "total_rewards", "states"):
        assert getattr(again.task, name) == getattr(model.task, name)
    np.testing.assert_array_equal(again.task.rewards, model.task.rewards)
    assert pt.value(again.task, again.kernel) == pt.value(model.task, model.kernel)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("low", [0.25, [[0.25, 0.5], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]], ids=["numbers", "tables"])
def test_ranges_of_rewards_are_read_back(tmp_path, low, form):
    model = load_model(written(tmp_path, 'goal = ["cured"]\navoid = ["dead"]\n'))
    task = pt.Task(
        pt.Observed(low, 3.0),
        model.task.policy,
        model.task.initial,
        1.0,
        horizon=5,
        terminal=["dead"],
        states=model.task.states,
        actions=model.task.actions,
    )
    copy = tmp_path / f"copy.{form}"
    save_model(copy, task, None if form != "drn" else _with_end(model.kernel, 3))
    again = load_model(copy).task
    for end in ("low", "high"):
        np.testing.assert_array_equal(getattr(again.rewards, end), getattr(task.rewards, end))
    if form == "json" and isinstance(low, float):
        assert json.loads(copy.read_text())["reward_range"] == [0.25, 3.0]


def _with_end(kernel, s):
    kernel = kernel.copy()
    kernel[s] = np.eye(kernel.shape[0])[s]
    return kernel


REFUSED = {
    "horizon 0": (GOAL + "horizon = 0", "horizon is 0", "at least 1"),
    "negative": (GOAL + "horizon = -3", "horizon is -3"),
    "half a step": (GOAL + "horizon = 2.5", "horizon is 2.5", "whole number"),
    "nan": (GOAL + "horizon = nan", "horizon is nan", "whole number"),
    "text": (GOAL + 'horizon = "30"', "horizon is '30'"),
    "unknown goal": ('goal = ["curd"]', "unknown state 'curd' in goal", "did you mean 'cured'?"),
    "unknown to avoid": ('goal = ["cured"]\navoid = ["healed"]', "unknown state 'healed' in avoid"),
    "not a list": ('goal = "cured"', "goal is 'cured'; it must be a list"),
    "empty": ("goal = []", "goal is empty"),
    "avoid alone": ('avoid = ["dead"]\n' + PAID, "avoid belongs to goal", "add goal"),
    "goal and rewards": (GOAL + "[rewards]\nill = 1.0", "goal asks for the probability", "rewards"),
    "goal and range": (GOAL + "reward_range = [0, 1]", "goal asks for the probability", "reward_range"),
    "goal and discount": (GOAL + "discount = 0.5", "goal asks for a probability, and discount is 0.5"),
    "two rewards": ("reward_range = [0, 1]\n" + PAID, "rewards and reward_range exclude each other"),
    "upside down": ("reward_range = [2, 1]\ndiscount = 0.9", "the low end 2 above the high end 1", "[low, high]"),
    "three ends": ("reward_range = [0, 1, 2]\ndiscount = 0.9", "reward_range has shape (3,)", "[low, high]"),
    "nan in range": ("reward_range = [0, nan]\ndiscount = 0.9", "reward_range", "nan"),
    "never ends": ("discount = 1\n[rewards]\nill = 1.0", "discount is 1 and no state is terminal", "a horizon"),
    "above 1": ("discount = 1.5\n[rewards]\nill = 1.0", "discount is 1.5", "[0, 1]"),
    "no question": ("horizon = 3", "required keys are missing: rewards, discount"),
    "typing error": (GOAL + "horizont = 3", "unknown key 'horizont'", "did you mean 'horizon'?"),
}


@each("name", REFUSED)
def test_refused(tmp_path, name, capsys):
    head, *words = REFUSED[name]
    path = written(tmp_path, head)
    assert_model_refused(path, *words)
    assert main(["decide", str(path), "--threshold", "0.5"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words)


def test_a_goal_from_a_log(tmp_path):
    """Where episodes start is told by the log; one that starts in the goal has reached it."""
    rho = np.array([0.5, 0.25, 0.25, 0.0])
    model = load_model(written(tmp_path, GOAL + "horizon = 2\n"))
    text = CURE.replace('initial = "ill"', 'initial = "log"').partition("[kernel]")[0]
    task = load_model(written(tmp_path, GOAL + "horizon = 2\n", text)).task
    assert (task.start, task.horizon, task.states[-1]) == (4, 2, "start")
    kernel = np.zeros((5, 2, 5))
    kernel[:4, :, :4], kernel[4, :, :4] = model.kernel, rho
    values = pt.state_values(model.task, model.kernel)[0]
    assert pt.value(task, kernel) == pytest.approx(rho @ values + 0.25, rel=1e-12)


def test_a_start_in_the_goal_is_kept_by_files_and_told_by_commands(tmp_path, capsys):
    path = written(tmp_path, 'goal = ["ill"]\navoid = ["cured", "dead"]\n')
    assert worth(path) == 1.0
    assert main(["decide", str(path), "--threshold", "0.9", "--quiet"]) == 0
    assert "no data were used" in capsys.readouterr().out
    head = CURE.replace('initial = "ill"', "initial = {ill = 0.5, cured = 0.5}")
    model = load_model(written(tmp_path, GOAL, head))
    assert pt.value(model.task, model.kernel) == pytest.approx(0.5 + 0.5 * 4 / 7)
    for name in ("kept.json", "kept.toml", "kept.npz"):
        save_model(tmp_path / name, model.task, model.kernel)
        again = load_model(tmp_path / name)
        assert again.task.goal == ("cured",)
        assert again.task.terminal == model.task.terminal
        assert pt.value(again.task, again.kernel) == pt.value(model.task, model.kernel)
    added = start_from_log(model.task)  # the log tells where episodes start, and what starts in the goal has reached it
    assert added.rewards[4, 0].tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert added.reached_at_start == 0.0


def test_a_start_from_the_log_with_observed_rewards():
    task = pt.Task(pt.Observed(-1.0, 2.0), [[1.0], [1.0]], [1.0, 0.0], 0.5, terminal=[1], horizon=3)
    added = start_from_log(task)
    assert (added.horizon, added.steps) == (3, 4)
    assert (added.rewards.low.ravel().tolist(), added.rewards.high.ravel().tolist()) == ([-2, 0, 0], [4, 0, 0])


def test_large_tables_stay_sparse(tmp_path):
    """A walk of 6,000 states with two actions: a dense table of rewards would take 576 MB."""
    S = 6000
    here = np.arange(S)
    rows = [sparse.csr_array((np.ones(S), (here, np.minimum(here + step, S - 1))), shape=(S, S)) for step in (1, 2)]
    kernel = sparse.csr_array(sparse.vstack(rows))[np.arange(2 * S).reshape(2, S).T.ravel()]
    policy = np.full((S, 2), 0.5)
    path = tmp_path / "walk.npz"
    save_model(path, pt.Task(np.zeros((S, 2)), policy, np.eye(S)[0], 0.9), sparse.csr_array(kernel))
    assert_model_refused(path, "goal: with 6,000 states the support must be sparse", goal=[S - 1])
    model = load_model(path, goal=[S - 2], avoid=[S - 1], known_support=True)
    assert pt.value(model.task, model.kernel) == pytest.approx(2 / 3, rel=1e-9)  # one in 1.5 states is met


# ---------------------------------------------------------------- the command line


def test_options_in_the_place_of_keys(tmp_path, capsys):
    path = str(written(tmp_path, "threshold = 2.0\n" + PAID))
    ask = ["decide", path, "--goal", "cured", "--quiet"]
    assert main(ask) == 2
    assert "no threshold" in capsys.readouterr().err
    assert main([*ask, "--threshold", "0.3"]) == 0
    assert main([*ask, "--threshold", "0.55", "--horizon", "2"]) == 1
    assert main([*ask, "--avoid", "worse", "--threshold", "0.2", "--horizon", "1"]) == 0
    assert main(["decide", path, "--threshold", "0.9", "--horizon", "2", "--quiet"]) == 0
    for option, words in (
        (["--goal", "curd"], "unknown state 'curd' in goal; did you mean 'cured'?"),
        (["--horizon", "0"], "horizon is 0"),
        (["--horizon", "nan"], "--horizon"),
        (["--goal", "cured", "--discount", "0.5"], "discount is 0.5"),
        (["--avoid", "dead"], "avoid belongs to goal"),
        (["--terminal", "dead"], "write it into this file"),
    ):
        assert main(["decide", path, "--threshold", "0.5", *option]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_reads_a_model_has_the_options(command, tmp_path, capsys):
    path = str(written(tmp_path, PAID))
    ask = command.format(path, path).split()
    assert main([*ask, "--goal", "curd", "--avoid", "dead"]) == 2
    assert "unknown state 'curd' in goal" in capsys.readouterr().err
    assert main([*ask, "--horizon", "0"]) == 2
    assert "horizon is 0" in capsys.readouterr().err


def test_no_answer_is_undecided(tmp_path, capsys):
    """The forecast, where there is one, does not cost the verdict."""
    path = str(written(tmp_path, GOAL + "threshold = 0.5\nhorizon = 20\n"))
    assert main(["decide", path, "--max-samples", "20"]) == 3
    assert "undecided after 20 samples" in capsys.readouterr().err
    log = tmp_path / "log.csv"
    log.write_text("order,s,a,s_next\n0,ill,treat,ill\n1,ill,treat,cured\n")
    for command in ("assess", "watch"):
        assert main([command, path, str(log), *(["--no-follow"] if command == "watch" else [])]) == 3


def test_the_best_policy_is_not_sought_for_another_question(tmp_path, capsys):
    path = str(written(tmp_path, PAID))
    assert main(["identify", path, "--discount", "0.9", "--quiet"]) == 0
    assert main(["identify", path, "--discount", "0.9", "--horizon", "3"]) == 2
    assert "the task has a horizon, and identify among all policies needs" in capsys.readouterr().err


def test_the_goal_of_an_environment(capsys):
    pytest.importorskip("gymnasium")
    ask = ["decide", "gym:FrozenLake-v1?is_slippery=false", "--policy", "uniform", "--threshold", "0.005", "--quiet"]
    assert main([*ask, "--goal", "15", "--horizon", "100"]) == 0
    assert "exact value: 0.01" in capsys.readouterr().out
    for options, words in (
        (["--goal", "15", "--discount", "0.9"], "goal asks for a probability, and discount is 0.9"),
        (["--goal", "16"], "unknown state '16' in goal"),
    ):
        assert main([*ask, *options]) == 2
        assert words in capsys.readouterr().err


def test_options_for_models_that_are_not_files(capsys):
    model = find_model("paper-2", Question(horizon=3, discount=1.0))
    assert (model.task.horizon, model.task.discount) == (3, 1.0)
    ask = ["decide", "grid-world", "--threshold", "0.05"]
    assert main([*ask, "--goal", "nowhere"]) == 2
    assert "unknown state 'nowhere' in goal" in capsys.readouterr().err
    assert main([*ask, "--goal", "(1, 0)"]) == 0  # one start in twelve is there
    assert "0.0833333 to " in capsys.readouterr().out
    assert main([*ask, "--terminal", "0"]) == 2
    assert "--terminal is for task files" in capsys.readouterr().err
