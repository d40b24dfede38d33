# Everything a developer does, each in one word. On a fresh machine: Python 3.11+ (with venv), g++ and make.
# CMake and Ninja come from pip. Re-running is quick: stamp files in .venv say what has been done.

PYTHON ?= python3
# Where pip finds torch's CPU build, if not by itself: make test TORCH_PIP_ARGS="--index-url URL"
TORCH_PIP_ARGS ?=
# A worker that crashes ends the run: xdist would wait forever for the tests that it had left.
PYTEST_ARGS ?= -n auto --dist loadfile --max-worker-restart=0
DEMO_ARGS ?=
# make bench-full BENCH_ARGS="--part edge --again"
BENCH_ARGS ?=
FILES ?= .

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
PIP_INSTALL := $(PIP) install --quiet --constraint constraints.txt
BUILD := build/editable
STAMP := $(VENV)/.stamp
TORCH_VERSION := $(shell sed -n 's/^torch==//p' constraints.txt)
NATIVE := $(shell find native -type f 2>/dev/null)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test build wheel lint format types contracts check docs bench bench-full clean distclean

help: ## what each target does
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1  \2/p' Makefile

demo: $(STAMP)-demo $(STAMP)-native ## install what the demo needs and run `lowtide demo`
	@$(BIN)/lowtide demo $(DEMO_ARGS)

test: $(STAMP)-dev $(STAMP)-native ## install everything and run all tests (PYTEST_ARGS="-n0 tests/unit")
	$(BIN)/python -m pytest $(PYTEST_ARGS)

build: $(STAMP)-native ## rebuild the native modules that changed

wheel: $(STAMP)-tools ## build a wheel into dist/
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls -1 dist/*.whl

lint: $(STAMP)-dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)-dev ## let ruff fix and format (FILES="src/lowtide/ir" for a part)
	$(BIN)/ruff check --fix --exit-zero --quiet $(FILES)
	$(BIN)/ruff format $(FILES)

types: $(STAMP)-dev ## mypy --strict over src
	$(BIN)/mypy --strict src tools/import_rules.py

contracts: $(STAMP)-dev ## who may import whom
	PYTHONPATH=. $(BIN)/lint-imports

check: lint types contracts ## lint, types and contracts

docs: $(STAMP)-dev ## build the documentation into site/, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

bench: $(STAMP)-dev $(STAMP)-native ## a look at every benchmark, into build/bench: some minutes, nothing is downloaded
	$(BIN)/python -m benchmarks --short --again $(BENCH_ARGS)

bench-full: $(STAMP)-dev $(STAMP)-native ## all of it, then pages and README from it: hours, pip downloads models; goes on
	$(BIN)/python -m benchmarks --publish $(BENCH_ARGS)

clean: ## remove build outputs and caches, keep .venv
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	find src -name '*.so' -type f -delete
	rm -f $(STAMP)-demo $(STAMP)-dev $(STAMP)-native

distclean: clean ## remove .venv too
	rm -rf $(VENV)

# ---------------------------------------------------------------- stamps
$(STAMP)-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lowtide needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; say which: make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@touch $@

# First what builds, then torch alone and exact (see constraints.txt), then the rest.
$(STAMP)-tools: $(STAMP)-venv constraints.txt
	@$(PIP_INSTALL) cmake ninja nanobind scikit-build-core
	@touch $@

$(STAMP)-torch: $(STAMP)-venv constraints.txt
	@echo "Installing torch $(TORCH_VERSION): some hundred MB to download, in silence."
	@$(PIP_INSTALL) $(TORCH_PIP_ARGS) torch==$(TORCH_VERSION)
	@touch $@

$(STAMP)-dev: pyproject.toml constraints.txt CMakeLists.txt $(STAMP)-tools $(STAMP)-torch
	@echo "Installing lowtide and what its tests need, and compiling its native modules: two minutes or so, in silence."
	@$(PIP_INSTALL) --no-build-isolation --editable '.[all,dev]'
	@touch $(STAMP)-demo $(STAMP)-native $@

$(STAMP)-demo: pyproject.toml constraints.txt CMakeLists.txt $(STAMP)-tools $(STAMP)-torch
	@echo "Installing lowtide and what its demo needs, and compiling its native modules: a minute or two, in silence."
	@$(PIP_INSTALL) --no-build-isolation --editable '.[demo]'
	@touch $(STAMP)-native $@

# The editable install has configured $(BUILD) and compiled all; from then on CMake alone compiles what changed.
$(STAMP)-native: $(NATIVE) CMakeLists.txt | $(STAMP)-demo
	@$(BIN)/cmake --build $(BUILD)
	@touch $@
