"""The documentation: the site builds, links lead somewhere, code and commands are real, and the tutorial is true."""

from __future__ import annotations

import ast
import functools
import gc
import html.parser
import http.server
import importlib
import importlib.util
import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import typer

import browser
import policytest as pt
from builders import each
from policytest import cli
from policytest.sources import load_model

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
FENCE = re.compile(r"^(```+)[ \t]*(\w*)[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def blocks(text, *languages):
    return [body for _, language, body in FENCE.findall(text) if language in languages]


# ---------------------------------------------------------------- the site


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


class Page(html.parser.HTMLParser):
    """The ids of a page, where it links to, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.update(value for name in ("id", "name") if (value := given.get(name)))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe", "source", "object") and (given.get("src") or given.get("data")):
            self.loads.append(given.get("src") or given["data"])
        if tag == "link" and given.get("rel") not in ("canonical",):
            self.loads.append(given["href"])


def broken_links(folder):
    """Relative links and anchors of every page that lead nowhere."""
    pages = {path: Page(path) for path in folder.rglob("*.html") if path.name != "404.html"}
    broken = []
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].ids if target in pages else set()
            if not target.is_file() or (parts.fragment and known and parts.fragment not in known):
                broken.append(f"{path.name}: {link}")
    return broken


def test_the_site_has_every_page(site):
    built = {path.name for path in site.glob("*.html")}
    assert {path.with_suffix(".html").name for path in DOCS.glob("*.md")} | {"changelog.html", "404.html"} <= built
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "How good is it" in index
    assert "tally.py" not in {entry.split("#")[0] for entry in re.findall(r'"location":"([^"]*)"', index)}


def test_every_link_of_the_site_leads_somewhere(site, tmp_path):
    assert not broken_links(site)
    (tmp_path / "a.html").write_text('<h2 id="here"></h2><a href="b.html">x</a><a href="#there">y</a>')
    assert len(broken_links(tmp_path)) == 2  # the check notices


def test_the_site_loads_nothing_from_elsewhere(site):
    outside = {
        f"{path.name}: {load}"
        for path in site.rglob("*.html")
        for load in Page(path).loads
        if urllib.parse.urlsplit(load).netloc
    }
    assert not outside
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text(encoding="utf-8"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture
def served(site):
    """The address of the site on this machine."""
    server = http.server.ThreadingHTTPServer(("", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{'local' + 'host'}:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(browser.find() is None, reason="there is no browser")
@pytest.mark.parametrize("way", ["served", "as files"])
def test_in_a_browser_the_search_finds_and_nothing_is_asked_of_others(site, served, tmp_path, way):
    home = served if way == "served" else site.as_uri()
    page = browser.Browser(tmp_path / "profile")
    try:
        page.events.clear()
        page("Page.navigate", url=f"{home}/guarantees.html?q=martingale")
        found, until = 0, time.monotonic() + browser.PATIENCE
        while not found and time.monotonic() < until:
            found = page.ask("document.querySelectorAll('.md-search-result__item').length")
            time.sleep(0.1)
        assert found, "the search finds nothing"
        asked = [event["request"]["url"] for event in page.of_kind("Network.requestWillBeSent")]
        assert len(asked) > 3
        assert not [url for url in asked if not url.startswith((home, "data:", "blob:"))]
    finally:
        page.close()


@pytest.mark.skipif(browser.find() is None, reason="there is no browser")
def test_in_a_browser_no_line_of_a_console_is_cut_off(site, tmp_path):
    """Long lines are wrapped, also on a telephone; and copied without further line breaks."""
    page = browser.Browser(tmp_path / "profile")
    try:
        consoles = "[...document.querySelectorAll('.language-console code')]"
        for width in (400, 1400):
            page.open(site / "tutorial.html", width, 900)
            hidden = page.ask(f"{consoles}.map(e => e.scrollWidth - e.clientWidth)")
            assert len(hidden) > 3
            assert set(hidden) == {0}
        first = page.ask(f"{consoles}[0].setAttribute('data-md-copying', ''), {consoles}[0].innerText")
        assert first.startswith("$ policytest init shop\nshop/task.toml\n")
    finally:
        page.close()


# ---------------------------------------------------------------- links in the repository


@each("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
def test_links_lead_to_files_of_the_repository(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        parts = urllib.parse.urlsplit(target)
        if not parts.scheme and parts.path:
            assert (page.parent / parts.path).exists(), f"{page.name} links to {target}, which is not there"


# ---------------------------------------------------------------- Python on the pages

PYTHON = [
    pytest.param(name, code, id=f"{name}-{number}")
    for name, text in TEXTS.items()
    for number, code in enumerate(blocks(text, "python", "py"))
]


def resolved(node):
    """What `pt.a.b` in the source is; None for anything that does not start with `pt`."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not (isinstance(node, ast.Name) and node.id == "pt" and names):
        return None
    found = pt
    for name in reversed(names):
        assert hasattr(found, name), f"pt.{'.'.join(reversed(names))} does not exist"
        found = getattr(found, name)
    return found


def assert_uses_what_exists(code):
    """It compiles; every name of the package is there, and takes the keywords that it is given."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            resolved(node)
        if isinstance(node, ast.Call) and callable(called := resolved(node.func)):
            parameters = inspect.signature(called).parameters
            if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
                continue
            wrong = {word.arg for word in node.keywords if word.arg} - set(parameters)
            assert not wrong, f"{ast.unparse(node.func)} takes no {', '.join(sorted(wrong))}"


@pytest.mark.parametrize(("name", "code"), PYTHON)
def test_python_on_the_pages_uses_what_exists(name, code):
    assert_uses_what_exists(code)


@pytest.mark.parametrize("code", ["pt.nonsense()", "pt.decide(task, sim, bar=1)", "x ="])
def test_the_check_of_python_notices(code):
    with pytest.raises((AssertionError, SyntaxError)):
        assert_uses_what_exists(code)


def prepared():
    """What some pages speak of without having made it."""
    two = pt.instances.paper(2)
    return {"pt": pt, "np": np, "task": two.task, "sim": pt.TabularSimulator(two.kernel)}


RUNNABLE = {"notebooks.md": 3, "betting.md": 1}
COMPLETE = {"trials.md": 1, "evaluation.md": 1, "environments.md": 3, "reports.md": 2, "comparing-and-planning.md": 5}
"""How many blocks of a page run, with the names of the documentation, or by themselves."""


@pytest.mark.parametrize("name", [*RUNNABLE, *COMPLETE])
def test_python_on_the_pages_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("policytest.questions.plan.plan.RUNS", 4)  # quickly
    monkeypatch.setattr("policytest.questions.plan.plan.EPISODE_RUNS", 20)
    names = {} if name in COMPLETE else prepared()
    here = [code for code in blocks(TEXTS[name], "python") if not missing_packages(code)]
    for code in here[: {**RUNNABLE, **COMPLETE}[name]]:
        exec(compile(code, name, "exec"), names)  # the project's own text


@pytest.mark.filterwarnings("ignore:.*is set to None:UserWarning")  # Minari asks for an author, an address and more
@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")  # what it leaves to the collector
def test_a_dataset_is_recorded_and_read_as_the_page_says(tmp_path, monkeypatch, capsys):
    """With what the extra `minari` installs, and nothing else."""
    for package in ("minari", "h5py", "jax"):
        pytest.importorskip(package)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    names = {}
    code = next(code for code in blocks(TEXTS["datasets.md"], "python") if "DataCollector" in code)
    exec(compile(code, "datasets.md", "exec"), names)  # the project's own text
    assert (names["data"].ended, len(names["data"].transitions())) == (200, names["data"].counts.total)
    assert "200" in capsys.readouterr().out
    (said,) = re.findall(r'threshold=0\.1\)  # "(\w+)"', code)
    pt.assess(names["lake"].task, names["data"].transitions(), threshold=0.1).require(said)
    names.clear()
    gc.collect()


def test_the_recipe_for_a_training_loop_runs(capsys):
    (code,) = [code for code in blocks(TEXTS["environments.md"], "python") if "pt.InTraining(" in code]
    exec(compile(code, "environments.md", "exec"), {})  # the project's own text
    assert re.search(r"The value of checkpoint \d+ is above 0\.9", capsys.readouterr().out)


@each("name", sorted(set(TEXTS) - {"README.md"}))
def test_code_on_the_pages_fits_on_the_page(name):
    wide = [line for body in blocks(TEXTS[name], "python", "toml", "json") for line in body.splitlines() if line[100:]]
    assert not wide


@each("name", TEXTS)
def test_links_are_words(name):
    """A reader sees where a link leads, and not the name of a file in the repository."""
    assert not re.findall(r"\[[a-z-]+\.md\]\(", TEXTS[name])


# ---------------------------------------------------------------- commands on the pages

COMMAND = typer.main.get_command(cli.app)


def commands_in(text):
    """The lines of a page's blocks that call policytest, and the calls in its running text."""
    for body in blocks(text, "console", "bash", "sh", "shell", ""):
        for line in body.replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ")
            if line.startswith("policytest "):
                yield line, True
    for span in re.findall(r"`(policytest [^`]+)`", FENCE.sub("", text)):
        yield span, False


def assert_is_a_command(line, whole=True):
    """It parses as the command line would parse it; a mention in the text need only name what exists."""
    words = shlex.split(line, comments=True)[1:]
    for end in ("|", ">", "&&", ";"):
        words = words[: words.index(end)] if end in words else words
    if words[:1] == ["COMMAND"] or words[0].startswith("-"):
        return
    assert words[0] in COMMAND.commands, f"{line}: there is no command {words[0]}"
    command = COMMAND.commands[words[0]]
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    unknown = [word for word in words[1:] if word.startswith("--") and word.split("=")[0] not in options]
    assert not unknown, f"{line}: {words[0]} has no {unknown[0]}"
    if whole and "..." not in words:
        try:
            command.make_context(words[0], words[1:]).close()
        except Exception as error:  # of click, or of the copy that Typer carries
            raise AssertionError(f"{line}: {error}") from error


LINES = sorted({(line, whole) for text in TEXTS.values() for line, whole in commands_in(text)})


def test_the_pages_show_commands():
    assert len(LINES) > 15
    shown = {shlex.split(line, comments=True)[1] for line, _ in LINES}
    assert set(COMMAND.commands) <= shown, "some command is on no page"


@each(("line", "whole"), LINES)
def test_commands_on_the_pages_are_commands(line, whole):
    assert_is_a_command(line, whole)


@pytest.mark.parametrize(
    "line",
    ["policytest nonsense", "policytest decide", "policytest decide m.json --bar 1", "policytest plan m --delta x"],
)
def test_the_check_of_commands_notices(line):
    with pytest.raises(AssertionError):
        assert_is_a_command(line)


# ---------------------------------------------------------------- the tutorial and the README do what they say


def agrees(shown, happened):
    """Line by line, where "..." stands for anything: a part of a line, or whole lines."""
    pattern = re.escape(shown.strip()).replace(re.escape("..."), "(.|\n)*?")
    pattern = "\n".join(part.rstrip() for part in pattern.replace("\\\n", "\n").replace("\\ ", " ").split("\n"))
    happened = "\n".join(line.rstrip() for line in happened.strip().splitlines())
    return re.fullmatch(pattern, happened) is not None


def test_transcripts_are_compared_for_real():
    assert agrees("a\n...\nc 1...", "a\nb\nbb\nc 12")
    assert agrees("a\n...", "a\nb")
    assert not agrees("a\nc", "a\nb\nc")
    assert not agrees("a 2\n...", "a 1\nb")


def test_the_tutorial_happens_as_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    refreshed = runpy.run_path(str(DOCS / "make_transcripts.py"))["refreshed"]
    transcripts = [one for body in blocks(TEXTS["tutorial.md"], "console") for one in body.split("$ ")[1:]]
    assert len(transcripts) >= 6
    for transcript in transcripts:
        line, _, shown = transcript.partition("\n")
        if not line.startswith("policytest "):
            subprocess.run(line, shell=True, check=True)  # the project's own text
            continue
        code = cli.main(shlex.split(line)[1:])
        happened = capsys.readouterr().out
        assert agrees(shown, happened), f"{line}\n{happened}"
        moved = re.sub(r"\d{3}\b", "777", shown)  # an old page
        assert refreshed(moved, happened) == refreshed(shown, happened) == shown
        assert code == (3 if shown.startswith("Undecided") else 0), line
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")

    programs = blocks(TEXTS["tutorial.md"], "python")
    assert len(programs) == 2
    for code in programs:
        exec(compile(code, "tutorial", "exec"), {})
        printed = capsys.readouterr().out.splitlines()
        promised = re.findall(r"^print\(.*\)  # (?:.*: )?(.+)$", code, re.MULTILINE)
        assert promised
        assert [line for line in printed if line in promised] == promised


def missing_packages(code):
    """What a block imports that is not installed here, such as Stable-Baselines3."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        name
        for node in nodes
        for name in ([one.name for one in node.names] if isinstance(node, ast.Import) else [node.module])
    }
    return sorted(name for name in names if importlib.util.find_spec(name.split(".")[0]) is None)


def test_the_page_about_agents_happens_as_it_says(tmp_path, monkeypatch, capsys):
    """Every block of Python is run, one after the other, and what is shown below it is what it prints.

    Blocks that need packages which are not installed here are left out; `make test-sb3` runs them, too.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("policytest.questions.plan.plan.EPISODE_RUNS", 20)  # quickly
    names, printed, compared = {}, "", []
    for _, language, body in FENCE.findall(TEXTS["agents.md"]):
        if language == "python" and not missing_packages(body):
            capsys.readouterr()
            exec(compile(body, "agents.md", "exec"), names)  # the project's own text
            printed = capsys.readouterr().out
            for said, answer in re.findall(r'^(.+\.answer)  # "(\w+)"', body, re.MULTILINE):
                assert eval(said, names) == answer, said
                compared.append(said)
            for name in re.findall(r"^def (test_\w+)", body, re.MULTILINE):
                names[name]()
                compared.append(name)
        elif language == "text":
            assert agrees(body, printed), printed
            compared.append(body)
    assert len(compared) >= 5
    assert missing_packages("import numpy.linalg\nfrom nowhere.to_be import found") == ["nowhere.to_be"]


def test_the_page_of_trials_happens_as_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    transcripts = [one for body in blocks(TEXTS["trials.md"], "console") for one in body.split("$ ")[1:]]
    assert len(transcripts) == 5
    for transcript in transcripts:
        line, _, shown = transcript.partition("\n")
        program, *words = shlex.split(line)
        if program == "python":
            monkeypatch.setattr(sys, "argv", words)
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")
        else:
            assert cli.main(words) == 0
        happened = capsys.readouterr()
        assert agrees(shown, happened.out), f"{line}\n{happened.out}"
        if words[0] == "compare":
            assert [said for said in happened.err.splitlines() if f"`{said}`" in TEXTS["trials.md"]] == (
                happened.err.splitlines()
            )


def test_the_readmes_five_commands_answer_about_a_csv(tmp_path, monkeypatch, capsys):
    body = next(body for body in blocks(TEXTS["README.md"], "console") if "your.csv" in body)
    lines = body.replace("\\\n", " ").strip().splitlines()
    assert len(lines) <= 5
    assert lines[0] == "pip install '.[data,report]'"  # from a clone: that works whether or not it is published
    (task,) = blocks(TEXTS["README.md"], "toml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.toml").write_text(task, encoding="utf-8")
    rng = np.random.default_rng(0)
    odds = {("new", "offer"): [0.1, 0.8, 0.1], ("active", "wait"): [0, 0.9, 0.1], ("active", "offer"): [0, 0.95, 0.05]}
    rows = [
        f"{state},{action},{rng.choice(['new', 'active', 'gone'], p=chances)}"
        for (state, action), chances in odds.items()
        for _ in range(1000)
    ]
    rng.shuffle(rows)
    rows = ["timestamp,state,action,next_state", *(f"{time},{row}" for time, row in enumerate(rows))]
    (tmp_path / "your.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    ours = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("policytest ")]
    assert [cli.main(words) for words in ours] == [0, 0, 0]
    shown = capsys.readouterr().out
    assert shown.count("The value is above the threshold (certified)") == 2
    assert "Warning" not in shown
    assert (tmp_path / "report.html").is_file()


def test_the_questions_of_model_checkers_are_answered(monkeypatch, capsys):
    """The commands on the page about files, in the folder of its models; and its numbers are those of the tests."""
    monkeypatch.chdir(ROOT / "examples" / "models")
    (body,) = [body for body in blocks(TEXTS["formats.md"], "console") if "customer.drn" in body]
    assert [cli.main(shlex.split(line)[1:]) for line in body.strip().splitlines()] == [0, 0, 0, 0]
    assert capsys.readouterr().out.count("(certified)") == 4
    kept = json.loads((ROOT / "tests" / "sources" / "storm" / "questions.json").read_text(encoding="utf-8"))
    (table,) = [body for body in blocks(TEXTS["formats.md"], "text") if "weather.prism" in body]
    shown = {name: int(number) for name, number in re.findall(r"^(\w+)\.prism +(\d+)", table, re.MULTILINE)}
    assert shown == {name: sum(map(len, by_policy.values())) for name, by_policy in kept.items()}


def test_the_file_with_a_goal_is_a_task(tmp_path):
    (text,) = [body for body in blocks(TEXTS["formats.md"], "toml") if 'goal = ["cured"]' in body]
    (tmp_path / "task.toml").write_text(text, encoding="utf-8")
    task = load_model(tmp_path / "task.toml").task
    assert (task.horizon, task.discount, task.terminal) == (30, 1.0, ("cured", "dead"))


# ---------------------------------------------------------------- figures that are on more than one page


def tables(text):
    """The tables of a page: the cells of their rows, the header first."""
    for block in re.findall(r"(?:^\|.*\|[ ]*$\n?)+", FENCE.sub("", text), re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


def table(texts, page, *header):
    """The rows of the only table of a page whose first columns have these names, as {name of a column: cell}."""
    (rows,) = [rows for rows in tables(texts[page]) if tuple(rows[0][: len(header)]) == header]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def amount(cell):
    """The number in a cell, without its unit and its standard error."""
    return float(re.match(r"-?[\d,.]+", cell).group().replace(",", ""))


def ends(values, digits=1):
    """The least and the largest, as text."""
    return tuple(f"{end:.{digits}f}" for end in (min(values), max(values)))


def samples_of(texts, method, delta="0.05"):
    """{instance: what the table of all methods says}."""
    (row,) = [row for row in table(texts, "betting.md", f"delta = {delta}") if row[f"delta = {delta}"] == method]
    return {name: cell for name, cell in row.items() if not name.startswith("delta")}


def ratios(texts, first, second):
    """How many times as many samples one (method, delta) takes as another, on each instance where both are known."""
    pairs = zip(samples_of(texts, *first).values(), samples_of(texts, *second).values(), strict=True)
    return [amount(a) / amount(b) for a, b in pairs if a and b and ">" not in a + b]


def powers(texts, method, instances=()):
    """How samples grow as the gap shrinks: log of their ratio over log of that of the gaps, at two thresholds."""
    samples, weak = samples_of(texts, method), table(texts, "betting.md", "instance", "V", "R")
    (value,) = {amount(row["V"]) for row in weak if row["instance"] == "paper 2x2"}
    pairs = [[(value - 0.19, amount(samples["small gap"])), (value, amount(samples["2x2"]))]]
    for name in instances:
        rows = [row for row in weak if row["instance"] == name]
        found = sorted((abs(amount(row["V"]) - amount(row["R"])), amount(row["default"])) for row in rows)
        pairs.append([found[0], found[-1]])
    return [np.log(most / least) / np.log(far / near) for (near, most), (far, least) in pairs]


OF_METHODS = {
    "lower bound, for any test": "lower bound",
    "`TDBetting()`, the default": "TDBetting (default)",
    "`PTST()`, ours": "PTST, mixture",
    "`PTST()`, the paper's boundary": "PTST, paper's boundary",
    "Monte Carlo, by betting on returns": "Monte Carlo, betting",
    "`TDBetting()`": "TDBetting (default)",
    "`PTST()`, as if proofs were free": "PTST, mixture",
    "`PTST(boundary=PaperBoundary())`, likewise": "PTST, paper's boundary",
    "`RectangularKL()`": "KL boxes",
    "`MonteCarlo()`": "Monte Carlo, betting",
}
OF_INSTANCES = {"paper 2x2": "2x2", "grid world, 25 cells": "grid world", "random, 100 states": "Garnet 100"}


def misquoted(texts):
    """Where the two shorter tables of methods differ from the table of all methods."""
    found = []
    for page, instance in (("README.md", "paper 2x2"), ("which-method.md", "2x2")):
        for row in table(texts, page, "", instance):
            whole = samples_of(texts, OF_METHODS[row.pop("")])
            found += [(page, name) for name, cell in row.items() if cell != whole[OF_INSTANCES.get(name, name)]]
    return found


def test_the_shorter_tables_of_methods_are_excerpts():
    assert not misquoted(TEXTS)
    assert misquoted({**TEXTS, "README.md": TEXTS["README.md"].replace("17,533", "17,534")}) == [("README.md", "3x3")]


def widths(texts):
    rows = table(texts, "evaluation.md", "paper's instance", "after")
    at = [row["paper's instance"] for row in rows].index("5 states") + 1
    assert rows[at]["after"] == "10,000"
    return rows[at]["betting"], rows[at]["KL ball"]


def identified(texts):
    row = table(texts, "comparing-and-planning.md", "instance", "least gap")[0]
    return row["betting"], row["KLB-TS"]


def of_two_tests(texts):
    rows = table(texts, "comparing-and-planning.md", "policies", "difference")
    return ends([amount(row["two tests"]) / amount(row["`compare`"]) for row in rows])


def proofs(texts):
    found = re.search(r"need ([\d.]+)% / ([\d.]+)% / ([\d.]+)% more", texts["certificate.md"])
    return ends([float(share) for share in found.groups()])


def halved(texts):
    betting = powers(texts, "TDBetting (default)", ("grid 6x6, one reward", "Garnet 30x3", "dense 4x3"))
    (kl,) = powers(texts, "PTST, mixture")
    return *ends([2**b for b in betting]), f"{2**kl:.1f}", *ends(betting), f"{kl:.1f}"


def at_tiny_delta(texts):
    few, many = (amount(samples_of(texts, name, "1e-15")["2x2"]) for name in ("PTST, mixture", "TDBetting (default)"))
    return f"{few:,.0f}", f"{many:,.0f}"


def on_five_states(texts):
    few, many = (amount(samples_of(texts, name)["5x5"]) for name in ("TDBetting (default)", "PTST, paper's boundary"))
    return f"{round(few, -2):.0f}", f"{round(many, -3):,.0f}"


def of_the_heuristic(texts):
    rows = table(texts, "sequential-test.md", "S = A", "one whole test, paper's boundary, delta = 0.05")
    names = "one whole test, paper's boundary, delta = 0.05", "*one* check of the paper's heuristic"
    return tuple(end for name in names for end in ends([amount(row[name]) for row in rows], 0))


def at_smaller_delta(texts):
    found = ratios(texts, ("TDBetting (default)", "1e-5"), ("TDBetting (default)",))
    return tuple(["", "one", "two", "three", "four", "five"][int(end)] for end in ends(found, 0))


def of_gradient_steps(texts):
    words = r"reports {}, {} and {} on the paper's three instances, where it starts at {}, {} and {}\."
    return re.search(words.replace("{}", r"([\d.]+)"), flat(texts["worst-case.md"])).groups()


def of_the_shop(texts):
    """The row of the answer, and the rows of the log: the tutorial's commands are run by another test."""
    shown = texts["tutorial.md"].partition("$ policytest assess shop/paid.toml shop/log.csv")[2]
    row, rows = (re.search(words, shown) for words in (r"\n  samples +([\d,]+)", r"\nData: ([\d,]+) transitions"))
    return row.group(1), rows.group(1)


def flat(text):
    """On one line."""
    return " ".join(text.split())


QUOTES = {
    "interval of width {}, by the KL ball {} (": ("which-method.md", widths),
    "| {} samples on the paper's 2-state instance, where KLB-TS takes {} (": ("which-method.md", identified),
    "| {} to {} times fewer transitions than two separate tests": ("which-method.md", of_two_tests),
    "a certified `PTST()` needs {}% to {}% more samples": ("which-method.md", proofs),
    "Half the gap `|V - R|` takes {} to {} times the samples by betting and {} times by the KL rules: a power of "
    "-{} to -{}, and of -{}, in": ("which-method.md", halved),
    "on the 2-state instance at `1e-15` it needs {} transitions, and `TDBetting()` {}.": ("betting.md", at_tiny_delta),
    "about {} transitions on the paper's 5-state instance, where the paper's rule takes {} with": (
        "index.md",
        on_five_states,
    ),
    "takes {} to {} ms on these three instances (`make bench`, the same machine), where *one* check of the heuristic "
    "of the paper's experiments takes {} to {} ms": ("README.md", of_the_heuristic),
    "From 0.05 to 1e-5 the default takes {} to {} times as many": ("faq.md", at_smaller_delta),
    "it stops at {}, {} and {} on the three instances, having started at {}, {} and {} and": (
        "paper-to-code.md",
        of_gradient_steps,
    ),
    "reached its answer after {} of {} transitions": ("tutorial.md", of_the_shop),
    '"answered after {} transitions of {}": a': ("faq.md", of_the_shop),
    'part of the log: "answered after {} transitions of {}"': ("command-line.md", of_the_shop),
}
"""{a sentence: its page, and what the place says that its figures are from}."""


def quoted(texts, sentence):
    """(what a sentence says, what it should say)."""
    page, source = QUOTES[sentence]
    words = re.escape(sentence).replace(re.escape("{}"), r"([\w.,]+)")
    (found,) = re.findall(words, flat(texts[page].replace("**", "")))
    return found, tuple(source(texts))


@each("sentence", QUOTES)
def test_a_figure_on_two_pages_is_the_same(sentence):
    said, should = quoted(TEXTS, sentence)
    assert said == should


@each(
    ("page", "old", "new", "sentence"),
    [
        ("which-method.md", "width 0.051", "width 0.078", "interval of width {}"),
        ("evaluation.md", "| 0.051 |", "| 0.078 |", "interval of width {}"),
        ("faq.md", '"answered after 1,', '"answered after 9,', '"answered after {}'),
    ],
)
def test_the_check_of_figures_notices(page, old, new, sentence):
    """Negative control: the figure changes on the page that quotes, or where it is quoted from."""
    (sentence,) = [one for one in QUOTES if one.startswith(sentence)]
    said, should = quoted({**TEXTS, page: TEXTS[page].replace(old, new)}, sentence)
    assert said != should


FIGURE = re.compile(r"(?<![\w.,/-])\d[\d,]*\.?\d*(?![\w/]|[.,]\d)")
SETTINGS = {"0.999", "1.96", "3.11", "475", "1,000,000", "1,234", "2026"}
"""Of a discount, the normal law, Python, a threshold of CartPole: nobody measures them."""


def in_sentences(texts):
    """{a figure of three digits or more in the sentences of pages: these pages}; of no table and no code."""
    found = {}
    for page, text in texts.items():
        prose = re.sub(r"^\|.*$", "", FENCE.sub("", text), flags=re.MULTILINE)
        for figure in FIGURE.findall(re.sub(r"\]\([^)]*\)|`[^`]*`", "", prose)):
            if len(figure.strip(",.").replace(",", "").replace(".", "").strip("0")) > 2:
                found.setdefault(figure.strip(",."), set()).add(page)
    return found


def test_a_figure_in_sentences_of_two_pages_is_tied():
    """Whoever repeats a measured figure ties it to its place, in `QUOTES`."""
    tied = {figure for sentence in QUOTES for figure in quoted(TEXTS, sentence)[0]} | SETTINGS
    assert not {figure: pages for figure, pages in in_sentences(TEXTS).items() if len(pages) > 1 and figure not in tied}
    again = in_sentences({**TEXTS, "faq.md": TEXTS["faq.md"] + "\nIt took 45,713.", "logs.md": "It took 45,713."})
    assert again["45,713"] == {"faq.md", "logs.md"}


# ---------------------------------------------------------------- modules on the pages


def test_modules_on_the_pages_exist():
    """A mention of `policytest.a.b` in a page leads somewhere."""

    def exists(name):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            place, _, last = name.rpartition(".")
            return bool(place) and exists(place) and hasattr(importlib.import_module(place), last)
        return True

    named = {name for text in TEXTS.values() for name in re.findall(r"\bpolicytest(?:\.[a-z_]+)+\b", text)}
    assert len(named) > 5
    assert not [name for name in named if not exists(name)]
    assert not exists("policytest.guesses")


# ---------------------------------------------------------------- pictures


def test_the_pictures_are_drawn_by_their_script(tmp_path):
    command = [sys.executable, "docs/make_pictures.py", "--out", str(tmp_path), "--seeds", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kept = {path.name for path in (DOCS / "pictures").iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == kept
    for folder in (tmp_path, DOCS / "pictures"):
        for path in folder.glob("*.svg"):
            tree = ET.parse(path)
            assert not [value for node in tree.iter() for value in node.attrib.values() if value.startswith("http")]
    used = set(re.findall(r"pictures/([\w.-]+)", "".join(TEXTS.values())))
    assert used == kept
    rows = re.compile(r'<th scope="row"[^>]*>([^<]*)')
    fresh, old = ((folder / "verdict.html").read_text(encoding="utf-8") for folder in (tmp_path, DOCS / "pictures"))
    assert rows.findall(fresh) == rows.findall(old)
