r"""The default method: the average of the betting process and the mixture-KL process, on the same samples.

Both are e-processes for each side. Their average with fixed weights is one too, at the ends of rollouts, where the
betting process is defined: it reaches 1/delta with probability at most delta. The price is log(1/weight) for the part
that decides: 0.1 nats for betting, 2.3 nats for KL. Betting is far ahead at the confidence people use, and KL, whose
evidence grows at the optimal rate, overtakes it in small tasks at tiny delta.

In a rollout actions follow the policy, so the successors of a state are draws from its row
P(x|s) = sum_a pi(a|s) p(x|s,a). Where rewards are on pairs, the value depends on p through these rows alone. The KL
part then works on the task of one action: S rows instead of S A, and a far smaller price for what is unknown.

Where the rows have too many unknown parameters KL cannot help in reach of any delta in use; it is left out, and nothing
is paid for it: the run is one of `TDBetting`, and says so. That is decided from the task alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled.rollouts import Watch
from policytest._base.errors import InputError
from policytest.mdp.task import Task
from policytest.methods.betting import TDBetting
from policytest.methods.betting.bets import surely
from policytest.methods.betting.bettor import Bettor
from policytest.methods.betting.run import BettingRun
from policytest.methods.boundaries import widths
from policytest.methods.interface import Outcome, is_certified
from policytest.methods.ptst import PTST, PTSTRun
from policytest.methods.sampler import NOTHING, Recorded

MOST_PARAMETERS = 4  # of the unknown rows together, up to which KL is worth its price
MANY_STATES = 100  # surely too many parameters, unless almost all rows are known


class CombinedRun(BettingRun):
    """Betting at work, with the KL rule beside it."""

    def __init__(self, method: Combined, task: Task, threshold: float, *rest: Any) -> None:
        reduced = _reduced(task)
        self.rule: PTSTRun = method.rule.replay(reduced, threshold, Recorded(NOTHING, NOTHING))
        self.row_of_pair = _rows_in(reduced, task)
        super().__init__(method, task, threshold, *rest)
        self.log_weight = float(np.log(method.weight))  # of the bets

    def step(self, level: float, most: int) -> None:
        """Bet; and ask the KL rule at the end of each rollout after which it may have what is missing."""
        super().step(level - self.log_weight, most)
        if self.answer is None and self.between_rollouts:
            self._ask(level)

    def _watch(self, level: float) -> Watch:
        """The KL rule beside bets that have to reach this level alone."""
        rule, tally, other = self.rule, self.rule.tally, self._bet_evidence()[1 - self.plan.side]
        counts = tally.rows.start, tally.rows.successor, *tally.terms, tally.N, tally.n, tally.w, tally.evidence
        limits = float(rule.blind_until - rule.samples), level + self.log_weight, self.method.weight, other
        return Watch(self.row_of_pair, *counts, *limits)

    def begin(self, level: float) -> None:
        """The evidence may suffice already, where the level was lowered."""
        super().begin(level)
        if self.answer is None and self.between_rollouts:
            self._ask(level)

    def _ask(self, level: float) -> None:
        """Whether the KL part has what is missing on its side."""
        rule, missing = self.rule, [self._missing(surely(level), have) for have in self._bet_evidence()]
        if rule.samples < rule.blind_until or rule.tally.witness_evidence() < min(missing):
            return
        side = rule.tally.value()[1]
        wanted = missing[0 if side > 0 else 1]
        if side == 0 or rule.tally.witness_evidence() < wanted or rule.looked == (rule.samples, wanted):
            return
        rule.look(wanted)
        if rule.answer is not None:
            self.answer = rule.answer

    def _missing(self, level: float, have: float) -> float:
        """log of (1/delta - weight e_bet)/(1 - weight): what the KL part must reach."""
        weight = self.method.weight
        share = np.exp(min(have + np.log(weight) - level, 0.0))
        return float(level + np.log1p(-share) - np.log1p(-weight)) if share < 1.0 else -np.inf

    def _record(self, pair: IntArray, x: IntArray) -> None:
        """The compiled code has counted what the KL rule observes."""
        super()._record(pair, x)
        if len(pair):
            self.rule.tally.observe(NOTHING, NOTHING, np.inf)  # what was derived from its counts is not valid any more
            self.rule.samples += len(pair)

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the average; of the KL part, as far as it is proved at this sample."""
        return self._averaged(self._bet_evidence())

    def e_value(self) -> tuple[float, float]:
        """Likewise, with an unfinished rollout at worst."""
        return self._averaged(super().e_value())

    def _averaged(self, bet: tuple[float, float]) -> tuple[float, float]:
        if self.orders:  # each of which has averaged
            return bet
        finding, weight = self.rule.finding, self.method.weight
        fresh = finding is not None and finding.samples == self.rule.samples and self.between_rollouts
        other = finding.proved if fresh and finding is not None else (-np.inf, -np.inf)
        pairs = zip(bet, other, strict=True)
        first, second = (np.logaddexp(np.log(weight) + a, np.log1p(-weight) + b) for a, b in pairs)
        return float(first), float(second)

    def _bet_evidence(self) -> tuple[float, float]:
        return super().evidence()

    def verdict_interval(self, required: float) -> tuple[float, float]:
        """The interval of an answer, by the bets alone; each end holds with probability 1 - delta.

        weight times their capital against the true value, and 1 - weight times the KL part, average to an e-process;
        if an end misses the value, or an answer is wrong, that average has reached 1/delta. See `BettingRun`.
        """
        return super().verdict_interval(required - self.log_weight)

    def outcome(self, level: float) -> Outcome:
        """What the answer rests on, with the certificate of the KL part where that was needed."""
        found = super().outcome(level)
        finding = self.rule.finding
        if not is_certified(self, level) or finding is None or finding.distance is None or self._bets_suffice(level):
            return found
        return replace(found, certificate=finding.distance.certificate)

    def _bets_suffice(self, level: float) -> bool:
        """Whether the capital alone gives the answer."""
        side = 0 if self.answer == "above" else 1
        return self.answer == "within" or bool(self._bet_evidence()[side] + self.log_weight >= level)

    @property
    def solves(self) -> int:
        """Those of the KL part."""
        return int(self.rule.solves)

    def state(self) -> dict[str, Any]:
        """That of both parts."""
        return {**super().state(), **{f"rule.{name}": value for name, value in self.rule.state().items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state."""
        super().restore(state)
        self.rule.restore({name[5:]: value for name, value in state.items() if name.startswith("rule.")})


@dataclass(frozen=True, eq=False)
class Combined(Bettor):
    """Settings of the combined method.

    Parameters
    ----------
    weight
        Weight of the betting process; 1 - weight is that of the KL process.
    rule
        The KL part: its boundary and solver. Its allocation does not matter, since rollouts draw the samples.
    seed
        Seed of the coins and actions, where recorded transitions are replayed: choose it before looking at the data.
    """

    kind = CombinedRun
    weight: float = 0.9
    rule: PTST = field(default_factory=PTST)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < arrays.real_number("weight", self.weight) < 1:
            raise InputError(f"weight is {self.weight}; it lies strictly between 0 and 1")
        arrays.instance("rule", self.rule, PTST, ", such as PTST(), with its parentheses")
        if self.rule.zeta is not None:
            raise InputError(
                "rule has zeta, the stopping rule as printed: it has no evidence that could be averaged with bets; "
                "pass a rule without zeta, such as PTST()"
            )

    def in_task(self, task: Task) -> Bettor:
        """Betting alone where the KL rule does not apply, beyond the discounted table, or is not worth its price."""
        return self if task.is_discounted_table and worth_its_price(task) else TDBetting(seed=self.seed)

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on temporal differences, combined with the mixture-KL rule"


def worth_its_price(task: Task) -> bool:
    """Whether the KL rule works beside the bets in this task."""
    return _parameters(_reduced(task)) <= MOST_PARAMETERS


def _reduced(task: Task) -> Task:
    return task.layout.kept(("reduced", None), lambda: one_action(task)) if task.n_states <= MANY_STATES else task


def one_action(task: Task) -> Task:
    """The task of one action: rows P(x|s) and rewards r^pi(s). The task itself where that does not hold its value.

    With rewards on (s,a,x), or rows that are known, rows of pairs say more.
    """
    takes = task.policy > 0
    if task.rewards_on_successor or task.n_actions == 1 or (task.known_rows & takes).any():
        return task
    S = task.n_states
    rewards: FloatArray = (task.policy * np.where(takes, task.rewards, 0.0)).sum(axis=1, keepdims=True)
    support = None
    if task.support is not None:
        rows = task.layout.rows
        support = np.zeros((S, 1, S), dtype=bool)
        support[rows.per_entry(rows.state), 0, rows.successor] = True
    return Task(rewards, np.ones((S, 1)), task.initial, task.discount, support, task.states)


def _rows_in(reduced: Task, task: Task) -> IntArray:
    """[S*A] the row of the reduced task to which the transitions of each pair belong."""
    rows = reduced.layout.row_of_pair
    return rows if reduced is task else np.repeat(rows, task.n_actions)


def _parameters(task: Task) -> float:
    """How many numbers are unknown: the allowed successors of each row, less one."""
    return float((widths(task)[task.layout.pairs.pair] - 1.0).sum())
