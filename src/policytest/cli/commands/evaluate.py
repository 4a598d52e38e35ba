"""``policytest evaluate``: how good is it?"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from policytest._base.text import number
from policytest.cli import options as o
from policytest.cli.exit_codes import DONE, Code
from policytest.cli.files import check_files, files_of_log, files_of_model
from policytest.cli.inputs import (
    OF_EPISODES,
    Asked,
    about_model,
    check_logged,
    checked_for,
    find_episodes,
    find_method,
    find_model,
    find_source,
)
from policytest.cli.output import course, is_accepted, quiet_stdout, show
from policytest.cli.progress import progress


def evaluate(
    model: o.ModelName,
    epsilon: Annotated[float, typer.Option(help="The wanted precision: half the width of the interval.")],
    delta: o.Delta = 0.05,
    method: Annotated[o.ValueMethod | None, typer.Option(help="How to measure; by default betting.")] = None,
    seed: o.Seed = 0,
    max_samples: o.MaxSamples = None,
    max_seconds: o.MaxSeconds = None,
    simulator: o.SimulatorPlace = None,
    log: o.LogFiles = None,
    columns: o.Columns = None,
    skip: o.Skip = None,
    by_episode: o.ByEpisode = False,
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
    """How good is the policy? Sample until its value is known within epsilon, or look at a log.

    With --assume episodes: the mean return of the agent that --agent names, in any environment.
    With --log, --policy logged is the policy of the log itself: how often it takes each action in a state.

    Exit codes: 0 done, 2 usage or input error, 3 the precision was not reached or not certified, 4 internal error.
    """
    logged = check_logged([policy], log)
    policy = None if logged else policy
    check_files((*files_of_model(model), policy, *files_of_log(log)), {"--html": html})
    with quiet_stdout(json):
        from policytest.questions.evaluate import evaluate as estimate_value
        from policytest.questions.logged_policy import logged_task

        asked, trace = Asked(discount, rewards, initial, horizon, goal, avoid, terminal, support, const), course(html)
        given = (agent, critic, reward_range, return_range, vector, batched, stochastic)
        of_tables: dict[str, Any] = {
            "--policy": policy,
            "--simulator": simulator,
            "--log": log,
            "--column": columns,
            "--skip": skip,
        }
        of_tables |= {"--by-episode": by_episode, f"--method {method}": method not in (None, "returns")}
        episodes = find_episodes(model, assume, dict(zip(OF_EPISODES, given, strict=True)), asked, of_tables)
        rule = find_method(method)
        with progress(sys.stderr, quiet) as shown:
            task: Any = episodes
            sim = None
            if episodes is None:
                problem = find_model(model, policy, asked)
                read_as = checked_for(problem) if logged else problem
                sim = find_source(simulator, read_as, model, log, columns, skip, by_episode, shown.notice)
                task = logged_task(problem.task, sim) if logged else problem.task

            def narrowing(samples: int, low: float, high: float) -> None:
                shown.tell(samples, f"value in [{low:.4g}, {high:.4g}], wanted within {number(epsilon)}")
                if trace is not None:
                    trace(samples, low, high)

            limits = max_samples, narrowing, max_seconds
            found = estimate_value(task, sim, epsilon, delta, rule, seed, *limits)
    show(
        found,
        json,
        html,
        f"How good is this {'policy' if episodes is None else 'agent'}?",
        about_model(model, agent),
        trace,
    )
    return DONE if found.reached and is_accepted(found, accept_uncertified) else Code.UNDECIDED
