"""``policytest evaluate``: how good is it?"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

from policytest._base.errors import InputError
from policytest._base.text import number
from policytest.cli import inputs
from policytest.cli import options as o
from policytest.cli.exit_codes import DONE, Code
from policytest.cli.files import check_files, files_of
from policytest.cli.groups import as_typed, option
from policytest.cli.output import course, is_accepted, quiet_stdout, show
from policytest.cli.progress import progress


def evaluate(
    model: o.ModelName,
    *,
    epsilon: float | None = option(
        "The wanted precision: half the width of the interval. Required, unless there is a budget.", under=o.QUESTION
    ),
    delta: float = o.DELTA,
    question: o.Question,
    method: o.ValueMethod | None = option("How to measure; by default betting.", under=o.METHOD),
    data: o.Data,
    sampling: Annotated[o.Sampling, o.Only("seed", "max_samples", "max_seconds", "budget", "parallel")],
    episodes: o.Episodes,
    output: o.Output,
) -> int:
    """How good is the policy? Sample until its value is known within epsilon, or a budget is used up; or look at a log.

    With --assume episodes: the mean return of the agent that --agent names, in any environment.
    With --log, --policy logged is the policy of the log itself: how often it takes each action in a state.

    Exit codes: 0 done, 2 usage or input error, 3 the precision was not reached or not certified, 4 internal error.
    """
    logged = inputs.check_logged([question.policy], data.log)
    question = replace(question, policy=None) if logged else question
    check_files(files_of(question, model, log=data.log or ()), {"--html": output.html})
    with quiet_stdout(output.json):
        from policytest.questions.evaluate import evaluate as estimate_value
        from policytest.questions.logged_policy import logged_task

        trace = course(output.html)
        of_tables = {**as_typed(data), f"--method {method}": method not in (None, *o.OF_EPISODES)}
        task, problem = inputs.find_task(model, episodes, question, of_tables)
        sim, rule = None, inputs.find_method(method)
        with progress(sys.stderr, output.quiet) as shown:
            budget = inputs.the_budget(sampling.budget, problem if data.log is None else None)
            if epsilon is None and budget is None:
                raise InputError("no precision: pass --epsilon E, half the width of the interval, or --budget N")
            if problem is not None:
                sim = inputs.find_source(data, inputs.checked_for(problem) if logged else problem, model, shown.notice)
                task = logged_task(problem.task, sim) if logged else task

            def narrowing(samples: int, low: float, high: float) -> None:
                wanted = "" if epsilon is None else f", wanted within {number(epsilon)}"
                shown.tell(samples, f"value in [{low:.4g}, {high:.4g}]{wanted}")
                if trace is not None:
                    trace(samples, low, high)

            limits = sampling.max_samples, narrowing, sampling.max_seconds, budget, sampling.parallel
            found = estimate_value(task, sim, epsilon, delta, rule, sampling.seed, *limits)
    what = "policy" if problem else "agent"
    show(found, output, f"How good is this {what}?", inputs.about_model(model, episodes.agent), trace)
    return DONE if found.reached and is_accepted(found, output.accept_uncertified) else Code.UNDECIDED
