"""Which policy is best? Among some that are given, or among all: the question, and the ways to answer it.

- *Betting* on comparisons, or on deviations from a candidate (`identify.deviations`), the default: certified.
- The *KL rule* on all alternatives at once (`policytest.questions.identify.kl_search`): answers on a local search.
- *KLB-TS* (`policytest.questions.identify.klbts`), a baseline: a closed-form bound in the place of the worst case.
- *Rounds of episodes* (`policytest.questions.identify.agents`), of agents in any environment, without a table; and of
  trials that were recorded (`policytest.questions.identify.recorded_agents`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.data.transitions import Transitions
from policytest.kl.boundaries import check_delta
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task
from policytest.methods.baselines.klbts import KLBTS
from policytest.methods.ptst import PTST
from policytest.methods.return_betting import ReturnBetting
from policytest.methods.td_betting import TDBetting
from policytest.payoffs.coupling import joint_task
from policytest.questions.cells import diagnosed, diagnosed_run
from policytest.questions.driver import (
    checked_budget,
    in_parallel,
    not_on_a_log,
    sampling_limit,
    time_limit,
    until_interrupted,
    workers,
)
from policytest.questions.identify.agents import Orders, are_agents, best_agent
from policytest.questions.identify.deviations import BettingSearch
from policytest.questions.identify.kl_search import Deviations, KLSearch, Rivals
from policytest.questions.identify.klbts import KLBTSSearch
from policytest.questions.identify.policies import ARRAYS, Search, task_of_all_pairs, tasks_of
from policytest.questions.identify.recorded_agents import are_logs, best_on_record
from policytest.questions.identify.tournament import Tournament, best_on_a_log
from policytest.questions.logged_policy import is_logged, logged_task
from policytest.questions.unnamed_ends import UnnamedEnds
from policytest.results.selection import Selection, SelectionCheck

__all__ = ["Selection", "identify"]

SOME = "pass policies=[...] to find the best of some"


def identify(
    rewards: object,
    initial: object = None,
    discount: float | None = None,
    sim: SimulatorLike | Transitions | None = None,
    delta: float = 0.05,
    policies: Sequence[Any] | None = None,
    rng: Seed = 0,
    max_samples: int | None = None,
    support: object = None,
    method: TDBetting | PTST | KLBTS | ReturnBetting | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    progress: Callable[[SelectionCheck], None] | None = None,
    assumptions: Sequence[str] = (),
    available: object = None,
    horizon: int | None = None,
    terminal: Sequence[Hashable] | None = None,
    total_rewards: tuple[float, float] | None = None,
    start: int | None = None,
    goal: Sequence[Hashable] | None = None,
    max_seconds: float | None = None,
    budget: int | None = None,
    parallel: int = 1,
    names: Sequence[Hashable] | None = None,
    indifference: float = 0.0,
) -> Selection:
    """The best of some policies, or of all, or of some agents in any environment, with error at most delta.

    ``identify([first, second, ...])`` is about agents: `Episodes` with the same discount, horizon and outcome, of which
    the one with the largest mean return is sought. Each seed is used for an episode of every agent that is still in.
    Or `LoggedEpisodes`: recorded trials of each agent, by their labels or in their order, with the mean over tasks if
    they have several (`policytest.data.trials`).

    Parameters
    ----------
    rewards, initial, discount, support, states, actions, assumptions, available
        As in `Task`. Or, in the place of rewards, a list of `Episodes` or `LoggedEpisodes`, without any of the others.
    horizon, terminal, total_rewards, start, goal
        As in `Task`. Observed rewards, a horizon and discount 1 are for the best of given policies.
    sim
        The simulator: `draw(states, actions, rng)`. Or recorded `Transitions(s, a, x)` in their order, for the best of
        given policies: the one with the largest estimate is compared with each of the others, at delta/(K-1).
    policies
        Arrays [S,A], of which the best is sought. None: an optimal policy, from every state that rho can lead to. Of
        recorded transitions one may be "logged": how often they take each action in a state, valid as in `compare`.
    delta, rng, max_samples, max_seconds
        The probability of error; a seed or a Generator; stop undecided after this many samples, or seconds.
    method
        `TDBetting()`, which is the default: certified. `PTST(...)`: the KL rule on all alternatives; a descent may miss
        the nearest kernel, so its answers are not certified. `KLBTS()`: the baseline, for the best of all policies.
    progress
        Called after every step, with a look at the search.
    names
        Of agents, for what is shown: one each. By default "agent 0", "agent 1", ...
    indifference
        For agents: if positive, a tie ends, too. The agent named is the best one, or worse by less than this.
    budget
        For the best of given policies by betting: the most transitions, fixed before the first one. Comparisons then
        aim at an answer within their shares of it (`identify.tournament`); at its end the search stops, undecided.
        For agents: the most episodes, of all agents together; bets aim at an answer by the last round that it allows.
    parallel
        As in `decide`: how many rollouts are under way at once; or rounds of agents, an episode of each.

    Ties are not settled by samples: where the best two are exactly as good, only ``max_samples`` ends the search.
    Policies that are as good whatever the kernel is need no samples. Ctrl-C ends it between two draws, undecided.

    Paper: `app:extension`.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> found = identify(two.task.rewards, two.task.initial, 0.9, pt.TabularSimulator(two.kernel),
    ...                  policies=[two.alternative_policy, two.task.policy])
    >>> found.index, found.certified
    (1, True)
    """
    of_task: dict[str, Any] = {"rewards": rewards, "initial": initial, "discount": discount, "support": support}
    of_task |= {"states": states, "actions": actions, "assumptions": assumptions, "available": available}
    of_task |= {"horizon": horizon, "terminal": terminal, "total_rewards": total_rewards, "start": start, "goal": goal}
    if are_logs(rewards):
        orders = Orders(delta, names, indifference, rng, max_samples, max_seconds, budget, parallel, progress)
        del of_task["rewards"]
        return best_on_record(rewards, orders, method, {**of_task, "sim": sim, "policies": policies})
    if are_agents(rewards):
        orders = Orders(delta, names, indifference, rng, max_samples, max_seconds, budget, parallel, progress)
        del of_task["rewards"]
        return best_agent(rewards, orders, method, {**of_task, "sim": sim, "policies": policies})
    sim = _of_a_task(initial, discount, sim, names, indifference)
    delta, limit, seconds = check_delta(delta), sampling_limit(max_samples), time_limit(max_seconds)
    n_workers = workers(parallel)
    ptst, klbts = checked_method(method, policies)
    budget = checked_budget(budget)
    if budget is not None and (policies is None or ptst is not None):
        raise InputError(
            "budget: comparisons of given policies by betting aim at one; pass policies=[...] and no method, or "
            "max_samples to stop the search"
        )
    if policies is None:
        if isinstance(rewards, Observed):
            raise InputError(f"rewards: these are observed, and the best of all policies needs known ones; {SOME}")
        task = task_of_all_pairs(**of_task)
        task.check_discounted_table("identify among all policies", SOME)
    else:
        from_log = [is_logged(one) for one in arrays.listed("policies", policies, ARRAYS)]
        if any(from_log):
            logged = logged_task(task_of_all_pairs(**of_task), sim)
            of_task["assumptions"] = logged.assumptions
            policies = [logged.policy if here else one for here, one in zip(from_log, policies, strict=True)]
        tasks = tasks_of(policies, of_task)
        task = tasks[0]
        if ptst is not None:
            task.check_discounted_table("the KL rule")
    if isinstance(sim, Transitions):
        if policies is None:
            raise InputError("a log can tell the best of policies that are given; pass policies=[...]")
        not_on_a_log(
            method=ptst,
            max_samples=max_samples,
            max_seconds=max_seconds,
            budget=budget,
            parallel=parallel if n_workers > 1 else None,
        )
        return _named(best_on_a_log(tasks, diagnosed(joint_task(tasks), sim), delta, rng), task)
    search: Search
    if klbts is not None:
        search = KLBTSSearch(task, klbts, sim, delta, rng)
    elif ptst is not None:
        search = KLSearch(Deviations(task) if policies is None else Rivals(tasks), ptst, sim, delta, rng)
    elif policies is None:
        search = BettingSearch(task, sim, delta, rng)
    else:
        search = Tournament(tasks, sim, delta, rng, budget)
    in_parallel(search, n_workers)
    checks, ends = search.go(limit), UnnamedEnds(task, search.tally)
    reason = until_interrupted(search.source, checks, progress, lambda: search.answered, ends, seconds)
    found = replace(_named(search.result(reason), task), budget=budget)
    return diagnosed_run(task if policies is None else joint_task(tasks), sim, found)


def _of_a_task(
    initial: object, discount: object, sim: SimulatorLike | Transitions | None, names: object, indifference: object
) -> SimulatorLike | Transitions:
    """The simulator, where a task is complete and has nothing that is for agents."""
    for name, given in (("initial", initial), ("discount", discount), ("sim", sim)):
        if given is None:
            raise InputError(f"{name} is missing; pass rewards, initial, discount and sim, or a list of Episodes")
    if names is not None:
        raise InputError("names is for agents; states and actions name those of a task")
    if indifference:
        raise InputError("indifference is for agents; leave it out, and pass max_samples to end a tie")
    return sim  # type: ignore[return-value]


def _named(found: Selection, task: Task) -> Selection:
    """With the names and the assumptions of the task."""
    return replace(found, states=task.states, actions=task.actions, assumptions=tuple(task.assumptions))


def checked_method(method: object, policies: object) -> tuple[PTST | None, KLBTS | None]:
    """The method, if it is one of these; neither stands for `TDBetting`, and everything else is refused."""
    if isinstance(method, PTST):
        return method, None
    if isinstance(method, KLBTS):
        if policies is not None:
            raise InputError("method: KLBTS() seeks the best of all policies; leave policies out, or pass PTST()")
        if method.policies != 1:
            raise InputError("method: KLBTS(policies=2) compares two policies of a test; pass KLBTS() to identify")
        return None, method
    if not isinstance(method, TDBetting | None):
        raise InputError(f"method is {method!r}; pass TDBetting(), which is the default, PTST(...) or KLBTS()")
    return None, None
