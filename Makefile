# Targets for people; .ci/run calls the same ones. `make` alone prints them.
# Every target that needs Python depends on $(READY), so each works on a fresh machine and costs nothing when .venv is current.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
READY := .venv/.ready

# The optional dependency sets of pyproject.toml that the targets here use, space separated.
EXTRAS := demo rabbitmq

# For the command behind a target: make test TEST_ARGS="tests/core -k stripe"
TEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
SOAK_ARGS ?=

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp lies inside .venv so that removing .venv also removes the belief that it is there.
$(READY): pyproject.toml uv.lock scripts/setup Makefile
	@scripts/setup $(addprefix --extra ,$(EXTRAS))
	@touch $@

.PHONY: setup
setup: $(READY) ## Create .venv with every dependency; quick when nothing changed

.PHONY: demo
demo: $(READY) ## Run a whole group on real data with scaling, a kill and a rollout, then verify it (DEMO_ARGS)
	@$(BIN)/lbg demo $(DEMO_ARGS)

.PHONY: test
test: $(READY) ## Run the tests; ends in pytest's summary with skips counted and explained (TEST_ARGS)
	@$(BIN)/pytest --durations=5 --durations-min=2 $(TEST_ARGS)

.PHONY: test-rabbitmq
test-rabbitmq: $(READY) ## Run the contract suite on a private RabbitMQ node (installs rabbitmq-server from Debian)
	@LBG_TEST_RABBITMQ=1 $(BIN)/pytest tests/brokers/rabbitmq $(TEST_ARGS)

.PHONY: check
check: lint types imports generated ## Lint, formatting, strict types, import contracts, generated files

.PHONY: lint
lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# Twice, because mypy takes either packages or paths. Explicit bases: test files have equal names in different folders.
.PHONY: types
types: $(READY)
	@$(BIN)/mypy
	@$(BIN)/mypy --explicit-package-bases scripts tests $(if $(wildcard bench/*.py),bench)

.PHONY: imports
imports: $(READY)
	@$(BIN)/lint-imports --no-logo

.PHONY: generated
generated: $(READY)
	@$(BIN)/python scripts/generate.py --check

.PHONY: generate
generate: $(READY) ## Write the generated files again
	@$(BIN)/python scripts/generate.py

.PHONY: format
format: $(READY) ## Format the code and apply the safe fixes of the linter
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: bench
bench: $(READY) ## Measure: JSON and a table, ratios within one run (BENCH_ARGS)
	@$(BIN)/python -m bench $(BENCH_ARGS)

.PHONY: soak
soak: $(READY) ## Run the long random runs; resumable (SOAK_ARGS)
	@$(BIN)/python -m bench.soak $(SOAK_ARGS)

.PHONY: clean
clean: ## Remove caches and build outputs; .venv and the run folders in .lbg stay
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
