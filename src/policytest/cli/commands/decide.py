"""``policytest decide``: is the value above the threshold?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from policytest.cli import options as o
from policytest.cli.exit_codes import complain, read_or_not, say
from policytest.cli.files import check_files, files_of
from policytest.cli.groups import as_typed, option
from policytest.cli.inputs import about_model, find_method, find_simulator, find_task, the_bar, the_budget
from policytest.cli.output import course, ended, how_to_go_on, quiet_stdout, show, with_forecast
from policytest.cli.progress import progress

if TYPE_CHECKING:
    from policytest.sources.tasks.files import Model


def decide(
    model: o.ModelName,
    *,
    threshold: float | None = o.THRESHOLD,
    delta: float = o.DELTA,
    indifference: float = option('Allow the answer "within": |V - R| is below this.', default=0.0, under=o.QUESTION),
    question: o.Question,
    method: o.OnePolicyMethod | None = option("How to test; by default betting.", under=o.METHOD),
    settings: o.Method,
    data: Annotated[o.Data, o.Only("simulator")],
    sampling: o.Sampling,
    episodes: o.Episodes,
    output: o.Output,
) -> int:
    """Is the value of the policy above the threshold? Sample until it is known.

    With --assume episodes: is the mean return of the agent, which --agent names, above the threshold? Nothing is
    assumed of the environment (gym:CartPole-v1, or python:package.module:name) but that its episodes are independent.
    Without a range of rewards or returns the answer is a large-sample one, which is not certified.

    Exit codes: 0 above, 1 below, 2 usage or input error, 3 undecided, not certified or interrupted, 4 internal error, 5
    within.
    """
    check_files(files_of(question, model), {"--checkpoint": sampling.checkpoint, "--html": output.html})
    with quiet_stdout(output.json):
        trace = course(output.html)
        of_tables = {**as_typed(data), **as_typed(settings), f"--method {method}": method not in (None, *o.OF_EPISODES)}
        task, problem = find_task(model, episodes, question, of_tables)
        sim, chosen = None, None if problem is not None else find_method(method)
        if problem is not None:
            sim = find_simulator(data.simulator, problem, model)
            chosen = find_method(method, settings, problem.kernel)
        bar, watched = the_bar(threshold, problem), chosen if trace is None else trace.watch(chosen)
        with progress(sys.stderr, output.quiet) as shown:
            from policytest.questions.decide import decide as decide_task

            about = sampling.settings(shown, the_budget(sampling.budget, problem))
            verdict = decide_task(
                task, sim, threshold=bar, delta=delta, method=watched, indifference=indifference, **about
            )
    verdict = with_forecast(verdict, output.quiet)
    title = f"Is this {'policy' if problem else 'agent'} good enough?"
    show(verdict, output, title, about_model(model, episodes.agent), trace)
    if problem is not None and model.startswith("gym:"):
        _beside(problem, output.json)
    return ended(verdict, output.accept_uncertified, how_to_go_on(verdict, sampling.checkpoint))


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
