"""Gating a deployment: a CI job that releases a policy only if the test says "above", by the exit code alone.

The same in a shell:   policytest decide examples/model.json --threshold 1.5 --quiet && deploy
"""

import subprocess
import sys
from pathlib import Path

MODEL = Path(__file__).parent / "model.json"
MEANING = {
    0: "above",
    1: "below",
    2: "wrong usage or input",
    3: "no reliable answer",
    4: "an error in the program",
    5: "within",
}


def gate(threshold: float) -> bool:
    """Whether the policy may be deployed. Anything but 0 keeps the old one: an undecided test releases nothing."""
    command = [sys.executable, "-m", "policytest", "decide", str(MODEL), "--threshold", str(threshold)]
    command += ["--delta", "0.01", "--max-samples", "1e5", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode in (2, 4):
        print(done.stderr.strip())
    print(f"bar {threshold}: exit code {done.returncode} ({MEANING[done.returncode]})", end=": ")
    return done.returncode == 0


for bar in (1.0, 8.0):  # to show both answers; a gate has one bar, which is fixed before anybody looks
    print("deploy" if gate(bar) else "keep the old policy")
