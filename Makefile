# Every target works on a fresh clone with Python 3.11 and a C compiler: the environment is made when first needed.
#   make demo     train a small model from generated text and look at its translations (under five minutes)
#   make test     all tests that a change must pass
#   make check    formatting, lint, types and the fast tests
#   make nightly  the tests that take minutes
# PIP_ARGS is passed to pip, for example to choose another build of torch. WORKERS=0 runs the tests in one process.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP_ARGS ?=
PYTEST_ARGS ?=
WORKERS ?= auto
BIN := .venv/bin
INSTALLED := .venv/.installed

# Test tensors are tiny: threads would only wait for each other. Training (make demo) decides for itself.
# Processes side by side use the cores; an idle one takes tests from the other, since a few are long.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

# Most tests start processes, each of which would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal

.PHONY: demo test check types fast format nightly clean

demo: $(INSTALLED)
	PYTHON=python PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/date/run.sh

test: $(INSTALLED)
	$(ONE_THREAD) $(PYTEST) $(PYTEST_ARGS)

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs 2 types fast

# A minute without its cache, and a second with it.
types: $(INSTALLED)
	$(BIN)/mypy --strict nmt nmt_cli

fast: $(INSTALLED)
	$(ONE_THREAD) $(PYTEST) -m "not nightly and not slow" $(PYTEST_ARGS) tests/unit tests/test_architecture.py

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

nightly: $(INSTALLED)
	$(ONE_THREAD) $(PYTEST) -m nightly $(PYTEST_ARGS)

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): setup.py constraints.txt
	"$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[test]'
	touch $@
