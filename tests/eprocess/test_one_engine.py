"""One engine: capital is settled, fractions are laid out and ends are found in `policytest.eprocess`, and nowhere else.

Each rule looks at the syntax tree of a module and returns what it objects to; each has controls, which it must notice.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import policytest

PACKAGE = Path(policytest.__file__).parent
ENGINE = ("eprocess/", "_base/compiled/small.py", "_base/compiled/capital.py")
KERNELS = "worst_case/"  # searches among kernels have step sizes, which are no bets
CAPITAL = {"capital", "capitals", "log_capital"}
PRODUCTS = {"outer", "multiply", "dot", "einsum", "tensordot"}
SOLVERS = {"brentq", "brenth", "bisect", "ridder", "toms748", "newton", "root_scalar", "chandrupatla", "find_root"}


# ---------------------------------------------------------------- parts of a tree


tree_of = cache(ast.parse)


@cache
def parts_of(module):
    return list(ast.walk(module))


def inside(node, *kinds):
    parts = parts_of(node) if isinstance(node, ast.Module) else ast.walk(node)
    return [one for one in parts if isinstance(one, kinds)]


def last_name(node):
    """`log1p` of np.log1p, `capital` of self.at.capital[0]."""
    while isinstance(node, ast.Subscript | ast.Starred):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names(node):
    return {last_name(one) for one in inside(node, ast.Name, ast.Attribute)}


def calls(node, *functions):
    return [one for one in inside(node, ast.Call) if last_name(one.func) in functions]


def is_product(node):
    """Whether something is multiplied in it."""
    multiplied = any(isinstance(one.op, ast.Mult | ast.MatMult) for one in inside(node, ast.BinOp))
    return multiplied or bool(calls(node, *PRODUCTS))


def is_one_plus_product(node):
    """1 + f x, somewhere in it."""
    for one in inside(node, ast.BinOp):
        if isinstance(one.op, ast.Add):
            for first, second in ((one.left, one.right), (one.right, one.left)):
                if isinstance(first, ast.Constant) and first.value == 1 and is_product(second):
                    return True
    return False


def is_number(node, low, high):
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and low < node.value < high


def is_negative(node):
    return any(isinstance(one.op, ast.USub) for one in inside(node, ast.UnaryOp))


# ---------------------------------------------------------------- rules


def capital_updates(tree):
    """What wins and loses: capital[...] +=, log(1 + f x), products of 1 + f x."""
    for node in inside(tree, ast.AugAssign):
        times = isinstance(node.op, ast.Mult) and is_one_plus_product(node.value)
        if times or last_name(node.target) in CAPITAL:
            yield node
    for node in inside(tree, ast.Assign):
        if any(isinstance(at, ast.Subscript) and last_name(at) in CAPITAL for at in node.targets):
            yield node
    for node in calls(tree, "log1p", "log", "cumprod", "prod", "accumulate"):
        if node.args and (is_product if last_name(node.func) == "log1p" else is_one_plus_product)(node.args[0]):
            yield node


def grids_of_fractions(tree):
    """Falling powers of a number, or of the largest fraction."""
    for node in inside(tree, ast.BinOp):
        if isinstance(node.op, ast.Pow) and "arange" in names(node.right):
            falls = is_number(node.left, 0, 1) != is_negative(node.right)
            if isinstance(node.left, ast.Constant) and falls:
                yield node
        elif isinstance(node.op, ast.Mult):
            for side in (node.left, node.right):
                if last_name(side) in ("LARGEST_FRACTION", "RESERVE") or is_number(side, 0.98, 1):
                    yield node
    yield from calls(tree, "geomspace", "logspace")


def finders_of_ends(tree):
    """A root of the capital: by a solver, or by a loop that halves."""
    for function in inside(tree, ast.FunctionDef):
        arguments = {argument.arg for argument in inside(function, ast.arg)}
        if not (names(function) | arguments) & (CAPITAL | {"evidence"}):
            continue
        yield from calls(function, *SOLVERS)
        for loop in inside(function, ast.For, ast.While):
            moved = {last_name(at) for at in inside(loop, ast.Name) if isinstance(at.ctx, ast.Store)}
            for node in inside(loop, ast.BinOp):
                if not is_halving(node):
                    continue
                total = node.right if isinstance(node.op, ast.Mult) else node.left
                if names(total) & moved:
                    yield node


def is_halving(node):
    """0.5 * (a + b), (a + b) / 2."""
    if isinstance(node.op, ast.Mult):
        half, total = isinstance(node.left, ast.Constant) and node.left.value == 0.5, node.right
    elif isinstance(node.op, ast.Div):
        half, total = isinstance(node.right, ast.Constant) and node.right.value == 2, node.left
    else:
        return False
    return half and isinstance(total, ast.BinOp) and isinstance(total.op, ast.Add)


RULES = {rule.__name__: rule for rule in (capital_updates, grids_of_fractions, finders_of_ends)}


def found(rule, name, source):
    """`module:line: code` of all that a rule objects to."""
    places = sorted({(node.lineno, ast.unparse(node)) for node in RULES[rule](tree_of(source))})
    return [f"{name}:{line}: {code}" for line, code in places]


SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
ELSEWHERE = {name: source for name, source in SOURCES.items() if not name.startswith((*ENGINE, KERNELS))}


@pytest.mark.parametrize("rule", RULES)
def test_bets_are_made_in_one_place(rule):
    assert not [line for name, source in ELSEWHERE.items() for line in found(rule, name, source)]


def test_the_rules_find_the_engine_itself():
    """The control on real code."""
    assert found("capital_updates", "", SOURCES["_base/compiled/small.py"])
    assert found("capital_updates", "", SOURCES["eprocess/strategies.py"])
    assert found("grids_of_fractions", "", SOURCES["eprocess/strategies.py"])


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("capital_updates", "capital[b] += x"),
        ("capital_updates", "self.at.capital[c, 0] *= 1.0 - f"),
        ("capital_updates", "capital[b] = capital[b] * (1.0 + f[b] * x)"),
        ("capital_updates", "self.capital += self.pending()"),
        ("capital_updates", "log_capital += g"),
        ("capital_updates", "total += np.log1p(f * x)"),
        ("capital_updates", "y = np.log1p(np.outer(x, f)).cumsum(axis=0)"),
        ("capital_updates", "y = math.log1p(fraction * (lead + won) / room)"),
        ("capital_updates", "y = np.log1p(x @ f)"),
        ("capital_updates", "y = np.log(1.0 + f * x)"),
        ("capital_updates", "y = np.log(f * (x - R) / room + 1)"),
        ("capital_updates", "y = np.cumprod(1 + f * x)"),
        ("capital_updates", "wealth *= 1.0 + f * x"),
        ("grids_of_fractions", "f = 0.5 ** np.arange(10)"),
        ("grids_of_fractions", "f = 2.0 ** -np.arange(10)"),
        ("grids_of_fractions", "f = 2.0 ** (-0.5 * np.arange(count))"),
        ("grids_of_fractions", "f = 0.995 * steps"),
        ("grids_of_fractions", "f = LARGEST_FRACTION * share"),
        ("grids_of_fractions", "f = steps * strategies.LARGEST_FRACTION"),
        ("grids_of_fractions", "f = np.geomspace(1e-3, 1, 10)"),
        (
            "finders_of_ends",
            "def end(side, low, high):\n for _ in range(40):\n  m = 0.5 * (low + high)\n"
            "  low, high = (m, high) if side.log_capital(m) > 3 else (low, m)",
        ),
        (
            "finders_of_ends",
            "def end(evidence, low, high):\n while high - low > 1e-9:\n  m = (low + high) / 2\n"
            "  if evidence(m) > 3:\n   low = m\n  else:\n   high = m",
        ),
        ("finders_of_ends", "def end(run):\n return scipy.optimize.brentq(lambda R: run.log_capital(R), 0, 1)"),
        ("finders_of_ends", "def end(capital):\n return toms748(lambda R: capital(R) - 3.0, 0, 1)"),
    ],
)
def test_what_a_rule_must_notice(rule, code):
    assert found(rule, "control", code)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("capital_updates", "capital = at.capital[c]"),
        ("capital_updates", "level = math.log1p(-delta) + np.log1p(n / width)"),
        ("capital_updates", "evidence[j] += growth"),
        ("capital_updates", "y = np.log(2.0 * n)"),
        ("capital_updates", "process.settle(bet, won)"),
        ("capital_updates", "stake(capital, fractions, ratio)"),
        ("grids_of_fractions", "weights = discount ** np.arange(n)"),
        ("grids_of_fractions", "concentrations = 8.0 ** np.arange(6)"),
        ("grids_of_fractions", "f = np.minimum(f, LARGEST_FRACTION)"),
        ("grids_of_fractions", "mean = 0.5 * total"),
        ("finders_of_ends", "def middle(low, high, evidence):\n return 0.5 * (low + high)"),
        ("finders_of_ends", "def root(excess):\n return brentq(excess, 0.0, 1.0)"),
        (
            "finders_of_ends",
            "def first(cumulative, low, high):\n while low < high:\n  m = (low + high) // 2\n  low = m + 1",
        ),
    ],
)
def test_what_a_rule_must_let_pass(rule, code):
    assert not found(rule, "control", code)
