"""--assume episodes on the command line: answers are exit codes, what does not fit is refused with a remedy."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from dataclasses import replace

import pytest

import policytest as pt
from builders import each
from policytest.cli import main
from policytest.cli.progress import Bar

AGENTS = """
import numpy as np
import gymnasium as gym
import policytest as pt

def left(observation):
    return 0

def all_left(observations):
    return np.zeros(len(observations), dtype=np.int64)

class Left:
    def predict(self, observation):
        return 0, None

def right(observation):
    return 1

def half(rewards, info):
    return 0.5 * rewards.sum()

def trial(rng):
    return 0.0, {"is_success": rng.random() < 0.8}

def critic(observation):
    return 5.0

def coin(rng):
    return rng.random() < 0.7

def loud(rng):
    print("an episode")
    return rng.random() < 0.7

class Trained:
    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.array(0 if deterministic else np.random.randint(2)), None

class Endless(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, self.np_random.random(), False, False, {}

def interrupted(rng):
    interrupted.calls += 1
    if interrupted.calls == 15:
        import os, signal
        os.kill(os.getpid(), signal.SIGINT)
    return rng.random() < 0.5

interrupted.calls = 0
ready = pt.Episodes(coin, return_range=(0, 1))

class Ranged(gym.Env):
    reward_range = (0.0, 1.0)
    observation_space = action_space = gym.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, self.np_random.random(), True, False, {}

class Warning(Ranged):
    def step(self, action):
        import warnings
        with warnings.catch_warnings(): # as NumPy does: each of these makes Python forget what it has shown
            warnings.simplefilter("ignore", DeprecationWarning)
        warnings.warn("an odd action")
        return super().step(action)

class Ending(Ranged):
    def step(self, action):
        return next(iter(()))

class Unranged(Ranged):
    reward_range = (-np.inf, np.inf)
"""
POLE = ("gym:CartPole-v1", "--assume", "episodes", "--agent", "agents_here:left", "--quiet")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with agents; a pole that is always pushed to the left falls after 8 to 10 steps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "agents_here", raising=False)
    (tmp_path / "agents_here.py").write_text(AGENTS, encoding="utf-8")
    return tmp_path


def decide(*arguments):
    return main(["decide", *arguments])


def test_the_exit_code_is_the_answer(capsys):
    assert decide(*POLE, "--threshold", "30", "--reward-range", "0", "1") == 1
    said = capsys.readouterr().out
    assert "The mean return is below the threshold (certified)" in said
    assert "episodes are independent" in said
    assert decide(*POLE, "--threshold", "5", "--return-range", "0", "500") == 0
    assert decide(*POLE, "--threshold", "5", "--reward-range", "0", "1", "--horizon", "10", "--discount", "0.9") == 0
    assert decide(*POLE, "--threshold", "9.35", "--return-range", "0", "500", "--max-samples", "1e3") == 3
    assert decide(*POLE, "--threshold", "9", "--return-range", "0", "20", "--indifference", "4") == 5
    assert decide(*POLE, "--threshold", "600", "--reward-range", "0", "1") == 1
    assert "no episodes were run" in capsys.readouterr().out


def test_without_a_range_the_answer_is_a_large_sample_one_and_its_exit_code_has_to_be_asked_for(capsys):
    assert decide(*POLE, "--threshold", "8", "--quiet") == 3
    out, err = capsys.readouterr()
    assert out.startswith("The mean return is above the threshold (large-sample answer, not certified)")
    assert "so this will be a large-sample answer" in err
    assert "pass --return-range LOW HIGH, or --reward-range LOW HIGH with --horizon" in err
    assert "--outcome 'at least 200'" in err
    assert "large-sample answer: it is approximate" in err.splitlines()[-1]
    named = (*POLE, "--method", "large-sample", "--accept-uncertified", "--quiet", "--threshold")
    assert decide(*named, "8", "--json") == 0
    assert json.loads(capsys.readouterr().out)["approximate"] is True
    assert decide(*named, "12") == 1
    assert decide(*named, "9.35", "--indifference", "1") == 5
    assert capsys.readouterr().err == ""
    assert main(["evaluate", *POLE, "--epsilon", "0.5", "--quiet"]) == 3
    rival = ("agents_here:right", "--assume", "episodes", "--agent", "agents_here:left", "--accept-uncertified")
    compared = main(["compare", "gym:CartPole-v1", *rival, "--method", "large-sample", "--max-samples", "4000"])
    assert compared in (0, 1, 3)
    assert "large-sample" in capsys.readouterr().out or compared == 3


@each(
    "more",
    [
        ("--agent", "agents_here:Left"),
        ("--critic", "agents_here:critic"),
        ("--vector", "4"),
        ("--vector", "4", "--batched", "--agent", "agents_here:all_left"),
        ("--method", "returns"),
        ("--horizon", "time limit"),
    ],
)
def test_agents_critics_and_vectors(more):
    assert decide(*POLE, "--threshold", "30", "--reward-range", "0", "1", *more) == 1


def test_an_agent_with_predict_is_deterministic_unless_it_is_stochastic(capsys):
    """Pushed to the left the pole falls after 9 steps, pushed at random after 22."""
    given = (*POLE, "--agent", "agents_here:Trained", "--threshold", "15", "--return-range", "0", "500")
    assert decide(*given) == 1
    assert "policy of the agent      deterministic" in capsys.readouterr().out
    assert decide(*given, "--stochastic") == 0
    assert "policy of the agent      stochastic" in capsys.readouterr().out
    assert decide(*POLE, "--threshold", "15", "--return-range", "0", "500", "--stochastic") == 2
    assert "--stochastic is for an agent whose predict has this argument" in capsys.readouterr().err
    assert decide("paper-2", "--threshold", "0", "--stochastic") == 2
    assert "--stochastic is for episodes" in capsys.readouterr().err
    pair = ("--agent", "agents_here:Trained", "--reward-range", "0", "1", "--stochastic", "--quiet")
    assert main(["compare", "gym:CartPole-v1", "agents_here:left", "--assume", "episodes", *pair]) == 2
    assert "--stochastic is for an agent" in capsys.readouterr().err


@each("command", ["decide", "evaluate", "compare", "identify"])
def test_a_time_limit_ends_every_command_that_samples(command, capsys, tmp_path):
    endless = ("python:agents_here:Endless", "--assume", "episodes", "--agent", "agents_here:left")
    endless = (*endless, "--return-range", "0", "1e9", "--max-seconds", "0.2", "--quiet")
    kept = tmp_path / "run.npz"
    kept.unlink(missing_ok=True)
    given = {
        "decide": (*endless, "--threshold", "5", "--checkpoint", str(kept)),
        "evaluate": (*endless, "--epsilon", "0.1"),
        "compare": (endless[0], "agents_here:left", *endless[1:]),
        "identify": ("paper-2", "--delta", "1e-9", "--max-seconds", "0", "--quiet"),
    }[command]
    assert main([command, *given]) == 3
    if command == "decide":
        assert "the time limit is reached" in capsys.readouterr().out
        assert main([command, *given]) == 3, "the same command goes on"
    assert main([command, *given, "--max-seconds", "-1"]) == 2
    assert "--max-seconds is -1" in capsys.readouterr().err


def test_one_ctrl_c_is_enough_and_says_so(capsys, monkeypatch):
    """In the middle of an episode that never ends, and of a function that runs one."""
    import agents_here

    step, calls = agents_here.Endless.step, []

    def pressed(self, action):
        calls.append(1)
        if len(calls) == 100:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, action)

    monkeypatch.setattr(agents_here.Endless, "step", pressed)
    given = ("python:agents_here:Endless", "--assume", "episodes", "--agent", "agents_here:left", "--quiet")
    assert decide(*given, "--threshold", "5", "--return-range", "0", "1e9") == 3
    said = capsys.readouterr()
    assert "interrupted: the run ends after the draw at hand; press Ctrl-C again" in said.err
    assert "Undecided: interrupted" in said.out
    assert len(calls) == 100


def test_json_and_options_behind_the_question_mark(capsys):
    address = "gym:CartPole-v1?sutton_barto_reward=true"
    given = (address, *POLE[1:], "--reward-range", "-1", "0", "--return-range", "-1", "0", "--json")
    assert decide(*given, "--threshold", "-0.5") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["answer"], told["estimate"], told["interval"][0]) == ("below", -1.0, -1.0)
    assert told["episodes"] == sum(told["returns"]["episodes"])
    assert told["states"] is None


def test_functions_episodes_and_declared_ranges(capsys):
    coin = ("--assume", "episodes", "--threshold", "0.5", "--quiet")
    assert decide("python:agents_here:coin", "--return-range", "0", "1", *coin) == 0
    assert decide("python:agents_here:ready", *coin) == 0
    ranged = ("--agent", "agents_here:left", "--horizon", "1", "--assume", "episodes", "--quiet", "--threshold", "0.3")
    assert decide("python:agents_here:Ranged", *ranged) == 0
    assert decide("python:agents_here:Unranged", *ranged) == 3, "a large-sample answer"
    assert "--reward-range LOW HIGH" in capsys.readouterr().err


def test_evaluate(capsys, here):
    coin = ("python:agents_here:coin", "--assume", "episodes", "--return-range", "0", "1", "--quiet")
    assert main(["evaluate", *coin, "--epsilon", "0.1", "--html", "page.html"]) == 0
    assert "The mean return is 0." in capsys.readouterr().out
    page = (here / "page.html").read_text(encoding="utf-8")
    for words in ("How good is this agent?", "The returns of the episodes", "How the interval narrowed", "mean return"):
        assert words in page
    assert main(["evaluate", *coin, "--epsilon", "0.01", "--max-samples", "100"]) == 3


def test_a_report_with_pictures_and_one_from_the_json(capsys, here):
    asked = (*POLE, "--threshold", "12", "--reward-range", "0", "1")
    assert decide(*asked, "--html", "page.html") == 1
    page = (here / "page.html").read_text(encoding="utf-8")
    for words in (
        "Is this agent good enough?",
        "Its mean return is below 12.",
        "Environment: gym:CartPole-v1. Agent: agents_here:left.",
        "The returns of the episodes",
        "How the evidence grew",
        "Where the mean return lies",
        "Rewards lie in [0, 1], as declared.",
        "--assume episodes --agent agents_here:left",
    ):
        assert words in page, words
    for words in ("transition", "states", "kernel", "the value "):
        assert words not in page.partition("<body")[2], words
    capsys.readouterr()
    assert decide(*asked, "--json") == 1
    (here / "verdict.json").write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["report", "verdict.json", "--out", "again.html"]) == 0
    again = (here / "again.html").read_text(encoding="utf-8")
    assert "The returns of the episodes" in again
    assert "Its mean return is below 12." in again
    assert "decide(episodes, threshold=12" in again


def test_a_budget_is_kept_and_may_be_larger_when_the_run_goes_on(capsys, here):
    coin = ("python:agents_here:coin", "--assume", "episodes", "--return-range", "0", "1", "--threshold")
    assert decide(*coin, "0.1", "--budget", "40", "--quiet") == 0
    assert decide(*coin, "0.65", "--budget", "10", "--checkpoint", "run.npz") == 3
    said = capsys.readouterr()
    assert "the budget of 10 episodes is used up" in said.out
    assert "a larger --budget" in said.err
    assert decide(*coin, "0.65", "--checkpoint", "run.npz") == 2
    assert "pass --budget 10, or a larger one" in capsys.readouterr().err
    assert decide(*coin, "0.65", "--budget", "20", "--checkpoint", "run.npz", "--json", "--html", "page.html") == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["budget"], told["provenance"]["budget"], told["episodes"]) == (20, 20, 20)
    page = (here / "page.html").read_text(encoding="utf-8")
    assert "within the budget of 20, the evidence is" in page
    assert "the budget of 20 episodes is used up. A larger budget keeps the guarantee, but little" in page
    assert decide(*coin, "0.65", "--budget", "0") == 2
    assert "--budget is 0" in capsys.readouterr().err
    assert decide(*coin, "0.65", "--budget", "10") == 3
    assert "with --checkpoint FILE a run can be continued, with a larger --budget" in capsys.readouterr().err


def test_the_budget_of_a_comparison_is_told_in_pairs(capsys, here):
    coins = ("python:agents_here:coin", "python:agents_here:coin", "--assume", "episodes", "--return-range", "0", "1")
    assert main(["compare", *coins, "--margin", "-0.9", "--budget", "40", "--quiet", "--json"]) == 0
    said = capsys.readouterr().out
    pairs = json.loads(said)["episodes"]
    (here / "found.json").write_text(said, encoding="utf-8")
    assert main(["report", "found.json", "--out", "page.html"]) == 0
    page = (here / "page.html").read_text(encoding="utf-8")
    assert f"after {pairs} pairs of episodes ({2 * pairs} samples), within the budget of 40" in page
    assert "compare(agent_a, agent_b, delta=0.05, margin=-0.9, rng=seed, budget=40)" in page


def test_an_estimate_and_a_plan_have_a_budget(capsys, here):
    coin = ("python:agents_here:coin", "--assume", "episodes", "--return-range", "0", "1")
    assert main(["evaluate", *coin, "--budget", "40", "--json", "--html", "page.html"]) == 0
    said = capsys.readouterr().out
    told = json.loads(said)
    assert (told["budget"], told["epsilon"], told["episodes"], told["reached"]) == (40, None, 40, True)
    assert "within the budget of 40" in (here / "page.html").read_text(encoding="utf-8")
    (here / "found.json").write_text(said, encoding="utf-8")
    assert main(["report", "found.json", "--out", "again.html"]) == 0
    again = (here / "again.html").read_text(encoding="utf-8")
    assert "within the budget of 40" in again
    assert "delta=0.05, rng=seed, budget=40)" in again
    assert main(["evaluate", *coin]) == 2
    assert "pass --epsilon E" in capsys.readouterr().err
    plan = ["plan", *coin, "--threshold", "0.2", "--power", "0.8", "--json"]
    assert main([*plan, "--html", "plan.html"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["budget"] > 2
    words = f"budget of {told['budget']} episodes answers with probability 0.8"
    assert words in (here / "plan.html").read_text(encoding="utf-8")
    assert main([*plan[:-2], "1.5"]) == 2
    assert "--power is 1.5" in capsys.readouterr().err


def test_a_checkpoint_is_resumed_and_ctrl_c_ends_undecided(capsys, here):
    run = ("python:agents_here:interrupted", "--assume", "episodes", "--return-range", "0", "1", "--threshold", "0.75")
    before = signal.getsignal(signal.SIGINT)
    assert decide(*run, "--checkpoint", "run.npz") == 3
    assert signal.getsignal(signal.SIGINT) is before
    assert "the same command continues it" in capsys.readouterr().err
    assert decide(*run, "--checkpoint", "run.npz", "--json") == 1
    resumed = json.loads(capsys.readouterr().out)
    assert decide(*run, "--json") == 1
    whole = json.loads(capsys.readouterr().out)
    assert resumed.pop("provenance")["seed"] is None, "a run that was resumed is not repeated by a seed"
    assert whole.pop("provenance")["seed"] == 0
    assert resumed == whole
    assert whole["episodes"] > 15


def test_a_warning_that_every_step_repeats_is_shown_once(capsys):
    told = ("--assume", "episodes", "--agent", "agents_here:left", "--quiet", "--threshold", "0.4")
    assert decide("python:agents_here:Warning", *told, "--horizon", "2") == 0
    assert capsys.readouterr().err.count("an odd action") == 1


def test_stop_iteration_is_named(capsys):
    for command in ("decide", "evaluate"):
        more = ("--threshold", "0.4") if command == "decide" else ("--epsilon", "0.1")
        place = ("python:agents_here:Ending", "--assume", "episodes", "--agent", "agents_here:left", "--horizon", "2")
        assert main([command, *place, *more, "--quiet"]) == 2
        assert "raised StopIteration: an iterator in it has run out; make it endless" in capsys.readouterr().err


def test_no_file_of_the_working_folder_stands_for_an_installed_module(here, monkeypatch):
    """The folder is searched last: a module of this name there is not what `import` finds."""
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(here))])
    assert (
        decide("python:agents_here:coin", "--assume", "episodes", "--return-range", "0", "1", "--threshold", "0.5") == 0
    )
    assert sys.path[-1] == str(here)


def test_progress_tells_the_episodes(capsys):
    assert decide(*POLE[:-1], "--threshold", "9.35", "--return-range", "0", "500", "--max-samples", "3e3") == 3
    err = capsys.readouterr().err
    told = re.search(r"2,0\d\d samples, (\d+) episodes, evidence at most .* nats, estimate (9\.\d+)", err)
    assert 2000 / 9.6 < int(told[1]) < 2010 / 9.1


@each(
    ("arguments", "words"),
    [
        (("gym:CartPole-v1", "--agent", "agents_here:left"), ["--agent is for episodes; add --assume episodes"]),
        (("paper-2", "--vector", "4"), ["--vector is for episodes"]),
        (("paper-2", "--reward-range", "0", "1"), ["--reward-range is for episodes"]),
        (("paper-2", "--batched"), ["--batched is for episodes"]),
        (("paper-2", "--method", "returns"), ["ReturnBetting() is for Episodes"]),
        (("gym:CartPole-v1", "--assume", "episodes"), ["no agent; pass --agent package.module:name"]),
        (("paper-2", "--method", "large-sample"), ["LargeSample() is for Episodes"]),
        ((*POLE, "--reward-range", "0"), ["--reward-range"]),
        ((*POLE, "--reward-range", "1", "0"), ["reward_range is (1, 0)"]),
        ((*POLE, "--return-range", "0", "1", "--policy", "uniform"), ["--policy is for a Markov task", "leave it out"]),
        ((*POLE, "--return-range", "0", "1", "--goal", "3"), ["--goal is for a Markov task"]),
        ((*POLE, "--return-range", "0", "1", "--simulator", "a:b"), ["--simulator is for a Markov task"]),
        ((*POLE, "--return-range", "0", "1", "--method", "ptst"), ["--method ptst is for a Markov task"]),
        ((*POLE, "--return-range", "0", "1", "--agent", "left"), ["--agent is 'left'", "package.module:name"]),
        ((*POLE, "--return-range", "0", "1", "--agent", "agents_here:lfet"), ["no 'lfet'", "left"]),
        ((*POLE, "--return-range", "0", "1", "--agent", "no.such:agent"), ["--agent: importing no.such failed"]),
        ((*POLE, "--return-range", "0", "1", "--vector", "0"), ["vector is 0"]),
        ((*POLE, "--return-range", "0", "1", "--batched"), ["batched"]),
        ((*POLE, "--return-range", "0", "1"), ["outside --return-range (0, 1)"]),
        (("gym:NoSuch-v1", *POLE[1:], "--return-range", "0", "1"), ["NoSuch-v1"]),
        (("gym:CartPole-v1?known_support=true", *POLE[1:], "--return-range", "0", "1"), ["known_support", "table"]),
        (("paper-2", *POLE[1:], "--return-range", "0", "1"), ["'paper-2' has no episodes", "gym:CartPole-v1"]),
        (("python:agents_here:ready", "--assume", "episodes", "--agent", "agents_here:left"), ["leave --agent out"]),
        (("python:agents_here:coin", *POLE[1:], "--return-range", "0", "1"), ["env is a function"]),
        (("python:agents_here:coin", "--assume", "episodes", "--vector", "2"), ["--vector is for gym: addresses"]),
        (("gym:CartPole-v1", "--assume", "bandits"), ["bandits"]),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(arguments, words, capsys):
    threshold = () if "--threshold" in arguments else ("--threshold", "0.5")
    assert decide(*arguments, *threshold) == 2
    err = capsys.readouterr().err
    for word in words:
        assert word in err, err


def test_a_threshold_is_required_of_episodes_too(capsys):
    assert decide(*POLE, "--return-range", "0", "500") == 2
    assert "no threshold: pass --threshold R" in capsys.readouterr().err


def test_the_live_line_tells_the_episodes(monkeypatch):
    from rich.console import Console

    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    check = next(pt.checks(pt.Episodes(lambda rng: 0.5, return_range=(0, 1)), threshold=0.4))
    stream = io.StringIO()
    bar = Bar(Console(file=stream, force_terminal=True, color_system=None, width=140))
    bar.show(replace(check, samples=1200, episodes=34))
    bar.close()
    assert "1,200 samples, 34 episodes" in stream.getvalue()


def test_in_parallel_the_document_is_the_same_and_nothing_else_is_printed(capfd, here):
    asked = (
        "python:agents_here:loud",
        "--assume",
        "episodes",
        "--return-range",
        "0",
        "1",
        "--threshold",
        "0.4",
        "--json",
    )
    told = []
    for workers in ("1", "2"):
        assert decide(*asked, "--parallel", workers) == 0
        told.append(json.loads(capfd.readouterr().out))
    assert told[1]["samples"] == told[0]["samples"] + 1  # the one that was under way
    assert all(told[0][key] == told[1][key] for key in ("answer", "evidence", "estimate", "interval"))


@each(("workers", "told"), [("0", "--parallel is 0; pass at least 1"), ("2", "leave --parallel out")])
def test_workers_that_cannot_be_are_refused(capsys, here, workers, told):
    asked = ("gym:CartPole-v1", "--assume", "episodes", "--agent", "agents_here:left", "--reward-range", "0", "1")
    assert decide(*asked, "--vector", "2", "--threshold", "9", "--parallel", workers) == 2
    assert told in capsys.readouterr().err


def test_outcomes_on_the_command_line(capsys):
    assert decide(*POLE, "--threshold", "0.5", "--outcome", "at least 9") == 0
    said = capsys.readouterr().out
    assert "The probability that the return is at least 9 is above the threshold (certified)" in said
    assert decide(*POLE, "--threshold", "0.5", "--outcome", "at most 9", "--vector", "2") == 0
    half = "--outcome", "agents_here:half", "--return-range", "0", "10"
    assert decide(*POLE, "--threshold", "6", *half) == 1
    assert "The mean half is below" in capsys.readouterr().out
    trial = "python:agents_here:trial", "--assume", "episodes", "--quiet"
    assert decide(*trial, "--threshold", "0.5", "--outcome", "is_success") == 0
    assert main(["evaluate", *trial, "--epsilon", "0.2", "--outcome", "is_success"]) == 0
    assert (
        main(["compare", POLE[0], "agents_here:right", *POLE[1:], "--margin", "-0.9", "--outcome", "at least 9"]) == 0
    )
    assert main(["plan", *POLE[:-1], "--threshold", "0.5", "--outcome", "at least 9", "--quiet"]) == 0


@each(
    ("arguments", "words"),
    [
        (("--outcome", "success"), "no key 'success'; its keys are 'is_success'"),
        (("--outcome", "200"), "outcome is '200'; pass \"at least 200\""),
        (("--outcome", "agents_here:no"), "--outcome: agents_here has no 'no'"),
        (("--outcome", "at least 0", "--return-range", "0", "9"), "leave --return-range out"),
        (("--outcome", "at least 0", "--discount", "0.9"), "leave --discount out"),
        (("--return-range", "-9", "None"), "--return-range takes two numbers; inf or -inf is an end that is not known"),
    ],
)
def test_outcomes_that_are_refused_on_the_command_line(arguments, words, capsys):
    trial = "python:agents_here:trial", "--assume", "episodes", "--quiet"
    assert decide(*trial, "--threshold", "0.5", *arguments) == 2
    assert words in capsys.readouterr().err


def test_one_known_end_and_returns_outside_on_the_command_line(capsys):
    coin = ("python:agents_here:coin", "--assume", "episodes", "--threshold")
    assert decide(*coin, "0.5", "--return-range", "0", "inf") == 0
    captured = capsys.readouterr()
    assert 'only "above" can be answered, since returns have no known upper end' in captured.err
    assert "declare both ends of --return-range" in captured.err
    assert "or more" in captured.out
    assert decide(*coin, "0.9", "--return-range", "-inf", "1") == 1
    assert main(["evaluate", *coin[:-1], "--return-range", "0", "inf", "--budget", "50", "--quiet"]) == 0
    assert main(["evaluate", *coin[:-1], "--return-range", "0", "inf", "--epsilon", "0.1", "--quiet"]) == 2
    narrow = (*coin, "0.2", "--return-range", "0", "0.5")
    capsys.readouterr()
    assert decide(*narrow) == 2
    remedy = "declare a range that is certain to hold, or go on without a certificate: --on-range warn"
    assert f"outside --return-range (0, 0.5); {remedy}" in capsys.readouterr().err
    assert decide(*narrow, "--on-range", "warn") == 3
    assert capsys.readouterr().out.startswith("No reliable answer: the return of episode 2 (seed")
    assert decide(*narrow, "--on-range", "warn", "--accept-uncertified") == 0
