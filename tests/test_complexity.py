"""No function has more paths than a reader can hold: the cyclomatic complexity of each is bounded."""

from __future__ import annotations

import ast

from test_layers import SOURCES, nodes

LARGEST = 25
LARGER = {
    "worst_case.certificate._makes_sense",
}
"""Functions above the bound; one that is split leaves this list, and none joins it."""
BRANCHES = ast.If | ast.For | ast.While | ast.IfExp | ast.ExceptHandler | ast.match_case


def complexity(function):
    """One more than the places at which it branches; of a condition each `and` and `or`; not of functions in it."""
    inner = {
        node for part in ast.walk(function) if is_function(part) and part is not function for node in ast.walk(part)
    }
    found = 1
    for node in ast.walk(function):
        if node in inner:
            continue
        if isinstance(node, BRANCHES):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
    return found


def is_function(node):
    return isinstance(node, ast.FunctionDef | ast.Lambda)


def above(largest, sources=SOURCES):
    """The functions whose complexity is above this."""
    return {
        f"{name}.{node.name}"
        for name, source in sources.items()
        for node in nodes(source)
        if isinstance(node, ast.FunctionDef) and complexity(node) > largest
    }


def test_no_function_is_above_the_bound_but_those_that_are_named():
    assert above(LARGEST) == LARGER


def test_the_kernels_of_rollouts_are_below_it():
    units = {
        name: source for name, source in SOURCES.items() if name.startswith("_base.compiled.") and "rollouts" in name
    }
    units["two"] = SOURCES["_base.compiled.two_policies"]
    assert len(units) == 3
    assert not above(LARGEST - 1, units)


def test_a_function_of_many_branches_is_noticed():
    """Negative control, with each kind of branch."""
    source = """
def f(x, y):
    for i in [j for j in x if j]:
        while i and y or x:
            try:
                i = 1 if y else 2
            except ValueError:
                pass
    def g():
        if x:
            pass
"""
    assert above(8, {"here": source}) == {"here.f"}
    assert above(9, {"here": source}) == set()
