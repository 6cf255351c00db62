# Needs Python 3.11 or newer, a C compiler and make; everything else is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
SEED ?= 1
SECONDS ?= 60
CASES ?= 10
SOUND ?= 1000
# Wheels are compiled for these machines and this C library (that of RHEL 8, Debian 10, Ubuntu 20.04) or a newer one.
MACHINES ?= x86_64 aarch64
GLIBC ?= 2.28
SUITES ?= hang slowdown ccl nic several frontier accumulation sharding healthy
# Tests that draw their examples: a few in `make test`, more in `make test-live`.
DRAWN := tests/property/test_ingest.py $(wildcard tests/property/test_verdict_*.py)
# Bundle that `make demo` diagnoses.
BUNDLE ?= $(firstword $(sort $(wildcard fixtures/recorded/*.tar fixtures/recorded/*.tar.zst)))

BIN := $(VENV)/bin
NATIVE := $(shell find native -type f 2>/dev/null)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Whatever the surroundings say: tests start many processes, each of which would compile every module anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test fuzz test-live test-deep accuracy suites figures healthy bench check format docs clean wheels

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(VENV)/.installed  ## install, then diagnose a recorded bundle
	@test -n "$(BUNDLE)" || { echo "no bundle in fixtures/recorded" >&2; exit 1; }
	@$(BIN)/forensics diagnose $(BUNDLE)

test: $(VENV)/.dev  ## unit, property, scenario and native tests, one of many variants
	$(BIN)/pytest -q -n $(WORKERS) -m "not slow and not deep"

fuzz: $(VENV)/.dev  ## hostile input to the native readers, a minute (SECONDS=, SEED=)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

test-live: $(VENV)/.live  ## all variants; tests that hang or slow real torch jobs on purpose
	FORENSICS_KILLS=50 $(BIN)/pytest -q -n $(WORKERS) -m "slow and not deep and not alone"
	$(BIN)/pytest -q -m "slow and alone"
	FORENSICS_EXAMPLES=12 $(BIN)/pytest -q -n $(WORKERS) -m "not slow and not deep" $(DRAWN)
	$(BIN)/pytest -q -n $(WORKERS) tests/live -m "not deep and not alone"
	$(BIN)/pytest -q tests/live -m "alone and not deep"

test-deep: $(VENV)/.live  ## the long tail: real hangs, ten thousand random programs, every retelling of the evidence
	$(BIN)/pytest -q -n $(WORKERS) -m deep
	$(BIN)/pytest -q tests/live -m deep

accuracy: $(VENV)/.live  ## real hangs given to forensics and to other analyzers, 25 minutes (ONLY=fault for one)
	$(BIN)/python -m tests.accuracy $(addprefix --only ,$(ONLY))

suites: $(VENV)/.dev  ## simulated cases of every suite and their field forms, an hour (SEED=, CASES= of each suite, SUITES=)
	$(BIN)/forensics evaluate $(SUITES) --seed $(SEED) --cases $(CASES) --field --format markdown --output docs/suites.md
	$(BIN)/python -m tests.accuracy.page

figures: $(VENV)/.dev  ## the tables of docs/simulator.md on a fresh seed, an hour (SEED=)
	$(BIN)/python -m tests.benchmarks.fidelity docs/simulator.md $(SEED)
	$(BIN)/python -m tests.benchmarks.baselines docs/simulator.md $(SEED)
	$(BIN)/python -m tests.benchmarks.granularity docs/simulator.md $(SEED)
	$(BIN)/python -m tests.benchmarks.segmentation docs/simulator.md $(SEED)
	$(BIN)/python -m tests.benchmarks.simulator_cost docs/simulator.md 64 1024

healthy: $(VENV)/.dev  ## a thousand sound simulated jobs, of which nobody may be accused, hours (SEED=, SOUND= how many)
	$(BIN)/forensics evaluate healthy --seed $(SEED) --cases $(SOUND)

bench: $(VENV)/.dev  ## time and memory on large inputs
	$(BIN)/pytest -q -s tests/benchmarks

wheels: $(VENV)/.pip  ## wheels (x86-64, aarch64) and sdist in dist/, checked and tried without a compiler, three minutes
	$(BIN)/python -m pip install --quiet --group release
	rm -rf dist build/unrepaired
	$(BIN)/python -m build --sdist --outdir dist
	set -e; zig=$$($(BIN)/python -c 'import ziglang; print(*ziglang.__path__)')/zig; for machine in $(MACHINES); do \
	  CC="$$zig cc -target $$machine-linux-gnu.$(GLIBC)" _PYTHON_HOST_PLATFORM=linux-$$machine \
	    $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/unrepaired dist/*.tar.gz \
	    --config-settings=cmake.define.CMAKE_SYSTEM_NAME=Linux --config-settings=cmake.define.CMAKE_SYSTEM_PROCESSOR=$$machine; \
	done
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/unrepaired/*.whl
	$(BIN)/pytest -q tests/release

check: $(VENV)/.dev  ## lint, format, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict forensics tests
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## format the tree and apply safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed  ## regenerate the generated pages
	$(BIN)/python -m forensics.case.describe > docs/case.md.new
	mv docs/case.md.new docs/case.md
	$(BIN)/python docs/regenerate.py

clean:  ## remove the environment and every build product
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# Each stamp is newer than what it was made from, so a second run starts at once. The package is reinstalled when a
# native source changes: an editable install does not rebuild libraries by itself.
$(VENV)/.pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "forensics needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.installed: pyproject.toml $(NATIVE) $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --config-settings=cmake.define.FORENSICS_WARNINGS_ARE_ERRORS=ON --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

# The newest torch resolves to builds with several GB of CUDA libraries that no test here uses.
$(VENV)/.live: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet torch==2.13.0 'distributed>=2024.1'
	@touch $@
