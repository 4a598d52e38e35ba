"""States that are cells of number columns: what a task file says, and what logs make of it."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

import policytest as pt
from policytest.cli import main
from policytest.questions.watch import Watch
from policytest.sources import discretise, load_model, logs, save_model
from policytest.sources.environments.bins import CELLS_ARE_MARKOV
from source_builders import assert_model_refused, assert_refused, put, triples

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

TASK = """
actions = ["none", "insulin"]
discount = 0.9
threshold = 2.0
initial = "high"
policy = ["none", "none", "insulin"]
[bins.glucose]
edges = [70, 140]
names = ["low", "normal", "high"]
[rewards]
normal = 1
"""
VISITS = """patient,day,glucose,a
1,1,180,insulin
2,1,69.9,none
1,2,139,none
2,2,70,none
1,3,140,insulin
"""
COLUMNS = {"episode": "patient", "order": "day"}


def model(folder, text=TASK):
    return load_model(put(folder / "task.toml", text))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "pandas", "polars", "duckdb"])
def test_numbers_become_cells(tmp_path, kind):
    found, data, path = model(tmp_path), pd.read_csv(io.StringIO(VISITS)), tmp_path / f"log.{kind}"
    assert found.task.states == found.bins.states == ("low", "normal", "high")
    assert found.task.assumptions == (CELLS_ARE_MARKOV,)
    if kind == "csv":
        put(path, VISITS)
    elif kind == "jsonl":
        data.to_json(path, orient="records", lines=True)
    elif kind == "parquet":
        data.to_parquet(path)
    elif kind == "polars":
        data = pytest.importorskip("polars").from_pandas(data).lazy()
    elif kind == "duckdb":
        data = pytest.importorskip("duckdb").connect().from_df(data)
    data = path if path.exists() else data
    log = logs(data, found.task, columns=COLUMNS, bins=found.bins)
    assert triples(log.counts) == {(2, 1, 1): 1, (0, 0, 1): 1, (1, 0, 2): 1}
    assert log.left_out[0].examples == (("'high'", 1), ("'normal'", 1))
    assert log.notes[0] == "states are cells of glucose: the answer is about the Markov model of the cells"
    verdict = pt.assess(found.task, data, threshold=100.0, columns=COLUMNS, bins=found.bins)
    assert verdict.answer == "below"


def test_several_columns_make_combinations(tmp_path):
    """The last column runs fastest; cells without names are called by their ends."""
    text = TASK.replace('initial = "high"', 'initial = "low, age (-inf, 65.0)"').replace("normal = 1", "")
    text = text.replace('policy = ["none", "none", "insulin"]', 'policy = "uniform"')
    found = model(tmp_path, text.replace("[rewards]", "[bins.age]\nedges = [65]\n[rewards]"))
    assert found.task.states[:3] == ("low, age (-inf, 65.0)", "low, age [65.0, inf)", "normal, age (-inf, 65.0)")
    rows = {"glucose": [100.0, 60.0], "age": [70, 70], "a": "none", "order": [1, 2], "episode": 1}
    log = logs(pd.DataFrame(rows), found.task, bins=found.bins)
    assert triples(log.counts) == {(3, 0, 1): 1}


@pytest.mark.parametrize("kind", ["csv", "pandas"])
def test_a_column_of_labels_names_the_states_that_are_no_cells(tmp_path, kind):
    """Where a label is given it counts, so that episodes can end."""
    text = TASK.replace("actions =", 'states = ["low", "normal", "high", "home"]\nterminal = ["home"]\nactions =')
    found = model(tmp_path, text)
    lines = ["patient,day,glucose,a,status", *(f"{line}," for line in VISITS.splitlines()[1:-1]), "1,3,,,home", ""]
    path = put(tmp_path / "log.csv", "\n".join(lines))
    data = path if kind == "csv" else pd.read_csv(path)
    log = logs(data, found.task, columns={**COLUMNS, "s": "status"}, bins=found.bins)
    assert triples(log.counts) == {(2, 1, 1): 1, (0, 0, 1): 1, (1, 0, 3): 1}


def test_states_that_have_no_number_follow_the_cells(tmp_path):
    """They are named alone; with a name for every cell they come after these, as before."""
    ends = 'terminal = ["home", "dead", "gone"]\nactions ='
    alone = model(tmp_path, TASK.replace("actions =", f'states = ["home", "dead", "gone"]\n{ends}'))  # as many as cells
    assert alone.task.states == ("low", "normal", "high", "home", "dead", "gone")
    assert alone.task.terminal == ("home", "dead", "gone")
    few = model(tmp_path, TASK.replace("actions =", 'states = ["home"]\nterminal = ["home"]\nactions ='))
    assert few.task.states == ("low", "normal", "high", "home")
    named = TASK.replace("actions =", 'states = ["a", "b", "c", "home"]\nterminal = ["home"]\nactions =')
    named = named.replace('initial = "high"', 'initial = "c"').replace("normal = 1", "b = 1")
    assert model(tmp_path, named).task.states == ("a", "b", "c", "home")


def test_what_is_missing_is_told_of_its_column(tmp_path):
    """Of several columns only the one that lacks numbers; of the next state that it is the next row's."""
    text = TASK.replace('initial = "high"', 'initial = "low, age (-inf, 65.0)"').replace("normal = 1", "")
    text = text.replace('policy = ["none", "none", "insulin"]', 'policy = "uniform"')
    found = model(tmp_path, text.replace("[rewards]", "[bins.age]\nedges = [65]\n[rewards]"))
    rows = pd.DataFrame({"glucose": [100.0, 60.0, 90.0], "age": [70, None, 70.0], "a": "none", "order": [1, 2, 3]})
    rows = rows.assign(episode=1)
    words = "no number in column age (1 row), and 1 row is followed by a row without a state; fix the data"
    for data in (rows, put(tmp_path / "log.csv", rows.to_csv(index=False))):
        assert_refused(lambda: logs(data, found.task, bins=found.bins), words)  # noqa: B023
    both = model(tmp_path, TASK.replace("edges = [70, 140]", 'edges = [70, 140]\nnext = "later"'))
    now = pd.DataFrame({"glucose": [180.0, 90.0], "a": "none", "later": [None, 60.0]})
    assert_refused(lambda: logs(now, both.task, bins=both.bins), "no number in column later (1 row); fix the data")


