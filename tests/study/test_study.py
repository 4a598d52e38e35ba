"""Studies: the same table whoever ran it when, nothing lost, nothing run twice, and wrong descriptions refused."""

from __future__ import annotations

import io
import json
import math
import os
import statistics
import textwrap

import numpy as np
import pytest

import policytest as pt
from builders import each, run_python
from paths import ROOT
from policytest import study
from policytest._base.errors import InputError
from policytest.cli import main
from policytest.cli.commands.study import FinishedRuns
from policytest.cli.progress import Bar, Lines, progress
from policytest.kl.boundaries import information
from policytest.study import cells, runner, spec
from policytest.study.store import Store
from policytest.study.table import COLUMNS, Study

LOCAL = {"method": "PTST", "solver": "projection-free"}
SMALL = {
    "title": "small",
    "instances": {"two": {"paper": 2}, "easy": {"random": {"seed": 3, "S": 3, "A": 2}, "gap": -0.8}},
    "methods": {"bets": {"method": "TDBetting"}, "KL": LOCAL},
    "deltas": [0.01, 0.2],
    "bounds": True,
    "seeds": 3,
}


def described(**changes):
    return {**SMALL, **changes}


def csv_of(found, folder):
    path = folder / "compared.csv"
    found.save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def plain():
    """The small study, one run after the other, in this thread."""
    return study.run(SMALL, jobs=1)


# ---------------------------------------------------------------- the table


def test_a_row_is_what_decide_says_on_the_same_random_numbers(plain):
    sweep = study.sweep(SMALL)
    assert len(plain.table) == 2 * 2 * 2 * 3
    for row in plain.table:
        trial = sweep.cells[study.Cell(row["instance"], row["method"], row["seed"])]
        problem = trial.problem
        verdict = pt.decide(
            problem.task,
            pt.TabularSimulator(problem.kernel),
            problem.threshold,
            row["delta"],
            trial.method,
            study.stream(problem.name, row["seed"]),
        )
        assert (row["samples"], row["answer"], row["certified"]) == (
            verdict.samples,
            verdict.answer,
            verdict.certified,
        )
        assert row["correct"] == (row["answer"] == ("above" if row["instance"] == "two" else "below"))
        assert not row["cut"]
        assert list(row) == list(COLUMNS)


def test_the_bounds_are_those_of_the_paper():
    """T* with uniform and with the best sampling, from two other solvers (SLSQP, exponentiated gradient)."""
    known = {"2x2": (31.356532, 20.3), "3x3": (244.863278, 173.4), "5x5": (62.799474, 51.8)}
    for problem in study.paper_sweep().problems:
        facts = runner._facts(problem, bounds=True)
        uniform, best = known[problem.name]
        assert facts["uniform_time"] == pytest.approx(uniform, rel=1e-6)
        assert facts["best_time"] == pytest.approx(best, rel=3e-3)


def test_the_information_of_an_answer_is_a_divergence():
    for delta in (0.3, 0.05, 1e-15):
        kl = delta * math.log(delta / (1 - delta)) + (1 - delta) * math.log((1 - delta) / delta)
        assert information(-math.log(delta)) == pytest.approx(kl, rel=1e-12)


def test_means_and_standard_errors(plain):
    for mean in plain.means:
        mine = [
            row["samples"]
            for row in plain.table
            if all(row[name] == mean[name] for name in ("instance", "method", "delta"))
        ]
        assert mean["runs"] == len(mine) == 3
        assert mean["mean"] == pytest.approx(statistics.mean(mine))
        assert mean["standard_error"] == pytest.approx(statistics.stdev(mine) / 3**0.5)
    assert plain.complete
    assert all((shares == 0).all() for shares in plain.errors.values())


def test_cut_runs_are_marked_and_wrong_answers_counted():
    found = study.run(described(max_samples=10, seeds=2), jobs=1)
    assert all(row["cut"] and row["answer"] is None and row["correct"] is None for row in found.table)
    assert "> 10 (0)" in str(found)
    wrong = Study("x", [{**row, "answer": "below", "correct": False, "cut": False} for row in found.table])
    assert wrong.errors["two", "KL"].tolist() == [1.0, 1.0]
    assert "Wrong answers of KL: 8 of 8" in str(wrong)


def test_at_the_threshold_every_answer_is_an_error():
    two = pt.instances.paper(2)
    problem = cells.Problem("edge", two.task, two.kernel, pt.value(two.task, two.kernel))
    assert problem.side is None
    assert runner._facts(problem, bounds=True)["best_time"] == math.inf


