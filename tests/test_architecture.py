"""docs/architecture.md is true: its tree, its layers, and the files that an observation and a row of a log pass."""

from __future__ import annotations

import math
import re
import sys

import numpy as np

import policytest as pt
from paths import ROOT
from policytest.methods.run import steps
from test_layers import LAYERS, PACKAGE

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_FILES = 20
HELPERS = ("_base/arrays.py", "_base/errors.py", "_base/rows.py", "mdp/task.py", "sources/__init__.py")


def block(heading):
    """The first block of code below a heading."""
    return PAGE.split(f"## {heading}\n")[1].split("```\n")[1].rstrip()


def listed(tree):
    """The modules that a tree lists, as paths."""
    folders, found = [], set()
    for line in tree.splitlines():
        depth, text = (len(line) - len(line.lstrip())) // 2, line.strip()
        if re.match(r"\w+/", text):
            folders = [*folders[:depth], text.split("/")[0]]
        else:
            found |= {"/".join([*folders[:depth], f"{name}.py"]) for name in text.split()}
    return found


def test_the_tree_is_that_of_the_package():
    there = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
    assert listed(block("The tree")) == there - {"__main__.py"}


def test_a_tree_with_a_file_too_many_or_too_few_is_noticed():
    tree = block("The tree")
    assert listed(tree.replace("  layout", "")) != listed(tree)
    assert listed(tree.replace("layout", "layout  nothing")) != listed(tree)


def test_the_layers_are_those_of_the_layer_test():
    said = [tuple(part.strip().split(", ")) for part in block("The layers").split("<")]
    assert said == [tuple(names) for names in LAYERS]


def walk(heading):
    """The files that a walk names."""
    text = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"`([\w/]+\.py)`", text)


def run_through(call):
    """The files of the package whose functions run, but for the helpers that all use."""
    seen = set()

    def note(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(PACKAGE)) and frame.f_code.co_name != "<module>":
            seen.add(name.removeprefix(str(PACKAGE)).lstrip("/\\").replace("\\", "/"))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen - set(HELPERS)


def test_the_walk_of_an_observation():
    two = pt.instances.paper(2)
    run, required = pt.TDBetting().start(two.task, pt.TabularSimulator(two.kernel), 0.0, 0), -math.log(0.05)
    run.begin(required)
    seen = run_through(lambda: list(steps(run, required, 10**6)))
    assert run.answer == "above"
    assert "_base/compiled/rollouts.py" in seen
    assert seen <= set(walk("One observation"))
    assert len(set(walk("One observation"))) <= MOST_FILES


def test_the_walk_of_a_row(tmp_path):
    two, rng = pt.instances.paper(2), np.random.default_rng(0)
    s, a = rng.integers(2, size=200), rng.integers(2, size=200)
    x = pt.TabularSimulator(two.kernel).draw(s, a, rng)
    lines = [f"{i},{s[i]},{a[i]},{x[i]}" for i in range(200)]
    (tmp_path / "log.csv").write_text("\n".join(["order,s,a,s_next", *lines]), encoding="utf-8")
    found: list[pt.Transitions] = []

    def read():
        found.append(pt.sources.logs(tmp_path / "log.csv", two.task).transitions())

    read()  # what is imported on first use is imported now
    seen = run_through(read)
    assert len(found[1]) == 200
    assert seen - {"mdp/layout.py"} <= set(walk("One row of a log"))
    assert len(set(walk("One row of a log"))) <= MOST_FILES


def test_the_files_that_walks_and_changes_name_exist():
    named = set(
        re.findall(
            r"`(?:src/policytest/)?((?:_base|mdp|data|worst_case|methods|results|questions|sources|plots|study|paper|report|cli)/[\w/]+\.py)`",
            PAGE,
        )
    )
    assert len(named) > 25
    assert not [name for name in named if not (PACKAGE / name).is_file()]
