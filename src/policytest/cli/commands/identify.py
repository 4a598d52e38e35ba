"""``policytest identify``: which policy is best?"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

from policytest._base.errors import InputError
from policytest.cli import options as o
from policytest.cli.exit_codes import DONE, Code, complain
from policytest.cli.files import check_files, files_of
from policytest.cli.groups import as_typed, option
from policytest.cli.inputs import (
    check_logged,
    checked_for,
    find_agent,
    find_policy,
    find_source,
    find_task,
    method_of_pairs,
    the_budget,
)
from policytest.cli.output import is_accepted, quiet_stdout, show
from policytest.cli.progress import progress
from policytest.cli.trials import TrialQuestion, Trials, check_trials, check_unused, identified, is_table

if TYPE_CHECKING:
    from policytest.cli.progress import Lines
    from policytest.data.episodes import Episodes
    from policytest.mdp.task import Task
    from policytest.sources.tasks.files import Model


@dataclass(frozen=True)
class Among:
    """Which policies, or agents, are candidates, and how close to the best the named one may be."""

    candidates: list[str] | None = option(
        "Search among these policy files only; may be repeated. With --log also logged, its frequencies. Of a table of "
        "trials, among agents with these names.",
        "FILE",
        under=o.QUESTION,
        names=("--candidate",),
    )
    indifference: float = option(
        "Of agents: end a tie, too. The one that is named is the best, or worse by less than this.",
        default=0.0,
        under=o.QUESTION,
    )


def identify(
    model: o.ModelName,
    *,
    among: Among,
    delta: float = o.DELTA,
    question: o.Question,
    method: o.SearchMethod | None = option("How to search; by default betting.", under=o.METHOD),
    settings: o.Method,
    data: o.Data,
    sampling: Annotated[o.Sampling, o.Only("seed", "max_samples", "max_seconds", "budget", "parallel")],
    agents: list[str] | None = option(
        "With --assume episodes: an agent, as package.module:name, or another environment; once for each agent.",
        "PLACE",
        under=o.EPISODES,
        names=("--agent",),
    ),
    episodes: Annotated[o.Episodes, o.Only(*o.OF_SEVERAL)],
    trials: Annotated[Trials, o.Only("tasks")],
    output: o.Output,
) -> int:
    """Which policy is best, among all or among candidates? The model's own policy is ignored.

    With --assume episodes: which agent has the largest mean return, among those that --agent names? Each seed is used
    for an episode of every agent that is still in, and an agent that is not the best is not run any more.

    Of a table with a row a trial, in the place of the model: which agent has the largest mean outcome, over tasks if
    there is a column task? Trials are taken in rounds, by their column pair or in their order.

    Exit codes: 0 found, 2 usage or input error, 3 not settled, not certified or interrupted, 4 internal error.
    """
    names, indifference = among.candidates or [], among.indifference
    if is_table(model, trials):
        used = "--column", "--budget", "--seed", "--return-range"
        check_unused((question, settings, data, sampling, episodes), *used, method=method, agent=agents)
        trials = replace(trials, budget=sampling.budget, return_range=episodes.return_range)
        asked_of = TrialQuestion(model, trials, data.column, delta, None, indifference, compares=True)
        return identified(asked_of, names, output)
    check_trials(trials)
    logged = check_logged(names, data.log)
    named = [file for file in names if not (logged and file == "logged")]
    check_files((*files_of(question, model, log=data.log or ()), *named), {"--html": output.html})
    asked: dict[str, Any] = {
        "delta": delta,
        "rng": sampling.seed,
        "max_samples": sampling.max_samples,
        "max_seconds": sampling.max_seconds,
        "parallel": sampling.parallel,
        "indifference": indifference,
    }
    of_tables = {"--candidate": names, **as_typed(data), **as_typed(settings), f"--method {method}": method}
    with quiet_stdout(output.json), progress(sys.stderr, output.quiet) as shown:
        from policytest.questions.identify import identify as find_best

        asked["progress"] = shown
        if episodes.assume == "episodes":
            rivals = _agents(model, agents or [], episodes, question, of_tables)
            asked |= {"names": _distinct(agents or []), "budget": sampling.budget}
            found = find_best(rivals, **asked)
        else:
            _, problem = find_task(model, replace(episodes, agent=agents[0] if agents else None), question, {})
            assert problem is not None
            asked |= {"method": method_of_pairs(method, settings)}
            asked |= _policies(problem, names, named, data, model, shown)
            asked["budget"] = the_budget(sampling.budget, problem if names and data.log is None else None)
            found = find_best(**_without_policy(problem.task), **asked)
    about = [f"Agent {index}: {place}" for index, place in enumerate(agents or [])]
    about += [f"Candidate {index}: {file}" for index, file in enumerate(names)]
    what, where = ("agent", "Environment") if found.agents else ("policy", "Model")
    show(found, output, f"Which {what} is best?", (f"{where}: {model}", *about))
    if names and found.answered and found.index is not None:
        complain(f"policy {found.index} is {names[found.index]}")
    return DONE if found.answered and is_accepted(found, output.accept_uncertified) else Code.UNDECIDED


def _agents(
    model: str, places: list[str], episodes: o.Episodes, question: o.Question, of_tables: dict[str, object]
) -> list[Episodes]:
    """The episodes of each agent."""
    if not places:
        raise InputError("no agents: name each with --agent package.module:name")
    return [find_agent(model, place, episodes, question, of_tables) for place in places]


def _policies(
    problem: Model, names: list[str], named: list[str], data: o.Data, model: str, shown: Lines
) -> dict[str, Any]:
    """The policies among which the best is sought, and what is sampled from."""
    if not names:
        problem.task.check_discounted_table("identify among all policies", "name some with --candidate FILE")
    rivals = {file: find_policy(file, problem) for file in named}
    read_as = problem
    if names and data.log:
        read_as = checked_for(problem, *(rivals.values() if named == names else ()))
    policies = [rivals[file].policy if file in rivals else file for file in names] or None
    return {"sim": find_source(data, read_as, model, shown.notice), "policies": policies}


def _distinct(places: list[str]) -> list[str]:
    """The places, numbered where one is named twice."""
    return places if len(set(places)) == len(places) else [f"{place} ({i})" for i, place in enumerate(places)]


def _without_policy(task: Task) -> dict[str, Any]:
    """All that the question says beside a policy, as arguments."""
    return {field.name: getattr(task, field.name) for field in fields(task) if field.name != "policy"}
