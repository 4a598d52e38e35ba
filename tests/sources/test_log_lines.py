"""One set of rules for lines: `assess` and `watch` count the same rows or refuse the same files, and no row is lost."""

from __future__ import annotations

import gzip
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp

import policytest as pt
from builders import each
from policytest.sources.logged import duckdb_files, lines, stream
from policytest.sources.logged.lines import LONGEST
from source_builders import put

pytest.importorskip("duckdb")
pytest.importorskip("narwhals")
pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")

TASK = pt.Task([[0.5, -1.0], [0.25, 0.0]], [[0.5, 0.5], [1.0, 0.0]], [1.0, 0.0], 0.9)
HEAD, ROW = "s,a,s_next\n", "0,1,1\n"
MORE, NOTED = "s,a,s_next,note\n", "0,1,1,x\n"
OBJECT = '{"s": 0, "a": 1, "s_next": 1}\n'


def outcome(read, path):
    """(s, a, x) of all transitions, sorted; None where the file is refused."""
    try:
        found = read(path)
    except pt.InputError as error:
        message = str(error)
    else:
        return sorted(tuple(map(int, at)) for at in found)
    assert len(message) < 500 + len(str(path))
    return None


def read_whole(path):
    N = pt.sources.logs(path, TASK).counts.N.reshape(2, 2, 2)
    return np.repeat(np.argwhere(N), N[N > 0], axis=0)


def read_growing(path):
    parser = stream.Parser(TASK, place=str(path))
    parts = [parser.transitions(part) for part in stream.lines(str(path), follow=False)]
    return [at for part in parts for at in zip(part.s, part.a, part.x, strict=True)]


def with_entry(name, entry):
    return f"s,a,s_next,{name}\n0,1,1,{entry}\n"


def with_key(name, value):
    return OBJECT.replace("}", f', "{name}": {value}}}')


READ = {
    "plain": HEAD + ROW * 3,
    "no newline at the end": HEAD + ROW * 2 + ROW.strip(),
    "CRLF": (HEAD + ROW * 3).replace("\n", "\r\n"),
    "CRLF, no newline at the end": (HEAD + ROW * 3).replace("\n", "\r\n").strip(),
    "byte order mark": "\ufeff" + HEAD + ROW * 3,
    "byte order mark and quotes": "\ufeff" + '"s","a","s_next"\n' + ROW * 3,
    "empty lines": HEAD + ROW + "\n\n\n" + ROW * 2 + "\n",
    "quotes": MORE + '"0","1","1","a ""b"", c"\n0,1,1,""""\n0,1,1,""\n',
    "empty entries at the end": HEAD + "0,1,1,\n0,1,1,,\n" + '0,1,1,""\n',
    "another delimiter": "s;a;s_next;x,y,z,u,v\n" + "0;1;1;2\n" * 3,
    "an unused name twice": "s,a,s_next,n,n\n" + "0,1,1,2,3\n" * 3,
    "counts": "s,a,s_next,count\n0,1,1,1.0\n0,1,1, +1e0\t\n0,1,1,001\n0,1,1,-0\n",
    "orders": "s,a,s_next,order\n0,1,1,-1\n0,1,1,2.5\n0,1,1,1e3\n",
    "times": "s,a,s_next,order\n0,1,1,2026-11-15\n0,1,1,2026-11-15 10:00:00\n0,1,1,2026-11-15T10:00:00.5\n",
    "episodes": "s,a,s_next,episode,order\n0,1,1,a,1\n0,1,1,b,1\n0,1,1,a,2\n",
    "rewards where the policy goes": "s,a,s_next,reward\n0,1,1,-1\n0,1,1,-1.0\n0,1,1,-1e0\n",
    "JSON": OBJECT * 3,
    "JSON, no newline at the end": OBJECT * 2 + OBJECT.strip(),
    "JSON with CRLF": OBJECT.replace("\n", "\r\n") * 3,
    "JSON with empty lines": "\n" + OBJECT + " \t \n\n" + OBJECT * 2,
    "JSON with keys in any order": OBJECT * 2 + '{"s_next":1,"a":1.0,"s":"0"}\n',
    "JSON with other keys": OBJECT + with_key("S", 1) + with_key("n", '[",}", {"NaN": NaN}]'),
    "JSON with escapes": OBJECT + OBJECT.replace('"a"', r'"\u0061"') + with_key("n", r'"\ud83d\ude00"'),
    "JSON with counts": with_key("count", 1) + with_key("count", '"1"') + with_key("count", "1e0"),
}
"""Three transitions (0, 1, 1) each."""

