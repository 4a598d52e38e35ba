"""From files and frames to counts: what is read, what is refused, and what is remembered."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import os
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import policytest as pt
from policytest.sources.labels import MISSING, UNKNOWN, Lookup
from policytest.sources.logged import counting, duckdb_files, frames, paths
from policytest.sources.logged import log as log_module
from source_builders import HEADER, ROWS, TRIPLES, A, S, assert_refused, columns_of, make_task, put, triples

pytest.importorskip("duckdb")
pytest.importorskip("narwhals")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pl = pytest.importorskip("polars")
pd = pytest.importorskip("pandas")

TASK = make_task()


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def one_row(**columns):
    return pl.DataFrame({"s": [0], "a": [0], "s_next": [1], **{name: [value] for name, value in columns.items()}})


# ---------------------------------------------------------------- files


def text(delimiter=",", end="\n"):
    return delimiter.join(("s", "a", "s_next")) + end + "".join(delimiter.join(map(str, row)) + end for row in ROWS)


def lines():
    return "".join(json.dumps(dict(zip(("s", "a", "s_next"), row, strict=True))) + "\n" for row in ROWS)


FILES = {
    "log.csv": lambda: text(),
    "LOG.CSV": lambda: text(),
    "windows.csv": lambda: "\ufeff" + text(end="\r\n"),
    "semicolons.csv": lambda: text(";"),
    "bars.csv": lambda: text("|"),
    "log.tsv": lambda: text("\t"),
    "log.csv.gz": lambda: gzip.compress(text().encode()),
    "no-newline.csv": lambda: text().rstrip(),
    "quoted.csv": lambda: '"s","a","s_next"\n' + "".join(f'"{s}",{a},"{x}"\n' for s, a, x in ROWS),
    "floats.csv": lambda: HEADER + "".join(f"{s}.0, {a} ,0{x}\n" for s, a, x in ROWS),
    "log.jsonl": lines,
    "log.ndjson.gz": lambda: gzip.compress(lines().encode()),
    'it\'s [1] * "quoted" ;-- ü.csv': lambda: text(),
}


@pytest.mark.parametrize("name", FILES)
def test_text_files(tmp_path, name):
    log = pt.sources.logs(put(tmp_path / name, FILES[name]()), TASK)
    assert triples(log.counts) == TRIPLES
    assert (log.rows, log.used, log.idle, len(log.files)) == (4, 4, 1, 1)


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float32, np.int64])
def test_parquet(tmp_path, kind):
    log = pt.sources.logs(parquet(tmp_path / "log.parquet", **columns_of(ROWS, kind)), TASK)
    assert triples(log.counts) == TRIPLES


def test_folders_patterns_and_lists(tmp_path):
    deep = tmp_path / "2026" / "11"
    deep.mkdir(parents=True)
    put(deep / "one.csv", HEADER + "0,0,1\n")
    put(deep / "two.csv", "a,extra,s_next,s\n2,x,3,1\n")  # in another order
    put(tmp_path / "three.csv", HEADER)  # no rows
    for ignored in ("_SUCCESS", ".hidden.csv", "_draft.csv", "notes.md"):
        put(tmp_path / ignored, "?")
    (deep / "loop").symlink_to(tmp_path, target_is_directory=True)
    expected = {(0, 0, 1): 1, (1, 2, 3): 1}
    for data in (tmp_path, [deep, tmp_path / "three.csv"], deep, {str(deep / "*.csv")}):
        assert triples(pt.sources.logs(data, TASK).counts) == expected
    assert len(pt.sources.logs([tmp_path], TASK).files) == 3


def test_columns_in_the_names_of_folders(tmp_path):
    """As Spark writes them; but a folder does not override a column that files have."""
    for action, name in enumerate(("00", "01")):
        folder = tmp_path / f"a={name}" / "year=2026"
        folder.mkdir(parents=True)
        parquet(folder / "part.parquet", s=[action], s_next=[1])
    task = make_task(actions=["00", "01", "x"])
    assert triples(pt.sources.logs(tmp_path, task).counts) == {(0, 0, 1): 1, (1, 1, 1): 1}
    assert_refused(lambda: pt.sources.logs(tmp_path, TASK, columns={"a": "b"}), "has no column 'b'")
    other = tmp_path / "run a=1" / "a=1"
    other.mkdir(parents=True)
    assert triples(pt.sources.logs(parquet(other / "log.parquet", s=[0], a=[0], s_next=[1]), TASK).counts) == {
        (0, 0, 1): 1
    }


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_names_of_folders_do_not_replace_what_text_files_say(tmp_path, kind):
    folder = tmp_path / "a=1" / "s_next=4"
    folder.mkdir(parents=True)
    content = HEADER + "0,0,1\n" if kind == "csv" else '{"s": 0, "a": 0, "s_next": 1}\n'
    assert triples(pt.sources.logs(put(folder / f"log.{kind}", content), TASK).counts) == {(0, 0, 1): 1}


def test_every_parquet_file_is_asked_whether_it_has_the_column(tmp_path):
    """If one of them has it, the folders do not tell; the one that has not is refused by name."""
    for name, columns in (("a=0", {"s": [0], "s_next": [1]}), ("a=1", {"s": [0], "a": [0], "s_next": [1]})):
        (tmp_path / name).mkdir()
        parquet(tmp_path / name / "log.parquet", **columns)
    assert_refused(lambda: pt.sources.logs(tmp_path, TASK), "no column 'a'")


@pytest.mark.parametrize(("key", "value"), [("count", 7), ("reward", 0.0), ("order", 1), ("episode", "x")])
def test_keys_that_come_late_in_json_lines_are_refused(tmp_path, key, value):
    """What the first lines do not have would be ignored in silence."""
    row = {"s": 0, "a": 0, "s_next": 1}
    early = json.dumps(row) + "\n"
    for late in (value, None):
        path = put(tmp_path / "log.jsonl", early * 105 + json.dumps({**row, key: late}) + "\n")
        with pytest.raises(pt.InputError, match=f"line 106: the key '{key}' is not in the first line"):
            pt.sources.logs(path, TASK)
        assert pt.sources.logs(path, TASK, columns={key: None}).counts.total == 106


@pytest.mark.parametrize("missing", [False, True])
def test_categories_of_polars(missing):
    """Their codes are unsigned, so that no -1 fits among them."""
    kinds = [pl.Categorical, pl.Enum(["home", "ward"])]
    task = make_task(states=["ward", "home", "c", "d", "e"])
    for kind in kinds:
        frame = pl.DataFrame({"s": pl.Series(["ward", None if missing else "home"], dtype=kind), "a": [0, 1]})
        frame = frame.with_columns(s_next=pl.Series(["home", "ward"], dtype=kind))
        expected = {(0, 0, 1): 1} if missing else {(0, 0, 1): 1, (1, 1, 0): 1}
        assert triples(pt.sources.logs(frame, task, skip="s").counts) == expected
        if missing:
            assert_refused(lambda frame=frame: pt.sources.logs(frame, task), "null in column s (1 row)")


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    """A pipe would be waited for without end, and logs are read twice."""
    os.mkfifo(tmp_path / "pipe.csv")
    assert_refused(lambda: pt.sources.logs(tmp_path / "pipe.csv", TASK), "not a regular file", "use watch")


BAD_FILES = {
    "empty.csv": ("", "the file is empty"),
    "blank.csv": ("\n\n", "line 1: it is empty"),
    "header.csv": (HEADER, "no rows"),
    "no-header.csv": ("0,0,1\n1,0,1\n", "has no column 's'"),
    "latin.csv": ((HEADER + "é,0,1\n").encode("latin-1"), "line 2: byte 0 is not UTF-8"),
    "latin-later.csv": ((HEADER + "0,0,1\n" * 200_000).encode() + b"\xe9,0,1\n", "line 200002: byte 0 is not UTF-8"),
    "utf16.csv": ((HEADER + "0,0,1\n").encode("utf-16"), "line 1", "not UTF-8"),
    "nul.csv": (HEADER + "0,\0,1\n", "NUL"),
    "short-row.csv": (HEADER + "0,0,1\n0,0\n", "Line: 3"),
    "long-row.csv": (HEADER + "0,0,1\n0,0,1,1\n", "Line: 3"),
    "quote.csv": (HEADER + '0,0,"1\n', "quote"),
    "twice.csv": ("s,s,a,s_next\n0,0,0,1\n", "the column 's' twice"),
    "cut.csv.gz": (gzip.compress((HEADER + "0,0,1\n" * 1000).encode())[:40], "damaged or cut short"),
    "cut-later.csv.gz": (
        gzip.compress((HEADER + "".join(f"{i % 5},{i % 7 % 3},{i % 11 % 5}\n" for i in range(400_000))).encode())[:-9],
        "cut-later.csv.gz",
    ),
    "plain.csv.gz": (HEADER + "0,0,1\n", "damaged"),
    "zipped.csv": (gzip.compress(HEADER.encode()), "not UTF-8"),
    "text.parquet": (HEADER, "text.parquet"),
    "empty.parquet": ("", "empty.parquet"),
    "empty.jsonl": ("", "no lines"),
    "broken.jsonl": ('{"s": 0, "a": 0, "s_next": 1}\n{"s": 0\n', "line 2: this is not JSON"),
    "broken-later.jsonl": ('{"s": 0, "a": 0, "s_next": 1}\n' * 200 + "{s\n", "line 20"),
    "list.jsonl": ("[0, 0, 1]\n", "line 1: this is a list"),
    "key.jsonl": ('{"s": 0, "a": 0}\n', "has no column 's_next'"),
    "key-later.jsonl": ('{"s": 0, "a": 0, "s_next": 1}\n{"s": 0, "a": 0}\n', "line 2: the key 's_next' is missing"),
    "object.jsonl": ('{"s": {"x": 1}, "a": 0, "s_next": 1}\n', 'unknown state {"x":1} in column s (1 row)'),
    "unknown.dat": (HEADER, "does not tell what it is"),
    "null.csv": (HEADER + "0,0,\n0,0,1\n", "null in column s_next (1 row); fix the data"),
    "labels.csv": (
        HEADER + "x,0,1\ny,0,1\nx,0,1\n0,7,1\n",
        "unknown states in column s: 'x' (2 rows), 'y' (1 row), and unknown action '7' in column a (1 row)",
        'skip=("s", "a",)',
    ),
    "huge.csv": (
        HEADER + "99999999999999999999,0,1\n0,0,1e400\n-1,0,1\n0.5,0,1\n",
        "unknown state '1e400' in column s_next (1 row)",
    ),
    "order-text.csv": ("s,a,s_next,order\n0,0,1,Tuesday\n", "column order", "'Tuesday'"),
    "order-null.csv": ("s,a,s_next,order\n0,0,1,\n0,0,1,2\n", "column order"),
    "order-fraction-later.csv": (
        "s,a,s_next,order\n" + "".join(f"0,0,1,{i}\n" for i in range(1500)) + "0,0,1,9999.5\n",
        "'9999.5'",
    ),
    "order-twice.csv": ("s,a,s_next,order\n0,0,1,3\n0,0,1,3\n", "2 rows with order=3"),
    "episode-null.csv": ("s,a,s_next,order,episode\n0,0,1,3,\n", "column episode"),
    "key-twice.csv": (
        "s,a,s_next,order,episode\n0,0,1,3,x\n0,0,1,3,y\n1,0,1,3,y\n",
        "2 rows with episode='y', order=3",
    ),
    "reward-text.csv": ("s,a,s_next,reward\n0,1,1,x\n", "column reward", "'x'"),
    "reward-null.csv": ("s,a,s_next,reward\n0,1,1,\n0,1,1,0.25\n", "column reward"),
    "reward-other.csv": ("s,a,s_next,reward\n0,1,1,0.3\n", "is 0.3 at (s=0, a=1, x=1), the task has 0.25"),
    "reward-varies.csv": ("s,a,s_next,reward\n0,1,1,0.25\n0,1,1,0.75\n", "from 0.25 to 0.75 at (s=0, a=1, x=1)"),
    **{
        f"count-{at}.csv": (f"s,a,s_next,count\n0,0,1,{count}\n", "the column count must hold whole numbers")
        for at, count in enumerate(("-1", "1.5", "nan", "", "inf", "1e400", "99999999999999999999", "x", 2**62))
    },
    "count-sum.csv": ("s,a,s_next,count\n" + f"0,0,1,{2**62 - 1}\n" * 3, "adds up to"),
    "count-sum-2.csv": (f"s,a,s_next,count\n0,0,1,{2**61}\n0,0,2,{2**61}\n", "2**62"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line(tmp_path, name):
    content, *fragments = BAD_FILES[name]
    assert_refused(lambda: pt.sources.logs(put(tmp_path / name, content), TASK), *fragments)


def test_a_cut_parquet_file_is_refused(tmp_path):
    whole = parquet(tmp_path / "log.parquet", **columns_of(ROWS)).read_bytes()
    for size in (len(whole) - 10, len(whole) // 2, 4):
        assert_refused(
            lambda size=size: pt.sources.logs(put(tmp_path / "cut.parquet", whole[:size]), TASK), "cut.parquet"
        )
    damaged = put(tmp_path / "damaged.parquet", whole[:4] + b"\xff" * 40 + whole[44:])
    assert_refused(lambda: pt.sources.logs(damaged, TASK), "damaged.parquet: the file is damaged")


@pytest.mark.parametrize(
    ("data", "fragments"),
    [
        ("missing.csv", ["there is no file", "did you mean 'missing2.csv'?"]),
        ("*.parquet", ["no file matches"]),
        ("s3://bucket/log.parquet", ["not a local file"]),
        ("", ["pass the path"]),
        ("nul\0.csv", ["pass the path"]),
        ([], ["empty list"]),
        ("loop.csv", ["cannot be read"]),
        ("nothing", ["has no files that end in"]),
        (["missing2.csv", "./missing2.csv"], ["twice"]),
        (["missing2.csv", "link.csv"], ["twice"]),
        (["missing2.csv", "log.jsonl"], ["different kinds"]),
        ("log.parquet.gz", ["does not tell"]),
        (None, ["data is a NoneType; pass a path"]),
        (3, ["data is a int"]),
        (np.zeros((2, 3)), ["data is a ndarray"]),
        ({"s": [0]}, ["data is a dict"]),
        (pd.Series([1]), ["data is a Series"]),
        (pd.DataFrame(np.zeros((1, 3))), ["names are not strings"]),
        (pd.DataFrame([[0, 0, 0, 1]], columns=["s", "s", "a", "s_next"]), ["'s' 2 times"]),
        (pd.DataFrame({"s": [], "a": [], "s_next": []}), ["no rows"]),
        (pa.table({"s": [0]}).to_reader(), ["read only once"]),
        (pa.array([1]), ["data is a Int64Array"]),
        (pl.DataFrame({"s": [0], "a": [0]}), ["no column 's_next'"]),
        (pl.LazyFrame({"s": [0], "a": [0], "s_next": [0]}).select(pl.col("q")), ["cannot be read"]),
        (one_row(count="1"), ["count has the type String"]),
        (one_row(count=True), ["count has the type Boolean"]),
        (one_row(reward="1"), ["reward has the type String"]),
        (one_row(order="x"), ["order has the type String"]),
        (one_row(s=b"0"), ["s has the type Binary"]),
        (one_row(s={"x": 1}), ["s has the type Struct"]),
        (one_row(s=[0, 1]), ["unknown state (0, 1) in column s (1 row)"]),
        (one_row(s=datetime.date(2026, 11, 15)), ["unknown state datetime.date(2026, 11, 15) in column s"]),
        (one_row(s=-1), ["unknown state -1 in column s"]),
        (one_row(s=5), ["unknown state 5 in column s"]),
        (one_row(s=0.5), ["unknown state 0.5 in column s"]),
        (one_row(s=float("nan")), ["null in column s"]),
        (one_row(s=float("inf")), ["unknown state inf in column s"]),
        (one_row(s=2**64 - 1), ["unknown state 18446744073709551615 in"]),
        (one_row(s="zero"), ["unknown state 'zero' in column s"]),
        (one_row(s="\x1b[2J\n"), ["unknown state '\\x1b[2J\\n' in column s"]),
    ],
    ids=lambda value: "" if isinstance(value, list) else type(value).__name__,
)
def test_bad_data_is_refused_in_one_line(tmp_path, monkeypatch, data, fragments):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "missing2.csv", HEADER + "0,0,1\n")
    put(tmp_path / "log.jsonl", lines())
    put(tmp_path / "log.parquet.gz", b"")
    os.symlink("loop.csv", "loop.csv")
    os.symlink("missing2.csv", "link.csv")
    os.mkdir("nothing")
    assert_refused(lambda: pt.sources.logs(data, TASK), *fragments)


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"columns": "s"}, "columns is a str"),
        ({"columns": {"state": "s"}}, "columns has the key 'state'"),
        ({"columns": {"s_nxt": "s"}}, "did you mean 's_next'?"),
        ({"columns": {"s": None}}, "s and a are required"),
        ({"columns": {"s": 0}}, "pass the name of a column"),
        ({"columns": {"s": "a", "s_next": "a"}}, "is mapped to two roles"),
        ({"columns": {"s": "a"}}, "column 'a' is mapped to another role"),
        ({"columns": {"s": "sate"}}, "the columns are 's', 'a', 's_next'"),
        ({"columns": {"count": "n"}}, "has no column 'n' for count"),
        ({"skip": ("x",)}, "skip has 'x'"),
        ({"skip": 3}, "skip has 3"),
        ({"add_to": 3}, "add_to is a int"),
        ({"add_to": pt.Counts(2, 2)}, "5 states"),
        ({"reward_tolerance": -1.0}, "reward_tolerance"),
        ({"reward_tolerance": "x"}, "reward_tolerance"),
    ],
)
def test_bad_settings_are_refused(settings, fragment):
    assert_refused(lambda: pt.sources.logs(one_row(), TASK, **settings), fragment)


def test_the_task_is_checked():
    assert_refused(lambda: pt.sources.logs(one_row(), one_row()), "task is a DataFrame")


def test_columns_by_other_names(tmp_path):
    """Quotes in names, in every format; the suggestion names the argument."""
    names = {"s": 'the "state" it\'s in', "a": "SELECT *", "s_next": "x; DROP TABLE y"}
    frame = pl.DataFrame({names[part]: column for part, column in columns_of(ROWS).items()})
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_csv(tmp_path / "log.csv")
    frame.write_ndjson(tmp_path / "log.jsonl")
    for data in (frame, frame.to_pandas(), *(tmp_path / f"log.{kind}" for kind in ("parquet", "csv", "jsonl"))):
        assert triples(pt.sources.logs(data, TASK, columns=names).counts) == TRIPLES
    other = one_row().rename({"s": "state", "a": "action", "s_next": "next_state"})
    meant = 'did you mean columns={"s": "state", "a": "action", "s_next": "next_state"}?'
    assert_refused(lambda: pt.sources.logs(other, TASK), meant)
    other = other.rename({"state": "where", "next_state": "next_segment"})
    meant = 'name them with columns={"s": ..., "a": "action", "s_next": "next_segment"}'
    assert_refused(lambda: pt.sources.logs(other, TASK), meant)
    swapped = one_row(count=2).rename({"s": "count", "count": "s"})
    for data in (swapped, swapped.lazy(), swapped.to_arrow(), swapped.to_pandas()):
        assert triples(pt.sources.logs(data, TASK, columns={"s": "count", "count": "s"}).counts) == {(0, 0, 1): 2}


def test_files_that_do_not_fit_together(tmp_path):
    one = parquet(tmp_path / "1.parquet", s=[0], a=[0], s_next=[1])
    for name, columns, fragment in (
        ("text", {"s": ["0"], "a": [0], "s_next": [1]}, "VARCHAR"),
        ("names", {"s": [0], "a": [0], "to": [1]}, 'did you mean columns={"s_next": "to"}?'),
        ("counts", {"s": [0], "a": [0], "s_next": [1], "count": [1]}, "has a column count"),
    ):
        other = parquet(tmp_path / f"{name}.parquet", **columns)
        assert_refused(lambda other=other: pt.sources.logs([one, other], TASK), str(other), fragment)
    mixed = [one, parquet(tmp_path / "float.parquet", s=[0.0, None], a=[0, 0], s_next=[1, 1])]
    assert triples(pt.sources.logs(mixed, TASK, skip="s").counts) == {(0, 0, 1): 2}
    plain = [put(tmp_path / "1.csv", HEADER + "0,0,1\n"), put(tmp_path / "2.csv", "s,a,s_next,reward\n0,0,1,0\n")]
    assert_refused(lambda: pt.sources.logs(plain, TASK), "has a column reward")


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("names", "label", "form", "index"),
    [
        (None, 2, "typed", 2),
        (None, 2.0, "typed", 2),
        (None, np.int8(2), "typed", 2),
        (None, decimal.Decimal(2), "typed", 2),
        (None, True, "typed", 1),
        (None, "2", "text", 2),
        (None, " +02.0 ", "typed", 2),
        (None, "2.5", "text", UNKNOWN),
        (None, "-1", "text", UNKNOWN),
        (None, "3", "text", UNKNOWN),
        (None, "٢", "text", UNKNOWN),  # another script's digit
        (None, decimal.Decimal("NaN"), "typed", UNKNOWN),
        (None, (2,), "typed", UNKNOWN),
        (None, None, "typed", MISSING),
        (None, float("nan"), "typed", MISSING),
        (None, pd.NA, "typed", MISSING),
        (None, pd.NaT, "typed", MISSING),
        (None, "", "text", UNKNOWN),
        (["a", "b", "c"], "b", "text", 1),
        (["a", "b", "c"], " b ", "text", 1),
        (["a", "b", "c"], 1, "typed", UNKNOWN),
        (["", "b", "c"], "", "typed", 0),
        ([10, 20, 35], 35, "typed", 2),
        ([10, 20, 35], "35", "text", 2),
        ([10, 20, 35], "035.0", "text", 2),
        ([10, 20, 35], 2, "typed", UNKNOWN),
        ([10, 20, "20"], "20", "typed", 2),
        ([10, 20, "20"], 20, "typed", 1),
        (["007", "7", "x"], "007", "text", 0),
        (["007", "7", "x"], 7, "typed", 1),
        ([0.5, 1.5, 3.0], "1.5", "text", 1),
        ([0.5, 1.5, 3.0], 3, "typed", 2),
        ([0.5, 1.5, 3.0], "3", "text", 2),
        ([False, True, 2], "true", "text", 1),
        ([False, True, 2], True, "typed", 1),
        ([(0, 0), (0, 1), 2], [0, 1], "typed", 1),
        ([(0, 0), (0, 1), 2], "(0, 1)", "text", 1),
        ([(0, 0), (0, 1), 2], "(0,1)", "text", 1),
        ([(0, 0), (0, 1), 2], "[0, 1]", "json", 1),
        ([(0, 0), (0, 1), 2], {"x": 1}, "typed", UNKNOWN),
        ([datetime.date(2026, 11, 15), 1, 2], datetime.date(2026, 11, 15), "typed", 0),
        ([datetime.date(2026, 11, 15), 1, 2], "2026-11-15", "text", 0),
        ([datetime.datetime(2026, 11, 15, 12), 1, 2], "2026-11-15 12:00:00", "text", 0),
        (["2026-11-15", 1, 2], datetime.date(2026, 11, 15), "typed", 0),
        (["a", 3, None], None, "typed", MISSING),
        (["0", "go", 3], "0 ", "text", 0),
        (["0", "go", 3], " go ", "text", 1),
        (["0", "go", 3], "3 ", "text", 2),
        (["go", "go ", "x"], "go ", "text", 1),
        (["a", 3, "3.0"], "3", "json", 1),
        (["a", 3, "x"], '"3"', "json", 1),
        (["a", 3, "3"], '"3"', "json", 2),
    ],
)
def test_labels(names, label, form, index):
    assert Lookup("state", names, 3).indices([label, label], form).tolist() == [index, index]


def test_a_label_that_may_be_two_names_is_refused_in_text():
    lookup = Lookup("state", [3, "3", "x"], 3)
    assert lookup.indices([3, "3"]).tolist() == [0, 1]
    for text in ("3", " 3"):
        assert_refused(lambda: lookup.index(text, "text"), f"{text!r}", "may be '3' or 3")  # noqa: B023


def test_named_states_in_every_form(tmp_path):
    """Strings, numbers with gaps and tuples, from CSV, JSON lines and a frame of mixed types."""
    names = ["ward", 17, (0, 1), "nürse, 2", 2.5]
    task = make_task(states=names, actions=["no", "yes", 3])
    rng = np.random.default_rng(0)
    s, a, x = (rng.integers(0, n, 300) for n in (S, A, S))
    expected = pt.Counts(S, A)
    expected.record(s, a, x)
    frame = pd.DataFrame(
        {"s": [names[i] for i in s], "a": [task.actions[i] for i in a], "s_next": [names[i] for i in x]}
    )
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    for data in (frame, tmp_path / "log.csv", tmp_path / "log.jsonl"):
        assert pt.sources.logs(data, task).counts == expected


def test_categories_and_missing_values_of_pandas():
    frame = pd.DataFrame(
        {"s": pd.Categorical([0, 1, None]), "a": pd.array([0, None, 1], "Int64"), "s_next": [1.0, 1, 1]}
    )
    log = pt.sources.logs(frame, TASK, skip=("s", "a"))
    assert triples(log.counts) == {(0, 0, 1): 1}
    assert [(gone.column, gone.reason, gone.rows) for gone in log.left_out] == [("s", "null", 1), ("a", "null", 1)]


@given(
    st.lists(st.tuples(st.integers(0, S - 1), st.integers(0, A - 1), st.integers(0, S - 1)), min_size=1, max_size=30)
)
def test_any_table_is_counted(rows):
    expected = pt.Counts(S, A)
    expected.record(*np.array(rows).T)
    columns = columns_of(rows)
    assert pt.sources.logs(pl.DataFrame(columns), TASK).counts == expected
    assert pt.sources.logs(pd.DataFrame(columns).astype(str), TASK).counts == expected


def test_groups_arrive_in_pieces_and_their_number_is_bounded(monkeypatch, tmp_path):
    rng = np.random.default_rng(1)
    columns = columns_of(rng.integers(0, 3, (500, 3)))
    expected = pt.sources.logs(pl.DataFrame(columns), TASK).counts
    path = parquet(tmp_path / "log.parquet", **columns)
    monkeypatch.setattr(frames, "BATCH", 5)
    assert pt.sources.logs(path, TASK).counts == expected
    for data in (path, pl.DataFrame(columns), pl.LazyFrame(columns)):
        frame = frames.open_frame(data)
        with pytest.raises(pt.InputError, match="more than 20 different rows"):
            list(frames.batches(frames.tallied(frame), limit=20))


# ---------------------------------------------------------------- counts, rewards, support


def test_multiplicities():
    frame = pl.DataFrame({"s": [0, 0, 1], "a": [0, 0, 1], "s_next": [1, 1, 2], "count": [3.0, 4.0, 0.0]})
    log = pt.sources.logs(frame, TASK)
    assert triples(log.counts) == {(0, 0, 1): 7}
    assert (log.rows, log.used, log.counts.total) == (3, 3, 7)
    assert pt.sources.logs(frame, TASK, columns={"count": None}).counts.total == 3
    largest = pl.DataFrame({"s": [0], "a": [0], "s_next": [1], "count": [2**61 + 1]})
    assert pt.sources.logs(largest, TASK).counts.total == 2**61 + 1


def test_rewards_are_the_tasks():
    def check(task, reward, **settings):
        frame = pl.DataFrame({"s": [1, 1], "a": [1, 1], "s_next": [2, 3], "reward": reward})
        return pt.sources.logs(frame, task, **settings).counts.total

    assert check(TASK, [1.0, 1.0]) == 2
    assert check(TASK, [1, 1]) == 2
    assert check(TASK, np.array([1.0, 1.0], dtype=np.float32)) == 2
    assert check(TASK, [1.0, 1.0 + 1e-7], reward_tolerance=1e-6) == 2
    assert_refused(lambda: check(TASK, [1.0, 1.0 + 1e-7]), "(s=1, a=1, x=3)")
    on_successor = np.zeros((S, A, S))
    on_successor[1, 1] = np.arange(S)
    task = make_task(rewards=on_successor)
    assert check(task, [2.0, 3.0]) == 2
    assert_refused(lambda: check(task, [2.0, 2.0]), "is 2 at (s=1, a=1, x=3), the task has 3")
    flat = sparse.csr_array(on_successor.reshape(-1, S))
    task = make_task(rewards=flat, support=sparse.csr_array(np.ones((S * A, S))))
    assert check(task, [2.0, 3.0]) == 2
    assert_refused(lambda: check(task, [2.0, 2.0]), "is 2 at (s=1, a=1, x=3), the task has 3")


def test_rewards_of_actions_that_are_never_taken_do_not_matter():
    frame = pl.DataFrame({"s": [1], "a": [2], "s_next": [2], "reward": [99.0]})
    assert pt.sources.logs(frame, TASK).idle == 1


@pytest.mark.parametrize("form", [np.asarray, lambda table: sparse.csr_array(table.reshape(-1, S))])
def test_successors_outside_the_support_are_refused(form):
    support = np.zeros((S, A, S), dtype=bool)
    support[:, :2, :2] = True
    task = make_task(support=form(support))
    inside = pl.DataFrame({"s": [3, 3], "a": [0, 1], "s_next": [0, 1]})
    log = pt.sources.logs(inside, task)
    assert triples(log.counts) == {(3, 0, 0): 1, (3, 1, 1): 1}
    assert log.counts.sparse == sparse.issparse(task.support)
    outside = pl.DataFrame({"s": [3, 3, 3], "a": [0, 1, 1], "s_next": [0, 4, 4]})
    assert_refused(lambda: pt.sources.logs(outside, task), "2 times the transition (s=3, a=1, x=4)", "support")
    idle = pl.DataFrame({"s": [3], "a": [2], "s_next": [4]})
    assert pt.sources.logs(idle, task).idle == 1


def test_many_states_stay_sparse(monkeypatch):
    """10,000 states with 10 actions: a dense table would have 10^9 entries."""
    states, actions = 10_000, 10
    policy, initial = np.full((states, actions), 1 / actions), np.full(states, 1 / states)
    task = pt.Task(np.zeros((states, actions)), policy, initial, 0.9)
    log = pt.sources.logs(pl.DataFrame({"s": [0, 9999, 9999], "a": [0, 9, 9], "s_next": [9999, 0, 0]}), task)
    assert log.counts.sparse
    assert log.counts.total == 3
    assert int(log.counts.N[[99_999]].toarray()[0, 0]) == 2
    monkeypatch.setattr(counting, "DENSE_LIMIT", S * A * S - 1)
    assert pt.sources.logs(one_row(), TASK).counts.sparse


# ---------------------------------------------------------------- what is left out


def holes():
    """Of six rows two are fine; the others lack s, a, s_next, and both s and s_next."""
    none = None
    rows = [(0, 0, 1), (1, 1, 2), (none, 0, 1), (0, 9, 1), (0, 0, 9), (9, 0, none)]
    return pd.DataFrame(rows, columns=["s", "a", "s_next"], dtype=object)


def test_rows_are_left_out_for_their_past_without_loss():
    frame = holes()[:4]
    log = pt.sources.logs(frame, TASK, skip=("s", "a"))
    assert triples(log.counts) == {(0, 0, 1): 1, (1, 1, 2): 1}
    assert (log.rows, log.used, log.selected) == (4, 2, False)
    assert_refused(lambda: pt.sources.logs(frame, TASK, skip="s"), "unknown action 9 in column a (1 row)")
    assert_refused(lambda: pt.sources.logs(holes(), TASK, skip=("s", "a")), "unknown state 9.0 in column s_next")


def test_rows_left_out_for_their_outcome_cost_the_guarantee():
    with pytest.warns(pt.AssumptionWarning, match="1 row dropped for s_next"):
        log = pt.sources.logs(holes(), TASK, skip=("s", "a", "s_next"))
    assert log.selected
    assert log.counts.selected
    assert [(gone.column, gone.rows) for gone in log.left_out] == [("s", 1), ("s", 1), ("a", 1), ("s_next", 1)]
    assert "not certified" in str(log)


def test_nothing_is_selected_where_nothing_was_left_out():
    """Leaving out on request is harmless if there was no such row."""
    assert not pt.sources.logs(holes()[:2], TASK, skip="s_next").selected


def test_selection_at_pairs_that_this_policy_does_not_take_is_kept_for_the_next_one(tmp_path):
    """Counts outlive the policy: another one may take the third action."""
    idle = pd.DataFrame({"s": [0, 0], "a": [2, 0], "s_next": [9, 1]})
    with pytest.warns(pt.AssumptionWarning, match="1 row dropped for s_next"):
        log = pt.sources.logs(idle, TASK, skip="s_next")
    assert log.left_out[0].rows == 1
    log.save(tmp_path / "log.npz")
    other = make_task(policy=np.tile([0.0, 0.0, 1.0], (S, 1)))
    assert pt.sources.Log.load(tmp_path / "log.npz", other).selected
    assert log.counts.selected


def paid(rewards):
    n = len(rewards)
    return {"s": [1] * n, "a": [1] * n, "s_next": [2] * n, "reward": rewards}


AS_FILES = {
    "log.csv": lambda path, table: pd.DataFrame(table).to_csv(path, index=False),
    "log.jsonl": lambda path, table: pd.DataFrame(table).to_json(path, orient="records", lines=True),
    "log.parquet": lambda path, table: pq.write_table(pa.table(table), path),
}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.table}


@pytest.mark.parametrize("form", [*AS_FILES, *FRAMES])
@pytest.mark.parametrize(
    ("rewards", "differ"),
    [([1.0, 1.0], False), ([1.0, 7.0], True), ([1.0, None], False), ([None, None], False), (["1.0", "much"], True)],
)
def test_rewards_that_are_left_alone_are_compared_all_the_same(tmp_path, form, rewards, differ):
    """TASK pays 1 there. What is missing contradicts nothing; what is no number cannot be the task's reward."""
    data = FRAMES[form](paid(rewards)) if form in FRAMES else tmp_path / form
    if form in AS_FILES:
        AS_FILES[form](data, paid(rewards))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        log = pt.sources.logs(data, TASK, columns={"reward": None})
    assert [str(one.message)[:21] for one in said] == (["the column reward is "] if differ else [])
    assert log.counts.total == 2
    assert log.counts.other_rewards is log.other_rewards is differ
    assert ("not certified" in str(log)) is differ


