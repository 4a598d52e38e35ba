r"""A table on any engine: what is read from it, as one query.

The expressions are written once, in Narwhals, and run where the data are: DuckDB for files (embedded, with bounded
memory) and for Arrow's tables, Polars, pandas, Dask or Spark for their own frames. Rows with an order come
as they are (`scanned`); otherwise only groups come back (`tallied`, and for a diagnosis `lagged` and `by_period`).
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from policytest._base.errors import InputError, Needed, interrupted
from policytest._base.text import plain
from policytest.data.counts import CELLS_ARE_MARKOV
from policytest.mdp.task import Task
from policytest.sources.environments.bins import Bins
from policytest.sources.labels import MISSING, Column, listed
from policytest.sources.logged import duckdb_files, paths
from policytest.sources.logged.columns import (
    BINNED,
    IGNORED,
    LABELS,
    NEXT_BINNED,
    OPTIONAL,
    PROBABILITIES,
    ROLES,
    Columns,
    check_bins,
    check_mapping,
    ignoring,
    resolve,
    with_bins,
)

if TYPE_CHECKING:
    import duckdb
    import narwhals as nw
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    nw, pa, pc = Needed("narwhals", "data"), Needed("pyarrow", "data"), Needed("pyarrow.compute", "data")

Table: TypeAlias = "nw.DataFrame[Any] | nw.LazyFrame[Any]"
"""A frame of Narwhals, on whichever engine."""
Expression: TypeAlias = "nw.Expr"
"""What Narwhals makes of columns, not yet computed."""
NumberArray: TypeAlias = npt.NDArray[np.number[Any]]
Batch: TypeAlias = dict[str, Column]
GROUP_LIMIT = 50_000_000  # groups that are fetched
COUNT_LIMIT, HIGH = 2**62, 2**32
NUMBERS = ("count", "reward", "order", *PROBABILITIES)  # columns of numbers
BATCH = 2**18
MOST_LIMIT = 2**31 - 1  # what Spark takes as a limit
SMALL_DRIVER = re.compile("OutOfMemoryError|maxResultSize|GC overhead|SparkContext was shut down")
"""What Spark says when its driver has too little memory, or has died of it."""
KINDS = "a path, a list of paths, or a frame of pandas, Polars, PyArrow, DuckDB, Dask or Spark"


@dataclass(frozen=True, eq=False)
class Frame:
    """A table on its engine: a Narwhals frame whose columns are named by their roles.

    ``form`` is that of the labels ("typed", "text", "json": see `labels.Lookup`); ``roles`` are those of its columns;
    ``files`` is where it came from, and ``n_rows`` what these hold. ``flags`` are columns of 1 and 0: `last`, where
    s_next is the s of the next row of the episode, says that there is none, and `first` that there is none before.
    With ``binned`` columns of numbers, `cell` and `cell_next` are the numbers of their cells: the states of rows whose
    label is null.
    """

    table: Table
    roles: tuple[str, ...]
    form: str
    files: tuple[paths.File, ...] = ()
    connection: duckdb.DuckDBPyConnection | None = None  # of the engine, kept as long as the frame
    n_rows: int | None = None
    flags: tuple[str, ...] = ()
    binned: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that tell groups apart."""
        return (*LABELS, *(("cell", "cell_next") if self.binned else ()), *self.flags)

    def length(self) -> int:
        """The number of rows, counted by the engine where nobody has said it."""
        if self.n_rows is not None:
            return self.n_rows
        if isinstance(self.table, nw.DataFrame):
            return len(self.table)
        return int(rows(self.table.select(rows=nw.len()), 1)[0]["rows"])


def open_frame(data: object, columns: object = None, bins: Bins | None = None) -> Frame:
    """The table behind `data`, nothing of which is read yet but names and types."""
    mapping = check_mapping(columns)
    mapping = mapping if bins is None else with_bins(mapping, bins.names, bins.following)
    found = opened(data, mapping, (*ROLES, IGNORED))
    with readable():
        return _checked(_with_successors(with_cells(found, bins)))


