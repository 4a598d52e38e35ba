"""Bad inputs on the command line: exit code 2, one clear message, no traceback, and nothing is overwritten."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bad_inputs import CASES, KEPT, LOG, Folder, Link, Secret, model, picture
from builders import run_python
from policytest.cli import main


@pytest.fixture
def here(here):
    """With a file that was there before."""
    (here / "kept.txt").write_text(KEPT)
    return here


def lay_out(folder, files):
    for name, content in files.items():
        path = folder / name
        if isinstance(content, Folder):
            path.mkdir()
        elif isinstance(content, Link):
            path.symlink_to(folder / content)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")
        if isinstance(content, Secret):
            path.chmod(0)
            if os.access(path, os.R_OK):
                pytest.skip("this user may read everything")


def assert_one_clear_message(out, err, words):
    assert out == ""
    assert "Traceback" not in err
    said = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1, err
    assert err.splitlines() == said, "nothing but the message"
    assert 15 < len(said[0]) < 500, said[0]
    for word in words:
        assert word in said[0], said[0]


def test_there_are_many():
    assert len(CASES) >= 40


@pytest.mark.parametrize("name", CASES)
def test_bad_inputs_end_with_a_clear_message(here, capsys, name):
    argv, words, files = CASES[name]
    lay_out(here, files)
    before = picture(here)
    assert main(argv) == 2, capsys.readouterr()
    assert_one_clear_message(*capsys.readouterr(), words)
    assert picture(here) == before


def test_in_a_process_of_its_own(here):
    argv, words, files = CASES["unknown state in a log"]
    lay_out(here, files)
    before = picture(here)
    done = run_python("-m", "policytest", *argv, cwd=here)
    assert done.returncode == 2, done.stderr
    assert_one_clear_message(done.stdout, done.stderr, words)
    assert picture(here) == before


def test_good_inputs_do_not_end_so(here, capsys):
    """Negative control: the model and the log behind the table are good ones."""
    lay_out(here, {"model.json": model(), "log.csv": LOG})
    assert main(["decide", "model.json", "--quiet", "--threshold", "-100"]) == 0
    assert main(["assess", "model.json", "log.csv", "--quiet", "--threshold", "-100"]) == 0
    assert main(["assess", "model.json", "log.csv", "--quiet", "--threshold", "0.1"]) == 3


def test_names_are_escaped_on_pages(here, capsys):
    """A model may call its states anything; a page shows it, and runs none of it."""
    name = "<script>alert('x')</script>&\"<img src=x onerror=y>"
    lay_out(here, {"model.json": model(states=[name, "b"], support=None)})
    assert main(["decide", "model.json", "--quiet", "--threshold", "0.1", "--html", "page.html"]) in (0, 1)
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert re.search(r"&lt;script&gt;alert", page), "the name is on the page"
