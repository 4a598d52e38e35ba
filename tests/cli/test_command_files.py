"""Files of a command: what is read, what is written, and what is left alone."""

from __future__ import annotations

import json
import os
import threading
import zipfile

import numpy as np
import pytest

from bad_inputs import DRN, LOG, model, picture
from policytest import Counts, InputError, instances
from policytest._base import files as files_module
from policytest.cli import main
from policytest.sources import save_model
from policytest.study.spec import sweep
from policytest.study.store import JOURNAL, Store
from policytest.study.table import Study, csv_bytes, load

DESCRIPTION = {"instances": ["paper-2"], "methods": ["TDBetting"], "deltas": [0.5], "seeds": 1}
STUDY = """
instances = {x = {file = "model.json"}, y = {paper = 2}}
methods = ["TDBetting"]
deltas = [0.5]
seeds = 1
bounds = false
"""
SIDE = 'discount = 0.5\npolicy = "uniform"\n'
SIMULATOR = "def draw(states, actions, rng):\n    return states\n"


@pytest.fixture
def here(here):
    """A folder with everything that commands read."""
    files = {
        "model.json": model(), "other.json": model(), "guess.json": model(), "result.json": "{}", "notes.txt": "mine",
        "policy.csv": "state,action\nwet,go\ndry,go\n", "log.csv": LOG, "logs/a.csv": LOG, "page.svg": "<svg/>",
        "logs/b.csv": LOG + "wet,go,dry\n", "chain.drn": DRN, "chain.task.toml": SIDE,
        "bare.drn": DRN, "list.tra": "1 1 1\n0 0 0 1\n", "list.srew": "1 1\n0 1\n", "list.task.toml": SIDE,
        "mine.py": SIMULATOR, "study.toml": STUDY,
    }  # fmt: skip
    for folder in ("logs", "fresh"):
        (here / folder).mkdir()
    for name, content in files.items():
        (here / name).write_text(content, encoding="utf-8")
    counts = Counts(2, 2)
    counts.record([0, 1], [0, 1], [1, 0])
    counts.save("counts.npz")
    (here / "soft.html").symlink_to("log.csv")
    (here / "logs" / "soft.html").symlink_to("../model.json")
    os.link("log.csv", "hard.html")
    return here


ONE_FILE_TWICE = """
decide model.json --html model.json
decide model.json --policy policy.csv --html policy.csv
decide model.json --checkpoint model.json
decide model.json --checkpoint c --html c
decide model.json --checkpoint c --html logs/../c
decide model.json --html logs/soft.html
decide model.json --simulator mine:draw --html mine.py
decide chain.drn --html chain.task.toml
decide bare.drn --discount 0.5 --policy uniform --html bare.task.json
decide list.tra --html list.srew
decide list.tra --html list.lab
evaluate model.json --epsilon 1 --html model.json
compare model.json other.json --html other.json
compare model.json other.json --html model.json
compare model.json policy.csv --html policy.csv
compare model.json other.json --checkpoint other.json
compare model.json other.json --checkpoint c --html c
identify model.json --candidate policy.csv --html policy.csv
identify model.json --html model.json
plan model.json --guess guess.json --html guess.json
plan model.json --html model.json
plan model.json --pilot counts.npz --html counts.npz
assess model.json log.csv --html log.csv
assess model.json log.csv --html soft.html
assess model.json log.csv --html hard.html
assess model.json logs --html logs/a.csv
assess model.json logs --save logs/b.csv
assess model.json logs/*.csv --save logs/a.csv
assess model.json log.csv --save c --html c
assess model.json log.csv --save model.json
assess model.json log.csv --add-to counts.npz --html counts.npz
watch model.json log.csv --html log.csv
report result.json --out result.json
study study.toml --html study.toml
study study.toml --html model.json
study study.toml --figure x.svg --html x.svg
study study.toml --out kept --html kept
study study.toml --out fresh --html fresh/cells.jsonl
study study.toml --out fresh --figure fresh/summary.json
""".strip().splitlines()
FOREIGN = """
decide model.json --html notes.txt
decide model.json --checkpoint notes.txt
demo --html notes.txt
selftest --html notes.txt
assess model.json log.csv --save notes.txt
assess model.json log.csv --save other.json
assess model.json log.csv --html counts.npz
report result.json --out notes.txt
study study.toml --figure page.svg
study study.toml --out logs
""".strip().splitlines()


REASONS = (
    ("is read by this command", "both name", "is not a report that policytest wrote"),
    ("that policytest wrote", "not a checkpoint", "holds no study"),
)


