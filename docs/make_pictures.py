"""Draw the pictures of the README and the documentation: python docs/make_pictures.py [--out FOLDER] [--seeds N].

Every number in them comes from runs made here, with fixed seeds. It takes about half a minute.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import policytest as pt
from policytest.plots import style as style_module

HERE = Path(__file__).resolve().parent / "pictures"
METHODS: dict[str, dict[str, Any]] = {
    "PTST, paper's boundary": {"method": "PTST", "boundary": "paper", "solver": "projection-free"},
    "PTST, mixture": {"method": "PTST", "solver": "projection-free"},
    "TDBetting (default)": {"method": "TDBetting"},
}
RETURNS = {"Monte Carlo, betting": {"method": "MonteCarlo"}}


def sweep(instances: dict[str, Any], methods: dict[str, Any], deltas: list[float], seeds: int) -> Any:
    """One tidy table of runs."""
    described = {"title": "pictures", "instances": instances, "methods": methods, "deltas": deltas, "seeds": seeds}
    return pt.study.run(pt.study.sweep({**described, "max_samples": 1_000_000}), jobs=1)


def run(delta: float, rng: int) -> tuple[Any, Any]:
    """The default test on the paper's 5-state instance, and what was seen on the way."""
    five, trace = pt.instances.paper(5), pt.plots.Trace(intervals=0)
    sim = pt.TabularSimulator(five.kernel)
    verdict = pt.decide(five.task, sim, threshold=0.0, delta=delta, rng=rng, method=trace.watch(), progress=trace)
    return verdict, trace.ended(verdict)


def overview(seeds: int) -> Figure:
    """The evidence along some runs, beside the samples that the methods take at each delta."""
    figure = Figure(figsize=(9.6, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    for seed in range(min(seeds, 12)):
        _, trace = run(1e-4, seed)
        best = np.maximum.accumulate(np.maximum(trace.evidence[:, 0], 0.0))
        first = {"color": style_module.BLUE, "linewidth": 2.0, "zorder": 3, "label": "one run of the default"}
        others = {"color": style_module.BLUE, "linewidth": 0.8, "alpha": 0.35, "label": "others" if seed == 1 else None}
        left.step(trace.samples, best, where="post", **(others if seed else first))
    for delta, style in ((0.05, ":"), (1e-4, "--")):
        left.axhline(
            -math.log(delta), color=style_module.INK, linestyle=style, linewidth=1.2, label=f"decides at {delta:g}"
        )
    style_module.axes(left)
    left.set_xlim(0, None)
    left.set_ylim(0, 10.5)
    style_module.thousands(left.xaxis)
    style_module.labels(left, "samples", "evidence so far (nats)")
    style_module.legend(left)
    found = sweep({"5x5": {"paper": 5}}, METHODS, [1e-1, 1e-2, 1e-4, 1e-7, 1e-10, 1e-15], seeds)
    pt.plots.stopping_times(found, right)
    return figure


def methods(seeds: int) -> Figure:
    """Samples of the methods on four instances at delta = 0.05."""
    instances: dict[str, Any] = {f"paper, {n} states": {"paper": n} for n in (2, 3, 5)}
    instances["grid world"] = {"grid_world": {"width": 5, "height": 5}, "gap": 0.5}
    found = sweep(instances, {**METHODS, **RETURNS}, [0.05], max(seeds // 3, 2))
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    pt.plots.sample_efficiency(found, figure.add_subplot(), delta=0.05)
    return figure


def interval(seeds: int) -> Figure:
    """The interval for the value along a run of `evaluate`, valid at all times at once."""
    five, trace = pt.instances.paper(5), pt.plots.Trace()
    pt.evaluate(five.task, pt.TabularSimulator(five.kernel), epsilon=0.05, delta=0.05, rng=0, progress=trace)
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    pt.plots.interval(trace, figure.add_subplot(), threshold=0.0)
    return figure


def save(figure: Figure, path: Path) -> None:
    """As SVG without a date: the same picture gives the same file."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.family": "sans-serif"}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(path, metadata=nothing, facecolor="white")
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def main() -> None:
    """Draw them all."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=HERE)
    options.add_argument("--seeds", type=int, default=30, help="runs behind each mean")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for draw in (overview, methods, interval):
        save(draw(given.seeds), given.out / f"{draw.__name__}.svg")
        print(given.out / f"{draw.__name__}.svg")
    verdict, _ = run(0.05, 0)
    (given.out / "verdict.html").write_text(verdict._repr_html_().strip() + "\n", encoding="utf-8")
    print(given.out / "verdict.html")


if __name__ == "__main__":
    main()
