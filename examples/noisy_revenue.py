"""A log whose rewards vary: is a customer worth more than 110 within a year, if each is treated by the rule?

What a customer pays in a month is not a function of state and action: it is a column of the log, `paid`, of which
only the range is declared, `reward_range` in the task file. No mean of it is put into the task: that would void the
guarantee.

    policytest assess task.toml log.csv --column s=segment --column a=action --column s_next=next_segment \
        --column order=month --column episode=customer --column reward=paid
"""

import csv
import tempfile
from pathlib import Path

import numpy as np

import policytest as pt

TASK = """\
states = ["new", "active", "at risk", "lost"]
actions = ["nothing", "email"]
discount = 1
horizon = 12
initial = "new"
terminal = ["lost"]
policy = ["email", "nothing", "email", "nothing"] # in the order of the states
reward_range = [0, 60]
"""
NAMES, ACTIONS = ["new", "active", "at risk", "lost"], ["nothing", "email"]
TRUTH = np.array(  # known to nobody: what follows "new", "active" and "at risk"
    [
        [[0, 0.55, 0.20, 0.25], [0, 0.66, 0.18, 0.16]],
        [[0, 0.86, 0.11, 0.03], [0, 0.85, 0.12, 0.03]],
        [[0, 0.25, 0.45, 0.30], [0, 0.38, 0.40, 0.22]],
    ]
)
MEAN = [12.0, 22.0, 7.0]
COLUMNS = {"s": "segment", "a": "action", "s_next": "next_segment", "order": "month", "episode": "customer"}


def write(path: Path, customers: int, seed: int = 0, typo: bool = False) -> None:
    """Customers come month by month; each pays what a gamma distribution says, at most 60."""
    rng, rows = np.random.default_rng(seed), []
    for customer in range(customers):
        month, s = customer // 20, 0
        while s != 3:
            a = int(rng.integers(2))
            x = int(rng.choice(4, p=TRUTH[s, a]))
            paid = min(round(float(rng.gamma(2.0, MEAN[s] / 2.0)), 2), 60.0)
            paid *= 100 if typo and customer == 7 else 1
            rows.append((month, customer, NAMES[s], ACTIONS[a], paid, NAMES[x]))
            month, s = month + 1, x
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("month", "customer", "segment", "action", "paid", "next_segment"), *sorted(rows)])


with tempfile.TemporaryDirectory() as name:
    folder, columns = Path(name), {**COLUMNS, "reward": "paid"}
    (folder / "task.toml").write_text(TASK)
    task = pt.sources.load_model(folder / "task.toml").task
    for customers in (20, 600):
        write(folder / "log.csv", customers)
        verdict = pt.assess(task, folder / "log.csv", threshold=110.0, columns=columns)
        print(f"{customers} customers: above 110? {verdict.answer or 'not settled'} (estimate {verdict.estimate:.0f})")
    write(folder / "log.csv", 100, typo=True)
    try:
        pt.assess(task, folder / "log.csv", threshold=110.0, columns=columns)
    except pt.InputError as error:
        print(f"refused: {error}")
