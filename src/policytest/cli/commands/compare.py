"""``policytest compare``: is one policy better than another?"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from policytest._base.errors import InputError
from policytest.cli import inputs
from policytest.cli import options as o
from policytest.cli.exit_codes import complain
from policytest.cli.files import check_files, files_of
from policytest.cli.groups import as_typed, option
from policytest.cli.output import ended, how_to_go_on, quiet_stdout, show, with_forecast
from policytest.cli.progress import progress
from policytest.cli.trials import WHICH, TrialQuestion, Trials, answered, check_unused, is_table

if TYPE_CHECKING:
    from policytest.data.episodes import Episodes
    from policytest.mdp.task import Task


@dataclass(frozen=True)
class Bar:
    """What the difference is compared with."""

    margin: float = option("By how much the first must be better.", default=0.0, under=o.QUESTION)
    indifference: float = option(
        'Allow the answer "within": A - B is less than this away from the margin.', default=0.0, under=o.QUESTION
    )


def compare(
    model: o.ModelName,
    other: Annotated[
        str | None,
        typer.Argument(
            help="The other policy: a .csv file, or a scheduler; or a model that differs in its policy or its rewards; "
            "or logged, the action frequencies of --log. With --assume episodes: the other agent, as "
            "package.module:name, or another environment."
        ),
    ] = None,
    *,
    delta: float = o.DELTA,
    bar: Bar,
    question: o.Question,
    method: o.PairsMethod | None = option("How to compare; by default betting.", under=o.METHOD),
    settings: o.Method,
    data: o.Data,
    sampling: o.Sampling,
    episodes: Annotated[o.Episodes, o.Only(*o.OF_SEVERAL, "agent")],
    trials: Annotated[Trials, o.Only("a", "b", "tasks", "ratio")],
    output: o.Output,
) -> int:
    """Is the first policy better than the second? Sample until it is known, or look at a log.

    Of a table with a row a trial, in the place of the model: is agent --a better than agent --b? Trials are taken in
    pairs, by their column pair or in their order; with a column task the question is about the mean over tasks.

    With --assume episodes: is the agent that --agent names better than the second, in pairs of episodes with the same
    seed? Nothing is assumed of the environment but that its episodes are independent.

    Exit codes: 0 better by more than the margin, 1 not better, 2 usage or input error, 3 undecided, not certified or
    interrupted, 4 internal error, 5 within the indifference zone.
    """
    if is_table(model, trials):
        if other is not None:
            raise InputError(f"{model} is a table of trials; in place of {other}, name its agents with --a and --b")
        groups, used = (
            (question, settings, data, sampling, episodes),
            ("--column", "--budget", "--return-range", "--seed"),
        )
        check_unused(groups, *used, method=method)
        trials = replace(trials, return_range=episodes.return_range, budget=sampling.budget)
        asked = TrialQuestion(model, trials, data.column, delta, bar.margin, bar.indifference, compares=True)
        return answered(asked, output, WHICH)
    if other is None:
        other_is = "agent" if episodes.assume == "episodes" else "policy"
        raise InputError(f"the other {other_is} is missing: name it after the model, as in compare {model} OTHER")
    margin, indifference = bar.margin, bar.indifference
    logged = inputs.check_logged([other], data.log)
    models = (model,) if logged else (model, other)
    written = {"--checkpoint": sampling.checkpoint, "--html": output.html}
    check_files(files_of(question, *models, log=data.log or ()), written)
    with quiet_stdout(output.json), progress(sys.stderr, output.quiet) as shown:
        from policytest.questions.compare import compare as compare_policies
        from policytest.results.sentences import own_assumptions

        if indifference and method == "ptst":
            raise InputError("--indifference belongs to --method betting, which is the default")
        of_tables = {**as_typed(data), **as_typed(settings), f"--method {method}": method not in (None, *o.OF_EPISODES)}
        first, problem = inputs.find_task(model, episodes, question, of_tables)
        rival: Task | Episodes | str = other
        if problem is None:
            rival = inputs.find_agent(model, other, episodes, question, {})
            chosen, source = inputs.find_method(method), None
        else:
            read_as = problem
            if logged:
                read_as = inputs.checked_for(problem)
            elif inputs.is_policy(other):
                rival = inputs.find_policy(other, problem)
                read_as = problem if data.log is None else inputs.checked_for(problem, rival)
            else:
                rival = _other_model(other, question)
            chosen = inputs.method_of_pairs(method, settings)
            source = inputs.find_source(data, read_as, model, shown.notice)
        limits = sampling.settings(shown, inputs.the_budget(sampling.budget, problem if data.log is None else None))
        verdict = compare_policies(first, rival, source, delta, margin, chosen, indifference=indifference, **limits)
    verdict = with_forecast(verdict, output.quiet)
    notes = own_assumptions(verdict.task) if logged else ()
    if notes and not output.quiet:
        complain(f"policy B is the logged one; what the answer rests on: {' '.join(notes)}")
    named = f"Policy A: {model}. Policy B: {other}."
    if episodes.assume == "episodes":
        named = f"Environment: {model}. Agent A: {episodes.agent or model}. Agent B: {other}."
    show(verdict, output, "Which policy is better?", (named, *notes))
    return ended(verdict, output.accept_uncertified, how_to_go_on(verdict, sampling.checkpoint))


def _other_model(other: str, question: o.Question) -> Task:
    """The task of the other model, which needs a policy of its own: --policy is that of the first."""
    try:
        return inputs.find_model(other, question.of_another(other)).task
    except InputError as error:
        raise InputError(str(error).replace("pass policy=... (--policy on the command line), or ", "")) from None
