# Everything runs from .venv; no need to activate it.
PYTHON ?= python3
BIN := .venv/bin
export TF_CPP_MIN_LOG_LEVEL ?= 2
# Where it is set, each process of the tests would compile TensorFlow's modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install test test-slow test-versions lint format docs demo tutorial clean

help: ## print these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/installed ## make .venv with the package and all it needs

.venv/installed: requirements.txt requirements-test.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null || { \
	  echo 'expected Python 3.11, 3.12 or 3.13, found' "$$($(PYTHON) --version 2>&1)": \
	    'name another one with `make PYTHON=/path/to/python install`' >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv || { \
	  echo 'cannot make .venv: Python lacks venv or ensurepip;' \
	    'on Debian and Ubuntu, `apt install python3-venv`' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet -r requirements.txt -r requirements-test.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

# What the tests of a file share is made once.
ONE_WORKER_A_FILE := --dist=loadfile --no-loadscope-reorder
test: install ## run the quick tests
	$(BIN)/python -m pytest -n 2 $(ONE_WORKER_A_FILE)

# In two halves, since a process keeps what TensorFlow has compiled: up to 10 GB for all tests.
SLOW_FIRST := tests/docs tests/machine tests/project tests/training
SLOW := slow
test-slow: install ## run the other tests: trainings, kills, replicas, workers, the wheel, the tutorial
	$(BIN)/python -m pytest -m "$(SLOW)" -n 2 $(ONE_WORKER_A_FILE) $(SLOW_FIRST)
	$(BIN)/python -m pytest -m "$(SLOW)" -n 2 $(ONE_WORKER_A_FILE) $(SLOW_FIRST:%=--ignore=%)

# Not part of CI: it installs TensorFlow twice.
test-versions: ## run tests with the oldest and with the newest libraries that pyproject.toml allows
	$(PYTHON) tests/support/check_versions.py

lint: install ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: install ## format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/docs-installed ## build the documentation site, build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

.venv/docs-installed: .venv/installed requirements-docs.txt
	$(BIN)/python -m pip install --quiet -r requirements-docs.txt
	@touch $@

demo: install ## train on the built-in corpus in runs/demo, or resume
	$(BIN)/keras-transformer train --model_dir=runs/demo

tutorial: .venv/tutorial-installed ## run docs/tutorial.py, and write its outputs to docs/tutorial.ipynb
	$(BIN)/python docs/run_tutorial.py

.venv/tutorial-installed: .venv/installed requirements-tutorial.txt
	$(BIN)/python -m pip install --quiet -r requirements-tutorial.txt
	@touch $@

clean: ## remove caches and build outputs; .venv and runs stay
	rm -rf build .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
