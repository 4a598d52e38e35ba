"""A Gymnasium environment: does a policy reach the goal of FrozenLake often enough?

The lake has a table, so the exact value is known and shown beside the verdict. The test does not look at it: it knows
the rewards, the start and what ends an episode, and samples the rest.
"""

import numpy as np

import policytest as pt

lake = pt.sources.gymnasium("FrozenLake-v1", "uniform", discount=0.95)
print(lake)

# The best policy of the table, with a tenth of its mass spread evenly over the actions.
S, A = lake.task.n_states, lake.task.n_actions
kernel, rewards = lake.kernel, lake.task.rewards
assert isinstance(kernel, np.ndarray)
assert isinstance(rewards, np.ndarray)
expected = (kernel * rewards).sum(axis=2) if rewards.ndim == 3 else rewards
values = np.zeros(S)
for _ in range(1000):
    values = (expected + 0.95 * kernel @ values).max(axis=1)
best = (expected + 0.95 * kernel @ values).argmax(axis=1)
policy = 0.9 * np.eye(A)[best] + 0.1 / A

slippery = pt.sources.gymnasium("FrozenLake-v1", policy, discount=0.95)
assert slippery.value is not None
print(f"\nexact value of the better policy: {slippery.value:.4f}")
for bar in (0.02, 0.06, 0.2):  # three questions, fixed before, each with a delta of its own
    verdict = pt.decide(slippery.task, slippery.simulator, threshold=bar, delta=0.01, rng=0)
    print(f"above {bar}? {verdict.answer} after {verdict.samples:,} steps (p-value {verdict.p_value:.1e})")
