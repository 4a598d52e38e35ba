"""What a study finds: one tidy table, a row for each run and delta, with its summary.

The table holds nothing that depends on a clock, so that the same study gives the same table, bit by bit, on any number
of workers and after any interruption. The seconds of each run are kept beside it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from policytest._base import errors
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest._base.files import TEXT_LIMIT, read_file, write_file
from policytest._base.table import Document, Shown
from policytest._base.text import plural
from policytest.plots.studies import TableRow, grouped, mean_and_error
from policytest.study.grid import Block, Grid, Line

if TYPE_CHECKING:
    import pandas
    import pyarrow

COLUMNS: dict[str, type] = {
    "instance": str,
    "method": str,
    "delta": float,
    "seed": int,
    "samples": int,
    "answer": str,
    "correct": bool,
    "certified": bool,
    "cut": bool,
    "solves": int,
    "value": float,
    "threshold": float,
    "uniform_time": float,
    "best_time": float,
    "lower_bound": float,
    "best_bound": float,
}
"""The columns of the table, with their types; ``answer`` and ``correct`` are empty where there is no answer."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a formula begins with in a spreadsheet; the last four are the full-width forms of the first."""
MAY_BE_EMPTY = ("answer", "correct")
TABLE_LIMIT = 4 * TEXT_LIMIT
MOST_SHOWN = 5  # deltas in the printed summary


