"""The paper's experiments: their sweep, what the heuristic misses, and the figure."""

from __future__ import annotations

import pytest

from policytest import study
from policytest._base.errors import InputError
from policytest.paper import experiments

SMALL = {"instances": ["paper-2"], "methods": ["TDBetting"], "deltas": [0.01, 0.2], "seeds": 2}


def test_the_papers_sweep():
    sweep = study.paper_sweep(heuristic=True)
    assert [problem.name for problem in sweep.problems] == ["2x2", "3x3", "5x5"]
    assert (min(sweep.deltas), max(sweep.deltas), len(sweep.deltas), len(sweep.seeds)) == (1e-15, 1e-2, 14, 30)
    assert len(sweep.cells) == 3 * 10 * 30
    assert len(study.paper_sweep(seeds=2, quick=True).cells) == 2 * 9 * 2


def test_the_heuristic_is_said_to_stop_too_early():
    full = study.paper_sweep(heuristic=True)
    chosen = [t for t in full.trials if t.problem.name == "2x2" and t.name in (experiments.EXACT, experiments.PRINTED)]
    sweep = study.Sweep("heuristic", tuple(chosen), (1e-2,), (0, 1, 2), bounds=False)
    found = study.run(sweep, jobs=1)
    printed, exact = (found.only(methods=[name]).column("samples") for name in (experiments.PRINTED, experiments.EXACT))
    assert (printed < 0.2 * exact).all()
    assert not found.only(methods=[experiments.PRINTED]).column("certified").any()
    early, gap = experiments.with_heuristic_notes(found, sweep).notes
    assert "before the exact rule in 3 of 3 cases" in early
    assert "in 3 of 3 stops the ball still holds a kernel on the other side" in gap
    one = experiments.heuristic_gap(sweep.problems[0], 0, 1e-2)
    assert one.samples == printed[0]
    assert one.found <= 0 < one.reported < one.estimate  # the exact minimum is beyond the threshold
    assert 0 < one.share < 1
    assert experiments.heuristic_gap(sweep.problems[0], 0, 1e-2, max_samples=1) is None


def test_the_figure(tmp_path):
    pytest.importorskip("matplotlib")
    from policytest.paper.figure import draw

    plain = study.run(SMALL, jobs=1)
    for name in ("a.svg", "b.svg"):
        draw(plain, tmp_path / name)
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b.svg").read_bytes()
    assert b"<svg" in drawn
    with pytest.raises(InputError, match="nothing to draw"):
        draw(study.Study("empty", []), tmp_path / "c.svg")
