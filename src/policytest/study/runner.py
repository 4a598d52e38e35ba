"""Running a sweep: the cells that are not finished, on threads or on a Dask cluster, kept as they finish.

Threads serve on one machine, because the compiled code releases Python's lock; it is compiled before they start. Every
cell brings its own random numbers (`policytest.study.cells.stream`), so the table does not depend on who ran it when.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from policytest._base import arrays, errors
from policytest._base.errors import InputError
from policytest._base.text import short
from policytest.data.simulators import TabularSimulator
from policytest.kl.boundaries import information
from policytest.plots.studies import TableRow
from policytest.questions.decide import stopping_times
from policytest.questions.driver import time_limit
from policytest.study.cells import Cell, Problem, Sweep, Trial, stream
from policytest.study.spec import Description, read, sweep
from policytest.study.store import Record, Store
from policytest.study.table import Study
from policytest.worst_case.lower_bound import characteristic_time, optimal_allocation

Context: TypeAlias = contextlib.AbstractContextManager[object]
CONNECT = 15  # seconds to wait for a cluster


@dataclass(frozen=True)
class Step:
    """How far a study is: ``done`` of ``total`` runs; the run just finished, if any, and its error, if it failed."""

    done: int
    total: int
    cell: Cell | None = None
    error: str | None = None


def run(
    spec: Sweep | Description | str | os.PathLike[str],
    store: str | os.PathLike[str] | None = None,
    jobs: int = 2,
    cluster: object = None,
    progress: Callable[[Step], None] | None = None,
    max_seconds: float | None = None,
) -> Study:
    """Run every cell of a sweep, and return the table.

    Parameters
    ----------
    spec
        A `Sweep`, a description of one (see `policytest.study.spec`), or the path of a TOML file.
    store
        A folder that keeps finished runs. If it holds some of this sweep, they are not run again; failed ones are.
    jobs
        How many runs at once, as threads.
    cluster
        The address of a Dask scheduler, or a Dask client or cluster: runs go there instead.
    progress
        Called with a `Step` before the first run and after each.
    max_seconds
        Begin no run after this many seconds.

    Ctrl-C, and the time limit, return what is finished; with a store the same call goes on from there. A run that fails
    is reported in ``failures`` and does not stop the others.

    >>> found = run({"instances": ["paper-2"], "methods": ["TDBetting"], "deltas": [0.1, 0.01], "seeds": 5}, jobs=1)
    >>> [(mean["delta"], mean["runs"], mean["wrong"]) for mean in found.means]
    [(0.1, 5, 0), (0.01, 5, 0)]
    """
    plan, end = as_sweep(spec), time.monotonic() + time_limit(max_seconds)
    if arrays.whole_number("jobs", jobs) < 1:
        raise InputError(f"jobs is {jobs}; pass at least 1")
    with contextlib.ExitStack() as stack:
        if cluster is not None:  # before the store: a cluster that is not there must leave no files
            stack.enter_context(_connected(cluster))
        kept = None if store is None else stack.enter_context(Store(store, plan))
        records: dict[Cell, Record] = {} if kept is None else dict(kept.records)
        todo = {cell: trial for cell, trial in plan.cells.items() if cell not in records}
        if kept is not None and todo:
            kept.begin()

        def keep(cell: Cell, record: Record) -> None:
            records[cell] = record
            if kept is not None:
                kept.add(record)

        results, done = _results(plan, todo, jobs, cluster), len(plan.cells) - len(todo)
        interrupted = _run_all(results, done, len(plan.cells), keep, progress or (lambda _: None), end)
        study = _study(plan, records)
        if kept is not None and not interrupted:
            kept.finish(study)
    return study


def as_sweep(spec: Sweep | Description | str | os.PathLike[str]) -> Sweep:
    """The sweep itself, or the one described."""
    if isinstance(spec, Sweep):
        return spec
    if isinstance(spec, str | os.PathLike):
        return read(spec)
    if isinstance(spec, Mapping):
        return sweep(spec)
    raise InputError(f"spec is a {type(spec).__name__}; pass a Sweep, a description of one, or the path of a TOML file")


def _run_all(
    todo: Generator[Record],
    done: int,
    total: int,
    keep: Callable[[Cell, Record], None],
    tell: Callable[[Step], None],
    end: float,
) -> bool:
    """Run what is to be done, and keep each record; whether that was interrupted, or time is up."""
    tell(Step(done, total))
    with contextlib.closing(todo):
        try:
            for at, record in enumerate(todo, start=done + 1):
                cell = Cell(*record["cell"])
                keep(cell, record)
                tell(Step(at, total, cell, record.get("error")))
                if at < total and time.monotonic() >= end:
                    return True
        except KeyboardInterrupt:
            return True
    return False


# ---------------------------------------------------------------- execution


def _results(plan: Sweep, todo: dict[Cell, Trial], jobs: int, cluster: object) -> Generator[Record]:
    """The records of these cells, as they finish."""
    if not todo:
        return
    calls = [(trial, cell.seed, plan.deltas) for cell, trial in todo.items()]
    if any(trial.problem.table is None for trial in todo.values()) and cluster is None:
        jobs = 1  # an environment is stepped by one thread
    if cluster is None and min(jobs, len(calls)) == 1:
        for call in calls:
            yield run_cell(*call)
        return
    joblib = errors.needs("joblib", "study")
    compile_first(plan)
    with contextlib.ExitStack() as stack:
        if cluster is None:
            settings = {"n_jobs": min(jobs, len(calls)), "backend": "threading"}
            stack.enter_context(_one_blas_thread())
        else:
            settings = {"n_jobs": -1}
            stack.enter_context(joblib.parallel_config(backend="dask"))
        parallel = joblib.Parallel(**settings, batch_size=1, return_as="generator_unordered")
        found = parallel(joblib.delayed(run_cell)(*call) for call in calls)
        try:
            for record in found:  # noqa: UP028 (it is closed below, quietly)
                yield record
        finally:
            with warnings.catch_warnings():  # it warns of results that nobody took: those after an interruption
                warnings.simplefilter("ignore", UserWarning)
                found.close()


def run_cell(trial: Trial, seed: int, deltas: tuple[float, ...]) -> Record:
    """One run, as a record that JSON can hold; an error in it becomes part of the record."""
    problem = trial.problem
    record: Record = {"cell": [problem.name, trial.name, seed]}
    begin = time.perf_counter()
    try:
        found = stopping_times(
            problem.task,
            None if problem.kernel is None else TabularSimulator(problem.kernel),
            problem.threshold,
            deltas,
            trial.method,
            stream(problem.name, seed),
            trial.max_samples,
        )
    except Exception as error:
        if errors.interrupted(error):
            raise KeyboardInterrupt from None
        return {**record, "error": short(f"{type(error).__name__}: {error}")}
    return {
        **record,
        "samples": found.samples.tolist(),
        "answers": found.answers.tolist(),
        "certified": found.certified.tolist(),
        "solves": int(found.solves),
        "seconds": time.perf_counter() - begin,
    }


def compile_first(plan: Sweep) -> None:
    """Short runs of every method on every form of task, so that compiling is done before workers start."""
    seen = set()
    for trial in plan.trials:
        task, kernel = trial.problem.table, trial.problem.kernel
        if task is None:
            continue
        form = tuple(arrays.is_sparse(part) for part in (kernel, task.rewards, task.support))
        key = (trial.name, *form, task.support is None, getattr(task.rewards, "ndim", 2))
        if key not in seen:
            seen.add(key)
            few = 4 * task.n_states * task.n_actions
            few = few if trial.max_samples is None else min(few, trial.max_samples)
            try:
                stopping_times(task, TabularSimulator(kernel), trial.problem.threshold, [0.5], trial.method, 0, few)
            except Exception as error:  # the cell itself will say what is wrong
                if errors.interrupted(error):
                    raise KeyboardInterrupt from None


def _one_blas_thread() -> Context:
    """Linear algebra on one thread for each run, where the package that can limit it is there."""
    try:
        limited: Context = importlib.import_module("threadpoolctl").threadpool_limits(limits=1)
    except ImportError:
        return contextlib.nullcontext()
    return limited


def _connected(cluster: object) -> Context:
    """The client through which joblib reaches the cluster."""
    distributed = errors.needs("distributed", "cluster")
    if isinstance(cluster, distributed.Client):
        current: Context = cluster.as_current()
        return current
    if isinstance(cluster, str) and not cluster.strip():
        raise InputError("cluster is empty; pass the address of a Dask scheduler, such as tcp://host:8786")
    try:
        client: Context = distributed.Client(cluster, timeout=CONNECT)
    except (OSError, ValueError, TypeError) as error:  # OSError: nobody answered
        raise InputError(
            f"cluster: no Dask scheduler was found at {cluster!r} ({type(error).__name__}: {error}); "
            "start one with `dask scheduler`, and workers with `dask worker ADDRESS`"
        ) from None
    return client


# ---------------------------------------------------------------- from records to the table


def _study(plan: Sweep, records: dict[Cell, Record]) -> Study:
    """Everything in the order of the sweep."""
    facts = {problem.name: _facts(problem, plan.bounds) for problem in plan.problems}
    table, failures, seconds = [], [], []
    for cell, trial in plan.cells.items():
        record = records.get(cell)
        if record is None:
            continue
        named = {"instance": cell.instance, "method": cell.method, "seed": cell.seed}
        if "error" in record:
            failures.append({**named, "error": record["error"]})
            continue
        seconds.append({**named, "seconds": record["seconds"]})
        table += [_row(cell, trial, record, facts[cell.instance], k, delta) for k, delta in enumerate(plan.deltas)]
    missing = len(plan.cells) - len(failures) - len(seconds)
    return Study(plan.title, table, failures, missing, seconds, plan.notes)


def _row(cell: Cell, trial: Trial, record: Record, facts: dict[str, float], k: int, delta: float) -> TableRow:
    answer, needed = record["answers"][k], information(-math.log(delta))
    return {
        "instance": cell.instance,
        "method": cell.method,
        "delta": delta,
        "seed": cell.seed,
        "samples": record["samples"][k],
        "answer": answer,
        "correct": None if answer is None or math.isnan(facts["value"]) else answer == trial.problem.side,
        "certified": record["certified"][k],
        "cut": answer is None,
        "solves": record["solves"],
        **facts,
        "lower_bound": facts["uniform_time"] * needed,
        "best_bound": facts["best_time"] * needed,
    }


def _facts(problem: Problem, bounds: bool) -> dict[str, float]:
    """The true value, and T* with uniform and with the best sampling; NaN where it is not known."""
    uniform = best = math.nan
    if problem.value == problem.threshold or (problem.side is None and not math.isnan(problem.value)):
        uniform = best = math.inf
    elif bounds and problem.table is not None:
        task, kernel, threshold = problem.table, problem.kernel, problem.threshold
        with contextlib.suppress(InputError, ArithmeticError):
            uniform = float(characteristic_time(task, kernel, threshold=threshold).time)
            rate = optimal_allocation(task, kernel, threshold).upper_bound
            best = 1.0 / rate if rate > 0 else math.inf
    return {"value": problem.value, "threshold": problem.threshold, "uniform_time": uniform, "best_time": best}
