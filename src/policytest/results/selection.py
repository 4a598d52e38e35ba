"""What a search for the best policy says: a `SelectionCheck` while it runs, a `Selection` when it ends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from policytest._base.arrays import FloatArray
from policytest._base.table import Document, Row, Shown, Table
from policytest._base.text import number, plain, plural, probability
from policytest.mdp.task import Names, about_task
from policytest.results import sentences
from policytest.results.saved import Seen

MOST_SHOWN = 20  # states whose actions are shown


class Contender(NamedTuple):
    """One of several agents: its mean return, where that is with probability 1 - delta, and whether it is still in."""

    name: str
    value: float
    lower: float
    upper: float
    episodes: int
    is_in: bool

    @property
    def words(self) -> str:
        """The interval, how much it rests on, and whether the agent is still in."""
        ends = f"{number(self.lower)} to {number(self.upper)}"
        return f"{ends}, {plural(self.episodes, 'episode')}, {'in' if self.is_in else 'out'}"


@dataclass(frozen=True, eq=False)
class Selection(Shown):
    """Which policy, or which agent, is best, and what that rests on.

    Attributes
    ----------
    policy, index
        The policy [S,A], or the name of the agent; its place among those that were given, else None.
    answered
        Whether it is the best one, or as good, with probability at least 1-delta; with an indifference: or
        worse by less than that. If not, it is the best by estimate.
    certified
        Whether the answer rests on a proof; if not, on a local optimum of the solver.
    samples, counts
        Every transition drawn.
    values
        Estimates from the fitted model: [K] the value of each given policy from rho, or [S] of the policy returned. Of
        agents their mean returns, which ``agents`` has with intervals and numbers of episodes.
    settled
        How many of the ``questions`` are settled: of rivals that are out, or of deviations that do not pay.
    budget
        The samples that were allowed, if that was fixed beforehand.
    """

    policy: Any  # a policy is an array [S,A], an agent has a name
    index: int | None
    samples: int
    certified: bool
    answered: bool
    values: FloatArray
    delta: float
    settled: int
    questions: int
    counts: Seen = field(repr=False)
    reason: str = ""
    method: str = ""
    states: Sequence[Hashable] | None = None
    actions: Sequence[Hashable] | None = None
    assumptions: tuple[str, ...] = ()
    budget: int | None = None
    agents: tuple[Contender, ...] = ()
    indifference: float = 0.0

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no guarantee holds, in words: of the data."""
        return self.counts.flaws

    @property
    def refutes_model(self) -> bool:
        """Whether the data refute what the result assumes; then no option accepts it."""
        return self.counts.refutes_model

    @cached_property
    def summary(self) -> Table:
        """The selection as one table, for text, HTML and JSON."""
        proof = sentences.proof(self.certified, self.assumptions, self.flaws) if self.answered else ""
        label, shown = "policy", str(self.index)
        if isinstance(self.policy, str):
            label, shown = "agent", self.policy
        elif self.index is None:
            label, shown = "action in each state", self._actions()
        settled = [self.settled, self.questions]
        rows = (
            Row(label, shown, f"by {self.method}" if self.method else "", "policy", self.policy),
            Row("certified", sentences.YES_NO[self.certified], proof, "certified", self.certified),
            *(Row(one.name, number(one.value), sentences.of_trials(one.words, self.names)) for one in self.agents),
            Row("samples", number(self.samples), "", "samples", self.samples),
            *sentences.episode_rows(self.counts, self.samples, task=self.names),
            *sentences.budget_rows(self.budget, self.counts, task=self.names),
            Row("delta", probability(self.delta), sentences.ERROR, "delta", self.delta),
            Row(sentences.settled_words(self), f"{self.settled} of {self.questions}", "", "settled", settled),
        )
        return Table(sentences.selection_title(self), rows, sentences.about_agents(self))

    @property
    def names(self) -> Names:
        """Of states and actions, with the assumptions."""
        return Names(self.states, self.actions, self.assumptions)

    def _actions(self) -> str:
        """The action of each state, with names where there are some."""
        chosen = self.policy.argmax(axis=1)[:MOST_SHOWN]
        words = [str(a) if self.actions is None else str(self.actions[a]) for a in chosen]
        if self.states is not None:
            words = [f"{state}: {word}" for state, word in zip(self.states, words, strict=False)]
        between = " " if self.states is None and self.actions is None else ", "
        return plain(between.join(words) + (" ..." if len(self.policy) > MOST_SHOWN else ""))

    def data(self) -> Document:
        """What a program reads."""
        extra = {name: getattr(self, name) for name in ("index", "answered", "reason", "values", "method", "budget")}
        extra |= {"flaws": list(self.flaws), "refutes_model": self.refutes_model}
        if self.agents:
            extra |= {"agents": [one._asdict() for one in self.agents], "indifference": self.indifference}
        return {**self.summary.data(), **extra, **about_task(self.names)}


@dataclass(frozen=True)
class SelectionCheck:
    """One look at a running search; what is costly is computed when it is asked for, before the search goes on.

    ``evidence`` is that of the weakest question that is open, in nats, and ``required`` what each one needs; the
    ``estimate`` is of the value of the best policy by the model, and `interval` the trivial one of all kernels.
    """

    samples: int
    settled: int
    questions: int
    required: float
    _about: Callable[[], tuple[float, float, tuple[float, float]]] = field(repr=False, compare=False)
    episodes: int | None = None

    @cached_property
    def _now(self) -> tuple[float, float, tuple[float, float]]:
        return self._about()

    @property
    def evidence(self) -> tuple[float, float]:
        """Of the weakest open question; there is no second side."""
        return self._now[0], float("-inf")

    @property
    def estimate(self) -> float:
        """The value of the best policy, by estimate."""
        return self._now[1]

    def interval(self) -> tuple[float, float]:
        """Where that value lies for some kernel."""
        return self._now[2]
