r"""What a line of a log may be: the same rules for files that are read whole and for logs that are still being written.

A transition is one line, of at most 1 MiB, in UTF-8 without NUL. Lines end in LF or CRLF; a lone CR is refused. Empty
lines are skipped.

- **CSV** begins with a header. All lines have the same end and the same number of entries (empty ones at the end do not
  count). An entry with quotes in it is quoted as a whole, ``"a ""b"" c"``, and ends on its line: a quote that is left
  open would swallow the rows after it.
- **JSON lines**: one object on each line, no key twice. The keys that are used in the first line are in every line, and
  no other key that would be used comes later.
- **Numbers** are written in ASCII, such as ``-1``, ``2.5`` or ``1e3``; blanks around them do not matter.

`csv_file` and `json_file` check a whole file, so that no row is lost silently: they count the rows, and the engine has
to find as many.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from policytest._base.errors import InputError
from policytest._base.text import plain
from policytest.sources.logged.columns import IGNORED, LABELS, OPTIONAL, Columns, OwnColumns, resolve
from policytest.sources.logged.paths import compressed

Record: TypeAlias = dict[str, Any]
"""The entries of a line, by the names of their columns or by their roles."""
LONGEST = 2**20
"""Bytes of a line, at most."""
BLANKS = " \t"
DELIMITERS = (",", "\t", ";", "|")
NUMBER = r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*"
"""How a number is written, as a regular expression for Python and for DuckDB."""
_NUMBER = re.compile(NUMBER)
MIXED = "some lines end in LF, others in CRLF; convert the file to one of them"
_QUOTES = "an entry with a quote in it must be quoted as a whole, with quotes doubled, and end on its line"


# ---------------------------------------------------------------- one line


def without_end(line: bytes) -> bytes:
    """A line without LF or CRLF."""
    return line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")


def text(line: bytes) -> str:
    """A line without its end as text."""
    if len(line) > LONGEST:
        raise InputError(f"it is longer than {LONGEST:,} bytes; each transition is one line")
    if b"\0" in line:
        raise InputError("it has a NUL byte, so it is not UTF-8 text; save the file as UTF-8")
    wrong = _not_utf8(line)
    if wrong is not None:
        raise InputError(f"byte {wrong} is not UTF-8 text; save the file as UTF-8")
    if b"\r" in line:
        raise InputError("a carriage return (CR) without a line feed; end lines with LF or CRLF")
    return line.decode("utf-8")


def header(line: str, columns: Columns) -> tuple[list[str], str]:
    """The names in the first line of a CSV file, and the delimiter: one that gives the wanted names, or the most."""
    if not line.strip():
        raise InputError("it is empty; a CSV file begins with the names of its columns")
    needed = columns.needed if isinstance(columns, OwnColumns) else LABELS
    wanted = {columns.get(role) or role for role in needed}
    fitting = [one for one in DELIMITERS if _row_pattern(one).fullmatch(line)] or DELIMITERS
    found = [([name.strip() for name in cells(line, delimiter)], delimiter) for delimiter in fitting]
    return max(found, key=lambda one: (wanted <= set(one[0]), len(one[0])))


def cells(line: str, delimiter: str) -> list[str]:
    """The entries of a line of CSV."""
    if '"' not in line:
        return line.split(delimiter)
    if not _row_pattern(delimiter).fullmatch(line):
        raise InputError(_QUOTES)
    found = re.finditer(rf"(?:^|{re.escape(delimiter)}){_cell(delimiter)}", line)
    return [match[2] if match[1] is None else match[1].replace('""', '"') for match in found]


def _cell(delimiter: str) -> str:
    """An entry with quotes around it, or without any; what is inside is a group."""
    return rf'(?:"((?:[^"]|"")*+)"|([^"{re.escape(delimiter)}]*+))'


def _row_pattern(delimiter: str) -> re.Pattern[str]:
    cell = _cell(delimiter)
    return re.compile(rf"{cell}(?:{re.escape(delimiter)}{cell})*+")  # compiled once: re keeps them


def record(line: str) -> Record:
    """The object on a line of JSON."""
    try:
        found = json.loads(line, object_pairs_hook=_no_key_twice)
        if "\\u" in line:
            json.dumps(found, ensure_ascii=False).encode("utf-8")  # half of a surrogate pair is not text
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is not JSON ({plain(str(error))[:200]}); write one object a line") from None
    if not isinstance(found, dict):
        raise InputError(f"this is a {type(found).__name__}; write one object a line, with the keys s, a and s_next")
    return found


def _no_key_twice(pairs: list[tuple[str, Any]]) -> Record:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"the key {plain(twice)[:80]!r} is there twice; keep one")
    return found


class Keys:
    """Which keys of JSON lines have which role: those of the first line, and the same in all others."""

    def __init__(self, columns: Columns, first: Record, place: str) -> None:
        self.parts = resolve(columns, list(first), place)
        self._needed = {name for role, name in self.parts.items() if role != IGNORED}
        if columns.get("reward", "") is None and "reward" not in self._needed:
            self.parts[IGNORED] = "reward"  # wherever it comes
        absent = (columns.get(role, role) for role in ("s_next", *OPTIONAL) if role not in self.parts)
        self._late = {name for name in absent if name is not None} - first.keys()

    def check(self, row: Record) -> None:
        """Refuse a line that lacks a key which the first has, or has one which the first lacks."""
        if self._needed <= row.keys() and self._late.isdisjoint(row):
            return
        missing, late = sorted(self._needed - row.keys()), sorted(self._late & row.keys())
        what = f"the key {missing[0]!r} is missing" if missing else f"the key {late[0]!r} is not in the first line"
        raise InputError(f"{plain(what)}; all lines have the same keys: give it to all, or to none")


def number(value: object) -> float | None:
    """The number that an entry holds, written out or as JSON; None where it holds no finite one."""
    written = value if isinstance(value, str) else json.dumps(value)
    if not _NUMBER.fullmatch(written):
        return None
    found = float(written)
    return found if abs(found) < float("inf") else None


# ---------------------------------------------------------------- whole files


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A text file, perhaps compressed; whether that is damaged is known when all of it was read."""
    try:
        with gzip.open(path) if compressed(path) else path.open("rb") as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: the compressed file is damaged or cut short ({error}); copy it again") from None


