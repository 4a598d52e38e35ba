"""What a test says: a `Check` while it runs, a `Verdict` when it ends, both in one currency, nats of evidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from policytest._base.arrays import Kernel, is_sparse
from policytest._base.errors import InputError
from policytest._base.table import Row, Shown, Table, to_json
from policytest._base.text import nats, number, plural, probability
from policytest.data.counts import Counts
from policytest.mdp.task import Task, about_task, given
from policytest.methods.betting.run import TDBetting
from policytest.methods.boundaries import Boundary, MixtureBoundary, level_of
from policytest.methods.combined import Combined
from policytest.methods.ptst import PTST
from policytest.results.needed import CHANCE, MAX_SAMPLES, Needed
from policytest.worst_case.ball import kl_rows

ALONE = ": this follows from the rewards alone, no data were used"
SMALLEST_CHANGE = 5e-4  # of a probability that is worth a line
WORDS = {
    "above": "above the threshold",
    "below": "below the threshold",
    "within": "within the indifference zone around the threshold",
    None: "undecided",
}
COMPARED = {
    "above": "is better than policy B by more than the margin",
    "below": "is not better than policy B by the margin",
    "within": "is better than policy B by the margin, give or take the indifference zone",
    None: "undecided",
}


@dataclass(frozen=True)
class Check:
    """One look at a running test.

    ``evidence`` (against V <= R, against V >= R) in nats is what the standing witness allows at most; at the end of a
    test it is what the solver found. The test stops when one of them reaches ``required`` = log(1/delta).
    """

    samples: int
    evidence: tuple[float, float]
    required: float
    solves: int
    answer: str | None
    _estimate: Callable[[], float] = field(repr=False, compare=False)
    _interval: Callable[[], tuple[float, float]] = field(repr=False, compare=False)

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
    answer
        "above", "below", "within", or None where there is no verdict yet.
    samples
        Every transition drawn; of an environment that is stepped, also those on the way to the pairs asked for.
    certified
        Whether the answer rests on a proof; if not, on a local optimum of the solver.
    evidence, required
        (against V <= R, against V >= R) in nats, and log(1/delta), which one of them must reach.
    estimate, interval
        The value of the empirical kernel, and the values over the confidence ball: at all times at once the true value
        lies in it, with probability at least 1-delta, as far as the solver found its ends.
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
        What was observed.
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
    forecast, forecaster
        What `still_needed` found, where somebody asked for it and kept it, and the function that finds it.
    """

    task: Task = field(repr=False)
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
    counts: Counts = field(repr=False)
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

    def still_needed(self, chance: float = CHANCE, rng: Any = 0, max_samples: int = MAX_SAMPLES) -> Needed:
        """How many more samples would settle it with probability ``chance``, and from which pairs.

        By the method of this verdict. KL rules go on from the counts with the best allocation; other runs that can be
        resumed are simulated from where they stand, for at most ``max_samples`` more, against kernels that the counts
        leave possible; of recorded transitions, what `PTST()` would need. `policytest.still_needed` also tells what a
        new run takes.

        >>> import policytest as pt
        >>> two = pt.instances.paper(2)
        >>> verdict = pt.decide(two.task, pt.TabularSimulator(two.kernel), 0.0, method=pt.PTST(), max_samples=100)
        >>> verdict.answer, 50 < verdict.still_needed().samples < 1000
        (None, True)
        """
        if self.forecaster is None:
            raise InputError(
                "this verdict was read back or made by hand: it lacks the run; ask the one decide() returned"
            )
        return self.forecaster(self, chance, rng, max_samples)

    @property
    def may_be_forecast(self) -> bool:
        """Whether `still_needed` has something to say: undecided, one policy, a method that can be foreseen."""
        foreseen = isinstance(self.settings, PTST | TDBetting | Combined) and self.forecaster is not None
        return self.answer is None and self.about == "value" and foreseen

    def verify(self, boundary: Boundary | None = None) -> bool:
        """Check the certificate again, without the solver: is it sound, about these data, and does it prove enough?

        ``boundary`` is that of `PTST`, `MixtureBoundary()` by default. False where there is no certificate, and for
        `Combined`, whose answer rests on bets, or on bets and a certificate about the task of one action.
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

    @cached_property
    def summary(self) -> Table:
        """The verdict as one table, for text, HTML and JSON."""
        low, high = self.interval
        proof = "certified" if self.certified else "not certified"
        alone = self.about == "value"
        bar = "threshold R" if alone else "margin"
        rows = (
            Row("answer", (WORDS if alone else COMPARED)[self.answer], self._by(), "answer", self.answer),
            Row("certified", "yes" if self.certified else "no", self._proof(), "certified", self.certified),
            Row(bar, number(self.threshold), self._zone(), "threshold", self.threshold),
            Row(f"{self.about}, estimated", *self._estimated(), "estimate", self.estimate),
            Row(
                f"{self.about}, interval",
                f"{number(low)} to {number(high)}",
                self._about_interval(),
                "interval",
                [low, high],
            ),
            Row("samples", number(self.samples), self._fewest(), "samples", self.samples),
            Row("delta", probability(self.delta), "probability of a wrong answer, at most", "delta", self.delta),
            *self._evidence_rows(),
            Row("worst cases solved", number(self.solves), "", "solves", self.solves),
        )
        claim = f"The value is {WORDS[self.answer]}" if alone else f"Policy A {COMPARED[self.answer]}"
        title = f"{claim} ({proof}){ALONE if self._is_known else ''}" if self.answer else f"Undecided: {self.reason}"
        return Table(title, rows, tuple(self._notes()))

    def _by(self) -> str:
        return f"by {self.method}" if self.method else ""

    def _proof(self) -> str:
        if not self.answer:
            return ""
        if self.counts.flaws:
            return f"{'; '.join(self.counts.flaws)}: no guarantee holds"
        if not self.certified:
            return "rests on a local optimum, which is not proved to be the global one"
        return f"proved{given(self.task.assumptions)}"

    def _zone(self) -> str:
        return f"give or take {number(self.indifference)}" if self.indifference else ""

    def _estimated(self) -> tuple[str, str]:
        """The estimate, and what it rests on."""
        if self.samples:
            alone = self.about == "value" and isinstance(self.task, Task)  # a saved verdict has names only
            unseen = len(unseen_pairs(self.task, self.counts)) if alone else 0
            return number(self.estimate), f"a guess in {plural(unseen, 'pair')} without a sample" if unseen else ""
        low, high = self.interval
        if self._is_known:
            return (number(low) if low == high else "not needed"), "no sample can change the answer"
        return "none", "nothing was drawn yet"

    @property
    def _is_known(self) -> bool:
        """Whether the task alone gives the answer, or says that there is none."""
        low, high = self.interval
        return not self.samples and self.settings is None and (self.answer is not None or low == high)

    def _fewest(self) -> str:
        return bound_in_words(self.lower_bound) if self.samples and self.answer != "within" else ""

    def _evidence_rows(self) -> tuple[Row, Row] | tuple[Row, Row, Row]:
        """The evidence of the stronger side; of "within", that against each end of the zone."""
        required, key = f"of {nats(self.required)} required", list(self.evidence)
        p_value = probability(self.p_value)
        if self.refuted is not None:
            first, second = self.refuted
            eps, V, R = number(self.indifference), *(("V", "R") if self.about == "value" else ("A - B", "margin"))
            return (
                Row(f"evidence against {V} <= {R} - {eps}", nats(first), required, "evidence", key),
                Row(f"evidence against {V} >= {R} + {eps}", nats(second), required, "refuted", list(self.refuted)),
                Row("p-value, at any time", p_value, f"of |{V} - {R}| >= {eps}", "p_value", self.p_value),
            )
        side = 0 if self.evidence[0] >= self.evidence[1] else 1
        against = ("V <= R", "V >= R")[side] if self.about == "value" else ("A - B <= margin", "A - B >= margin")[side]
        return (
            Row(f"evidence against {against}", nats(max(self.evidence)), required + self._price(), "evidence", key),
            Row("p-value, at any time", p_value, f"of {against}", "p_value", self.p_value),
        )

    def _about_interval(self) -> str:
        low, high = self.interval
        if self._is_known:
            return "whatever the unknown rows are"
        always = "at all times, with probability 1 - delta"
        if self.answer and self.dimension is not None and not self.certified:
            return f"{always}, if the search found its ends"
        inside = self.answer and low < self.threshold < high
        return f"{always}; each end has half of delta, the answer has all of it" if inside else always

    def _price(self) -> str:
        """How the evidence arises: a distance less the price of rows that are not known."""
        strength, price = max(self.evidence), self.dimension
        if price is None or price <= 0 or not math.isfinite(strength):
            return ""
        return f"; a distance of {nats(strength + price)} less {nats(price)} for the unknown rows"

    def _notes(self) -> list[str]:
        notes = [] if self.forecast is None else [self.forecast.words]
        if self.forecast is None and self.may_be_forecast:
            notes = ["Call still_needed() on this verdict for a forecast of how many more samples settle it."]
        if not self.changes or self.answer == "within":
            return notes
        intro = "For this answer to be wrong" if self.answer else "For the value to be on the other side"
        intro += ", all of these, and more, would have to be true:"
        other = "The nearest kernel found on the other side of the threshold has, for instance:"
        notes.append(intro if self.dimension is not None else other)
        return [*notes, *(f"  {change.words}" for change in self.changes)]

    def to_json(self) -> str:
        """One JSON document, with "schema": 1; infinite numbers are written as strings."""
        extra = {
            "required": self.required,
            "lower_bound": self.lower_bound,
            "reason": self.reason,
            "method": self.method,
            "about": self.about,
            "selected": self.counts.selected,
            "other_rewards": self.counts.other_rewards,
            "indifference": self.indifference,
            "refuted": self.refuted,
            "dimension": self.dimension,
            "proved": None if self.proved is None else list(self.proved),
            "still_needed": None if self.forecast is None else self.forecast.data(),
            "proof_samples": self.proof_samples,
            "visits": self.counts.visits,
            "changes": [
                {"state": c.state, "action": c.action, "next": c.successor, "observed": c.observed, "needed": c.needed}
                for c in self.changes
            ],
        }
        return to_json({"schema": 1, **self.summary.data(), **extra, **about_task(self.task)})


def bound_in_words(bound: float) -> str:
    """What `Verdict.lower_bound` is."""
    if not 0 < bound < math.inf:
        return ""
    least = number(math.ceil(bound))
    return f"lower bound at the estimate, for this sampling: {least} (another allocation may need fewer)"


def unseen_pairs(task: Task, counts: Counts) -> list[tuple[int, int]]:
    """Pairs that the policy takes, whose rows are not known, and of which there is no sample."""
    unseen = task.layout.unknown_pairs & (np.asarray(counts.visits).reshape(task.policy.shape) == 0)
    return [(int(s), int(a)) for s, a in np.argwhere(unseen)]


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