@pytest.mark.parametrize("kind", ["csv", "pandas"])
def test_the_next_number_may_stand_in_its_own_column(tmp_path, kind):
    found = model(tmp_path, TASK.replace("edges = [70, 140]", 'edges = [70, 140]\nnext = "later"'))
    path = put(tmp_path / "log.csv", "glucose,a,later\n180,insulin,139\n60,none,70\n")
    log = logs(path if kind == "csv" else pd.read_csv(path), found.task, bins=found.bins)
    assert triples(log.counts) == {(2, 1, 1): 1, (0, 0, 1): 1}
    assert not log.left_out


def test_what_bins_cannot_read(tmp_path):
    found = model(tmp_path)
    read = lambda data, **columns: logs(data, found.task, columns={**COLUMNS, **columns}, bins=found.bins)  # noqa: E731
    missing = put(tmp_path / "missing.csv", VISITS.replace("139", "n/a"))
    assert_refused(lambda: read(missing), "no number in column glucose (1 row)")
    assert_refused(lambda: read(put(tmp_path / "a.csv", "patient,day,a\n1,1,none\n")), "no column 'glucose'")
    data = pd.read_csv(io.StringIO(VISITS))
    assert_refused(lambda: read(data.assign(glucose="high")), "bins are for numbers")
    assert_refused(lambda: read(data.assign(s_next="low")), "add next = ...", '{"s_next": None}')
    for change, words in (
        (("edges = [70, 140]", "edges = [140, 70]"), "bins.glucose.edges is [140, 70]; pass increasing numbers"),
        (('names = ["low", "normal", "high"]', 'names = ["low"]'), "bins.glucose.names has 1 names, expected 3"),
        (("edges = [70, 140]", "cuts = [70]"), "bins.glucose has the keys edges"),
        (("actions =", 'states = ["low"]\nactions ='), "states has 'low', which is a cell of bins"),
    ):
        assert_model_refused(put(tmp_path / "bad.toml", TASK.replace(*change)), words)


@pytest.mark.parametrize("name", ["model.toml", "model.json", "model.npz"])
def test_bins_are_written_to_task_files_and_read_back(tmp_path, name):
    """With names and without, in columns that TOML must quote, and with further states; the log reads the same."""
    one = TASK.replace("actions =", 'states = ["low", "normal", "high", "home"]\nterminal = ["home"]\nactions =')
    two = TASK.replace('initial = "high"', 'initial = "low, age at [1.] (-inf, 65.0)"').replace("normal = 1", "")
    two = two.replace('policy = ["none", "none", "insulin"]', 'policy = "uniform"')
    two = two.replace("[rewards]", '[bins."age at [1.]"]\nedges = [65]\n[rewards]')
    both = TASK.replace("edges = [70, 140]", 'edges = [70, 140.25]\nnext = "later"')
    for text in (TASK, one, two, both, TASK.replace('"high"', '"log"', 1)):
        found = model(tmp_path, text)
        save_model(tmp_path / name, found.task, threshold=found.threshold, bins=found.bins)
        again = load_model(tmp_path / name)
        assert [edge.tolist() for edge in again.bins.edges] == [edge.tolist() for edge in found.bins.edges]
        for part in ("names", "states", "following", "called", "outside", "assumptions"):
            assert getattr(again.bins, part) == getattr(found.bins, part), part
        for part in ("states", "actions", "terminal", "assumptions", "start"):
            assert getattr(again.task, part) == getattr(found.task, part), part
        assert again.threshold == 2.0
    path = put(tmp_path / "log.csv", VISITS)
    read = [logs(path, one.task, columns=COLUMNS, bins=one.bins) for one in (found, again)]
    assert triples(read[0].counts) == triples(read[1].counts) != {}


