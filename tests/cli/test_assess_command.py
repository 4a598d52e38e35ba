"""``policytest init``, ``assess`` and ``selftest``, as a user would run them."""

import csv
import json
import shlex
import tomllib
from dataclasses import replace

import numpy as np
import pytest

import policytest as pt
from policytest.cli import main
from policytest.cli import promises as module
from policytest.cli.output import forecast_limit
from policytest.cli.promises import ALARM, DELTA, _tail, selftest
from policytest.sources.tasks.files import load_model


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The files that ``policytest init`` writes."""
    folder = tmp_path_factory.mktemp("start")
    assert main(["init", str(folder / "shop")]) == 0
    return folder / "shop"


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def test_both_tasks_ask_the_same_question(start):
    """What they share is written twice, so that each is a file that can be read by itself."""
    task, paid = (tomllib.loads((start / name).read_text()) for name in ("task.toml", "paid.toml"))
    assert {key: paid[key] for key in paid if key != "reward_range"} == {
        key: task[key] for key in task if key not in ("rewards", "kernel")
    }


def test_init_overwrites_nothing(start, capsys):
    before = {file.name: file.read_bytes() for file in start.iterdir()}
    assert sorted(before) == ["log.csv", "paid.toml", "policy.csv", "task.toml"]
    code, out, err = run(capsys, "init", start)
    assert code == 2
    assert not out
    assert "nothing is overwritten" in err
    assert before == {file.name: file.read_bytes() for file in start.iterdir()}


def test_init_says_what_to_do_next_and_that_works(tmp_path, capsys, monkeypatch):
    """The commands stand on lines of their own, and a shell takes them as they are."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / 'new folder, "it\'s" $HOME' / "shop"
    code, out, _ = run(capsys, "init", folder)
    assert code == 0
    commands = [shlex.split(line) for line in out.splitlines() if line.startswith("policytest ")]
    assert [command[1] for command in commands] == ["assess", "decide", "decide"]
    for command, name in zip(commands, ("paid.toml", "task.toml", "task.toml"), strict=True):
        assert command[2] == str(folder / name)
        assert run(capsys, *command[1:], "--quiet")[0] == 0
    assert (tmp_path / "report.html").is_file()


