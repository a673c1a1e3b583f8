# Everything runs from .venv; no need to activate it.
PYTHON ?= python3
BIN := .venv/bin
export TF_CPP_MIN_LOG_LEVEL ?= 2

# Slow tests of what must not be lost: kills, replicas, workers, the wheel.
GUARDS := $(addprefix tests/test_,interruptions.py step.py strategies.py training.py wheel.py \
  workers.py)

.PHONY: help install test test-slow test-guards lint format docs demo clean

help: ## print these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/installed ## make .venv with the package and all it needs

.venv/installed: requirements.txt requirements-test.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'expected Python 3.11 or later, found' "$$($(PYTHON) --version 2>&1)": \
	    'name another one with `make PYTHON=/path/to/python install`' >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv || { \
	  echo 'cannot make .venv: Python lacks venv or ensurepip;' \
	    'on Debian and Ubuntu, `apt install python3-venv`' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet -r requirements.txt -r requirements-test.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

test: install ## run the tests, but for the slow ones
	$(BIN)/python -m pytest -n 2 --dist=loadfile

test-slow: install ## run the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-guards: install ## run the slow tests of kills, replicas, workers and the wheel
	$(BIN)/python -m pytest -m slow -n 2 --dist=worksteal $(GUARDS)

lint: install ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: install ## format the code and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/docs-installed ## build the documentation site, build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

.venv/docs-installed: .venv/installed requirements-docs.txt
	$(BIN)/python -m pip install --quiet -r requirements-docs.txt
	@touch $@

demo: install ## train on the built-in corpus in runs/demo, or go on where it stopped
	$(BIN)/keras-transformer train --model_dir=runs/demo

clean: ## remove caches and build outputs; .venv and runs stay
	rm -rf build .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
