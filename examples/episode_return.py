"""A tabular agent and the time limit of its environment: is its mean episode return above a bar?

The agent learns FrozenLake by Q-learning. Its return is 1 for an episode that reaches the goal within the 100 steps
that the environment allows, without a discount. The last test only steps the environment, and knows no rewards but
their range.
"""

import gymnasium
import numpy as np

import policytest as pt


def learn(episodes: int, seed: int) -> np.ndarray:
    """[S,A] the values of actions, by Q-learning with random actions and a falling rate."""
    env, rng = gymnasium.make("FrozenLake-v1"), np.random.default_rng(seed)
    Q, visits = np.zeros((16, 4)), np.zeros((16, 4))
    state, _ = env.reset(seed=seed)
    for _ in range(episodes):
        over = False
        while not over:
            action = int(rng.integers(4)) if rng.random() < 0.5 else int(Q[state].argmax())
            after, reward, ended, truncated, _ = env.step(action)
            visits[state, action] += 1
            target = float(reward) + 0.99 * Q[after].max() * (not ended)
            Q[state, action] += (target - Q[state, action]) / visits[state, action] ** 0.7
            state, over = after, ended or truncated
        state, _ = env.reset()
    return Q


agent = learn(episodes=3000, seed=2).argmax(axis=1)
lake = pt.sources.gymnasium("FrozenLake-v1", agent, discount=1.0, horizon="time limit")
print(lake)
assert lake.value is not None
for bar in (lake.value - 0.1, lake.value + 0.1):
    verdict = pt.decide(lake.task, lake.simulator, threshold=bar, delta=0.01, rng=0)
    print(f"mean return above {bar:.2f}? {verdict.answer} after {verdict.samples:,} steps")

paid = pt.Observed(0.0, 1.0)
stepped = pt.sources.gymnasium("FrozenLake-v1", agent, 1.0, horizon="time limit", rewards=paid, initial=0)
verdict = pt.decide(stepped.task, stepped.simulator, threshold=0.1, rng=0, max_samples=200_000)
print(f"stepped, rewards as they are paid: above 0.1? {verdict.answer} after {verdict.samples:,} steps")
