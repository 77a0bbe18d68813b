# Three targets: `make demo`, `make test` and, on a machine with a GPU, `make test-gpu`. All make the environment when it is not there, and are quick the second time.

PYTHON ?= python3.11
ENVIRONMENT ?= .venv
BIN := $(ENVIRONMENT)/bin
INSTALLED := $(ENVIRONMENT)/installed
DATA := examples/data

.PHONY: demo test test-gpu
.DELETE_ON_ERROR:

demo: demo/summary.json
	@echo "The fit of open adenylate kinase to the closed map is in demo/: see overview.png and summary.json."

demo/summary.json: demo/adk_closed.mrc $(DATA)/adk_open.pdb
	$(BIN)/openmm-density fit $(DATA)/adk_open.pdb demo/adk_closed.mrc --resolution 5 --reference $(DATA)/adk_closed.pdb --output demo --overwrite

demo/adk_closed.mrc: $(DATA)/adk_closed.pdb | $(INSTALLED)
	mkdir -p demo
	$(BIN)/openmm-density simulate $(DATA)/adk_closed.pdb --resolution 5 --voxel-size 1 --noise 0.1 --seed 1 --output $@ --overwrite

# A file's tests stay together, for they share what they prepare.
test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

test-gpu: $(INSTALLED)
	$(BIN)/python -c 'import torch, sys; sys.exit(not torch.cuda.is_available() and "no GPU that torch can use")'
	$(BIN)/python -m pytest $(wildcard tests/*/test_*_gpu.py)

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(ENVIRONMENT)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[torchforce,test]"
	touch $@
