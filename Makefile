# Everything runs in .venv, made from requirements.lock (exact versions, with hashes) and this checkout.
# `make up` and `make test` need Python 3.11+ and PyPI, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEED ?= 1
RUNS ?= 3000

.DEFAULT_GOAL := help
.PHONY: help setup up test check lint types spec bench simulate soak lock clean

help: ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY) ## make .venv with everything in it

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Holdfast needs Python 3.11 or newer; say which: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test: check ## the gate: lint, types, all tests but the long ones
	$(BIN)/python -m pytest -m "not soak" -n auto --dist worksteal

check: lint types ## ruff and mypy --strict

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

spec: $(READY) ## every requirement, the tests that prove it, and the controls that show they can fail
	$(BIN)/python -m pytest -m "(spec or control) and not soak" -n auto --dist worksteal --requirements

bench: $(READY) ## measure, as ratios in one run on this machine; figures go to bench/results/
	$(BIN)/python -m bench

simulate: $(READY) ## thousands of seeded runs of the real core on simulated disks: SEED=1 RUNS=3000
	$(BIN)/holdfast simulate --world journal --seed $(SEED) --runs $(RUNS)
	$(BIN)/holdfast simulate --world node --seed $(SEED) --runs $(RUNS)

soak: $(READY) ## the long tests: hundreds of kills, many thousands of simulated runs
	$(BIN)/python -m pytest -m soak --timeout 7200

up: $(READY) ## run Holdfast on this machine: a server on 127.0.0.1:7250, its data in holdfast-data/
	$(BIN)/holdfast up

lock: ## resolve requirements.lock anew (needs uv)
	uv pip compile --quiet pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --upgrade --output-file requirements.lock

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