def test_rewards_are_left_alone_where_only_some_files_have_them(tmp_path):
    for name, with_reward, without in (("csv", "log.csv", "other.csv"), ("parquet", "log.parquet", "other.parquet")):
        AS_FILES[with_reward](tmp_path / with_reward, paid([3.0]))
        table = paid([0.0, 0.0])
        del table["reward"]
        AS_FILES[with_reward](tmp_path / without, table)
        with pytest.warns(pt.AssumptionWarning, match=r"reward is 3 at \(s=1, a=1, x=2\), the task has 1 there"):
            log = pt.sources.logs(str(tmp_path / f"*.{name}"), TASK, columns={"reward": None})
        assert (log.counts.total, log.other_rewards) == (3, True)


def test_where_rewards_count():
    """Not where the policy never goes; but where the successor is known, and whatever reward_tolerance lets pass."""
    alone = {"columns": {"reward": None}}
    assert not pt.sources.logs(one_row(a=2, reward=9.0), TASK, **alone).other_rewards
    support = np.ones((S, A, S), dtype=bool)
    support[0] = np.eye(S, dtype=bool)[1]
    for task, settings in ((make_task(support=support), alone), (TASK, {"reward_tolerance": 0.5})):
        with pytest.warns(pt.AssumptionWarning, match="no answer from these counts is certified"):
            assert pt.sources.logs(one_row(reward=0.3), task, **settings).other_rewards
    assert not pt.sources.logs(one_row(reward=1e-7), TASK, reward_tolerance=1e-6).other_rewards