@dataclass(frozen=True, eq=False)
class Study(Shown):
    """A table of runs, and what it says.

    ``table``: a list of rows, one for each run and delta, with the keys `COLUMNS`. ``failures``: the runs that ended
    with an error. ``missing``: how many runs were not made, because the study was interrupted. ``seconds``: of each
    run. ``notes``: remarks on the methods.
    """

    title: str
    table: list[TableRow]
    failures: list[TableRow] = field(default_factory=list)
    missing: int = 0
    seconds: list[TableRow] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every run was made and none failed."""
        return not self.failures and not self.missing

    @cached_property
    def means(self) -> list[TableRow]:
        """One entry for each instance, method and delta: mean samples, its standard error, and how runs ended.

        Where runs were cut the mean is too small: it is that of the samples drawn, and ``cut`` says how many they are.
        """
        return [_mean(rows) for rows in grouped(self.table, "instance", "method", "delta").values()]

    @property
    def errors(self) -> dict[tuple[str, str], FloatArray]:
        """(instance, method) -> [k] the share of wrong answers among all runs, one number for each delta."""
        groups = grouped(self.means, "instance", "method")
        return {key: np.array([mean["wrong"] / mean["runs"] for mean in means]) for key, means in groups.items()}

    def only(self, instances: Iterable[str] | None = None, methods: Iterable[str] | None = None) -> Study:
        """The part of the study on these instances, and by these methods."""
        given = {"instance": instances, "method": methods}
        wanted = {key: set(names) for key, names in given.items() if names is not None}
        for key, names in wanted.items():
            if lost := sorted(names - {row[key] for row in (*self.table, *self.failures)}):
                raise InputError(f"{key}s has {lost[0]!r}, which is not in this study")

        def kept(rows: list[TableRow]) -> list[TableRow]:
            return [row for row in rows if all(row[key] in names for key, names in wanted.items())]

        return replace(self, table=kept(self.table), failures=kept(self.failures), seconds=kept(self.seconds))

    # ------------------------------------------------------------ shown

    @cached_property
    def summary(self) -> Grid:
        """Mean samples with their standard errors, at some of the deltas; JSON has all."""
        blocks = tuple(_block(means) for means in grouped(self.means, "instance").values())
        return Grid(self.title, blocks, (*self.problems, *self.notes))

    @property
    def problems(self) -> list[str]:
        """What is wrong with the study as a whole."""
        lines = []
        if any(mean["cut"] for mean in self.means):
            lines.append("> some runs were cut at their largest number of samples: the mean is at least this.")
        for (method,), mine in grouped(self.means, "method").items():
            if wrong := sum(mean["wrong"] for mean in mine):
                total = sum(mean["runs"] - mean["cut"] for mean in mine)
                lines.append(f"Wrong answers of {method}: {wrong:,} of {total:,}, over all instances and deltas.")
        for failure in self.failures[:MOST_SHOWN]:
            name = f"{failure['method']} on {failure['instance']}, seed {failure['seed']}"
            lines.append(f"Failed: {name}: {failure['error']}")
        if len(self.failures) > MOST_SHOWN:
            lines.append(f"Failed: {len(self.failures) - MOST_SHOWN:,} more.")
        if self.missing:
            lines.append(f"Interrupted: {plural(self.missing, 'run')} not made.")
        return lines

    def data(self) -> Document:
        """The means, the failures and the notes, for JSON; the table itself is for `save`."""
        names = ("title", "complete", "missing", "failures", "means", "notes")
        return {name: getattr(self, name) for name in names}

    # ------------------------------------------------------------ other forms

    def column(self, name: str) -> npt.NDArray[Any]:
        """One column as an array; `answer` and `correct` are object arrays, with None where there is no answer."""
        if name not in COLUMNS:
            raise InputError(f"there is no column {name!r}; the columns are {', '.join(COLUMNS)}")
        kind = object if name in MAY_BE_EMPTY or COLUMNS[name] is str else COLUMNS[name]
        return np.array([row[name] for row in self.table], dtype=kind)

    def to_arrow(self) -> pyarrow.Table:
        """The table as a PyArrow table."""
        arrow = errors.needs("pyarrow", "study")
        types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
        schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
        return arrow.Table.from_pylist(self.table, schema=schema)

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        return errors.needs("pandas", "study").DataFrame({name: self.column(name) for name in COLUMNS})

    def save(self, path: str | PathLike[str]) -> None:
        """Write the table, as ``.parquet`` or ``.csv``, in one step."""
        path = Path(path)
        if path.suffix.lower() == ".csv":
            write_file(path, csv_bytes(COLUMNS, self.table))
        elif path.suffix.lower() == ".parquet":
            arrow = errors.needs("pyarrow.parquet", "study")
            content = io.BytesIO()
            arrow.write_table(self.to_arrow(), content)
            write_file(path, content.getbuffer())
        else:
            raise InputError(f"{path}: the format is unknown; use a name that ends in .parquet or .csv")


def load(path: str | PathLike[str]) -> Study:
    """The study whose table was saved here: a ``.csv``, a ``.parquet``, or the folder of a finished study."""
    path = Path(path)
    if path.is_dir():
        path = path / "table.csv"
    reader = {".csv": _read_csv, ".parquet": _read_parquet}.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: the format is unknown; use a .parquet, a .csv, or the folder of a study")
    if not path.is_file():
        raise InputError(f"there is no file {path}; a study writes its table when it is finished")
    return Study(path.stem if path.name != "table.csv" else path.absolute().parent.name, reader(path))


# ---------------------------------------------------------------- files


def csv_bytes(columns: Iterable[str], rows: Iterable[TableRow]) -> bytes:
    """Comma-separated values, floats exactly, true and false, nothing for None."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_csv_cell(row[name]) for name in columns])
    return text.getvalue().encode()


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if _is_formula(value) else value
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet computes this cell, apart from apostrophes at its beginning, which mark text there."""
    return text.lstrip("'").startswith(FORMULAS)


def _read_csv(path: Path) -> list[TableRow]:
    try:
        lines = list(csv.reader(io.StringIO(read_file(path, TABLE_LIMIT).decode("utf-8"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error}); run the study again") from None
    if not lines or lines[0] != list(COLUMNS):
        raise InputError(f"{path}: this is not the table of a study; its first line must be {','.join(COLUMNS)}")
    return [_parsed(path, number, line) for number, line in enumerate(lines[1:], start=2)]


def _parsed(path: Path, number: int, line: list[str]) -> TableRow:
    row: TableRow = {}
    try:
        for (name, kind), text in zip(COLUMNS.items(), line, strict=True):
            if text == "" and name in MAY_BE_EMPTY:
                row[name] = None
            else:
                text = text[1:] if kind is str and text.startswith("'") and _is_formula(text) else text
                row[name] = {"true": True, "false": False}[text] if kind is bool else kind(text)
    except (ValueError, KeyError) as error:
        raise InputError(f"{path}, line {number}: invalid value ({error}); run the study again") from None
    return row


def _read_parquet(path: Path) -> list[TableRow]:
    arrow = errors.needs("pyarrow.parquet", "study")
    try:
        table = arrow.read_table(path)
    except Exception as error:  # whatever a damaged file provokes
        raise InputError(f"{path}: cannot be read ({error}); run the study again") from None
    if table.column_names != list(COLUMNS):
        raise InputError(f"{path}: this is not the table of a study; its columns must be {', '.join(COLUMNS)}")
    rows: list[TableRow] = table.to_pylist()
    return rows


# ---------------------------------------------------------------- the summary


def _mean(rows: list[TableRow]) -> TableRow:
    mean, error = mean_and_error(rows, "samples")
    runs, first = len(rows), rows[0]
    return {
        **{name: first[name] for name in ("instance", "method", "delta")},
        "runs": runs,
        "mean": mean,
        "standard_error": error if runs > 1 else math.nan,
        "wrong": sum(row["correct"] is False for row in rows),
        "cut": sum(row["cut"] for row in rows),
        "certified": sum(row["certified"] for row in rows),
        **{name: first[name] for name in ("value", "threshold", "lower_bound", "best_bound")},
    }


def _some(deltas: list[float]) -> list[float]:
    """At most five of them, from the smallest to the largest."""
    if len(deltas) <= MOST_SHOWN:
        return deltas
    places = np.linspace(0, len(deltas) - 1, MOST_SHOWN).round().astype(int)
    return [deltas[place] for place in places]


def _block(means: list[TableRow]) -> Block:
    """The means of one instance: a line for each method, a column for each delta."""
    first, lines = means[0], []
    deltas = _some(sorted({mean["delta"] for mean in means}))
    for name, label in (("lower_bound", "lower bound, uniform sampling"), ("best_bound", "lower bound, best sampling")):
        if not math.isnan(first[name]):
            bounds = {mean["delta"]: mean[name] for mean in means}
            lines.append(Line(label, tuple(_count(bounds[delta]) for delta in deltas)))
    for (method,), mine in grouped(means, "method").items():
        at = {mean["delta"]: mean for mean in mine}
        proved = all(mean["certified"] == mean["runs"] - mean["cut"] for mean in mine)
        lines.append(Line(method, tuple(_cell(at.get(delta)) for delta in deltas), "" if proved else "not certified"))
    known = "unknown" if math.isnan(first["value"]) else f"{first['value']:.6g}"
    heading = f"{first['instance']}: value {known}, threshold {first['threshold']:.6g}"
    return Block(heading, tuple(f"delta = {delta:g}" for delta in deltas), tuple(lines))


def _cell(mean: TableRow | None) -> str:
    if mean is None:
        return ""
    error = "" if math.isnan(mean["standard_error"]) else f" ({mean['standard_error']:,.0f})"
    return f"{'> ' if mean['cut'] else ''}{mean['mean']:,.0f}{error}"


def _count(x: float) -> str:
    return f"{x:,.0f}" if math.isfinite(x) else "infinite"
