"""The agent that a gate tests. Put yours here, for instance `act = PPO.load("model.zip")`."""

from __future__ import annotations

import numpy as np


def act(observation: np.ndarray) -> int:
    """CartPole: push the cart to the side that the pole falls to."""
    return int(observation[2] + 0.3 * observation[3] > 0)


def in_use(observation: np.ndarray) -> int:
    """The agent that it is to replace."""
    return int(observation[3] > 0)