@pytest.mark.parametrize("line", [*ONE_FILE_TWICE, *FOREIGN])
def test_nothing_is_replaced_that_is_read_or_foreign(here, capsys, line):
    before = picture(here)
    command, first, *rest = line.split()
    quiet = [] if command in ("demo", "report") else ["--quiet"]
    threshold = ["--threshold", "0.1"] if command in ("decide", "plan", "assess", "watch") else []
    assert main([command, first, *rest, *quiet, *threshold]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert any(words in said for words in REASONS[line in FOREIGN]), said
    assert picture(here) == before


def test_what_the_command_wrote_itself_is_replaced(here, capsys):
    """Negative control: one's own report, counts and figure are written again, and a file of counts goes on."""
    study = ["study", "study.toml", "--quiet", "--out", "kept"]
    log = ["assess", "model.json", "log.csv", "--quiet", "--threshold", "0.1"]
    for _ in range(2):
        assert main([*log, "--save", "kept.npz", "--html", "a.html"]) == 3
        assert main([*study, "--html", "b.html"]) == 0
        assert [main([*study, "--figure", f"drawn.{kind}"]) for kind in ("svg", "pdf", "png")] == [0, 0, 0]
    (here / "empty.html").touch()
    more = ["--add-to", "kept.npz", "--save", "kept.npz", "--html", "empty.html"]
    assert main(["assess", "model.json", "logs/b.csv", "--quiet", "--threshold", "0.1", *more]) == 1
    assert Counts.load("kept.npz").total == 9
    for name in ("a.html", "b.html", "empty.html"):
        assert (here / name).read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_plain_page_is_known_again(here, capsys, monkeypatch):
    monkeypatch.setattr("policytest.cli.output.can_report", lambda: False)
    argv = ["decide", "model.json", "--threshold", "-9", "--quiet", "--html", "plain.html"]
    assert [main(argv), main(argv)] == [0, 0]


# ---------------------------------------------------------------- drafts and journals


def test_drafts_have_names_that_cannot_be_foreseen_and_follow_no_link(tmp_path, monkeypatch):
    (tmp_path / "precious").write_text("precious")
    for token in (str(os.getpid()), "0" * 16):
        (tmp_path / f".out.{token}.part").symlink_to("precious")
    monkeypatch.setattr(files_module.secrets, "token_hex", lambda _: "0" * 16)
    with pytest.raises(InputError, match="cannot be written"):
        files_module.write_file(tmp_path / "out", b"new")
    assert (tmp_path / "precious").read_text() == "precious"
    monkeypatch.undo()
    files_module.write_file(tmp_path / "out", b"new")
    assert (tmp_path / "out").read_bytes() == b"new"
    assert (tmp_path / "precious").read_text() == "precious"


def test_threads_write_one_file_each_as_a_whole(tmp_path):
    contents = [bytes([65 + at]) * 100_000 for at in range(8)]
    threads = [
        threading.Thread(target=files_module.write_file, args=(tmp_path / "out", content)) for content in contents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "out").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt()])
def test_drafts_are_removed_on_failure(tmp_path, monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        files_module.write_file(tmp_path / "out", b"new")
    assert list(tmp_path.iterdir()) == []


RECORD = b'{"cell": ["paper-2", "TDBetting", 0], "samples": [1], "answers": ["above"], "certified": [true]}\n'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"damaged\n" + RECORD + b'{"cell": ["paper', "line 1 is damaged"),
        (RECORD + b"no record, and no end", "ends with something else than a record"),
        (b"notes of somebody else", "ends with something else than a record"),
    ],
)
def test_a_journal_that_is_refused_is_left_as_it_is(tmp_path, content, words):
    plan = sweep(DESCRIPTION)
    with Store(tmp_path / "kept", plan):
        pass
    journal = tmp_path / "kept" / JOURNAL
    journal.write_bytes(content)
    with pytest.raises(InputError, match=words):
        Store(tmp_path / "kept", plan)
    assert journal.read_bytes() == content


@pytest.mark.parametrize("tail", [b"", b"{", b'{"cell": ["paper-2", "TD'])
def test_a_record_that_was_being_written_is_dropped(tmp_path, tail):
    """Negative control."""
    plan = sweep(DESCRIPTION)
    with Store(tmp_path / "kept", plan):
        pass
    (tmp_path / "kept" / JOURNAL).write_bytes(RECORD + tail)
    with Store(tmp_path / "kept", plan) as store:
        assert len(store.records) == 1
    assert (tmp_path / "kept" / JOURNAL).read_bytes() == RECORD


