"""A comparison that was stopped any number of times is the one that was never stopped (methods: `test_contract`)."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from itertools import count

import pytest

import policytest as pt
from builders import Called, assert_refused, assert_same_verdict
from policytest.cli import main
from policytest.methods import checkpoint
from policytest.questions import driver

FOUR = pt.instances.random(1, 4, 2)


@pytest.mark.parametrize("kind", [pt.TabularSimulator, Called], ids=["table", "called"])
@pytest.mark.parametrize("indifference", [0.0, 0.2])
def test_a_comparison_in_small_slices(kind, indifference):
    """With an indifference zone and without."""
    task, sim = FOUR.task, kind(FOUR.kernel)
    other = replace(task, policy=task.policy[::-1])
    gap = pt.value(task, FOUR.kernel) - pt.value(other, FOUR.kernel)
    question = {"margin": gap if indifference else gap - 0.1, "indifference": indifference, "rng": 2, "delta": 0.2}
    expected = pt.compare(task, other, sim, **question)
    assert expected.answer == ("within" if indifference else "above")
    kept, slice_ = None, max(97, expected.samples // 6)
    for limit in range(slice_, expected.samples + slice_, slice_):
        kept = pt.compare(task, other, sim, max_samples=limit, resume=kept, **question)
    assert_same_verdict(kept, expected)


def test_a_checkpoint_of_an_earlier_version_is_refused_with_a_remedy(tmp_path, monkeypatch):
    """Its arrays have other names; its digest is right."""
    two, file = pt.instances.paper(2), tmp_path / "run.npz"
    question = two.task, pt.TabularSimulator(two.kernel), 0.0
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint, "FORMAT", "policytest-run-1")
        pt.decide(*question, max_samples=20, checkpoint=file)
    words = (
        "a checkpoint of another version of policytest (policytest-run-1); finish that run with the version that wrote"
    )
    assert_refused(lambda: pt.decide(*question, resume=file), words)
    assert checkpoint.FORMAT == "policytest-run-4"


def test_a_checkpoint_that_cannot_be_written_is_blamed_on_the_line_that_asked_for_it(tmp_path, monkeypatch):
    two, write, calls = pt.instances.paper(2), driver.checkpoints.write, []

    def full(path, snapshot):
        calls.append(path)
        if len(calls) > 1:  # the first one is written before anything is drawn
            raise pt.InputError("the disk is full")
        write(path, snapshot)

    monkeypatch.setattr(driver.checkpoints, "write", full)
    with pytest.warns(UserWarning, match="the verdict is not affected") as told:
        verdict = pt.decide(two.task, pt.TabularSimulator(two.kernel), 0.0, checkpoint=tmp_path / "run.npz")
    assert verdict.answer == "above"
    assert told[0].filename == __file__


def test_a_disk_that_becomes_full_ends_the_run_with_what_it_has(tmp_path, monkeypatch, capsys):
    """The run cannot be kept any more, and what it drew is not lost: undecided, exit code 3."""
    write, files, ticks = open, [], count()

    def full(path, *rest, **more):
        if str(path).endswith(".part"):
            files.append(path)
            if len(files) > 1:  # the first one is written before anything is drawn
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, *rest, **more)

    (tmp_path / "coins_here.py").write_text("def coin(rng):\n    return rng.random() < 0.7\n")
    monkeypatch.syspath_prepend(tmp_path)
    question = ["decide", "python:coins_here:coin", "--assume", "episodes", "--return-range", "0", "1", "--quiet"]
    question += ["--threshold", "0.6", "--checkpoint", str(tmp_path / "run.npz")]
    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", full)
        patched.setattr(driver.time, "monotonic", lambda: 2.0 * next(ticks))  # always due
        assert main(question) == 3
        out, err = capsys.readouterr()
        assert out.startswith("Undecided: the checkpoint ")
        assert "cannot be written (No space left on device)" in out
        assert "free some space, and the same command goes on from what" in err
    assert main(question) == 0
