# Tutti's workflow. `make` alone lists it. Every target fills .venv first; when nothing changed that takes no time.
#   make test ARGS="tests/unit -k layering"    what is passed on to the tool
#   make setup PYTHON=/usr/bin/python3.12      another Python
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup run tour test check format bench chaos simulate docs-test diagrams constraints clean

PY := .venv/bin/python
ARGS ?=
JOBS ?= 2  # test processes; 0 runs everything in one, for debuggers

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## fill .venv with what constraints.txt names (needs Python 3.11+ and pip)
	@PYTHON="$(PYTHON)" tools/setup

run: setup  ## a meeting, or none: a transaction over six processes and five databases, while some are killed, live
	@$(PY) -m examples.meeting $(ARGS)

tour: setup  ## the mediator: publishers and subscribers over the embedded server, which is killed, live
	@$(PY) -m examples.mediator_tour $(ARGS)

test: check  ## check, then every test (ARGS= chooses, JOBS=0 in one process)
	@$(PY) -m pytest -n $(JOBS) --dist loadfile $(ARGS)

check: setup  ## formatting, lint and types
	@$(PY) -m ruff format --check --quiet . || { echo "check: make format puts these files into shape"; exit 1; }
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy

format: setup  ## put the code into shape
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

bench: setup  ## the benchmarks: a table for people, then one JSON line each
	@$(PY) -m benchmarks.matching $(ARGS)
	@$(PY) -m benchmarks.mediator $(ARGS)
	@$(PY) -m benchmarks.transactions $(ARGS)

chaos: setup  ## kill servers and processes under load and count what is lost (minutes; ARGS="--only transactions --seed 7")
	@$(PY) -m tests.chaos $(ARGS)

simulate: setup  ## the transaction protocol under seeded faults, 2,000 scenarios (a minute or two; ARGS="--seed 7 --trace")
	@$(PY) -m tutti.simulation $(ARGS)

docs-test: setup  ## run the code in the documentation
	@$(PY) -m pytest tests/docs $(ARGS)

diagrams: setup  ## draw the machines anew from their transition tables, into docs/diagrams
	@$(PY) -m tools.diagrams

constraints: setup  ## take the newest versions that pyproject.toml allows
	@PYTHON="$(PYTHON)" tools/constraints

clean:  ## remove what can be made again, .venv and local data folders included
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .tutti build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
