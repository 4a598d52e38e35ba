"""What a test says: a `Check` while it runs, a `Verdict` when it ends, both in one currency, nats of evidence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from policytest._base.arrays import BoolArray, Kernel
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.record import Record
from policytest._base.table import Document, Row, Shown, Table
from policytest._base.text import number, probability
from policytest.data.counts import Counts
from policytest.data.randomness import Seed
from policytest.kl.boundaries import Boundary, MixtureBoundary, level_of
from policytest.mdp.task import Task, about_task
from policytest.methods.run import Outcome, traits_of
from policytest.results import large_sample, sentences
from policytest.results.by_task import TaskAnswer
from policytest.results.changes import MOST_CHANGES, Change, largest_changes
from policytest.results.estimate import inside, is_empty
from policytest.results.forecast import Forecast
from policytest.results.ladder import Alongside, AssumptionLadder
from policytest.results.needed import CHANCE, MAX_SAMPLES, Needed
from policytest.results.provenance import Provenance
from policytest.results.required import check_answer
from policytest.results.saved import Visits
from policytest.worst_case.certificate import Certificate


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


@dataclass(frozen=True, eq=False)
class Verdict(Shown):
    """The answer of a test, and what it rests on.

    Attributes
    ----------
    task
        The `Task`, or the `Episodes`; of a saved verdict, the names of its states and actions.
    answer, reason
        "above", "below", "within", or None if there is no answer yet, and why not.
    samples
        Every transition drawn; of an environment that is stepped, also those on the way to the pairs asked for.
    certified
        Whether the answer rests on a proof; if not, on a local optimum of the solver.
    estimate, interval
        The value of the empirical kernel, and an interval for the true value. Each of its ends holds with probability
        at least 1-delta, at all times at once; that of a result saved by an earlier version holds two-sided. An
        estimate outside the interval, which also rests on earlier moments, is moved to its nearer end; nan if the
        interval is empty.
    counts
        What was observed: `Counts`, or the `Returns` of episodes.
    proof
        The evidence and what it rests on. Its parts are also ``verdict.evidence``, ``witness``, ``certificate``,
        ``lower_bound``, ``solves``, ``proof_samples``, ``dimension``, ``proved`` and ``refuted``.
    provenance
        The method (``verdict.method`` and ``settings``), the seed, and the versions of the libraries.
    forecast
        What it takes to go on: the run as it stands (``verdict.snapshot``), and what `still_needed` found, if it was
        asked for and kept.
    alongside
        What else the same data say: ``verdict.one_look``, ``verdict.ladder`` and ``verdict.by_task``.
    about
        "value" of the policy, or "difference" of the values of policies A and B.
    indifference
        The half-width of the indifference zone; 0 without one.
    """

    schema = 2

    task: Any = field(repr=False)  # a `Subject`: readers know which, so that they need not narrow it
    threshold: float
    delta: float
    answer: str | None
    samples: int
    certified: bool
    estimate: float
    interval: tuple[float, float]
    counts: Any = field(repr=False)  # `Seen`
    proof: Outcome
    provenance: Provenance
    forecast: Forecast = field(default=Forecast(), repr=False)
    alongside: Alongside = field(default=Alongside(), repr=False)
    reason: str = ""
    about: str = "value"
    indifference: float = 0.0

    def __post_init__(self) -> None:
        """The estimate lies in the interval, and in that of one look; an empty interval certifies nothing."""
        estimate = inside(inside(self.estimate, self.one_look), self.interval)
        object.__setattr__(self, "estimate", estimate)
        object.__setattr__(self, "certified", self.certified and not is_empty(self.interval))
        if not math.isnan(estimate) and inside(estimate, self.one_look) != estimate:
            object.__setattr__(self, "alongside", replace(self.alongside, one_look=None))

    @property
    def required(self) -> float:
        """log(1/delta); with an indifference zone log(2/delta), since half of delta is for "within"."""
        return -math.log(self.delta) + (math.log(2.0) if self.indifference else 0.0)

    @property
    def evidence(self) -> tuple[float, float]:
        """(against V <= R, against V >= R) in nats; one of them must reach ``required``."""
        return self.proof.evidence

    @property
    def approximate(self) -> bool:
        """Whether it is a large-sample answer (`LargeSample`): not certified, right as the number of episodes grows."""
        return self.proof.approximate

    @property
    def witness(self) -> Kernel | None:
        """The kernel that would have to be true for the answer to be wrong: the nearest on the other side, if any.

        Bets do not need it: after `TDBetting` it is computed when it, or ``lower_bound``, is first asked for.
        """
        return self.proof.nearest.witness

    @property
    def certificate(self) -> Certificate | None:
        """The proof itself, if there is one: `verify` checks it without the solver."""
        return self.proof.certificate

    @property
    def lower_bound(self) -> float:
        """T* kl(delta, 1-delta) at the estimate.

        No test that draws the pairs in these shares needs fewer samples on average, if the estimate is right; a test
        with other shares may.
        """
        return self.proof.nearest.lower_bound

    @property
    def solves(self) -> int:
        """How many worst-case problems were solved."""
        return self.proof.solves

    @property
    def proof_samples(self) -> int:
        """How many of the samples were drawn for the proof, after the answer had been found."""
        return self.proof.proof_samples

    @property
    def dimension(self) -> float | None:
        """The price of unknown rows, if the evidence is a distance less that price; else None."""
        return self.proof.dimension

    @property
    def proved(self) -> tuple[float, float] | None:
        """The part of that evidence that is proved, on which the p-value of an undecided test rests; else None."""
        return self.proof.proved

    @property
    def refuted(self) -> tuple[float, float] | None:
        """For "within": the evidence against V <= R - indifference and against V >= R + indifference; else None.

        Both must reach ``required``.
        """
        return self.proof.refuted

    @property
    def method(self) -> str:
        """The method in words."""
        return self.provenance.method

    @property
    def settings(self) -> Any:
        """The method itself; None if no method was needed, and in a saved verdict."""
        return self.provenance.settings

    @property
    def snapshot(self) -> Record:
        """All that `decide(..., resume=verdict)` needs to go on; empty if there is nothing to go on from."""
        return self.forecast.snapshot

    @property
    def one_look(self) -> tuple[float, float] | None:
        """Of recorded data, the usual interval for one look at them: approximate and not certified, for comparison.

        Also None if it has no point in common with ``interval``.
        """
        return self.alongside.one_look

    @property
    def ladder(self) -> AssumptionLadder | None:
        """What the same log gives with fewer assumptions, if that was asked for."""
        return self.alongside.ladder

    @property
    def by_task(self) -> tuple[TaskAnswer, ...]:
        """Of trials of several tasks, the answer for each, at delta/T; the verdict is about their mean."""
        return () if self.alongside.by_task is None else self.alongside.by_task.tasks

    @property
    def p_value(self) -> float:
        """exp(-evidence) of the answered side (the stronger side where undecided), at most 1; valid at any time.

        Of "within": that of the weaker of its two refutations. Where an undecided KL rule has no proof of its evidence,
        only what is proved counts.
        """
        evidence = self.evidence if self.answer is not None or self.proved is None else self.proved
        strength = max(evidence) if self.refuted is None else min(self.refuted)
        return min(1.0, math.exp(-max(strength, 0.0)))

    def require(self, answer: str | Iterable[str], accept_uncertified: bool = False) -> Verdict:
        """This verdict, if ``answer`` (or one of several) is what it says and it is certified; else `NotGoodEnough`.

        For tests and release gates. Without an answer the error is `Undecided`, which is a `NotGoodEnough`. An answer
        that is not certified passes only with ``accept_uncertified``, and never if the data refute what it assumes.

        >>> import policytest as pt
        >>> coin = pt.Episodes(lambda rng: rng.random() < 0.7, return_range=(0, 1))
        >>> pt.decide(coin, threshold=0.5).require("above").samples < 200
        True
        """
        check_answer(self, answer, accept_uncertified)
        return self

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
        if self.forecast.forecaster is None:
            raise InputError(
                "this verdict was read from a file or made by hand, without its run", "ask the one decide() returned"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)  # told when this verdict was made
            return self.forecast.forecaster(self, chance, rng, max_samples)

    @property
    def may_be_forecast(self) -> bool:
        """Whether `still_needed` has something to say: undecided, and a method or a log to foresee."""
        if self.answer is not None or self.forecast.forecaster is None or large_sample.is_one_look(self):
            return False
        if self.counts.episodes is not None:
            return bool(self.samples and self.snapshot)
        is_resumed = self.about == "difference" and self.snapshot  # a comparison that was sampled
        return bool(traits_of(self.settings).forecast and not is_resumed)

    def verify(self, boundary: Boundary | None = None) -> bool:
        """Check the certificate again, without the solver: is it sound, about these data, and does it prove enough?

        ``boundary`` is that of `PTST`, `MixtureBoundary()` by default. False where there is no certificate.
        """
        table, proof = _table(self), self.certificate
        if proof is None or table is None:
            return False
        (task, counts), side = table, 1.0 if self.answer == "above" else -1.0
        level = level_of(boundary or MixtureBoundary(), counts, self.delta, task) * (1.0 - 1e-12)
        stated = proof.sign == side and proof.nats >= level and proof.about(task, counts.N, self.threshold)
        return bool(stated and proof.verify())

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The transitions of the witness that differ most from the estimate, the most costly rows first."""
        return self.counts.changes if isinstance(self.counts, Visits) else self.largest_changes(MOST_CHANGES)

    def largest_changes(self, most: int) -> tuple[Change, ...]:
        """At most so many of these; none without the task, the counts and a witness."""
        table = _table(self)
        return () if self.witness is None or table is None else largest_changes(*table, self.witness, most)

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no guarantee holds, in words: of the data, or since the data refute the model."""
        empty = (sentences.CONTRADICTED,) if is_empty(self.interval) else ()
        return (*self.counts.flaws, *((sentences.REFUTED,) if self._ladder_refutes else ()), *empty)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against episodes that are independent and alike, in words; what is certified stays so."""
        found: tuple[str, ...] = self.counts.doubts
        return found

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
        table = _table(self)
        return 0 if table is None else int(_unseen(*table).sum())

    @cached_property
    def summary(self) -> Table:
        """The verdict as one table, for text, HTML and JSON."""
        alone, what = self.about == "value", sentences.measured(self)
        zone = f"give or take {number(self.indifference)}" if self.indifference else ""
        about, proof = sentences.about_interval(self), sentences.about_proof(self)[0]
        rows = (
            Row("answer", sentences.answered(self), f"by {self.method}" if self.method else "", "answer", self.answer),
            Row("certified", sentences.YES_NO[self.certified], proof, "certified", self.certified),
            Row("threshold R" if alone else "margin", number(self.threshold), zone, "threshold", self.threshold),
            Row(f"{what}, estimated", *sentences.about_estimate(self), "estimate", self.estimate),
            sentences.interval_row(f"{what}, interval", self.interval, about),
            *(() if self.one_look is None else (sentences.one_look_row(what, self.one_look, self.delta),)),
            Row("samples", number(self.samples), sentences.about_bound(self), "samples", self.samples),
            *sentences.episode_rows(self.counts, self.samples, self.about, self.task),
            *sentences.budget_rows(self.provenance.budget, self.counts, self.about, self.task),
            *(large_sample.rows(self.counts, self.about) if self.approximate else ()),
            *(sentences.agent_rows(self.task) if alone else ()),
            Row("delta", probability(self.delta), sentences.ERROR, "delta", self.delta),
            *sentences.evidence_rows(self),
            *((Row("worst cases solved", number(self.solves), "", "solves", self.solves),) if self.solves else ()),
        )
        return Table(sentences.title(self), rows, tuple(self._notes()))

    def _notes(self) -> list[str]:
        notes = [f"Beware: {words}." for words in self.doubts]
        notes += [words] if (words := sentences.forecast(self)) else []
        for table in (self.ladder, self.alongside.by_task):
            notes += [] if table is None else table.summary.text().splitlines()
        if self.changes and self.answer != "within":
            notes += [sentences.about_changes(self), *(f"  {change.words}" for change in self.changes)]
        return notes

    def data(self) -> Document:
        """What a program reads."""
        rows = self.summary.data()
        rows.pop("solves", None)
        proof = {
            "solves": self.solves,
            "proof_samples": self.proof_samples,
            "lower_bound": self.lower_bound,
            "dimension": self.dimension,
            "proved": self.proved,
            "refuted": rows.pop("refuted", None),
        }
        extra = {
            "interval_kind": sentences.CERTAIN if self.is_known else self.provenance.interval_kind,
            "required": self.required,
            "reason": self.reason,
            **large_sample.data(self.approximate, self.counts, self.about),
            "about": self.about,
            "indifference": self.indifference,
            "flaws": list(self.flaws),
            **sentences.doubts_data(self.counts),
            "refutes_model": self.refutes_model,
            "selected": self.counts.selected,
            "other_rewards": self.counts.other_rewards,
            "proof": proof,
            "provenance": self.provenance.data(),
            "still_needed": None if self.forecast.needed is None else self.forecast.needed.data(),
            **({} if self.ladder is None else {"ladder": self.ladder.data()}),
            **({} if self.alongside.by_task is None else {"by_task": self.alongside.by_task.data()}),
            "visits": self.counts.visits,
            **sentences.histogram_data(self.counts),
            "changes": [change.data() for change in self.changes],
        }
        about = about_task(self.task)
        about["assumptions"] = list(large_sample.assumed(about["assumptions"], self.approximate))
        return {**rows, **extra, **about}


def _table(verdict: Verdict) -> tuple[Task, Counts] | None:
    """The task and the counts; None for episodes, and for a saved verdict, which has names only."""
    task, counts = verdict.task, verdict.counts
    return (task, counts) if isinstance(task, Task) and isinstance(counts, Counts) else None


def unseen_pairs(task: Task, counts: Counts) -> list[tuple[int, int]]:
    """Pairs that the policy takes, whose rows are not known, and of which there is no sample."""
    return [(int(s), int(a)) for s, a in np.argwhere(_unseen(task, counts))]


def _unseen(task: Task, counts: Counts) -> BoolArray:
    return np.asarray(task.layout.unknown_pairs & (np.asarray(counts.visits).reshape(task.policy.shape) == 0))
