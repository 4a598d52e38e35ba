"""docs/architecture.md is true: its tree, its layers, and the files that an observation and a row of a log pass."""

from __future__ import annotations

import ast
import re
import sys

import numpy as np
import pytest

import policytest as pt
from paths import ROOT
from test_layers import LAYERS, PACKAGE

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_FILES = (39, 54)
"""That `decide` and `assess` may touch, without the helpers."""


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


def named(heading):
    """The files that a section names."""
    text = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"`([\w/]+\.py)`", text))


def run_through(call):
    """The files of the package whose functions run; compiled kernels have no frames and are not seen."""
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
    return seen - named("Two walks")


def differences(page, touched):
    """What to change on the page."""
    return [*(f"name {one}" for one in sorted(touched - page)), *(f"drop {one}" for one in sorted(page - touched))]


def test_a_walk_with_a_file_too_many_or_too_few_is_noticed():
    assert differences({"a.py", "b.py"}, {"b.py", "c.py"}) == ["name c.py", "drop a.py"]
    seen = run_through(lambda: pt.value(pt.instances.paper(2).task, pt.instances.paper(2).kernel))
    assert {"mdp/values.py", "mdp/instances.py"} < seen


def readme():
    """The names of the example in the README before it decides, and the statement that does."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    body = ast.parse(next(code for code in examples if "pt.decide(task, sim" in code)).body
    at = next(i for i, part in enumerate(body) if "pt.decide(" in ast.unparse(part))
    names: dict = {}
    exec(compile(ast.Module(body[:at], []), "README.md", "exec"), names)
    return names, compile(ast.Module([body[at]], []), "README.md", "exec")


def decided():
    """The files that the README's `decide` touches."""
    names, statement = readme()
    seen = run_through(lambda: exec(statement, names))
    assert names["verdict"].answer == "above"
    return seen


def assessed(place):
    """The files that `assess` of a CSV file touches."""
    names, _ = readme()
    rng = np.random.default_rng(0)
    s, a = rng.integers(3, size=300), rng.integers(2, size=300)
    x = names["sim"].draw(s, a, rng)
    place.write_text("\n".join(["order,s,a,s_next", *(f"{i},{s[i]},{a[i]},{x[i]}" for i in range(300))]))
    found = []
    seen = run_through(lambda: found.append(pt.assess(names["task"], place, threshold=1.0)))
    assert found[0].samples > 0
    return seen


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """(files of an observation, files of a row of a log); each walk is run once before, for what it imports."""
    place = tmp_path_factory.mktemp("walks") / "log.csv"
    decided(), assessed(place)
    return decided(), assessed(place)


def test_the_walk_of_an_observation_names_the_files_that_decide_touches(walks):
    assert not differences(named("One observation"), walks[0])
    assert len(walks[0]) <= MOST_FILES[0]


def test_the_walk_of_a_row_names_the_files_that_assess_touches_beyond_those(walks):
    assert not differences(named("One row of a log"), walks[1] - walks[0])
    assert len(walks[1]) <= MOST_FILES[1]


def test_the_files_that_walks_and_changes_name_exist():
    files = set(
        re.findall(
            r"`(?:src/policytest/)?((?:_base|mdp|data|worst_case|methods|results|questions|sources|plots|study|paper|report|cli)/[\w/]+\.py)`",
            PAGE,
        )
    )
    assert len(files) > 25
    assert not [name for name in files if not (PACKAGE / name).is_file()]
