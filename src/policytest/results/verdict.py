"""What a test says: a `Check` while it runs, a `Verdict` when it ends, both in one currency, nats of evidence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from policytest._base.arrays import BoolArray, Kernel, is_sparse
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.table import Row, Shown, Table
from policytest._base.text import nats, number, plural, probability
from policytest.data.counts import Counts
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed
from policytest.data.reward_moments import RewardMoments
from policytest.kl.boundaries import Boundary, MixtureBoundary, level_of
from policytest.mdp.task import Task, about_task
from policytest.methods.log_betting import LogBetting
from policytest.methods.ptst import PTST
from policytest.methods.td_betting import CoupledBetting, TDBetting
from policytest.results import sentences
from policytest.results.estimate import inside, is_empty
from policytest.results.ladder import AssumptionLadder
from policytest.results.needed import CHANCE, MAX_SAMPLES, Needed
from policytest.worst_case.ball import kl_rows

SMALLEST_CHANGE = 5e-4  # of a probability that is worth a line


@dataclass(frozen=True)
class Check:
    """One look at a running test.

    ``evidence`` (against V <= R, against V >= R) in nats is what the standing witness allows at most; at the end of a
    test it is what the solver found. The test stops when one of them reaches ``required`` = log(1/delta). ``episodes``
    is the number of episodes where the test is about them.
    """

    samples: int
    evidence: tuple[float, float]
    required: float
    solves: int
    answer: str | None
    _estimate: Callable[[], float] = field(repr=False, compare=False)
    _interval: Callable[[], tuple[float, float]] = field(repr=False, compare=False)
    episodes: int | None = None

    @cached_property
    def estimate(self) -> float:
        """The value of the empirical kernel, as in the `Verdict`; computed when asked for, before the run goes on."""
        return self._estimate()

    def interval(self) -> tuple[float, float]:
        """The current interval for the value, computed when asked for; only before the run goes on."""
        return self._interval()


@dataclass(frozen=True)
class Change:
    """One transition that would have to be different for the answer to be wrong."""

    state: int
    action: int
    successor: int
    observed: float
    needed: float
    visits: int
    words: str


@dataclass(frozen=True, eq=False)
class Verdict(Shown):
    """The answer of a test, and what it rests on.

    Attributes
    ----------
    task
        The `Task`, or the `Episodes`; of a saved verdict, the names of its states and actions.
    answer
        "above", "below", "within", or None where there is no verdict yet.
    samples
        Every transition drawn; of an environment that is stepped, also those on the way to the pairs asked for.
    certified
        Whether the answer rests on a proof; if not, on a local optimum of the solver.
    evidence, required
        (against V <= R, against V >= R) in nats, and log(1/delta), which one of them must reach.
    estimate, interval, interval_kind
        The value of the empirical kernel, and an interval for the true value. Each of its ends holds with probability
        at least 1-delta, at all times at once; that of a result saved by an earlier version holds two-sided. An
        estimate outside the interval, which also rests on earlier moments, is moved to its nearer end; nan if the
        interval is empty.
    witness
        The kernel that would have to be true for the answer to be wrong: the nearest on the other side. None if there
        is none.
    lower_bound
        T* kl(delta, 1-delta) at the estimate: no test that draws the pairs in these shares needs fewer on average, if
        the estimate is right. One with other shares may.
    solves
        How many worst-case problems were solved.
    proof_samples
        How many of the samples were paid for the proof: those drawn after the answer had been found.
    certificate
        The proof itself, where there is one: ``verify()`` checks it without the solver.
    counts
        What was observed: `Counts`, or the `Returns` of episodes.
    snapshot
        All that `decide(..., resume=verdict)` needs to go on; empty where there is nothing to go on from.
    method, settings
        The method in words, and itself; None where no method was needed.
    dimension
        Where evidence is a distance less the price of unknown rows, that price; else None.
    proved
        The part of that evidence that is proved: what the p-value of an undecided test rests on; else None.
    indifference, refuted
        The half-width of the indifference zone; and for "within", the evidence against V <= R - indifference and
        against V >= R + indifference, both of which must reach ``required``.
    one_look
        Of recorded data, the usual interval for one look at them: approximate and not certified, for comparison. None
        also where it has no point in common with ``interval``.
    forecast, forecaster
        What `still_needed` found, where somebody asked for it and kept it, and the function that finds it.
    reward_moments
        Where rewards are observed, their sums by transition, for that function.
    asked_of
        The task with listed rewards, where ``task`` is its outcome table.
    ladder
        What the same log gives with fewer assumptions, where that was asked for.
    """

    task: Any = field(repr=False)
    threshold: float
    delta: float
    answer: str | None
    samples: int
    certified: bool
    evidence: tuple[float, float]
    estimate: float
    interval: tuple[float, float]
    witness: Kernel | None = field(repr=False)
    lower_bound: float
    solves: int
    counts: Any = field(repr=False)
    reason: str = ""
    method: str = ""
    proof_samples: int = 0
    certificate: Any = field(default=None, repr=False)
    snapshot: dict[str, Any] = field(default_factory=dict, repr=False)
    needed: float | None = None
    about: str = "value"  # of the policy; or "difference", of the values of policies A and B
    settings: Any = field(default=None, repr=False)
    dimension: float | None = None
    proved: tuple[float, float] | None = None
    indifference: float = 0.0
    refuted: tuple[float, float] | None = None
    forecast: Needed | None = field(default=None, repr=False)
    forecaster: Callable[..., Needed] | None = field(default=None, repr=False)
    interval_kind: str = sentences.ONE_SIDED
    one_look: tuple[float, float] | None = None
    reward_moments: RewardMoments | None = field(default=None, repr=False)
    asked_of: Task | None = field(default=None, repr=False)
    ladder: AssumptionLadder | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """The estimate lies in the interval, and in that of one look; an empty interval certifies nothing."""
        estimate = inside(inside(self.estimate, self.one_look), self.interval)
        object.__setattr__(self, "estimate", estimate)
        object.__setattr__(self, "certified", self.certified and not is_empty(self.interval))
        if not math.isnan(estimate) and inside(estimate, self.one_look) != estimate:
            object.__setattr__(self, "one_look", None)

    @property
    def required(self) -> float:
        """log(1/delta); with an indifference zone log(2/delta), since half of delta is for "within"."""
        return -math.log(self.delta) if self.needed is None else self.needed

    @property
    def p_value(self) -> float:
        """exp(-evidence) of the answered side (the stronger side where undecided), at most 1; valid at any time.

        Of "within": that of the weaker of its two refutations. Where an undecided KL rule has no proof of its evidence,
        only what is proved counts.
        """
        evidence = self.evidence if self.answer is not None or self.proved is None else self.proved
        strength = max(evidence) if self.refuted is None else min(self.refuted)
        return min(1.0, math.exp(-max(strength, 0.0)))

    def still_needed(self, chance: float = CHANCE, rng: Seed = 0, max_samples: int = MAX_SAMPLES) -> Needed:
        """How many more samples would settle it with probability ``chance``, and from which pairs.

        By the method of this verdict. KL rules go on from the counts with the best allocation; other runs that can be
        resumed are simulated from where they stand, for at most ``max_samples`` more, against kernels that the counts
        leave possible; logs in their order, of one policy or of a comparison, are simulated with rows like these. A
        comparison that draws samples has no forecast. `policytest.still_needed` also tells what a new run takes. Of
        `Episodes`, the run goes on with episodes like those that were seen, at most ``max_samples``.

        >>> import policytest as pt
        >>> two = pt.instances.paper(2)
        >>> verdict = pt.decide(two.task, pt.TabularSimulator(two.kernel), 0.0, method=pt.PTST(), max_samples=100)
        >>> verdict.answer, 50 < verdict.still_needed().samples < 1000
        (None, True)
        """
        if self.forecaster is None:
            raise InputError(
                "this verdict was read from a file or made by hand, without its run", "ask the one decide() returned"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)  # told when this verdict was made
            return self.forecaster(self, chance, rng, max_samples)

    @property
    def may_be_forecast(self) -> bool:
        """Whether `still_needed` has something to say: undecided, and a method or a log to foresee."""
        if self.answer is not None or self.forecaster is None:
            return False
        if isinstance(self.task, Episodes):
            return bool(self.samples and self.snapshot)
        if self.about == "difference":  # one that was sampled is resumed
            return isinstance(self.settings, CoupledBetting) and not self.snapshot
        return isinstance(self.settings, PTST | TDBetting | LogBetting)

    def verify(self, boundary: Boundary | None = None) -> bool:
        """Check the certificate again, without the solver: is it sound, about these data, and does it prove enough?

        ``boundary`` is that of `PTST`, `MixtureBoundary()` by default. False where there is no certificate.
        """
        if self.certificate is None:
            return False
        level = level_of(boundary or MixtureBoundary(), self.counts, self.delta, self.task)
        side = 1.0 if self.answer == "above" else -1.0
        return bool(
            self.certificate.sign == side
            and self.certificate.nats >= level * (1.0 - 1e-12)
            and self.certificate.about(self.task, self.counts.N, self.threshold)
            and self.certificate.verify()
        )

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The transitions of the witness that differ most from the estimate, the most costly rows first."""
        return largest_changes(self.task, self.counts, self.witness) if self.witness is not None else ()

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no guarantee holds, in words: of the data, or since the data refute the model."""
        empty = (sentences.CONTRADICTED,) if is_empty(self.interval) else ()
        return (*self.counts.flaws, *((sentences.REFUTED,) if self._ladder_refutes else ()), *empty)

    @property
    def refutes_model(self) -> bool:
        """Whether the data refute what the answer assumes; then no option accepts it."""
        return self.counts.refutes_model or self._ladder_refutes or is_empty(self.interval)

    @property
    def _ladder_refutes(self) -> bool:
        return self.ladder is not None and self.ladder.refuted

    @property
    def is_known(self) -> bool:
        """Whether the task alone gives the answer, or says that there is none."""
        low, high = self.interval
        return not self.samples and self.settings is None and (self.answer is not None or low == high)

    @cached_property
    def unseen(self) -> int:
        """The number of pairs that the policy takes, whose rows are not known, and of which there is no sample."""
        known = isinstance(self.task, Task) and np.shape(self.counts.visits) == self.task.policy.shape
        return int(_unseen(self.task, self.counts).sum()) if known else 0  # a saved verdict has names only

    @cached_property
    def summary(self) -> Table:
        """The verdict as one table, for text, HTML and JSON."""
        low, high = self.interval
        alone = self.about == "value"
        zone = f"give or take {number(self.indifference)}" if self.indifference else ""
        about, proof = sentences.about_interval(self), sentences.about_proof(self)[0]
        rows = (
            Row("answer", sentences.answered(self), f"by {self.method}" if self.method else "", "answer", self.answer),
            Row("certified", sentences.YES_NO[self.certified], proof, "certified", self.certified),
            Row("threshold R" if alone else "margin", number(self.threshold), zone, "threshold", self.threshold),
            Row(f"{sentences.measured(self)}, estimated", *sentences.about_estimate(self), "estimate", self.estimate),
            Row(
                f"{sentences.measured(self)}, interval",
                f"{number(low)} to {number(high)}",
                about,
                "interval",
                [low, high],
            ),
            *self._one_look_rows(),
            Row("samples", number(self.samples), sentences.about_bound(self), "samples", self.samples),
            *sentences.episode_rows(self.counts, self.samples, self.about),
            *(sentences.agent_rows(self.task) if alone else ()),
            Row("delta", probability(self.delta), sentences.ERROR, "delta", self.delta),
            *self._evidence_rows(),
            Row("worst cases solved", number(self.solves), "", "solves", self.solves),
        )
        return Table(sentences.title(self), rows, tuple(self._notes()))

    def _one_look_rows(self) -> list[Row]:
        if self.one_look is None:
            return []
        low, high = self.one_look
        label, about = f"{sentences.measured(self)}, one look", sentences.one_look(self.delta)
        return [Row(label, f"{number(low)} to {number(high)}", about, "one_look", [low, high])]

    def _evidence_rows(self) -> list[Row]:
        """The evidence of the stronger side; of "within", that against each end of the zone."""
        required, key = f"of {nats(self.required)} required", list(self.evidence)
        V, R = ("V", "R") if self.about == "value" else ("A - B", "margin")
        if self.refuted is not None:
            (first, second), eps = self.refuted, number(self.indifference)
            rows = [
                Row(f"evidence against {V} <= {R} - {eps}", nats(first), required, "evidence", key),
                Row(f"evidence against {V} >= {R} + {eps}", nats(second), required, "refuted", list(self.refuted)),
            ]
            subject = f"|{V} - {R}| >= {eps}"
        else:
            subject = f"{V} {'<=' if self.evidence[0] >= self.evidence[1] else '>='} {R}"
            remark = required + sentences.about_price(self)
            rows = [Row(f"evidence against {subject}", nats(max(self.evidence)), remark, "evidence", key)]
        return [*rows, Row("p-value, at any time", probability(self.p_value), f"of {subject}", "p_value", self.p_value)]

    def _notes(self) -> list[str]:
        notes = [words] if (words := sentences.forecast(self)) else []
        if self.ladder is not None:
            notes += self.ladder.summary.text().splitlines()
        if self.changes and self.answer != "within":
            notes += [sentences.about_changes(self), *(f"  {change.words}" for change in self.changes)]
        return notes

    def data(self) -> dict[str, Any]:
        """What a program reads."""
        extra = {
            "interval_kind": sentences.CERTAIN if self.is_known else self.interval_kind,
            "required": self.required,
            "lower_bound": self.lower_bound,
            "reason": self.reason,
            "method": self.method,
            "about": self.about,
            "selected": self.counts.selected,
            "other_rewards": self.counts.other_rewards,
            "flaws": list(self.flaws),
            "refutes_model": self.refutes_model,
            "indifference": self.indifference,
            "refuted": self.refuted,
            "dimension": self.dimension,
            "proved": None if self.proved is None else list(self.proved),
            "still_needed": None if self.forecast is None else self.forecast.data(),
            "proof_samples": self.proof_samples,
            **({} if self.ladder is None else {"ladder": self.ladder.data()}),
            "visits": self.counts.visits,
            **sentences.histogram_data(self.counts),
            "changes": [
                {"state": c.state, "action": c.action, "next": c.successor, "observed": c.observed, "needed": c.needed}
                for c in self.changes
            ],
        }
        return {**self.summary.data(), **extra, **about_task(self.task)}


def unseen_pairs(task: Task, counts: Counts) -> list[tuple[int, int]]:
    """Pairs that the policy takes, whose rows are not known, and of which there is no sample."""
    return [(int(s), int(a)) for s, a in np.argwhere(_unseen(task, counts))]


def _unseen(task: Task, counts: Counts) -> BoolArray:
    return np.asarray(task.layout.unknown_pairs & (np.asarray(counts.visits).reshape(task.policy.shape) == 0))


def largest_changes(task: Task, counts: Counts, witness: Kernel, most: int = 5) -> tuple[Change, ...]:
    """The largest change of each of the rows that cost most, n_sa KL(p_hat_sa, w_sa)."""
    S, A = task.n_states, task.n_actions
    visits = counts.visits.ravel()
    matters = (visits > 0) & (task.policy.ravel() > 0)
    if not matters.any():
        return ()
    observed = _shares(counts)
    cost = np.where(matters, visits * kl_rows(observed, witness), 0.0)
    found = []
    for pair in np.argsort(-cost, kind="stable")[:most]:
        if cost[pair] <= 0:
            break
        before, after = (_row(kernel, int(pair), S) for kernel in (observed, witness))
        x = int(np.argmax(np.abs(after - before)))
        if abs(after[x] - before[x]) < SMALLEST_CHANGE:
            continue
        s, a = divmod(int(pair), A)
        words = (
            f"{task.place(int(pair), x)}: probability {after[x]:.3f} instead of {before[x]:.3f} "
            f"({plural(visits[pair], 'sample')}, {cost[pair]:.2f} nats)"
        )
        found.append(Change(s, a, x, float(before[x]), float(after[x]), int(visits[pair]), words))
    return tuple(found)


def _shares(counts: Counts) -> Kernel:
    """N/n, with empty rows where there are no visits."""
    visits = np.maximum(counts.visits, 1)
    if counts.sparse:
        return sparse.csr_array(sparse.diags_array(1.0 / visits.ravel()) @ counts.N)
    return counts.N / visits[..., None]


def _row(kernel: Kernel, pair: int, S: int) -> Any:
    return kernel[[pair]].toarray().ravel() if is_sparse(kernel) else kernel.reshape(-1, S)[pair]
