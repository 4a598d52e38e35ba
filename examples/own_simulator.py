"""A simulator of one's own: is the new treatment policy worth more than the old one's 6.5?"""

import numpy as np

import policytest as pt

states, actions = ["ill", "stable", "well"], ["wait", "treat"]
task = pt.Task(
    rewards=[[-1.0, -1.5], [0.5, 0.0], [1.0, 0.5]],
    policy=[[0.1, 0.9], [0.5, 0.5], [1.0, 0.0]],
    initial=[0.5, 0.5, 0.0],
    discount=0.9,
    states=states,
    actions=actions,
)


def draw(s: np.ndarray, a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The next state of each patient; any program that answers with integers will do."""
    better = rng.random(len(s)) < np.where(a == 1, 0.7, 0.4)
    worse = rng.random(len(s)) < 0.1
    moved: np.ndarray = np.clip(s + better - worse, 0, len(states) - 1)
    return moved


verdict = pt.decide(task, draw, threshold=6.5, delta=0.05, rng=1, max_samples=100)
print(f"After {verdict.samples} samples: {verdict.reason}. The run can go on:\n")
print(pt.decide(task, draw, threshold=6.5, delta=0.05, resume=verdict))
