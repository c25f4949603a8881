# SPDX-License-Identifier: Apache-2.0
# Two commands for a newcomer: `make demo` and `make test`. Both set everything up first, and reuse
# what is there. Needed beforehand: Python >= 3.10, a C++17 compiler, make.
PYTHON ?= python3
VENV ?= .venv
DEMO_OUT ?= out/demo
JOBS ?= $(shell nproc)
SOAK_SECONDS ?= 60

BIN := $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)
CMAKE_PYTHON := -DPython_EXECUTABLE=$(BIN)/python
SOURCES := $(shell find native python cmake third_party CMakeLists.txt pyproject.toml -type f -not -name '*.pyc')
CXX_FILES := $(shell git ls-files '*.cpp' '*.hpp' 2>/dev/null)

.PHONY: demo test test-native test-python test-gpu bench-gpu asan soak docs lint format bench dev lock clean help

help: ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# The pinned versions are of Python 3.11 and newer; 3.10 takes what it can have.
REQUIREMENTS := requirements/dev.$(shell $(PYTHON) -c 'import sys; print("txt" if sys.version_info >= (3, 11) else "in")')

$(VENV)/.requirements: $(REQUIREMENTS)
	$(PYTHON) -c 'import sys; sys.exit("[make] Python should be 3.10 or newer. Received %d.%d. Set PYTHON=." % sys.version_info[:2] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=23'
	$(BIN)/python -m pip install --quiet -r $(REQUIREMENTS)
	touch $@

$(VENV)/.installed: $(VENV)/.requirements $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall .
	touch $@

demo: $(VENV)/.installed ## Train, export, run, verify and measure a network with Swish
	$(BIN)/myops demo --out $(DEMO_OUT) $(if $(QUICK),--quick)

test: test-native test-python ## All tests

test-native: $(VENV)/.requirements ## The C++ tests, once per instruction set of this machine
	cmake --preset dev $(CMAKE_PYTHON) -DMYOPS_BUILD_TORCH=OFF --log-level=NOTICE
	cmake --build --preset dev -j $(JOBS)
	ctest --preset dev

test-python: $(VENV)/.installed ## The Python and packaging tests
	$(BIN)/python -m pytest

# No virtual environment of ours: that would have a CPU-only torch.
test-gpu: ## The tests that need a GPU, with the torch and build tools of PYTHON's environment
	$(PYTHON) -c 'import torch, pytest, scikit_build_core, nanobind'
	$(PYTHON) -m pip install --quiet --no-build-isolation --no-deps --force-reinstall -C cmake.define.MYOPS_CUDA=ON .
	$(PYTHON) -m pytest tests/gpu

bench-gpu: ## Bandwidth of the CUDA kernels, with what `make test-gpu` installed
	$(PYTHON) benchmarks/gpu/bandwidth.py

asan: $(VENV)/.requirements ## The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --preset asan $(CMAKE_PYTHON) --log-level=NOTICE
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan

soak: $(VENV)/.requirements ## The plugin under load, a minute under AddressSanitizer, one under ThreadSanitizer
	for preset in asan tsan; do \
	  cmake --preset $$preset $(CMAKE_PYTHON) --log-level=NOTICE && \
	  cmake --build --preset $$preset -j $(JOBS) --target myops_ort myops_soak && \
	  MYOPS_SOAK_SECONDS=$(SOAK_SECONDS) ctest --preset $$preset --verbose -R '^soak[.](models|load)$$' || exit 1; \
	done

bench: $(VENV)/.installed ## Measure every claim about speed, then write the README's figures
	$(BIN)/python benchmarks/run_all.py $(if $(QUICK),--quick)
	$(if $(QUICK),,$(BIN)/python benchmarks/readme_table.py)

lint: $(VENV)/.requirements ## ruff, mypy, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

# The notices are about what comes after the installed release of mkdocs.
docs: $(VENV)/.installed ## The documentation, into build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --quiet

format: $(VENV)/.requirements ## Format Python and C++
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

dev: $(VENV)/.requirements ## Editable installation: Python edits take effect at once
	$(BIN)/python -m pip install --no-build-isolation --no-deps -e .

lock: ## Pin requirements/dev.in in requirements/dev.txt
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet -r requirements/dev.in
	(echo '# Pinned by `make lock` from dev.in.'; build/lock/bin/python -m pip list --format=freeze \
	  | grep -v -i -E '^(pip|setuptools|wheel)==' | sed 's/+[a-z0-9]*$$//') > requirements/dev.txt

clean: ## Remove what was built, and the virtual environment
	rm -rf build $(VENV) out
