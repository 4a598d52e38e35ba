"""Questions about recorded trials: is agent A better than agent B, is an agent above a threshold?

The trials are taken in rounds (`policytest.data.trials`), and bets on their outcomes are those on returns of episodes
(`policytest.methods.return_run`), with a budget too. All trials are read; the answer is that of the first round with
enough evidence, so that the same question may be asked again whenever trials were added. The estimate and the interval
rest on all rounds.

With several tasks each is asked about by itself as well, at delta/T: with probability at least 1 - delta no answer of
that table is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.ranges import has_no_end
from policytest.data.returns import Returns
from policytest.data.trials import MatchedTrials
from policytest.methods.return_run import ReturnsRun
from policytest.payoffs.known_range import KnownRange, check_equal
from policytest.payoffs.recorded_trials import RecordedTrials
from policytest.questions.driver import Question, drive
from policytest.results.by_task import ByTask, TaskAnswer
from policytest.results.verdict import Verdict

WITH_RANGE = "pass return_range=(low, high), where outcomes must lie whatever happens; (0, 1) for successes"
NO_RANGE = f"outcomes have no known range, and bets on several tasks, or with a budget, need one; {WITH_RANGE}"
NO_DIFFERENCE = (
    'the difference of outcomes has no known end: "above" needs the low end of policy A and the high end of policy B, '
    f'"below" the other two; {WITH_RANGE}'
)
UNSETTLED = "the trials do not settle it"


@dataclass(frozen=True)
class TrialBetting:
    """The method of questions about recorded trials, for their verdicts."""

    agents: tuple[str, ...]
    labelled: bool
    tasks: int

    def describe(self) -> str:
        """The method in a few words."""
        rounds = f", in rounds of {self.tasks} tasks" if self.tasks > 1 else ""
        if len(self.agents) == 1:
            return f"betting on recorded trials{rounds}"
        a, b = self.agents
        how = "with the same label" if self.labelled else "in their order"
        return f"betting on recorded trials, {a} against {b} in pairs {how}{rounds}"


def compare_trials(a: LoggedEpisodes, b: object, question: Question, ratio: object = (1, 1)) -> Verdict:
    """Is agent A better than agent B by more than the margin, by the trials of each?"""
    if not isinstance(b, LoggedEpisodes):
        raise InputError(f"task_b is a {type(b).__name__}, and task_a is LoggedEpisodes; pass LoggedEpisodes of both")
    check_equal(a, b, ("discount",), "their returns are only comparable with the same: pass the same")
    return judged_trials(MatchedTrials.of((a, b), _checked_ratio(ratio)), question)


def _checked_ratio(ratio: object) -> tuple[int, int]:
    """How many trials of A, and of B, make an outcome."""
    if not isinstance(ratio, Sequence) or isinstance(ratio, str) or len(ratio) != 2:
        raise InputError(f"ratio is {arrays.shown(ratio)}; pass two numbers of trials, of A and of B, such as (1, 4)")
    a, b = (arrays.whole_number(f"ratio[{k}]", r) for k, r in enumerate(ratio))
    if min(a, b) < 1:
        raise InputError(f"ratio is ({a}, {b}); both must be at least 1")
    return a, b


def judged_trials(trials: MatchedTrials, question: Question) -> Verdict:
    """The verdict of these trials, with the answer for each task where there are several."""
    question = replace(question, task=trials)
    known = question.known_by(KnownRange(*trials.bounds, 0.0), 4)
    if known is not None:
        return beside_outside(known, trials.outside)
    if has_no_end(trials.bounds):
        raise InputError(NO_DIFFERENCE if trials.rivals else NO_RANGE)
    if not trials.rounds:
        raise InputError("there are no trials; record some of each agent and task")
    verdict = _asked(trials, question)
    T = len(trials.tasks)
    if T == 1:
        return verdict
    alone = replace(question, delta=question.delta / T, zone=0.0)
    answers = [_task_answer(trials.of_task(t), alone) for t in range(T)]
    by_task = ByTask(tuple(answers), question.bar, question.delta, question.about)
    return replace(verdict, alongside=replace(verdict.alongside, by_task=by_task))


def beside_outside(known: Verdict, outside: tuple[str, ...]) -> Verdict:
    """An answer that follows from the declared ranges, about outcomes some of which lie outside them."""
    if not outside:
        return known
    nothing = Returns(np.zeros(0), np.zeros(0, dtype=np.int64), outside=outside)
    return replace(known, counts=nothing, certified=False)


def _asked(trials: MatchedTrials, question: Question) -> Verdict:
    """One question, of one list of rounds."""
    method = TrialBetting(trials.rivals or (trials.name,), trials.labelled, len(trials.tasks))
    run = ReturnsRun(method, trials, question.bar, RecordedTrials(trials), question.zone)
    if question.budget is not None:
        run.aim_at(question.budget * len(trials.tasks), question.about == "difference")
    for _ in drive(run, question.level, 2 * len(trials.outcomes) + 1):
        pass
    return question.verdict(run, run.counts(), run.used(), UNSETTLED)


def _task_answer(trials: MatchedTrials, question: Question) -> TaskAnswer:
    """What the trials of one task say."""
    found = _asked(trials, replace(question, task=trials))
    return TaskAnswer(trials.tasks[0], found.counts.episodes, found.estimate, found.interval, found.answer)


def not_of_trials(**given: object) -> None:
    """Refuse what is for episodes that are run."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} is for samples that are drawn, and these trials were recorded; leave it out")