def test_bins_that_no_file_can_hold(tmp_path):
    found = model(tmp_path)
    bare = pt.Task(found.task.rewards, found.task.policy, found.task.initial, 0.9)
    assert_refused(lambda: save_model(tmp_path / "a.json", bare, bins=found.bins), "states=bins.states")
    with pytest.warns(pt.AssumptionWarning):
        unnamed = discretise([0.0, 1.0, 2.0, 3.0])
    assert_refused(lambda: save_model(tmp_path / "a.json", found.task, bins=unnamed), "names=[...]")
    assert not (tmp_path / "a.json").exists()
    with pytest.warns(pt.AssumptionWarning):  # the ends of the outermost cells are open either way
        named = discretise([0.0, 1.0, 2.0, 3.0], names=["glucose"])
    save_model(tmp_path / "a.json", found.task, bins=named)
    points = [-5.0, 0.5, 1.0, 1.5, 2.0, 9.0]
    assert load_model(tmp_path / "a.json").bins(points).tolist() == named(points).tolist()
    content = json.loads((tmp_path / "a.json").read_text())
    np.savez(
        tmp_path / "bad.npz", **{key: content[key] for key in ("rewards", "policy", "initial", "discount")}, bins="[]"
    )
    assert_model_refused(tmp_path / "bad.npz", "bins is not a JSON object")


def test_the_command_line_says_that_it_is_about_cells(tmp_path, capsys):
    rng, rows = np.random.default_rng(0), []
    for patient in range(150):
        level = 180.0
        for day in range(12):
            action = "insulin" if rng.random() < (0.8 if level >= 140 else 0.2) else "none"
            rows.append((patient, day, round(level, 1), action))
            level = rng.normal(110 if action == "insulin" or level < 140 else 170, 15)
    frame = pd.DataFrame(rows, columns=["patient", "day", "glucose", "a"])
    frame.to_csv(tmp_path / "log.csv", index=False)
    put(tmp_path / "task.toml", TASK)
    command = ["assess", str(tmp_path / "task.toml"), str(tmp_path / "log.csv")]
    command += ["--column", "episode=patient", "--column", "order=day"]
    assert main(command) == 0
    assert f"proved, if {CELLS_ARE_MARKOV}" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["assumptions"] == [CELLS_ARE_MARKOV]
    assert "cells of glucose" in said["log"]["notes"][0]
    assert main(["watch", *command[1:], "--no-follow"]) == 0
    assert f"proved, if {CELLS_ARE_MARKOV}" in capsys.readouterr().out


# ---------------------------------------------------------------- are the cells Markov?

STAGES = """
actions = ["wait", "skip"]
discount = 0.9
threshold = 1.0
initial = "early"
policy = ["wait", "wait"]
[bins.level]
edges = [0.5]
names = ["early", "late"]
[rewards]
late = 1
"""
OF_STAGES = {"episode": "patient", "order": "day"}


def stages(markov, rows=600, seed=0):
    """Levels 0.1, 0.3 and 0.9 in turn, of which the cells tell two apart; or a chain of these two cells, as often."""
    rng = np.random.default_rng(seed)
    if markov:
        later = {0: 0.5, 1: 0.0}
        s = [0]
        while len(s) <= rows:
            s.append(int(rng.random() < later[s[-1]]))
        return np.array([0.1, 0.9])[s]
    return np.array([0.1, 0.3, 0.9])[np.cumsum(rng.random(rows + 1) < 0.95) % 3]


def log_of_stages(levels):
    lines = [f"{k % 2},{k // 2},{level},wait" for k, level in enumerate(np.repeat(levels, 2))]  # two patients at once
    return "\n".join(["patient,day,level,a", *lines, ""])


@pytest.fixture
def staged(tmp_path):
    def call(markov):
        task, log = put(tmp_path / "stages.toml", STAGES), put(tmp_path / "stages.csv", log_of_stages(stages(markov)))
        return str(task), str(log)

    return call


