"""The cache of compiled code: doing without where none can be written, and saying what to delete when it is damaged."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import numpy as np
from policytest._base.compiled import search
print(search.row_losses(np.array([0, 2]), np.array([0.5, 0.5]), np.ones(1), np.array([0.4, 0.6]))[0])
"""
EXPECTED = "0.020410997260127"  # KL((1/2, 1/2), (0.4, 0.6)) = log(1/2) - log(0.24)/2


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", SCRIPT], env=settings, capture_output=True, text=True, timeout=300)


def test_without_a_place_for_the_cache_it_compiles_in_memory():
    done = run(NUMBA_CACHE_DIR=os.devnull + "/nowhere", HOME=os.devnull + "/nobody")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(EXPECTED)


def test_a_damaged_cache_is_named(tmp_path):
    first = run(NUMBA_CACHE_DIR=str(tmp_path))
    assert first.stdout.startswith(EXPECTED)
    compiled = list(tmp_path.rglob("*.nbc"))
    assert compiled
    for file in compiled:
        file.write_bytes(file.read_bytes()[:10])
    second = run(NUMBA_CACHE_DIR=str(tmp_path))
    assert second.returncode != 0
    assert "delete the folder" in second.stderr
    assert str(tmp_path) in second.stderr