@pytest.mark.parametrize("name", ["study.json", "cells.jsonl", "table.csv", "summary.json"])
def test_a_study_changes_nothing_behind_a_link(tmp_path, name):
    with Store(tmp_path / "kept", sweep(DESCRIPTION)):
        pass
    (tmp_path / "kept" / name).unlink(missing_ok=True)
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "kept" / name).symlink_to("../precious")
    with pytest.raises(InputError, match="is a link"):
        Store(tmp_path / "kept", sweep(DESCRIPTION))
    assert (tmp_path / "precious").read_text() == "precious"


# ---------------------------------------------------------------- what is no regular file, or too large


READ = {
    "model.json": "decide IT", "model.toml": "decide IT", "model.npz": "decide IT", "model.drn": "decide IT",
    "model.tra": "decide IT", "chain.task.toml": "decide chain.drn",
    **{f"policy.{kind}": "decide model.json --policy IT" for kind in ("json", "toml", "npz", "npy", "csv")},
    "result.json": "report IT --out page.html", "study.toml": "study IT",
    "kept.npz": "decide model.json --checkpoint IT",
    "counts.npz": "assess model.json log.csv --add-to IT", "pilot.npz": "plan model.json --pilot IT",
    "other.json": "compare model.json IT", "candidate.csv": "identify model.json --candidate IT",
    "kept/cells.jsonl": "study study.toml --out kept", "kept/study.json": "study study.toml --out kept",
}  # fmt: skip


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(100 * 2**30)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize(
    "make", [sparse, os.mkfifo, lambda path: os.symlink("/dev/zero", path)], ids=["100 GB", "pipe", "device"]
)
@pytest.mark.parametrize("name", READ)
def test_only_regular_files_of_a_fitting_size_are_read(here, capsys, name, make):
    """Sparse files take no room on disk; a device has no end, and a pipe that nobody writes to blocks."""
    if name.startswith("kept/"):
        assert main(["study", "study.toml", "--out", "kept", "--quiet"]) == 0
    capsys.readouterr()
    (here / name).unlink(missing_ok=True)
    make(here / name)
    command = READ[name].replace("IT", name).split()
    threshold = ["--threshold", "0.1"] if command[0] in ("decide", "plan", "assess") else []
    assert main([*command, *threshold]) == 2
    assert (
        "is a link" in (err := capsys.readouterr().err)
        or "it is a device or a pipe" in err
        or "bytes, and at most" in err
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_device_is_no_checkpoint(here, capsys):
    assert main(["decide", "model.json", "--threshold", "0.1", "--checkpoint", "/dev/full", "--quiet"]) == 2
    assert "not a regular file" in capsys.readouterr().err


def test_standard_input_is_read_up_to_a_limit(here, capsys, monkeypatch):
    monkeypatch.setattr(files_module, "TEXT_LIMIT", 1000)
    for content, words in ((b" " * 1001, "more than 1,000"), (b"\xff", "not text")):
        (here / "given").write_bytes(content)
        with open("given", encoding="utf-8") as given:
            monkeypatch.setattr("sys.stdin", given)
            assert main(["report", "-", "--out", "page.html"]) == 2
        assert words in capsys.readouterr().err


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """264 MiB of zeros, far below the limit of what may be unpacked, in a small file; and entries of no size."""
    folder, content = tmp_path_factory.mktemp("bombs"), bytes(2**20)
    for name, kind, count in (("policy", "<f8", 33 * 2**20), ("states", "<U0", 10**12)):
        with (
            zipfile.ZipFile(folder / f"{name}.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            archive.open(f"{name}.npy", "w") as member,
        ):
            np.lib.format.write_array_header_1_0(member, {"descr": kind, "fortran_order": False, "shape": (count,)})
            for _ in range(count * np.dtype(kind).itemsize // len(content)):
                member.write(content)
    return folder


@pytest.mark.parametrize("name", ["policy.npz", "states.npz"])
@pytest.mark.parametrize("command", ["decide IT", "decide model.json --checkpoint IT", "plan model.json --pilot IT"])
def test_archives_are_not_unpacked_that_hold_far_more_than_their_size(here, capsys, monkeypatch, bombs, command, name):
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("unpacked"))
    assert main([*command.replace("IT", str(bombs / name)).split(), "--threshold", "0.1", "--quiet"]) == 2
    assert str(bombs / name) in capsys.readouterr().err


@pytest.mark.parametrize(
    "instance",
    [
        {"random": {"seed": 0, "S": 1_000_000, "A": 1_000}},
        {"random": {"seed": 0, "S": 1_000_000, "A": 1_000, "successors": 2}},
        {"random": {"seed": 0, "S": 10**400, "A": 1}},
        {"random": {"seed": 0, "S": 20_000, "A": 1, "successors": 20_000}},
        {"grid_world": {"width": 100_000, "height": 100_000}},
    ],
)
def test_instances_too_large_for_memory_are_refused_before_they_are_made(monkeypatch, instance):
    monkeypatch.setattr(np.random, "default_rng", lambda *_: pytest.fail("drawn"))
    monkeypatch.setattr(np, "arange", lambda *_: pytest.fail("made"))
    with pytest.raises(InputError, match=r"instances\.big: "):
        sweep({**DESCRIPTION, "instances": {"big": instance}})


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * 20_000) + " = 1",
        f"[{'.'.join(['a'] * 20_000)}]",
        "x = {" + " . ".join(['"\\""'] * 20_000) + " = 1}",
        "x = [1, {" + "\t.\t".join(["'a.b'"] * 20_000) + " = 1}]",
    ],
)
@pytest.mark.parametrize("argv", ["decide deep.toml --threshold 0", "study deep.toml"])
def test_keys_of_thousands_of_parts_are_not_parsed(here, capsys, monkeypatch, text, argv):
    """Python's parser takes time quadratic in the parts of a dotted key."""
    monkeypatch.setattr("tomllib.loads", lambda _: pytest.fail("parsed"))
    (here / "deep.toml").write_text("# a.b.c\n" + text)
    assert main(argv.split()) == 2
    assert "line 2: a key has more than 100 parts" in capsys.readouterr().err