def test_means_of_noisy_rewards_are_never_certified():
    """At V = R, group means in place of the rewards answer, and wrongly, in a good part of all logs; none is proved."""
    kernel, truth = np.array([[[0.5, 0.5]], [[0.5, 0.5]]]), np.array([[1.0], [0.0]])
    answered = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        s = rng.integers(0, 2, 4000)
        reward = truth[s, 0] + rng.normal(0.0, 2.0, len(s))
        frame = pl.DataFrame({"s": s, "a": 0 * s, "s_next": rng.integers(0, 2, len(s)), "reward": reward})
        means = [[reward[s == state].mean()] for state in (0, 1)]
        task = pt.Task(means, np.ones((2, 1)), [0.5, 0.5], 0.99)
        assert_refused(lambda f=frame, t=task: pt.sources.logs(f, t), "Estimated rewards", "void the guarantee")
        with pytest.warns(pt.AssumptionWarning):
            log = pt.sources.logs(frame, task, columns={"reward": None})
        threshold = pt.value(pt.Task(truth, task.policy, task.initial, task.discount), kernel)
        verdict = pt.assess(task, log, threshold=threshold)
        answered += verdict.answer is not None
        assert not verdict.certified
    assert answered >= 5


def selected_data(selected):
    two = pt.instances.paper(2)
    rng = np.random.default_rng(0)
    s, a = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    x = pt.TabularSimulator(two.kernel).draw(s, a, rng)
    counts = pt.Counts(2, 2, selected=selected)
    counts.record(s, a, x)
    return two.task, counts, pt.Transitions(s, a, x, selected=selected)


