"""The command line: exit codes that mean what they say, output that programs can read, progress that never interferes.

The real test decides in a few runs here; the many endings of a command are provoked with a stand-in for ``decide``.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import os
import signal
import sys
import textwrap
import warnings
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
import typer

import policytest
import policytest.__main__ as entry
from builders import run_code, run_python
from policytest import instances
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.table import Row, Table
from policytest.cli import app, main
from policytest.cli.exit_codes import Code, exit_code, read_or_not, say
from policytest.cli.output import fingerprint
from policytest.cli.progress import COMPILING, Bar, LatestInterval, Lines, progress
from policytest.data.simulators import TabularSimulator
from policytest.kl.boundaries import MixtureBoundary, PaperBoundary
from policytest.kl.sampling import Adaptive, Forward, Optimal
from policytest.sources import save_model


def check(samples=1000, evidence=(1.0, -2.0), interval=(-1.0, 1.0)):
    return SimpleNamespace(
        samples=samples,
        evidence=evidence,
        required=3.0,
        estimate=0.5,
        solves=2,
        answer=None,
        interval=lambda: interval,
    )


class StandIn:
    """Stands in for ``decide``: remembers what it was called with, and ends as it is told to."""

    flaws, refutes_model = (), False

    def __init__(self, answer="above", certified=True, ending=None, snapshot=("something",)):
        self.answer, self.certified, self.ending, self.snapshot = answer, certified, ending, snapshot

    def __call__(self, task, sim, **settings):
        self.task, self.sim, self.settings = task, sim, settings
        if self.ending is not None:
            self.ending(settings)
        summary = Table(f"the answer is {self.answer}", (Row("samples", "7", key="samples", raw=7),))
        return SimpleNamespace(
            answer=self.answer,
            certified=self.certified,
            samples=7,
            reason="the stand-in does not know",
            snapshot=self.snapshot,
            flaws=self.flaws,
            refutes_model=self.refutes_model,
            may_be_forecast=False,
            provenance=SimpleNamespace(budget=None),
            summary=summary,
            to_json=lambda: json.dumps({"schema": 1, "answer": self.answer}),
        )


@pytest.fixture
def stand_in(monkeypatch):
    def put(*arguments, **settings):
        fake = StandIn(*arguments, **settings)
        monkeypatch.setattr("policytest.questions.decide.decide", fake)
        return fake

    return put


@pytest.fixture(autouse=True)
def no_debugging(monkeypatch):
    monkeypatch.delenv("POLICYTEST_DEBUG", raising=False)


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(("answer", "code"), [("above", 0), ("below", 1), ("within", 5), (None, 3)])
def test_the_exit_code_is_the_answer(stand_in, capsys, answer, code):
    stand_in(answer)
    assert main(["decide", "paper-2", "--quiet"]) == code
    assert capsys.readouterr().out == f"the answer is {answer}\n  samples  7\n"


def test_what_decide_is_asked(stand_in, here):
    fake = stand_in()
    assert main(["decide", "paper-3"]) == 0
    assert fake.task.n_states == 3
    assert isinstance(fake.sim, TabularSimulator)
    assert callable(fake.settings.pop("progress"))
    assert fake.settings == {
        "threshold": 0.0,
        "delta": 0.05,
        "method": None,
        "rng": 0,
        "max_samples": None,
        "max_seconds": None,
        "budget": None,
        "parallel": 1,
        "indifference": 0.0,
        "checkpoint": None,
        "resume": None,
    }


def test_options_reach_decide(stand_in, here):
    fake = stand_in()
    options = ["--threshold", "-0.5", "--delta", "1e-3", "--seed", "7", "--max-samples", "99"]
    assert main(["decide", "paper-2", "--checkpoint", "run.npz", *options]) == 0
    found = {name: fake.settings[name] for name in ("threshold", "delta", "rng", "max_samples")}
    assert found == {"threshold": -0.5, "delta": 1e-3, "rng": 7, "max_samples": 99}
    assert (fake.settings["checkpoint"], fake.settings["resume"]) == (Path("run.npz"), None)
    Path("run.npz").touch()
    assert main(["decide", "paper-2", "--checkpoint", "run.npz"]) == 0
    assert (fake.settings["checkpoint"], fake.settings["resume"]) == (Path("run.npz"), Path("run.npz"))


def test_the_threshold_of_the_file(stand_in, here):
    instance = instances.paper(2)
    save_model("model.json", instance.task, instance.kernel, threshold=0.25)
    fake = stand_in()
    main(["decide", "model.json"])
    assert fake.settings["threshold"] == 0.25
    main(["decide", "model.json", "--threshold", "0"])
    assert fake.settings["threshold"] == 0.0


@pytest.mark.parametrize("name", ["paper-2", "paper-3", "paper-5", "grid-world"])
def test_built_in_models(stand_in, name):
    """The paper's instances have the threshold 0; the others have none."""
    fake = stand_in()
    assert main(["decide", name]) == (0 if "paper" in name else 2)
    assert main(["decide", name, "--threshold", "0.5"]) == 0
    assert fake.task.n_states > 1


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (["--boundary", "paper"], PaperBoundary),
        (["--boundary", "mixture"], MixtureBoundary),
        (["--prior", "0.25"], MixtureBoundary),
    ],
)
def test_boundaries(stand_in, options, kind):
    fake = stand_in()
    assert main(["decide", "paper-2", *options]) == 0
    assert isinstance(fake.settings["method"].boundary, kind)
    if "--prior" in options:
        assert fake.settings["method"].boundary == MixtureBoundary(0.25)


