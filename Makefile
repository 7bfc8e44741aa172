# Every target sets up what it needs; VENV and PYTHON can be overridden.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A pin for the oracle environment's torch, e.g. TORCH='torch==2.13.0'; empty takes the newest of the range.
TORCH ?=
# Sizes of the models that the conversion is timed on, e.g. GIGABYTES='4 16'; empty takes 1.
GIGABYTES ?=
# A file of measured KV capacities; empty takes the one beside the checkout, and says so when there is none.
CONTRACT ?=
# Tests run on all cores, those of one file in one process; PYTEST_ARGS='-n 0' runs them one after the other.
WORKERS ?= -n auto --maxprocesses 8 --dist loadfile
# A table of measured servers, e.g. ROWS=silicon_sample.csv; empty takes the one beside the checkout.
ROWS ?=
# Which oracle tests run; ORACLE=oracle takes the slow ones too.
ORACLE ?= oracle and not slow

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test coverage test-slow oracle lint types docs bench accuracy wheel clean

help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.rehearsal  ## Make the virtual environment with everything the rehearsal needs.

setup-dev: $(VENV)/.dev  ## The same, with what the tests and checks need.

demo: $(VENV)/.rehearsal  ## The main job on a real small model with a real Triton server.
	$(BIN)/trtkit quickstart

test: $(VENV)/.dev  ## All tests but the slow ones and those that need a GPU.
	$(BIN)/python -m pytest -m "not slow and not gpu" $(WORKERS) $(PYTEST_ARGS)

coverage: $(VENV)/.dev  ## The same tests, with the lines none of them runs; takes a good deal longer.
	$(BIN)/python -m pytest -m "not slow and not gpu" --cov --cov-report=term $(PYTEST_ARGS)

test-slow: $(VENV)/.dev  ## The slow tests.
	$(BIN)/python -m pytest -m "slow and not gpu" $(PYTEST_ARGS)

# A process each: ModelOpt patches classes for the life of one, and divides otherwise on a GPU than on a CPU.
oracle: .oracle/.ready  ## The tests against torch, transformers and ModelOpt, in an environment of their own.
	set -e; for file in $$(grep -rl 'mark\.oracle' tests --include='*.py'); do \
	  CUDA_VISIBLE_DEVICES= SETUPTOOLS_USE_DISTUTILS=stdlib .oracle/bin/python -m pytest -m "$(ORACLE)" -q $$file; done

lint: $(VENV)/.dev  ## Style, and the contract that imports point one way.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/.dev  ## mypy, strict.
	$(BIN)/mypy

docs: $(VENV)/.dev  ## Write the generated reference pages again.
	$(BIN)/python docs/generate.py

bench: $(VENV)/.dev  ## Timings, as ratios to a baseline of the same run; memory against measured servers.
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/targets.py
	$(BIN)/python benchmarks/streams.py $(GIGABYTES)
	$(BIN)/python benchmarks/passes.py $(LAYERS)
	$(BIN)/python benchmarks/memory_truth.py $(CONTRACT)
	$(BIN)/python benchmarks/estimate.py
	$(BIN)/python benchmarks/tune.py $(AIC)

accuracy: $(VENV)/.dev  ## Errors of the estimate against measured servers; ROWS=FILE names their table.
	$(BIN)/python benchmarks/accuracy.py $(ROWS)

wheel: $(VENV)/.dev  ## Build the wheel into dist/.
	$(BIN)/python -m build --wheel --outdir dist

clean:  ## Remove the virtual environment and what was built.
	rm -rf $(VENV) dist trtkit-quickstart

.oracle/.ready: pyproject.toml Makefile
	test -x .oracle/bin/python || $(PYTHON) -m venv .oracle
	.oracle/bin/python -m pip install --quiet --upgrade pip
	.oracle/bin/python -m pip install --quiet $(TORCH) --editable '.[quantize,diffusion,rehearsal]' pytest hypothesis ml-dtypes
	@touch $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.rehearsal: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[rehearsal]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[rehearsal,hub,dev]'
	@touch $@
