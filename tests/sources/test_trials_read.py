"""Tables of recorded trials: every format, columns that are found, and what is refused."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pytest

import policytest as pt
from policytest.sources import trials

ROWS = [("new", "lift", 1, True), ("old", "lift", 1, False), ("new", "push", 2, False), ("old", "push", 2, True)]
NAMES = ("policy", "task", "seed", "success")


def text(rows=ROWS, names=NAMES, delimiter=","):
    lines = [delimiter.join(names), *(delimiter.join("" if x is None else str(x) for x in row) for row in rows)]
    return "\n".join(lines) + "\n"


def written(tmp_path, rows=ROWS, names=NAMES, name="trials.csv"):
    file = tmp_path / name
    file.write_text(text(rows, names))
    return file


def frame(rows=ROWS, names=NAMES):
    return pd.DataFrame(rows, columns=list(names))


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "jsonl", "parquet", "pandas"])
def test_every_format_says_the_same(kind, tmp_path):
    file = tmp_path / f"trials.{kind}"
    data = frame() if kind == "pandas" else file
    if kind == "csv.gz":
        file.write_bytes(gzip.compress(text().encode()))
    elif kind == "jsonl":
        file.write_text("".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in ROWS))
    elif kind == "parquet":
        frame().to_parquet(file)
    elif kind != "pandas":
        file.write_text(text(delimiter="\t" if kind == "tsv" else ","))
    found = trials(data)
    assert found.agents == ("new", "old")
    assert found.tasks == ("lift", "push")
    assert found.columns == {"agent": "policy", "outcome": "success", "task": "task", "pair": "seed"}
    assert (found["new"].reward.tolist(), found["old"].reward.tolist()) == ([1, 0], [0, 1])
    assert found["old"].order.tolist() == [1, 3]
    assert found["new"].pair.tolist() == ["1", "2"]
    assert found["new"].bounds == (0, 1)


def test_rows_may_be_sorted_by_a_column(tmp_path):
    rows = [("a", "2026-01-03", 1), ("b", "2026-01-02", 0), ("a", "2026-01-01", 0)]
    file = written(tmp_path, rows, ("agent", "when", "won"))
    found = trials(file, columns={"order": "when"})
    assert found["a"].reward.tolist() == [0, 1]
    assert (found["a"].order.tolist(), found["b"].order.tolist()) == ([0, 2], [1])
    assert trials(file)["a"].reward.tolist() == [1, 0]
    rows = [("a", 3, 1), ("b", "soon", 0)]
    with pytest.raises(pt.InputError, match=r"row 2 \(agent b\): the order \(column when\) is 'soon'; it must be"):
        trials(written(tmp_path, rows, ("agent", "when", "won")), columns={"order": "when"})


def test_agents_and_labels_are_taken_as_they_are_written(tmp_path):
    rows = [(" 007 ", "1", "yes"), ("7", "1.0", "No"), ("007", "01", "0")]
    found = trials(written(tmp_path, rows, ("model", "seed", "is_success")))
    assert found.agents == ("007", "7")
    assert found["007"].pair.tolist() == ["1", "01"]
    assert found["007"].reward.tolist() == [1, 0]


def test_a_range_is_known_of_truth_values_and_of_successes_alone(tmp_path):
    numbers = [("a", 0), ("a", 1)]
    assert trials(frame(numbers, ("agent", "solved")))["a"].bounds == (0, 1)
    assert trials(frame([("a", True)], ("agent", "whatever")), columns={"outcome": "whatever"})["a"].bounds == (0, 1)
    with pytest.raises(pt.InputError, match=r"\(column return\) are numbers from 0 to 1, and their range"):
        trials(frame(numbers, ("agent", "return")))
    with pytest.raises(pt.InputError, match=r"pass return_range=\(low, high\)"):
        trials(frame([("a", 0.5), ("a", 1)], ("agent", "success")))
    found = trials(frame([("a", 0.5), ("a", 1)], ("agent", "success")), return_range=(0, 1))
    assert found["a"].reward.tolist() == [0.5, 1]
    with pytest.raises(pt.InputError, match=r"row 2 \(agent a\): the outcome is 7, outside return_range \(0, 5\)"):
        trials(frame([("a", 2), ("a", 7)], ("agent", "score")), return_range=(0, 5))
    assert trials(frame([("a", -9), ("a", 2)], ("agent", "score")), return_range=(-np.inf, 5))["a"].bounds[1] == 5


def test_some_tasks_alone():
    found = trials(frame(), tasks=["push"])
    assert (found.rows, found.left_out, found.tasks) == (4, 2, ("push",))
    with pytest.raises(pt.InputError, match=r"no row has the task 'stack' .*; the tasks are 'lift', 'push'"):
        trials(frame(), tasks=["push", "stack"])


@pytest.mark.parametrize(
    ("names", "rows", "message"),
    [
        (("policy", "model", "success"), [("a", "b", 1)], r"for agent may be 'policy' or 'model'; say which with"),
        (("policy", "success", "return"), [("a", 1, 1)], r"for outcome may be 'success' or 'return'; say which"),
        (("policy", "success", "seed", "trial"), [("a", 1, 1, 1)], r'or use neither with columns=\{"pair": None\}'),
        (("who", "success"), [("a", 1)], "has no column for agent; the columns are 'who', 'success'; name it with"),
        (("policy", "result"), [("a", 1)], "has no column for outcome"),
        (("policy", "success"), [("a", 1), ("b", None)], r"row 2 \(policy b\): the outcome \(column success\) is miss"),
        (("policy", "success"), [("a", "maybe")], r"the outcome \(column success\) is 'maybe'; it must be true, false"),
        (("policy", "success"), [("a", "inf")], "it must be true, false, yes, no or a finite number"),
        (("policy", "success"), [(None, 1)], r"row 1 has no agent \(column policy\); fill it in"),
        (
            ("policy", "success", "seed"),
            [("a", 1, None)],
            r"row 1 has no pair \(column seed\); fill it in, or",
        ),
        (
            ("policy", "success", "seed"),
            [("a", 1, 3), ("b", 1, 3), ("a", 0, 3)],
            r"row 1 \(policy a, seed 3\) and row 3 are of the same agent, with the same seed; remove",
        ),
        (("policy", "success"), [], "data has no rows"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, names, rows, message):
    with pytest.raises(pt.InputError, match=message):
        trials(written(tmp_path, rows, names))


def test_wrong_names_are_corrected(tmp_path):
    with pytest.raises(pt.InputError, match="there is no agent 'nwe' in column policy; did you mean 'new'"):
        trials(frame())["nwe"]
    with pytest.raises(pt.InputError, match="has no column 'sed' for pair; did you mean 'seed'"):
        trials(written(tmp_path), columns={"pair": "sed"})
    with pytest.raises(pt.InputError, match="columns has the key 'agnt'; did you mean 'agent'"):
        trials(frame(), columns={"agnt": "policy"})
    with pytest.raises(pt.InputError, match="both are required"):
        trials(frame(), columns={"agent": None})
    with pytest.raises(pt.InputError, match="the table has no column task"):
        trials(frame(), columns={"task": None}, tasks=["lift"])


def test_several_files_have_the_same_columns(tmp_path):
    written(tmp_path, ROWS[:2], name="a.csv")
    written(tmp_path, ROWS[2:], name="b.csv")
    assert trials(str(tmp_path))["new"].reward.tolist() == [1, 0]
    written(tmp_path, [("new", 1)], ("policy", "success"), name="c.csv")
    with pytest.raises(pt.InputError, match=r"has a column task, .* has none"):
        trials(str(tmp_path))
