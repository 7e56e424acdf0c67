# Every target sets up .venv by itself. `make help` lists them.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# The tests start some hundred processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check lint fuzz gpu bench clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than Python 3.11: make PYTHON=/path/to/a/newer/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## the main job, end to end, on this machine's GPU or CPU
	$(BIN)/deuteron demo

test: $(STAMP)  ## the whole test suite (GPU tests are skipped without a GPU)
	$(BIN)/pytest -q -n $$(($$(nproc) + 1)) --dist loadfile --no-loadscope-reorder

lint: $(STAMP)  ## formatting, ruff, mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: $(STAMP)  ## what CI runs: the linters beside the tests
	@$(MAKE) --no-print-directory -j 2 lint test

fuzz: $(STAMP)  ## random kernels against NumPy: make fuzz FUZZ="--target interpreter --seed 7 --seconds 600"
	$(BIN)/python tests/fuzz/kernels.py $(FUZZ)

gpu:  ## on a machine with an NVIDIA GPU: GPU tests, then benchmarks against torch, Triton and Proton
	bash benchmarks/gpu.sh

bench: $(STAMP)  ## CPU, compile-time and service benchmarks
	$(BIN)/python benchmarks/compile_time.py
	$(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/service.py

clean:  ## remove everything that make made
	rm -rf $(VENV) build dist deuteron-demo *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
