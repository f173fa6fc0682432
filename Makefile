# Deep500. On a machine with nothing but Python >= 3.10 and make:
#   make demo    train a network on real scanned digits with a benchmark recipe; prints the verdict and the report's path
#   make check   lint, and the unit tests on the reference backend: before every commit
#   make test    install everything the tests need, then run the whole suite
#   make test-long    the same with the tests that only repeat, or take minutes: every night
#   make conformance    judge every backend by ONNX's own suite; writes docs/conformance.md
#   make models    other people's models in every backend, in an environment of its own; writes docs/models.md
#   make release    dist/: a wheel and a source distribution, the same bytes whenever they are built, checked
#   make figures    hours on a quiet machine: fills docs/figures.md, goes on where it was stopped; ONLY="ranks loader"
#   make against    is anything slower or worse than at another revision, BASE=origin/main? five recipes in turns: every night
#   make lint    style, types and import rules        make docs   build docs/_build/html        make clean
# Choose another interpreter with: make test PYTHON=python3.12

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP     = $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

# Two threads are the class of machine that every quoted figure was measured on; more make small networks slower.
export OMP_NUM_THREADS      ?= 2
export MKL_NUM_THREADS      ?= 2
export OPENBLAS_NUM_THREADS ?= 2
# A backend named here fails the tests where it is missing; unset, what is not installed is skipped with its reason.
test test-long: export DEEP500_TEST_BACKENDS ?= reference,pytorch,tensorflow,jax,onnxruntime
check: export DEEP500_TEST_BACKENDS := reference
test-long: export DEEP500_TEST_LONG := 1
# Tests are shared out among this many processes, one per core but four at most, each of which takes two gigabytes; one
# that has finished takes over from the others.
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$(( n > 4 ? 4 : n )))
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
PYTEST_ARGS ?=
BASE ?= HEAD^
CONFORMANCE_ARGS ?=
MODELS_ARGS ?=
# make release SESSION="python3.10 python3.13": a newcomer's session with the wheel in these, too
SESSION ?=

.PHONY: help demo check test test-long conformance models release lint docs figures against clean
.DEFAULT_GOAL := help

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

demo: $(VENV)/.demo-installed
	-@$(BIN)/deep500 tools setup enzyme
	$(BIN)/python recipes/digits_lenet.py

check: lint
	$(PYTEST) -q -m unit -r fE $(PYTEST_ARGS)

test test-long: $(VENV)/.test-installed
	$(BIN)/deep500 tools setup enzyme
	$(PYTEST) --durations=20 $(PYTEST_ARGS)

# One thread: the order of long sums, which a case of the suite turns on, is then the same everywhere.
conformance: export OMP_NUM_THREADS := 1
conformance: export OPENBLAS_NUM_THREADS := 1
conformance: $(VENV)/.test-installed
	$(BIN)/python -m tests.conformance $(CONFORMANCE_ARGS)

# The collections ask for other builds of torch: what they need is listed, and pip may add nothing to it.
models:
	@$(MAKE) --no-print-directory VENV=.venv-models .venv-models/.test-installed
	.venv-models/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r tests/models/requirements.txt
	.venv-models/bin/python -m tests.models $(MODELS_ARGS)

release: $(VENV)/.release-installed
	$(BIN)/python -m tests.release --session $(SESSION)

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs-installed
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Hours on a machine that does nothing else; goes on where it was stopped. ONLY="ranks loader" runs some.
figures: $(VENV)/.test-installed
	$(BIN)/python -m tests.benchmarks --fill $(ONLY) --wait 60

against: $(VENV)/.test-installed
	$(BIN)/python -m tests.benchmarks.commits --base $(BASE)

clean:
	rm -rf $(VENV) build dist *.egg-info docs/_build docs/_simulated docs/_reference
	rm -rf .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp per set of extras: pip runs again only when a requirement changed.
EXTRAS.demo := pytorch
EXTRAS.test := pytorch,tensorflow,jax,onnxruntime,import-pytorch,import-tensorflow,import-jax,enzyme,mpi,substitutions,data,control,test
EXTRAS.release := release
EXTRAS.docs := docs,pytorch,tensorflow,jax,onnxruntime

$(VENV)/.%-installed: setup.py constraints.txt | $(BIN)/python
	@echo "Installing deep500[$(EXTRAS.$*)] into $(VENV); the first time this downloads some hundred megabytes."
	$(PIP) -e '.[$(EXTRAS.$*)]'
	@touch $@

$(BIN)/python:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "got no '$(PYTHON)'; expected Python >= 3.10: install it, or name another: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "got $$("$(PYTHON)" --version 2>&1); expected Python >= 3.10: name another: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "got a Python without the modules venv and ensurepip; expected both: install them (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
