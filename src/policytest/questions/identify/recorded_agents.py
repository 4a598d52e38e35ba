"""The best of several agents, by recorded trials of each: rounds of `policytest.questions.identify.elimination`.

The k-th trials of all agents make a round, or those with the same label, one in every task; an agent that is thrown out
has no part in later rounds, and a round that lacks a trial of an agent that is left waits for it.
"""

from __future__ import annotations

import math

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest._base.text import plural
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.kl.sampler import UNLIMITED
from policytest.payoffs.known_range import check_equal
from policytest.payoffs.recorded_trials import TrialRounds
from policytest.questions.identify.agents import Orders, checked_names, selection_of, warn_of_budget
from policytest.questions.identify.elimination import Elimination
from policytest.questions.trials import UNSETTLED, WITH_RANGE, not_of_trials
from policytest.results.selection import Selection

NO_ENDS = (
    f"no agent can be thrown out: that needs the high end of its outcomes, and the low ends of all others; {WITH_RANGE}"
)


def are_logs(given: object) -> bool:
    """Whether these are recorded trials of several agents."""
    return isinstance(given, list | tuple) and any(isinstance(one, LoggedEpisodes) for one in given)


def best_on_record(given: object, orders: Orders, method: object, of_others: dict[str, object]) -> Selection:
    """The agent with the largest mean; ``of_others`` are arguments that recorded trials do not have."""
    limits = {"max_samples": orders.samples, "max_seconds": orders.seconds, "method": method}
    not_of_trials(**{name: value for name, value in of_others.items() if value != ()}, **limits)
    not_of_trials(parallel=None if orders.parallel == 1 else orders.parallel)
    orders, logs = orders.checked(), arrays.listed("agents", given, "LoggedEpisodes")
    for i, log in enumerate(logs):
        if not isinstance(log, LoggedEpisodes):
            raise InputError(f"agents[{i}] is a {type(log).__name__}; pass LoggedEpisodes of all agents")
        check_equal(logs[0], log, ("discount",), "their returns are only comparable with the same: pass the same")
    known = all(log.agent for log in logs) and orders.names is None
    names = checked_names([log.agent for log in logs] if known else orders.names, len(logs))
    supply = TrialRounds(logs)
    search = Elimination(supply, orders.delta, orders.indifference, orders.budget)
    if search.against and all(math.isinf(run.source.low) for run in search.against.values()):
        raise InputError(NO_ENDS)
    warn_of_budget(search)
    for check in search.go(UNLIMITED):
        if orders.progress is not None:
            orders.progress(check)
    how = "with the same label" if supply.labelled else "in their order"
    tasks = f" and {plural(supply.tasks, 'task')}" if supply.tasks > 1 else ""
    words = f"betting on recorded trials, {plural(len(logs), 'agent')}{tasks} in rounds of trials {how}"
    ended = UNSETTLED if supply.exhausted else ""
    return selection_of(search, names, ended, words, supply.assumptions)
