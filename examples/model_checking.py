"""Questions of model checkers about a model whose probabilities are not known: `P>=0.9 [F "goal"]`, and more.

`delivery.prism` is a program in PRISM's language, and `delivery.drn` what Storm exports of it. Here its
probabilities only play the truth: the test draws from them, and does not see them. What it knows is the graph.

    policytest decide examples/delivery.drn --policy uniform --goal goal --avoid broken --threshold 0.8
"""

from pathlib import Path
from typing import Any

import policytest as pt
from policytest.sources import load_model

MODEL = Path(__file__).parent / "delivery.drn"


def always(action: str) -> dict[str, str]:
    """The policy that takes this action until the robot has arrived, or is broken."""
    states = map(str, load_model(MODEL, policy="uniform", discount=0.9).task.states or ())
    return {state: "wait" if "!broken" not in state or "x=3" in state else action for state in states}


def asked(formula: str, policy: str, threshold: float, **question: Any) -> None:
    """Decide a question, and say what a model checker would compute."""
    model = load_model(MODEL, policy=always(policy), known_support=True, **question)
    verdict = pt.decide(model.task, pt.TabularSimulator(model.kernel), threshold, delta=0.01, rng=0)
    exact = pt.value(model.task, model.kernel)
    proved = "proved" if verdict.certified else "not proved"
    print(f"{policy}: {formula:<30} {verdict.answer} ({proved}, {verdict.samples} samples; exact value {exact:.4f})")


for policy in ("slow", "fast"):
    goal: dict[str, Any] = {"goal": ["goal"], "avoid": ["broken"]}
    asked('P>=0.9 [F "goal"]', policy, 0.9, **goal)
    asked('P>=0.9 [F<=6 "goal"]', policy, 0.9, horizon=6, **goal)
    ends: dict[str, Any] = {"rewards": "energy", "terminal": ["goal", "broken"], "discount": 1}
    asked('R{"energy"}>=6 [C<=12]', policy, 6.0, **ends, horizon=12)
