"""Counts in a file: one NPZ archive without pickles, written complete or not at all, refused if it is damaged."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from policytest._base import arrays
from policytest._base.arrays import AnyArray
from policytest._base.errors import InputError, first_line, unreadable
from policytest._base.files import ARCHIVE_LIMIT, FREE, array_headers, not_too_large, opened
from policytest.data.counts import COUNT_RULE, TOTAL_LIMIT, Counts

FORMAT, VERSION = "policytest-counts", 1
Content = TypeVar("Content")


def as_arrays(counts: Counts) -> dict[str, npt.ArrayLike]:
    """All that a file of counts holds."""
    shape = np.array([counts.n_states, counts.n_actions])
    about: dict[str, npt.ArrayLike] = {"format": FORMAT, "version": VERSION, "shape": shape, "sparse": counts.sparse}
    about |= {"selected": counts.selected, "other_rewards": counts.other_rewards}
    about |= {} if counts.cells is None else {"cells": counts.cells}
    return about | dict(zip(("keys", "counts"), counts.entries(), strict=True))


def from_arrays(file: Mapping[str, AnyArray]) -> Counts:
    """The counts in the arrays of a file, checked."""
    found = str(file["format"]) if "format" in file else "missing"
    if found != FORMAT:
        raise InputError(f"its format is {found}, not {FORMAT}; pass a file written by Counts.save")
    if (version := int(file["version"])) != VERSION:
        raise InputError(f"it is in version {version} of the format, this reads version {VERSION}; update policytest")
    S, A = file["shape"].tolist()
    selected, other_rewards = (bool(file[name]) if name in file else False for name in ("selected", "other_rewards"))
    cells = str(file["cells"]) if "cells" in file else None
    counts = Counts(S, A, bool(file["sparse"]), selected, other_rewards, cells)
    rule = f"places are 0 to {S * A * S - 1}; save the counts again"
    keys = arrays.whole_array("keys", file["keys"], S * A * S, rule)
    entries = arrays.whole_array("counts", file["counts"], TOTAL_LIMIT, f"{COUNT_RULE}; save the counts again")
    if keys.ndim != 1 or keys.shape != entries.shape or (keys[1:] <= keys[:-1]).any():
        raise InputError("its places are not one for each count, in increasing order; save the counts again")
    counts.record_at(keys, entries)
    return counts


def read_counts(path: str | os.PathLike[str], read: Callable[[Mapping[str, AnyArray]], Content]) -> Content:
    """What `read` makes of the arrays in a file of counts; any damage is an `InputError`."""
    try:
        with opened(path, ARCHIVE_LIMIT + FREE) as raw:
            with zipfile.ZipFile(raw) as archive:
                not_too_large(archive)
                if damaged := archive.testzip():
                    raise zipfile.BadZipFile(f"wrong checksum of {damaged}")
            array_headers(raw)
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                return read(file)
    except FileNotFoundError:
        raise InputError(f"path is {str(path)!r}, but there is no such file; pass the path given to save") from None
    except OSError as error:
        raise unreadable(path, error) from None
    except InputError as error:
        raise InputError(f"{path} does not hold valid counts: {error}") from None
    except Exception as error:  # zipfile, zlib and NumPy have a dozen kinds for a file that makes no sense
        raise InputError(
            f"{path} is not a file of counts, or is damaged ({first_line(error)}); save the counts again"
        ) from error
