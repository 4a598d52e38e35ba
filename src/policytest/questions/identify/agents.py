"""The best of several agents in any environment: episodes in rounds, until one agent is left.

The argument is that of `policytest.questions.identify.elimination`; where rounds come from, and which of them share the
luck of the environment, says `policytest.payoffs.side_by_side`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policytest._base import arrays
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.text import plural
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed
from policytest.kl.boundaries import check_delta
from policytest.methods.return_betting import IN_ORDER, SAME_SEED, ReturnBetting
from policytest.payoffs.pairs import check_same_return, whole_episodes
from policytest.payoffs.side_by_side import rounds_of, takes_seeds
from policytest.questions import driver
from policytest.questions.identify.elimination import Elimination
from policytest.questions.unnamed_ends import UnnamedEnds
from policytest.results.selection import Contender, Selection, SelectionCheck

OF_TABLES = "is for a Markov task, and these are Episodes; leave it out"


@dataclass(frozen=True)
class Orders:
    """What was asked, and the limits of the search."""

    delta: float = 0.05
    names: Sequence[object] | None = None
    indifference: float = 0.0
    rng: Seed = 0
    samples: int | None = None
    seconds: float | None = None
    budget: int | None = None
    parallel: int = 1
    progress: Callable[[SelectionCheck], None] | None = None

    def checked(self) -> Orders:
        """The same, checked."""
        zone = arrays.real_number("indifference", self.indifference)
        if zone < 0:
            raise InputError(f"indifference is {zone}; it must be at least 0")
        of_driver = driver.checked_budget(self.budget), driver.workers(self.parallel)
        return replace(
            self, delta=check_delta(self.delta), indifference=zone, budget=of_driver[0], parallel=of_driver[1]
        )


def are_agents(given: object) -> bool:
    """Whether these are several `Episodes`, not rewards."""
    return isinstance(given, Episodes) or (
        isinstance(given, list | tuple) and any(isinstance(one, Episodes) for one in given)
    )


def best_agent(given: object, orders: Orders, method: object, of_tables: dict[str, object]) -> Selection:
    """The agent with the largest mean return; ``of_tables`` are arguments that agents do not have."""
    for name, value in of_tables.items():
        if value is not None and value != ():
            raise InputError(f"{name} {OF_TABLES}")
    if not isinstance(method, ReturnBetting | None):
        raise InputError(f"method is {method!r}; Episodes are tested by ReturnBetting(), the default")
    orders, limit, seconds = orders.checked(), driver.sampling_limit(orders.samples), driver.time_limit(orders.seconds)
    agents = checked_agents(given)
    names = checked_names(orders.names, len(agents))
    supply = rounds_of(agents, orders.rng)
    driver.in_parallel(supply, orders.parallel)
    search = Elimination(supply, orders.delta, orders.indifference, orders.budget)
    warn_of_budget(search)
    reason = driver.until_interrupted(
        supply,
        search.go(limit),
        orders.progress,
        lambda: search.answered,
        UnnamedEnds(agents[0], None),  # type: ignore[arg-type]
        seconds,
    )
    if orders.budget is None:
        supply.examine()
    pairing = SAME_SEED if takes_seeds(agents) else IN_ORDER
    which = {one.agent_policy for one in agents}
    policy = f" ({which.pop()})" if len(which) == 1 and "" not in which else ""
    method_words = f"betting on returns, {plural(len(agents), 'agent')}{policy} in rounds of episodes {pairing}"
    return selection_of(search, names, reason, method_words, _assumptions(agents))


def selection_of(
    search: Elimination, names: Sequence[str], reason: str, method: str, assumptions: tuple[str, ...]
) -> Selection:
    """What a search among agents has found; the reason, if there is one, is why it was ended."""
    best, answered = search.leader, search.answered
    agents = tuple(Contender(name, *found) for name, found in zip(names, search.standings(), strict=True))
    if not answered:
        left = ", ".join(names[i] for i in search.left)
        reason = f"{search.why_undecided(reason)}; still in: {left}"
    (settled, questions), counts = search.settled, search.returns()
    return Selection(
        policy=names[best],
        index=best,
        samples=search.samples_used,
        certified=answered and not counts.flaws,
        answered=answered,
        values=np.array([one.value for one in agents]),
        delta=search.delta,
        settled=settled,
        questions=questions,
        counts=counts,
        reason="" if answered else reason,
        method=method,
        assumptions=assumptions,
        budget=search.budget,
        agents=agents,
        indifference=search.zone,
    )


def checked_agents(given: object) -> list[Episodes]:
    """The agents, whose returns mean the same."""
    if isinstance(given, Episodes):
        raise InputError("rewards is an Episodes; pass a list of them: identify([first, second, ...])")
    agents = [whole_episodes(f"agents[{i}]", one) for i, one in enumerate(arrays.listed("agents", given, "Episodes"))]
    for i, one in enumerate(agents[1:], 1):
        check_same_return(agents[0], one, ("agents[0]", f"agents[{i}]"))
    for i, one in enumerate(agents):
        if not all(map(math.isfinite, one.bounds)):
            low, high = one.bounds
            raise InputError(
                f"agents[{i}] has returns between {low:g} and {high:g}, and bets on differences need both ends; pass "
                "return_range=(low, high), or ask about an outcome such as pt.at_least(200)"
            )
    return agents


def _assumptions(agents: Sequence[Episodes]) -> tuple[str, ...]:
    """What the guarantee rests on: that of the first agent, and the ranges of others where they differ."""
    first = agents[0]
    others = [one.declared(f" of agents[{i}]") for i, one in enumerate(agents) if one.declared() != first.declared()]
    return (*first.assumptions, *(words for each in others for words in each))


def checked_names(given: Sequence[object] | None, count: int) -> list[str]:
    """The names of the agents: those that were given, or numbers."""
    found = arrays.names("names", given, count)
    names = [f"agent {i}" for i in range(count)] if found is None else [str(name) for name in found]
    if len(set(names)) < count:
        raise InputError(f"names has {next(n for n in names if names.count(n) > 1)!r} twice; pass distinct names")
    return names


def warn_of_budget(search: Elimination) -> None:
    """Tell if no answer can come: n rounds make a capital at most (1 + best)^n times as large."""
    if search.budget is None or search.answered:
        return
    low, high = min(low for low, _ in search.bounds), max(high for _, high in search.bounds)
    best = max((high - search.bounds[b][0]) / max(search.bounds[b][1] - low, 1e-300) for b in search.left)
    least = math.ceil(search.level / math.log1p(best)) * len(search.left)
    if least > search.budget:
        warnings.warn(
            f"budget: {plural(search.budget, search.source.unit)} of {plural(len(search.left), 'agent')} cannot settle "
            f"it, even if one agent wins every round by as much as it can; pass at least {least:,}",
            AssumptionWarning,
            stacklevel=4,
        )
