"""Shared by all tests: a deterministic Hypothesis, Ctrl-C as in a terminal, kernels compiled once for all processes."""

from __future__ import annotations

import functools
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from numba.core.dispatcher import Dispatcher

from policytest.methods import stacks
from policytest.questions.plan import still_needed

settings.register_profile("policytest", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("policytest")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

MANY = 1000  # tests need most kernels
WARMING = "gw1"  # the worker that compiles them first, while another begins with tests that need few
NEED_FEW = (  # the first ones none at all
    *(f"tests/test_{name}" for name in ("layers", "house", "project", "complexity", "docs")),
    *(f"tests/sources/test_{name}" for name in ("log_lines", "files", "drn", "policies", "prism", "question_keys")),
    *("tests/sources/", "tests/cli/", "tests/test_", "tests/_base/"),
)
ARE_SHOWN = (
    "tests/cli/",
    "tests/methods/test_episode_betting.py::test_plans",
    "tests/questions/test_plan_observed.py::test_a_log_and",
    "tests/report/",
    "tests/sources/",
    "tests/test_fuzz.py",
    "tests/test_docs.py::test_python_on",
)
ALL_SETS = ("src/", "tests/methods/test_log_betting.py", "tests/methods/test_stacks.py", "tests/test_")


def compiled_by_one(compile_it):
    """`Dispatcher.compile`, one process at a time for each kernel: the others wait, and read numba's cache."""
    import fcntl

    held = set()  # by this process

    @functools.wraps(compile_it)
    def wrapper(self, signature):
        folder, name = self._cache.cache_path, f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        if folder is None or name in held:
            return compile_it(self, signature)
        with open(Path(folder) / f"{name}.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            held.add(name)
            try:
                return compile_it(self, signature)
            finally:
                held.remove(name)

    return wrapper


if os.name == "posix":
    Dispatcher.compile = compiled_by_one(Dispatcher.compile)


def pytest_collection_modifyitems(items):
    """The first worker is given the first tests."""

    def place(item):
        return next((at for at, start in enumerate(NEED_FEW) if item.nodeid.startswith(start)), len(NEED_FEW))

    items.sort(key=place)


@pytest.hookimpl(trylast=True)  # after the worker has told what it collected, so that others begin
def pytest_collection_finish(session):
    """Before many tests, one worker compiles what all need; see `compiled_by_one`."""
    if os.environ.get("PYTEST_XDIST_WORKER") == WARMING and len(session.items) >= MANY:
        from policytest.cli.warmup import small_runs

        for run in small_runs():
            run()


@pytest.fixture(autouse=True)
def small_answers(request, monkeypatch):
    """Answers about logs rest on some sets of coins, as in large tasks, and forecasts that are shown on four tests.

    All sets, and all simulated tests, are there where these are tested, and where pages, scripts and docstrings run.
    """
    place = request.node.nodeid
    if not place.startswith(ALL_SETS) or place.startswith(ARE_SHOWN):
        monkeypatch.setattr(stacks, "MOST_ENTRIES", 100)
    if place.startswith(ARE_SHOWN):
        monkeypatch.setattr(still_needed, "LOGS", 4)
        monkeypatch.setattr(still_needed, "RUNS", 4)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder; import places and settings of debugging are as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("POLICYTEST_DEBUG", raising=False)
    return tmp_path