def opened(data: object, mapping: Columns, known: Sequence[str], in_order: bool = False) -> Frame:
    """The table, its columns named by their roles, of those known; with ``in_order`` as files have its rows."""
    with readable():
        if paths.is_path(data):
            found, own = paths.find(data), duckdb_files.connect(in_order)
            relation, form, files, n_rows = duckdb_files.relation(own, found, mapping)
            return Frame(nw.from_native(relation), _of(known, relation.columns), form, files, own, n_rows)
        native, connection = scannable(data)
        try:
            table = nw.from_native(native)
        except TypeError:
            raise InputError(f"data is a {type(data).__name__}; pass {KINDS}") from None
        names = resolve(mapping, list(table.collect_schema().names()), "data")
        chosen = table.select(*(nw.col(name).alias(role) for role, name in names.items()))
        return Frame(chosen, _of(known, names), "typed", (), connection)


def _of(known: Sequence[str], there: Collection[str]) -> tuple[str, ...]:
    return tuple(role for role in known if role in there)


def forgotten_bins(task: Task | None, binned: object) -> str:
    """What to do where the states of the task are cells and no bins were passed; "" otherwise."""
    if task is None or binned or CELLS_ARE_MARKOV not in task.assumptions:
        return ""
    return 'the states of this task are cells of numbers: pass bins=model.bins, of model = load_model("task.toml")'


@contextmanager
def with_bins_named(task: Task | None, bins: Bins | None) -> Iterator[None]:
    """Where there is no column of states, say so if it is the bins that are missing."""
    try:
        yield
    except InputError as error:
        if " for s; " in str(error) and (remedy := forgotten_bins(task, bins)):
            raise InputError(f"{error}; or {remedy}") from None
        raise


def with_cells(frame: Frame, bins: Bins | None) -> Frame:
    """The frame with the number of each row's cell; where there is no column s, its labels are null."""
    if bins is None:
        return frame
    check_bins(frame.roles, bins.names, bins.following)
    added, roles = [], dict.fromkeys(frame.roles)
    kinds = frame.table.collect_schema()
    for label, cell, prefix, names in (
        ("s", "cell", BINNED, bins.names),
        ("s_next", "cell_next", NEXT_BINNED, bins.following),
    ):
        if not names:
            continue
        for name in names:
            if not kinds[prefix + name].is_numeric():
                raise InputError(
                    f"the column {name} has the type {kinds[prefix + name]}, and bins are for numbers; convert it"
                )
        added.append(bins.cells([prefix + name for name in names]).alias(cell))
        if label not in roles:
            added.append(nw.lit(None, dtype=nw.String).alias(label))
            roles[label] = None
    ordered = tuple(role for role in (*ROLES, IGNORED) if role in roles)
    return replace(frame, table=frame.table.with_columns(*added), roles=ordered, binned=bins.names)


def _with_successors(frame: Frame) -> Frame:
    """The frame with s_next; where there is no such column, it is the s of the next row of the episode."""
    if "s_next" in frame.roles:
        return frame
    found = _beside(frame, -1, "last", s_next="s", **({"cell_next": "cell"} if frame.binned else {}))
    return replace(found, roles=(*LABELS, *(role for role in frame.roles if role not in LABELS)))


def with_first_rows(frame: Frame) -> Frame:
    """The frame with the flag `first`: where an episode begins."""
    missing = [role for role in ("episode", "order") if role not in frame.roles]
    if missing:
        raise InputError(
            f"the log is to tell where episodes start, and it has no column {missing[0]}; name it with "
            f'columns={{"{missing[0]}": ...}}, or give the task its initial distribution'
        )
    return _beside(frame, 1, "first")


def _beside(frame: Frame, step: int, name: str, **columns: str) -> Frame:
    """The frame with columns of the row before (1) or after (-1) in the episode, and a flag where there is none."""

    def beside(role: str) -> Expression:
        return nw.col(role).shift(step).over("episode", order_by="order")

    none = flag(beside("order").is_null()).alias(name)
    try:
        table = frame.table.with_columns(none, *(beside(role).alias(other) for other, role in columns.items()))
    except NotImplementedError:
        raise InputError(
            f"{'the first row' if step > 0 else 'data has no column s_next, and the next row'} of an episode cannot be "
            "found by Dask; pass the files themselves, or another frame"
        ) from None
    return replace(frame, table=table, flags=(*frame.flags, name))


