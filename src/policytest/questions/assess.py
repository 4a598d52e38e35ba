"""Do recorded data settle the question already?"""

from __future__ import annotations

import warnings
from dataclasses import replace

from policytest._base import arrays
from policytest._base.errors import AssumptionWarning, InputError
from policytest.data.counts import Counts
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.ranges import LARGE_SAMPLE, has_no_end
from policytest.data.transitions import Transitions
from policytest.data.trials import MatchedTrials
from policytest.kl.sampler import NOTHING, Recorded
from policytest.mdp.task import Task
from policytest.methods.baselines.boxes import RectangularKL
from policytest.methods.episode_log_betting import EpisodeLogBetting
from policytest.methods.large_sample import LargeSample
from policytest.methods.listed_rewards import in_outcomes
from policytest.methods.log_betting import LogBetting
from policytest.methods.ptst import PTST
from policytest.methods.run import Method, Run
from policytest.questions.cells import diagnosed
from policytest.questions.driver import Question, checked_method, drive, warn_of_doubts
from policytest.questions.one_look import one_look, one_look_at_episodes
from policytest.questions.recorded import checked_data, recorded
from policytest.questions.trials import beside_outside, judged_trials
from policytest.results.ladder import Alongside
from policytest.results.verdict import Verdict
from policytest.worst_case.certified import MOST_ENTRIES as MOST_PROVABLE
from policytest.worst_case.certified import MOST_STATES

UNSETTLED = "the data do not settle it"
IN_ORDER = "pass the rows in their order: a log with a column order, or Transitions(s, a, x, r)"
MOST_ENTRIES = 2_000_000  # allowed transitions up to which the usual interval is shown beside the certified one


def assess(
    task: Task | LoggedEpisodes,
    data: object = None,
    threshold: float | None = None,
    delta: float = 0.05,
    method: Method | None = None,
    design: str = "adaptive",
    budget: int | None = None,
) -> Verdict:
    """Do these data settle it already? Counts are looked at once; transitions in their order, up to the first answer.

    ``data`` may also be a log of `policytest.sources.logs`, whose counts are then judged. The guarantee is that of
    `decide`, for data collected by any rule that did not look ahead. ``design`` says how they were: "adaptive" (each
    pair may have been chosen after seeing the earlier ones) or "fixed" (how often each pair is drawn was fixed
    beforehand), which only betting on counts needs. Unless given, ``method`` is `PTST()` for counts,
    `RectangularKL()` for counts in tasks too large for the proofs of `PTST()`, and `LogBetting()` for transitions.
    Betting forms its own rollouts from the recorded draws of each pair, each used once.

    ``samples`` of the verdict is the row at which the answer was reached. By `LogBetting()` the estimate and the
    interval rest on all rows.

    Where states are cells (bins), the data are diagnosed too: if they refute that the cells are Markov, or cannot tell
    since they have no order, the answer is not certified.

    `LoggedEpisodes` stand in the place of the task and of the data: ``assess(log, threshold=R)``. If they belong to
    tasks, the question is about the mean over tasks (`policytest.data.trials`). ``budget`` is how many episodes, in
    each task, there will be at most, fixed before the first one: bets aim at an answer by then.
    """
    if isinstance(task, LoggedEpisodes):
        if task.task is not None or budget is not None:
            checked_log(task, data, EpisodeLogBetting() if method is None else method)
            if isinstance(method, LargeSample):
                raise InputError("method: LargeSample() is for trials of one task, without a budget; leave it out")
            question = Question.checked(task, threshold, delta, budget=budget)
            return judged_trials(MatchedTrials.of((task,)), question)
        return _assess_episodes(task, data, threshold, delta, method)
    if budget is not None:
        raise InputError("budget is for LoggedEpisodes; leave it out")
    question = Question.checked(task, threshold, delta)
    arrays.one_of("design", design, ("adaptive", "fixed"))
    counted = getattr(data, "counts", None)
    given = checked_data(counted if isinstance(counted, Counts) else data)  # of a log
    known = question.known()
    if known is not None:
        return beside_data(known, task, given)
    given = diagnosed(task, given)
    method = checked_method(method_for(task, given, for_verdict=True) if method is None else method)
    table, method, rows = in_outcomes(task, method, given)
    if isinstance(rows, Counts):
        run = method.replay(table, question.bar, Recorded(NOTHING, NOTHING))
        run.judge_counts(rows, question.level, design)
        verdict = question.verdict(run, rows.copy(), run.samples_used, UNSETTLED)  # more may be recorded later
    else:
        verdict = judged(question, method.replay(table, question.bar, recorded(table, rows)), rows)
    return _beside(verdict, table, rows)