# ---------------------------------------------------------------- tables for spreadsheets


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "'=1", "''+1", "\uff1d1"])
def test_names_in_study_tables_are_no_formulas(tmp_path, name):
    row = dict.fromkeys(("uniform_time", "best_time", "lower_bound", "best_bound", "value", "threshold"), 1.0)
    row |= {"instance": name, "method": name, "delta": 0.1, "seed": 0, "samples": 1, "solves": 0, "answer": None}
    row |= {"correct": None, "certified": True, "cut": False}
    study = Study("study", [row])
    study.save(tmp_path / "table.csv")
    cells = [line.split(",")[0].strip('"') for line in (tmp_path / "table.csv").read_text("utf-8").splitlines()[1:]]
    assert all(cell.startswith("'") for cell in cells)
    assert csv_bytes(("method",), [row]).decode().splitlines()[1].strip('"').startswith("'")
    assert load(tmp_path / "table.csv").table == [row]


def test_names_that_are_no_formulas_stay_as_they_are():
    assert csv_bytes(("x", "y"), [{"x": "'quoted'", "y": -1.5}]) == b"x,y\n'quoted',-1.5\n"


def test_the_picture_of_a_result_that_is_none(here, capsys):
    about = {
        "schema": 1,
        "settled": [1, 2],
        "index": None,
        "samples": 3,
        "certified": True,
        "answered": True,
        "delta": 0.1,
    }
    for policy, values in ((0.5, [1, 2]), ([], [1, 2]), ([[1.0]], 2), ([[1.0]], [1e308, -1e308])):
        (here / "result.json").write_text(json.dumps({**about, "policy": policy, "values": values}))
        assert main(["report", "result.json", "--out", "page.html"]) == 2
        assert "it is a table of numbers" in capsys.readouterr().err


def test_a_task_file_has_a_budget_and_the_option_wins(capsys, here):
    two = instances.paper(2)
    save_model(here / "two.toml", two.task, two.kernel, 0.0, budget=3000)
    rows = (f"{s},{a},{p}\n" for (s, a), p in np.ndenumerate(two.alternative_policy))
    (here / "rival.csv").write_text(f"state,action,probability\n{''.join(rows)}", encoding="utf-8")
    for command in (
        ("decide", "two.toml"),
        ("compare", "two.toml", "rival.csv"),
        ("evaluate", "two.toml"),
        ("identify", "two.toml", "--candidate", "rival.csv"),
    ):
        for option, budget in (((), 3000), (("--budget", "2500"), 2500)):
            main([*command, *option, "--json", "--quiet"])
            assert json.loads(capsys.readouterr().out)["budget"] == budget, command
    assert main(["decide", "two.toml", "--method", "ptst", "--quiet"]) == 2
    assert "leave out --budget, in the task file too (--max-samples stops a run)" in capsys.readouterr().err
