"""Files of observed transitions as one DuckDB relation: CSV, Parquet and JSON lines.

Every file is read through before DuckDB reads it (`lines` for text, the checksums of Parquet and gzip): DuckDB looks at
no checksum, and drops a last line that is longer than its buffer.

Text stays text until it is looked up: CSV columns are read as strings, so that "007" is not the number 7, and labels in
JSON lines as JSON. Numbers in the columns count, order and reward are read by TRY_CAST; what is none becomes null,
and is refused later with what was written (`count_text` and so on).

Names of files and columns reach SQL only as quoted literals.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from policytest._base import errors
from policytest._base.errors import InputError
from policytest._base.text import plain
from policytest.sources.logged.columns import (
    BINNED,
    IGNORED,
    LABELS,
    NEXT_BINNED,
    OPTIONAL,
    PROBABILITIES,
    WRITTEN,
    Columns,
    resolve,
)
from policytest.sources.logged.lines import BLANKS, LONGEST, NUMBER, csv_file, json_file
from policytest.sources.logged.paths import File, compressed, kind_of, provenance

if TYPE_CHECKING:
    import duckdb

Connection: TypeAlias = "duckdb.DuckDBPyConnection"
MEMORY, THREADS = 150, 8  # megabytes of working memory for each of DuckDB's threads, and how many at most
_NUMERIC = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")


def connect(in_order: bool = False) -> Connection:
    """A DuckDB connection of its own: bounded memory, a thread for each core, a folder for what does not fit.

    With ``in_order`` rows come as their files have them.
    """
    engine = errors.needs("duckdb", "data")
    folder = tempfile.mkdtemp(prefix="policytest-")
    threads = min(os.cpu_count() or 1, THREADS)
    settings = {
        "memory_limit": f"{MEMORY * max(threads, 2)}MB",
        "threads": threads,
        "temp_directory": folder,
        "preserve_insertion_order": in_order,
        "autoinstall_known_extensions": "false",
    }
    connection: Connection = engine.connect(":memory:", config=settings)
    weakref.finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    with contextlib.suppress(engine.Error):  # so that query_progress tells; nothing is printed
        for setting in ("enable_progress_bar = true", "enable_progress_bar_print = false", "progress_bar_time = 0"):
            connection.execute(f"SET {setting}")
    return connection


def relation(
    connection: Connection, paths: Sequence[Path], columns: Columns
) -> tuple[duckdb.DuckDBPyRelation, str, tuple[File, ...], int]:
    """The files as one relation with columns named by their parts; the form of its labels; the files; their rows."""
    kind = kind_of(paths[0])
    try:
        query, rows = _QUERIES[kind](connection, paths, columns)
        files = tuple(provenance(path, not n) for path, n in zip(paths, rows, strict=True))
        return connection.sql(query), _FORM[kind], files, sum(rows)
    except OSError as error:
        raise errors.unreadable(error.filename, error) from None


_FORM = {"csv": "text", "json": "json", "parquet": "typed"}


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _listed(paths: Iterable[Path]) -> str:
    """File names as a list in SQL; characters that DuckDB reads as a pattern stand for themselves."""
    escaped = ("".join(f"[{c}]" if c in "*?[" else c for c in os.path.abspath(path)) for path in paths)
    return "[" + ", ".join(map(_literal, escaped)) + "]"


def _from_text(role: str, text: str, order: str) -> list[str]:
    """What a text column becomes in the relation."""
    if role in (*LABELS, *WRITTEN):
        return [f"{text} AS {role}"]
    if role.startswith((BINNED, NEXT_BINNED)):
        return [f"TRY_CAST({_number(text)} AS DOUBLE) AS {_name(role)}"]
    if role == "episode":
        return [f"{text} AS episode", f"coalesce(TRY_CAST({_number(text)} AS DOUBLE), 'inf') AS episode_number"]
    kept = f"{text} AS {role}_text"
    if role == "order" and order == "TIMESTAMP":
        return [f'TRY_CAST(trim({text}) AS TIMESTAMP) AS "order"', kept]  # a bare column would be cast as it is read
    if role == IGNORED:  # inf: not a number
        written = f"trim({text}, {_literal(BLANKS)})"
        return [f"CASE WHEN {written} <> '' THEN coalesce(TRY_CAST({_number(text)} AS DOUBLE), 'inf') END AS {role}"]
    text = _number(text)
    if role in ("reward", *PROBABILITIES) or (order == "DOUBLE" and role == "order"):
        return [f"TRY_CAST({text} AS DOUBLE) AS {_name(role)}", kept]
    whole = f"TRY_CAST({text} AS BIGINT)"  # which rounds 1.5, so it must agree with the number
    value = f"CASE WHEN CAST({whole} AS DOUBLE) = TRY_CAST({text} AS DOUBLE) THEN {whole} END"
    return [f"{value} AS {_name(role)}", kept]


def _number(text: str) -> str:
    """A text that is written as numbers are; null otherwise, so that DuckDB casts nothing else."""
    return f"CASE WHEN regexp_full_match({text}, {_literal(NUMBER)}) THEN trim({text}, {_literal(BLANKS)}) END"


def _order_type(connection: Connection, source: str, text: str) -> str:
    """What the first rows say that the order is: whole numbers, numbers, or times."""
    query = f"SELECT {text} FROM {source} WHERE {text} IS NOT NULL LIMIT 1000"
    first = f"SELECT * FROM ({query}) AS first(t)"
    for kind in ("BIGINT", "DOUBLE", "TIMESTAMP"):
        t = "t" if kind == "TIMESTAMP" else _number("t")
        fits = f"TRY_CAST({t} AS {kind}) IS NULL"
        if kind == "BIGINT":
            fits += f" OR CAST(TRY_CAST({t} AS BIGINT) AS DOUBLE) <> TRY_CAST({t} AS DOUBLE)"
        if not connection.sql(f"{first} WHERE {fits} LIMIT 1").fetchall():
            return kind
    return "BIGINT"


# ---------------------------------------------------------------- CSV


def _csv(connection: Connection, paths: Sequence[Path], columns: Columns) -> tuple[str, list[int]]:
    written: dict[tuple[tuple[str, ...], str, bool], list[Path]] = {}  # files that agree are read together
    rows = []
    for path in paths:
        there, delimiter, n_rows = csv_file(path, columns)
        written.setdefault((tuple(there), delimiter, compressed(path)), []).append(path)
        rows.append(n_rows)
    found = [(str(files[0]), resolve(columns, names, str(files[0]))) for (names, _, _), files in written.items()]
    _same_parts(found)
    queries, order = [], ""
    for ((names, delimiter, zipped), files), (_, parts) in zip(written.items(), found, strict=True):
        cells = ", ".join(f"'c{at}': 'VARCHAR'" for at in range(len(names)))
        source = (
            f"read_csv({_listed(files)}, auto_detect = false, header = true, delim = {_literal(delimiter)}, "
            f"quote = '\"', escape = '\"', compression = '{'gzip' if zipped else 'none'}', "
            f"max_line_size = {2 * LONGEST}, hive_partitioning = false, columns = {{{cells}}})"
        )
        texts = {role: f"c{names.index(name)}" for role, name in parts.items()}
        if any(IGNORED in others for _, others in found):
            texts.setdefault(IGNORED, "CAST(NULL AS VARCHAR)")
        if "order" in texts and not order:
            order = _order_type(connection, source, texts["order"])
        chosen = [item for role, text in texts.items() for item in _from_text(role, text, order)]
        queries.append(f"SELECT {', '.join(chosen)} FROM {source}")
    return " UNION ALL ".join(queries), rows


def _same_parts(found: Sequence[tuple[str, Mapping[str, str]]]) -> None:
    """Refuse files of which some have an optional column and others do not."""
    first, parts = found[0]
    for place, others in found[1:]:
        for role in ("s_next", *OPTIONAL, *PROBABILITIES, *WRITTEN):
            if (role in parts) != (role in others):
                has, has_not = (first, place) if role in parts else (place, first)
                ignore = "" if role in PROBABILITIES else f', or leave it alone with columns={{"{role}": None}}'
                raise InputError(
                    f"{has} has a column {role}, {has_not} has none; pass files with the same columns{ignore}"
                )


# ---------------------------------------------------------------- JSON lines


def _json(connection: Connection, paths: Sequence[Path], columns: Columns) -> tuple[str, list[int]]:
    found = [json_file(path, columns) for path in paths]
    filled = [(str(path), parts) for path, (parts, _) in zip(paths, found, strict=True) if parts]
    if not filled:
        raise InputError(f"{paths[0]}: there are no lines in it; each line is an object with the keys s, a and s_next")
    _same_parts(filled)
    parts = filled[0][1]
    fields = ", ".join(f"{_literal(name)}: 'JSON'" for name in parts.values())
    compression = "gzip" if compressed(paths[0]) else "none"
    if any(compressed(path) != compressed(paths[0]) for path in paths):
        raise InputError("data has compressed and plain files; pass one kind at a time, and add_to")
    source = (
        f"read_json({_listed(paths)}, format = 'newline_delimited', compression = '{compression}', "
        f"hive_partitioning = false, columns = {{{fields}}})"
    )
    order = _order_type(connection, source, f"{_name(parts['order'])} ->> '$'") if "order" in parts else ""
    chosen = []
    for role, name in parts.items():
        text = _name(name) if role in LABELS else f"({_name(name)} ->> '$')"
        chosen += [f"CAST({text} AS VARCHAR) AS {role}"] if role in LABELS else _from_text(role, text, order)
    return f"SELECT {', '.join(chosen)} FROM {source}", [rows for _, rows in found]


# ---------------------------------------------------------------- Parquet


def _parquet(connection: Connection, paths: Sequence[Path], columns: Columns) -> tuple[str, list[int]]:
    found, rows = [], []
    kinds: dict[str, tuple[str, str, str]] = {}
    folders = _folder_columns(connection, paths, columns)
    for path in paths:
        source = f"read_parquet({_listed([path])}, {folders})"
        described = _described(connection, source)
        parts = resolve(columns, list(described), str(path))
        found.append((str(path), parts))
        for role, name in parts.items():
            if role == IGNORED:
                continue
            group = _type_group(described[name])
            first = kinds.setdefault(role, (group, described[name], str(path)))
            if first[0] != group:
                raise InputError(
                    f"the column {plain(name)!r} is {described[name]} in {path} and {first[1]} in {first[2]}; "
                    "write the files with one type"
                )
        rows.append(_undamaged(path, parts.values()))
    _same_parts(found)
    chosen = [f"{_name(name)} AS {_name(role)}" for role, name in found[0][1].items() if role != IGNORED]
    if any(IGNORED in parts for _, parts in found):
        chosen += _from_text(IGNORED, "CAST(reward AS VARCHAR)", "")
    return f"SELECT {', '.join(chosen)} FROM read_parquet({_listed(paths)}, union_by_name = true, {folders})", rows


def _undamaged(path: Path, names: Iterable[str]) -> int:
    """The number of rows of a file whose checksums fit, as far as it has any; DuckDB does not look at them."""
    arrow, parquet = errors.needs("pyarrow", "data"), errors.needs("pyarrow.parquet", "data")
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for _ in file.iter_batches(columns=[name for name in names if name in file.schema_arrow.names]):
                pass
            return int(file.metadata.num_rows)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: the file is damaged ({plain(errors.first_line(error))[:200]}); copy it again"
        ) from None


def _described(connection: Connection, source: str) -> dict[str, str]:
    """The types of the columns, by name."""
    return {name: kind for name, kind, *_ in connection.sql(f"DESCRIBE SELECT * FROM {source}").fetchall()}


def _folder_columns(connection: Connection, paths: Sequence[Path], columns: Columns) -> str:
    """Whether a column is to be read, as text, from the names of folders such as `a=left`; not one that files have."""
    off = "hive_partitioning = false"
    wanted = {columns.get(role, role) for role in {*LABELS, *OPTIONAL, *columns}}
    named = {part.partition("=")[0] for part in paths[0].parent.parts if "=" in part} & wanted
    if not named or any(
        named & set(_described(connection, f"read_parquet({_listed([path])}, {off})")) for path in paths
    ):
        return off
    return "hive_partitioning = true, hive_types_autocast = false"


def _type_group(kind: str) -> str:
    """Types that may stand beside each other."""
    base = kind.split("(")[0].removeprefix("U")
    if kind.endswith("]"):
        return kind
    return "number" if base in _NUMERIC else "text" if base in ("VARCHAR", "ENUM") else kind


_QUERIES = {"csv": _csv, "json": _json, "parquet": _parquet}
