"""A growing log with one row for each visit, and with numbers as states: the transitions of `logs`, in their order."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import policytest as pt
from policytest.cli import main
from policytest.sources import load_model, logs
from policytest.sources.logged.log import CELLS, NEXT_ROW
from policytest.sources.logged.stream import Parser
from policytest.sources.logged.visits import Arrived, Waiting
from source_builders import assert_refused, put

pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

TASK = """
states = ["low", "normal", "high", "home", "dead"]
actions = ["none", "insulin"]
discount = 0.9
threshold = 0.5
initial = "high"
terminal = ["home", "dead"]
rewards = [{ s_next = "home", r = 1 }]
policy = ["none", "none", "insulin", "none", "none"]
"""
BINS = "[bins.glucose]\nedges = [70, 140]\n"
NEXT = BINS + 'next = "later"\n'
COLUMNS = {"episode": "patient", "order": "day", "a": "given", "reward": "earned"}
OPTIONS = [word for part, name in COLUMNS.items() for word in ("--column", f"{part}={name}")]
KERNEL = np.array(
    [
        [[0.3, 0.5, 0.1, 0.0, 0.1], [0.6, 0.1, 0.1, 0.0, 0.2]],
        [[0.1, 0.4, 0.2, 0.3, 0.0], [0.3, 0.4, 0.1, 0.2, 0.0]],
        [[0.0, 0.2, 0.6, 0.0, 0.2], [0.2, 0.5, 0.2, 0.1, 0.0]],
    ]
)
NAMES = ["low", "normal", "high", "home", "dead"]


def rows(patients=200, seed=0, year=120, pauses=(1, 2, 3, 4, 5)):
    """(day, patient, state, action, next state, last?) of visits, by day and patient; ``pauses`` after each outcome."""
    rng, found = np.random.default_rng(seed), []
    for patient in range(patients):
        day, s = int(rng.integers(0, year - 10)), 2
        while day < year:
            a, x = (0, s) if s > 2 else (int(rng.integers(2)), 0)
            x = s if s > 2 else int(rng.choice(5, p=KERNEL[s, a]))
            after = day + pauses[x]
            found.append((day, patient, s, a, x, s > 2 or after >= year))
            if s > 2:
                break
            day, s = after, x
    return sorted(found)


def text(kind, visits):
    """The log as CSV: states by name, or by a number and by name where there is none."""
    number = ["65", "70", "140.5"]
    lines = []
    for day, patient, s, a, x, last in visits:
        given, earned = ("", "") if s > 2 else (["none", "insulin"][a], "" if last else str(int(x == 3)))
        state = NAMES[s] if kind == "names" else f"{number[s]},{''}" if s < 3 else f",{NAMES[s]}"
        following = "" if kind != "next" else (",," if s > 2 else f",{number[x]}," if x < 3 else f",,{NAMES[x]}")
        lines.append(f"{patient},{day},{state},{given},{earned}{following}")
    head = {"names": "s", "bins": "glucose,s", "next": "glucose,s"}[kind]
    return f"patient,day,{head},given,earned{',later,s_next' if kind == 'next' else ''}\n" + "\n".join(lines) + "\n"


def arriving(parser, content, seed=0):
    """What a parser makes of a text that arrives in pieces, and at its end."""
    lines = content.encode().splitlines(keepends=True)
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(lines), 30)).tolist()
    parts = [parser.transitions(lines[i:j]) for i, j in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    parts.append(parser.end())
    return [one for part in parts for one in zip(part.s.tolist(), part.a.tolist(), part.x.tolist(), strict=True)], parts


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("kind", ["names", "bins", "next"])
def test_a_growing_log_has_the_transitions_of_the_whole_one_in_their_order(tmp_path, kind, start):
    task = TASK.replace('initial = "high"', 'initial = "log"') if start else TASK
    model = load_model(put(tmp_path / "task.toml", task + {"names": "", "bins": BINS, "next": NEXT}[kind]))
    for seed in range(3):
        visits = rows(seed=seed)
        visits = [row for row in visits if not row[-1] or row[2] > 2] if kind == "next" else visits
        content = text(kind, visits)
        whole = logs(put(tmp_path / "log.csv", content), model.task, columns=COLUMNS, bins=model.bins)
        expected = whole.transitions()
        parser = Parser(model.task, COLUMNS, bins=model.bins)
        found, parts = arriving(parser, content, seed)
        assert found == list(zip(expected.s.tolist(), expected.a.tolist(), expected.x.tolist(), strict=True))
        assert len(found) > 300
        assert parser.visits == (kind != "next")
        assert not whole.selected
        assert not any(part.selected for part in parts)
        assert sum(map(len, parts[:-1])) > 0.9 * len(found)  # they do not wait for the end
        cells = {CELLS.format(names="glucose")} if kind != "names" else set()
        assert set(parser.notes) == cells | ({NEXT_ROW} if kind != "next" else set())


def test_outcomes_that_are_known_sooner_do_not_come_sooner():
    """Who gets worse comes back sooner: in the order of the rows the first 60 are a fair sample, else they are not."""
    fair, quick = [], []
    for seed in range(40):
        visits = [row for row in rows(300, seed, 200, pauses=(1, 40, 1, 1, 1)) if row[2] < 3]
        waiting, arrived, known = Waiting(), [], []
        for day, patient, s, a, x, _ in visits:
            if (before := waiting.previous(str(patient), day)) is not None:
                before.x = s
                known.append(before)
            row = Arrived(s, a, x if x > 2 else None, 1, 0, 0.0, 0.0, day)
            waiting.add(row, str(patient))
            arrived += waiting.released()
        sick = lambda some: [one.x == 1 for one in some if (one.s, one.a) == (2, 0) and one.x < 3][:60]  # noqa: E731
        fair, quick = fair + sick(arrived), quick + sick(known)
    share = KERNEL[2, 0, 1] / KERNEL[2, 0, :3].sum()
    assert abs(np.mean(fair) - share) < 5 * np.sqrt(share * (1 - share) / len(fair))
    assert abs(np.mean(quick) - share) > 5 * np.sqrt(share * (1 - share) / len(quick))


def test_the_command_says_what_assess_says(tmp_path, capsys):
    task = put(tmp_path / "task.toml", TASK.replace("threshold = 0.5", "threshold = 0.3") + BINS)
    log, page = put(tmp_path / "log.csv", text("bins", rows(400))), tmp_path / "page.html"
    assert main(["assess", str(task), str(log), *OPTIONS, "--json", "--quiet"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert main(["watch", str(task), str(log), *OPTIONS, "--no-follow", "--json", "--html", str(page)]) == 0
    out, err = capsys.readouterr()
    same = ("answer", "certified", "samples", "threshold", "assumptions")
    assert [json.loads(out)[key] for key in same] == [whole[key] for key in same]
    assert NEXT_ROW in err
    assert NEXT_ROW in page.read_text(encoding="utf-8")


def test_rows_that_wait_are_told_and_left_out_at_the_end(tmp_path, capsys):
    """Line 2 waits for ever: everything waits with it, until the log ends, and then nothing is certified."""
    task = put(tmp_path / "task.toml", TASK)
    visits = [(0, 10**6, 2, 1, 2, True), *rows()]
    command = ["watch", str(task), str(put(tmp_path / "log.csv", text("names", visits))), "--no-follow", *OPTIONS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pt.AssumptionWarning)
        code = main([*command, "--json"])
    out, err = capsys.readouterr()
    assert "0 transitions: evidence" in err
    assert f"{sum(s < 3 for _, _, s, *_ in visits)} rows from line 2 on wait for the next row of its episode" in err
    assert f"{1 + sum(last and s < 3 for *_, s, _, _, last in visits[1:])} last rows of unfinished episodes" in err
    found = json.loads(out)
    assert (found["selected"], found["certified"]) == (True, False)
    with pytest.warns(pt.AssumptionWarning, match="1 episode stops in a state that is not terminal, long before"):
        arriving(Parser(load_model(task).task, COLUMNS), text("names", visits))
    assert code == 3  # no reliable answer
    assert main([*command, "--json", "--skip", "last"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["selected"] is False


HEAD = "patient,day,s,given,earned\n"
WRONG = {
    "1,1,high,none,0\n1,2,home,,\n1,3,low,none,\n": "line 4: the terminal state 'home' is followed by 'low'",
    "1,1,high,none,0\n1,2,hihg,none,\n": "line 3: unknown state 'hihg' in column s, which is what followed line 2",
    "1,1,high,none,\n1,2,low,none,\n": "line 3: the reward of line 2, which this row follows, is not a finite number",
    "1,1,high,insulin,7\n1,2,low,none,\n": "line 2: the reward is 7",
    "1,1,high,,0\n": "line 2: no action in column a",
    "1,1,high,none,0\n1,1,low,none,\n": "line 3: order is '1', which is not after the row before",
}


@pytest.mark.parametrize("content", WRONG)
def test_what_visits_refuse(tmp_path, content):
    task = load_model(put(tmp_path / "task.toml", TASK)).task
    assert_refused(lambda: arriving(Parser(task, COLUMNS), HEAD + content), WRONG[content])


def test_rows_in_terminal_states_need_no_action_and_no_next_state(tmp_path):
    """Also where there is a column s_next; with one that is another state, either of the two is wrong."""
    task = load_model(put(tmp_path / "task.toml", TASK)).task
    read = lambda *rows: arriving(Parser(task), "s,a,s_next\n" + "\n".join(rows) + "\n")[0]  # noqa: E731
    assert read("high,none,home", "home,,", "high,none,dead", "dead,,dead") == [(2, 0, 3), (2, 0, 4)]
    assert_refused(lambda: read("home,,low"), "the terminal state 'home' has a next state and no action")


def test_bins_beside_a_next_state_are_refused(tmp_path):
    model = load_model(put(tmp_path / "task.toml", TASK + BINS))
    parser = Parser(model.task, COLUMNS, bins=model.bins)
    assert_refused(lambda: arriving(parser, "patient,day,glucose,s_next,given,earned\n"), "add next = ... to the bins")
    parser = Parser(model.task, COLUMNS, bins=model.bins)
    content = "patient,day,glucose,given,earned\n1,1,n/a,none,0\n"
    assert_refused(lambda: arriving(parser, content), "line 2: no number in column glucose", "--skip s")
