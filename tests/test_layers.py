"""The floor plan: packages import only lower ones, no cycles, nothing private of another module, compiled units apart,
no function with many parameters.

Each rule is a function of sources that returns what it objects to, and has a negative control.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import policytest
import policytest.sources

PACKAGE = Path(policytest.__file__).parent
LAYERS = (
    ("_base",),
    ("eprocess", "mdp"),
    ("data", "worst_case"),
    ("kl",),
    ("payoffs",),
    ("methods",),
    ("results",),
    ("questions",),
    ("sources",),
    ("plots",),
    ("study",),
    ("paper",),
    ("report",),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
UNITS = "_base.compiled."
SHARED_UNIT = UNITS + "small"
MOST_PARAMETERS = 12
PUBLIC = {*policytest.__all__, *policytest.sources.__all__}


def module_name(path):
    """`worst_case.bracket` for worst_case/bracket.py, `worst_case` for its __init__, "" for the package's own."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def nodes(source):
    """The syntax tree of a module, as a list."""
    return list(ast.walk(ast.parse(source)))


@cache
def at_the_top(source):
    """The part of it that runs when the module is imported."""
    parts = (part for part in ast.parse(source).body if not is_type_checking(part))
    return [node for part in parts for node in run_at_once(part)]


def run_at_once(part):
    """A statement and what is inside it, but for the bodies of functions."""
    if not isinstance(part, ast.FunctionDef):
        yield part
        for inner in ast.iter_child_nodes(part):
            yield from run_at_once(inner)


def imports(tree, modules):
    """(module, name or None) of every import from the package among these nodes."""
    for node in tree:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "policytest":
                    yield alias.name.removeprefix("policytest").removeprefix("."), None
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: import by the full name, not relative to here"
            if (node.module or "").split(".")[0] == "policytest":
                home = node.module.removeprefix("policytest").removeprefix(".")
                for alias in node.names:
                    inside = f"{home}.{alias.name}" if home else alias.name
                    yield (inside, None) if inside in modules else (home, alias.name)


def upward(sources):
    """Rule 1: a package imports only lower ones."""
    for name, source in sources.items():
        here = name.split(".")[0]
        if here in ("", "__main__"):
            continue
        for target, _ in imports(nodes(source), sources):
            there = target.split(".")[0]
            if here not in RANK or there not in RANK or (there != here and RANK[there] >= RANK[here]):
                yield f"{name or 'policytest'} imports {target or 'policytest'}"


def in_cycles(sources):
    """Rule 2: no cycles between modules; only imports at the top level run when a module is imported."""
    edges = {}
    for name, source in sources.items():
        found = {target for target, _ in imports(at_the_top(source), sources) if target in sources}
        around = {parent for target in found for parent in packages_of(target)}  # they are imported first
        edges[name] = found | {parent for parent in around if not f"{name}.".startswith(f"{parent}.")}
    while leaves := [name for name, targets in edges.items() if not targets & edges.keys() - {name}]:
        for name in leaves:
            del edges[name]
    return sorted(edges)


def packages_of(name):
    """`a` and `a.b` of `a.b.c`."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def is_private(name):
    return (
        name.startswith("_")
        and not name.startswith("__")
        and name not in ("_base", "_repr_html_", "_replace", "_asdict", "_fields")
    )


def reached_into(sources):
    """Rule 3: no `_name` of another module is imported or read; what a module reads it also defines or sets."""
    for name, source in sources.items():
        tree = nodes(source)
        for target, imported in imports(tree, sources):
            if is_private(imported or target.rpartition(".")[2]):
                yield f"{name} imports {imported} of {target}"
        own = {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        own |= {node.id for node in tree if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        attributes = [node for node in tree if isinstance(node, ast.Attribute) and is_private(node.attr)]
        of_self = {n.attr for n in attributes if isinstance(n.value, ast.Name) and n.value.id in ("self", "cls")}
        own |= of_self | {keyword.arg for node in tree if isinstance(node, ast.Call) for keyword in node.keywords}
        for node in attributes:
            if node.attr not in own:
                yield f"{name}, line {node.lineno}, reads {ast.unparse(node)}"


def between_units(sources):
    """Rule 4: numba's cache does not notice an edit of a callee in another file, so that units share `small` only."""
    for name, source in sources.items():
        if name.startswith(UNITS):
            for target, _ in imports(nodes(source), sources):
                if target.startswith(UNITS) and target != SHARED_UNIT:
                    yield f"{name} imports {target}"


def crowded(sources):
    """Rule 5: at most 12 parameters; only the verbs of Python may have more, whose signatures are the public surface.

    Commands have the same names as the verbs, and are not exempt.
    """
    for name, source in sources.items():
        top = [] if name.startswith("cli") else ast.parse(source).body
        verbs = {node.name for node in top if isinstance(node, ast.FunctionDef)} & PUBLIC
        for node in nodes(source):
            if isinstance(node, ast.FunctionDef) and node.name not in verbs:
                given = node.args
                parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
                count = sum(one is not None and one.arg not in ("self", "cls") for one in parameters)
                if count > MOST_PARAMETERS:
                    yield f"{name}, line {node.lineno}, {node.name} has {count} parameters"


RULES = {rule.__name__: rule for rule in (upward, in_cycles, reached_into, between_units, crowded)}


@cache
def objections(rule):
    """What a rule has to say about the package as it is."""
    return list(RULES[rule](SOURCES))


@pytest.mark.parametrize("rule", RULES)
def test_the_floor_plan(rule):
    found = objections(rule)
    assert not found, f"{len(found)}: " + "\n".join(found)


THIRTEEN = ", ".join(f"x{i}" for i in range(MOST_PARAMETERS + 1))
CONTROLS = [
    ("upward", "mdp.task", "from policytest.questions.decide import decide"),
    ("upward", "mdp.task", "def late():\n    import policytest.cli"),
    ("upward", "data.counts", "from policytest.worst_case import ball"),
    ("upward", "mdp.task", "from policytest import Task"),
    ("upward", "nowhere", "from policytest.mdp import task"),
    ("in_cycles", "_base.text", "from policytest._base.table import Table"),
    ("in_cycles", "methods.td_betting", "from policytest.methods.log_betting import LogBetting"),
    ("reached_into", "methods.ptst", "from policytest.mdp.task import _support"),
    ("reached_into", "methods.ptst", "from policytest.mdp import task\ntask._support"),
    ("reached_into", "methods.ptst", "def late(task):\n    return task._pairs"),
    ("between_units", "_base.compiled.dual", "from policytest._base.compiled import search"),
    ("crowded", "cli.commands.compare", f"def compare({THIRTEEN}): ..."),
    ("crowded", "questions.compare", f"def _compared(*, {THIRTEEN}): ..."),
    ("crowded", "mdp.task", f"class Task:\n    def f(self, {THIRTEEN}): ..."),
]


@pytest.mark.parametrize(("rule", "name", "source"), CONTROLS)
def test_each_rule_notices(rule, name, source):
    """Negative control: with this in the place of a module the rule has something to say."""
    assert set(RULES[rule]({**SOURCES, name: source})) - set(objections(rule))


def test_every_package_has_its_layer():
    assert {name.split(".")[0] for name in SOURCES} == {*RANK, "", "__main__"}
