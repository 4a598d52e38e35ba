"""``policytest watch``: a pipe and a growing file, while they grow; and the lines it refuses."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import numpy as np
import pytest

import policytest as pt
from builders import SOURCE, each
from policytest.cli import main
from policytest.results.ladder import Alongside
from policytest.sources.logged.stream import Parser, lines
from policytest.sources.tasks.files import save_model

COMMAND = [sys.executable, "-m", "policytest", "watch"]


@pytest.fixture
def example(tmp_path):
    """A task file with names, and transitions with labels."""
    instance, rng = pt.instances.paper(2), np.random.default_rng(3)
    given = instance.task
    task = pt.Task(given.rewards, given.policy, given.initial, given.discount, states=["low", "high"], actions=[10, 20])
    save_model(tmp_path / "task.json", task, threshold=0.0)
    s, a = rng.integers(0, 2, 3000), rng.integers(0, 2, 3000)
    x = pt.TabularSimulator(instance.kernel).draw(s, a, rng)
    rows = [
        {"s": task.states[i], "a": task.actions[j], "s_next": task.states[k]} for i, j, k in zip(s, a, x, strict=True)
    ]
    return tmp_path / "task.json", task, pt.Transitions(s, a, x), rows


def expected(task, data):
    """The verdict of `assess`, as JSON, without the interval that is for one look."""
    return json.loads(replace(pt.assess(task, data, threshold=0.0), alongside=Alongside()).to_json())


def test_a_pipe_that_is_written_while_it_is_read(example, monkeypatch):
    monkeypatch.undo()  # the other process has all sets of coins
    path, task, data, rows = example
    with subprocess.Popen(
        [*COMMAND, str(path), "--json", "--quiet"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as running:
        with contextlib.suppress(BrokenPipeError):  # it has spoken, and ended
            for row in rows:
                os.write(running.stdin.fileno(), (json.dumps(row) + "\n").encode())
        found = json.loads(running.communicate()[0])
    assert running.returncode == 0
    n = found["samples"]
    assert n < len(data)
    assert found == expected(task, pt.Transitions(data.s[:n], data.a[:n], data.x[:n]))
    whole = expected(task, data)
    assert (found["answer"], n) == (whole["answer"], whole["samples"])


def test_a_file_that_grows(example, tmp_path, monkeypatch):
    monkeypatch.undo()  # the other process has all sets of coins
    path, task, data, rows = example
    log = tmp_path / "log.csv"
    log.write_text("s,a,s_next\n")
    running = subprocess.Popen(
        [*COMMAND, str(path), str(log), "--json", "--quiet"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with log.open("a") as file:
        for begin in range(0, len(rows), 300):
            if running.poll() is not None:
                break
            file.write("".join("{s},{a},{s_next}\n".format(**row) for row in rows[begin : begin + 300])[:-3])
            file.flush()  # the last line is not whole yet
            time.sleep(0.05)
            file.write("".join("{s},{a},{s_next}\n".format(**row) for row in rows[begin : begin + 300])[-3:])
            file.flush()
    found = json.loads(running.communicate()[0])
    assert running.returncode == 0
    n = found["samples"]
    assert found == expected(task, pt.Transitions(data.s[:n], data.a[:n], data.x[:n]))
    assert n == expected(task, data)["samples"]


def run(arguments, text, monkeypatch, capsys):
    """The command in this process, with the text on standard input; its exit code, stdout and stderr."""
    with tempfile.TemporaryFile() as file:
        file.write(text if isinstance(text, bytes) else text.encode())
        file.seek(0)
        monkeypatch.setattr("policytest.sources.logged.stream.STDIN", file.fileno())
        code = main(["watch", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_undecided_at_the_end_of_the_pipe(example, monkeypatch, capsys):
    path, _, _, rows = example
    text = "".join(json.dumps(row) + "\n" for row in rows[:5])
    code, out, err = run([path], text, monkeypatch, capsys)
    assert code == 3
    assert "ndecided" in out
    assert "undecided after 5 transitions" in err


def test_max_samples_counts_transitions(example, monkeypatch, capsys):
    path, _, _, rows = example
    text = "".join(json.dumps(row) + "\n" for row in rows)
    code, _, err = run([path, "--max-samples", "7"], text, monkeypatch, capsys)
    assert code == 3
    assert "undecided after 7 transitions" in err
    assert run([path, "--max-samples", "-1"], text, monkeypatch, capsys)[0] == 2


def test_one_transition_is_not_several(example, monkeypatch, capsys):
    path, _, _, rows = example
    err = run([path], json.dumps(rows[0]) + "\n", monkeypatch, capsys)[2]
    assert "1 transition: evidence" in err
    assert "1 transitions" not in err


def test_a_closed_standard_input_is_told(example, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["watch", str(example[0])]) == 2
    assert "standard input is closed" in capsys.readouterr().err


GOOD = '{"s": "low", "a": 10, "s_next": "high"}\n'
BAD = {
    "no object": (GOOD + "[1, 2]\n", "line 2"),
    "no JSON": (GOOD + "{'s': 1}\n", "not JSON"),
    "a half line at the end": (GOOD + '{"s": "low", "a"', "line 2"),
    "unknown state": ('{"s": "middle", "a": 10, "s_next": "high"}\n', "unknown state 'middle' in column s"),
    "unknown successor": ('{"s": "low", "a": 10, "s_next": "hihg"}\n', "unknown state 'hihg' in column s_next"),
    "unknown action": ('{"s": "low", "a": 30, "s_next": "high"}\n', "unknown action 30 in column a"),
    "null": ('{"s": null, "a": 10, "s_next": "high"}\n', "no state in column s"),
    "missing key": ('{"s": "low", "a": 10}\n', "s_next"),
    "not UTF-8": (GOOD.encode() + b'{"s": "\xff"}\n', "UTF-8"),
    "fraction of a row": ('{"s": "low", "a": 10, "s_next": "high", "count": 0.5}\n', "count is 0.5"),
    "negative count": ('{"s": "low", "a": 10, "s_next": "high", "count": -1}\n', "count is -1"),
    "huge count": ('{"s": "low", "a": 10, "s_next": "high", "count": 1e300}\n', "count is 1e+300"),
    "sum of several": ('{"s": "low", "a": 10, "s_next": "high", "count": 2}\n', "count is 2"),
    "CSV with a bare return": ('s,a,s_next\nlow,10,"hi\rgh"x\ry\n', "line 2"),
    "true count": ('{"s": "low", "a": 10, "s_next": "high", "count": true}\n', "count is True"),
    "another reward": ('{"s": "low", "a": 10, "s_next": "high", "reward": 77}\n', "reward is 77"),
    "no number": ('{"s": "low", "a": 10, "s_next": "high", "reward": "much"}\n', "'much'"),
    "deeply nested": ("{" + '"s": [' * 100_000 + "\n", "not JSON"),
    "CSV without a column": ("s,a\nlow,10\n", "no column 's_next'"),
    "CSV with a short line": ("s,a,s_next\nlow,10\n", "line 2"),
    "CSV with an open quote": ('s,a,s_next\n"low,10,high\n', "line 2: an entry with a quote in it"),
    "empty entry": ("s,a,s_next\n,10,high\n", "no state in column s"),
}


@each("name", BAD)
def test_lines_that_are_refused(name, example, monkeypatch, capsys):
    text, message = BAD[name]
    code, out, err = run([example[0]], text, monkeypatch, capsys)
    assert code == 2
    assert not out
    assert message in err
    assert "Traceback" not in err
    assert "standard input" in err


def test_rows_are_left_out_only_on_request_and_only_for_what_came_before(example, monkeypatch, capsys):
    text = '{"s": "middle", "a": 10, "s_next": "high"}\n' + GOOD
    code, _, err = run([example[0], "--skip", "s"], text, monkeypatch, capsys)
    assert code == 3
    assert "1 row dropped (--skip)" in err
    code, _, err = run([example[0], "--skip", "s_next"], text, monkeypatch, capsys)
    assert code == 2
    assert "s_next" in err


def test_other_names_of_columns(example, monkeypatch, capsys):
    text = "from,do,to\n" + "low,10,high\n" * 3
    columns = ["--column", "s=from", "--column", "a=do", "--column", "s_next=to"]
    assert run([example[0], *columns], text, monkeypatch, capsys)[0] == 3
    assert run([example[0], "--column", "s"], text, monkeypatch, capsys)[0] == 2


def test_counts_and_rewards(example):
    task = example[1]
    parser = Parser(task)
    row = {"s": "low", "a": 10, "s_next": "high", "count": 1, "reward": task.rewards[0, 0]}
    more = [json.dumps({**row, "count": 0}).encode(), b"", json.dumps({**row, "a": "10", "s_next": "low"}).encode()]
    assert len(parser.transitions([json.dumps(row).encode(), *more])) == 2
    assert parser.line == 4
    for text in ("1", "1.0", '"1"'):
        assert len(Parser(task).transitions([GOOD.strip().replace("}", f', "count": {text}}}').encode()])) == 1


@pytest.mark.parametrize("differ", [False, True])
def test_rewards_that_are_left_alone_cost_the_certificate_where_they_differ(
    example, tmp_path, monkeypatch, capsys, differ
):
    path, task, data, rows = example
    rewards = task.rewards[data.s, data.a] + 0.5 * differ
    lines = [json.dumps({**row, "reward": reward}) for row, reward in zip(rows, rewards, strict=True)]
    text, page = "\n".join(lines) + "\n", tmp_path / "report.html"
    code, _, err = run([path, "--threshold", "0"], text, monkeypatch, capsys)
    assert code == (2 if differ else 0)
    assert ("Estimated rewards, such as means of this column, void the guarantee" in err) is differ
    assert ("--column reward=" in err) is differ
    arguments = [path, "--threshold", "0", "--column", "reward="]
    code, out, _ = run([*arguments, "--html", page], text, monkeypatch, capsys)
    assert code == (3 if differ else 0)
    for told in (out, page.read_text()):
        assert ("the rewards in the data differ from the task&#39;s" in told.replace("'", "&#39;")) is differ
    assert ("(certified)" in out) is not differ
    found = json.loads(run([*arguments, "--json"], text, monkeypatch, capsys)[1])
    assert (found["certified"], found["other_rewards"]) == (not differ, differ)
    assert run([*arguments, "--accept-uncertified"], text, monkeypatch, capsys)[0] == 0


def test_sums_are_refused(example):
    """A line that stands for several transitions does not say in which order they came."""
    with pytest.raises(pt.InputError, match=r"line 1: count is 3; .* one line for each transition"):
        Parser(example[1]).transitions([b'{"s": "low", "a": 10, "s_next": "high", "count": 3}'])
    with pytest.raises(pt.InputError, match=r"line 2: count is '2'"):
        Parser(example[1]).transitions([b"s,a,s_next,count", b"low,10,high,2"])


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_rows_are_split_as_their_header_is(example, delimiter):
    """Also where entries have other delimiters, and where the header has spaces around its names."""
    task = pt.Task(np.zeros((2, 1)), [[1.0], [1.0]], [1.0, 0.0], 0.5, states=["a,b;c d|e", "low"], actions=["x\ty"])
    head = f" {delimiter} ".join(("s", "a", "s_next")).encode()
    row = delimiter.join(('"a,b;c d|e"', '"x\ty"', "low")).encode()
    found = Parser(task).transitions([head, row])
    assert (found.s.tolist(), found.a.tolist(), found.x.tolist()) == ([0], [0], [1])


def test_a_file_that_is_cut_or_replaced_is_noticed(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(GOOD * 3)
    following = lines(str(log), poll=0.0)
    assert len(next(following)) == 3
    log.write_text(GOOD)
    with pytest.raises(pt.InputError, match="cut short"):
        next(following)
    following = lines(str(log), poll=0.0)
    next(following)
    (tmp_path / "new").write_text(GOOD * 9)
    os.replace(tmp_path / "new", log)
    with pytest.raises(pt.InputError, match="replaced"):
        next(following)


def test_a_file_that_is_deleted_is_told_and_ends(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(GOOD * 3)
    following = lines(str(log), poll=0.0)
    assert len(next(following)) == 3
    log.unlink()
    with pytest.warns(UserWarning, match="it was deleted while it was followed; nothing more is read"):
        assert list(following) == []


def test_a_file_ends_when_nothing_comes(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(GOOD + GOOD.strip())
    assert [line for part in lines(str(log), follow=False) for line in part] == [GOOD.encode(), GOOD.strip().encode()]
    assert sum(map(len, lines(str(log), poll=0.001, idle=0.01))) == 1  # the last line may still be half written
    log.write_text(GOOD + GOOD.strip()[:-20])
    assert [line for part in lines(str(log), poll=0.001, idle=0.01) for line in part] == [GOOD.encode()]
    log.write_text(GOOD * 2)
    assert sum(map(len, lines(str(log), poll=0.001, idle=0.01))) == 2
    with pytest.raises(pt.InputError, match="folder"):
        next(lines(str(tmp_path)))
    with pytest.raises(pt.InputError, match="cannot be read"):
        next(lines(str(tmp_path / "none")))
