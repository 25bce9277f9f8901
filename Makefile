# Two commands set everything up on a machine that has Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Each worker begins with a third of the files, so that they seldom need the same compiled function at the same time. There
# are three for two processors, because many tests wait for processes which they start and end.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal
# Tests start hundreds of processes, which begin faster if what Python has read is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo reproduce test lint unit long check coverage bounds docs bench rooms clean

.venv/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[plot,report]'
	touch $@

.venv/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[dev]'
	touch .venv/core $@

demo: .venv/core
	$(BIN)/cmdpkit solve paper/synthetic
	$(BIN)/cmdpkit solve paper/grid
	$(BIN)/python -m reproduction --quick --out runs/demo

# The experiments of the PRI paper with ten seeds, its claims with verdicts, and the figures. Takes about ten minutes of a core.
reproduce: .venv/core
	$(BIN)/python -m reproduction

# All at once, because none of them keeps two processors busy all the time. Each can be called alone.
test: .venv/dev
	$(MAKE) -j 3 lint docs unit

lint: .venv/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# One thread of linear algebra per worker: its matrices are small, and threads that wait for each other take half of the time.
unit long check coverage bounds: export OPENBLAS_NUM_THREADS := 1

unit: .venv/dev
	$(PYTEST) -m "not long"

# Statistical facts about fixed code: many episodes, many instances. Continuous integration runs them after `make test`.
long: .venv/dev
	$(PYTEST) -m long tests

# For everyday work: style, types, and the test files that concern what differs from the last commit.
check: lint
	$(PYTEST) -m "not long" $$($(BIN)/python tests/changed.py)

# Which lines of the package do the tests reach? From Python 3.12 on this costs next to nothing, before it takes twice the time.
coverage: .venv/dev
	$(PYTEST) --cov --cov-report=term

# Compiled code once more with every array access checked, in a cache of its own that tells in the end what was compiled.
bounds: .venv/dev
	rm -rf build/numba-bounds
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=build/numba-bounds $(PYTEST) -m "compiled and not long" tests
	$(BIN)/python tests/unchecked.py build/numba-bounds

docs: .venv/dev
	$(BIN)/sphinx-build -q -W --keep-going -j 2 -b html docs docs/_build/html

bench: .venv/dev
	$(BIN)/python -m bench

# Modules and lines, room by room; `make rooms SINCE=COMMIT` puts an earlier commit next to them.
rooms: .venv/dev
	$(BIN)/python -m bench._rooms $(SINCE)

clean:
	rm -rf .venv build docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
