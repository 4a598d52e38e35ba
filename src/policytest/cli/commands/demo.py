"""``policytest demo``: the paper's question, answered."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from policytest._base.text import number, plain, probability
from policytest.cli import options as o
from policytest.cli.exit_codes import DONE, Code, complain, say
from policytest.cli.files import check_files
from policytest.cli.groups import option
from policytest.cli.inputs import find_model, find_simulator, the_bar
from policytest.cli.output import course, how_to_go_on, write_report
from policytest.cli.progress import progress

if TYPE_CHECKING:
    from policytest.sources.tasks.files import Model


def demo(
    delta: float = o.DELTA,
    seed: int = option(o.SEED, default=0),
    html: Path = option("The web page to write.", "FILE", default=Path("policytest-demo.html")),
) -> int:
    """Watch the test answer a question of the paper, and get a web page of it."""
    check_files((), {"--html": html})
    question = (
        "The paper's instance with 5 states and 5 actions: is the value of its policy above 0?",
        "The test knows rewards and policy but not the transitions, which it may sample one by one.",
        f"It stops as soon as it can answer with probability of error at most {probability(delta)}.",
    )
    say("\n".join(question) + "\n")
    problem, trace = find_model("paper-5"), course(html)
    simulator = find_simulator(None, problem, "paper-5")
    watched = None if trace is None else trace.watch()
    bar = the_bar(None, problem)
    with progress(sys.stderr) as shown:
        from policytest.questions.decide import decide

        verdict = decide(problem.task, simulator, threshold=bar, delta=delta, method=watched, rng=seed, progress=shown)
    bound = _lower_bound(problem, delta)
    say(f"{verdict.summary.text()}\n\n{bound}")
    write_report(html, verdict, "Is this policy good enough?", (*question, bound), trace)
    say(plain(f"The same as a web page: {html}"))
    if verdict.answer is None:
        complain(how_to_go_on(verdict, None))
        return Code.UNDECIDED
    return DONE


def _lower_bound(model: Model, delta: float) -> str:
    from policytest.kl.boundaries import information
    from policytest.worst_case.lower_bound import characteristic_time

    scale = characteristic_time(model.task, model.kernel).time
    return (
        "For comparison, the lower bound: a test that samples all pairs equally needs at least "
        f"{number(math.ceil(scale * information(-math.log(delta))))} samples on average "
        f"(T* kl(delta, 1-delta), T* = {number(scale)})."
    )
