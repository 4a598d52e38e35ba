# Two commands: `make demo` and `make test`. Each creates the virtual environment it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One BLAS thread a process: the matrices are small and the tests run two processes.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
# Processes that the tests start import what is compiled already.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test pytest test-spark test-sb3 test-storm lint docs bench calibrate fuzz clean

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $(VENV)/.created

# What the demonstration needs, and what everything else needs.
$(VENV)/.demo: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[report]'
	touch $(VENV)/.demo

$(STAMP): $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(STAMP)

demo: $(VENV)/.demo
	$(BIN)/policytest demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# At the same time: the types are checked by one core while the kernels are compiled by the other.
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs=2 lint pytest

pytest: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Spark wants Java 17, and pandas below 3: an environment of its own.
$(VENV)-spark/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-spark
	$(VENV)-spark/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-spark/bin/python -m pip install --quiet --editable '.[spark]' pytest hypothesis
	touch $(VENV)-spark/.installed

test-spark: $(VENV)-spark/.installed
	POLICYTEST_SPARK=1 $(VENV)-spark/bin/python -m pytest tests/sources/test_logs_engines.py -k spark

# PyTorch in an environment of its own. From PyPI it brings some gigabytes for graphics cards along on Linux, so that a
# build for processors (2.13.0+cpu) is taken where pip finds one.
$(VENV)-sb3/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-sb3
	$(VENV)-sb3/bin/python -m pip install --quiet --upgrade pip
	torch=$$($(VENV)-sb3/bin/python -m pip index versions torch 2>/dev/null | grep -o '[0-9][0-9.]*+cpu' | head -n 1); \
	$(VENV)-sb3/bin/python -m pip install --quiet $${torch:+torch==$$torch} \
		--editable '.[sb3,data]' pytest hypothesis joblib tensorboard
	touch $(VENV)-sb3/.installed

test-sb3: $(VENV)-sb3/.installed
	$(VENV)-sb3/bin/python -m pytest tests/sources/test_stable_baselines3.py
	$(VENV)-sb3/bin/python -m pytest tests/test_docs.py -k agents_happens

# Storm answers the questions about labels again, and must agree; without Storm its kept answers are tested (make test).
test-storm: $(STAMP)
	@if $(BIN)/python -m pip install --quiet --editable '.[storm]'; \
	then $(BIN)/python tests/sources/storm/compare.py && $(BIN)/python -m pytest -q tests/sources/test_prism_programs.py; \
	else echo "stormpy cannot be installed here: Storm's answers that are kept in tests/sources/storm are tested by make test"; fi

# The site, in site/; open site/index.html. It loads nothing from elsewhere.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo site/index.html

bench: $(STAMP)
	$(BIN)/python benchmarks/worst_case.py
	$(BIN)/python benchmarks/sequential.py
	$(BIN)/python benchmarks/certificate.py
	$(BIN)/python benchmarks/sample_efficiency.py
	$(BIN)/python benchmarks/fewer_samples.py
	$(BIN)/python benchmarks/rare_events.py
	$(BIN)/python benchmarks/whole_paths.py
	$(BIN)/python benchmarks/intervals.py
	$(BIN)/python benchmarks/budget.py
	$(BIN)/python benchmarks/trials.py
	$(BIN)/python benchmarks/parallel.py
	$(BIN)/python benchmarks/comparison.py
	$(BIN)/python benchmarks/identification.py
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/environments.py
	$(BIN)/python benchmarks/vectors.py
	$(BIN)/python benchmarks/agents.py
	$(BIN)/python benchmarks/any_environment.py
	$(BIN)/python benchmarks/unknown_ranges.py
	$(BIN)/python benchmarks/logs.py
	$(BIN)/python benchmarks/settled_logs.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/diagnostics.py

calibrate: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m calibration
	$(BIN)/python benchmarks/calibration.py
	$(BIN)/python benchmarks/episode_calibration.py
	$(BIN)/python benchmarks/one_end.py
	$(BIN)/python benchmarks/budget_calibration.py
	$(BIN)/python benchmarks/trials_calibration.py
	$(BIN)/python benchmarks/interval_coverage.py
	$(BIN)/python benchmarks/large_sample.py
	$(BIN)/python benchmarks/propensities.py
	$(BIN)/python benchmarks/ladder.py
	$(BIN)/python benchmarks/cells.py
	$(BIN)/python benchmarks/one_look.py
	$(BIN)/python benchmarks/in_training.py

# Damaged files, odd options and arrays, for ten minutes: nothing may crash, hang, or change a file that it refuses.
# Then study, identify and watch are killed 30 times each.
fuzz: $(STAMP)
	$(BIN)/python tests/fuzzing.py --minutes 10 --seed $$(date +%s)
	$(BIN)/python tests/killing.py --kills 30 --seed $$(date +%s)

clean:
	rm -rf $(VENV) $(VENV)-spark $(VENV)-sb3 site .pytest_cache .mypy_cache .ruff_cache .hypothesis