def scannable(data: Any) -> tuple[Any, duckdb.DuckDBPyConnection | None]:
    """The data as something Narwhals takes, and the connection that holds it if there is one."""
    module = type(data).__module__.split(".")[0]
    if module == "pyarrow":
        if isinstance(data, pa.RecordBatchReader):
            raise InputError("data is a RecordBatchReader, which can be read only once; pass data.read_all()")
        data = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        if not isinstance(data, pa.Table) and not hasattr(data, "get_fragments"):
            raise InputError(f"data is a {type(data).__name__}; pass {KINDS}")
        connection = duckdb_files.connect()  # which reads Arrow where it lies, and has windows, unlike PyArrow
        return connection.from_arrow(data), connection
    if module == "pandas" and not all(isinstance(name, str) for name in getattr(data, "columns", ())):
        raise InputError("data has columns whose names are not strings; rename them")
    return data, None


def _checked(frame: Frame) -> Frame:
    """The frame, refused if a column has a type that its role cannot have."""
    kinds = frame.table.collect_schema()
    for role in frame.roles:
        remedy = ", to dates for example" if role == "order" else ""
        if role == "reward":
            remedy += f", or, if the task has rewards of its own, {ignoring(role)}"
        elif role == "order" and not frame.flags:
            remedy += f", or {ignoring(role)}"
        check_type(role, kinds[role], remedy)
        if role in LABELS and kinds[role] in (nw.Binary, nw.Struct):
            raise InputError(
                f"the column {role} has the type {kinds[role]}; labels are text, numbers, dates or lists of them"
            )
    return frame


def check_type(role: str, kind: nw.dtypes.DType, remedy: str = "") -> None:
    """Refuse a column of numbers that holds something else; an order may also have times."""
    rule = {"count": "whole numbers", "order": "numbers or times"}.get(role, "numbers")
    if role in NUMBERS and not (kind.is_numeric() or (role == "order" and kind.is_temporal())):
        raise InputError(f"the column {role} has the type {kind}, and must hold {rule}; convert it{remedy}")


@contextmanager
def readable() -> Iterator[None]:
    """Errors of the engine as one line about the data."""
    try:
        yield
    except (InputError, ImportError, MemoryError):
        raise
    except Exception as error:
        if interrupted(error):
            raise KeyboardInterrupt from None
        if type(error).__name__ == "OutOfMemoryException":
            raise InputError(
                "DuckDB's working memory does not suffice for these data; pass a relation of a connection of your own, "
                "with a larger memory_limit, or one file at a time with add_to"
            ) from None
        if _is_of_a_small_driver(error):
            raise InputError(
                "Spark failed while it sent rows, probably because the memory of its driver does not suffice; give it "
                "more (spark.driver.memory, spark.driver.maxResultSize), or fetch counts alone: " + ignoring("order")
            ) from None
        raise InputError(f"the data cannot be read: {_first_words(error)}; fix the data") from None


def _is_of_a_small_driver(error: Exception) -> bool:
    """Whether this is how Spark fails without enough memory; where its process has died nobody answers any more."""
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return "pyspark" in sys.modules
    return type(error).__module__.split(".")[0] in ("py4j", "pyspark") and bool(SMALL_DRIVER.search(str(error)))


def _first_words(error: Exception) -> str:
    """What an engine says is wrong, without its advice, on one line."""
    text = re.split(r"\n\s*(?:Possible|LINE \d|Candidate|Hint)", str(error).strip())[0]
    file = re.search(r"^\s*file = (.+)$", str(error), re.MULTILINE)
    lines = [line.strip(" .") for line in text.splitlines() if line.strip(" .^")]
    words = ", ".join(lines) + (f", in {file.group(1)}" if file else "")
    return plain(words[:500]) or type(error).__name__


# ---------------------------------------------------------------- expressions


def flag(condition: Expression) -> Expression:
    """1 where it holds, 0 elsewhere."""
    return nw.when(condition).then(nw.lit(1)).otherwise(nw.lit(0))


