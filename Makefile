# Two commands matter: `make demo` and `make test`. Both set up `.venv` first.
# The first interpreter of a version that the project supports; PYTHON=... chooses another.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(SUPPORTED)' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin

# What `make compare` compares: names of configs, or patterns, and seeds.
CONFIGS ?= scenes_*
SEEDS ?= 0,1,2

.PHONY: help demo compare test quick lint types tests torture bench docs format clean

help:  ## Show what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed  ## Train, evaluate and export PCME on the built-in synthetic data set
	$(BIN)/python main.py demo

compare: $(VENV)/.installed  ## Train and compare all methods on the built-in synthetic data set: hours
	$(BIN)/python main.py compare --configs='$(CONFIGS)' --seeds=$(SEEDS) \
		--output=saved_models/compare-scenes

test: lint types tests  ## Formatter, linter, type checker and the whole test suite

quick: $(VENV)/.installed  ## The tests that are not slow, for every change
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
		-m 'not slow and not heavy'

lint: $(VENV)/.installed  ## Formatter and linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.installed  ## Type checker
	$(BIN)/mypy

tests: $(VENV)/.installed  ## The test suite
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

torture: $(VENV)/.installed  ## The heavy forms of tests, which the suite has in small
	$(BIN)/python -m pytest -m heavy

bench: $(VENV)/.installed  ## How fast everything is: docs/results/speed.md (RELEASED=)
	$(BIN)/python benchmarks/measuring.py

docs: $(VENV)/.installed  ## The pages of docs/ with the reference, as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

format: $(VENV)/.installed  ## Rewrite the code as the formatter and linter want it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Records can be made again from raw data, in minutes; raw data and trained models stay.
clean:  ## Remove the environment and prepared records; raw data and saved_models/ stay
	rm -rf $(VENV) build *.egg-info
	for shard in data/*/train-00000.npz; do \
		case $$shard in data/raw/*|'data/*/train-00000.npz') ;; *) rm -rf "$${shard%/*}" ;; esac; \
	done