@pytest.mark.parametrize("markov", [True, False])
def test_an_answer_about_cells_is_certified_only_if_the_log_does_not_refute_them(staged, capsys, markov, tmp_path):
    task, log = staged(markov)
    page, options = tmp_path / "page.html", ("--column", "episode=patient", "--column", "order=day", "--skip", "last")
    code = main(["assess", task, log, *options, "--html", str(page)])
    out = capsys.readouterr().out
    assert code == (0 if markov else 3)
    first = "The value is above the threshold (certified)"
    if not markov:
        first = "No reliable answer: the data refute that the cells are Markov (not certified: the value is above the "
    assert out.startswith(first)
    assert ('<body class="yes">' in page.read_text()) is markov
    assert main(["assess", task, log, *options, "--accept-uncertified"]) == (0 if markov else 3)
    capsys.readouterr()
    assert main(["assess", task, log, *options, "--no-diagnose"]) == 3
    assert "it was not tested whether the cells are Markov" in capsys.readouterr().out.splitlines()[0]
    assert main(["assess", task, log, *options, "--no-diagnose", "--accept-uncertified"]) == 0
    for command in (["evaluate", "--epsilon", "3"], ["watch", "--no-follow", "--threshold", "2.5"]):
        name, *more = command
        place = [log] if name == "watch" else ["--log", log]
        assert main([name, task, *place, *options, *more, "--quiet"]) == (0 if markov else 3), name


@pytest.mark.parametrize("markov", [True, False])
def test_every_question_about_a_binned_log_asks_whether_the_cells_hold(staged, markov):
    found = load_model(staged(markov)[0])
    how = {"columns": OF_STAGES, "skip": ("last",), "bins": found.bins}
    path = staged(markov)[1]
    log = logs(path, found.task, **how)
    verdict = pt.assess(found.task, path, threshold=1.0, **how)
    assert (verdict.answer, verdict.certified, verdict.refutes_model) == ("above", markov, not markov)
    data = log.transitions()
    for seen in (log, data):
        assert pt.assess(found.task, seen, threshold=1.0).certified is markov
        assert pt.value_interval(found.task, seen).certified is markov
    other = replace(found.task, policy=np.array([[1.0, 0.0], [0.5, 0.5]]))
    compared = pt.compare(found.task, other, data)
    assert not compared.certified or markov
    assert compared.refutes_model is not markov
    best = pt.identify(
        found.task.rewards,
        found.task.initial,
        0.9,
        data,
        policies=[found.task.policy, other.policy],
        assumptions=found.task.assumptions,
    )
    assert best.refutes_model is not markov
    estimate = pt.evaluate(found.task, data, epsilon=5.0)
    assert (estimate.certified, str(estimate).startswith("No reliable answer")) == (markov, not markov)
    unknown = pt.assess(found.task, log.counts, threshold=1.0)
    assert (unknown.answer, unknown.certified, unknown.refutes_model) == ("above", False, False)
    plain = replace(found.task, assumptions=())
    assert pt.assess(plain, path, threshold=1.0, **how).certified is markov  # the bins say what the task does not
    counts = pt.Counts.from_array(log.counts.N).with_cells("refuted")
    assert (counts + log.counts).cells == "refuted"
    counts.save(path + ".npz")
    assert pt.Counts.load(path + ".npz").cells == "refuted"


def test_cells_are_untested_if_hardly_any_row_follows_another(staged):
    """Each row an episode of its own, or rows sorted by their state: nothing was tested, so nothing is certified."""
    found = load_model(staged(True)[0])
    data = logs(staged(True)[1], found.task, columns=OF_STAGES, skip=("last",), bins=found.bins).transitions()
    apart = replace(data, episode=np.arange(len(data)), cells=None)
    verdict = pt.assess(found.task, apart, threshold=1.0)
    assert (verdict.answer, verdict.certified) == ("above", False)
    assert "it was not tested whether the cells are Markov" in str(verdict).splitlines()[0]
    assert not pt.value_interval(found.task, apart).certified
    assert pt.assess(found.task, replace(data, cells=None), threshold=1.0).certified


def test_a_watch_hears_what_all_rows_say_of_the_cells(staged):
    """Also those after the rows that give the answer; the answer alone may rest on too few rows to tell."""
    found = load_model(staged(False)[0])
    log = logs(staged(False)[1], found.task, columns=OF_STAGES, skip=("last",), bins=found.bins)
    data = replace(log.transitions(), cells=None)
    low, _ = pt.value_range(found.task)
    watch = Watch(found.task, low + 0.05)
    verdict = watch.add(data.s, data.a, data.x, episode=data.episode)
    assert verdict.answer == "above"
    assert verdict.samples < len(data) / 4
    assert (verdict.certified, verdict.refutes_model) == (False, True)