def test_init_in_a_folder_that_looks_like_an_option(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = run(capsys, "init", "--", "-x")[1]
    commands = [shlex.split(line) for line in out.splitlines() if line.startswith("policytest ")]
    assert run(capsys, *commands[0][1:], "--quiet")[0] == 0


def test_init_writes_through_no_link_and_takes_no_negative_seed(tmp_path, capsys):
    code, _, err = run(capsys, "init", tmp_path / "none", "--seed", "-1")
    assert (code, "seed is -1" in err) == (2, True)
    assert not (tmp_path / "none").exists()
    (tmp_path / "log.csv").symlink_to(tmp_path / "elsewhere")  # which is not there
    assert run(capsys, "init", tmp_path)[0] == 2
    assert [file.name for file in tmp_path.iterdir()] == ["log.csv"]


def test_the_log_settles_it_rightly(start, capsys):
    model = load_model(start / "task.toml")
    truth = pt.value(model.task, model.kernel)
    code, out, _ = run(capsys, "assess", start / "task.toml", start / "log.csv", "--json")
    found = json.loads(out)
    assert (code, found["answer"], found["certified"]) == (0, "above", True)
    assert truth > 3.0
    assert found["log"]["rows"] == len((start / "log.csv").read_text().splitlines()) - 1
    assert not found["diagnosis"]["warnings"]
    code, out, _ = run(capsys, "assess", start / "task.toml", start / "log.csv", "--threshold", "9")
    assert code == 1
    assert "below the threshold" in out
    assert "Data: " in out


def test_what_the_command_says_is_what_python_says(start, capsys):
    model = load_model(start / "task.toml")
    log = pt.sources.logs(start / "log.csv", model.task)
    assert pt.assess(model.task, log, 3.0).evidence == pt.assess(model.task, log.transitions(), 3.0).evidence
    for arguments, data, method in (
        ((), log.transitions(), pt.LogBetting()),
        (("--method", "ptst"), log.counts, pt.PTST()),
        (("--method", "betting"), log.transitions(), pt.TDBetting()),
    ):
        verdict = pt.assess(model.task, data, 3.0, 0.05, method)
        forecast = verdict.still_needed(max_samples=forecast_limit(verdict.samples)) if not verdict.answer else None
        expected = json.loads(replace(verdict, forecast=replace(verdict.forecast, needed=forecast)).to_json())
        found = json.loads(run(capsys, "assess", start / "task.toml", start / "log.csv", "--json", *arguments)[1])
        assert {key: found[key] for key in expected} == expected


def test_undecided_says_how_much_more(start, capsys):
    arguments = ("assess", start / "task.toml", start / "log.csv", "--method", "ptst", "--threshold")
    code, out, err = run(capsys, *arguments, "4.7")
    assert code == 3
    assert "more samples" in out
    assert "undecided" in err


def test_yesterday_and_today(start, tmp_path, capsys):
    """Counts that are kept and added to are those of all rows at once; the same file twice is refused."""
    with (start / "log.csv").open() as file:
        header, *rows = csv.reader(file)
    for name, part in (("one.csv", rows[:1000]), ("two.csv", rows[1000:])):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([header, *part])
    task, kept = start / "task.toml", tmp_path / "kept.npz"
    assert run(capsys, "assess", task, tmp_path / "one.csv", "--method", "ptst", "--save", kept)[0] in (0, 3)
    added = run(capsys, "assess", task, tmp_path / "two.csv", "--add-to", kept, "--json")
    whole = run(capsys, "assess", task, start / "log.csv", "--method", "ptst", "--json")
    first, second = json.loads(added[1]), json.loads(whole[1])
    assert first["evidence"] == pytest.approx(second["evidence"])
    assert first["samples"] == second["samples"] == len(rows)
    code, _, err = run(capsys, "assess", task, tmp_path / "one.csv", "--add-to", kept)
    assert code == 2
    assert "one.csv" in err


def test_an_order_that_restarts_in_each_episode(start, tmp_path, capsys):
    """Rows are then taken by their place in the episode, with a note; or one episode after another, on request."""
    with (start / "log.csv").open() as file:
        header, *rows = csv.reader(file)
    first = {}
    anew = [[episode, int(order) - first.setdefault(episode, int(order)), *rest] for episode, order, *rest in rows]
    with (tmp_path / "anew.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *anew])
    arguments = ("assess", start / "task.toml", tmp_path / "anew.csv", "--threshold", "2.5")
    words = "Note: the order begins with 0 in every episode"
    code, out, _ = run(capsys, *arguments, "--html", tmp_path / "page.html")
    assert code in (0, 3)
    assert words in (tmp_path / "page.html").read_text()
    assert words in out
    assert "pass --by-episode" in out
    assert "betting" in out
    code, out, _ = run(capsys, *arguments, "--by-episode")
    assert code == 0
    assert words not in out
    assert "betting" in out


def test_visits_without_ends_are_not_certified(start, tmp_path, capsys):
    """The starter's log without its next states, and what was paid: who is gone has no row any more."""
    rows = [line.rsplit(",", 2)[0] for line in (start / "log.csv").read_text().splitlines()]
    put = tmp_path / "visits.csv"
    put.write_text("\n".join([*rows, ""]))
    page = tmp_path / "page.html"
    code, out, err = run(capsys, "assess", start / "task.toml", put, "--json", "--html", page)
    assert code == 3
    assert '<body class="uncertified">' in page.read_text()
    assert "No reliable answer." in page.read_text()
    assert json.loads(out)["certified"] is False
    assert json.loads(out)["flaws"] == ["the data were selected by their outcomes"]
    assert "episodes stop in a state that is not terminal" in err
    assert "pass --skip last" in err
    code, out, err = run(capsys, "assess", start / "task.toml", put, "--skip", "last", "--json")
    assert code == 0
    assert json.loads(out)["log"]["selected"] is False
    assert "episodes stop" not in err


def test_the_log_tells_where_episodes_start(start, capsys):
    """In the starter's log a fifth of the visitors begin browsing."""
    code, out, _ = run(capsys, "assess", start / "task.toml", start / "log.csv", "--initial", "log")
    assert code == 2  # its task has a kernel, too
    text = (start / "task.toml").read_text().split("[kernel]")[0]
    (start / "unknown.toml").write_text(text.replace("initial = { new = 0.8, browsing = 0.2 }", 'initial = "log"'))
    code, out, _ = run(capsys, "assess", start / "unknown.toml", start / "log.csv", "--json")
    assert code in (0, 3)
    found = json.loads(out)
    assert found["states"][-1] == "start"
    assert "valid if episodes begin with their first rows" in found["log"]["notes"][0]
    assert found["estimate"] == pytest.approx(3.9, abs=0.5)


def test_rows_selected_by_their_outcome_are_not_certified(start, tmp_path, capsys):
    lines = (start / "log.csv").read_text().splitlines()
    (tmp_path / "odd.csv").write_text("\n".join([*lines, "9999,99999,new,popular,elsewhere,0"]) + "\n")
    arguments = ("assess", start / "task.toml", tmp_path / "odd.csv")
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "elsewhere" in err
    code, out, err = run(capsys, *arguments, "--skip", "s_next", "--json")
    assert code == 3
    assert json.loads(out)["certified"] is False
    assert "warning" in err
    assert "no reliable answer: the data were selected by their outcomes" in err
    assert run(capsys, *arguments, "--skip", "s_next", "--accept-uncertified")[0] == 0


@pytest.mark.parametrize("differ", [False, True])
def test_rewards_that_are_left_alone_cost_the_certificate_where_they_differ(start, tmp_path, capsys, differ):
    header, *lines = (start / "log.csv").read_text().splitlines()
    task = load_model(start / "task.toml").task
    names = header.split(",")
    pairs = [(task.states.index(row["s"]), task.actions.index(row["a"])) for row in csv.DictReader([header, *lines])]
    rewards = [task.rewards[s, a] + 0.5 * differ for s, a in pairs]
    rows = [f"{line},{reward}" for line, reward in zip(lines, rewards, strict=True)]
    (tmp_path / "paid.csv").write_text("\n".join([",".join([*names, "reward"]), *rows]) + "\n")
    arguments = ("assess", start / "task.toml", tmp_path / "paid.csv")
    code, _, err = run(capsys, *arguments)
    assert code == (2 if differ else 0)
    assert ("Estimated rewards, such as means of this column, void the guarantee" in err) is differ
    alone = (*arguments, "--column", "reward=")
    code, out, err = run(capsys, *alone, "--html", tmp_path / "page.html")
    assert code == (3 if differ else 0)
    assert ("(certified)" in out) is not differ
    assert ("warning: the column reward is " in err) is differ
    for told in (out, (tmp_path / "page.html").read_text()):
        assert ("the rewards in the data differ from the task&#39;s" in told.replace("'", "&#39;")) is differ
    found = json.loads(run(capsys, *alone, "--json")[1])
    assert (found["certified"], found["other_rewards"]) == (not differ, differ)
    assert run(capsys, *alone, "--accept-uncertified")[0] == 0


def test_small_numbers_can_be_hidden(start, tmp_path, capsys):
    lines = (start / "log.csv").read_text().splitlines()
    (tmp_path / "odd.csv").write_text("\n".join([*lines, "9999,99999,nobody,popular,new,0"]) + "\n")
    arguments = ("assess", start / "task.toml", tmp_path / "odd.csv", "--skip", "s")
    assert "nobody" in run(capsys, *arguments)[1]
    out = run(capsys, *arguments, "--suppress-below", "5")[1]
    assert "nobody" not in out
    assert "fewer than 5" in out


def test_small_numbers_are_hidden_in_the_verdict_too(start, tmp_path, capsys):
    """Visits of pairs, what is still needed, and how many transitions the diagnosis looked at."""
    lines = (start / "log.csv").read_text().splitlines()
    (tmp_path / "few.csv").write_text("\n".join(lines[:5]) + "\n")
    arguments = ("assess", start / "task.toml", tmp_path / "few.csv", "--method", "betting", "--json")
    plainly = json.loads(run(capsys, *arguments)[1])
    assert (plainly["samples"], plainly["diagnosis"]["transitions"]) == (4, 4)
    assert any(0 < n < 10 for row in plainly["visits"] for n in row)
    code, out, _ = run(capsys, *arguments, "--suppress-below", "10")
    hidden = json.loads(out)
    assert (hidden["samples"], hidden["still_needed"], hidden["changes"]) == (None, None, [])
    assert "visits" not in hidden
    assert hidden["diagnosis"]["transitions"] is None
    findings = [part["transitions"] for part in hidden["diagnosis"].values() if isinstance(part, dict)]
    assert findings
    assert set(findings) <= {None, 0}
    assert hidden["evidence"] == plainly["evidence"]
    assert code == 3
    shown = run(capsys, *arguments[:-1], "--suppress-below", "10")[1]
    assert "fewer than 10" in shown


def test_a_log_that_drifts_is_warned_about(start, tmp_path, capsys, monkeypatch):
    """Its second half comes from another world; the verdict stands beside a warning, however large the log is."""
    model, rng = load_model(start / "task.toml"), np.random.default_rng(0)
    task = model.task
    other = np.roll(model.kernel[:3], 1, axis=0)
    worlds = model.kernel.copy(), np.concatenate([other, model.kernel[3:]])
    rows = [("order", "s", "a", "s_next")]
    for order in range(1200):
        s, a = rng.integers(3), rng.integers(3)
        x = rng.choice(4, p=worlds[order >= 600][s, a])
        rows.append((order, task.states[s], task.actions[a], task.states[x]))
    with (tmp_path / "drift.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    command = ("assess", start / "task.toml", tmp_path / "drift.csv", "--threshold", "0.5")
    out = run(capsys, *command)[1]
    assert "Warning: " in out
    out = run(capsys, *command, "--no-diagnose")[1]
    assert "Warning: " not in out
    monkeypatch.setattr("policytest.sources.logged.log.TRANSITION_LIMIT", 1)
    _, out, err = run(capsys, *command)
    assert "Warning: " in out
    assert "by betting on a log" in out
    assert err.startswith("warning: the log has 1,200 rows, and the first 1 of them by the column order")


# ---------------------------------------------------------------- selftest


def test_promises_are_kept_here(capsys):
    code, out, _ = run(capsys, "selftest", "--runs", "100", "--json", "--quiet")
    found = json.loads(out)
    assert code == 0
    assert found["kept"]
    assert all(finding["kept"] for finding in found["findings"])
    assert len(found["findings"]) == 7


def test_a_broken_promise_is_not_exit_code_0(monkeypatch, capsys):
    """A test that always answers "above" must be caught."""

    def careless(task, sim, threshold, deltas, method, rng, limit):
        return pt.StoppingTimes(np.array(deltas), np.zeros(1), np.array(["above"], dtype=object), 0, np.ones(1))

    monkeypatch.setattr(module, "stopping_times", careless)
    found = selftest(100)
    assert not found.kept
    assert {finding.name for finding in found.findings if not finding.kept} == set(module._METHODS)
    code, out, _ = run(capsys, "selftest", "--runs", "100", "--quiet")
    assert code == 4
    assert "BROKEN" in out


def test_the_alarm_is_a_binomial_tail():
    assert _tail((10, 10), 100) > 0.5
    assert _tail((0, 40), 100) < ALARM
    assert DELTA == 0.1


def test_a_log_of_which_all_rows_are_skipped(here, capsys):
    """A state column in words, bins that want numbers, and a horizon: undecided, and nothing is forecast."""
    edges = ", ".join(map(str, range(1, 16)))
    (here / "task.toml").write_text(
        'actions = ["a", "b"]\npolicy = "uniform"\ndiscount = 1\nhorizon = 3\nthreshold = 1.5\n'
        f'initial = "icu (-inf, 1.0)"\n[bins.icu]\nedges = [{edges}]\n[rewards]\n"icu (-inf, 1.0)" = 1.0\n'
    )
    (here / "log.csv").write_text("episode,order,s,a,icu\n" + "1,1,low,a,x\n1,2,high,b,y\n1,3,low,a,x\n")
    for column in ("icu", "s"):
        code = main(["assess", "task.toml", "log.csv", "--skip", "s", "--column", f"s={column}", "--quiet"])
        assert code == 3, capsys.readouterr().err
        assert "nothing can be forecast from them" in capsys.readouterr().out