def csv_file(path: Path, columns: Columns) -> tuple[list[str], str, int]:
    """The names and the delimiter of a CSV file, and the number of its rows; all of it is checked."""
    names, delimiter, crlf, rows, line = [""], "", False, -1, 1
    with _opened(path) as file:
        for block in _blocks(file):
            try:
                if not delimiter:
                    block = block.removeprefix(codecs.BOM_UTF8)
                    first = block.partition(b"\n")[0]
                    crlf = first.endswith(b"\r")
                    names, delimiter = header(text(without_end(first + b"\n")), columns)
                wrong = _suspect(block, delimiter, crlf)
                if wrong is not None:
                    line += block.count(b"\n", 0, wrong)
                    start, end = block.rfind(b"\n", 0, wrong) + 1, block.find(b"\n", wrong) + 1
                    cells(text(without_end(block[start : end or None])), delimiter)
                    raise InputError(MIXED)
            except InputError as error:
                raise InputError(f"{path}, line {line}: {error}") from None
            rows += _filled(block)
            line += block.count(b"\n")
    if not delimiter:
        raise InputError(f"{path}: the file is empty; a CSV file begins with the names of its columns")
    return names, delimiter, rows


def json_file(path: Path, columns: Columns) -> tuple[dict[str, str], int]:
    """The keys of the parts in a file of JSON lines (none, if it is empty), and its rows; all of it is checked."""
    keys, rows, at = None, 0, 0
    uniform = re.compile(rb"(?!)")
    with _opened(path) as file:
        for block in _blocks(file):
            if _first_length(block) <= LONGEST and uniform.fullmatch(block) and _not_utf8(block) is None:
                rows, at = rows + _filled(block), at + block.count(b"\n")
                continue
            for line in _lines(block):
                at += 1
                try:
                    written = text(without_end(line))
                    row = record(written) if written.strip(BLANKS) else None
                    if keys is not None and row is not None:
                        keys.check(row)
                except InputError as error:
                    raise InputError(f"{path}, line {at}: {error}") from None
                if row is not None:
                    rows += 1
                    if keys is None:
                        keys, uniform = Keys(columns, row, str(path)), _lines_with(row)
    return {} if keys is None else keys.parts, rows


