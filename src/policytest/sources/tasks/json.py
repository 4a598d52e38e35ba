"""Task files as JSON: one line for each key. Floats are written by repr, so that they are read back exactly."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest._base.files import read_text
from policytest.sources.tasks.by_name import Content
from policytest.sources.tasks.keys import PARTS


def read(path: Path) -> Any:
    """What a JSON file holds; keys that are there twice are refused."""
    return parsed(lambda text: json.loads(text, object_pairs_hook=_no_repeats), path)


def parsed(parse: Callable[[str], Any], path: Path) -> Any:
    """What a parser of JSON or TOML makes of a file; its errors name the place."""
    try:
        return parse(read_text(path))
    except InputError:
        raise
    except json.JSONDecodeError as error:
        raise InputError(f"line {error.lineno}, column {error.colno}: {error.msg}; not valid JSON, fix it") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{error}; not valid TOML, fix it there") from None
    except RecursionError:
        raise InputError("its lists are nested too deeply; a table has at most three levels") from None
    except ValueError as error:  # a number with thousands of digits
        raise InputError(f"a number cannot be read ({error}); fix it") from None


def _no_repeats(pairs: list[tuple[str, Any]]) -> Content:
    content: Content = {}
    for key, value in pairs:
        if key in content:
            raise InputError(f"the key {key!r} is repeated; keep one")
        content[key] = value
    return content


def as_bytes(content: Content) -> bytes:
    """One line for each key."""
    lines = [f"  {json.dumps(key)}: {json.dumps(listed(value))}" for key, value in content.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8")


def listed(value: object) -> Any:
    """Arrays as lists, sparse tables as their parts."""
    if arrays.is_sparse(value):
        return {part: np.asarray(getattr(value, part)).tolist() for part in PARTS}
    return value.tolist() if isinstance(value, np.ndarray) else value
