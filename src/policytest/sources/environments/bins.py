r"""Continuous states as numbered cells: a grid with given edges, or a function.

    bins = discretise(edges=[[-1.2, -0.4, 0.6], [-0.07, 0.0, 0.07]], names=["position", "velocity"])
    bins([[-0.5, 0.01]])                    # array([1]): cell 1 of 4
    bins.columns(frame, ["position", "velocity"], ["position_next", "velocity_next"])    # adds s and s_next
    bins.wrap(env)                          # a Gymnasium environment with Discrete observations

Cells are [edge, next edge), the last one with its end, and are numbered with the last dimension running fastest.

*What a guarantee then means.* A cell forgets where in it the process is, so the binned process is generally not Markov:
what follows depends on how the cell was entered, and on which policy collected the data. A test of binned data
keeps its delta for the Markov model of the cells only; how far the value of that model is from the real one, the data
do not say. (`policytest.diagnose` looks for the dependence on the previous cell.) Moreover, edges chosen by looking at
the data that are tested are chosen in hindsight: take them from what is known, or from other data.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from policytest._base import arrays as arrays_module
from policytest._base import errors
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.errors import AssumptionWarning, InputError, Needed
from policytest._base.table import Row, Shown, Table
from policytest._base.text import number, plural
from policytest.data.counts import CELLS_ARE_MARKOV

nw = Needed("narwhals", "data")
CellFunction: TypeAlias = Callable[[Any], object]
"""The number of the cell of an observation."""
CELL_LIMIT = 10_000_000
NOT_MARKOV = (
    "states that are bins of continuous ones are generally not Markov: delta then bounds the error about the Markov "
    "model of the bins only, whose value may differ from that of the real process"
)
OTHER_SAMPLE = "the sample that the edges of the cells come from is not part of the data"
SAME_EFFECT = "all actions in a cell have the same effect"
HINDSIGHT = "; the sample that the edges come from must not be part of the data that are tested"


@dataclass(frozen=True, eq=False)
class Bins(Shown):
    """Numbered cells of a continuous space, made by `discretise`; called with points, it gives their numbers.

    Attributes
    ----------
    edges
        For each dimension the edges, increasing, one more than there are bins; empty for a function.
    names
        Of the dimensions.
    outside
        "edge": what lies outside the edges belongs to the cell next to it. "refuse": it is an error.
    assumptions
        What a result about the cells rests on, for `Task(..., assumptions=bins.assumptions)`.
    following
        The columns of a log that have the dimensions of the next state; empty: they are in its next row.
    called
        For each dimension the names of its bins, or None where they are called by their ends; empty: all are.
    """

    edges: tuple[FloatArray, ...]
    names: tuple[str, ...]
    outside: str
    function: CellFunction | None = field(default=None, repr=False)
    count: int = 0
    labels: tuple[Hashable, ...] | None = field(default=None, repr=False)
    assumptions: tuple[str, ...] = (CELLS_ARE_MARKOV,)
    following: tuple[str, ...] = ()
    called: tuple[tuple[Hashable, ...] | None, ...] = field(default=(), repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of bins in each dimension."""
        return tuple(len(edge) - 1 for edge in self.edges) if self.function is None else (self.count,)

    @property
    def n_states(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    @property
    def states(self) -> tuple[Hashable, ...]:
        """Names of the cells, for a Task: "position [-1.2, -0.4), velocity [0.0, 0.07]"."""
        if self.labels is not None:
            return self.labels
        if self.function is not None:
            return tuple(range(self.count))
        each = [self.intervals(d) for d in range(len(self.edges))]
        places = np.unravel_index(np.arange(self.n_states), self.shape)
        return tuple(", ".join(each[d][i] for d, i in enumerate(at)) for at in zip(*places, strict=True))

    @property
    def cuts(self) -> dict[str, dict[str, Any]]:
        """The table `bins` of a task file, which `from_cuts` reads: for each column edges, names and next."""
        if self.function is not None or self.outside != "edge" or not self.names or 1 in self.shape:
            raise InputError(
                "bins cannot be written to a task file: they need the names of columns (names=[...]), edges with at "
                'least one number between the ends, and outside="edge"'
            )
        found = {name: {"edges": edges[1:-1].tolist()} for name, edges in zip(self.names, self.edges, strict=True)}
        for key, values in (("names", self.called), ("next", self.following)):
            for name, value in zip(self.names, values, strict=bool(values)):
                found[name] |= {} if value is None else {key: value}
        return found

    def intervals(self, d: int) -> list[str]:
        """Names of the bins of one dimension."""
        edges = [repr(float(edge)) for edge in self.edges[d]]
        if self.outside == "edge":
            edges[0], edges[-1] = "-inf", "inf"
        name = f"{self.names[d]} " if self.names else ""
        ends = [")"] * (len(edges) - 2) + [")" if edges[-1] == "inf" else "]"]
        starts = ["(" if edge == "-inf" else "[" for edge in edges]
        pieces = zip(starts, edges[:-1], edges[1:], ends, strict=False)
        return [f"{name}{start}{low}, {high}{end}" for start, low, high, end in pieces]

    def __call__(self, points: Any, name: str = "points") -> IntArray:
        """The cell of each point: points [n,d], or [n] in one dimension. NaN is refused."""
        if self.function is not None:
            return self._by_function(self.function, points, name)
        values = arrays_module.numbers(name, points).astype(np.float64)
        values = values[:, None] if values.ndim == 1 and len(self.edges) == 1 else values
        if values.ndim != 2 or values.shape[1] != len(self.edges):
            raise InputError(
                f"{name} has shape {np.shape(points)}; pass one row for each point, with "
                f"{plural(len(self.edges), 'number')} in it"
            )
        index: IntArray = np.zeros(len(values), dtype=np.int64)
        for d, edges in enumerate(self.edges):
            self._check(values[:, d], d, name)
            inside = np.clip(np.searchsorted(edges, values[:, d], side="right") - 1, 0, len(edges) - 2)
            index = index * (len(edges) - 1) + inside
        return index

    def _check(self, values: FloatArray, d: int, name: str) -> None:
        low, high = self.edges[d][[0, -1]]
        wrong = np.isnan(values)
        if not wrong.any() and self.outside == "refuse":
            wrong = (values < low) | (values > high)
        if (at := arrays_module.first(wrong)) is not None:
            place = f"{name}[{at}]" if len(self.edges) == 1 else f"{name}[{at}, {d}]"
            place += f" ({self.names[d]})" if self.names else ""
            if np.isnan(values[at]):
                raise InputError(f"{place} is nan, which lies in no cell; remove the row, or give it a value")
            raise InputError(
                f'{place} is {values[at]:.6g}, outside {low:.6g} to {high:.6g}; widen the edges, or pass outside="edge"'
            )

    def _by_function(self, function: CellFunction, points: Iterable[object], name: str) -> IntArray:
        cells = [function(point) for point in points]
        for at, cell in enumerate(cells):
            if isinstance(cell, bool | np.bool_) or not isinstance(cell, int | np.integer):
                raise InputError(f"function gave {cell!r} for {name}[{at}]; it must give the number of a cell")
            if not 0 <= cell < self.count:
                raise InputError(f"function gave {cell} for {name}[{at}]; cells are 0 to {self.count - 1}")
        return np.array(cells, dtype=np.int64)

    # ---------------------------------------------------------------- tables and environments

    def columns(self, frame: object, now: Sequence[str] | str, following: Sequence[str] | str | None = None) -> Any:
        """The table with the columns `s` and, where ``following`` is given, `s_next` added, of the same kind.

        ``now`` and ``following`` name the columns of the dimensions. Takes a dict of arrays and every frame that
        Narwhals knows. Frames that are not in memory (DuckDB, Dask, Spark, lazy Polars) are not looked at: there a
        NaN, or what is outside and refused, becomes a null, which `logs` refuses.
        """
        parts = {"s": _listed(now)} | ({} if following is None else {"s_next": _listed(following)})
        for role, names in parts.items():
            wanted = len(self.edges) if self.function is None else len(names)
            if len(names) != wanted:
                raise InputError(f"{role}: {plural(len(names), 'column')} named, the bins have {wanted} dimensions")
        if isinstance(frame, dict):
            self._there(list(frame), parts)
            new = {role: self(_stacked([frame[name] for name in names]), role) for role, names in parts.items()}
            return {**frame, **new}
        try:
            table = nw.from_native(frame)
        except TypeError:
            raise InputError(f"frame is a {type(frame).__name__}; pass a dict of arrays, or a data frame") from None
        self._there(list(table.collect_schema().names()), parts)
        if isinstance(table, nw.LazyFrame):
            if self.function is not None:
                raise InputError("frame is not in memory, where a Python function cannot be applied; collect it first")
            return table.with_columns(**{role: self.cells(names) for role, names in parts.items()}).to_native()
        for role, names in parts.items():
            cells = self(_stacked([table[name].to_numpy() for name in names]), role)
            series = nw.new_series(role, cells, backend=table.implementation)
            if hasattr(frame, "index"):  # pandas puts things together by their index
                series = nw.from_native(series.to_native().set_axis(frame.index), series_only=True)
            table = table.with_columns(series)
        return table.to_native()

    def _there(self, found: list[str], parts: dict[str, list[str]]) -> None:
        for name in (name for names in parts.values() for name in names):
            if name not in found:
                listed = ", ".join(repr(other) for other in found[:20])
                raise InputError(f"frame has no column {name!r}; there are {listed or 'none'}")
        if clash := [role for role in parts if role in found]:
            raise InputError(f"frame has a column {clash[0]!r} already; rename it first")

    def cells(self, names: Sequence[str]) -> Any:
        """The number of the cell as an expression of columns: how many inner edges each has reached; null for none."""
        index, good = nw.lit(0), []
        for edges, name in zip(self.edges, names, strict=True):
            column = nw.col(name).cast(nw.Float64)
            reached = nw.lit(0)
            for edge in edges[1:-1]:
                reached = reached + nw.when(column >= float(edge)).then(nw.lit(1)).otherwise(nw.lit(0))
            index = index * (len(edges) - 1) + reached
            good += [~column.is_nan(), ~column.is_null()]
            if self.outside == "refuse":
                good += [column >= float(edges[0]), column <= float(edges[-1])]
        return nw.when(functools.reduce(operator.and_, good)).then(index.cast(nw.Int64))

    def wrap(self, env: object) -> Any:
        """The environment with the cells as Discrete observations; pass ``states=bins.states`` on for their names.

        `policytest.sources.gymnasium` gives its task the assumptions of the bins.
        """
        gym = errors.needs("gymnasium", "gym")
        if not isinstance(env, gym.Env):
            raise InputError(f"env is a {type(env).__name__}; pass a Gymnasium environment")
        space = env.observation_space
        if self.function is None and not isinstance(space, gym.spaces.Box):
            raise InputError(f"env has observations {space}; edges are for a Box. Pass a function for others")
        if self.function is None and int(np.prod(space.shape)) != len(self.edges):
            raise InputError(
                f"env has observations of shape {space.shape}, the bins have {plural(len(self.edges), 'dimension')}"
            )
        return _wrapper(gym)(env, self)

    @property
    def summary(self) -> Table:
        """The bins of each dimension."""
        rows = [Row("cells", number(self.n_states), key="cells", raw=self.n_states)]
        for d, edges in enumerate(self.edges):
            name = self.names[d] if self.names else f"dimension {d}"
            shown = f"{plural(len(edges) - 1, 'bin')} from {edges[0]:.6g} to {edges[-1]:.6g}"
            rows.append(Row(name, shown, key=f"edges_{d}", raw=edges))
        title = f"{plural(self.n_states, 'cell')}" + (" by a function" if self.function is not None else "")
        return Table(title, tuple(rows), (f"Note: {NOT_MARKOV}.",))


def discretise(
    edges: object = None,
    *,
    sample: object = None,
    bins: object = None,
    how: str = "uniform",
    function: CellFunction | None = None,
    count: int | None = None,
    names: Sequence[str] | None = None,
    states: Sequence[Hashable] | None = None,
    outside: str = "edge",
) -> Bins:
    """Cells for continuous states, from edges, from a separate sample, or by a function.

    Issues an `AssumptionWarning`: bins are generally not Markov, and delta holds for their Markov model only.

    Parameters
    ----------
    edges
        For each dimension a list of increasing edges, one more than bins; a flat list for a single dimension. The
        outermost may be infinite.
    sample, bins, how
        Instead of edges: points [n,d] that are *not* part of the data to be tested, the number of bins (one for all
        dimensions, or a list), and "uniform" (equal widths between the extremes) or "quantile" (equal shares).
    function, count, states
        Instead of both: a function from an observation to the number of its cell, how many there are, their names.
    names
        Of the dimensions, for the names of the cells.
    outside
        "edge": points outside belong to the outermost cell. "refuse": they are errors.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", AssumptionWarning)
    ...     bins = discretise([0.0, 0.5, 1.0])
    >>> bins([0.2, 0.5, 7.0]).tolist(), bins.states
    ([0, 1, 1], ('(-inf, 0.5)', '[0.5, inf)'))
    """
    given = [
        what for what, value in (("edges", edges), ("sample", sample), ("function", function)) if value is not None
    ]
    if len(given) != 1:
        raise InputError(f"pass one of edges, sample and function; given: {', '.join(given) or 'none of them'}")
    arrays_module.one_of("outside", outside, ("edge", "refuse"))
    for what, value, owner in (("bins", bins, "sample"), ("count", count, "function"), ("states", states, "function")):
        if value is not None and given != [owner]:
            raise InputError(f"{what} belongs to {owner}, which is not given")
    if function is not None:
        if not callable(function):
            raise InputError(f"function is {function!r}; pass a function from an observation to the number of its cell")
        cells = arrays_module.whole_number("count", count)
        arrays_module.positive(count=cells)
        made = Bins((), (), outside, function, cells, arrays_module.names("states", states, cells))
    else:
        checked = _edges(edges) if sample is None else _from_sample(sample, bins, how)
        rests_on = (CELLS_ARE_MARKOV,) if sample is None else (CELLS_ARE_MARKOV, OTHER_SAMPLE)
        called = arrays_module.names("names", None if names is None else _listed(names), len(checked))
        made = Bins(checked, tuple(map(str, called or ())), outside, assumptions=rests_on)
    if made.n_states > CELL_LIMIT:
        raise InputError(
            f"the bins make {made.n_states:,} cells, more than {CELL_LIMIT:,}; take fewer in each dimension"
        )
    warnings.warn(NOT_MARKOV + (HINDSIGHT if sample is not None else ""), AssumptionWarning, stacklevel=2)
    return made


def from_cuts(columns: object) -> Bins:
    """The bins of a task file: for each column of a log the numbers at which it is cut, and perhaps names of the cells.

    ``next`` is the column of the same number in the next state, where a row of the log has it.

    >>> from_cuts({"glucose": {"edges": [70, 140], "names": ["low", "normal", "high"]}}).states
    ('low', 'normal', 'high')
    """
    if not isinstance(columns, Mapping) or not columns:
        raise InputError("bins is not a table of columns; write [bins.COLUMN] with edges = [70, 140]")
    edges, names = [], []
    for column, given in columns.items():
        if not isinstance(given, Mapping) or "edges" not in given or set(given) - {"edges", "names", "next"}:
            raise InputError(f"bins.{column} has the keys edges, and perhaps names and next: edges = [70, 140]")
        cuts = arrays_module.real_array(f"bins.{column}.edges", given["edges"], (None,))
        if not len(cuts) or not (cuts[1:] > cuts[:-1]).all():
            raise InputError(f"bins.{column}.edges is {given['edges']}; pass increasing numbers, at least one")
        edges.append([-np.inf, *cuts, np.inf])
        listed = given.get("names")
        names.append(None if listed is None else arrays_module.names(f"bins.{column}.names", listed, len(cuts) + 1))
    following = tuple(str(given["next"]) for given in columns.values() if "next" in given)
    if len(following) not in (0, len(columns)):
        raise InputError("bins: some columns have the key next, others have not; give it to all of them, or to none")
    bins = Bins(_edges(edges), tuple(columns), "edge", following=following)
    if bins.n_states > CELL_LIMIT:
        raise InputError(f"bins make {bins.n_states:,} cells, more than {CELL_LIMIT:,}; cut fewer times")
    each = [bins.intervals(d) if named is None else named for d, named in enumerate(names)]
    joined = tuple(", ".join(map(str, parts)) if parts[1:] else parts[0] for parts in itertools.product(*each))
    return dataclasses.replace(bins, labels=joined, called=tuple(names))


def _edges(edges: Any) -> tuple[FloatArray, ...]:
    try:
        lists = list(edges)
        lists = [lists] if lists and all(np.ndim(edge) == 0 for edge in lists) else lists
    except (TypeError, ValueError) as error:
        raise InputError(f"edges is not a list of numbers for each dimension ({error})") from None
    arrays = [arrays_module.numbers(f"edges[{d}]", edge).astype(np.float64) for d, edge in enumerate(lists)]
    if not arrays:
        raise InputError("edges is empty; pass a list of edges for each dimension")
    for d, array in enumerate(arrays):
        if array.ndim != 1 or len(array) < 2:
            raise InputError(f"edges[{d}] has shape {array.shape}; a dimension needs at least two edges, in a list")
        if (at := arrays_module.first(~(array[1:] > array[:-1]))) is not None:
            raise InputError(f"edges[{d}] has {array[at]:.6g} before {array[at + 1]:.6g}; edges must increase")
        arrays_module.freeze(array)
    return tuple(arrays)


def _from_sample(sample: object, bins: Any, how: str) -> tuple[FloatArray, ...]:
    arrays_module.one_of("how", how, ("uniform", "quantile"))
    points = arrays_module.real_array("sample", sample)
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or 0 in points.shape:
        raise InputError(f"sample has shape {points.shape}; pass one row for each point, and at least one")
    if bins is None:
        raise InputError("bins is missing; pass their number, for all dimensions or for each")
    sizes = [bins] * points.shape[1] if np.ndim(bins) == 0 else list(bins)
    if len(sizes) != points.shape[1]:
        raise InputError(f"bins has {len(sizes)} numbers, the sample has {plural(points.shape[1], 'dimension')}")
    found = []
    for d, size in enumerate(sizes):
        size = arrays_module.whole_number(f"bins[{d}]", size)
        arrays_module.positive(**{f"bins[{d}]": size})
        values = points[:, d]
        if how == "uniform":
            edges = np.linspace(values.min(), values.max(), size + 1)
        else:
            edges = np.quantile(values, np.linspace(0.0, 1.0, size + 1))
        if not (edges[1:] > edges[:-1]).all():
            raise InputError(
                f"sample[:, {d}] repeats values, so that {plural(size, 'bin')} would have equal edges; "
                "take fewer bins, or pass edges"
            )
        found.append(edges)
    return _edges(found)


def _listed(names: Sequence[str] | str) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _stacked(columns: list[npt.ArrayLike]) -> npt.NDArray[Any]:
    return np.column_stack([np.asarray(column) for column in columns])


def _wrapper(gym: Any) -> Any:
    """The class of wrapped environments; made here because Gymnasium is optional."""

    class Binned(gym.ObservationWrapper):  # type: ignore[misc]
        """Observations are the numbers of cells."""

        def __init__(self, env: Any, bins: Bins) -> None:
            super().__init__(env)
            self.bins = bins
            self.observation_space = gym.spaces.Discrete(bins.n_states)

        def observation(self, observation: Any) -> int:
            """The cell of an observation."""
            point = [observation] if self.bins.function is not None else np.reshape(observation, (1, -1))
            return int(self.bins(point, "observation")[0])

    return Binned