@pytest.mark.parametrize("selected", [False, True])
def test_answers_from_selected_data_are_not_certified(selected):
    task, counts, transitions = selected_data(selected)
    for data in (counts, transitions):
        verdict = pt.assess(task, data, threshold=0.0)
        assert verdict.answer == "above"
        assert verdict.certified is not selected
        assert ("no guarantee holds" in str(verdict)) is selected
        assert pt.value_interval(task, data).certified is not selected
    assert pt.value_interval(task, transitions, method=pt.TDBetting()).certified is not selected
    assert pt.value_interval(task, transitions, method=pt.PTST()).certified is not selected


def test_answers_from_data_with_other_rewards_are_not_certified():
    """Not even one that needs no data: it follows from the rewards."""
    task, counts, transitions = selected_data(False)
    counts += pt.Counts(2, 2, other_rewards=True)
    for data in (counts, replace(transitions, other_rewards=True)):
        for threshold in (0.0, -1e6):
            verdict = pt.assess(task, data, threshold=threshold)
            assert (verdict.answer, verdict.certified) == ("above", False)
            assert "the rewards in the data differ from the task's: no guarantee holds" in str(verdict)
            assert json.loads(verdict.to_json())["other_rewards"] is True
        assert not pt.value_interval(task, data).certified
        alike = pt.Task(np.ones((2, 2)), task.policy, task.initial, task.discount)
        assert not pt.value_interval(alike, data).certified


