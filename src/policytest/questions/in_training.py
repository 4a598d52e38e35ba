r"""Is the agent good enough yet? One checkpoint of a training run after the other, with one delta for all of them.

Each checkpoint is another policy, with a value of its own, so what was seen of one proves nothing about the next. Call
V_k the value of the k-th that is tested, and let delta_k be its share of delta, with

    delta_1 + delta_2 + ... <= delta.

*Then the probability that any checkpoint with V_k <= R is ever answered "above" is at most delta.* Let F_k be all that
has happened when the k-th test begins: training, earlier tests, and with them the k-th policy. Its episodes have seeds
of their own, drawn independently of F_k. So the test is one of a fixed policy given F_k, and if V_k <= R

    P("above" at k | F_k) <= delta_k,

whatever the training did with earlier answers. The union bound over k gives the sum of the shares. The same holds for
"below" and V_k >= R. It needs no number of checkpoints in advance, and training may stop at any time: at the first
"above", as it is meant to, or earlier. The shares are

    delta_k = delta / (k (k + 1)),

whose sum over k = 1 .. n is delta n / (n + 1); or delta / n each, if the number n of checkpoints is fixed beforehand.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest._base.text import number, probability
from policytest.data.episodes import Episodes
from policytest.kl.boundaries import check_delta
from policytest.methods.run import Method
from policytest.questions.decide import decide
from policytest.questions.driver import INTERRUPTED
from policytest.results.verdict import Verdict

STREAM = 0x747261  # sets the seeds of these tests apart from others


def share_of_delta(delta: float, k: int, checkpoints: int | None = None) -> float:
    """The delta of the k-th checkpoint, k = 1, 2, ...: the shares of all of them add up to at most ``delta``.

    >>> [round(share_of_delta(0.06, k), 6) for k in (1, 2, 3)], share_of_delta(0.06, 3, checkpoints=4)
    ([0.03, 0.01, 0.005], 0.015)
    """
    return delta / (k * (k + 1)) if checkpoints is None else delta / checkpoints


class InTraining:
    """Tests of one checkpoint after the other, until one is good enough.

    Parameters
    ----------
    threshold, delta
        The question about each checkpoint, and the probability of error of all of them together.
    budget
        The most episodes of a checkpoint. One that is far below the threshold is answered after a few.
    checkpoints
        How many there can be, if that is fixed beforehand: then each has the same share of delta.
    method, parallel
        As in `decide`.
    seed
        Fixes the seeds of all tests.
    accept_uncertified
        Whether an answer that is not certified, such as a large-sample one, is good enough.

    Attributes
    ----------
    verdict
        That of the latest checkpoint, whose ``delta`` is the share of that checkpoint; None before the first.
    tested, spent
        How many checkpoints were tested, and the sum of their shares.

    >>> import policytest as pt
    >>> testing = pt.InTraining(threshold=0.5)
    >>> for success in (0.1, 0.3, 0.8):  # an agent that learns
    ...     coin = pt.Episodes(lambda rng, p=success: rng.random() < p, return_range=(0, 1))
    ...     print(testing.decide(coin).answer, testing.good_enough)
    below False
    below False
    above True
    """

    def __init__(
        self,
        threshold: float,
        delta: float = 0.05,
        budget: int = 100,
        checkpoints: int | None = None,
        method: Method | None = None,
        seed: int = 0,
        parallel: int = 1,
        accept_uncertified: bool = False,
    ) -> None:
        self.accept_uncertified = arrays.flag("accept_uncertified", accept_uncertified)
        self.threshold = arrays.real_number("threshold", threshold)
        self.delta = check_delta(delta)
        self.budget, self.seed = arrays.whole_number("budget", budget), arrays.whole_number("seed", seed)
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}; pass 0 or more")
        self.checkpoints = None if checkpoints is None else arrays.whole_number("checkpoints", checkpoints)
        arrays.positive(budget=self.budget, checkpoints=1 if self.checkpoints is None else self.checkpoints)
        self.method, self.parallel = method, parallel
        self.tested, self.spent = 0, 0.0
        self.uncertified = ""  # the first checkpoint whose answer could not be certified, and why
        self.verdict: Verdict | None = None

    @property
    def good_enough(self) -> bool:
        """Whether the latest checkpoint is above the threshold, and that is certified, if it has to be."""
        verdict = self.verdict
        return verdict is not None and verdict.answer == "above" and (verdict.certified or self.accept_uncertified)

    def decide(self, episodes: Episodes) -> Verdict:
        """Test the agent as it is now: above the threshold, below it, or undecided within the budget."""
        if not isinstance(episodes, Episodes):
            raise InputError(f"episodes is {arrays.shown(episodes)}; pass Episodes(env, agent, ...)")
        k = self.tested + 1
        if self.checkpoints is not None and k > self.checkpoints:
            raise InputError(
                f"checkpoints is {self.checkpoints}, and this is one more; delta was shared out over that number: pass "
                "a larger one to a new InTraining, or leave it out"
            )
        share = share_of_delta(self.delta, k, self.checkpoints)
        own = int(np.random.SeedSequence([self.seed, STREAM, k]).generate_state(1)[0])
        found = decide(
            episodes,
            threshold=self.threshold,
            delta=share,
            method=self.method,
            rng=own,
            budget=self.budget,
            parallel=self.parallel,
        )
        if found.reason == INTERRUPTED:
            raise KeyboardInterrupt  # the loop around it has to end, too
        self.tested, self.spent = k, self.spent + share
        if (found.approximate or found.counts.flaws) and not self.uncertified:
            why = "; ".join(found.counts.flaws) or "it is a large-sample answer"
            self.uncertified = f"that about checkpoint {k} is not: {why}"
        told = f"{found.method} (checkpoint {k}: {probability(share)} of delta = {probability(self.delta)})"
        self.verdict = replace(found, provenance=replace(found.provenance, method=told))
        return self.verdict

    @property
    def words(self) -> str:
        """What is promised, in a sentence."""
        if self.verdict is None:
            return "No checkpoint was tested."
        answer = "is not known to be above" if self.verdict.answer is None else f"is {self.verdict.answer}"
        return (
            f"The value of checkpoint {self.tested} {answer} {number(self.threshold)}. The probability of a wrong "
            f'"above" at any checkpoint so far is at most {probability(self.spent)}, of '
            f"delta = {probability(self.delta)} for the whole training"
            + (f", as far as answers are certified; {self.uncertified}." if self.uncertified else ".")
        )