@pytest.mark.parametrize("name", ["uniform", "optimal", "adaptive", "forward"])
def test_allocations(stand_in, name):
    fake = stand_in()
    assert main(["decide", "paper-2", "--allocation", name]) == 0
    found = fake.settings["method"].allocation
    kinds = {"optimal": Optimal, "adaptive": Adaptive, "forward": Forward}
    assert found == "uniform" if name == "uniform" else isinstance(found, kinds[name])


def test_an_answer_that_is_not_certified_opens_no_gate(stand_in, capsys):
    fake = stand_in("above", certified=False)
    assert main(["decide", "paper-2"]) == 3
    assert "no reliable answer: the answer rests on a local optimum" in capsys.readouterr().err
    assert main(["decide", "paper-2", "--accept-uncertified"]) == 0
    fake.flaws, fake.refutes_model = ("the data refute it",), True
    assert main(["decide", "paper-2", "--accept-uncertified"]) == 3
    assert "--accept-uncertified does not apply to a model that the data refute" in capsys.readouterr().err
    stand_in("below", certified=True)
    assert main(["decide", "paper-2"]) == 1


@pytest.mark.parametrize("command", ["decide", "assess", "compare", "identify", "evaluate", "watch"])
def test_the_option_of_earlier_versions_says_what_replaces_it(command, capsys):
    assert main([command, "paper-2", "--require-certified"]) == 2
    told = capsys.readouterr().err
    assert "leave it out (--accept-uncertified accepts such an answer)" in told
    assert main([command, "--help"]) == 0
    assert "--accept-uncertified" in capsys.readouterr().out


def test_undecided_says_how_to_go_on(stand_in, here, capsys):
    stand_in(None)
    assert main(["decide", "paper-2"]) == 3
    assert "--checkpoint FILE" in capsys.readouterr().err
    assert main(["decide", "paper-2", "--checkpoint", "run.npz"]) == 3
    assert "undecided after 7 samples; run.npz holds the run" in capsys.readouterr().err
    stand_in(None, snapshot=())
    assert main(["decide", "paper-2"]) == 3
    assert "undecided: the stand-in does not know\n" in capsys.readouterr().err


