"""The small search of `fuzzing`, with fixed seeds; ``make fuzz`` is the long one."""

import pytest

import fuzzing
import killing


def nothing(found):
    assert not found, "\n".join(f"{case.case}\n{case.why}" for case in found)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_that_comes_in_breaks_it(seed):
    nothing([case for case in fuzzing.search(seed, 40) if case is not None])


def test_every_argument_works_or_is_refused_in_words():
    cases = [(name, make) for name in fuzzing.CALLS for make in fuzzing.VALUES]
    nothing([case for one in cases if (case := fuzzing.called(*one)) is not None])


def test_the_search_notices_what_is_wrong(tmp_path, monkeypatch):
    """Negative control: a command that fails, one that changes a file and is refused, and a message without end."""
    (tmp_path / "kept").write_text("as it was")

    def touching(argv):
        (tmp_path / "kept").write_text("not as it was")
        return 2

    def long(argv):
        print("error: " + "x" * 1000, file=fuzzing.sys.stderr)
        return 2

    for broken, words in (
        (lambda argv: 4, "exit 4"),
        (touching, "changed"),
        (long, "letters"),
        (lambda argv: 1 / 0, "Zero"),
    ):
        monkeypatch.setattr(fuzzing, "main", broken)
        assert words in fuzzing.ended(["decide"], tmp_path)
    monkeypatch.setitem(fuzzing.CALLS, "broken", lambda value: value + 1)
    assert "TypeError" in fuzzing.called("broken", lambda: "text").why


def test_the_files_are_good_before_they_are_damaged(capsys):
    """A command that is refused anyway would find nothing."""
    with fuzzing.laid_out():
        for argv in dict.fromkeys(map(tuple, (*fuzzing.READ_BY.values(), *fuzzing.OF_LOGS))):
            assert fuzzing.main(fuzzing.whole_command(list(argv))) in (0, 1, 3), (argv, capsys.readouterr().err)
        for kind, names in (("env", fuzzing.faults.ENVIRONMENTS), ("agent", fuzzing.faults.AGENTS)):
            assert len(names) >= {"env": 40, "agent": 20}[kind]
        assert fuzzing.main(fuzzing.of_an_environment("decide", "fine", "fine", "good")) in (0, 1, 3)


@pytest.mark.parametrize(("code", "lost"), [("print(1)", False), ("import os; print(os.getpid())", True)])
def test_what_a_kill_changes_is_found(code, lost, monkeypatch):
    """With programs that start at once; `killing` runs the commands."""

    def started(name, folder):
        with (folder / "stdout").open("wb") as out:
            return killing.subprocess.Popen([killing.sys.executable, "-c", code], stdout=out)

    monkeypatch.setattr(killing, "started", started)
    assert bool(list(killing.killed("watch", 2, 0))) == lost


def test_a_line_that_a_kill_has_cut_is_not_a_finished_run(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cells.jsonl").write_text('{"seed": 1}\n{"seed": 2}\n{"se')
    assert killing.finished_runs(tmp_path) == 2
