"""``policytest decide``: is the value above the threshold?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policytest.cli import options as o
from policytest.cli.exit_codes import complain, read_or_not, say
from policytest.cli.files import check_files, files_of_model
from policytest.cli.inputs import (
    OF_EPISODES,
    Asked,
    about_model,
    find_episodes,
    find_method,
    find_model,
    find_simulator,
    the_bar,
)
from policytest.cli.output import course, ended, how_to_go_on, quiet_stdout, show, with_forecast
from policytest.cli.progress import progress

if TYPE_CHECKING:
    from policytest.results.verdict import Verdict
    from policytest.sources.tasks.files import Model


def decide(
    model: o.ModelName,
    threshold: o.Threshold = None,
    delta: o.Delta = 0.05,
    method: Annotated[o.OnePolicyMethod | None, typer.Option(help="How to test; by default betting.")] = None,
    indifference: Annotated[float, typer.Option(help='Allow the answer "within": |V - R| is below this.')] = 0.0,
    boundary: o.Boundary = None,
    prior: o.Prior = None,
    allocation: o.Allocation = None,
    seed: o.Seed = 0,
    max_samples: o.MaxSamples = None,
    max_seconds: o.MaxSeconds = None,
    simulator: o.SimulatorPlace = None,
    checkpoint: o.Checkpoint = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    html: o.Html = None,
    accept_uncertified: o.AcceptUncertified = False,
    policy: o.PolicyName = None,
    discount: o.Discount = None,
    rewards: o.RewardModel = None,
    initial: o.InitialState = None,
    horizon: o.Horizon = None,
    goal: o.Goal = None,
    avoid: o.Avoid = None,
    terminal: o.Terminal = None,
    support: o.Support = None,
    const: o.Constants = None,
    assume: o.Assume = o.Assumption.markov,
    agent: o.AgentPlace = None,
    critic: o.CriticPlace = None,
    reward_range: o.RewardRange = None,
    return_range: o.ReturnRange = None,
    vector: o.Vector = None,
    batched: o.Batched = False,
    stochastic: o.Stochastic = False,
    debug: o.Debug = False,
) -> int:
    """Is the value of the policy above the threshold? Sample until it is known.

    With --assume episodes: is the mean return of the agent, which --agent names, above the threshold? Nothing is
    assumed of the environment (gym:CartPole-v1, or python:package.module:name) but that its episodes are independent.

    Exit codes: 0 above, 1 below, 2 usage or input error, 3 undecided, not certified or interrupted, 4 internal error, 5
    within.
    """
    check_files((*files_of_model(model), policy), {"--checkpoint": checkpoint, "--html": html})
    with quiet_stdout(json):
        asked, trace = Asked(discount, rewards, initial, horizon, goal, avoid, terminal, support, const), course(html)
        given = (agent, critic, reward_range, return_range, vector, batched, stochastic)
        of_tables = {"--policy": policy, "--simulator": simulator, "--boundary": boundary, "--prior": prior}
        of_tables |= {"--allocation": allocation, f"--method {method}": method not in (None, "returns")}
        task: Any = find_episodes(model, assume, dict(zip(OF_EPISODES, given, strict=True)), asked, of_tables)
        problem, sim, chosen = None, None, find_method("returns")
        if task is None:
            problem = find_model(model, policy, asked)
            task, sim = problem.task, find_simulator(simulator, problem, model)
            chosen = find_method(method, boundary, prior, allocation, problem.kernel)
        verdict = run_decide(
            task,
            sim,
            quiet,
            threshold=the_bar(threshold, problem),
            delta=delta,
            method=chosen if trace is None else trace.watch(chosen),
            rng=seed,
            max_samples=max_samples,
            max_seconds=max_seconds,
            indifference=indifference,
            checkpoint=checkpoint,
            resume=checkpoint if checkpoint is not None and checkpoint.exists() else None,
        )
    verdict = with_forecast(verdict, quiet)
    show(
        verdict,
        json,
        html,
        f"Is this {'policy' if problem else 'agent'} good enough?",
        about_model(model, agent),
        trace,
    )
    if problem is not None and model.startswith("gym:"):
        _beside(problem, json)
    return ended(verdict, accept_uncertified, how_to_go_on(verdict, checkpoint))


def _beside(model: Model, as_json: bool) -> None:
    """The exact value, which the table of an environment gives, to compare the verdict with; not into the JSON."""
    from policytest._base.text import number
    from policytest.mdp.values import value

    exact = number(value(model.task, model.kernel))
    line = f"exact value: {exact}, by the environment's table, which the test did not see"
    if as_json:
        complain(line)
        return
    with read_or_not():
        say(line)


def run_decide(task: Any, simulator: Any, quiet: bool = False, **settings: Any) -> Verdict:
    """The test, with its progress on stderr."""
    with progress(sys.stderr, quiet) as shown:
        from policytest.questions.decide import decide

        return decide(task, simulator, **settings, progress=shown)