def test_shown_as_text_html_and_json(plain):
    assert "two: value 0.209233, threshold 0" in str(plain)
    assert "lower bound, uniform sampling" in str(plain)
    assert "not certified" in str(plain)
    assert "<table" in plain._repr_html_()
    told = json.loads(plain.to_json())
    assert told["complete"]
    assert len(told["means"]) == 8
    odd = Study("<b>", [{**plain.table[0], "method": "<script>\x1b"}])
    assert "<script>" not in odd._repr_html_()
    assert "\x1b" not in str(odd)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_saved_table_is_read_back_exactly(plain, tmp_path, ending):
    odd = Study("x", [*plain.table, {**plain.table[0], "answer": None, "correct": None, "best_bound": math.inf}])
    odd.save(tmp_path / f"t{ending}")
    assert study.load(tmp_path / f"t{ending}").table == odd.table


def test_other_forms_of_the_table(plain):
    frame = plain.to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["samples"].tolist() == plain.column("samples").tolist()
    assert plain.to_arrow().num_rows == len(plain.table)
    part = plain.only(instances=["two"], methods=["KL"])
    assert {(row["instance"], row["method"]) for row in part.table} == {("two", "KL")}
    for wrong in (lambda: plain.only(methods=["nobody"]), lambda: plain.column("time"), lambda: plain.save("t.xls")):
        with pytest.raises(InputError, match=r"nobody|no column 'time'|format is unknown"):
            wrong()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", b"a,b\n1,2\n", "not the table of a study"),
        ("t.csv", (",".join(COLUMNS) + "\nx,y,z\n").encode(), "line 2"),
        ("t.csv", b"\xff\xfe\x00", "cannot be read"),
        ("t.parquet", b"PAR1nonsense", "cannot be read"),
        ("t.txt", b"", "format is unknown"),
        ("missing.csv", None, "no file"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        study.load(tmp_path / name)


# ---------------------------------------------------------------- whoever ran it when


def test_random_numbers_depend_on_instance_and_seed_alone():
    draws = {
        (name, seed): study.stream(name, seed).random() for name in ("two", "tw", "zwei-ü") for seed in (0, 1, 2**40)
    }
    assert len(set(draws.values())) == 9
    assert study.stream("two", 1).random() == draws["two", 1]


def test_methods_that_sample_alike_see_the_same_draws():
    """Both rules sample uniformly; on the same path the exact rule with the larger boundary stops later, always."""
    found = study.run(
        described(
            instances=["paper-2"],
            seeds=8,
            methods={"mixture": {**LOCAL, "boundary": 1.0}, "paper": {**LOCAL, "boundary": "paper"}},
        ),
        jobs=1,
    )
    samples = {name: found.only(methods=[name]).column("samples") for name in ("mixture", "paper")}
    assert (samples["mixture"] < samples["paper"]).all()


def test_threads_give_the_same_table(plain, tmp_path):
    assert csv_of(study.run(SMALL, jobs=3), tmp_path) == csv_of(plain, tmp_path)


def test_more_seeds_may_be_added_later(plain, tmp_path):
    study.run(described(seeds=[1]), tmp_path / "kept", jobs=1)
    run_now = []
    found = study.run(SMALL, tmp_path / "kept", jobs=1, progress=lambda step: run_now.append(step.cell))
    assert csv_of(found, tmp_path) == csv_of(plain, tmp_path)
    assert {cell.seed for cell in run_now[1:]} == {0, 2}
    assert (tmp_path / "kept" / "table.csv").read_bytes() == csv_of(plain, tmp_path)
    assert study.load(tmp_path / "kept").table == study.load(tmp_path / "kept" / "table.parquet").table == plain.table
    assert {row["seed"] for row in found.seconds} == {0, 1, 2}


def test_a_killed_study_goes_on_and_ends_with_the_same_table(plain, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, signal
            from policytest import study

            def progress(step):
                if step.done == 5:
                    os.kill(os.getpid(), signal.SIGKILL)

            study.run({SMALL!r}, {str(tmp_path / "kept")!r}, jobs=2, progress=progress)
            """
        )
    )
    ended = run_python(str(script))
    assert ended.returncode == -9, ended.stderr
    journal = tmp_path / "kept" / "cells.jsonl"
    before = journal.read_bytes()
    assert before.count(b"\n") == 5
    with journal.open("ab") as file:
        file.write(b'{"cell": ["two", "KL", 2], "samp')  # killed in the middle of a line
    found = study.run(SMALL, tmp_path / "kept", jobs=2)
    assert csv_of(found, tmp_path) == csv_of(plain, tmp_path)
    after = journal.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == 12  # each run was made once


def test_a_dask_cluster_gives_the_same_table(plain, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        steps = []
        found = study.run(SMALL, tmp_path / "kept", cluster=cluster.scheduler_address, progress=steps.append)
        assert csv_of(found, tmp_path) == csv_of(plain, tmp_path)
        assert [step.done for step in steps] == list(range(13))


def test_without_a_cluster_there_is_an_error(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(runner, "CONNECT", 0.2)
    with pytest.raises(InputError, match="no Dask scheduler was found"):
        study.run(SMALL, cluster="tcp://0.0.0.0:9")
    with pytest.raises(InputError, match="cluster is empty"):
        study.run(SMALL, cluster=" ")


# ---------------------------------------------------------------- interruptions and failures


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_what_is_finished(plain, tmp_path, jobs):
    def progress(step):
        if step.done == 4:
            raise KeyboardInterrupt

    part = study.run(SMALL, tmp_path / "kept", jobs=jobs, progress=progress)
    assert part.missing == 8
    assert not part.complete
    assert "Interrupted: 8 runs not made." in str(part)
    assert not (tmp_path / "kept" / "table.csv").exists()
    with pytest.raises(InputError, match="writes its table when it is finished"):
        study.load(tmp_path / "kept")
    again = []
    found = study.run(SMALL, tmp_path / "kept", jobs=jobs, progress=again.append)
    assert again[0].done == 4
    assert len(again) == 9
    assert csv_of(found, tmp_path) == csv_of(plain, tmp_path)


class Fragile:
    """Fails on some random numbers."""

    broken = True

    def start(self, task, sim, threshold, rng):
        if Fragile.broken and rng.bit_generator.seed_seq.entropy[0] == 1:
            raise RuntimeError("no luck\nat all")
        return pt.TDBetting().start(task, sim, threshold, rng)

    def replay(self, task, threshold, source):
        raise NotImplementedError

    def describe(self):
        return "fragile"


def test_a_failure_is_recorded_and_the_others_go_on(tmp_path, monkeypatch):
    sweep = described(methods={"fragile": Fragile(), "bets": {"method": "TDBetting"}})
    found = study.run(sweep, tmp_path / "kept", jobs=2)
    assert [(entry["instance"], entry["seed"]) for entry in found.failures] == [("two", 1), ("easy", 1)]
    assert len(found.table) == 2 * (12 - 2)
    assert not found.complete
    assert "Failed: fragile on two, seed 1: RuntimeError: no luck at all" in str(found)
    assert json.loads((tmp_path / "kept" / "summary.json").read_text())["failures"]
    monkeypatch.setattr(Fragile, "broken", False)
    steps = []
    found = study.run(sweep, tmp_path / "kept", jobs=2, progress=steps.append)
    assert found.complete
    assert len(steps) == 3  # only the failed ones were tried again


def test_another_study_is_refused_and_says_why(tmp_path):
    place = tmp_path / "kept"
    small = described(instances=["paper-2"], methods=["TDBetting"], deltas=[0.2], seeds=1)
    study.run(small, place, jobs=1)
    for changes, words in (
        ({"deltas": [0.1]}, r"deltas \[0.2\], not \[0.1\]"),
        ({"methods": ["TDBetting", "PTST"]}, "methods"),
        ({"instances": ["paper-3"]}, "instances"),
        ({"threshold": 0.1}, "other settings"),
        ({"max_samples": 10**6}, "other settings"),
        ({"methods": {"TDBetting": {"method": "PTST"}}}, "other settings"),
    ):
        with pytest.raises(InputError, match=f"holds another study.*{words}.*choose a new folder"):
            study.run({**small, **changes}, place, jobs=1)
    (place / "study.json").write_text("{}")
    with pytest.raises(InputError, match="not written by a study"):
        study.run(small, place, jobs=1)


def test_places_that_cannot_hold_a_study(tmp_path):
    small = study.sweep(described(instances=["paper-2"], methods=["TDBetting"], seeds=1))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "table.csv").write_text("mine")
    (tmp_path / "file").write_text("")
    for place, words in (("full", "not empty"), ("file", "is a file"), ("a/b", "create it first")):
        with pytest.raises(InputError, match=words):
            study.run(small, tmp_path / place, jobs=1)
    assert (tmp_path / "full" / "table.csv").read_text() == "mine"
    with Store(tmp_path / "used", small), pytest.raises(InputError, match="in use"):
        study.run(small, tmp_path / "used", jobs=1)
    (tmp_path / "used" / "cells.jsonl").write_text('{"cell": ["paper-2", "TDBetting", 0]}\n')
    with pytest.raises(InputError, match="line 1 is damaged"):
        study.run(small, tmp_path / "used", jobs=1)


def test_a_full_disk_is_told_with_the_place(tmp_path, monkeypatch):
    """What was written before is kept; closing the journal must not hide the reason."""
    small = study.sweep(described(instances=["paper-2"], methods=["TDBetting"], seeds=1))

    def full(_):
        raise OSError(28, "No space left on device")

    words = r"cells.jsonl: cannot be written \(No space left on device\).*goes on from"
    with Store(tmp_path / "full", small) as store:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=words):
            store.add({"cell": ["paper-2", "TDBetting", 0]})


# ---------------------------------------------------------------- descriptions


TOML = """
title = "mine"
deltas = [0.1]
seeds = [4, 2]
threshold = 0.05
max_samples = 1000
[instances]
two = "paper-2"
file = {file = "model.json"}
[instances.random]
random = {seed = 1, S = 3, A = 2}
threshold = -1
[methods]
bets = "betting"
[methods.ptst]
method = "PTST"
boundary = [0.5, 1.0]
solver = {name = "certified", gap = 0.02}
allocation = "adaptive"
instances = ["file"]
max_samples = 50
[methods.two]
method = "KLB-TS"
policies = 2
boundary = "paper"
instances = ["two"]
"""


def test_a_study_from_a_file(tmp_path):
    two = pt.instances.paper(2)
    pt.sources.save_model(tmp_path / "model.json", two.task, two.kernel, threshold=0.2)
    (tmp_path / "mine.toml").write_text(TOML)
    sweep = study.read(tmp_path / "mine.toml")
    assert [(t.problem.name, t.name, t.max_samples) for t in sweep.trials] == [
        ("two", "bets", 1000),
        ("two", "two", 1000),
        ("file", "bets", 1000),
        ("file", "ptst", 50),
        ("random", "bets", 1000),
    ]
    assert [problem.threshold for problem in sweep.problems] == [0.05, 0.2, -1.0]
    assert (sweep.seeds, sweep.deltas, sweep.title) == ((4, 2), (0.1,), "mine")
    ptst, klbts = sweep.trials[3].method, sweep.trials[1].method
    assert (ptst.boundary.prior, ptst.solver.gap, type(ptst.allocation)) == ((0.5, 1.0), 0.02, pt.Adaptive)
    assert np.array_equal(klbts.alternative, two.alternative_policy)
    quick = spec.quickly(sweep)
    assert {trial.max_samples for trial in quick.trials} == {1000, 50}
    assert spec.with_seeds(sweep, 3).fingerprint == sweep.fingerprint


def test_instances_and_methods_may_be_objects():
    two = pt.instances.paper(2)
    sweep = study.sweep(
        described(instances={"mine": two}, methods={"KL": pt.PTST(), "optimal": {**LOCAL, "allocation": "optimal"}})
    )
    assert sweep.problems[0].task is two.task
    assert sweep.problems[0].alternative is not None
    assert (
        sweep.fingerprint
        == study.sweep(
            described(
                instances={"mine": {"paper": 2}},
                methods={"KL": {"method": "ptst"}, "optimal": {**LOCAL, "allocation": "optimal"}},
            )
        ).fingerprint
    )


@each(
    ("changes", "words"),
    [
        ({"delta": [0.1]}, "unknown key 'delta'; did you mean 'deltas'"),
        ({"deltas": []}, "deltas is empty"),
        ({"deltas": [0.1, 0]}, r"deltas\[1\]: delta is 0"),
        ({"deltas": [math.nan]}, r"deltas\[0\]"),
        ({"deltas": [0.1, 0.1]}, "deltas has 0.1 twice"),
        ({"deltas": "0.1"}, "deltas is '0.1'"),
        ({"seeds": 0}, "seeds is 0; at least one"),
        ({"seeds": True}, "seeds is True"),
        ({"seeds": [1, -1]}, r"seeds\[1\] is -1"),
        ({"seeds": [1.5]}, r"seeds\[0\] is 1.5"),
        ({"seeds": [1, 1]}, "seeds has 1 twice"),
        ({"seeds": 10**7}, "at most 1,000,000"),
        ({"bounds": 1}, "bounds is 1; it must be true or false"),
        ({"title": ""}, "a name is 1 to 200"),
        ({"max_samples": -1}, "max_samples is -1"),
        ({"max_samples": 2.5}, "max_samples is 2.5"),
        ({"instances": []}, "instances is empty"),
        ({"instances": {}}, "the sweep is empty"),
        ({"instances": "paper-2"}, "pass a table of them, or a list"),
        ({"instances": ["paper-2", "paper-2"]}, "has 'paper-2' twice"),
        ({"instances": [2]}, "instances has the entry 2"),
        ({"instances": ["paper-4"]}, "there is no 'paper-4'; did you mean"),
        ({"instances": ["nowhere.json"]}, "nowhere.json.*cannot be read|nowhere.json"),
        ({"instances": {"x": {}}}, "instances.x has no source"),
        ({"instances": {"x": {"paper": 2, "file": "y"}}}, "paper and file"),
        ({"instances": {"x": {"paper": 4}}}, "instances.x: n is 4"),
        ({"instances": {"x": {"paper": "2"}}}, "paper is '2'"),
        ({"instances": {"x": {"papers": 2}}}, "did you mean 'paper'"),
        ({"instances": {"x": {"paper": 2, "threshold": math.inf}}}, "instances.x: threshold"),
        ({"instances": {"x": {"paper": 2, "threshold": 1, "gap": 1}}}, "a threshold and a gap"),
        ({"instances": {"x": {"paper": 2, "alternative": [[1.0]]}}}, "alternative has shape"),
        ({"instances": {"x": {"random": 3}}}, "pass a table such as"),
        ({"instances": {"x": {"random": {"S": 3, "A": 2}}}}, "random lacks seed; add it"),
        ({"instances": {"x": {"random": {"seed": -1, "S": 3, "A": 2}}}}, "seed is -1"),
        ({"instances": {"x": {"random": {"seed": 1, "S": 0, "A": 2}}}}, "S is 0"),
        ({"instances": {"x": {"random": {"seed": 1, "S": 3, "A": 2, "gamma": 0.5}}}}, "unknown key 'gamma'"),
        ({"instances": {"x": {"grid_world": {"width": 2, "height": 2, "slip": 3}}}}, "slip is 3"),
        ({"instances": {"x\n": {"paper": 2}}}, "printable"),
        ({"instances": {"x": 3}}, "instances.x is 3"),
        ({"methods": ["PTSD"]}, "there is no 'PTSD'; did you mean 'PTST'"),
        ({"methods": {"x": {"method": 3}}}, "methods.x.method: there is no 3"),
        ({"methods": {"x": 3}}, "methods.x is 3"),
        ({"methods": {"x": pt.PTST}}, "methods.x is <class"),
        ({"methods": {"x": {"method": "PTST", "draws": 3}}}, "unknown key 'draws'"),
        ({"methods": {"x": {"method": "PTST", "boundary": "papers"}}}, "boundary is 'papers'"),
        ({"methods": {"x": {"method": "PTST", "boundary": -1}}}, "prior is -1|prior"),
        ({"methods": {"x": {"method": "PTST", "solver": "exact"}}}, "solver: there is no 'exact'"),
        ({"methods": {"x": {"method": "PTST", "solver": {"name": "certified", "gaps": 1}}}}, "did you mean 'gap'"),
        ({"methods": {"x": {"method": "PTST", "allocation": "even"}}}, "there is no 'even'"),
        ({"methods": {"x": {"method": "PTST", "allocation": [[1.0]]}}}, "allocation has shape"),
        ({"methods": {"x": {"method": "PTST", "instances": ["three"]}}}, "there is no 'three'"),
        ({"methods": {"x": {"method": "PTST", "instances": "two"}}}, "pass a list of names"),
        ({"methods": {"x": {"method": "PTST", "instances": []}}}, "the sweep is empty"),
        ({"methods": {"x": {"method": "PTST", "instances": ["two", "two"]}}}, "appears twice"),
        ({"methods": {"x": {"method": "KLBTS", "policies": 2}}}, "instances.easy has none"),
        ({"methods": {"x": {"method": "MonteCarlo", "kind": "luck"}}}, "methods.x: kind is 'luck'"),
        ({"methods": {"x": {"method": "Combined"}}}, r"Combined is gone; write TDBetting\(\)"),
    ],
)
def test_descriptions_that_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        study.sweep(described(**changes))


def test_what_is_no_description(tmp_path):
    broken, odd = tmp_path / "broken.toml", tmp_path / "odd.toml"
    broken.write_text("deltas = [")
    odd.write_bytes(b"\xff\xfe")
    for given, words in (
        ({}, "the key instances is missing"),
        (3, "spec is a int"),
        (broken, "not valid TOML"),
        (odd, "not UTF-8"),
        (tmp_path / "missing.toml", "cannot be read"),
    ):
        with pytest.raises(InputError, match=words):
            study.run(given)
    with pytest.raises(InputError, match="jobs is 0"):
        study.run(SMALL, jobs=0)


# ---------------------------------------------------------------- progress and the command


def steps(total, failed=()):
    for done in range(total + 1):
        cell = study.Cell("two", "bets", done) if done else None
        yield study.Step(done, total, cell, "RuntimeError: no" if done in failed else None)


def test_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    shown = FinishedRuns(progress(stream))
    for step in steps(200, failed=range(5, 30)):
        shown(step)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "0 of 200 runs"
    assert lines[-1] == "200 of 200 runs"
    assert sum("of 200 runs" in line for line in lines) <= 12
    assert sum(line.startswith("failed: bets on two") for line in lines) == 10


def test_one_bar_on_a_terminal():
    from rich.console import Console

    stream = io.StringIO()
    with Bar(Console(file=stream, force_terminal=True, width=100)) as bar:
        shown = FinishedRuns(bar)
        for step in steps(40, failed=[7]):
            shown(step)
    assert "failed: bets on two, seed 7: RuntimeError: no" in stream.getvalue()
    assert "40/40" in stream.getvalue()


def test_a_closed_stream_stops_nothing():
    stream = io.StringIO()
    shown = FinishedRuns(Lines(stream))
    stream.close()
    for step in steps(3, failed=[1]):
        shown(step)
    for step in steps(3):
        FinishedRuns(progress(None))(step)


def test_the_example_runs_from_the_command_line(tmp_path, capsys):
    example, out = str(ROOT / "examples" / "studies" / "small.toml"), tmp_path / "kept"
    assert main(["study", example, "--out", str(out), "--quick", "--json"]) == 0
    told = capsys.readouterr()
    means = json.loads(told.out)["means"]
    assert {mean["instance"] for mean in means} == {"paper 2x2", "customers", "Garnet"}
    assert all(mean["runs"] == 2 for mean in means)
    assert "16 of 16 runs" in told.err
    assert main(["study", example, "--out", str(out), "--quick", "--quiet"]) == 0  # all there
    told = capsys.readouterr()
    assert "paper 2x2: value 0.209233" in told.out
    assert told.err == ""
    assert main(["study", example, "--out", str(out)]) == 2
    assert "holds another study" in capsys.readouterr().err


def test_the_exit_code_says_what_is_missing(tmp_path, capsys, monkeypatch):
    (tmp_path / "s.toml").write_text('deltas = [0.2]\ninstances = ["paper-2"]\nmethods = ["TDBetting"]\nseeds = 2\n')
    arguments = ["study", str(tmp_path / "s.toml"), "--out", str(tmp_path / "kept"), "--jobs", "1"]
    real = runner.stopping_times

    def failing(*arguments):
        raise MemoryError("too much")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "stopping_times", failing)
    assert main(arguments) == 3
    assert "2 runs failed; the same command tries them again" in capsys.readouterr().err
    monkeypatch.setattr(runner, "stopping_times", interrupted)
    assert main(arguments) == 3
    assert "the same command goes on from there" in capsys.readouterr().err
    monkeypatch.setattr(runner, "stopping_times", real)
    assert main(arguments) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["papers"], "is not a study"),
        (["missing.toml"], "cannot be read"),
        (["missing.toml", "--heuristic"], "--heuristic belongs to"),
        (["paper", "--figure", "f.gif"], "use a name that ends in .svg"),
        (["paper", "--jobs", "0"], "--jobs"),
    ],
)
def test_wrong_commands(arguments, words, capsys):
    assert main(["study", *arguments]) == 2
    assert words in capsys.readouterr().err
