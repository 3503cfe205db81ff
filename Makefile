# One target for each task of a developer. Every target first updates .venv if necessary.
# `make help` lists the targets. Options are passed through: make test ARGS='-k fencing', make up ARGS='--kafka-port 9092'.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# CI images often set it. Then each process of the tests would compile all modules anew: 1.3 s of CPU for each node.
unexport PYTHONDONTWRITEBYTECODE

# A distribution's Python is built with profile-guided optimisation. One that pyenv builds is not, and runs tests and
# histories a quarter slower. So the system's Python comes first if it can create a venv and build an extension.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	test $$p != /usr/bin/python3 || $$p -c 'import os, sysconfig, pip; \
		os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null || continue; \
	echo $$p; break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK := $(VENV)/.spark
ARGS ?=
# Four processes, each with a Kafka and a Valkey: most tests wait more than they compute. Long tests run first.
BESIDE := -n 4 --dist loadfile --no-loadscope-reorder

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header

.PHONY: help setup spark up demo test test-slow test-oldest test-clients java sim record compare differential mutants mutation fuzz audit sbom dist bench bench-pipeline check model format requirements proto messages docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the pinned tools and this project

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@# Debian's python3 comes without ensurepip unless python3-venv is there: then the system's own pip fills the venv.
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then $(PYTHON) -m venv --without-pip $(VENV); \
	else echo "$(PYTHON) has neither ensurepip nor pip: install your system's python3-venv package" >&2; exit 1; fi

$(BIN)/uv: requirements/uv.txt | $(BIN)/python
	@echo "installing uv"
	@if [ -x $(BIN)/pip ]; then pip=($(BIN)/python -m pip); else pip=($(PYTHON) -m pip --python $(BIN)/python); fi; \
	"$${pip[@]}" install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/uv.txt
	@touch $@

$(STAMP): pyproject.toml requirements/dev.txt hatch_build.py sidecar/protocol/_records.pyx sidecar/protocol/_produce.pxi sidecar/protocol/_fetch.pxi $(BIN)/uv
	@echo "installing the pinned packages"
	@export VIRTUAL_ENV="$(CURDIR)/$(VENV)"; \
	$(BIN)/uv pip install --quiet --require-hashes --no-deps --compile-bytecode -r requirements/dev.txt; \
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(SPARK): requirements/pipeline.txt $(STAMP)
	@echo "installing PySpark and what the pipeline needs beside it"
	@export VIRTUAL_ENV="$(CURDIR)/$(VENV)"; \
	$(BIN)/uv pip install --quiet --require-hashes --no-deps -r requirements/pipeline.txt
	@touch $@

spark: $(SPARK) ## add PySpark and Delta Lake to .venv, 600 MB: for `sidecar pipeline` and its tests

up: setup ## start Kafka, Valkey and a node here; Ctrl-C stops them (ARGS=--secure: with TLS and logins)
	@$(BIN)/sidecar up $(ARGS)

demo: setup ## show two rival producers, a kill, a takeover and a refused late batch (ARGS=--secure: with TLS and logins)
	@$(BIN)/sidecar demo $(ARGS)

test: setup spark ## run the default tests
	@$(BIN)/pytest $(BESIDE) $(ARGS)

test-slow: setup spark ## run the long tests: several brokers, other versions, browser, Spark
	@$(BIN)/pytest -m slow $(ARGS)

test-oldest: setup ## run some tests with the oldest dependencies that pyproject.toml allows
	@$(BIN)/python -m tools.oldest .oldest $(ARGS)

test-clients: setup spark ## run the matrix of real clients and features
	@$(BIN)/pytest -m clients tests/clients $(ARGS)

java: setup ## build the Java client library with Maven, and test it and the Go library against a node
	@mvn --batch-mode --quiet -f clients/java verify
	@$(BIN)/pytest -m "slow or smoke" tests/slow/libraries $(ARGS)

sim: setup ## run histories on the simulator: MINUTES=10, SEEDS=0-999, or one: SEED=7 ARGS='--trace --shrink'
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS),--minutes $(or $(MINUTES),1))) $(ARGS)

record: setup ## record what the product does in many histories: ARGS='--seeds 0-1999 --out FILE'
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.sim.behaviour record $(ARGS)

compare: setup ## what the product does differently from a record, or from a revision: ARGS=FILE or ARGS=REV
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.sim.behaviour compare $(ARGS)

differential: setup ## send random requests to a real Kafka and a simulated one (ARGS='--minutes 5', '--seeds 0-99 --brokers 3')
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.sim.kafka.differential $(ARGS)

mutants: setup ## check that the simulator finds each mutant, a copy of the product with one mistake (ARGS='hole 2')
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.sim.mutants $(ARGS)

mutation: setup ## play mutants of the core that nobody chose against its tests (ARGS='dedup', '--sample 50')
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.mutation $(ARGS)

fuzz: setup ## fuzz the code that reads untrusted bytes (ARGS='--minutes 10', '--executions 10000000', 'batches rest')
	@$(BIN)/python -m tests.fuzz $(ARGS)

audit: setup ## look up known vulnerabilities of every pinned package; fails if no advisory service can be reached
	@$(BIN)/python -m tools.audit $(ARGS)

sbom: setup ## write bills of materials (CycloneDX) to dist/
	@$(BIN)/python -m tools.sbom $(ARGS)

dist: setup ## build and check a release in dist/: wheels, sources, chart, bills of materials, checksums
	@$(BIN)/python -m tools.dist $(ARGS)

bench: setup ## measure against direct Kafka
	@$(BIN)/python -m benchmarks $(ARGS)

bench-pipeline: setup spark ## measure the jobs on Spark
	@$(BIN)/python -m benchmarks --only pipeline $(ARGS)

check: setup spark ## run ruff, pyright and import-linter; pyright needs the types of Spark's packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/pyright

model: setup ## check the takeover protocol and its mutants with the model checker (about 3 minutes)
	@$(BIN)/python -m tools.model $(ARGS)

format: setup ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

requirements: $(BIN)/uv ## write the pinned requirements anew (ARGS=--upgrade: with newer versions)
	$(COMPILE) requirements/uv.in -o requirements/uv.txt $(ARGS)
	$(COMPILE) requirements/dist.in -o requirements/dist.txt $(ARGS)
	$(COMPILE) pyproject.toml -o requirements/runtime.txt $(ARGS)
	$(COMPILE) --resolution lowest-direct pyproject.toml -o requirements/oldest.txt $(ARGS)
	$(COMPILE) pyproject.toml --extra local --group dev -c requirements/runtime.txt -o requirements/dev.txt $(ARGS)
	$(COMPILE) pyproject.toml --extra pipeline -c requirements/dev.txt -o requirements/pipeline.txt $(ARGS)

proto: setup ## generate sidecar/v1 from proto/
	$(BIN)/python -m grpc_tools.protoc --proto_path=proto --python_out=. --pyi_out=. $$(cd proto && find sidecar -name '*.proto')

messages: setup ## generate sidecar/protocol/messages from kio
	@$(BIN)/python -m tools.messages

docs: setup spark ## generate the reference pages from the code, and the site of all pages in site/
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -W error -m docs.publish

clean: ## remove the environment and the tools' caches
	rm -rf $(VENV) .cache .dist site sidecar/protocol/*.so .pytest_cache .ruff_cache .import_linter_cache .hypothesis .oldest
