# `make demo`, `make test`, where there is what they test `make test-gpu`, `test-opencl` and `test-browser`, `make fuzz`, `docs` and `links`:
# all make the environment when it is not there, and are quick the second time.

PYTHON ?= python3.11
ENVIRONMENT ?= .venv
# Which build of openmm-torch: another extra of pyproject.toml is torchforce-openmm84.
TORCHFORCE ?= torchforce
BIN := $(ENVIRONMENT)/bin
INSTALLED := $(ENVIRONMENT)/installed-$(TORCHFORCE)
COMPILED := $(ENVIRONMENT)/compiled
DOCS_INSTALLED := $(ENVIRONMENT)/docs-installed
LOG := $(ENVIRONMENT)/install.log
DATA := examples/data

# A recipe fails where any part of a pipe does.
SHELL := bash
.SHELLFLAGS := -o pipefail -c

# The files with tests of a mark: to collect all others takes longer than these tests.
marked = $(shell grep --recursive --files-with-matches --include='test_*.py' 'pytest\.mark\.$(1)' tests)

.PHONY: demo test test-gpu test-opencl test-browser fuzz docs links
.DELETE_ON_ERROR:

demo: demo/summary.json
	@echo "The fit of open adenylate kinase to the closed map is in demo/: open report.html in a browser."

demo/summary.json: demo/adk_closed.mrc $(DATA)/adk_open.pdb
	@echo "Fitting open adenylate kinase into the map of the closed form: a minute on two cores, silent after a line where this is no terminal."
	$(BIN)/openmm-density fit $(DATA)/adk_open.pdb demo/adk_closed.mrc --resolution 5 --reference $(DATA)/adk_closed.pdb --output demo --overwrite

demo/adk_closed.mrc: $(DATA)/adk_closed.pdb | $(COMPILED)
	mkdir -p demo
	$(BIN)/openmm-density simulate $(DATA)/adk_closed.pdb --resolution 5 --voxel-size 1 --noise 0.1 --seed 1 --output $@ --overwrite

# A file's tests stay together, for they share what they prepare.
test: $(COMPILED)
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

test-gpu: $(INSTALLED)
	$(BIN)/python -c 'import torch, sys; sys.exit(not torch.cuda.is_available() and "no GPU that torch can use")'
	$(BIN)/python -m pytest -k "gpu or triton" tests/kernels $(shell find tests -name "test_*_gpu.py")

# Tests skip a platform that does not work: that none does is found before them.
test-opencl: $(COMPILED)
	$(BIN)/openmm-density doctor --json | $(BIN)/python -c 'import json, sys; sys.exit(not any(probe["works"] and probe["platform"] == "OpenCL" for probe in json.load(sys.stdin)["probes"]) and "no OpenCL platform on which a force runs")'
	$(BIN)/python -m pytest -m opencl $(call marked,opencl)

# Tests of pages are skipped without a browser: that there is none is found before them.
test-browser: $(COMPILED)
	@$(BIN)/python -c 'import playwright, sys; from tests.report.browser import path_of_chromium; sys.exit(path_of_chromium() is None and "no Chromium: install it, or name one by CHROMIUM")'
	$(BIN)/python -m pytest -m browser $(call marked,browser)

# The tests read 250 damaged files of each format.
fuzz: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --mutations 10000 --keep fuzz

# Notebooks are run again where they or the package changed; a warning is an error.
docs: $(DOCS_INSTALLED)
	$(BIN)/cffconvert --validate
	rm -rf docs/reference/api  # pages of names that are gone would be left
	$(BIN)/python -m sphinx --quiet --jobs auto --fail-on-warning --keep-going --builder html docs docs/_build/html
	@echo "The documentation is in docs/_build/html/index.html."

# The links to other sites, for which it takes a network.
links: $(DOCS_INSTALLED)
	$(BIN)/python -m sphinx --quiet --builder linkcheck docs docs/_build/links

$(DOCS_INSTALLED): $(COMPILED)
	@echo "Installing what makes the documentation: about 30 MB of downloads."
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --constraint $(ENVIRONMENT)/constraints.txt --editable ".[$(TORCHFORCE),test,docs]" >>$(LOG) 2>&1 \
		|| { tail --lines 20 $(LOG) >&2; echo "pip failed: the end of what it said is above, all of it in $(LOG)." >&2; exit 1; }
	@touch $@

# The extra's pins are constraints as well: otherwise pip fetches the newest torch first, and finds out afterwards. What pip says goes
# to the log, but for downloads that take a while.
$(INSTALLED): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON): install it with its venv, or name a Python from 3.10 on, as in make PYTHON=python3.12." >&2; exit 1; }
	@echo "Installing into $(ENVIRONMENT): about 3 GB of downloads (most of it torch and its CUDA libraries), 6 GB of disk, 2 to 10 minutes."
	@pins="$$(sed --quiet 's/^$(TORCHFORCE) = \[\(.*\)\]$$/\1/p' pyproject.toml | tr --delete '" ' | tr , '\n')"; old="$$(cat $(ENVIRONMENT)/constraints.txt 2>/dev/null)"; \
	[ -n "$$pins" ] || { echo "pyproject.toml has no extra $(TORCHFORCE)." >&2; exit 1; }; \
	if [ -n "$$old" ] && [ "$$pins" != "$$old" ]; then \
		echo "$(ENVIRONMENT) is made anew, as other versions are pinned than those in it."; rm -rf $(ENVIRONMENT); \
	fi; mkdir -p $(ENVIRONMENT); echo "$$pins" >$(ENVIRONMENT)/constraints.txt
	@$(PYTHON) -m venv $(ENVIRONMENT) >$(LOG) 2>&1 || { cat $(LOG) >&2; echo "$(PYTHON) makes no environment: install its venv, or name another Python, as in make PYTHON=python3.12." >&2; exit 1; }
	@started=$$SECONDS; $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --constraint $(ENVIRONMENT)/constraints.txt --editable ".[$(TORCHFORCE),test]" 2>&1 \
		| tee --append $(LOG) \
		| sed --unbuffered --quiet --regexp-extended \
			-e 's/^ *(Downloading|Using cached) ([^-]+)-([^-]+)-.* \(([0-9]{3,}(\.[0-9]+)? MB|[0-9.]+ GB)\).*/  \1 \2 \3, \4/p' \
			-e 's/^Installing collected packages.*/  Unpacking/p' \
		|| { tail --lines 20 $(LOG) >&2; echo "pip failed: the end of what it said is above, all of it in $(LOG)." >&2; exit 1; }; \
	echo "Installed in $$((SECONDS - started)) s; what pip said is in $(LOG)."
	@touch $@

# All at once, which is faster than one after the other when they are first used.
$(COMPILED): $(INSTALLED) $(wildcard kernels/*/*.cpp kernels/*/*.h kernels/*.h)
	@echo "Compiling the kernels for this processor, once: half a minute to two."
	@$(BIN)/python -c 'from openmm_density.kernels import compilation; compilation.load_all()'
	@touch $@
