# Every target works in a fresh clone with Python 3.11 and a C compiler. The first call creates .venv.
#   make demo     train a small Transformer, translate, score and draw its attention (two minutes)
#   make test     all tests that a change must pass
#   make check    formatting, lint, types and the fast tests
#   make nightly  the tests that take minutes
#   make gpu      check what training and translating use on each device of this machine (nmt-doctor --full)
#   make docs     build the documentation site in site/
#   make wheel    build the source distribution and the wheel of this platform in dist/
#   make coverage measure the lines and branches that `make test` runs
# PIP_ARGS is passed to pip, for example to choose another build of torch. WORKERS=0 runs the tests in one process.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP_ARGS ?=
PYTEST_ARGS ?=
WORKERS ?= $(shell "$(PYTHON)" -c 'import os; cores = os.cpu_count() or 1; print(2 * cores)')
BIN := .venv/bin
INSTALLED := .venv/.installed
# torch's CUDA build with a fake CUDA runtime, for the nightly tests on Linux.
CUDA_BUILD := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),.venv-cuda/.installed)

# Test tensors are tiny, so that threads would only wait for each other. `make demo` sets its own number of threads.
# Parallel processes use the cores: 2 per core, since some tests wait for the processes that they start. An idle
# process takes tests from the others. tests/balance.py orders the tests.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

# Most tests start processes. Without bytecode files, each process would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal

.PHONY: demo test check types fast format nightly gpu docs wheel coverage clean

demo: $(INSTALLED)
	PYTHON=python PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/date/demo.sh

test: $(INSTALLED)
	$(ONE_THREAD) $(PYTEST) $(PYTEST_ARGS)

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs 2 types fast

# mypy takes a minute without its cache, and a second with it. The last numpy for Python 3.10 lacks shapes of arrays.
types: $(INSTALLED)
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; \
	then echo $(BIN)/mypy --strict nmt nmt_cli && $(BIN)/mypy --strict nmt nmt_cli; \
	else echo "types are not checked: that needs Python 3.11 or later"; fi

fast: WORKERS = auto
fast: $(INSTALLED)
	$(ONE_THREAD) $(PYTEST) -m "not nightly and not slow" $(PYTEST_ARGS) tests/unit tests/test_architecture.py

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

nightly: $(INSTALLED) $(CUDA_BUILD)
	$(ONE_THREAD) $(PYTEST) -m "nightly or hypothesis" --hypothesis-profile night $(PYTEST_ARGS)

gpu: $(INSTALLED)
	$(BIN)/nmt-doctor --full

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheel: .venv/.docs
	rm -rf dist
	NMT_REQUIRE_NATIVE=1 $(BIN)/python -m build --outdir dist

# Lines and branches of nmt and nmt_cli that `make test` runs, in all of its processes. Report: .coverage-report.txt
coverage: $(INSTALLED)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt coverage
	$(BIN)/python -m coverage erase
	-$(ONE_THREAD) $(BIN)/python -m coverage run -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal $(PYTEST_ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --show-missing --skip-covered --precision 2 > .coverage-report.txt; tail -n 3 .coverage-report.txt

clean:
	rm -rf .venv .venv-cuda build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[dev]'
	touch $@

$(INSTALLED): setup.py pyproject.toml constraints.txt
	"$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[test]'
	touch $@

.venv-cuda/.installed: setup.py pyproject.toml constraints.txt $(wildcard tests/devices/fake_cuda/*.c tests/devices/fake_cuda/*.cpp tests/devices/fake_cuda/*.sh)
	PYTHON="$(PYTHON)" PIP_ARGS="$(PIP_ARGS)" bash tests/devices/fake_cuda/make_environment.sh .venv-cuda