def checked_log(log: LoggedEpisodes, data: object, method: object) -> EpisodeLogBetting | LargeSample:
    """The method for recorded episodes, with which nothing else is passed."""
    if data is not None:
        remedy = f"pass threshold={data!r}" if isinstance(data, int | float) else "leave data out"
        raise InputError(f"data is a {type(data).__name__}, and LoggedEpisodes are the data; {remedy}")
    if method is not None and not isinstance(method, EpisodeLogBetting | LargeSample):
        raise InputError(
            f"method is {method!r}; recorded episodes are assessed by bets on them: leave it out, or pass LargeSample()"
        )
    if method is None and has_no_end(log.bounds):
        warnings.warn(LARGE_SAMPLE.format("returns have"), AssumptionWarning, stacklevel=5)
        return LargeSample()
    return method or EpisodeLogBetting()


def warn_of_weights(flaws: tuple[str, ...]) -> None:
    """Warn of propensities that the data refute."""
    for words in flaws:
        warnings.warn(f"{words}: no answer is certified; check propensity and target", AssumptionWarning, stacklevel=4)


def _assess_episodes(
    log: LoggedEpisodes, data: object, threshold: float | None, delta: float, method: object
) -> Verdict:
    """Recorded episodes in their order; the estimate and the interval rest on all of them."""
    betting = checked_log(log, data, method)
    question = Question.checked(log, threshold, delta)
    known = question.known()
    if known is not None:
        return beside_outside(known, log.outside)
    run = betting.replay(log, question.bar)
    for _ in drive(run, question.level, len(log)):
        pass
    verdict = question.verdict(run, run.counts(), run.used(), UNSETTLED)
    warn_of_weights(verdict.counts.contradictions)
    warn_of_doubts(verdict.counts)
    if verdict.approximate:
        return verdict
    found = one_look_at_episodes(log, delta)
    return replace(verdict, alongside=Alongside(one_look=(found.lower, found.upper)))


def beside_data(known: Verdict, task: Task, data: Counts | Transitions) -> Verdict:
    """An answer that needs no data, about data whose rewards may not be those of the task."""
    nothing = Transitions(NOTHING, NOTHING, NOTHING, other_rewards=data.other_rewards).counts(task, 0)
    return replace(known, counts=nothing, certified=known.certified and not nothing.flaws)


def judged(question: Question, run: Run, data: Transitions) -> Verdict:
    """What a run says of recorded transitions in their order."""
    for _ in drive(run, question.level, len(data)):
        pass
    counts = data.counts(run.task, len(data) if run.reads_all else run.used())
    return question.verdict(run, counts, run.used(), UNSETTLED)


def _beside(verdict: Verdict, task: Task, data: Counts | Transitions) -> Verdict:
    """With the usual interval for one look at all of the data; not in tasks so large that it would take long."""
    if task.layout.n_entries > MOST_ENTRIES or not task.is_discounted_table:
        return verdict
    found = one_look(task, data.all_counts(task), verdict.delta)
    return replace(verdict, alongside=Alongside(one_look=(found.lower, found.upper)))


def method_for(task: Task, data: Counts | Transitions, for_verdict: bool = False) -> Method:
    """The method where none is given: chosen from the kind of data, never from their content.

    ``for_verdict``: `RectangularKL()`, which proves its answers at any size, where `PTST()` would try no proof.
    """
    if not isinstance(data, Counts):
        return LogBetting()
    if task.is_total or (task.observes_rewards and task.rewards.values is None):
        task.check_discounted_table("a test on counts", IN_ORDER)
    is_large = for_verdict and (task.n_states > MOST_STATES or task.layout.n_entries > MOST_PROVABLE)
    return RectangularKL() if is_large and task.is_discounted_table else PTST()
