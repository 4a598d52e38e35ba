"""``policytest identify``: which policy is best?"""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any

from policytest.cli import options as o
from policytest.cli.exit_codes import DONE, Code, complain
from policytest.cli.files import check_files, files_of
from policytest.cli.groups import option
from policytest.cli.inputs import (
    check_logged,
    checked_for,
    find_model,
    find_policy,
    find_source,
    method_of_pairs,
    the_budget,
)
from policytest.cli.output import is_accepted, quiet_stdout, show
from policytest.cli.progress import progress
from policytest.cli.trials import TrialQuestion, Trials, check_trials, check_unused, identified, is_table

if TYPE_CHECKING:
    from policytest.mdp.task import Task


def identify(
    model: o.ModelName,
    *,
    candidates: list[str] | None = option(
        "Search among these policy files only; may be repeated. With --log also logged, its frequencies. Of a table of "
        "trials, among agents with these names.",
        "FILE",
        under=o.QUESTION,
        names=("--candidate",),
    ),
    delta: float = o.DELTA,
    question: o.Question,
    method: o.SearchMethod | None = option("How to search; by default betting.", under=o.METHOD),
    settings: o.Method,
    data: o.Data,
    sampling: Annotated[o.Sampling, o.Only("seed", "max_samples", "max_seconds", "budget", "parallel")],
    trials: Annotated[Trials, o.Only("tasks", "return_range")],
    output: o.Output,
) -> int:
    """Which policy is best, among all or among candidates? The model's own policy is ignored.

    Of a table with a row a trial, in the place of the model: which agent has the largest mean outcome, over tasks if
    there is a column task? Trials are taken in rounds, by their column pair or in their order.

    Exit codes: 0 found, 2 usage or input error, 3 not settled, not certified or interrupted, 4 internal error.
    """
    names = candidates or []
    if is_table(model, trials):
        groups, used = (question, settings, data, sampling), ("--column", "--budget", "--seed")
        check_unused(groups, *used, method=method)
        trials = replace(trials, budget=sampling.budget)
        return identified(TrialQuestion(model, trials, data.column, delta, None, compares=True), names, output)
    check_trials(trials)
    logged = check_logged(names, data.log)
    named = [file for file in names if not (logged and file == "logged")]
    check_files((*files_of(question, model, log=data.log or ()), *named), {"--html": output.html})
    with quiet_stdout(output.json), progress(sys.stderr, output.quiet) as shown:
        from policytest.questions.identify import identify as find_best

        problem = find_model(model, question)
        task = problem.task
        if not names:
            task.check_discounted_table("identify among all policies", "name some with --candidate FILE")
        rivals = {file: find_policy(file, problem) for file in named}
        read_as = checked_for(problem, *(() if logged else rivals.values())) if names and data.log else problem
        found = find_best(
            **_without_policy(task),
            sim=find_source(data, read_as, model, shown.notice),
            delta=delta,
            policies=[rivals[file].policy if file in rivals else file for file in names] or None,
            rng=sampling.seed,
            max_samples=sampling.max_samples,
            method=method_of_pairs(method, settings),
            progress=shown,
            max_seconds=sampling.max_seconds,
            budget=the_budget(sampling.budget, problem if names and data.log is None else None),
            parallel=sampling.parallel,
        )
    listed = [f"Candidate {index}: {file}" for index, file in enumerate(names)]
    show(found, output, "Which policy is best?", (f"Model: {model}", *listed))
    if names and found.answered and found.index is not None:
        complain(f"policy {found.index} is {names[found.index]}")
    return DONE if found.answered and is_accepted(found, output.accept_uncertified) else Code.UNDECIDED


def _without_policy(task: Task) -> dict[str, Any]:
    """All that the question says beside a policy, as arguments."""
    return {field.name: getattr(task, field.name) for field in fields(task) if field.name != "policy"}
