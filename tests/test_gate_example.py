"""The gate in examples/ci: the commands of its workflow are run as a CI job runs them, as far as that goes here."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tomllib
import xml.etree.ElementTree as ET

import pytest

from paths import ROOT
from policytest.cli import main

yaml = pytest.importorskip("yaml")

CI = ROOT / "examples" / "ci"
TEXT = (CI / "policy-gate.yml").read_text(encoding="utf-8")
JOBS = yaml.safe_load(TEXT)["jobs"]
STEPS = JOBS["gate"]["steps"]
ACTIONS = {"actions/checkout", "actions/setup-python", "actions/cache", "actions/cache/restore", "actions/cache/save"}
ACTIONS |= {"actions/upload-artifact"}
FALLS = "def act(observation):\n    return 0\n\n\ndef in_use(observation):\n    return int(observation[3] > 0)\n"


def commands():
    """The lines of the gate's steps, as words."""
    return [
        shlex.split(line)
        for step in STEPS
        for line in step.get("run", "").replace("\\\n", " ").splitlines()
        if line.strip()
    ]


def ours(name):
    """The words of the only command of this name."""
    (words,) = [words[1:] for words in commands() if words[:2] == ["policytest", name]]
    return words


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The repository of somebody who has copied the files."""
    for name in ("agent.py", "test_policy.py"):
        shutil.copy(CI / name, tmp_path)
    (tmp_path / "gate").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in {"agent", "test_policy"} & (set(sys.modules) - before):
        del sys.modules[name]


def decided(checkout, capsys, *more):
    """The exit code of the gate's command, and the JSON on its standard output."""
    *words, redirected, target = ours("decide")
    assert (redirected, target) == (">", "gate/verdict.json")
    capsys.readouterr()
    code = main([*words, *more])
    text = capsys.readouterr().out
    (checkout / target).write_text(text, encoding="utf-8")
    return code, json.loads(text)


def by_pytest(checkout):
    """The exit code of the pytest step, and the messages of failed tests."""
    (words,) = [words[3:] for words in commands() if words[:3] == ["python", "-m", "pytest"]]
    code = pytest.main([*words, "-p", "no:cacheprovider"])
    found = ET.parse(checkout / "gate" / "tests.xml").getroot().iter("failure")
    return code, [failure.get("message") for failure in found]


def test_the_workflow_is_one():
    assert set(yaml.safe_load(TEXT)) == {"name", True, "permissions", "env", "jobs"}  # True: YAML reads `on` so
    for step in (step for job in JOBS.values() for step in job["steps"]):
        assert ("uses" in step) != ("run" in step), step
        assert step.get("uses", "actions/cache@").split("@")[0] in ACTIONS
    assert JOBS["release"]["needs"] == "gate"
    assert {words[0] for words in commands()} == {"python", "policytest", "mkdir"}
    expressions = set(re.findall(r"\$\{\{ *(.*?) *\}\}", TEXT))
    assert all(re.match(r"github\.|hashFiles\(|!cancelled\(\)|always\(\)", one) for one in expressions), expressions


def test_what_it_installs_are_extras_of_the_package():
    (words,) = [words for words in commands() if words[:4] == ["python", "-m", "pip", "install"]]
    (extras,) = re.findall(r"^policytest\[(.*)\]$", words[4])
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)


def test_a_good_agent_passes_every_step(checkout, capsys):
    code, verdict = decided(checkout, capsys)
    assert (code, verdict["answer"], verdict["certified"]) == (0, "above", True)
    assert "<svg" in (checkout / "gate" / "report.html").read_text(encoding="utf-8")
    again, same = decided(checkout, capsys)  # a job that is run again
    assert (again, same["samples"]) == (0, verdict["samples"])
    assert by_pytest(checkout) == (0, [])
    assert main(ours("report")) == 0
    assert "Policy A is better than policy B" in (checkout / "gate" / "better.html").read_text(encoding="utf-8")
    kept = [one for step in STEPS for one in step.get("with", {}).get("path", "").split()]
    for path in (checkout / "gate").iterdir():
        assert any((checkout / "gate").parent.glob(one) and path.match(one) for one in kept), f"{path.name} is lost"


def test_a_bad_agent_fails_the_steps(checkout, capsys):
    (checkout / "agent.py").write_text(FALLS, encoding="utf-8")
    code, verdict = decided(checkout, capsys)
    assert (code, verdict["answer"]) == (1, "below")
    code, messages = by_pytest(checkout)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert ["NotGoodEnough" in said and "required answer" in said for said in messages] == [True, True]


def test_a_gate_without_an_answer_ends_and_fails(checkout, capsys):
    """Out of time at once; the next job goes on from what is kept, and finds the answer."""
    code, verdict = decided(checkout, capsys, "--max-seconds", "1e-9")
    assert (code, verdict["answer"]) == (3, None)
    text = (checkout / "test_policy.py").read_text(encoding="utf-8")
    (checkout / "test_policy.py").write_text(text.replace("max_seconds=300", "max_seconds=1e-9"), encoding="utf-8")
    code, messages = by_pytest(checkout)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert ["Undecided" in said and "the time limit" in said for said in messages] == [True, True]
    assert decided(checkout, capsys)[0] == 0
