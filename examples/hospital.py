"""A log as hospitals have it: one row for each visit, many patients on the same day, and no column with the next state.

Writes `task.toml` and `log.csv` into a folder (the first argument): 6 states, 3 treatments, about 6,700 rows. The state
that follows a visit is that of the patient's next visit; whoever is well or dead has a last row that says so, and
patients who are still treated when the log ends have none. Is the share of patients that the policy cures, discounted
by 0.5% a visit, above 0.8?

    policytest assess task.toml log.csv --column s=state --column a=treatment --column order=date \
        --column episode=patient --column reward=outcome
"""

import csv
import datetime
import sys
import tempfile
from pathlib import Path

import numpy as np

TASK = """\
states = ["mild", "moderate", "severe", "recovering", "well", "dead"]
actions = ["rest", "drug", "both"]
discount = 0.995
threshold = 0.8
initial = { mild = 0.4, moderate = 0.35, severe = 0.25 }
terminal = ["well", "dead"]
rewards = [{ s_next = "well", r = 1 }] # on arrival, from wherever

[policy]
mild = "drug"
moderate = "drug"
severe = "both"
recovering = "rest"
"""
NAMES, ACTIONS = ["mild", "moderate", "severe", "recovering", "well", "dead"], ["rest", "drug", "both"]
TRUTH = np.array(  # known to nobody: what follows the first four states
    [
        [[0.45, 0.25, 0.02, 0.20, 0.08, 0], [0.20, 0.08, 0.00, 0.50, 0.22, 0], [0.25, 0.10, 0.00, 0.45, 0.20, 0]],
        [[0.10, 0.45, 0.30, 0.13, 0, 0.02], [0.30, 0.30, 0.06, 0.335, 0, 0.005], [0.25, 0.25, 0.05, 0.44, 0, 0.01]],
        [[0, 0.10, 0.65, 0.05, 0, 0.20], [0, 0.30, 0.42, 0.20, 0, 0.08], [0, 0.43, 0.22, 0.30, 0, 0.05]],
        [[0.06, 0.02, 0.00, 0.32, 0.60, 0], [0.05, 0.03, 0.00, 0.32, 0.60, 0], [0.08, 0.05, 0.01, 0.31, 0.55, 0]],
    ]
)
OFTEN = np.array([[0.4, 0.4, 0.2], [0.5, 0.35, 0.15], [0.35, 0.6, 0.05], [0.5, 0.3, 0.2]])  # treatments were given


def write(folder: Path, patients: int = 1250, seed: int = 4) -> None:
    """Patients come every few days, until they are well or dead, or until the year ends."""
    rng, first, rows = np.random.default_rng(seed), datetime.date(2025, 1, 1), list[tuple[object, ...]]()
    for patient in range(1000, 1000 + patients):
        day, s = int(rng.integers(0, 355)), int(rng.choice(3, p=[0.4, 0.35, 0.25]))
        while day < 365:
            date = first + datetime.timedelta(days=day)
            if s > 3:
                rows.append((date, patient, NAMES[s], "", ""))
                break
            a, wait = int(rng.choice(3, p=OFTEN[s])), int(rng.integers(2, 8))
            x = int(rng.choice(6, p=TRUTH[s, a]))
            rows.append((date, patient, NAMES[s], ACTIONS[a], int(x == 4) if day + wait < 365 else ""))
            day, s = day + wait, x
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.toml").write_text(TASK)
    with (folder / "log.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("date", "patient", "state", "treatment", "outcome"), *sorted(rows)])
    print(f"{len(rows)} rows in {folder}")


write(Path(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp()))
