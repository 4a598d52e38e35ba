"""Counts of a table at work: a run draws up to the next sample at which its stopping rule has to look.

`SampledMethod` has what the settings of such methods share.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest._base.record import Record, part_of, record
from policytest.data.counts import Counts
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.eprocess.interval import clip_to_answer
from policytest.kl.sampler import UNLIMITED, Recorded, Source
from policytest.kl.sampling import Forward, Optimal
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.listed_rewards import Outcomes
from policytest.mdp.task import Task
from policytest.methods.kl_rules import Look, Rule
from policytest.methods.run import Outcome, Run, Settings, Traits

RunType = TypeVar("RunType")


class SampledMethod(Generic[RunType]):
    """Settings of a method that samples pairs by an allocation: they start on a simulator, or on recorded data."""

    traits: ClassVar = Traits(table=True)
    allocation: object = "uniform"
    batch: int = 1

    def start(self, task: Task, sim: SimulatorLike, threshold: float, rng: Seed) -> RunType:
        """The test at work on a simulator."""
        allocation = "uniform" if self.allocation is None else self.allocation
        return self._run(task, threshold, Source(task, sim, allocation, threshold, rng, self.batch))

    def replay(self, task: Task, threshold: float, source: Recorded) -> RunType:
        """The test at work on recorded transitions."""
        return self._run(task, threshold, source)

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> RunType:
        raise NotImplementedError

    def _keep_shares(self) -> None:
        """Shares that are given as a list become an array."""
        if isinstance(self.allocation, list | tuple | np.ndarray):
            object.__setattr__(self, "allocation", arrays.real_array("allocation", self.allocation))

    def _sampling(self) -> str:
        """The allocation in a few words."""
        given, kind = isinstance(self.allocation, np.ndarray), self.allocation
        if given or kind is None:
            return "given shares" if given else "uniform sampling"
        return f"{kind if isinstance(kind, str) else type(kind).__name__} sampling".lower()

    def on_outcomes(self, outcomes: Outcomes) -> Self:
        """The method with its allocation, and whatever else has one entry for each pair, for the rows of the table."""
        allocation = self.allocation
        if isinstance(allocation, Forward):
            raise InputError(
                "allocation is Forward(), which follows the states of a table, and here rewards are observed; leave it "
                "out, or use TDBetting(), which follows trajectories"
            )
        if isinstance(allocation, np.ndarray):
            arrays.check_shape("allocation", allocation.shape, outcomes.task.policy.shape)
            return self._with_allocation(outcomes.shares(allocation))
        if isinstance(allocation, Optimal):
            kernel = outcomes.kernel("allocation.kernel", allocation.kernel)
            return self._with_allocation(replace(allocation, kernel=kernel))
        return self

    def _with_allocation(self, allocation: object) -> Self:
        """The same settings with another allocation."""
        other = copy(self)
        object.__setattr__(other, "allocation", allocation)
        return other


class SampledSettings(Settings, Protocol):
    """What a run asks of the settings of its method."""

    @property
    def batch(self) -> int:
        """Looks are made at multiples of this number of samples."""


class KLRun(Run):
    """Samples and their counts at work, and the rule that looks at them: `step` until `answer` is given."""

    source: Source | Recorded
    tally: WitnessedCounts
    looked = (-1, np.inf)  # the samples and the evidence required at the last look that brought no answer

    def __init__(self, method: SampledSettings, source: Source | Recorded, rule: Rule) -> None:
        self.method, self.source, self.rule = method, source, rule
        self.task, self.threshold, self.tally = rule.question.task, rule.question.threshold, rule.tally
        self.blind_until = rule.first_look  # no look before this many samples

    # ------------------------------------------------------------ the loop

    def work_in_parallel(self, workers: int) -> None:
        """No-op: a call asks for many pairs as it is."""

    def begin(self, required: float) -> None:
        """Before the first step, and after a pause: see that there is a witness, or answer."""
        if self.samples >= self.blind_until and self._owes_a_look(required):
            self.look(required)

    def step(self, required: float, most: int) -> None:
        """Go on to the next sample at which a witness fails, or to the end of a block; `most` samples at most."""
        blind = self.blind_until - self.samples
        self.draw(most, *((blind, np.inf) if blind > 0 else (UNLIMITED, required)))
        if self.samples < self.blind_until:
            return
        if self.tally.witness_evidence() < required:
            if self.source.between_blocks or self.samples == self.blind_until:  # not where a limit cuts a block
                self.tally.refresh()
                self._put_off(self.rule.pause(self.samples))
        elif self.samples % self.method.batch:  # look at the end of this batch
            self.blind_until = self.samples + self.method.batch - self.samples % self.method.batch
        else:
            self.look(required)

    def draw(self, most: int, due: int = UNLIMITED, watched: float = np.inf) -> None:
        """Go on by samples of the run's own rule, at most so many, until the witness has this much evidence."""
        k, x = self.source.ahead(self.tally, watched, most, due)
        used = self.tally.observe(k, x, watched)
        self.source.take(used)
        self.samples += used

    def end(self, required: float) -> None:
        """No more samples are allowed: look, if that was put off. Without an answer the run can go on as it was."""
        if self._owes_a_look(required):
            before = self.state()
            self.look(required)
            if self.answer is None:
                self.restore(before)

    def _owes_a_look(self, required: float) -> bool:
        """Whether no witness stands, and none was sought at this sample; to look twice would change what comes next."""
        return self.looked != (self.samples, required) and not self.tally.witness_evidence() < required

    def judge_counts(self, counts: Counts, required: float, design: str) -> None:
        """Take over counts recorded elsewhere, and judge them; the design does not matter."""
        self.tally.load(counts)
        self.samples = counts.total
        self._heed(self.rule.judge(self.samples, required), required)

    def look(self, required: float) -> None:
        """The witness failed, or a look is due: the rule finds another witness, or answers."""
        self.answer = None
        self._heed(self.rule.look(self.samples, required), required)

    def update_answer(self, required: float) -> None:
        """Answer if what was found at this sample decides with this much evidence required."""
        self._heed(self.rule.look_again(self.samples, required), required)

    def _heed(self, found: Look, required: float) -> None:
        """Do as the rule says."""
        self.answer = found.answer
        if found.pause is not None:
            self._put_off(found.pause)
        if found.is_new and self.answer is None:
            self.looked = self.samples, required

    def _put_off(self, pause: float) -> None:
        """The next look comes after so many samples at the earliest."""
        self.blind_until = max(self.blind_until, self.samples + int(np.ceil(pause)))

    # ------------------------------------------------------------ what it can say

    def why_undecided(self) -> str:
        """An answer that lacks its proof."""
        if self.answer is None and self.rule.found_at <= self.samples:
            return "an answer was found, but no proof of it; PTST(solver=ProjectionFree()) answers without one"
        return ""

    def evidence(self) -> tuple[float, float]:
        """(against V <= R, against V >= R), in nats."""
        return self.rule.evidence(self.samples)

    def proof(self) -> tuple[float, float]:
        """The part of the evidence that is proved."""
        return self.rule.proof(self.samples)

    def outcome(self, required: float) -> Outcome:
        """What the answer rests on."""
        return self.rule.outcome(self, required)

    def interval(self, required: float) -> tuple[float, float]:
        """Where the value lies."""
        return self.rule.interval(required, self.answer is not None)

    def verdict_interval(self, required: float) -> tuple[float, float]:
        """The interval of a verdict: each end holds with probability at least 1 - delta, as the answer does.

        That the ball lies on one side of R is the same event as the answer: rounding in the search apart, the end
        towards R is on the answer's side, and it is put there.
        """
        return clip_to_answer(self.interval(required), self.threshold, self.answer)

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel."""
        return self.rule.question.estimate

    @property
    def solves(self) -> int:
        """How many worst-case problems were solved."""
        return self.tally.solves

    # ------------------------------------------------------------ keeping

    def state(self) -> Record:
        """All that is needed to go on later, as arrays."""
        return {
            "samples": np.array([self.samples]),
            "blind_until": np.array([self.blind_until]),
            "found_at": np.array([float(self.rule.found_at)]),
            "looked": np.array(self.looked, dtype=np.float64),
            **record(tally=self.tally.state(), source=self.source.state()),
        }

    def _restore(self, state: Record) -> None:
        self.samples, self.blind_until = int(state["samples"][0]), int(state["blind_until"][0])
        self.rule.go_on(float(state["found_at"][0]))
        samples, required = state["looked"]
        self.looked = int(samples), float(required)
        self.tally.restore(part_of(state, "tally"))
        self.source.restore(part_of(state, "source"))
        if self.samples != self.tally.n.sum():
            raise ValueError("the number of samples is not that of the counts")
