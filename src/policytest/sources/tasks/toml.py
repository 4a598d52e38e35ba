"""Task files as TOML, for people: comments, and tables under headings. Reading is Python's own `tomllib`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from policytest._base.errors import InputError
from policytest.sources.tasks.by_name import Content
from policytest.sources.tasks.json import listed, parsed

DEPTH = 100
"""The most parts of a dotted key: reading one takes Python's parser time quadratic in them."""
_DEEP = re.compile(
    r"""(?<![^\s\[{,])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){%d}""" % DEPTH  # noqa: UP031
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def read(path: Path) -> Content:
    """What a TOML file holds."""
    content: Content = parsed(_loads, path)
    return content


def _loads(text: str) -> Content:
    if deep := _DEEP.search(text):
        line = text.count("\n", 0, deep.start()) + 1
        raise InputError(f"line {line}: a key has more than {DEPTH} parts; a table has at most three levels")
    return tomllib.loads(text)


def as_bytes(content: Content) -> bytes:
    """One line for each key."""
    return "".join(f"{key} = {_value(key, listed(value))}\n" for key, value in content.items()).encode("utf-8")


def _value(key: str, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return f'"{"".join(_character(key, c) for c in value)}"'
        case list():
            return f"[{', '.join(_value(key, item) for item in value)}]"
        case dict():
            names = (name if _BARE.fullmatch(name) else _value(key, name) for name in value)
            items = zip(names, value.values(), strict=True)
            return "{" + ", ".join(f"{name} = {_value(key, item)}" for name, item in items) + "}"
    raise InputError(f"{key} holds {value!r}, which TOML cannot write; save the file as .json or .npz")


def _character(key: str, c: str) -> str:
    if c in _ESCAPES:
        return _ESCAPES[c]
    if 0xD800 <= ord(c) <= 0xDFFF:
        raise InputError(f"{key} holds half of a character ({c!r}), which TOML cannot; save the file as .json or .npz")
    return c if c.isprintable() else f"\\U{ord(c):08X}"