REFUSED = {
    "lone CR": (HEAD + ROW * 3).replace("\n", "\r"),
    "one lone CR": HEAD + ROW + "0,1,1\r" + ROW,
    "lone CR at the end": HEAD + ROW + "0,1,1\r",
    "two CR": HEAD + "0,1,1\r\r\n" + ROW,
    "lone CR in quotes": MORE + '0,1,1,"a\rb"\n',
    "lone CR in CRLF": "s,a,s_next\r\n0,1,1\r0,1,1\n0,1,1\r\n",
    "LF, then CRLF": HEAD + ROW + "0,1,1\r\n",
    "LF, then an empty line with CRLF": HEAD + ROW + "\r\n" + ROW,
    "CRLF, then LF": HEAD.replace("\n", "\r\n") + ROW,
    "blanks": HEAD + ROW + "   \n" + ROW,
    "empty lines first": "\n\n" + HEAD + ROW,
    "byte order mark later": HEAD + ROW + "\ufeff" + ROW,
    "NUL": MORE + "0,1,1,a\0b\n" + NOTED,
    "not UTF-8": (MORE + NOTED).encode() + b"0,1,1,\xff\n",
    "line break in quotes": MORE + '0,1,1,"a\nb"\n' + NOTED,
    "two open quotes": MORE + '0,1,1,"x\n' + NOTED * 5 + '0,1,1,y"\n',
    "open quote": MORE + NOTED + '0,1,1,"x\n' + NOTED * 5,
    "quote inside": MORE + '0,1,1,5" wide\n' + NOTED + '0,1,1,5" wide\n',
    "something after a quote": MORE + '0,1,1,"a"b\n' + NOTED,
    "blank before a quote": MORE + '0,1,1, "a"\n' + NOTED,
    "blank after a quote": MORE + '0,1,1,"a" \n' + NOTED,
    "too few entries": HEAD + "0,1\n" + ROW,
    "too many entries": HEAD + "0,1,1,1\n" + ROW,
    "a name twice": "s,a,s_next,s\n0,1,1,0\n",
    "other letters": "S,A,S_next\n0,1,1\n",
    "remark": HEAD + "# note\n" + ROW,
    "full-width label": HEAD + "0,1,\uff11\n",
    "full-width count": with_entry("count", "\uff11"),
    "Arabic count": with_entry("count", "\u0661"),
    "full-width order": with_entry("order", "\uff11"),
    "full-width reward": with_entry("reward", "-\uff11"),
    "underscore": with_entry("count", "0_1"),
    "no-break space": with_entry("count", "\u00a01"),
    "hexadecimal": with_entry("count", "0x1"),
    "no count": with_entry("count", ""),
    "no reward": with_entry("reward", ""),
    "reward nan": with_entry("reward", "nan"),
    "reward inf": with_entry("reward", "-1e999"),
    "another reward": with_entry("reward", "-2"),
    "no order": with_entry("order", ""),
    "order in words": with_entry("order", "first"),
    "orders of two kinds": "s,a,s_next,order\n0,1,1,1\n0,1,1,2026-11-15\n",
    "the same order": "s,a,s_next,order\n0,1,1,1\n0,1,1,1\n",
    "the same order in an episode": "s,a,s_next,episode,order\n0,1,1,a,1\n0,1,1,b,1\n0,1,1,a,1\n",
    "no episode": "s,a,s_next,episode,order\n0,1,1,a,1\n0,1,1,,2\n",
    "JSON lone CR": OBJECT.replace("\n", "\r") * 2,
    "JSON lone CR between": OBJECT.replace(", ", ",\r"),
    "JSON key twice": OBJECT.replace('"a"', '"s"', 1).replace("}", ', "a": 1}'),
    "JSON the same key twice": with_key("s", 0),
    "JSON escaped key twice": with_key(r"\u0073", 0),
    "JSON unused key twice": OBJECT.replace("}", ', "n": 1, "n": 2}'),
    "JSON key twice further in": with_key("n", '{"x": 1, "x": 2}'),
    "JSON label missing": OBJECT + '{"s": 0, "a": 1}\n',
    "JSON nothing there": OBJECT + "{}\n",
    "JSON count missing": with_key("count", 1) + OBJECT,
    "JSON reward missing": with_key("reward", -1) + OBJECT,
    "JSON order missing": with_key("order", 1) + OBJECT,
    "JSON count later": OBJECT + with_key("count", 0),
    "JSON null later": OBJECT + with_key("count", "null"),
    "JSON reward null": with_key("reward", "null"),
    "JSON reward true": with_key("reward", "true"),
    "JSON count true": with_key("count", "true"),
    "JSON count in a list": with_key("count", "[1]"),
    "JSON full-width count": with_key("count", '"\uff11"'),
    "JSON label null": OBJECT.replace("0", "null", 1),
    "JSON label NaN": OBJECT.replace("0", "NaN", 1),
    "JSON byte order mark": "\ufeff" + OBJECT,
    "JSON trailing comma": OBJECT.replace("}", ",}"),
    "JSON remark": OBJECT.replace("}", "/* */}"),
    "JSON nan": with_key("n", "nan"),
    "JSON inf": with_key("n", "inf"),
    "JSON hexadecimal": with_key("n", "0x1"),
    "JSON leading zero": OBJECT.replace("0", "00", 1),
    "JSON many digits": with_key("n", "9" * 5000),
    "JSON deep": with_key("n", "[" * 5000 + "]" * 5000),
    "JSON half a letter": with_key("n", r'"\ud800"'),
    "JSON tab in a text": with_key("n", '"a\tb"'),
    "JSON NUL": with_key("n", '"a\0b"'),
    "JSON not UTF-8": with_key("n", '"?"').encode().replace(b"?", b"\xff"),
    "JSON form feed": OBJECT + "\f" + OBJECT,
    "JSON two in a line": OBJECT.strip() + OBJECT,
    "JSON one in two lines": OBJECT.replace(", ", ",\n", 1),
    "JSON list": OBJECT + "[1]\n",
    "JSON words": OBJECT + "x\n",
    "JSON long line": with_key("n", '"' + "x" * (LONGEST + LONGEST // 2) + '"'),
}


def name_of(case):
    return "log.jsonl" if case.startswith("JSON") else "log.csv"


@each("case", READ)
def test_both_read(tmp_path, case):
    path = put(tmp_path / name_of(case), READ[case])
    assert outcome(read_growing, path) == [(0, 1, 1)] * 3
    assert outcome(read_whole, path) == [(0, 1, 1)] * 3


@each("case", REFUSED)
def test_both_refuse(tmp_path, case):
    path = put(tmp_path / name_of(case), REFUSED[case])
    assert outcome(read_growing, path) is None
    assert outcome(read_whole, path) is None


@each("case", [case for case in REFUSED if case.startswith("JSON") and "mark" not in case])
def test_what_comes_late_is_refused_too(tmp_path, monkeypatch, case):
    """Behind a piece of the file in which all lines are alike, which is checked as a whole."""
    monkeypatch.setattr(lines, "LONGEST", 2**14)
    content = REFUSED[case].encode() if isinstance(REFUSED[case], str) else REFUSED[case]
    path = put(tmp_path / "log.jsonl", OBJECT.encode() * 1000 + content)
    with pytest.raises(pt.InputError, match=r"line 100[12]|null in column s"):
        pt.sources.logs(path, TASK)


def test_all_columns_are_text_to_the_end(tmp_path):
    """Also one that is not used, far behind."""
    path = put(tmp_path / "log.csv", (MORE + NOTED * 200_000).encode() + b"0,1,1,\xff\n")
    with pytest.raises(pt.InputError, match="line 200002: byte 6 is not UTF-8"):
        pt.sources.logs(path, TASK)


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_damaged_files_are_read_alike(tmp_path, name):
    """After a change of a few characters, both read the same or both refuse."""
    rng = np.random.default_rng(7)
    whole = (
        MORE + '0,1,1,"a, b"\n1,0,0,c\n0,0,1,d\n' if name == "log.csv" else OBJECT * 2 + with_key("n", '"x"')
    ).encode()
    signs = b'"\\,;:{}[]\r\n\t 01Nx\xff\0'
    outcomes = set()
    for _ in range(60):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), rng.integers(1, 3)):
            content[at : at + int(rng.integers(2))] = bytes([signs[rng.integers(len(signs))]])
        path = put(tmp_path / name, bytes(content))
        found = outcome(read_growing, path)
        assert outcome(read_whole, path) == found, bytes(content)
        outcomes.add(found is None)
    assert outcomes == {False, True}


