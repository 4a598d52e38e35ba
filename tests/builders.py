"""What tests share: a simulator that remembers, logs and counts from a seed, scripts in a process of their own."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import policytest as pt
from paths import ROOT

SOURCE = Path(pt.__file__).resolve().parents[1]
TWO = pt.instances.paper(2)
REPORTED = (
    "answer",
    "samples",
    "certified",
    "evidence",
    "estimate",
    "interval",
    "witness",
    "lower_bound",
    "solves",
    "proof_samples",
    "dimension",
    "proved",
    "refuted",
    "reason",
)

# ---------------------------------------------------------------- many cases in one test


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Any], Any]:
    """As `pytest.mark.parametrize`, but a loop in one test, for many cheap cases; a failure is told with its case."""
    names, cases = (names,) if isinstance(names, str) else names, list(cases)

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def loop(**fixtures: Any) -> None:
            for case in cases:
                given = dict(zip(names, case if len(names) > 1 else (case,), strict=True))
                try:
                    test(**given, **fixtures)
                except BaseException as error:
                    error.add_note(f"where {given}")
                    raise

        parameters = inspect.signature(test).parameters
        loop.__signature__ = inspect.Signature([one for name, one in parameters.items() if name not in names])
        return loop

    return decorate


def assert_refused(call: Callable[[], Any], *fragments: str) -> None:
    """An `InputError` on one line, with all of these in it."""
    with pytest.raises(pt.InputError) as caught:
        call()
    message = str(caught.value)
    for fragment in fragments:
        assert fragment in message, message
    assert "\n" not in message


# ---------------------------------------------------------------- simulators


class Called:
    """Called for every draw, as an environment is: not `replayable`, and it remembers what it was asked."""

    def __init__(self, kernel: np.ndarray) -> None:
        self.table, self.log, self.calls = pt.TabularSimulator(kernel), [], 0

    def draw(self, states: np.ndarray, actions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        x = self.table.draw(states, actions, rng)
        self.calls += 1
        self.log += zip(states.tolist(), actions.tolist(), x.tolist(), strict=True)
        return x


# ---------------------------------------------------------------- data


def uniform_log(instance: Any, size: int, seed: int) -> pt.Transitions:
    """Transitions of pairs that are chosen uniformly."""
    rng, (S, A) = np.random.default_rng(seed), instance.task.policy.shape
    s, a = rng.integers(S, size=size), rng.integers(A, size=size)
    return pt.Transitions(s, a, pt.TabularSimulator(instance.kernel).draw(s, a, rng))


def first(log: pt.Transitions, size: int) -> pt.Transitions:
    """The beginning of a log."""
    return pt.Transitions(log.s[:size], log.a[:size], log.x[:size])


def drawn_counts(instance: Any, pairs: Any, rng: np.random.Generator, before: pt.Counts | None = None) -> pt.Counts:
    """Counts of as many draws [S,A] from each pair, on top of those before."""
    S, A = instance.task.policy.shape
    pair = np.repeat(np.arange(S * A), np.broadcast_to(pairs, (S, A)).ravel())
    counts = pt.Counts.from_array(np.zeros((S, A, S), dtype=int) if before is None else before.N)
    counts.record(pair // A, pair % A, pt.TabularSimulator(instance.kernel).draw(pair // A, pair % A, rng))
    return counts


def known_task() -> tuple[pt.Task, np.ndarray]:
    """A task whose support leaves nothing unknown, and its kernel; the value is 8/3."""
    support = np.zeros((2, 1, 2), dtype=bool)
    support[0, 0, 1] = support[1, 0, 0] = True
    return pt.Task([[1.0], [2.0]], [[1.0], [1.0]], [1.0, 0.0], 0.5, support), support.astype(float)


# ---------------------------------------------------------------- verdicts


def assert_same_verdict(found: pt.Verdict, expected: pt.Verdict) -> None:
    """All that is reported is the same, to the last bit."""
    for name in REPORTED:
        np.testing.assert_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.counts == expected.counts


# ---------------------------------------------------------------- processes


def run_python(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter with the package that is being tested; texts are captured unless told otherwise."""
    settings = {"text": True, "timeout": 300, "check": False, "cwd": ROOT, **settings}
    if not {"stdout", "stderr"} & settings.keys():
        settings["capture_output"] = True
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **settings.pop("env", {})}
    return subprocess.run([sys.executable, *arguments], env=environment, **settings)


def run_code(code: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """The same for a script given as text."""
    return run_python("-c", textwrap.dedent(code), **settings)