def missing(name: str, kind: nw.dtypes.DType) -> Expression:
    """Whether a column of this type has no entry, or not a number."""
    column = nw.col(name)
    return column.is_null() | column.is_nan() if kind.is_float() else column.is_null()


def prepared(frame: Frame) -> Table:
    """The table with `weight`, and flags (1 or 0) for what cannot be used: `bad_count`, `bad_order` and so on."""
    kinds = frame.table.collect_schema()
    added = []
    for role in frame.roles[len(LABELS) :]:
        column = nw.col(role)
        if role == IGNORED:
            added += _extremes(column, kinds[role].is_numeric())
            continue
        wrong = missing(role, kinds[role])
        if role == "count":
            wrong = wrong | (column < 0)
            if not kinds[role].is_integer():
                wrong = wrong | (column >= float(COUNT_LIMIT)) | (column % 1 != 0)
            elif kinds[role] in (nw.Int64, nw.UInt64, nw.Int128, nw.UInt128):
                wrong = wrong | (column >= COUNT_LIMIT)
            added += [nw.when(~wrong).then(column).otherwise(nw.lit(0)).cast(nw.Int64).alias("weight")]
        if role == "reward":
            number = column.cast(nw.Float64)
            going = ~nw.col("s_next").is_null()  # what has not gone on has earned nothing yet
            going = going | ~nw.col("cell_next").is_null() if frame.binned else going
            wrong = (wrong | ~number.is_finite()) & going
            added += [number.alias("reward")]
        added.append(flag(wrong).alias(f"bad_{role}"))
    if "count" not in frame.roles:
        added.append(nw.lit(1).alias("weight"))
    return frame.table.with_columns(*added)


def _extremes(reward: Expression, numeric: bool) -> list[Expression]:
    """Two columns, whose least and largest entries are those of a reward that may be missing; inf: not a number."""
    number = reward.cast(nw.Float64) if numeric else nw.lit(np.inf)
    found = nw.when(number.is_finite()).then(number).otherwise(nw.lit(np.inf))
    missing = {"ignored_least": np.inf, "ignored_largest": -np.inf}
    return [nw.when(~reward.is_null()).then(found).otherwise(nw.lit(end)).alias(name) for name, end in missing.items()]


def _wanted(frame: Frame) -> tuple[Table, dict[str, str]]:
    """The table with all that is looked at beside the labels: the names of columns, and how groups sum them up."""
    table = prepared(frame)
    if frame.binned:
        table = table.with_columns(*(nw.col(cell).fill_null(MISSING).cast(nw.Int64) for cell in ("cell", "cell_next")))
    how: dict[str, str] = {}
    if "count" in frame.roles:
        high = nw.col("weight") // HIGH  # in two parts, so that no engine's sum overflows or wraps around
        table = table.with_columns(high.alias("high"), (nw.col("weight") - high * HIGH).alias("low"))
        how |= {"high": "sum", "low": "sum"}
    if "reward" in frame.roles:
        table = table.with_columns(reward_least=nw.col("reward"), reward_largest=nw.col("reward"))
        how |= {"reward_least": "min", "reward_largest": "max"}
    if IGNORED in frame.roles:
        how |= {"ignored_least": "min", "ignored_largest": "max"}
    return table, how | {f"bad_{role}": "sum" for role in OPTIONAL if role in frame.roles}


def tallied(frame: Frame, sums: bool = False) -> Table:
    """One group-by: for each (s, a, s_next) rows, transitions, the least and largest reward, and flags.

    With ``sums`` also the sums of rewards and of their squares.
    """
    table, how = _wanted(frame)
    if sums:
        paid = nw.col("reward") * nw.col("weight") if "count" in frame.roles else nw.col("reward")
        table = table.with_columns(reward_sum=paid, reward_square=paid * nw.col("reward"))
        how |= {"reward_sum": "sum", "reward_square": "sum"}
    summed = [getattr(nw.col(name), function)().alias(name) for name, function in how.items()]
    return table.group_by(*frame.keys).agg(nw.len().alias("rows"), *summed)


