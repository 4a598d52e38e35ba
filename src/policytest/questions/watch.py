"""A test that follows a growing log: transitions are added as they are observed, and it speaks when they suffice.

`Watch` gives the verdict of `policytest.assess` on the part of the log at which it speaks. It does not start over with
every addition: betting forms its rollouts from the draws of each pair in their order and waits where one is missing, so
that the same rollouts result however the log arrives; the KL rules look at all of it, at each addition at most once.
Looking all the time costs nothing: the guarantee holds at every moment at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from policytest._base.arrays import IntArray
from policytest.data.listed_rewards import outcome_transitions
from policytest.data.shared_generators import by_one_thread
from policytest.data.transitions import Transitions
from policytest.kl.sampler import NOTHING, Recorded
from policytest.mdp.task import Task
from policytest.methods.listed_rewards import on_outcomes, outcomes_for
from policytest.methods.run import Method, go_on
from policytest.questions.assess import assess, method_for
from policytest.questions.cells import diagnosed
from policytest.questions.driver import Question, checked_method
from policytest.questions.recorded import recorded
from policytest.results.ladder import Alongside
from policytest.results.verdict import Verdict


class Watch:
    """Transitions in, the verdict out, as soon as there is one.

    Parameters
    ----------
    task, threshold, delta, method
        As for `policytest.assess`, on transitions.

    >>> import policytest as pt
    >>> two, rng = pt.instances.paper(2), np.random.default_rng(1)
    >>> watch, s = Watch(two.task, threshold=0.0), np.arange(4) // 2
    >>> while watch.add(s, np.arange(4) % 2, pt.TabularSimulator(two.kernel).draw(s, np.arange(4) % 2, rng)) is None:
    ...     pass
    >>> watch.verdict().answer
    'above'
    """

    def __init__(self, task: Task, threshold: float, delta: float = 0.05, method: Method | None = None) -> None:
        question = Question.checked(task, threshold, delta)
        self.task, self.threshold, self.level = task, question.bar, question.level
        nothing = Transitions(NOTHING, NOTHING, NOTHING)
        self.delta, self.method = delta, checked_method(method_for(task, nothing) if method is None else method)
        self.found = question.known()
        self._outcomes = outcomes_for(task, self.method)
        table, tests = task, self.method
        if self._outcomes is not None:
            table, tests = self._outcomes.table, on_outcomes(self._outcomes, self.method)
        self._run: Any = tests.replay(table, self.threshold, Recorded(NOTHING, NOTHING))
        self._parts: list[Transitions] = []
        self._pending: list[Recorded] = []
        self.size = 0

    def add(
        self,
        s: object,
        a: object,
        x: object,
        other_rewards: bool = False,
        selected: bool = False,
        r: object = None,
        episode: object = None,
    ) -> Verdict | None:
        """Transitions that were observed next, in their order; the verdict, once there is one.

        ``other_rewards``: they report other rewards than the task; ``selected``: some were left out because of their
        outcome. With either, no answer is certified. ``r``: their rewards, where those of the task are observed.
        ``episode``: a label of the episode of each, which tells whether states that are cells are Markov.
        """
        r = r if self.task.observes_rewards else None
        part = Transitions(s, a, x, r, selected, other_rewards, episode=episode)
        with by_one_thread(self, "the Watch"):
            return self._added(part)

    def _added(self, part: Transitions) -> Verdict | None:
        rows = self._recorded(part)
        if self.found is not None or not (len(part) or part.flaws):
            return self.found
        self._parts.append(part)
        self._pending.append(rows)
        self.size += len(part)
        if len(part) and self._may_go_on(rows.k):
            self._go_on()
        return self.found

    def _recorded(self, part: Transitions) -> Recorded:
        """The rows of the task, or of its outcome table."""
        if self._outcomes is None:
            return recorded(self.task, part)
        return recorded(self._outcomes.table, outcome_transitions(self._outcomes, part))

    def _may_go_on(self, k: IntArray) -> bool:
        """Betting waits for a draw of one pair, or for the next look at the log; until then nothing else matters."""
        if self._run.reads_all:
            return bool(sum(len(rows.k) for rows in self._pending) >= self._run.rows_to_next_look)
        if not self._run.exhausted:
            return True
        return bool((k == self._run.task.layout.row_of_pair[self._run.missing_pair]).any())

    def _go_on(self) -> None:
        run = self._run
        k, x = (np.concatenate([getattr(rows, name) for rows in self._pending]) for name in "kx")
        if run.task.observes_rewards:
            run.source.extend(k, x, np.concatenate([rows.r for rows in self._pending]))
        else:
            run.source.extend(k, x)
        self._pending = []
        go_on(run, self.level, self.size)
        if run.answer is not None:
            verdict = self._assessed(run.used())
            self.found = verdict if verdict.answer is not None else None

    def _assessed(self, first: int) -> Verdict:
        data = diagnosed(self.task, self.transitions())  # all rows speak of the cells, also those after the answer
        verdict = assess(self.task, data.first(first), self.threshold, self.delta, self.method)
        return replace(verdict, alongside=Alongside())  # one look holds for one look that was fixed beforehand

    def transitions(self) -> Transitions:
        """All that were added."""
        s, a, x = (np.concatenate([NOTHING, *(getattr(part, name) for part in self._parts)]) for name in "sax")
        r = None
        if self.task.observes_rewards:
            r = np.concatenate([np.zeros(0), *(part.r for part in self._parts)])
        selected, other = (any(getattr(part, name) for part in self._parts) for name in ("selected", "other_rewards"))
        episodes = [part.episode for part in self._parts if len(part)]
        known = bool(episodes) and all(episode is not None for episode in episodes)
        self._parts = [Transitions(s, a, x, r, selected, other, episode=np.concatenate(episodes) if known else None)]
        return self._parts[0]

    def verdict(self) -> Verdict:
        """The verdict; undecided where the transitions so far do not suffice."""
        return self._assessed(self.size) if self.found is None else self.found

    def check(self) -> tuple[int, tuple[float, float], float]:
        """Transitions so far, the evidence on both sides, and what is required."""
        if self.found is not None:
            return self.found.samples, self.found.evidence, self.level
        return self.size, self._run.evidence(), self.level
