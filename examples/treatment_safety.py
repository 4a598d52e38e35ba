"""A safety threshold: does the new treatment policy keep the expected harm below what is tolerated?

The reward is minus one in every month that a patient spends severely ill, so the value is minus the discounted months.
At most 1 is tolerated: the value must be above -1, and that must be known with an error of at most one in a thousand.
Only "above" releases the policy; "below" stops it, and "not settled" means that nobody knows yet.
"""

import numpy as np

import policytest as pt

states, actions = ["severe", "stable", "well"], ["watch", "treat"]
TOLERATED = -1.0
harm = np.array([[-1.0, -1.0], [0.0, 0.0], [0.0, 0.0]])


def treating(when_stable: float) -> pt.Task:
    """The policy that treats every severe case, and so many of the stable ones."""
    return pt.Task(
        rewards=harm,
        policy=[[0.0, 1.0], [1.0 - when_stable, when_stable], [1.0, 0.0]],
        initial=[0.2, 0.8, 0.0],
        discount=0.95,
        states=states,
        actions=actions,
    )


def month(s: np.ndarray, a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The next state of each patient: a simulator of one's own; any program that answers with integers will do."""
    better = rng.random(len(s)) < np.where(a == 1, 0.6, 0.25)
    worse = rng.random(len(s)) < np.where(a == 1, 0.05, 0.15)
    moved: np.ndarray = np.clip(s + better - worse, 0, 2)
    return moved


for share in (0.0, 0.3, 1.0):
    verdict = pt.decide(treating(share), month, threshold=TOLERATED, delta=0.001, rng=3, max_samples=20_000)
    released = verdict.answer == "above" and verdict.certified
    months = -verdict.estimate
    print(
        f"treat {share:.0%} of stable patients: {'release' if released else 'do not release'} "
        f"({verdict.answer or 'not settled'} after {verdict.samples} months seen; about {months:.2f} months ill)"
    )
