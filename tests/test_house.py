"""The state of an object is set by its class: no attribute is set from outside, but for what the table still allows."""

from __future__ import annotations

import ast
from collections import Counter

from test_layers import SOURCES

MOST = {"worst_case": 3, "_base": 1}
"""How many a room may still have; a room that is not here has none. These numbers only fall."""
OF_OTHERS = (
    *(".flags.writeable", ".bit_generator.state", "warnings.showwarning", ".__annotations__", ".__signature__"),
    *("layer.training", "layer.norm_reward"),  # of VecNormalize
)
"""What the language and the libraries want to have set."""
MAKERS = ("__new__", "copy")


def set_from_outside(source):
    """The statements that set an attribute of another object than ``self`` or ``cls``.

    Allowed is what a method sets of an object that it has just made with ``__new__`` or ``copy``: an alternative
    constructor is part of the class.
    """
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            inside = list(own_nodes(function))
            made = {name for node in inside for name in newly_made(node)}
            for node in inside:
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                    owner = ast.unparse(node.value)
                    words = f"{owner}.{node.attr}"
                    if owner not in {"self", "cls", *made} and not words.endswith(OF_OTHERS):
                        yield f"line {node.lineno} sets {words}"


def own_nodes(function):
    """What is inside a function, but not inside another one in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from own_nodes(child)


def newly_made(node):
    """The name that a statement gives to an object made by `__new__`, or by `copy` of the object itself."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
        call = ast.unparse(node.value)
        maker = ast.unparse(node.value.func).rpartition(".")[2]
        if maker in MAKERS and ("cls" in call or "self" in call):
            yield node.targets[0].id


def test_no_attribute_is_set_from_outside_its_class():
    found = {name: list(set_from_outside(source)) for name, source in SOURCES.items()}
    rooms = Counter()
    for name, places in found.items():
        rooms[name.split(".")[0]] += len(places)
    too_many = {room for room, number in rooms.items() if number > MOST.get(room, 0)}
    told = [f"{name}: {place}" for name, places in found.items() if name.split(".")[0] in too_many for place in places]
    assert not too_many, "\n".join([str({room: rooms[room] for room in too_many}), *told])


def test_an_attribute_that_is_set_from_outside_is_found():
    """The control: what counts, and what does not."""
    outside = ["x.a = 1", "x.a += 1", "x.a, y = 1, 2", "self.x.a = 1", "del x.a", "for x.a in y: pass", "x[0].a = 1"]
    for statement in outside:
        for place in (statement, f"def f(self, x, y):\n {statement}", f"class C:\n def f(self, x, y):\n  {statement}"):
            assert len(list(set_from_outside(place))) == 1, place
    inside = [
        "def f(self):\n self.a, b = 1, 2",
        "def f(cls):\n x = cls.__new__(cls)\n x.a = 1",
        "def f(self):\n x = object.__new__(type(self))\n x.a = 1",
        "def f(self):\n x = copy(self)\n x.a = 1",
        "def f(rng):\n rng.bit_generator.state = 1",
        "def f(x):\n x['a'] = 1\n x[0] += x.a",
    ]
    assert not [found for source in inside for found in set_from_outside(source)]
    borrowed = "def f(self):\n def g():\n  x = copy(self)\n x.a = 1"
    assert len(list(set_from_outside(borrowed))) == 1
    other = "def f(y):\n x = copy(y)\n x.a = 1"
    assert len(list(set_from_outside(other))) == 1
