"""Trials of three robot policies, written down one by one: is the new one better than the old, and which is best?

Writes `trials.csv` into a folder (the first argument): three tasks, in each of them 40 starts of the arm (`seed`), from
which every policy is tried once, in the order in which they were made. A start is easy or hard for all policies.

    policytest compare trials.csv --a new --b old --column agent=policy --column outcome=success --column pair=seed
"""

import csv
import sys
import tempfile
from pathlib import Path

import numpy as np

import policytest as pt

RATES = {  # known to nobody
    "new": {"lift": 0.85, "push": 0.7, "stack": 0.6},
    "old": {"lift": 0.6, "push": 0.65, "stack": 0.3},
    "imitation": {"lift": 0.5, "push": 0.4, "stack": 0.2},
}


def write(folder: Path, starts: int = 40, seed: int = 7) -> Path:
    """The next start of each task in turn, each with all policies in a random order."""
    rng, rows = np.random.default_rng(seed), list[tuple[str, str, int, str]]()
    for start in range(starts):
        for task in ("lift", "push", "stack"):
            luck = rng.random()
            for policy in rng.permutation(list(RATES)).tolist():
                chance = luck if rng.random() < 0.5 else rng.random()  # half of the luck is in the start
                rows.append((policy, task, start, "yes" if chance < RATES[policy][task] else "no"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "trials.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("policy", "task", "seed", "success"), *rows])
    return folder / "trials.csv"


def main() -> None:
    """Write the file; ask about the trials of the first week, and about all of them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    file = write(folder)
    trials = pt.sources.trials(file)
    print(f"{trials.rows} trials in {file.name}, of {', '.join(sorted(trials.agents))}")

    verdict = pt.compare(trials["new"], trials["old"])
    print(f"new against old: {verdict.answer}, after {verdict.samples} of {2 * verdict.counts.episodes} trials")
    for task in verdict.by_task:
        print(f"  {task.task:<6} {task.answer or 'not settled'}")

    found = pt.identify([trials[name] for name in trials.agents])
    print(f"the best of three: {found.policy if found.answered else 'not settled'}")


if __name__ == "__main__":
    main()
