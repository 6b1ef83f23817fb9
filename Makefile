# SPDX-License-Identifier: Apache-2.0
# Targets for people: demo, test, lint. Everything runs in .venv, made from requirements.lock (versions and hashes).
SHELL := /bin/bash
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLUSTER := tests/integration/slurm/cluster.sh

.PHONY: help venv demo demo-clean test lint format lock bench-dag bench-status bench-read bench-probes bench-overhead bench-grouping fuzz slurm-up slurm-down drmaa-up drmaa-down dag

help:
	@sed -n 's/^## //p' Makefile

## make demo        an 8-node campaign on the simulated cluster; finds three broken nodes by itself
demo: $(READY)
	@mkdir -p results
	PATH="$(CURDIR)/$(BIN):$$PATH" snakemake --profile lab 2>&1 | tee results/demo.log | grep --line-buffered -E '^(burnin|Job |  (What|accepted|failed|dgx))|rror' ; exit $${PIPESTATUS[0]}
	@! grep -q 'Nothing to be done' results/demo.log || $(BIN)/burnin show results/demo

## make demo-clean  forget the demo, so that make demo starts anew
demo-clean:
	rm -rf results/demo results/demo.log

$(READY): requirements.lock pyproject.toml
	@$(PY) -c 'import sys; sys.exit("burnin needs Python 3.11 or newer, $(PY) is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	test -x $(BIN)/python || $(PY) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# compiled once here: a campaign starts this code hundreds of times, also where Python may not write its caches
	$(BIN)/python -m compileall -q workflow
	@touch $@

venv: $(READY)

## make test        all tests; those that need a real Slurm or Grid Engine start it themselves where they can (root, Debian)
test: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slurm and not drmaa" $(PYTEST)
	@# one after the other: each has a cluster of its own, and there is one of each
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -m "slurm or drmaa" $(PYTEST)

## make lint        ruff, mypy, snakemake --lint, snakefmt, the report's HTML
lint: $(READY)
	$(BIN)/ruff check workflow tests benchmarks lab
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow/rules
	PATH="$(CURDIR)/$(BIN):$$PATH" snakemake --profile lab --lint
	$(BIN)/python -m pytest -q tests/unit/test_report.py -k valid
	@wc -l Snakefile workflow/rules/*.smk | awk '$$2 != "total" && $$1 > ($$2 == "Snakefile" ? 80 : 150) {print $$2 " has " $$1 " lines, too many"; bad=1} END {exit bad}'

format: $(READY)
	$(BIN)/ruff format workflow tests benchmarks
	$(BIN)/snakefmt Snakefile workflow/rules

## make lock        resolve requirements.in again
lock: $(READY)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --no-emit-index-url --no-emit-find-links --upgrade -o requirements.lock requirements.in

## make bench-dag   time of snakemake -n for 64, 256 and 1,024 nodes
bench-dag: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python benchmarks/bench_dag.py

## make bench-status  what one look at a campaign of 64, 256 and 1,024 nodes costs
bench-status: $(READY)
	$(BIN)/python benchmarks/bench_status.py

## make bench-read  reading big logs against grep on the same file
bench-read: $(READY)
	$(BIN)/python benchmarks/bench_read.py

## make bench-probes  bytes and seconds of probing 1,024 nodes for a day
bench-probes: $(READY)
	$(BIN)/python benchmarks/bench_probes.py

## make bench-overhead  what a run takes beside its workload, on a real Slurm of its own (root, Debian)
bench-overhead: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python benchmarks/bench_overhead.py

bench-grouping: $(READY)
	$(BIN)/python benchmarks/bench_grouping.py

## make fuzz        damaged input for every reader (COUNT=1000000)
COUNT ?= 1000000
fuzz: $(READY)
	$(BIN)/python benchmarks/fuzz.py --count $(COUNT)

## make slurm-up    a real Slurm on this machine (root, Debian): 8 nodes, each one kill away from a power cut
slurm-up: $(READY)
	$(CLUSTER) up

## make slurm-down  stop it
slurm-down:
	$(CLUSTER) down

## make drmaa-up    a real Grid Engine on this machine (root, Debian): 3 nodes
drmaa-up: $(READY)
	tests/integration/gridengine/cluster.sh up

## make drmaa-down  stop it
drmaa-down:
	tests/integration/gridengine/cluster.sh down

## make dag         results/dag.svg: the ladder as a picture (needs graphviz); ARGS="--configfile config/mysite.yaml"
ARGS ?=
dag: $(READY)
	@mkdir -p results
	@set -o pipefail; PATH="$(CURDIR)/$(BIN):$$PATH"; \
	snakemake --profile lab --quiet all --dag $(ARGS) | burnin dag | dot -Tsvg > results/dag.svg && \
	snakemake --profile lab --quiet all --rulegraph $(ARGS) | dot -Tsvg > results/rulegraph.svg
	@echo results/dag.svg results/rulegraph.svg