@pytest.mark.parametrize("flag", ["selected", "other_rewards"])
def test_flags_of_counts_are_kept(tmp_path, flag):
    flawed, clean = pt.Counts(2, 2, **{flag: True}), pt.Counts(2, 2)
    flawed.save(tmp_path / "counts.npz")
    grown = pt.Counts(2, 2)
    grown += flawed
    for counts in (flawed.copy(), clean + flawed, flawed + clean, grown, pt.Counts.load(tmp_path / "counts.npz")):
        assert getattr(counts, flag)
        assert len(counts.flaws) == 1
    assert not (clean + clean).flaws
    assert not clean.flaws
    nothing = np.zeros(0, dtype=int)
    assert pt.Transitions(nothing, nothing, nothing, **{flag: True}).counts(TASK, 0).flaws == flawed.flaws


def test_selection_by_outcome_is_what_breaks_a_test():
    """The reason for the flag: rows with one successor dropped give a certain, wrong answer; dropped states do not."""
    rng = np.random.default_rng(3)
    task = pt.Task([[1.0], [0.0]], [[1.0], [1.0]], [1.0, 0.0], 0.5)
    kernel = np.array([[[0.3, 0.7]], [[0.3, 0.7]]])
    truth = pt.value(task, kernel)
    s = rng.integers(0, 2, 4000)
    x = pt.TabularSimulator(kernel).draw(s, np.zeros_like(s), rng)
    frame = pd.DataFrame({"s": s, "a": 0, "s_next": x}).astype({"s": object, "s_next": object})
    lost = frame.copy()
    lost.loc[(x == 1) & (rng.random(len(s)) < 0.8), "s_next"] = None
    with pytest.warns(pt.AssumptionWarning):
        selected = pt.sources.logs(lost, task, skip="s_next").counts
    assert pt.assess(task, selected, truth + 0.2).answer == "above"  # wrong, and not certified
    assert not pt.assess(task, selected, truth + 0.2).certified
    gaps = frame.copy()
    gaps.loc[rng.random(len(s)) < 0.4, "s"] = None
    kept = pt.sources.logs(gaps, task, skip="s").counts
    assert pt.assess(task, kept, truth + 0.2).answer == "below"
    assert pt.assess(task, kept, truth + 0.2).certified


# ---------------------------------------------------------------- order


def ordered(**changes):
    columns = {"s": [3, 1, 2, 0], "a": [0, 1, 0, 1], "s_next": [0, 0, 1, 1], "order": [4, 2, 3, 1]}
    return pl.DataFrame({**columns, **changes})


def test_transitions_come_in_their_order():
    found = pt.sources.logs(ordered(), TASK).transitions()
    assert (found.s.tolist(), found.a.tolist(), found.x.tolist()) == ([0, 1, 2, 3], [1, 1, 0, 0], [1, 0, 1, 0])
    assert not found.selected
    times = [datetime.datetime(2026, 1, day) for day in (4, 2, 3, 1)]
    assert pt.sources.logs(ordered(order=times), TASK).transitions().s.tolist() == [0, 1, 2, 3]
    some = pt.sources.logs(ordered(count=[0, 1, 1, 1]), TASK)
    assert some.in_order()
    assert some.transitions().s.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_rows_that_stand_for_several_transitions_have_no_order(tmp_path, kind):
    """Which of 2 + 1 came first, nobody knows; the counts hold all the same."""
    data = ordered(count=[0, 2, 1, 1])
    if kind != "frame":
        getattr(data, f"write_{kind}")(tmp_path / f"log.{kind}")
        data = tmp_path / f"log.{kind}"
    log = pt.sources.logs(data, TASK)
    assert log.counts.total == 4
    for by_episode in (False, True):
        assert not log.in_order()
        assert_refused(lambda by_episode=by_episode: log.transitions(by_episode), "count above 1", "use log.counts")


def test_sums_in_the_order_of_outcomes_would_be_answers_at_the_value_itself():
    """The reason: hourly sums list good outcomes first, and whoever bets on that order is right every time."""
    task = pt.Task([[0.0], [1.0]], [[1.0], [1.0]], [1.0, 0.0], 0.5)
    kernel = np.full((2, 1, 2), 0.5)
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(5):
        good = rng.binomial(50, 0.5, (10, 2))
        rows = [(s, 0, x, good[h, s] if x else 50 - good[h, s]) for h in range(10) for s in (1, 0) for x in (1, 0)]
        frame = pd.DataFrame(rows, columns=["s", "a", "s_next", "count"])
        log = pt.sources.logs(frame.assign(order=np.arange(len(frame))), task)
        assert_refused(log.transitions, "count above 1")
        s, a, x = (np.repeat(frame[name].to_numpy(), frame["count"]) for name in ("s", "a", "s_next"))
        wrong += pt.assess(task, pt.Transitions(s, a, x), pt.value(task, kernel)).answer == "above"
        assert pt.assess(task, log.counts, pt.value(task, kernel)).answer is None
    assert wrong == 5


def test_text_orders_as_numbers_or_times(tmp_path):
    for at, orders in enumerate(
        [("10", "9", "9.5", "-1"), ("10", "8", "9", "-1"), ("1700000000000000003", "1700000000000000001",
         "1700000000000000002", "3"), ("2026-11-15T00:00:00", "2026-01-15 00:00:00", "2026-02-01 00:00:00.5",
         "1999-01-01")]
    ):  # fmt: skip
        rows = zip((3, 1, 2, 0), orders, strict=True)
        path = put(tmp_path / f"{at}.csv", "s,a,s_next,order\n" + "".join(f"{s},0,0,{order}\n" for s, order in rows))
        assert pt.sources.logs(path, TASK).transitions().s.tolist() == [0, 1, 2, 3]


def test_rows_of_the_same_time_are_taken_by_their_episode(tmp_path):
    """By (order, episode id), whichever way they lie in the table; one episode after another on request."""
    dates = [datetime.date(2026, 1, day) for day in (2, 2, 1, 2)]
    log = pt.sources.logs(ordered(episode=["c", "a", "b", "b"], order=dates), TASK)
    assert log.transitions().s.tolist() == [2, 1, 0, 3]
    assert log.notes == (log_module.SAME_TIME,)
    assert log.notes[0] in str(log)
    assert json.loads(log.to_json())["notes"] == [*log.notes]
    assert log.by_episode().notes == ()
    assert log.transitions(by_episode=True).s.tolist() == [1, 2, 0, 3]
    assert log.by_episode().transitions().s.tolist() == [1, 2, 0, 3]
    for kind, write in (("csv", "write_csv"), ("jsonl", "write_ndjson")):
        for at, ids in enumerate((["10", "9", "10", "9"], [10, 9, 10, 9], ["x", "9", "x", "9"])):
            path = tmp_path / f"{at}.{kind}"
            getattr(ordered(episode=ids, order=[2, 2, 1, 1]), write)(path)
            log = pt.sources.logs(path, TASK)
            assert log.transitions().s.tolist() == [0, 2, 1, 3]
            assert log.transitions(by_episode=True).s.tolist() == [0, 1, 2, 3]
            assert "begins with 1 in every episode" in log.notes[0]
            assert "by_episode=True" in log.notes[0]
    through = pt.sources.logs(ordered(episode=["b", "a", "b", "a"]), TASK)
    assert through.transitions().s.tolist() == [0, 1, 2, 3]
    assert through.notes == ()
    mixed = pd.DataFrame({"s": [0, 1], "a": 0, "s_next": 0, "order": 1, "episode": pd.Series([1, "x"], dtype=object)})
    assert_refused(lambda: pt.sources.logs(mixed, TASK), "ids of episodes cannot be compared")