def test_the_order_of_lines_is_the_order_that_the_column_tells(tmp_path):
    """Rows in another order are sorted where the file is read whole; a growing log cannot be."""
    path = put(tmp_path / "log.csv", "s,a,s_next,order\n0,1,1,2\n0,1,1,1\n")
    assert outcome(read_whole, path) == [(0, 1, 1)] * 2
    assert outcome(read_growing, path) is None
    parser = stream.Parser(TASK, {"order": None})
    assert len(parser.transitions(path.read_bytes().splitlines(keepends=True))) == 2


def test_bad_numbers_are_refused_in_rows_that_are_left_out_too(tmp_path):
    path = put(tmp_path / "log.csv", "s,a,s_next,reward\n7,1,1,much\n")
    with pytest.raises(pt.InputError, match="reward"):
        pt.sources.logs(path, TASK, skip=("s",))
    with pytest.raises(pt.InputError, match="line 2: the reward is 'much'"):
        stream.Parser(TASK, skip=("s",)).transitions(path.read_bytes().splitlines(keepends=True))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("row", "refused"), [("0,1,1", True), ("0,1,2", False), ("1,1,0", False)])
def test_both_refuse_successors_outside_the_support_where_the_policy_goes(tmp_path, sparse, row, refused):
    support = np.ones((3, 2, 3), dtype=bool)
    support[0, 1, 1] = support[1, 1, 0] = False
    support = sp.csr_array(support.reshape(6, 3)) if sparse else support
    policy = [[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]]
    task = pt.Task(np.zeros((3, 2)), policy, [1.0, 0.0, 0.0], 0.9, support=support)
    path = put(tmp_path / "log.csv", f"{HEAD}{row}\n")
    expected = pytest.raises(pt.InputError, match="support") if refused else nullcontext()
    with expected:
        stream.Parser(task).transitions(path.read_bytes().splitlines(keepends=True))
    with expected:
        pt.sources.logs(path, task)


