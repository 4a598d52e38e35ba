"""Values of ten programs in PRISM's language, as Storm and as policytest compute them: ``make test-storm``.

Storm answers every question again, exactly, and policytest reads the programs through Storm. The largest difference
allowed is 1e-9.
"""

import sys
import tempfile
import warnings
from pathlib import Path

from make import HERE, questions_of

import policytest as pt
from policytest.sources import load_model

TOLERANCE = 1e-9


def differences(path: Path) -> list[float]:
    """How far the two are apart, for each question about a program."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for policy, asked in questions_of(path, Path(folder)).items():
            chosen = policy if policy == "uniform" else Path(folder, policy)
            for question in asked:
                value = question.pop("value")
                model = load_model(path, policy=chosen, **question)
                found.append(abs(pt.value(model.task, model.kernel) - value) / max(1.0, abs(value)))
    return found


def main() -> int:
    """Print a line for each program; 1 if a difference is too large."""
    warnings.filterwarnings("ignore", "goal and avoid both have the state")
    programs = sorted(HERE.glob("*.prism"))
    print(f"{'program':<17} {'questions':>9}  largest difference")
    found = []
    for path in programs:
        found.append(differences(path))
        print(f"{path.name:<17} {len(found[-1]):>9}  {max(found[-1]):.1e}")
    worst = max(map(max, found))
    print(f"{len(programs)} programs, {sum(map(len, found))} questions: the largest difference is {worst:.1e}")
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