def scanned(frame: Frame) -> Table:
    """The same for each row, with its order and its episode."""
    table, how = _wanted(frame)
    kept = (role for role in ("order", "episode") if role in frame.roles)
    return table.select(*frame.keys, *how, *kept)


def in_turn(frame: Frame) -> Iterator[Batch]:
    """Batches of labels and rewards, with order and episode where there are any, in the order of the table."""
    table, _ = _wanted(frame)
    there = table.collect_schema().names()
    beside = (name for name in ("reward_text", "order", "episode") if name in there)
    if frame.connection is not None:
        frame.connection.execute("SET threads = 1")
        frame.connection.execute("SET preserve_insertion_order = true")
    return batches(table.select(*frame.keys, "reward", "bad_reward", *beside), 2**32 - 2)  # what Polars can count


def first_in_order(frame: Frame, most: int) -> Frame:
    """The first rows by their order; of those of the same order, by their episodes."""
    by = [role for role in ("order", "episode") if role in frame.roles]
    return replace(frame, table=frame.table.sort(*by).head(most), n_rows=None)


def repeated(frame: Frame, keys: Sequence[str]) -> Table:
    """What several rows have in these columns, and how many `rows` they are."""
    return frame.table.group_by(*keys).agg(rows=nw.len()).filter(nw.col("rows") > 1)


def with_windows(frame: Frame) -> Frame:
    """The same rows, on an engine with exact windows: those of pandas, which shifts integers as floats, on DuckDB."""
    table = frame.table
    if table.implementation.is_dask():
        raise InputError(
            f"data has {frame.length():,} rows, more than are kept in order: to diagnose them takes window functions, "
            "and Dask has none; pass the files themselves, or a frame of Polars, DuckDB or Spark"
        )
    if isinstance(table, nw.LazyFrame) or not table.implementation.is_pandas_like():
        return frame
    return open_frame(table.to_arrow())


def lagged(frame: Frame) -> Table:
    """For each (s, a, s_next), with `before_s` and so on of the row before it in its episode: how many rows."""
    within = [role for role in ("episode",) if role in frame.roles]
    before = {f"before_{role}": nw.col(role).shift(1).over(*within, order_by="order") for role in LABELS}
    return frame.table.select(*LABELS, **before).group_by(*LABELS, *before).agg(rows=nw.len())


def first_orders(frame: Frame) -> Table:
    """One row: how many episodes there are, and the least and the largest order with which one begins."""
    first = frame.table.group_by("episode").agg(first=nw.col("order").min())
    return first.select(episodes=nw.len(), least=nw.col("first").min(), largest=nw.col("first").max())


