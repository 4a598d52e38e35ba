"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from policytest._checks import InputError


def write_arrays(path: str | os.PathLike[str], **arrays: Any) -> None:
    """Write arrays to a file of exactly this name, as NPZ."""
    content = io.BytesIO()
    save: Any = np.savez
    save(content, **arrays)
    write_file(path, content.getbuffer())


def write_file(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write a file in one step: under another name first, then renamed. Pipes and devices are written directly."""
    target = Path(os.path.realpath(path))  # a link stays a link
    if not target.parent.is_dir():
        raise InputError(f"{path}: cannot be written (there is no folder {target.parent}; create it first)")
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            target.write_bytes(content)
            return
        draft = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}); choose another file") from None
