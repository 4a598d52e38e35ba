"""From logs alone: would the new recommendation policy earn more than the deployed one, which earns 4.1 a visitor?

The deployed policy chose evenly among the actions, and its visits were logged. The new one prefers personal choices. No
experiment is made: the logs say what follows each action, and that is enough to test another policy.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np

import policytest as pt

states, actions = ["browsing", "keen", "gone"], ["popular", "personal"]
task = pt.Task(
    rewards=[[0.6, 0.8], [1.5, 2.0], [0.0, 0.0]],
    policy=[[0.1, 0.9], [0.1, 0.9], [1.0, 0.0]],  # the new one
    initial=[1.0, 0.0, 0.0],
    discount=0.9,
    states=states,
    actions=actions,
    terminal=["gone"],  # visits end there, so no row of the log begins there
)
truth = np.array(  # known to nobody; it writes the log
    [[[0.6, 0.2, 0.2], [0.5, 0.35, 0.15]], [[0.4, 0.4, 0.2], [0.3, 0.6, 0.1]], [[0, 0, 1], [0, 0, 1]]]
)


def write_log(path: Path, visitors: int, rng: np.random.Generator) -> None:
    """One row for each step of each visitor, under the deployed policy."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["order", "s", "a", "s_next"])
        order = 0
        for _ in range(visitors):
            s = 0
            while s != 2:
                a = int(rng.integers(2))
                x = int(rng.choice(3, p=truth[s, a]))
                writer.writerow([order, states[s], actions[a], states[x]])
                order, s = order + 1, x


with tempfile.TemporaryDirectory() as folder:
    log_file = Path(folder) / "visits.csv"
    for visitors in (40, 1000):
        write_log(log_file, visitors, np.random.default_rng(7))
        log = pt.sources.logs(log_file, task)
        verdict = pt.assess(task, log.transitions(), threshold=4.1, delta=0.05)
        print(f"{visitors} visitors, {log.counts.total} transitions: {verdict.answer or 'not settled'}")
        if verdict.answer is None:
            print(f"  {verdict.still_needed().words}")
print(f"the first {verdict.samples} transitions settled it; p-value {verdict.p_value:.3f}")
print(f"the value is in [{verdict.interval[0]:.2f}, {verdict.interval[1]:.2f}]; in truth {pt.value(task, truth):.2f}")
