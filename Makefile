# `make` alone lists the commands. Everything runs in .venv; nothing is installed outside the project.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
ROADS := $(VENV)/.compiled-linear-road
PACKAGES := primitives formats policies vmpool seep lrb nexmark

# The first interpreter that is new enough; `=` through ?= so that it is looked for only when .venv is made.
PYTHON ?= $(shell for p in python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

COMPILE = CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --allow-unsafe --strip-extras --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host

# What builds the site is in an environment of its own, so that `make setup` need not install it.
DOCS := $(VENV)/docs

SCHEDULES ?= 100000
SEED ?= 1

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Compiled modules are kept: every process of a run, and there are many, would compile all it imports otherwise.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup test fetch lint demo simulate soak acceptance test-wheel test-lowest test-kafka bench lock docs snapshots changelog clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "make %-10s %s\n", $$1, $$2 }'

setup: $(STAMP) $(COMPILED) ## create .venv with the locked dependencies and the project in it (again only when they change)

test: $(STAMP) ## everything that must hold: lint, then all tests and the examples in docstrings
	@$(MAKE) --no-print-directory --jobs=2 fetch lint setup
	$(BIN)/python -m pytest -rs --numprocesses auto --dist loadfile --no-loadscope-reorder

fetch: $(STAMP) # Kafka's packages come slowly, so beside the lint; whether they came, its test says
	@$(BIN)/python -m tests.kafka.packages >/dev/null 2>&1 &

lint: $(STAMP) ## ruff (rules and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: setup $(ROADS) ## Linear Road on small VMs for a minute, with a live page: scales out, loses a node, is checked and drawn
	@mkdir -p build
	$(BIN)/seep lrb run --xways 40 --speed 10 --minutes 10 --policy config/linear-road.yaml \
		--dashboard --chaos 'kill:toll_assessment[0]@45s' --check --report build/linear-road.json
	$(BIN)/seep report plot build/linear-road.json

simulate: setup ## a narrated run of a small query, simulated: it loses a node, recovers and scales out
	$(BIN)/python -m seep.simulator demo

soak: setup ## simulate SCHEDULES=100000 random schedules with faults from SEED=1 on
	$(BIN)/python -m seep.simulator soak --schedules $(SCHEDULES) --seed $(SEED)

test-wheel: setup ## the wheel in an environment of its own, with the locked versions of what it asks for, outside the checkout
	$(BIN)/python -m pytest -m installed -k locked -rs -p no:xdist tests/distribution

test-lowest: setup ## the same with the lowest versions that setup.py allows, and some of the tests with them
	$(BIN)/python -m pytest -m installed -k lowest -rs -p no:xdist tests/distribution

test-kafka: setup ## what make test has of it alone: a real Kafka, where the registry of its packages answers
	$(BIN)/python -m pytest -m kafka -rs -p no:xdist tests/kafka

acceptance: setup ## workloads at full size, whole clusters, more cases of what tests show in one: not a part of make test
	$(BIN)/python -m pytest -m acceptance --durations 0

bench: setup ## measure the primitives against plain kernels, the runtime, recovery in parallel, state, and migration
	$(BIN)/python benchmarks/primitives.py
	$(BIN)/python benchmarks/runtime.py
	$(BIN)/python benchmarks/parallel_recovery.py
	$(BIN)/python benchmarks/state.py
	$(BIN)/python benchmarks/migration.py

lock: setup ## pin again what setup.py asks for (LOCK_ARGS=--upgrade moves every pin to its newest version)
	$(COMPILE) --extra dev --build-deps-for editable $(LOCK_ARGS) --output-file requirements.lock setup.py
	$(BIN)/python -m tools.extra docs | $(COMPILE) $(LOCK_ARGS) --output-file docs/requirements.lock -

docs: $(STAMP) $(DOCS)/.installed ## the documentation as a site with a search and a reference of the API, in build/site
	$(BIN)/python -m tools.site build/site-source
	@NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(DOCS)/bin/mkdocs build --quiet
	@echo 'built: build/site/index.html'

snapshots: $(STAMP) ## store what the command line and errors say now, where it was changed on purpose
	$(BIN)/python -m tests.snapshots.write

changelog: $(STAMP) ## make the section of a version in CHANGELOG.md of its fragments: make changelog VERSION=0.2.0
	@test -n "$(VERSION)" || { echo 'say which version: make changelog VERSION=0.2.0' >&2; exit 1; }
	$(BIN)/python -m tools.changelog $(VERSION)

clean: ## remove all that these commands made, .venv included
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(PACKAGES) benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The locked pip before all else: it reads the index in half the time of the one that came with Python. And Spark's wheel,
# which pip makes on the spot, is not compressed only to be unpacked.
$(STAMP): requirements.lock setup.py | $(BIN)/python
	@echo 'installing the locked dependencies into $(VENV) (less than a minute; pyspark alone is 0.4 GB)'
	@sed -n '/^pip==/,/^ *#/p' requirements.lock | $(BIN)/python -m pip install --quiet --no-compile --requirement /dev/stdin
	@printf '[bdist_wheel]\ncompression = stored\n' >$(VENV)/build.cfg
	@DIST_EXTRA_CONFIG=$(CURDIR)/$(VENV)/build.cfg \
		$(BIN)/python -m pip install --quiet --no-compile --no-deps --requirement requirements.lock
	@PYTHONWARNINGS='ignore:Editable installation' \
		$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(DOCS)/.installed: docs/requirements.lock | $(BIN)/python
	@echo 'installing what builds the documentation into $(DOCS) (150 MB)'
	@$(BIN)/python -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --no-compile --no-deps --require-hashes --requirement docs/requirements.lock
	@touch $@

$(COMPILED): $(STAMP)
	@echo 'compiling what Numba compiles, once'
	@$(BIN)/python -c 'from seep.node.node import prepare_process; prepare_process()'
	@touch $@

# Before VMs that are allowed a few per cent of a core have to do it.
$(ROADS): $(COMPILED)
	@echo 'compiling what Linear Road needs, once (half a minute)'
	@$(BIN)/seep lrb run --xways 1 --minutes 1 --speed 30 >/dev/null
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'seep needs Python 3.11 or newer: install it, or name it with make setup PYTHON=…' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
