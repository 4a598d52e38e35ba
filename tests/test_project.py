"""Rules of the project that no single module can keep: layers, public names, the map of the paper, what is shipped."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

import policytest
from builders import run_code
from paths import ROOT

PACKAGE = ROOT / "src" / "policytest"
MAP = ROOT / "docs" / "paper-to-code.md"


def module_name(path):
    """`worst_case.bracket` for worst_case/bracket.py, `worst_case` for its __init__, "" for the package's own."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
LAYERED = [name for name in MODULES if name]

# ---------------------------------------------------------------- public names


def printed(code):
    """By a fresh interpreter."""
    done = run_code(code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_public_names_are_listed_once_and_resolve():
    assert len(policytest.__all__) == len(set(policytest.__all__))
    assert set(policytest.__all__) == {*policytest._HOME, *policytest._ROOMS}
    for name in policytest.__all__:
        assert getattr(policytest, name) is not None
        assert name in dir(policytest)
    assert policytest.instances is importlib.import_module("policytest.mdp.instances")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = policytest.nonsense


def test_public_names_live_where_the_table_says_and_have_a_docstring():
    for name, home in policytest._HOME.items():
        found = getattr(policytest, name)
        assert found is getattr(importlib.import_module(f"policytest.{home}"), name), name
        assert found.__doc__, f"{name} has no docstring"


def test_type_checkers_see_the_same_names():
    """The imports under TYPE_CHECKING in the package are the public names, from the same modules."""
    tree = ast.parse(MODULES[""].read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: (node.module or "").removeprefix("policytest").removeprefix(".")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {**policytest._HOME, "instances": "mdp", "plots": "", "report": "", "sources": "", "study": ""}


def test_no_name_looks_like_a_test():
    """pytest would collect it wherever it is imported."""
    names = [(name, public) for name in LAYERED for public in vars(importlib.import_module(f"policytest.{name}"))]
    assert len(names) > 1000
    names += [("policytest", public) for public in policytest.__all__]
    assert not [pair for pair in names if pair[1].lower().startswith("test")]


def test_star_import_gives_the_public_names():
    names = printed("from policytest import *; print(sorted(n for n in dir() if not n.startswith('__')))")
    assert ast.literal_eval(names) == sorted(policytest.__all__)


def test_importing_the_package_costs_nothing():
    code = "import sys, policytest; print([m for m in ('numba', 'scipy', 'numpy') if m in sys.modules])"
    assert printed(code) == "[]"
    assert printed("import sys, policytest; policytest.InputError; print('numba' in sys.modules)") == "False"


def test_the_version_is_written_once_more_and_agrees():
    stated = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert stated is not None
    assert policytest.__version__ == stated.group(1)


# ---------------------------------------------------------------- the map from paper to code


def table_rows(text):
    """(cells, is_result) of every table row on the page; escaped bars do not occur."""
    result = False
    for line in text.splitlines():
        if line.startswith("## "):
            result = line.strip() == "## Results"
        if line.startswith("|") and not re.fullmatch(r"[|\-: ]+", line):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")], result


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


ROWS = list(table_rows(MAP.read_text(encoding="utf-8")))
LABELS = {label for cells, result in ROWS if result for label in quoted(cells[0])}
PREFIXES = {label.split(":")[0] for label in LABELS}


def prose(source):
    """The docstrings of a module and its `# Paper:` comments, each as one line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield " ".join(text.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and "Paper:" in token.string:
            yield token.string


def unknown_labels(text):
    """Labels, in backticks or bare, without a row in the map; labels may hold spaces, so any that fits counts."""
    for label in re.findall(r"`([a-zA-Z]+:[^`\s][^`]*)`", text):
        if label not in LABELS:
            yield label
    for match in re.finditer(rf"\b(?:{'|'.join(sorted(PREFIXES))}):\S", text):
        rest = text[match.start() :]
        if not any(re.match(re.escape(label) + r"(?!\w)", rest) for label in LABELS):
            yield rest[:40]


def test_the_map_has_the_papers_labels():
    assert len(LABELS) > 60
    assert {"eq:maxmin V", "opt:no sp", "lem:reversed_PG", "thm:proj_pg_rate", "tab:all_mdp_info_5"} <= LABELS


def test_labels_cited_in_docstrings_have_their_row():
    texts = [(name, text) for name, path in MODULES.items() for text in prose(path.read_text(encoding="utf-8"))]
    assert not [(name, label) for name, text in texts for label in unknown_labels(text)]
    assert sum("Paper:" in text for _, text in texts) > 30, "docstrings do cite the paper"


def test_the_label_check_notices():
    for text in ("Paper: `thm:nonsense`.", "Paper: eq:nonsense V.", "Paper: lem:eta_wrong", "see `xyz:a`"):
        assert list(unknown_labels(text)), text


def definitions():
    """Every class and function defined in the package, and the names each module and class offers."""
    for name in LAYERED:
        module = importlib.import_module(f"policytest.{name}")
        yield name, module
        yield name.rpartition(".")[2], module  # by its last part, where that is enough
        for public, thing in vars(module).items():
            if (inspect.isclass(thing) or callable(thing)) and getattr(thing, "__module__", "") == module.__name__:
                yield public, thing


DEFINED: dict[str, list] = {}
for _name, _thing in definitions():
    DEFINED.setdefault(_name, []).append(_thing)
DEFINED["task"].append(policytest.Task)  # `task.policy`: on this page a task is also an object


def has(thing, name):
    fields = {field.name for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    return hasattr(thing, name) or name in fields


def exists(dotted):
    """`row_problems.tilt_row`, `nested_pgd.NestedPGD`, `Bracket.multiplier`; with `policytest.` in front or not."""
    parts = dotted.removeprefix("policytest.").split(".")
    for split in range(len(parts), 0, -1):
        owners = DEFINED.get(".".join(parts[:split]), [])
        if owners:
            break
    for part in parts[split:]:
        owners = [getattr(owner, part, None) for owner in owners if has(owner, part)]
    return bool(owners)


def dotted_names(text):
    """`paper.row_problems.tilt_row`, but not `rho.V`: the first part is a module or a class of the package."""
    for span in quoted(text):
        for dotted in re.findall(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", span):
            if dotted.split(".")[0] in {*DEFINED, "policytest"}:
                yield dotted


def bare_names(cell, result):
    """Classes, functions that are called, and in the results, where no variables are named, any longer name."""
    for span in quoted(cell):
        called = re.match(r"([a-z_]{3,}|[A-Z]\w{4,})\(", span)
        if called:
            yield called.group(1)
        elif re.fullmatch(r"[A-Z][A-Za-z]{4,}", span) or (result and re.fullmatch(r"[a-z]+(_[a-z]+)+", span)):
            yield span


def mapped_names():
    """What the page says is there: dotted names anywhere, bare ones in the column on code; not what is planned."""
    for cells, result in ROWS:
        if len(cells) == 4 and cells[2].split(";")[0] != "planned":
            yield from dotted_names(cells[2])
            yield from bare_names(cells[2], result)
    for line in MAP.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            yield from dotted_names(line)


def test_names_in_the_map_exist():
    names = set(mapped_names())
    assert len(names) > 50
    assert {"paper.row_problems.tilt_row", "mdp.values.value_range", "Bracket.multiplier"} < names
    assert {"NestedPGD", "task.policy"} < names
    assert not [name for name in sorted(names) if not exists(name)], f"{MAP.name} names what the package does not have"


def test_the_name_check_notices():
    for name in ("worst_case.ball.nonsense", "Bracket.nonsense", "worst_case.nonsense.NestedPGD", "Nonsense", "task.q"):
        assert not exists(name), name


def test_tests_named_in_the_map_exist():
    named = set(re.findall(r"`(test_\w+\.py)`", MAP.read_text(encoding="utf-8")))
    assert len(named) > 5
    missing = sorted(named - {path.name for path in (ROOT / "tests").rglob("test_*.py")})
    assert not missing, f"{MAP.name} names tests that do not exist: {', '.join(missing)}"


# ---------------------------------------------------------------- what is in the repository

FOLDERS = ("work", "tmp", "home", "root", "mnt", "Users")
HOSTS = ("python" + "hosted", "arti" + "factory", "local" + "host", "index" + "-url", "pypi" + ".org/simple")
MACHINE = re.compile(
    r"(?<![\w.])/(?:"
    + "|".join(FOLDERS)
    + r")/|"
    + "|".join(map(re.escape, HOSTS))
    + r"|regist"
    + r"ry\.[a-z]+\.|127\.0\.0\.\d"
)


def repository_files():
    """Tracked files and those about to be; without a checkout (an unpacked release), whatever is there."""
    if not (ROOT / ".git").exists():
        return [path for path in ROOT.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def machine_lines(text):
    return [line.strip() for line in text.splitlines() if MACHINE.search(line)]


def test_no_file_mentions_a_machine():
    files = repository_files()
    assert ROOT / "pyproject.toml" in files
    assert Path(__file__).resolve() in files
    found = {
        str(path.relative_to(ROOT)): lines
        for path in files
        if (lines := machine_lines(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert not found


def test_the_machine_check_notices():
    for parts in (["", "tmp", "x"], ["", "work", "main"], ["cd ", "home", "me"], ["", "", "regist" + "ry.example.org"]):
        assert machine_lines("/".join(parts)), parts
    assert not machine_lines("and/or, https://example.org/home/page, src/work/x, ../tmp/y")


def test_the_makefile_has_its_targets_and_the_scripts_it_names_exist():
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY:(.*)$", recipe, re.MULTILINE)
    assert phony is not None
    for target in ("demo", "test", "test-sb3", "test-spark", "test-storm", "lint", "docs", "bench", "calibrate"):
        assert re.search(rf"^{target}:.*\n\t\S", recipe, re.MULTILINE), f"make {target} does nothing"
        assert target in phony.group(1).split()
    scripts = re.findall(r"\b((?:examples|benchmarks)/\w+\.py)\b", recipe)
    assert scripts
    assert not [script for script in scripts if not (ROOT / script).is_file()]


def test_types_ship():
    assert (Path(policytest.__file__).parent / "py.typed").is_file()
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'packages = ["src/policytest"]' in settings
    assert "Typing :: Typed" in settings
