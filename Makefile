# Two commands: `make demo` and `make test`. Both set up all they need, on a machine that has Python, g++, make and git.

PYTHON ?= python3
JOBS ?= 2
TORCH := 2.12.0
VENV := .venv
BIN := $(VENV)/bin
# At the lowest priority: what the daemons of the tests make warm in the background keeps pace with the tests.
PYTEST = nice -n 19 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder
APT := $(shell [ "$$(id -u)" = 0 ] && echo apt-get || { sudo -n true 2>/dev/null && echo sudo -n apt-get; })

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test test-slow test-rest test-cuda test-gpu chaos-cuda fault mutation soak edits lint format bench bench-cuda bench-road bench-loop parity-record test-torch test-off ccache docs dist clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ccache  ## Make .venv with torch and all tools

# The stamp names what it was made from, so that another pin, pyproject.toml or script sets up again.
$(VENV)/.ready: pyproject.toml Makefile client/launcher/warmcc
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "warmcc needs Python 3.10 or later; set PYTHON="; exit 1; }
	@command -v g++ >/dev/null || { echo "g++ is missing: apt-get install g++"; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV) || { echo "venv is missing: apt-get install python3-venv python3-dev"; exit 1; }
	@echo "Installing torch $(TORCH) and the tools into $(VENV) (some minutes, several GB, once) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check 'torch==$(TORCH)' numpy
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@

ccache:
	@command -v ccache >/dev/null || { [ -n "$(APT)" ] && { $(APT) update -qq; $(APT) install -y -qq ccache; } >/dev/null 2>&1; } \
	  || echo "ccache is missing and could not be installed; going on without it (apt-get install ccache)"

demo: setup  ## Start the daemon, build a real extension, and compare with stock torch
	@$(BIN)/python -m benchmarks.demo

test: setup  ## Run the tests but the slow ones (about 10 minutes on 2 cores); ARGS="-k name" picks some
	@$(PYTEST) -m "not slow" $(ARGS)

quick: setup  ## Run the tests of what differs from main, in under a minute; ARGS="daemon/plan/keys.py" says what was changed
	@$(BIN)/python -m tests.support.quick $(ARGS)

test-slow: setup  ## Run the tests that are marked slow: most take three seconds or more
	@$(PYTEST) -m slow $(ARGS)

test-rest: setup  ## Run the slow tests, and some of CUDA units where nvcc is; CI runs a part (ARGS="--part 1/96")
	@$(PYTEST) -m "ci or slow" tests --ignore tests/cuda/test_overlay.py $(ARGS)

test-gpu: setup  ## Run the tests that launch kernels (where a GPU is)
	@$(BIN)/python -m pytest tests/gpu $(ARGS)

test-cuda: setup  ## Run the tests of CUDA units (where nvcc is; needs no GPU; about an hour)
	@$(PYTEST) tests/cuda $(ARGS)

chaos-cuda: setup  ## Build 200 CUDA units while servers are killed and clients hang up (about half an hour)
	@WARMCC_CHAOS=200 $(BIN)/python -m pytest -s tests/cuda/test_chaos.py

fault: setup  ## Inject 10,000 faults, make 5,000 changes that a cache could miss, kill 300 processes (about 90 minutes); WARMCC_SEED repeats a run
	@WARMCC_KILLS=300 WARMCC_FAULTS=all WARMCC_FRAMES=100000 WARMCC_MUTATIONS=5000 $(BIN)/python -m pytest -s tests/fault

mutation: setup  ## Make 2,900 wrong changes in the modules that decide what a hit is, and count those that no unit test notices (about ten minutes)
	@$(BIN)/pip install --quiet --disable-pip-version-check 'mutmut==3.8.1'
	@$(BIN)/python -m benchmarks.mutation $(ARGS)

soak: setup  ## Half an hour of mixed clients, edits and kills; draws docs/images/soak.png
	@$(BIN)/python -m benchmarks.soak --json benchmarks/results/soak.json --plot docs/images/soak.png

edits: setup  ## Save 500 edits in a live process, then 500 at random, and compare each result (about 10 minutes)
	@WARMCC_EDITS=500 $(BIN)/python -m pytest -s tests/live/test_handle.py -k "leave_nothing or fuzz"

lint: $(VENV)/.ready  ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.ready  ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup  ## Measure against stock torch (about an hour)
	@$(BIN)/python -m benchmarks

bench-cuda: setup  ## Measure CUDA units against stock torch (where nvcc is; needs no GPU)
	@$(BIN)/python -m benchmarks cuda_toy cuda_extension_header cuda_edit_body cuda_no_headers cuda_bound cuda_warm

bench-road: setup  ## Measure cases off the road against stock torch (hours; ARGS="--short": some minutes, --list, --resume)
	@$(BIN)/python -m benchmarks.road $(ARGS)

bench-loop: setup  ## Measure the daily work of a model that writes kernels against stock torch (about an hour; where nvcc is; ARGS="--callers 2 --calls 50")
	@$(BIN)/python -m benchmarks.loop $(ARGS)

parity-record: setup  ## Record anew what stock torch does (about 10 minutes)
	@$(BIN)/python -m tests.parity.record

# Usage: make test-torch VERSION=2.13.0. The version is part of the path: each torch has an environment of its own.
test-torch:  ## Run the parity tests with another torch (VERSION=2.13.0, 2.15.0, 2.4.1)
	@echo '$(VERSION)' | grep -qE '^[0-9]+\.[0-9]+\.[0-9]+$$' || { echo "usage: make test-torch VERSION=X.Y.Z"; exit 2; }
	@[ -x .venvs/torch-$(VERSION)/bin/python ] || $(PYTHON) -m venv .venvs/torch-$(VERSION)
	@.venvs/torch-$(VERSION)/bin/pip install --quiet --disable-pip-version-check 'torch==$(VERSION)' $(if $(filter 2.4.%,$(VERSION)),'numpy<2',numpy) 'setuptools<81'
	@.venvs/torch-$(VERSION)/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@.venvs/torch-$(VERSION)/bin/python -m pytest -n $(JOBS) --dist loadgroup tests/parity

# Usage: make test-off SWITCH=lean. What is about the accelerators themselves is left out.
test-off: setup  ## Run the other tests with an accelerator switched off (SWITCH=pch, finished_pch, binding, lean, …)
	@echo '$(SWITCH)' | grep -qxE 'pch|finished_pch|binding|lean|fast_linker|ccache|compiler_heap|huge_pages' || { echo "usage: make test-off SWITCH=lean"; exit 2; }
	@$(BIN)/python -m pytest tests/parity tests/integration --off $(SWITCH) --ignore tests/integration/builds/test_ways.py \
	  --ignore tests/integration/builds/test_binding.py --ignore tests/integration/builds/test_machine_code.py

docs: setup  ## Build the site of docs/ into site/
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

dist: setup  ## Build an sdist and a wheel into dist/
	@$(BIN)/pip install --quiet --disable-pip-version-check build
	@$(BIN)/python -m build --outdir dist .

clean:  ## Remove caches and build outputs (not .venv)
	@rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
