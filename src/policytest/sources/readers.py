"""Files of observed transitions as one DuckDB relation: CSV, Parquet and JSON lines.

Text stays text until it is looked up: CSV columns are read as strings, so that "007" is not the number 7, and labels in
JSON lines as JSON. Numbers in the columns count, order and reward are read by TRY_CAST; what is none becomes null,
and is refused later with what was written (`count_text` and so on).

Names of files and columns reach SQL only as quoted literals.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policytest import _checks
from policytest._checks import InputError
from policytest._display import plain
from policytest.sources.columns import IGNORED, LABELS, OPTIONAL, resolve
from policytest.sources.paths import File, compressed, kind_of, provenance

MEMORY, THREADS = 150, 8  # megabytes of working memory for each of DuckDB's threads, and how many at most
DELIMITERS = (",", "\t", ";", "|")
_HEAD = 2**20  # bytes in which the header of a text file must end
_FIRST = 100  # lines of a JSON file that are asked for their keys
_NUMERIC = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")


def connect() -> Any:
    """A DuckDB connection of its own: bounded memory, a thread for each core, a folder for what does not fit."""
    duckdb = _checks.needs("duckdb", "data")
    folder = tempfile.mkdtemp(prefix="policytest-")
    threads = min(os.cpu_count() or 1, THREADS)
    settings = {
        "memory_limit": f"{MEMORY * max(threads, 2)}MB",
        "threads": threads,
        "temp_directory": folder,
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
    }
    connection = duckdb.connect(":memory:", config=settings)
    weakref.finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    with contextlib.suppress(duckdb.Error):  # so that query_progress tells; nothing is printed
        for setting in ("enable_progress_bar = true", "enable_progress_bar_print = false", "progress_bar_time = 0"):
            connection.execute(f"SET {setting}")
    return connection


def relation(
    connection: Any, paths: Sequence[Path], columns: Mapping[str, str | None]
) -> tuple[Any, str, tuple[File, ...]]:
    """The files as one relation with columns named by their parts; the form of its labels; what is remembered."""
    kind = kind_of(paths[0])
    try:
        query, empty = _QUERIES[kind](connection, paths, columns)
        return connection.sql(query), _FORM[kind], tuple(map(provenance, paths, empty))
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror or error}); check the file") from None


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
    if role in LABELS:
        return [f"{text} AS {role}"]
    if role == "episode":
        return [f"{text} AS episode", f"TRY_CAST(trim({text}) AS DOUBLE) AS episode_number"]
    kept, text = f"{text} AS {role}_text", f"trim({text})"  # a bare column would be cast as it is read, and fail
    if role == IGNORED:  # inf: not a number
        return [f"CASE WHEN {text} <> '' THEN coalesce(TRY_CAST({text} AS DOUBLE), 'inf') END AS {role}"]
    if role == "reward":
        return [f"TRY_CAST({text} AS DOUBLE) AS reward", kept]
    if role == "order" and order != "BIGINT":
        return [f'TRY_CAST({text} AS {order}) AS "order"', kept]
    whole = f"TRY_CAST({text} AS BIGINT)"  # which rounds 1.5, so it must agree with the number
    value = f"CASE WHEN CAST({whole} AS DOUBLE) = TRY_CAST({text} AS DOUBLE) THEN {whole} END"
    return [f"{value} AS {_name(role)}", kept]


def _order_type(connection: Any, source: str, text: str) -> str:
    """What the first rows say that the order is: whole numbers, numbers, or times."""
    query = f"SELECT {text} FROM {source} WHERE {text} IS NOT NULL LIMIT 1000"
    first = f"SELECT * FROM ({query}) AS first(t)"
    for kind in ("BIGINT", "DOUBLE", "TIMESTAMP"):
        fits = f"TRY_CAST(t AS {kind}) IS NULL"
        if kind == "BIGINT":
            fits += " OR CAST(TRY_CAST(t AS BIGINT) AS DOUBLE) <> TRY_CAST(t AS DOUBLE)"
        if not connection.sql(f"{first} WHERE {fits} LIMIT 1").fetchall():
            return kind
    return "BIGINT"


# ---------------------------------------------------------------- CSV


@dataclass(frozen=True)
class _Layout:
    """How a CSV file is written; files that agree are read together."""

    names: tuple[str, ...]
    delimiter: str
    compressed: bool


def _csv(connection: Any, paths: Sequence[Path], columns: Mapping[str, str | None]) -> tuple[str, list[bool]]:
    layouts: dict[_Layout, list[Path]] = {}
    empty = []
    for path in paths:
        layout, is_empty = _layout(path, columns)
        layouts.setdefault(layout, []).append(path)
        empty.append(is_empty)
    found = [(layout, resolve(columns, layout.names, str(files[0]))) for layout, files in layouts.items()]
    _same_parts([(str(files[0]), parts) for files, (_, parts) in zip(layouts.values(), found, strict=True)])
    queries, order = [], ""
    for (layout, parts), files in zip(found, layouts.values(), strict=True):
        cells = ", ".join(f"'c{at}': 'VARCHAR'" for at in range(len(layout.names)))
        source = (
            f"read_csv({_listed(files)}, auto_detect = false, header = true, delim = {_literal(layout.delimiter)}, "
            f"quote = '\"', escape = '\"', compression = '{'gzip' if layout.compressed else 'none'}', "
            f"hive_partitioning = false, columns = {{{cells}}})"
        )
        texts = {role: f"c{layout.names.index(name)}" for role, name in parts.items()}
        if any(IGNORED in others for _, others in found):
            texts.setdefault(IGNORED, "CAST(NULL AS VARCHAR)")
        if "order" in texts and not order:
            order = _order_type(connection, source, texts["order"])
        chosen = [item for role, text in texts.items() for item in _from_text(role, text, order)]
        queries.append(f"SELECT {', '.join(chosen)} FROM {source}")
    return " UNION ALL ".join(queries), empty


def _layout(path: Path, columns: Mapping[str, str | None]) -> tuple[_Layout, bool]:
    """The header of a CSV file, and whether nothing follows it."""
    head = _head(path)
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # not just a character cut in two
            raise InputError(f"{path}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from None
        text = head[: error.start].decode("utf-8-sig")
    if not text.strip():
        raise InputError(f"{path}: the file is empty; a CSV file begins with the names of its columns")
    if "\0" in text:
        raise InputError(f"{path}: this is not text in UTF-8 (it has NUL bytes); save the file as UTF-8")
    wanted = {columns.get(role) or role for role in LABELS}
    best: list[str] = []
    delimiter, rest = DELIMITERS[0], ""
    for candidate in DELIMITERS:
        lines = io.StringIO(text, newline="")
        try:
            names = [name.strip() for name in next(csv.reader(lines, delimiter=candidate))]
        except (csv.Error, StopIteration) as error:
            raise InputError(f"{path}: the header cannot be read ({error}); the file begins with the names") from None
        if len(names) > len(best) or (wanted <= set(names) and not wanted <= set(best)):
            best, delimiter, rest = names, candidate, lines.read()
    return _Layout(tuple(best), delimiter, compressed(path)), not rest.strip()


def _head(path: Path) -> bytes:
    """The first bytes of a text file."""
    try:
        with gzip.open(path) if compressed(path) else path.open("rb") as file:
            return bytes(file.read(_HEAD))
    except (gzip.BadGzipFile, EOFError) as error:
        raise InputError(f"{path}: the compressed file is damaged or cut short ({error}); copy it again") from None


def _same_parts(found: Sequence[tuple[str, Mapping[str, str]]]) -> None:
    """Refuse files of which some have an optional column and others do not."""
    first, parts = found[0]
    for place, others in found[1:]:
        for role in OPTIONAL:
            if (role in parts) != (role in others):
                has, has_not = (first, place) if role in parts else (place, first)
                raise InputError(
                    f"{has} has a column {role}, {has_not} has none; pass files with the same columns, or leave it "
                    f'alone with columns={{"{role}": None}}'
                )


# ---------------------------------------------------------------- JSON lines


def _json(connection: Any, paths: Sequence[Path], columns: Mapping[str, str | None]) -> tuple[str, list[bool]]:
    keys: dict[str, None] = {}
    empty = []
    for path in paths:
        there = _keys(path)
        resolve(columns, there, str(path)) if there else None
        keys |= dict.fromkeys(there)
        empty.append(not there)
    if not keys:
        raise InputError(f"{paths[0]}: there are no lines in it; each line is an object with the keys s, a and s_next")
    parts = resolve(columns, list(keys), "data")
    late = [name for role in OPTIONAL if role not in parts and (name := columns.get(role, role)) is not None]
    late = [name for name in late if name not in parts.values()]
    fields = ", ".join(f"{_literal(name)}: 'JSON'" for name in (*parts.values(), *late))
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
    return f"SELECT {', '.join(chosen)} FROM {source}{_none_of(late)}", empty


def _none_of(late: Sequence[str]) -> str:
    """A condition that refuses lines with keys that the first lines do not have: ignoring a count would be silent."""
    words = (f"the key {plain(name)} is not in the first {_FIRST} lines; give it to all lines" for name in late)
    checks = (
        f"WHEN {_name(name)} IS NOT NULL THEN error({_literal(text)})" for name, text in zip(late, words, strict=True)
    )
    return f" WHERE CASE {' '.join(checks)} ELSE true END" if late else ""


def _keys(path: Path) -> list[str]:
    """The keys of the first lines."""
    keys: dict[str, None] = {}
    head = _head(path)
    lines = head.split(b"\n")
    for at, line in enumerate(lines[:_FIRST]):
        if not line.strip() or (at == len(lines) - 1 and len(head) == _HEAD):
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: line {at + 1} is not JSON ({error}); write one object a line") from None
        if not isinstance(record, dict):
            kind = type(record).__name__
            raise InputError(f"{path}: line {at + 1} is a {kind}, not an object; write one object a line")
        keys |= dict.fromkeys(record)
    return list(keys)


# ---------------------------------------------------------------- Parquet


def _parquet(connection: Any, paths: Sequence[Path], columns: Mapping[str, str | None]) -> tuple[str, list[bool]]:
    found, empty = [], []
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
        empty.append(not connection.sql(f"SELECT 1 FROM {source} LIMIT 1").fetchall())
    _same_parts(found)
    chosen = [f"{_name(name)} AS {_name(role)}" for role, name in found[0][1].items() if role != IGNORED]
    if any(IGNORED in parts for _, parts in found):
        chosen += _from_text(IGNORED, "CAST(reward AS VARCHAR)", "")
    return f"SELECT {', '.join(chosen)} FROM read_parquet({_listed(paths)}, union_by_name = true, {folders})", empty


def _described(connection: Any, source: str) -> dict[str, str]:
    """The types of the columns, by name."""
    return {name: kind for name, kind, *_ in connection.sql(f"DESCRIBE SELECT * FROM {source}").fetchall()}


def _folder_columns(connection: Any, paths: Sequence[Path], columns: Mapping[str, str | None]) -> str:
    """Whether a column is to be read, as text, from the names of folders such as `a=left`; not one that files have."""
    off = "hive_partitioning = false"
    wanted = {columns.get(role, role) for role in (*LABELS, *OPTIONAL)}
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
