# Every target sets up its own virtual environment in .venv; nothing has to be installed by hand.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-lowest test-gpu lint docs study bench bench-gpu bench-others clean

.venv/.package: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	@touch $@

.venv/.installed: .venv/.package
	$(PIP) --editable '.[dev]'
	@touch $@

.venv/.docs: .venv/.installed
	$(PIP) --editable '.[docs]'
	@touch $@

demo: .venv/.package  ## mAIS and AIS beside the exact value, with a figure in demo/
	$(BIN)/python examples/demo.py

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Processes compile kernels side by side; a file of tests stays in one of them, for it shares what it compiles.
PARALLEL := -n auto --maxprocesses 4 --dist loadfile

test: lint
	$(BIN)/python -m pytest $(PARALLEL)

# Warnings are errors in the tests, and newer versions of what these versions bring along would warn.
LOWEST_TOO := click==8.2.0 pyparsing==3.1.0

test-lowest:  ## the tests with the lowest versions that pyproject.toml declares, in an environment of their own
	$(PYTHON) -m venv --clear .venv-lowest
	$(PYTHON) -c "import re, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	  needed = project['dependencies'] + project['optional-dependencies']['dev']; \
	  print(*(re.sub('>=([^,]*).*', r'==\1', x) for x in needed if not x.startswith(('ruff', 'mypy'))), sep='\n')" \
	  > .venv-lowest/versions.txt
	.venv-lowest/bin/python -m pip install --quiet --requirement .venv-lowest/versions.txt $(LOWEST_TOO)
	.venv-lowest/bin/python -m pip install --quiet --no-deps --editable .
	NUMBA_CACHE_DIR=$(CURDIR)/.venv-lowest/kernels .venv-lowest/bin/python -m pytest -p no:cacheprovider $(PARALLEL)

docs: .venv/.docs  ## every code block of the pages is run, then the site is built in docs/_build/html
	$(BIN)/python -m pytest -m 'docs or not docs' tests/test_docs.py tests/test_types.py tests/test_r.py
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

study: .venv/.installed  ## the heavier statistical studies
	$(BIN)/python -m pytest -m study

test-gpu: .venv/.installed  ## the tests of the GPU engine, on a GPU
	$(PIP) --editable '.[cuda]'
	$(BIN)/python -m pytest -m gpu

bench: .venv/.installed  ## ratios measured in one run, on this machine
	$(BIN)/python benchmarks/bench.py

bench-gpu: .venv/.installed  ## the same on a GPU, beside PyTorch if it is there
	$(PIP) --editable '.[cuda]'
	$(BIN)/python benchmarks/gpu.py

bench-others: .venv/.installed  ## the same, with the other packages in benchmarks/requirements.txt
	$(PIP) --requirement benchmarks/requirements.txt
	$(BIN)/python benchmarks/bench.py

clean:
	rm -rf .venv .venv-lowest demo benchmarks/limit docs/_build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