def test_the_same_time_without_episodes_is_a_repeated_row(tmp_path):
    data = ordered(order=[1, 1, 2, 3])
    assert_refused(lambda: pt.sources.logs(data, TASK), "2 rows with order=1", 'columns={"episode": ...}')


def test_bets_on_tied_rows_keep_their_level():
    """At the value itself, with actions that react to all earlier times; an order by outcomes is caught every time."""
    task = pt.Task([[0.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]], [1.0, 0.0], 0.5)
    bar, wrong, caught = pt.value(task, np.full((2, 2, 2), 0.5)), 0, 0
    for seed in range(40):
        rng, rows, good, state = np.random.default_rng(seed), [], np.ones(2), np.zeros(8, dtype=int)
        for time in range(30):
            a, x = int(good.argmax() if time % 2 else rng.integers(2)), rng.integers(0, 2, 8)
            rows += [(e, time, state[e], a, x[e]) for e in range(8)]
            good[a] += x.sum() - 4
            state = x
        frame = pd.DataFrame(rows, columns=["episode", "order", "s", "a", "s_next"]).sample(frac=1, random_state=seed)
        found = pt.assess(task, pt.sources.logs(frame, task).transitions(), bar, 0.1, pt.LogBetting(coins=1))
        wrong += found.answer is not None
        if seed < 5:
            first = frame.sort_values("s_next", ascending=False)
            data = pt.Transitions(first.s, first.a, first.s_next)
            caught += pt.assess(task, data, bar, 0.1, pt.LogBetting(coins=1)).answer == "above"
    assert wrong <= 20  # two sides at 0.1 each: P(Bin(40, 0.2) > 20) < 1e-5
    assert caught == 5


# ---------------------------------------------------------------- one row for each visit

VISITS = """patient,date,state,action,outcome
7,2026-01-03,ill,drug,0
12,2026-01-03,ill,rest,0
7,2026-01-05,better,rest,1
12,2026-01-06,ill,drug,
7,2026-01-09,well,,
"""
VISIT_COLUMNS = {"s": "state", "a": "action", "episode": "patient", "order": "date", "reward": "outcome"}
WARD = pt.Task(
    rewards=[[[0.0] * 3] * 2, [[0.0, 0.0, 1.0]] * 2, [[0.0] * 3] * 2],
    policy=[[0.5, 0.5]] * 3,
    initial=[1.0, 0.0, 0.0],
    discount=0.9,
    states=["ill", "better", "well"],
    actions=["drug", "rest"],
    terminal=["well"],
)


def visits(text=VISITS):
    return pd.read_csv(io.StringIO(text)).assign(date=lambda f: pd.to_datetime(f["date"]))


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "pandas"])
def test_the_next_state_is_that_of_the_next_visit(tmp_path, kind):
    """A last row has no outcome; one in a terminal state needs neither an action nor a reward."""
    data = visits()
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        put(path, VISITS)
    elif kind == "parquet":
        data.to_parquet(path)
    elif kind == "jsonl":
        data.to_json(path, orient="records", lines=True, date_format="iso")
    log = pt.sources.logs(data if kind == "pandas" else path, WARD, columns=VISIT_COLUMNS)
    assert triples(log.counts) == {(0, 0, 1): 1, (0, 1, 0): 1, (1, 1, 2): 1}
    found = log.transitions()
    assert (found.s.tolist(), found.x.tolist()) == ([0, 0, 1], [1, 0, 2])  # of the same day, patient 7 before 12
    gone = [(entry.column, entry.reason, entry.rows, len(entry.examples)) for entry in log.left_out]
    assert gone == [("s", "in a terminal state", 1, 1), ("s_next", "last row of its episode", 1, 1)]
    assert "ill" in log.left_out[1].examples[0][0]
    assert not log.selected
    assert log.notes == (log_module.NEXT_ROW, log_module.SAME_TIME)
    assert (log.rows, log.used) == (5, 3)


def test_visits_of_a_log_too_long_to_be_kept(monkeypatch):
    monkeypatch.setattr(log_module, "TRANSITION_LIMIT", 3)
    with pytest.warns(UserWarning, match="the log has 5 rows, and the first 3 of them by the column order are kept"):
        log = pt.sources.logs(visits(), WARD, columns=VISIT_COLUMNS, skip=("last",))
    assert triples(log.counts) == {(0, 0, 1): 1, (0, 1, 0): 1, (1, 1, 2): 1}
    assert log.transitions().s.tolist() == [0, 0, 1]  # what follows the third row is known from the fourth
    assert [entry.rows for entry in log.left_out] == [1, 1]
    with (
        pytest.warns(UserWarning, match="the first 3 of them"),
        pytest.warns(pt.AssumptionWarning, match="1 episode stops in a state that is not terminal, perhaps before"),
    ):
        assert pt.sources.logs(visits(), WARD, columns=VISIT_COLUMNS).selected


def test_episodes_that_stop_without_an_end_are_selected_by_their_outcome():
    """Customers who leave have no further row: without it the certified answer would be wrong every time."""
    task = pt.Task([[1.0], [0.0]], [[1.0], [1.0]], [1.0, 0.0], 0.9, states=["here", "gone"], terminal=["gone"])
    truth = pt.value(task, np.array([[[0.7, 0.3]], [[0.0, 1.0]]]))
    for seed in range(5):
        rng, rows = np.random.default_rng(seed), []
        for customer in range(150):
            day = int(rng.integers(0, 90))
            while day < 100:
                rows.append((customer, day, "here", 0))
                day += 1
                if rng.random() < 0.3:
                    rows += [(customer, day, "gone", None)] * (day < 100)
                    break
        frame = pd.DataFrame(rows, columns=["episode", "order", "s", "a"])
        whole = pt.sources.logs(frame, task)
        assert not whole.selected
        assert pt.assess(task, whole, truth + 1.0).answer in ("below", None)
        with pytest.warns(pt.AssumptionWarning, match=r"episodes stop in a state .*last row in a terminal state"):
            cut = pt.sources.logs(frame.query("s == 'here'"), task)
        assert cut.selected
        verdict = pt.assess(task, cut, truth + 1.0)
        assert (verdict.answer, verdict.certified) == ("above", False)
        assert not pt.sources.logs(frame.query("s == 'here'"), task, skip=("last",)).selected  # the user's word


def test_visits_whose_last_rows_are_all_ends_rest_on_nothing(tmp_path):
    log = pt.sources.logs(visits().query("patient == 7"), WARD, columns=VISIT_COLUMNS)
    assert log.notes == ()
    log.save(tmp_path / "log.npz")
    assert pt.sources.Log.load(tmp_path / "log.npz", WARD).left_out == log.left_out


@pytest.mark.parametrize(
    ("change", "columns", "words"),
    [
        (lambda f: f.drop(columns="date"), {"order": "day"}, ["has no column 'day' for order"]),
        (
            lambda f: f,
            {"order": None},
            ["no column 's_next'", 'next row of the episode, with columns={"order": "date"}'],
        ),
        (lambda f: f.assign(next_state="ill"), {}, ['{"s_next": "next_state"}', '{"s_next": None}']),
        (lambda f: f.assign(NextSegment="ill"), {}, ['{"s_next": "NextSegment"}', '{"s_next": None}']),
        (lambda f: f.assign(state=["ill", "ill", "cured", "ill", "well"]), {}, ["'cured' in column s (1 row)"]),
        (lambda f: f.assign(action=["drug", "rest", None, "drug", None]), {}, ["null in column a (1 row)"]),
        (
            lambda f: f.assign(state=["ill", "ill", "well", "ill", "ill"]),
            {},
            ["1 row in the terminal state 'well' followed by 'ill'", "correct terminal"],
        ),
    ],
)
def test_visits_that_cannot_be_read(change, columns, words):
    assert_refused(lambda: pt.sources.logs(change(visits()), WARD, columns={**VISIT_COLUMNS, **columns}), *words)


def test_a_row_in_a_terminal_state_needs_no_action_and_no_outcome():
    rows = {"s": ["ill", "well", "well"], "a": ["drug", None, None], "s_next": ["well", None, "well"]}
    log = pt.sources.logs(pd.DataFrame(rows), WARD)
    assert triples(log.counts) == {(0, 0, 2): 1}
    assert log.left_out == (log_module.LeftOut("s", "in a terminal state", 2, (("'well'", 2),)),)
    away = pd.DataFrame(rows | {"s_next": ["well", None, "ill"]})
    assert_refused(lambda: pt.sources.logs(away, WARD), "terminal state 'well' followed by 'ill'")


