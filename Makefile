.DEFAULT_GOAL := help
DATABRICKS := v0.298.0
GRPC_TOOLS := grpcio-tools==1.85.1
.PHONY: help setup run fresh test soak lint format bench proto cometbft databricks clean clean-all

help:       ## list what you can make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup:      ## virtual environment, packages, Java and Delta JARs; does nothing when they are there
	@scripts/setup.sh

run: setup  ## make the demo chains, run every job, print what was built
	@.venv/bin/lake up

fresh: clean ## throw the lake away, then build it anew like make run
	@$(MAKE) --no-print-directory run

test: lint  ## everything that has to hold: style, types, tests
	@.venv/bin/python -m pytest tests -n 2 --dist loadscope --max-worker-restart 0

soak: setup ## kill all pipelines at random moments for five minutes, then compare roots (SECONDS=N for longer)
	@LAKE_SOAK_SECONDS=$(or $(SECONDS),300) .venv/bin/python -m pytest tests/spark/test_soak.py -s

lint: setup ## style and types
	@.venv/bin/ruff check .
	@.venv/bin/mypy

format: setup ## put the code in the project's style
	@.venv/bin/ruff check --fix --quiet .
	@.venv/bin/ruff format .

bench: setup ## measure the kernel against its budgets
	@.venv/bin/lake bench kernel

proto: setup ## generate the Python code of shards.proto anew
	@python3 -m venv build/proto && build/proto/bin/pip install --quiet $(GRPC_TOOLS)
	@build/proto/bin/python -m grpc_tools.protoc -I libs --python_out=libs --pyi_out=libs libs/chainlake/shards/shards.proto

cometbft:   ## install a CometBFT node with Go, for the test of lake abci
	@go install github.com/cometbft/cometbft/cmd/cometbft@v1.0.1

databricks: ## build Databricks' own command with Go (1.25 or newer), for the tests of the bundle
	@go mod download github.com/databricks/cli@$(DATABRICKS)
	@cd "$$(go env GOMODCACHE)/github.com/databricks/cli@$(DATABRICKS)" && go build -o "$$(go env GOPATH)/bin/databricks" .

clean:      ## stop the local Spark server; remove the lake and caches
	@if [ -x .venv/bin/lake ]; then .venv/bin/lake stop; fi
	@rm -rf .lake .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	@find libs tests notebooks -name __pycache__ -prune -exec rm -rf {} +

clean-all: clean ## clean, and remove the virtual environment too
	@rm -rf .venv libs/*.egg-info
