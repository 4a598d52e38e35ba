"""A log as companies have it: customers by week, many of them in the same week. Is "email, nothing, coupon" worth 90?

Writes `task.toml` and `log.csv` into a folder (the first argument): 4 segments, 3 actions, about 21,000 rows. What was
done with a customer in a week was chosen at random, mostly nothing. Then:

    policytest assess task.toml log.csv --column s=segment --column a=action --column s_next=next_segment \
        --column order=week --column episode=customer --column reward=margin
"""

import csv
import datetime
import sys
import tempfile
from pathlib import Path

import numpy as np

TASK = """\
states = ["new", "active", "at risk", "lost"]
actions = ["nothing", "email", "coupon"]
discount = 0.95
threshold = 90
initial = "new"
terminal = ["lost"]
policy = ["email", "nothing", "coupon", "nothing"] # in the order of the states

[rewards] # the margin of a week, less what the action costs
new = { nothing = 9, email = 8, coupon = -1 }
active = { nothing = 20, email = 19, coupon = 10 }
"at risk" = { nothing = 5, email = 4, coupon = -5 }
"""
NAMES, ACTIONS = ["new", "active", "at risk", "lost"], ["nothing", "email", "coupon"]
MARGIN = np.array([[9, 8, -1], [20, 19, 10], [5, 4, -5]])
TRUTH = np.array(  # known to nobody: what follows "new", "active" and "at risk"
    [
        [[0, 0.50, 0.20, 0.30], [0, 0.60, 0.18, 0.22], [0, 0.65, 0.15, 0.20]],
        [[0, 0.82, 0.14, 0.04], [0, 0.80, 0.15, 0.05], [0, 0.84, 0.13, 0.03]],
        [[0, 0.20, 0.40, 0.40], [0, 0.28, 0.40, 0.32], [0, 0.45, 0.33, 0.22]],
    ]
)
OFTEN = np.array([[0.4, 0.33, 0.27], [0.86, 0.08, 0.06], [0.45, 0.25, 0.30]])  # how often each action was taken


def write(folder: Path, customers: int = 2650, seed: int = 0) -> None:
    """Every customer is followed until lost, or until the log ends after two years."""
    rng, first, rows = np.random.default_rng(seed), datetime.date(2024, 1, 1), []
    for customer in range(customers):
        week, s = int(rng.integers(0, 100)), 0
        while s != 3 and week < 104:
            a = int(rng.choice(3, p=OFTEN[s]))
            x = int(rng.choice(4, p=TRUTH[s, a]))
            rows.append(
                (first + datetime.timedelta(weeks=week), customer, NAMES[s], ACTIONS[a], MARGIN[s, a], NAMES[x])
            )
            week, s = week + 1, x
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.toml").write_text(TASK)
    with (folder / "log.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("week", "customer", "segment", "action", "margin", "next_segment"), *sorted(rows)])
    print(f"{len(rows)} rows in {folder}")


if __name__ == "__main__":
    write(Path(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp()))
