"""Results do not hang on the processor: other kernels of BLAS and other vector instructions round in other ways."""

import os
import subprocess
import sys

SCRIPT = """
from pathlib import Path

import numpy as np
import policytest as pt
from policytest.sources import load_model
from policytest.cli.starter import write_starter

folder = write_starter(Path({folder!r}), 0)[0].parent
model = load_model(folder / "task.toml")
rows = pt.sources.logs(folder / "log.csv", model.task).transitions()
for method in (None, pt.TDBetting()):
    found = pt.assess(model.task, rows, threshold=3.0, delta=0.05, method=method)
    print(found.answer, found.samples, *(f"{{x:.9g}}" for x in (*found.evidence, found.estimate, *found.interval)))
interval = pt.value_interval(model.task, rows, delta=0.05)
print(f"{{interval.lower:.9g}} {{interval.upper:.9g}}")
kernel = model.kernel
for seed in range(2):
    random = pt.instances.random(seed, 6, 3)
    for task, p in ((model.task, kernel), (random.task, random.kernel)):
        bar = pt.value(task, p) - (-1) ** seed * 0.5
        found = pt.decide(task, pt.TabularSimulator(p), threshold=bar, delta=0.05, method=pt.TDBetting(), rng=seed)
        print(found.answer, found.samples, f"{{found.evidence[0]:.9g}} {{found.estimate:.9g}}")
    other = pt.Task(random.task.rewards, np.roll(random.task.policy, 1, axis=1), random.task.initial, 0.9)
    found = pt.compare(random.task, other, pt.TabularSimulator(random.kernel), delta=0.05, rng=seed, max_samples=3000)
    print(found.answer, found.samples, f"{{found.evidence[0]:.9g}}")
"""
OTHERS = (
    {"OPENBLAS_CORETYPE": "Haswell"},
    {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX2 FMA3"},
)


def printed(folder, settings):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **settings}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT.format(folder=str(folder))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_answers_samples_and_printed_numbers_are_the_same_on_other_processors(tmp_path):
    here = printed(tmp_path / "here", {})
    for settings in OTHERS:
        assert printed(tmp_path / settings["OPENBLAS_CORETYPE"], settings) == here, settings
