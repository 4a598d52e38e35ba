# Two commands: `make demo` and `make test`. Each creates the virtual environment it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One BLAS thread a process: the matrices are small and the tests run two processes.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint bench calibrate clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/policytest demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2

bench: $(STAMP)
	$(BIN)/python benchmarks/worst_case.py
	$(BIN)/python benchmarks/sequential.py
	$(BIN)/python benchmarks/certificate.py
	$(BIN)/python benchmarks/sample_efficiency.py
	$(BIN)/python benchmarks/intervals.py
	$(BIN)/python benchmarks/comparison.py

calibrate: $(STAMP)
	$(BIN)/python benchmarks/calibration.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
