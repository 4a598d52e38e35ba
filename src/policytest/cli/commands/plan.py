"""``policytest plan``: how many samples will it take?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from policytest._base.errors import InputError
from policytest.cli import options as o
from policytest.cli.exit_codes import DONE
from policytest.cli.files import check_files, files_of
from policytest.cli.groups import as_typed, option
from policytest.cli.inputs import about_model, find_model, find_task, read_log, the_bar
from policytest.cli.output import quiet_stdout, show
from policytest.cli.progress import progress

if TYPE_CHECKING:
    from policytest.data.counts import Counts
    from policytest.data.transitions import Transitions
    from policytest.sources.tasks.files import Model


def plan(
    model: o.ModelName,
    *,
    threshold: float | None = o.THRESHOLD,
    delta: float = o.DELTA,
    power: float | None = option(
        "Also find the smallest budget that gives the right answer with this probability, such as 0.8.",
        under=o.QUESTION,
    ),
    question: o.Question,
    pilot: list[Path] | None = option(
        "Plan from pilot data, a file of Counts.save or a log; may be repeated.", "FILE", under=o.DATA
    ),
    guess: list[str] | None = option(
        "Also plan for the kernel of this model; may be repeated. Where rewards are observed, its rewards are "
        "their means.",
        "MODEL",
        under=o.DATA,
    ),
    data: Annotated[o.Data, o.Only("column")],
    episodes: Annotated[o.Episodes, o.Only("assume", "agent", "reward_range", "return_range", "on_range", "outcome")],
    pilot_episodes: int | None = option("With --assume episodes: how many to plan with.", "N", under=o.EPISODES),
    seed: int = option(o.SEED, default=0),
    output: o.Shown,
) -> int:
    """How many samples will it take, and where should they go? By the model's kernel, or by pilot data.

    With --assume episodes a pilot is run of the agent that --agent names.

    Exit codes: 0 done, 2 usage or input error, 3 interrupted, 4 internal error.
    """
    check_files((*files_of(question, model, *(guess or ())), *(pilot or ())), {"--html": output.html})
    with quiet_stdout(output.json):
        from policytest.questions.plan.plan import plan as make_plan

        of_tables = {"--pilot": pilot, "--guess": guess, **as_typed(data)}
        if episodes.assume != "episodes" and pilot_episodes is not None:
            raise InputError("--pilot-episodes is for episodes; add --assume episodes")
        task, problem = find_task(model, episodes, question, of_tables)
        bar = the_bar(threshold, problem)
        if pilot and guess:
            raise InputError("--pilot and --guess exclude each other", "pass pilot data, or guesses of the kernel")
        if data.column and not pilot:
            raise InputError("--column belongs to --pilot, which names logs")
        with progress(sys.stderr, output.quiet) as shown:
            if problem is None:
                given: dict[str, Any] = {} if pilot_episodes is None else {"pilot": pilot_episodes}
            elif pilot:
                given = {"guess": _pilot(problem, pilot, data, shown.notice)}
            else:
                given = _guess(problem, model, guess or [], question)
            found = make_plan(
                task,
                rng=seed,
                progress=lambda name: shown.notice(f"simulating {name}"),
                **given,
                threshold=bar,
                delta=delta,
                power=power,
            )
    show(found, output, "How many samples will it take?", about_model(model, episodes.agent))
    return DONE


def _guess(problem: Model, model: str, others: list[str], question: o.Question) -> dict[str, Any]:
    """The kernel of the model, or several kernels; and mean rewards where these are observed."""
    found = [(name, _guessed(name, question)) for name in others]
    observed = problem.task.observes_rewards
    found = found if observed else [(model, problem), *found]
    if not found:
        raise InputError(
            f"the rewards of {model} are observed, and a kernel alone does not tell its value; pass --guess MODEL, a "
            "model with a kernel and the mean rewards, or --pilot LOG"
        )
    for name, one in found:
        if one.kernel is None:
            raise InputError(f"{name} has no kernel to plan with; add the key kernel, or pass --pilot FILE of counts")
        if observed and one.task.observes_rewards:
            raise InputError(f"--guess {name}: its rewards are observed, too; give it rewards, which are their means")
    kernels, means = zip(*((one.kernel, one.task.rewards) for _, one in found), strict=True)
    if len(found) == 1:
        return {"guess": kernels[0], "rewards": means[0] if observed else None}
    return {"guess": list(kernels), "rewards": list(means) if observed else None}


def _guessed(name: str, question: o.Question) -> Model:
    """The model of a guess; one of a model checker has no question of its own, and gets that of the command line."""
    from policytest.sources.tasks.files import CHECKED

    if Path(name).suffix.lower() not in CHECKED:
        return find_model(name)
    return find_model(name, question.of_another(name, "uniform"))


def _pilot(problem: Model, files: list[Path], data: o.Data, tell: Callable[[str], None]) -> Counts | Transitions:
    """The counts of all pilots together; of logs, with their rewards where these are observed."""
    from policytest.data.counts import Counts

    counted = [file for file in files if file.suffix.lower() == ".npz"]
    if not counted:
        log = read_log([str(file) for file in files], problem, data, tell)
        return log.transitions() if problem.task.observes_rewards else log.counts
    if len(counted) < len(files):
        raise InputError("--pilot names counts (.npz) and logs", "pass files of one kind")
    first, *rest = (Counts.load(file) for file in files)
    for counts in rest:
        first = first + counts
    return first
