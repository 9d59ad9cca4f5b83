# What a contributor types. `make test` sets up everything it needs and then checks everything.
# PYTHON=python3.12 chooses the interpreter .venv is made with, PYTEST="-k forest -x" adds options.

PYTHON ?= python3
PYTEST ?=
BIN := .venv/bin
# Of what is to be installed, not of the rest of pyproject.toml, such as the settings of tools.
NEEDS := $(shell sed -n -e '/^requires-python/p' -e '/^dependencies/,/^]/p' \
	-e '/^\[project.optional-dependencies]/,/^$$/p' -e '/^\[project.scripts]/,/^$$/p' \
	-e '/^\[tool.setuptools.package-dir]/,/^$$/p' pyproject.toml | cksum | cut -d' ' -f1)
INSTALLED := .venv/.installed-$(NEEDS)
IMPORTED := .venv/.imported

export NUMBA_CACHE_DIR := $(CURDIR)/.numba_cache
# To import what a run needs takes 14 seconds of a processor without bytecode, and 5 with it; tests
# start Python a hundred times.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
OLDEST := build/oldest
.PHONY: help install test test-all test-costs test-first test-oldest lint types pytest wheel docs site kernels races bench bench-docs papers \
	demo format clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

install: $(INSTALLED) ## an environment in .venv, with orograph and the tools

# Types are checked beside the tests, which wait now and then.
test: $(INSTALLED) ## lint, types and tests: what must pass before a merge
	$(MAKE) --no-print-directory --jobs=2 lint types pytest

test-all: export LONG := -m ""
test-all: test ## the same with the long proofs, those marked `long`

# What depends on Numba and LLVM.
test-oldest: $(OLDEST)/.installed ## a part of the tests, on the oldest versions pyproject.toml names
	NUMBA_CACHE_DIR=$(CURDIR)/$(OLDEST)/kernels $(OLDEST)/bin/python -m pytest $(PYTEST) \
	tests/kernels/test_compiled.py tests/kernels/forest/test_tile.py \
	tests/kernels/label/test_tile.py tests/kernels/minplus/test_product.py \
	tests/kernels/relax/test_models.py tests/pipeline/run/test_feedback.py

lint: $(INSTALLED) ## ruff: mistakes, imports, layout
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(INSTALLED) ## mypy --strict on the installed wheel
	.ci/types $(BIN)/python

# Whole files to each process: their fixtures are made once. Three processes for two cores: tests of
# clusters wait much. In order: the last files are short, so all processes end at about one time.
pytest: $(IMPORTED) ## the tests, among them those of docs, kernels and the wheel
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(LONG) $(PYTEST)

test-costs: export PYTEST_PLUGINS := costs
test-costs: export PYTHONPATH := tests
test-costs: pytest ## the tests, and the seconds of the processor by file and by what they go to

# What needs no kernel compiled: imports without bytecode take most of half a minute.
test-first: $(INSTALLED) ## a first part of the tests: geometry of grids and the table of kernels
	$(BIN)/python -m pytest tests/tiles/grid tests/kernels/test_pieces.py \
	tests/kernels/test_stages.py $(PYTEST)

docs: $(INSTALLED) ## run every code block and docstring example
	$(BIN)/python -m pytest tests/test_docs.py $(PYTEST)

site: $(INSTALLED) ## the documentation as a site, in build/site; runs its pages and the gallery
	$(BIN)/python -m sphinx -b html -W --keep-going -d build/doctrees docs build/site

kernels: $(INSTALLED) ## compile every .cu for every supported GPU, without a GPU
	$(BIN)/python .ci/nvrtc.py $(wildcard kernels/*/*.cu benchmarks/papers/*.cu)

# In order, since a race is found whichever thread comes first. The emulator's own tests have races
# on purpose.
races: $(INSTALLED) ## run every .cu on the CPU under ThreadSanitizer, which names races
	CUDA_ON_CPU_RACES=1 LD_PRELOAD=$$($(CXX) -print-file-name=libtsan.so) \
	TSAN_OPTIONS="exitcode=66 $$TSAN_OPTIONS" setarch -R \
	$(BIN)/python -m pytest --capture=no -k forward \
	$(wildcard tests/kernels/*/test*cuda.py tests/benchmarks/test*.py) $(PYTEST)

wheel: $(INSTALLED) ## the sdist and, from it, the wheel, into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist

bench: $(INSTALLED) ## speed and memory of whole runs
	$(BIN)/python benchmarks/forest_run.py
	$(BIN)/python benchmarks/memory.py

# Each figure stands beside its peer in one process; small sizes, so that it takes some minutes.
# GRAPH is the road network of New York of the 9th DIMACS challenge; without it that record stays.
GRAPH ?= ../shared/data/graphs/USA-road-d.NY.gr.xz
RUN ?= $(BIN)/python
bench-docs: $(INSTALLED) ## measure again what the pages and the README say of speed (on a CPU)
	$(RUN) benchmarks/forest_kernel.py --size 2048 --repeat 3 --record forest_kernel
	$(RUN) benchmarks/terrain_run.py --side 1024 --repeat 3 --record terrain_run
	test ! -f $(GRAPH) || $(RUN) benchmarks/graph_run.py $(GRAPH) --repeat 5 --record graph_run
	$(RUN) benchmarks/components_run.py --side 4096 --repeat 3 --record components_run
	$(RUN) benchmarks/cost_run.py --side 1024 --serpentine 1000 --tile 256 1024 \
		--source corner "tile corner" middle --record cost_run
	$(BIN)/python docs/readme_table.py

papers: $(INSTALLED) ## tables and figures of the papers, measured again (on two cores, in minutes)
	$(RUN) benchmarks/papers

demo: $(INSTALLED) ## a forest and a cost distance from a bare clone
	$(BIN)/orograph demo

format: $(INSTALLED) ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove everything that make made
	rm -rf docs/gallery docs/generated docs/pictures .venv .numba_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info

# The stamp is written last, so an installation cut short is begun again. The pip that comes with an
# older Python takes twice the time to find what fits together; where there is no newer one, it does.
$(INSTALLED):
	$(PYTHON) -m venv .venv
	rm -f .venv/.installed*
	-$(BIN)/python -m pip install --quiet --no-compile --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	touch $@

$(OLDEST)/.installed: pyproject.toml .ci/oldest.py
	$(PYTHON) -m venv $(OLDEST)
	-$(OLDEST)/bin/python -m pip install --quiet --no-compile --upgrade pip
	$(PYTHON) .ci/oldest.py > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --no-compile --constraint $(OLDEST)/constraints.txt \
	--editable . hypothesis networkx pytest pytest-timeout scikit-image
	touch $@

# Bytecode of all that the tests import, and of them: made by one process, not by each of pytest's.
$(IMPORTED): $(INSTALLED)
	-$(BIN)/python -m pytest --collect-only --quiet > $@