def test_json_is_all_there_is_on_stdout(stand_in, capsys):
    def noise(settings):
        print("a simulator that prints")
        settings["progress"](check(0))
        settings["progress"](check(1000))

    stand_in(ending=noise)
    assert main(["decide", "paper-2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema": 1, "answer": "above"}
    assert "a simulator that prints" in err
    assert "1,000 samples" in err
    assert main(["decide", "paper-2", "--json", "--quiet"]) == 0
    assert "samples" not in capsys.readouterr().err


def test_web_page(stand_in, here):
    stand_in()
    assert main(["decide", "paper-2", "--html", "page.html"]) == 0
    text = Path("page.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "the answer is above" in text


# ---------------------------------------------------------------- endings


def ended(stand_in, error, *options):
    def raise_it(_):
        raise error

    stand_in(ending=raise_it)
    return main(["decide", "paper-2", "--quiet", *options])


def test_bad_input_is_one_line(stand_in, capsys):
    assert ended(stand_in, InputError("delta is 2;\npass less")) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: delta is 2; pass less\n")


@pytest.mark.parametrize(
    "error", [RuntimeError("oh"), SystemExit(0), SystemExit(1), MemoryError(), EOFError(), OSError("x")]
)
def test_crashes_are_4(stand_in, capsys, error):
    assert ended(stand_in, error) == 4
    err = capsys.readouterr().err
    assert err.startswith(f"internal error: {type(error).__name__}")
    assert "Traceback" not in err


def by_way_of(error, cause):
    """The error, as compiled code reports a KeyboardInterrupt."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        typer.Abort(),
        BrokenPipeError(),
        by_way_of(SystemError("returned a result with an exception set"), KeyboardInterrupt()),
        by_way_of(SystemError("a result"), by_way_of(SystemError("an exception"), KeyboardInterrupt())),
    ],
)
def test_interruptions_are_3(stand_in, capsys, error):
    assert ended(stand_in, error) == 3
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("error", [RuntimeError("Query interrupted"), type("InterruptException", (Exception,), {})()])
def test_ctrl_c_while_a_log_is_read(here, capsys, monkeypatch, error):
    """DuckDB reports it as an error of its own, without a trace of the KeyboardInterrupt."""
    (here / "log.csv").write_text("s,a,s_next\n0,0,1\n")
    monkeypatch.setattr("policytest.sources.logged.frames.batches", raising(error))
    assert main(["assess", "paper-2", "log.csv", "--threshold", "0", "--quiet"]) == 3
    assert capsys.readouterr().err == "interrupted\n"


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_inside_compiled_code_ends_a_study(here, capsys, monkeypatch, jobs):
    """It is not one more run that failed, after which the others are made."""
    error = by_way_of(SystemError("returned a result with an exception set"), KeyboardInterrupt())
    monkeypatch.setattr("policytest.study.runner.stopping_times", raising(error))
    (here / "s.toml").write_text('instances = ["paper-2"]\nmethods = ["TDBetting"]\ndeltas = [0.5]\nseeds = 2\n')
    assert main(["study", "s.toml", "--quiet", "--jobs", jobs]) == 3
    assert "interrupted" in capsys.readouterr().err


def test_names_do_not_steer_the_terminal(here, capsys):
    """Names of files are those of others, too."""
    odd = "\x1b[2J\nerror: x\x07"
    argv = ["decide", "paper-2", "--threshold", "0", "--quiet", "--max-samples", "10", "--checkpoint", f"{odd}.npz"]
    assert main(argv) == 3
    assert main(["init", f"new{odd}"]) == 0
    (here / "r.json").write_text(result_json(capsys))
    assert main(["report", "r.json", "--out", f"{odd}.html"]) == 0
    assert main(["assess", "paper-2", f"{odd}.csv", "--threshold", "0"]) == 2
    assert main(["decide", f"{odd}.json", "--threshold", "0"]) == 2
    for text in capsys.readouterr():
        assert all(c.isprintable() or c == "\n" for c in text)
        assert "\nerror: x" not in text.partition("Now try:")[0]


def result_json(capsys):
    capsys.readouterr()
    assert main(["decide", "paper-2", "--threshold", "-9", "--json", "--quiet"]) == 0
    return capsys.readouterr().out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["decide", "paper-2", "--threshold", "-9"], ["init", "new"]]
)
def test_a_full_standard_output(here, monkeypatch, capsys, argv):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(argv) == 2
    assert capsys.readouterr().err.startswith("error: standard output cannot be written (No space left on device)")


@pytest.mark.parametrize("argv", [["decide", "paper-2", "--threshold", "0", "--simulator", "a:b"], ["demo"], ["init"]])
def test_a_working_folder_that_is_gone(here, capsys, argv):
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    os.rmdir(here / "gone")
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_command_that_returns_no_code_is_not_a_success():
    assert exit_code(lambda: int(None)) == 4


def test_traceback_on_request(stand_in, capsys, monkeypatch):
    assert ended(stand_in, RuntimeError("oh"), "--debug") == 4
    assert "Traceback" in capsys.readouterr().err
    assert ended(stand_in, RuntimeError("oh")) == 4
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("POLICYTEST_DEBUG", "1")
    assert ended(stand_in, InputError("oh")) == 2
    assert "Traceback" in capsys.readouterr().err


def test_warnings_are_one_line_on_stderr(stand_in, capsys):
    def warn(_):
        warnings.simplefilter("default")
        warnings.warn("a pair is never\nsampled", AssumptionWarning, stacklevel=1)

    stand_in(ending=warn)
    assert main(["decide", "paper-2", "--quiet"]) == 0
    assert capsys.readouterr().err == "warning: a pair is never sampled\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "Missing command"),
        (["nonsense"], "nonsense"),
        (["decide"], "decide --help"),
        (["decide", "paper-2", "--delta", "x"], "--delta"),
        (["decide", "paper-2", "--boundary", "x"], "mixture"),
        (["decide", "paper-2", "--nonsense"], "--nonsense"),
        (["decide", "paper2"], "did you mean 'paper-2'?"),
        (["decide", "zzz"], ".drn, .tra), or one of paper-2"),
        (["decide", "zzz.json"], "cannot be read"),
        (["decide", "zzz.yaml"], "use .json, .toml, .npz, .drn or .tra"),
        (["decide", "paper-2", "--boundary", "paper", "--prior", "1"], "--prior"),
        (["decide", "paper-2", "--html", "nowhere/page.html"], "there is no folder nowhere"),
        (["decide", "paper-2", "--html", "."], "is a folder"),
        (["decide", "paper-2", "--checkpoint", "nowhere/run.npz"], "there is no folder nowhere"),
        (["demo", "--html", "nowhere/page.html"], "there is no folder nowhere"),
        (["decide", "paper-2", "--simulator", "nothing"], "package.module:name"),
    ],
)
def test_usage_errors_are_2(here, capsys, argv, words):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err


def test_a_model_without_a_kernel(stand_in, here, capsys):
    save_model("model.json", instances.paper(2).task)
    stand_in()
    assert main(["decide", "model.json"]) == 2
    assert "--simulator package.module:name" in capsys.readouterr().err
    assert main(["decide", "model.json", "--simulator", "mine:draw", "--allocation", "optimal"]) == 2


# ---------------------------------------------------------------- simulators

SIMULATORS = """
import numpy as np

def draw(states, actions, rng):
    return rng.integers(2, size=len(states))

class Machine:
    def draw(self, states, actions, rng):
        return draw(states, actions, rng)

class Unready:
    def __init__(self, path):
        pass

machine = Machine()
number = 3

def make():
    return machine

class inner:
    machine = machine
    draw = None
"""


@pytest.fixture
def mine(here):
    (here / "my_simulators.py").write_text(SIMULATORS, encoding="utf-8")
    yield here
    sys.modules.pop("my_simulators", None)


@pytest.mark.parametrize("name", ["draw", "Machine", "machine", "inner.machine"])
def test_simulators(stand_in, mine, name):
    fake = stand_in()
    assert main(["decide", "paper-2", "--simulator", f"my_simulators:{name}"]) == 0
    draw = getattr(fake.sim, "draw", fake.sim)
    assert not isinstance(fake.sim, type)
    assert draw(np.zeros(3), np.zeros(3), np.random.default_rng(0)).shape == (3,)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("drew", "did you mean 'draw'?"),
        ("Unready", "is a class, and calling it without arguments failed with TypeError"),
        ("number", "of type int without draw"),
        ("make", "whose call signature is ()"),
        ("inner", "is a class of type inner without draw"),
    ],
)
def test_what_is_no_simulator(stand_in, mine, capsys, name, words):
    stand_in()
    assert main(["decide", "paper-2", "--simulator", f"my_simulators:{name}"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("source", ["import nothing_of_this_name", "1/0", "x = (", "raise SystemExit(0)"])
def test_modules_that_fail(stand_in, here, capsys, source):
    (here / "my_failure.py").write_text(source, encoding="utf-8")
    stand_in()
    assert main(["decide", "paper-2", "--simulator", "my_failure:draw"]) == 2
    assert "importing my_failure failed with" in capsys.readouterr().err


# ---------------------------------------------------------------- progress


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_plain_lines_are_few_and_the_same_for_the_same_run():
    stream = io.StringIO()
    lines = Lines(stream)
    for samples in range(0, 10**6, 100):
        lines.show(check(samples))
    shown = stream.getvalue().splitlines()
    assert [int(line.split()[0].replace(",", "")) for line in shown] == [1000 * 2**k for k in range(10)]
    assert shown[0] == "1,000 samples, evidence at most 1 nat of 3 nats, value estimate 0.5"


def test_no_line_for_each_of_many_doublings():
    stream = io.StringIO()
    Lines(stream).show(check(10**9))
    assert stream.getvalue().count("\n") == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def live(terminal, clock):
    from rich.console import Console

    return Bar(Console(file=terminal, force_terminal=True, color_system=None), clock)


def test_the_live_line(terminal):
    clock = Clock()
    bar = live(terminal, clock)
    bar.show(check(1000))
    clock.now = 10.0
    bar.show(check(51_000, evidence=(-1.0, 2.0)))
    bar.close()
    assert "51,000 samples, 5,000/s" in terminal.getvalue()
    assert "evidence at most 2 of 3 nats" in terminal.getvalue()
    assert "value in [-1, 1]" in terminal.getvalue()


def test_the_live_line_fits_80_columns(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    clock = Clock()
    bar = live(terminal, clock)
    for clock.now in (0.0, 10.0):
        bar.show(check(123_456_789, evidence=(-17.3, -20.0), interval=(-0.01234567, 0.0145678)))
    last = terminal.getvalue().split("\x1b[2K")[-1]
    bar.close()
    assert "123,456,789 samples" in last
    assert "-17.3 of 3 nats  value in [-0.01235, 0.01457]" in last
    assert "…" not in last
    assert len(last) <= 80


@pytest.mark.parametrize(
    ("evidence", "cells"), [((-5.0, -7.0), 0), ((np.inf, -1.0), 20), ((-np.inf, -np.inf), 0), ((-1.0, 1.5), 10)]
)
def test_the_bar_is_clipped(terminal, evidence, cells):
    bar = live(terminal, Clock())
    bar.show(check(10, evidence=evidence))
    bar.close()
    assert terminal.getvalue().splitlines()[0].split("\r")[0].count("━") == cells
    assert f"evidence at most {max(evidence):.3g} of 3 nats" in terminal.getvalue()


def test_the_live_line_is_drawn_four_times_a_second_at_most(terminal):
    clock = Clock()
    bar = live(terminal, clock)
    for step in range(1000):
        clock.now = step / 1000
        bar.show(check(step))
    drawn = terminal.getvalue().count("of 3 nats")
    bar.close()
    assert drawn == 4


@pytest.mark.parametrize("cost", [1e-4, 0.1, 3.0])
def test_intervals_take_a_tenth_of_the_time_at_most(cost):
    clock, spent = Clock(), []

    def interval():
        clock.now += cost
        spent.append(cost)
        return -1.0, 1.0

    shown, now = LatestInterval(clock), check()
    now.interval = interval
    while clock.now < 1000.0:
        clock.now += 0.25
        shown(now)
    assert spent
    assert sum(spent) <= 0.1 * clock.now + cost


def test_progress_that_suits_the_stream(terminal, monkeypatch):
    assert type(progress(io.StringIO())) is Lines
    for stream, quiet in ((quiet_one := io.StringIO(), True), (None, False)):
        with progress(stream, quiet) as shown:
            shown.notice("nobody is told")
            shown.count(1, 1, "nor of this")
            for samples in (0, 10**6):
                shown(check(samples))
    assert quiet_one.getvalue() == ""
    with progress(terminal) as shown:
        assert isinstance(shown, Bar)
    monkeypatch.setenv("TERM", "dumb")
    assert type(progress(terminal)) is Lines


def test_a_broken_stream_never_stops_the_run():
    class Broken(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    with Lines(Broken()) as shown:
        for samples in (0, 1000, 2000):
            shown(check(samples))
    closed = io.StringIO()
    closed.close()
    with Lines(closed) as shown:
        for samples in (0, 1000):
            shown(check(samples))


@pytest.mark.parametrize(("options", "fresh", "told"), [([], 2, 1), (["--quiet"], 2, 0), ([], 0, 0)])
def test_compiling_is_told_once_by_every_command(monkeypatch, capsys, options, fresh, told):
    """And only where there is something to compile. The first `assess` used to be silent for a minute."""

    def compiles(*_):
        for _ in range(fresh):
            assert numba.njit(lambda x: x + 1)(1) == 2
        raise InputError("that is all")

    monkeypatch.setattr("policytest.cli.commands.assess.find_model", compiles)
    assert main(["assess", "task.toml", "log.csv", *options]) == 2
    assert capsys.readouterr().err == told * f"{COMPILING}\n" + "error: that is all\n"
    assert all(hasattr(command.callback, "__wrapped__") for command in app.registered_commands)


def test_the_notice_on_a_terminal(terminal):
    bar = live(terminal, Clock())
    bar.notice(COMPILING)
    bar.close()
    assert COMPILING in terminal.getvalue()


# ---------------------------------------------------------------- streams


def test_names_that_the_terminal_cannot_show(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    say("quoté")
    assert raw.getvalue() == b"quot\\xe9\n"


def test_a_reader_that_went_away_does_not_change_the_answer():
    def output():
        with read_or_not():
            raise BrokenPipeError
        return Code.BELOW

    assert exit_code(output) == 1


def closed_pipe():
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("streams", [("stdout",), ("stderr",), ("stdout", "stderr")])
@pytest.mark.parametrize(
    ("argv", "code"),
    [(["--help"], 0), (["nonsense"], 2), (["decide", "paper-2", "--max-samples", "10"], 3)],
)
def test_closed_pipes(monkeypatch, streams, argv, code):
    """Undecided stays 3, a usage error 2; what was never shown is no success."""
    with contextlib.ExitStack() as opened, monkeypatch.context() as patched:
        for name in streams:
            patched.setattr(sys, name, opened.enter_context(os.fdopen(closed_pipe(), "w")))
        assert main(argv) == (3 if code == 0 and "stdout" in streams else code)


@pytest.mark.parametrize("option", ["--budget", "--max-samples"])
@pytest.mark.parametrize("given", ["2.5", "ten", "inf"])
def test_what_is_not_a_whole_number_is_named(option, given, capsys):
    assert main(["decide", "paper-2", option, given]) == 2
    assert f"'{option}': {given} is not a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(("argv", "code"), [(["--help"], 3), (["decide", "paper-2", "--threshold", "2"], 1)])
def test_the_answer_survives_a_closed_pipe(argv, code):
    """In a process of its own, the end of which writes once more."""
    pipe = closed_pipe()
    done = run_python("-m", "policytest", *argv, stdout=pipe, stderr=pipe)
    os.close(pipe)
    assert done.returncode == code


# ---------------------------------------------------------------- the real thing


def test_help_loads_nothing_heavy():
    code = """
        import sys
        from policytest.cli import main
        words = "--help", "decide --help", "--version", "nonsense", "warmup --help"
        assert [main(argv.split()) for argv in words] == [0, 0, 0, 2, 0]
        heavy = {"numpy", "scipy", "numba", "policytest.mdp.task"} & set(sys.modules)
        assert not heavy, heavy
    """
    done = run_code(code)
    assert done.returncode == 0, done.stdout + done.stderr


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"policytest {policytest.__version__}\n"


def test_help_names_the_exit_codes(capsys):
    assert main(["decide", "--help"]) == 0
    assert "5 within" in capsys.readouterr().out


@pytest.mark.parametrize(("failure", "code"), [(ImportError("no numpy"), 4), (KeyboardInterrupt(), 3)])
def test_an_installation_that_cannot_begin_is_no_answer(monkeypatch, capsys, failure, code):
    """Python itself would end with 1, which says "below"."""
    real = builtins.__import__

    def refuse(name, *rest, **more):
        if name == "policytest.cli":
            raise failure
        return real(name, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "__import__", refuse)
        assert entry.main() == code
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert len(told.splitlines()) == 1


def test_stdout_is_json_alone_even_if_a_module_prints(here, capsys):
    """The simulator's and the environment's modules are imported by the command."""
    (here / "noisy.py").write_text(
        "import gymnasium\nprint('hello from an import')\n"
        "gymnasium.register('Noisy-v0', entry_point='gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv')\n"
    )
    sys.path.insert(0, str(here))
    address = "gym:noisy:Noisy-v0?discount=0.9&policy=uniform"
    assert main(["decide", address, "--threshold", "-1", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "above"


def test_a_file_that_is_called_like_a_model_is_no_source(here, capsys):
    """The built-in model is used, so the report must not name the file; and a folder of that name is no matter."""
    (here / "paper-2").write_text("mine")
    assert main(["decide", "paper-2", "--quiet", "--threshold", "-9", "--html", "page.html"]) == 0
    assert "sha256" not in (here / "page.html").read_text()
    assert fingerprint("paper-2").startswith("paper-2, 4 bytes, sha256 ")
    assert fingerprint("gone meanwhile") == "gone meanwhile, not readable"


def test_results_with_long_names(here, capsys):
    """As long as the file system takes them: the draft beside the file has a shorter one."""
    name = "x" * 245 + ".html"
    assert main(["decide", "paper-2", "--quiet", "--threshold", "-9", "--html", name]) == 0
    assert (here / name).stat().st_size > 1000
    capsys.readouterr()
    assert main(["decide", "paper-2", "--quiet", "--threshold", "-9", "--html", "x" * 300]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert main(["decide", "y" * 3000, "--quiet"]) == 2


def test_a_report_from_a_closed_standard_input(here, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["report", "-", "--out", "page.html"]) == 2
    assert "standard input is closed" in capsys.readouterr().err
    (here / "result.json").write_text("{}")
    assert main(["report", "result.json", "--out", "result.json"]) == 2
    assert "is read by this command" in capsys.readouterr().err


@pytest.mark.parametrize(("threshold", "code"), [("-2", 0), ("2", 1)])
def test_decide_for_real(capsys, threshold, code):
    assert main(["decide", "paper-2", "--threshold", threshold, "--json"]) == code
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["schema"] == 2
    assert verdict["answer"] == ("above", "below")[code]


def test_decide_in_parts_is_decide_at_once(here, capsys):
    ask = ["decide", "paper-2", "--json", "--quiet", "--seed", "3"]
    whole = (main(ask), json.loads(capsys.readouterr().out))
    assert main([*ask, "--checkpoint", "run.npz", "--max-samples", "100"]) == 3
    assert json.loads(capsys.readouterr().out)["samples"] == 100
    parts = (main([*ask, "--checkpoint", "run.npz"]), json.loads(capsys.readouterr().out))
    assert parts[0] == whole[0]
    for key in ("answer", "samples", "estimate"):
        assert parts[1][key] == whole[1][key]


@pytest.mark.parametrize("allocation", ["optimal", "adaptive", "forward"])
def test_every_allocation_for_real(capsys, allocation):
    assert main(["decide", "paper-2", "--threshold", "-2", "--allocation", allocation, "--boundary", "paper"]) == 0


@pytest.mark.parametrize("method", ["betting", "ptst", "boxes"])
def test_every_method_for_real(capsys, method):
    assert main(["decide", "paper-2", "--method", method, "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certified"] is True


def test_a_method_of_an_earlier_version_says_what_replaces_it(capsys):
    assert main(["decide", "paper-2", "--method", "combined"]) == 2
    said = "--method combined is gone; use --method betting (the default), or --method ptst for very small delta"
    assert said in capsys.readouterr().err


def test_options_of_another_method_are_refused(capsys):
    assert main(["decide", "paper-2", "--method", "betting", "--prior", "1"]) == 2
    assert "--prior belongs to --method ptst" in capsys.readouterr().err


def test_practically_equal_is_5(capsys):
    assert main(["decide", "paper-2", "--threshold", "0.2", "--indifference", "0.2", "--quiet"]) == 5
    assert "within" in capsys.readouterr().out


def test_evaluate(here, capsys):
    argv = ["evaluate", "paper-2", "--epsilon", "0.2", "--json", "--html", "value.html"]
    assert main(argv) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["interval"][1] - read["interval"][0] <= 0.4
    assert "How good is this policy?" in Path("value.html").read_text()
    assert main(["evaluate", "paper-2", "--epsilon", "0.01", "--max-samples", "100"]) == 3
    assert "not reached" in capsys.readouterr().out
    assert main(["evaluate", "paper-2", "--epsilon", "0"]) == 2


def test_compare(here, capsys):
    two = instances.paper(2)
    task = two.task
    other = policytest.Task(task.rewards, two.alternative_policy, task.initial, task.discount)
    save_model("a.json", task, two.kernel)
    save_model("b.json", other, two.kernel)
    assert main(["compare", "a.json", "b.json", "--html", "found.html"]) == 0
    assert "Policy A is better than policy B" in capsys.readouterr().out
    assert "Which policy is better?" in Path("found.html").read_text()
    assert main(["compare", "b.json", "a.json", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["answer"] == "below"
    assert main(["compare", "a.json", "paper-3"]) == 2
    assert "n_states" in capsys.readouterr().err
    assert main(["compare", "a.json", "b.json", "--max-samples", "5"]) == 3


def test_plan(here, capsys):
    assert main(["plan", "paper-2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1
    save_model("guessless.json", instances.paper(2).task)
    assert main(["plan", "guessless.json", "--threshold", "0"]) == 2
    assert "no kernel to plan with" in capsys.readouterr().err


def test_identify(capsys):
    assert main(["identify", "paper-2"]) == 0
    assert "This policy is optimal" in capsys.readouterr().out
    assert main(["identify", "paper-2", "--max-samples", "5"]) == 3


def test_demo(here, capsys):
    assert main(["demo", "--delta", "0.2"]) == 0
    out = capsys.readouterr().out
    assert "is the value of its policy above 0?" in out
    assert "T* kl(delta, 1-delta)" in out
    assert "policytest-demo.html" in out
    page = Path("policytest-demo.html").read_text(encoding="utf-8")
    assert "is the value of its policy above 0?" in page
    assert "<table" in page


def test_warmup(capsys):
    assert main(["warmup"]) == 0
    assert capsys.readouterr().out.startswith("Ready after ")


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_gives_what_is_known_and_exits_with_3(tmp_path):
    """The simulator asks for the interruption itself, so that no clock is involved."""
    (tmp_path / "interrupted.py").write_text(
        textwrap.dedent("""
            import os, signal
            import numpy as np
            drawn = 0

            def draw(states, actions, rng):
                global drawn
                drawn += len(states)
                if drawn > 500:
                    os.kill(os.getpid(), signal.SIGINT)
                return rng.integers(2, size=len(states))
        """),
        encoding="utf-8",
    )
    save_model(tmp_path / "model.json", hard_task(), threshold=0.0)
    argv = ["decide", "model.json", "--simulator", "interrupted:draw", "--checkpoint", "run.npz", "--quiet"]
    done = run_python("-m", "policytest", *argv, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "Undecided" in done.stdout
    assert "run.npz holds the run" in done.stderr
    assert (tmp_path / "run.npz").is_file()


def hard_task():
    """Its value is 0 whatever is drawn above, so that no test decides soon."""
    from policytest.mdp.task import Task

    return Task([[1.0], [-1.0]], [[1.0], [1.0]], [0.5, 0.5], 0.9)


def test_ctrl_c_before_the_test_has_begun(monkeypatch):
    monkeypatch.setattr("policytest.cli.commands.decide.find_task", lambda *_: signal.raise_signal(signal.SIGINT))
    assert main(["decide", "paper-2"]) == 3


@pytest.mark.parametrize("command", ["decide", "plan", "assess", "watch"])
def test_a_forgotten_threshold_is_refused(command, tmp_path, capsys):
    """The rewards are not negative: at a threshold of 0 every log would deploy."""
    task = policytest.Task([[0.0], [1.0]], [[1.0], [1.0]], [1.0, 0.0], 0.9)
    save_model(tmp_path / "task.json", task, np.full((2, 1, 2), 0.5))
    (tmp_path / "log.csv").write_text("s,a,s_next,order\n0,0,1,0\n1,0,0,1\n")
    more = [str(tmp_path / "log.csv")] if command in ("assess", "watch") else []
    assert main([command, str(tmp_path / "task.json"), *more]) == 2
    assert "no threshold: pass --threshold R" in capsys.readouterr().err


@pytest.mark.parametrize("call", [policytest.decide, policytest.assess, policytest.plan, policytest.stopping_times])
def test_a_threshold_is_required_in_python_too(call):
    two = instances.paper(2)
    with pytest.raises((TypeError, InputError), match="threshold"):
        call(two.task, TabularSimulator(two.kernel))


def test_a_sink_that_is_not_named_and_what_the_message_says_to_do(here, capsys):
    """Each of the two remedies, typed as the message has it, answers the question without a word."""
    text = """
states = ["new", "won", "lost"]
actions = ["go"]
initial = "new"
goal = ["won"]
policy = "uniform"
threshold = 0.3
[kernel.new]
go = { won = 0.5, lost = 0.5 }
[kernel.won]
go = { won = 1.0 }
[kernel.lost]
go = { lost = 1.0 }
"""
    Path("task.toml").write_text(text)
    ask = ["decide", "task.toml", "--max-samples", "2000", "--quiet"]
    assert main(ask) == 3
    said = capsys.readouterr().err
    assert "warning: state 'lost' has only been seen to lead to itself" in said
    for remedy in ("--support kernel", "--avoid lost"):
        assert remedy in said
        assert main([*ask, *remedy.split()]) == 0
        assert capsys.readouterr().err == ""
    assert main(["decide", "task.toml", "--support", "graph"]) == 2
    assert "kernel" in capsys.readouterr().err
    Path("task.toml").write_text(text[: text.index("[kernel.new]")])
    assert main([*ask, "--support", "kernel"]) == 2
    assert 'support is "kernel", but there is no kernel; add one' in capsys.readouterr().err


def test_the_support_of_an_environment_is_declared_by_the_same_option(capsys):
    pytest.importorskip("gymnasium")
    ask = ["decide", "gym:FrozenLake-v1", "--policy", "uniform", "--goal", "15", "--threshold", "0.5", "--json"]
    answers = []
    for asked in (["--support", "kernel"], []):
        assert main([*ask, "--quiet", *asked]) == 1
        answers.append(json.loads(capsys.readouterr().out)["samples"])
    ask[1] += "?known_support=true"
    assert main([*ask, "--quiet"]) == 1
    assert answers[0] == json.loads(capsys.readouterr().out)["samples"]