def _lines_with(row: Record) -> re.Pattern[bytes]:
    """Lines with these keys in this order and plain values, for which there is nothing to parse."""
    number = rb"-?(?:0|[1-9][0-9]{0,99}+)(?:\.[0-9]{1,99}+)?+(?:[eE][+-]?[0-9]{1,3}+)?+"
    item = rb'(?:"[^"\\\x00-\x1f]*+"|%s|true|false|null)' % number
    value = rb"(?:%s|\[ *+(?:%s(?: *+, *+%s)*+)? *+\])" % (item, item, item)
    pairs = (rb'"%s" *+: *+%s' % (re.escape(key.encode("utf-8", "surrogatepass")), value) for key in row)
    return re.compile(rb"(?:\{ *+%s *+\}(?:\r?\n|\Z))*+" % rb" *+, *+".join(pairs))


def _blocks(file: Any) -> Iterator[bytes]:
    """The file in pieces of whole lines; a line that is too long is not gathered."""
    left = b""
    while chunk := file.read(LONGEST):
        whole, end, rest = chunk.rpartition(b"\n")
        if end or len(left) > LONGEST:
            yield left + whole + end
            left = rest
        else:
            left += rest
    if left:
        yield left


def _suspect(block: bytes, delimiter: str, crlf: bool) -> int | None:
    """The place of something that makes a line unreadable, quickly; what it is, `text` and `cells` say of its line."""
    if _first_length(block) > LONGEST + crlf:
        return 0
    if b"\0" in block:
        return block.index(b"\0")
    wrong = _not_utf8(block)
    if wrong is not None:
        return wrong
    ends = block.count(b"\r\n")
    if block.count(b"\r") != ends or ends != (block.count(b"\n") if crlf else 0):
        return next(re.finditer(rb"\r(?!\n)|(?<!\r)\n" if crlf else rb"\r", block)).start()
    return _odd_quote(block, delimiter) if b'"' in block else None


def _first_length(block: bytes) -> int:
    """The length of the first line, which alone can be longer than what is read at once."""
    return block.find(b"\n") if b"\n" in block else len(block)


def _not_utf8(block: bytes) -> int | None:
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


def _lines(block: bytes) -> list[bytes]:
    """The lines with their ends."""
    *whole, last = block.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])


def _odd_quote(block: bytes, delimiter: str) -> int | None:
    """The place of a quote that does not open or close an entry on its line, or double another."""
    data = np.frombuffer(b"\n" + block + b"\n", np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    line = np.searchsorted(np.flatnonzero(data == ord("\n")), quotes)
    unpaired = np.flatnonzero(np.bincount(line) % 2)
    if len(unpaired):
        return int(quotes[line == unpaired[0]][0]) - 1
    edge = np.zeros(256, dtype=bool)
    edge[[ord(sign) for sign in (delimiter, "\r", "\n", '"')]] = True
    opening, closing = quotes[::2], quotes[1::2]
    wrong = np.flatnonzero(~edge[data[opening - 1]] | ~edge[data[closing + 1]])
    return int(opening[wrong[0]]) - 1 if len(wrong) else None


def _filled(block: bytes) -> int:
    """The number of lines that are not empty."""
    if b"\n\n" in block or b"\n\r\n" in block or block.startswith((b"\n", b"\r\n")):
        return sum(line not in (b"", b"\r") for line in block.split(b"\n"))
    return block.count(b"\n") + (not block.endswith(b"\n"))