@pytest.mark.parametrize("order", [False, True])
def test_actions_that_are_not_available_are_refused_or_dropped(order):
    task = replace(TASK, available=np.array([[1, 1, 0]] + [[1, 1, 1]] * (S - 1)))
    frame = pl.DataFrame({"s": [0, 0, 1], "a": [0, 2, 2], "s_next": 1} | ({"order": [1, 2, 3]} if order else {}))
    assert_refused(lambda: pt.sources.logs(frame, task), "1 row at (s=0, a=2)", "not available", 'skip=("a",)')
    log = pt.sources.logs(frame, task, skip=("a",))
    assert triples(log.counts) == {(0, 0, 1): 1, (1, 2, 1): 1}
    assert log.left_out == (log_module.LeftOut("a", "not available in its state", 1, (("(s=0, a=2)", 1),)),)
    assert not log.selected
    if order:
        assert log.transitions().a.tolist() == [0, 2]


# ---------------------------------------------------------------- straight into a question


@pytest.mark.parametrize("kind", ["pandas", "polars lazy", "parquet", "files", "log"])
def test_questions_read_logs_themselves(tmp_path, kind):
    """The answer is that on the transitions in their order, whatever the log is given as."""
    names = {"s": "state", "order": "when"}
    frame = ordered().rename({"s": "state", "order": "when"})
    frame.write_parquet(tmp_path / "log.parquet")
    data = {
        "pandas": frame.to_pandas(),
        "polars lazy": frame.lazy(),
        "parquet": tmp_path / "log.parquet",
        "files": [str(tmp_path / "log.parquet")],
        "log": pt.sources.logs(frame, TASK, columns=names),
    }[kind]
    settings = {} if kind == "log" else {"columns": names}
    rows = pt.sources.logs(ordered(), TASK).transitions()
    found = pt.assess(TASK, data, threshold=5.0, **settings)
    assert found.to_json() == pt.assess(TASK, rows, threshold=5.0).to_json()
    assert pt.value_interval(TASK, data, **settings) == pt.value_interval(TASK, rows)


def test_a_log_without_order_is_judged_by_its_counts():
    found = pt.assess(TASK, one_row(), threshold=5.0)
    assert found.to_json() == pt.assess(TASK, pt.sources.logs(one_row(), TASK).counts, threshold=5.0).to_json()
    by_id = ordered(episode=["b", "a", "b", "a"], order=[2, 2, 1, 1])
    log = pt.sources.logs(by_id, TASK)
    for by_episode in (False, True):
        expected = pt.assess(TASK, log.transitions(by_episode), threshold=5.0)
        assert pt.assess(TASK, by_id, 5.0, by_episode=by_episode).to_json() == expected.to_json()
        assert pt.assess(TASK, log, 5.0, by_episode=by_episode).to_json() == expected.to_json()


@pytest.mark.parametrize(
    ("data", "settings", "words"),
    [
        (pt.Counts(S, A), {"columns": {"s": "state"}}, "columns, skip and bins are for a path or a data frame"),
        (pt.Counts(S, A), {"by_episode": True}, "by_episode is for logs"),
        (3, {}, "data is a int; pass Counts"),
        ("nowhere.csv", {}, "there is no file 'nowhere.csv'"),
    ],
)
def test_data_that_no_question_takes(data, settings, words):
    assert_refused(lambda: pt.assess(TASK, data, 5.0, **settings), words)
    assert_refused(lambda: pt.value_interval(TASK, data, **settings), words)


# ---------------------------------------------------------------- no order


def test_there_is_an_order_or_a_refusal(monkeypatch, tmp_path):
    assert_refused(pt.sources.logs(one_row(), TASK).transitions, "no column order")
    log = pt.sources.logs(ordered(), TASK)
    assert_refused(pt.sources.logs(one_row(s=1), TASK, add_to=log).transitions, "counts only")
    log.save(tmp_path / "log.npz")
    assert_refused(pt.sources.Log.load(tmp_path / "log.npz", TASK).transitions, "counts only")
    monkeypatch.setattr(log_module, "TRANSITION_LIMIT", 3)
    with pytest.warns(UserWarning, match="4 rows, and the first 3 of them by the column order"):
        log = pt.sources.logs(ordered(), TASK)
    assert triples(log.counts) == {(3, 0, 0): 1, (1, 1, 0): 1, (2, 0, 1): 1, (0, 1, 1): 1}
    repeated = ({"order": [1, 2, 3, 1]}, "order=1"), ({"order": [1, 1, 2, 1], "episode": list("abba")}, "'a'")
    for changes, key in repeated:
        assert_refused(lambda changes=changes: pt.sources.logs(ordered(**changes), TASK), "2 rows with", key)