# ---------------------------------------------------------------- no row is lost


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("size", [LONGEST + 1, 40 << 20])
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_a_line_that_is_too_long_is_refused_by_its_number(tmp_path, name, size, end):
    """DuckDB drops a last line of more than 32 MB without a word."""
    head, last = (HEAD + ROW * 5, "0,1,") if name == "log.csv" else (OBJECT * 6, '{"s": "')
    path = put(tmp_path / name, head + last + "x" * (size - len(last)) + end)
    with pytest.raises(pt.InputError, match=rf"{name}, line 7: it is longer than 1,048,576 bytes"):
        pt.sources.logs(path, TASK)
    assert outcome(read_growing, path) is None


def test_a_line_of_the_largest_length_is_read(tmp_path):
    for name, (head, row) in {"a.csv": (MORE, "0,1,1,?\n"), "a.jsonl": ("", with_key("n", '"?"'))}.items():
        row = row.replace("?", "x" * (LONGEST + 2 - len(row)))
        path = put(tmp_path / name, head + row * 3)
        assert outcome(read_growing, path) == outcome(read_whole, path) == [(0, 1, 1)] * 3


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl", "log.parquet"])
def test_the_engine_must_find_as_many_rows_as_the_files_have(tmp_path, monkeypatch, name):
    path = tmp_path / name
    if name == "log.parquet":
        pq.write_table(pa.table({"s": [0] * 4, "a": [1] * 4, "s_next": [1] * 4}), path)
    else:
        put(path, HEAD + ROW * 4 if name == "log.csv" else OBJECT * 4)
    assert pt.sources.logs(path, TASK).rows == 4
    kind = {"log.csv": "csv", "log.jsonl": "json", "log.parquet": "parquet"}[name]
    query = duckdb_files._QUERIES[kind]
    monkeypatch.setitem(duckdb_files._QUERIES, kind, lambda *given: (query(*given)[0] + " LIMIT 3", query(*given)[1]))
    with pytest.raises(pt.InputError, match="the files have 4 rows, but DuckDB read 3"):
        pt.sources.logs(path, TASK)