def by_period(frame: Frame, by_episode: bool, periods: int) -> Table:
    """For each `period`, of equal numbers of transitions, and (s, a, s_next): how many rows, and transitions `n`.

    Rows come by their order, those of the same order by their episodes, whose ids sort as in `IndexColumns.by_episode`;
    with ``by_episode`` by episodes first.
    """
    table = prepared(frame).with_columns(nw.col("weight").cast(nw.Int64))
    by = ["order"]
    if "episode" in frame.roles:
        kinds = table.collect_schema()
        if kinds["episode"] in (nw.Categorical, nw.Enum):  # which some engines sort as they were declared
            table = table.with_columns(nw.col("episode").cast(nw.String))
        ids = [name for name in ("episode_number", "episode") if name in kinds.names()]
        by = [*ids, "order"] if by_episode else ["order", *ids]
    total = max(int(rows(table.select(total=nw.col("weight").sum()), 1)[0]["total"]), 1)
    table = table.with_columns(running=nw.col("weight").cum_sum().over(order_by=by))
    period = ((nw.col("running") - 1) * periods // total).cast(nw.Int64)
    return (
        table.select(*LABELS, "weight", period=period)
        .group_by("period", *LABELS)
        .agg(rows=nw.len(), n=nw.col("weight").sum())
    )


def examples(frame: Frame, role: str) -> list[object]:
    """What stands in the first three rows that cannot be used for this column."""
    wrong = prepared(frame).filter(nw.col(f"bad_{role}") == 1)
    written = f"{role}_text" if f"{role}_text" in frame.table.collect_schema().names() else role
    return [row[written] for row in rows(wrong.select(written), 3)]


def without_number(frame: Frame, role: str) -> dict[str, int]:
    """For each binned column of a role, s or s_next, that lacks numbers: in how many rows without a label."""
    prefix, kinds = BINNED if role == "s" else NEXT_BINNED, frame.table.collect_schema()
    names = [name for name in kinds.names() if name.startswith(prefix)]
    wrong = (flag(missing(name, kinds[name])).sum().alias(name) for name in names)
    found = rows(frame.table.filter(nw.col(role).is_null()).select(*wrong), 1)[0]
    return {name.removeprefix(prefix): int(times) for name, times in found.items() if times}


def rows(table: Table, most: int) -> list[dict[str, Any]]:
    """The first rows of a table."""
    with readable():
        first = table.head(most)
        first = first.collect() if hasattr(first, "collect") else first
        return list(first.rows(named=True))


# ---------------------------------------------------------------- results


@contextmanager
def watched(frame: Frame, progress: Callable[[float], None] | None, begin: float, end: float) -> Iterator[None]:
    """Tell how far a query is, as a share between `begin` and `end`; DuckDB is asked, by a thread, five times a second.

    An error in `progress` is raised when the query is done.
    """
    connection = frame.connection
    if progress is None:
        yield
        return
    done = threading.Event()
    errors: list[BaseException] = []

    def ask(connection: duckdb.DuckDBPyConnection) -> None:
        last = begin
        while not done.wait(0.2) and not errors:
            share = begin + (end - begin) * min(max(connection.query_progress(), 0.0), 100.0) / 100
            if share > last:
                last = share
                try:
                    progress(share)
                except BaseException as error:
                    errors.append(error)

    progress(begin)
    asking = threading.Thread(target=ask, args=(connection,), daemon=True)
    if connection is not None:
        asking.start()
    try:
        yield
    finally:
        done.set()
        if connection is not None:
            asking.join()
    if errors:
        raise errors[0]
    progress(end)


def batches(table: Table, limit: int = GROUP_LIMIT) -> Iterator[Batch]:
    """The groups of a table, in pieces: a dictionary of columns (Arrow arrays, or lists) each."""
    seen = 0
    for piece in _pieces(table, limit):
        seen += len(next(iter(piece.values()), []))
        if seen > limit:
            raise InputError(
                f"there are more than {limit:,} different rows of labels; if these are measurements, not states, make "
                "them discrete first"
            )
        yield piece


def _pieces(table: Table, limit: int) -> Iterator[Batch]:
    if hasattr(table, "collect"):
        native = table.to_native()
        if type(native).__name__ == "DuckDBPyRelation":
            read = getattr(native, "to_arrow_reader", None) or native.fetch_record_batch
            for batch in read(BATCH):
                yield dict(zip(batch.schema.names, batch.columns, strict=True))
            return
        table = (table.head(limit + 1) if limit < MOST_LIMIT else table).collect()
    yield {name: _arrow(table.get_column(name)) for name in table.columns}


def _arrow(column: nw.Series[Any]) -> Column:
    """A column of an eager frame as an Arrow array; as a list, where its values are of mixed types."""
    try:
        found = column.to_arrow()
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return column.to_list()


def joined(pieces: list[Column]) -> Column:
    """Columns of batches as one: an Arrow array, or a list where values are of mixed types."""
    if any(isinstance(piece, list) for piece in pieces):
        return [value for piece in pieces for value in listed(piece)]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.int64())


def owned(column: Column) -> Column:
    """A copy of a column of a batch: the column itself would keep all others of its batch in memory."""
    return column if isinstance(column, list) else pa.concat_arrays([column[:0], column])


def sortable(pieces: list[Column]) -> tuple[NumberArray, Column]:
    """A column of numbers or times as an array of numbers that sort as they do; and the column itself."""
    column: pa.Array = joined(pieces)
    kind = column.type
    if pa.types.is_temporal(kind):
        return column.view(pa.int64() if kind.bit_width == 64 else pa.int32()).to_numpy(), column
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.to_numpy(zero_copy_only=False), column
    return pc.rank(column, tiebreaker="dense").to_numpy(), column  # decimals