def test_counts_of_a_task_too_large_for_a_proof_are_judged_by_boxes():
    """The KL rule would try none there, and so could not answer, after a long search."""
    large = pt.instances.random(0, 401, 2, 2, discount=0.5)
    kernel = (
        large.kernel.tocoo() if hasattr(large.kernel, "tocoo") else sparse.coo_array(large.kernel.reshape(802, 401))
    )
    counts = pt.Counts(401, 2, sparse=True)
    counts.record(kernel.row // 2, kernel.row % 2, kernel.col, np.rint(1e6 * kernel.data).astype(np.int64))
    verdict = pt.assess(large.task, counts, pt.value(large.task, large.kernel) - 0.1)
    assert (verdict.answer, verdict.certified, verdict.witness) == ("above", True, None)
    assert isinstance(verdict.settings, pt.RectangularKL)
    small = pt.instances.paper(2)
    few = pt.Counts.from_array(np.rint(1e4 * small.kernel))
    assert isinstance(pt.assess(small.task, few, 0.0).settings, pt.PTST)


def test_bets_are_placed_on_the_first_rows_of_a_log_too_long_to_be_kept(monkeypatch):
    """Those that come first in the order, wherever they stand in the table; counts alone use all of them."""
    rng, two = np.random.default_rng(0), pt.instances.paper(2)
    s, a = rng.integers(0, 2, 600), rng.integers(0, 2, 600)
    x = pt.TabularSimulator(two.kernel).draw(s, a, rng)
    mixed = rng.permutation(600)
    columns = {"s": s[mixed], "a": a[mixed], "s_next": x[mixed], "order": mixed, "episode": mixed // 5}
    whole = pt.sources.logs(pd.DataFrame(columns), two.task)
    monkeypatch.setattr(log_module, "TRANSITION_LIMIT", 500)
    with pytest.warns(UserWarning, match="the log has 600 rows, and the first 500"):
        log = pt.sources.logs(pd.DataFrame(columns), two.task)
    assert log.in_order()
    assert log.counts.total == 600
    assert log.notes[0].startswith("the log has 600 rows, and the first 500")
    found, first = log.transitions(), whole.transitions().first(500)
    for name in ("s", "a", "x"):
        np.testing.assert_array_equal(getattr(found, name), getattr(first, name))
    assert pt.assess(two.task, log, 0.0).evidence == pt.assess(two.task, first, 0.0).evidence


def test_a_log_is_read_once(tmp_path, monkeypatch):
    """One scan: labels are looked up once, and the counts, the order, ties and the diagnosis come from what it gave."""
    scans, batches = [], frames.batches
    monkeypatch.setattr(frames, "batches", lambda *given: scans.append(given) or batches(*given))
    monkeypatch.setattr(frames, "rows", lambda *given: pytest.fail("another query"))
    ordered(episode=["b", "a", "b", "a"]).write_csv(tmp_path / "log.csv")
    for data in (tmp_path / "log.csv", ordered(), ordered().to_pandas()):
        scans.clear()
        log = pt.sources.logs(data, TASK)
        put(tmp_path / "log.csv", "changed: what was read is kept")
        assert log.in_order()
        assert log.transitions().s.tolist() == [0, 1, 2, 3]
        assert pt.sources.diagnose_log(TASK, log).transitions == 4
        assert len(scans) == 1


def test_rows_left_out_are_left_out_of_the_order():
    frame = ordered(s=[3, None, 2, 0])
    assert pt.sources.logs(frame, TASK, skip="s").transitions().s.tolist() == [0, 2, 3]
    with pytest.warns(pt.AssumptionWarning):
        log = pt.sources.logs(ordered(s_next=[0, None, 1, 1]), TASK, skip="s_next")
    assert log.transitions().selected


# ---------------------------------------------------------------- day after day


def test_today_is_added_to_yesterday(tmp_path):
    monday, tuesday = put(tmp_path / "mon.csv", text()), put(tmp_path / "tue.csv", HEADER + "2,0,0\n9,0,1\n")
    log = pt.sources.logs(monday, TASK)
    log.save(tmp_path / "log.npz")
    before = pt.sources.Log.load(tmp_path / "log.npz", TASK)
    assert before.counts == log.counts
    assert (before.rows, before.used, before.idle, before.files) == (log.rows, log.used, log.idle, log.files)
    both = pt.sources.logs(tuesday, TASK, add_to=before, skip="s")
    assert triples(both.counts) == {**TRIPLES, (2, 0, 0): 1}
    assert triples(before.counts) == TRIPLES  # as it was
    assert (both.rows, both.used, len(both.files), both.left_out[0].rows) == (6, 5, 2, 1)
    assert pt.sources.logs([monday, tuesday], TASK, skip="s").counts == both.counts
    both.save(tmp_path / "log.npz")
    again = pt.sources.Log.load(tmp_path / "log.npz", TASK)
    assert again.left_out == both.left_out
    assert pt.Counts.load(tmp_path / "log.npz") == both.counts  # a log file is a file of counts, too
    third = pt.sources.logs(put(tmp_path / "wed.csv", HEADER + "9,0,0\n"), TASK, add_to=again, skip="s")
    assert third.left_out == (log_module.LeftOut("s", "no such name", 2, (("'9'", 2),)),)


def test_counts_alone_can_be_added_to():
    log = pt.sources.logs(one_row(), TASK)
    more = pt.sources.logs(one_row(), TASK, add_to=log.counts)
    assert triples(more.counts) == {(0, 0, 1): 2}
    assert (more.rows, more.before) == (1, 1)
    assert pt.sources.logs(pl.DataFrame({"s": [], "a": [], "s_next": []}), TASK, add_to=log).counts == log.counts


def test_a_file_is_counted_once(tmp_path):
    monday = put(tmp_path / "mon.csv", text())
    log = pt.sources.logs(monday, TASK)
    assert_refused(lambda: pt.sources.logs(monday, TASK, add_to=log), "same content", "counted already")
    renamed = put(tmp_path / "monday.csv", text())
    assert_refused(lambda: pt.sources.logs(renamed, TASK, add_to=log), "monday.csv has the same content")
    assert_refused(lambda: pt.sources.logs([monday, renamed], TASK), "same content")
    log.save(tmp_path / "log.npz")
    loaded = pt.sources.Log.load(tmp_path / "log.npz", TASK)
    assert_refused(lambda: pt.sources.logs(monday, TASK, add_to=loaded), "same content")
    empty = [put(tmp_path / f"{day}.csv", HEADER) for day in ("sat", "sun")]
    assert pt.sources.logs([renamed, *empty], TASK).counts == log.counts


@pytest.mark.parametrize("rows", [4, paths._BLOCK * paths._BLOCKS // 6 + 100])  # read as a whole, and in blocks
def test_a_file_that_grew_is_noticed(tmp_path, rows):
    """A log that is appended to begins with what was counted; a new day's file of the same name does not."""
    monday = put(tmp_path / "log.csv", HEADER + "0,0,1\n" * rows)
    log = pt.sources.logs(monday, TASK)
    log.save(tmp_path / "log.npz")
    with monday.open("a") as file:
        file.write("0,0,0\n")
    for before in (log, pt.sources.Log.load(tmp_path / "log.npz", TASK)):
        assert_refused(
            lambda before=before: pt.sources.logs(monday, TASK, add_to=before),
            "log.csv has grown",
            "read all of it again",
        )
    assert pt.sources.logs(monday, TASK).counts.total == rows + 1
    put(monday, HEADER + "0,0,0\n" + "0,0,1\n" * rows)
    assert pt.sources.logs(monday, TASK, add_to=log).counts.total == 2 * rows + 1


def test_fingerprints_of_large_files(tmp_path):
    """Spread over the file: a change in a block that is read, or of the size, is seen; the name is not asked."""
    size = paths._BLOCK * paths._BLOCKS + 1000
    content = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    marks = [paths.provenance(put(tmp_path / name, content.tobytes()), False).fingerprint for name in ("a", "b")]
    assert marks[0] == marks[1]
    for at in (0, size // 2 + 1000, size - 1):
        other = content.copy()
        other[at] ^= 1
        assert paths.provenance(put(tmp_path / "c", other.tobytes()), False).fingerprint != marks[0]
    assert paths.provenance(put(tmp_path / "d", content[:-1].tobytes()), False).fingerprint != marks[0]


def test_a_log_belongs_to_its_states(tmp_path):
    log = pt.sources.logs(one_row(), TASK)
    log.save(tmp_path / "log.npz")
    other = make_task(states=["a", "b", "c", "d", "e"])
    assert_refused(lambda: pt.sources.Log.load(tmp_path / "log.npz", other), "other states or actions")
    assert_refused(lambda: pt.sources.logs(one_row(), make_task(actions="xyz"), add_to=log), "other states or actions")
    log.counts.save(tmp_path / "counts.npz")
    assert_refused(lambda: pt.sources.Log.load(tmp_path / "counts.npz", TASK), "counts only")
    assert_refused(lambda: pt.sources.Log.load(tmp_path / "none.npz", TASK), "no such file")
    assert_refused(lambda: pt.sources.Log.load(put(tmp_path / "x.npz", b"PK"), TASK), "damaged")
    assert_refused(lambda: pt.sources.Log.load(tmp_path / "log.npz", None), "task is a NoneType")


# ---------------------------------------------------------------- on show


def test_a_log_shows_itself():
    frame = pd.DataFrame({"s": [0, 1, "<b>", "<b>"], "a": 0, "s_next": 1})
    log = pt.sources.logs(frame, TASK, skip="s")
    shown = str(log)
    assert shown.splitlines()[0] == "2 transitions from a table"
    assert "left out: s, no such name  2" in shown
    assert "<b>" not in log._repr_html_()
    data = json.loads(log.to_json())
    assert (data["schema"], data["rows"], data["used"], data["transitions"]) == (1, 4, 2, 2)
    assert data["left_out"] == [{"column": "s", "reason": "no such name", "rows": 2, "examples": [["'<b>'", 2]]}]


def test_small_numbers_are_not_shown_on_request():
    """Neither themselves, nor by subtraction, nor the labels that are so rare."""
    frame = pd.DataFrame({"s": [0] * 90 + ["patient 17"] * 2, "a": 0, "s_next": 1})
    log = pt.sources.logs(frame, TASK, skip="s").shown(suppress_below=10)
    data = json.loads(log.to_json())
    assert (data["rows"], data["used"], data["transitions"]) == (92, None, 90)
    for view in (str(log), log._repr_html_(), log.to_json()):
        assert "patient" not in view
    assert "fewer than 10" in str(log)
    assert "patient" in str(log.shown(suppress_below=0))
    assert_refused(lambda: log.shown(suppress_below=-1), "suppress_below")
    assert_refused(lambda: log.shown(suppress_below="x"), "suppress_below")


def test_progress_is_told():
    shares = []
    pt.sources.logs(ordered(), TASK, progress=shares.append)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_no_temporary_folder_is_left(tmp_path, monkeypatch):
    import gc
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = put(tmp_path / "log.csv", text())
    log = pt.sources.logs(path, TASK)
    gc.collect()  # the log holds no connection
    assert log.rows == 4
    assert list(tmp_path.iterdir()) == [path]


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert_refused(duckdb_files.connect, "pip install 'duckdb>=")


def test_nothing_warns(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pt.sources.logs(put(tmp_path / "log.csv", text()), TASK)


def test_an_error_in_progress_is_not_lost(tmp_path):
    def fail(share):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pt.sources.logs(put(tmp_path / "log.csv", text()), TASK, progress=fail)


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        (np.int8, (-128, 128)),
        (np.int16, (-300, 300)),
        (np.uint64, (2**64 - 50, 2**64)),
        (np.int64, (-(2**63), 2**63)),
        (np.int64, (2**40, 2**40 + 30)),
        (np.float64, (-5, 5)),
    ],
)
def test_rows_are_sorted_by_whatever_numbers_the_order_has(kind, ends):
    """As Python sorts them, by order and then by episode; ties in one episode are refused wherever they lie."""
    rng, step = np.random.default_rng(0), (ends[1] - ends[0]) // 10
    rows = {(ends[0] + step * int(rng.integers(10)), int(rng.integers(7))) for _ in range(60)}
    rows = [*rows, (ends[1] - 1, 8)]
    rng.shuffle(rows)
    order, episode = (list(column) for column in zip(*rows, strict=True))
    s = rng.integers(0, S, len(rows))
    frame = {"s": s, "a": 0 * s, "s_next": 0 * s, "order": np.array(order, dtype=kind), "episode": episode}
    found = pt.sources.logs(pd.DataFrame(frame), TASK).transitions()
    assert found.s.tolist() == [s[i] for i in sorted(range(len(rows)), key=rows.__getitem__)]
    frame = {name: [*column, column[3], column[3]] for name, column in frame.items()}
    frame["order"] = np.array(frame["order"], dtype=kind)
    assert_refused(lambda: pt.sources.logs(pd.DataFrame(frame), TASK), f"3 rows with episode={episode[3]}, order=")


@pytest.mark.parametrize("name", ["level_after", "next_level", "after"])
def test_a_column_that_may_hold_next_states_is_not_passed_over(name, tmp_path):
    """Rows in order could be followed to their next states, and the last arrivals would be lost without a word."""
    path = tmp_path / "log.csv"
    path.write_text(f"run,step,level,cmd,{name}\n0,0,half,pump,full\n0,1,full,pump,broken\n", encoding="utf-8")
    names = {"states": ["half", "full", "broken"], "actions": ["pump"]}
    task = pt.Task(np.array([[1.0], [1.0], [0.0]]), np.ones((3, 1)), [1, 0, 0], 0.9, terminal=[2], **names)
    columns = {"s": "level", "a": "cmd", "order": "step", "episode": "run"}
    with pytest.raises(pt.InputError, match=f'"s_next": "{name}"'):
        pt.assess(task, path, threshold=1.0, columns=columns)
    assert pt.assess(task, path, threshold=1.0, columns={**columns, "s_next": name}).samples == 2
