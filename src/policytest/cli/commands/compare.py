"""``policytest compare``: is one policy better than another?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policytest._base.errors import InputError
from policytest.cli import options as o
from policytest.cli.exit_codes import complain
from policytest.cli.files import check_files, files_of_log, files_of_model
from policytest.cli.inputs import (
    Asked,
    check_logged,
    checked_for,
    find_episodes,
    find_model,
    find_policy,
    find_source,
    is_policy,
    method_of_pairs,
)
from policytest.cli.output import ended, how_to_go_on, quiet_stdout, show, with_forecast
from policytest.cli.progress import progress

if TYPE_CHECKING:
    from policytest.data.episodes import Episodes
    from policytest.mdp.task import Task


def compare(
    model: o.ModelName,
    other: Annotated[
        str,
        typer.Argument(
            help="The other policy: a .csv file, or a scheduler; or a model that differs in its policy or its rewards; "
            "or logged, the action frequencies of --log. With --assume episodes: the other agent, as "
            "package.module:name, or another environment."
        ),
    ],
    margin: Annotated[float, typer.Option(help="By how much the first must be better.")] = 0.0,
    delta: o.Delta = 0.05,
    method: Annotated[o.PairsMethod | None, typer.Option(help="How to compare; by default betting.")] = None,
    indifference: Annotated[
        float, typer.Option(help='Allow the answer "within": A - B is less than this away from the margin.')
    ] = 0.0,
    boundary: o.Boundary = None,
    prior: o.Prior = None,
    allocation: o.Allocation = None,
    seed: o.Seed = 0,
    max_samples: o.MaxSamples = None,
    max_seconds: o.MaxSeconds = None,
    simulator: o.SimulatorPlace = None,
    log: o.LogFiles = None,
    columns: o.Columns = None,
    skip: o.Skip = None,
    by_episode: o.ByEpisode = False,
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
    reward_range: o.RewardRange = None,
    return_range: o.ReturnRange = None,
    stochastic: o.Stochastic = False,
    debug: o.Debug = False,
) -> int:
    """Is the first policy better than the second? Sample until it is known, or look at a log.

    With --assume episodes: is the agent that --agent names better than the second, in pairs of episodes with the same
    seed? Nothing is assumed of the environment but that its episodes are independent.

    Exit codes: 0 better by more than the margin, 1 not better, 2 usage or input error, 3 undecided, not certified or
    interrupted, 4 internal error, 5 within the indifference zone.
    """
    logged = check_logged([other], log)
    read = (*files_of_model(model), *files_of_model(None if logged else other), policy, *files_of_log(log))
    check_files(read, {"--checkpoint": checkpoint, "--html": html})
    with quiet_stdout(json), progress(sys.stderr, quiet) as shown:
        from policytest.questions.compare import compare as compare_policies
        from policytest.results.sentences import own_assumptions

        asked = Asked(discount, rewards, initial, horizon, goal, avoid, terminal, support, const)
        if indifference and method == "ptst":
            raise InputError("--indifference belongs to --method betting, which is the default")
        given: dict[str, Any] = {"agent": agent, "reward_range": reward_range, "return_range": return_range}
        given["stochastic"] = stochastic
        of_tables: dict[str, Any] = {
            "--policy": policy,
            "--simulator": simulator,
            "--log": log,
            "--column": columns,
            "--skip": skip,
            "--by-episode": by_episode,
            "--boundary": boundary,
            "--prior": prior,
            "--allocation": allocation,
            f"--method {method}": method,
        }
        first: Any = find_episodes(model, assume, given, asked, of_tables)
        if first is not None:
            rival: Any = _other_agent(model, other, given, asked)
            chosen, source = None, None
        else:
            problem = find_model(model, policy, asked)
            first, read_as = problem.task, problem
            if logged:
                rival = other
                read_as = checked_for(problem)
            elif is_policy(other):
                rival = find_policy(other, problem)
                read_as = problem if log is None else checked_for(problem, rival)
            else:
                rival = _other_model(other, asked)
            chosen = method_of_pairs(method, boundary, prior, allocation)
            source = find_source(simulator, read_as, model, log, columns, skip, by_episode, shown.notice)
        verdict = compare_policies(
            first,
            rival,
            source,
            delta,
            margin,
            chosen,
            rng=seed,
            max_samples=max_samples,
            max_seconds=max_seconds,
            indifference=indifference,
            checkpoint=checkpoint,
            resume=checkpoint if checkpoint is not None and checkpoint.exists() else None,
            progress=shown,
        )
    verdict = with_forecast(verdict, quiet)
    notes = own_assumptions(verdict.task) if logged else ()
    if notes and not quiet:
        complain(f"policy B is the logged one; what the answer rests on: {' '.join(notes)}")
    named = f"Policy A: {model}. Policy B: {other}."
    if assume == "episodes":
        named = f"Environment: {model}. Agent A: {agent or model}. Agent B: {other}."
    show(verdict, json, html, "Which policy is better?", (named, *notes))
    return ended(verdict, accept_uncertified, how_to_go_on(verdict, checkpoint))


def _other_model(other: str, asked: Asked) -> Task:
    """The task of the other model, which needs a policy of its own: --policy is that of the first."""
    try:
        return find_model(other, None, asked.of_another(other)).task
    except InputError as error:
        raise InputError(str(error).replace("pass policy=... (--policy on the command line), or ", "")) from None


def _other_agent(model: str, other: str, given: dict[str, Any], asked: Asked) -> Episodes | None:
    """The episodes of the other agent in the same environment; or those at another address."""
    if other.startswith(("gym:", "python:")):
        return find_episodes(other, "episodes", given, asked, {})
    return find_episodes(model, "episodes", {**given, "agent": other}, asked, {})