# ---------------------------------------------------------------- damaged files


@pytest.mark.parametrize("name", ["log.csv.gz", "log.jsonl.gz"])
@pytest.mark.parametrize("at", [-6, -2], ids=["checksum", "length"])
def test_the_whole_of_a_compressed_file_is_checked(tmp_path, name, at):
    """More than 1 MiB, with a wrong checksum or length at the end; DuckDB looks at neither."""
    content = (HEAD + ROW * 400_000 if name == "log.csv.gz" else OBJECT * 80_000).encode()
    assert len(content) > 2**21
    whole = gzip.compress(content, 1)
    rows = 400_000 if name == "log.csv.gz" else 80_000
    assert pt.sources.logs(put(tmp_path / name, whole), TASK).rows == rows
    damaged = bytearray(whole)
    damaged[at] ^= 1
    with pytest.raises(pt.InputError, match=rf"{name}: the compressed file is damaged or cut short"):
        pt.sources.logs(put(tmp_path / name, bytes(damaged)), TASK)


def test_compressed_files_in_several_parts_are_read_whole(tmp_path):
    parts = gzip.compress((HEAD + ROW * 5).encode()) + gzip.compress(b"") + gzip.compress((ROW * 5).encode())
    assert pt.sources.logs(put(tmp_path / "log.csv.gz", parts), TASK).rows == 10
    for damaged in (parts + b"more", parts[:-1], parts[:30] + b"\xff" * 9 + parts[39:]):
        with pytest.raises(pt.InputError, match="damaged or cut short"):
            pt.sources.logs(put(tmp_path / "log.csv.gz", damaged), TASK)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_checksums_of_parquet_are_checked(tmp_path, codec):
    """Of pages where the writer made them, and those of gzip inside; DuckDB reads other numbers from this file."""
    path = tmp_path / "log.parquet"
    n = np.random.default_rng(0).integers(0, 2, (3, 5000))
    table = pa.table(dict(zip(("s", "a", "s_next"), n, strict=True)))
    pq.write_table(table, path, compression=codec, use_dictionary=False, write_page_checksum=codec == "none")
    content = bytearray(path.read_bytes())
    assert pt.sources.logs(path, TASK).rows == 5000
    content[len(content) // 6] ^= 1
    with pytest.raises(pt.InputError, match=r"log.parquet: the file is damaged"):
        pt.sources.logs(put(path, bytes(content)), TASK)
