"""A log with a row for each patient and day: is the probability of cure within 30 days above 0.8 under a new rule?

`goal`, `avoid` and `horizon` in the task file ask what model checkers write as `P>=0.8 [F<=30 "well"]`. The treatments
in the log were chosen at random; the rule to be judged gives the drug to whoever is worse, and rest to the others.

    policytest assess task.toml log.csv --column s=state --column a=treatment --column s_next=next_day \
        --column order=day --column episode=patient
"""

import csv
import tempfile
from pathlib import Path

import numpy as np

import policytest as pt

TASK = """\
states = ["ill", "worse", "well", "dead"]
actions = ["rest", "drug"]
initial = "ill"
goal = ["well"]
avoid = ["dead"]
horizon = 30

[policy]
ill = "rest"
worse = "drug"
"""
NAMES, ACTIONS = ["ill", "worse", "well", "dead"], ["rest", "drug"]
TRUTH = np.array(  # known to nobody: what follows a day in which somebody is ill, or worse
    [
        [[0.80, 0.06, 0.14, 0.00], [0.82, 0.05, 0.13, 0.00]],
        [[0.10, 0.84, 0.02, 0.04], [0.25, 0.70, 0.03, 0.02]],
    ]
)
COLUMNS = {"s": "state", "a": "treatment", "s_next": "next_day", "order": "day", "episode": "patient"}


def write(path: Path, patients: int, seed: int) -> None:
    """A patient comes every second day, and is followed until well or dead."""
    rng, rows = np.random.default_rng(seed), []
    for patient in range(patients):
        day, s = 2 * patient, 0
        while s < 2:
            a = int(rng.integers(2))
            x = int(rng.choice(4, p=TRUTH[s, a]))
            rows.append((day, patient, NAMES[s], ACTIONS[a], NAMES[x]))
            day, s = day + 1, x
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("day", "patient", "state", "treatment", "next_day"), *sorted(rows)])


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    (folder / "task.toml").write_text(TASK)
    task = pt.sources.load_model(folder / "task.toml").task
    kernel = np.concatenate([TRUTH, np.eye(4)[2:, None].repeat(2, axis=1)])
    print(f"the truth: {pt.value(task, kernel):.3f} are cured within 30 days")
    for patients in (30, 300):
        write(folder / "log.csv", patients, seed=1)
        verdict = pt.assess(task, folder / "log.csv", threshold=0.8, columns=COLUMNS)
        interval = pt.value_interval(task, folder / "log.csv", columns=COLUMNS)
        answer = verdict.answer or "not settled"
        print(f"{patients} patients: above 0.8? {answer}; {interval.lower:.2f} to {interval.upper:.2f} at 95%")
