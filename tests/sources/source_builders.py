"""What tests of sources share: small tasks, tables and files, and the check of a refusal."""

from __future__ import annotations

import json

import numpy as np

import policytest as pt
from builders import assert_refused
from policytest.sources import load_model

S, A = 5, 3
HEADER = "s,a,s_next\n"
ROWS = [(0, 0, 1), (0, 0, 1), (1, 2, 3), (4, 1, 0)]
TRIPLES = {(0, 0, 1): 2, (1, 2, 3): 1, (4, 1, 0): 1}
SMALL = {
    "rewards": [[1.0, 0.0], [0.5, -1.0]],
    "policy": [[0.5, 0.5], [0.1, 0.9]],
    "initial": [0.3, 0.7],
    "discount": 0.9,
    "kernel": [[[0.1, 0.9], [1.0, 0.0]], [[0.5, 0.5], [0.2, 0.8]]],
}
"""The content of a task file."""
COMMANDS = (
    "decide {} --threshold 1",
    "plan {} --threshold 1",
    "assess {} log.csv --threshold 1",
    "watch {} log.csv --threshold 1",
    "evaluate {} --epsilon 1",
    "compare {} {}",
    "identify {}",
)
"""The commands that read a model; compare reads two."""


def make_task(**changes):
    """Five states; the third action is never taken."""
    settings = {
        "rewards": np.arange(S * A).reshape(S, A) / 4,
        "policy": np.tile([0.5, 0.5, 0.0], (S, 1)),
        "initial": np.eye(S)[0],
        "discount": 0.9,
    }
    return pt.Task(**{**settings, **changes})


def put(path, content):
    """Write bytes, text, or anything else as JSON."""
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(content)
    return path


def assert_model_refused(path, *words, **settings):
    """A task file that is refused, with its name."""
    assert_refused(lambda: load_model(path, **settings), str(path), *words)


def triples(counts):
    """{(s, a, x): n} of all that was counted."""
    N = (counts.N.toarray() if counts.sparse else counts.N).reshape(counts.n_states, counts.n_actions, -1)
    return {tuple(int(i) for i in at): int(N[tuple(at)]) for at in np.argwhere(N)}


def columns_of(rows, kind=np.int64):
    """Rows (s, a, s_next) as columns."""
    return dict(zip(("s", "a", "s_next"), np.array(rows).T.astype(kind), strict=True))
