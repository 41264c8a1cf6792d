# Every target sets up its own virtual environment in .venv; nothing has to be installed by hand.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-lowest test-gpu lint study bench bench-gpu bench-others clean

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: .venv/.installed  ## mAIS and AIS beside the exact value, with a figure in demo/
	$(BIN)/python examples/demo.py

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A file of tests stays in one process: it shares models and kernels. Two processes compile side by side.
test: lint
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

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
	NUMBA_CACHE_DIR=$(CURDIR)/.venv-lowest/kernels .venv-lowest/bin/python -m pytest -p no:cacheprovider -n auto --maxprocesses 4 --dist loadfile

study: .venv/.installed  ## the heavier statistical studies
	$(BIN)/python -m pytest -m study

test-gpu: .venv/.installed  ## the tests of the GPU engine, on a GPU
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda]'
	$(BIN)/python -m pytest -m gpu

bench: .venv/.installed  ## ratios measured in one run, on this machine
	$(BIN)/python benchmarks/bench.py

bench-gpu: .venv/.installed  ## the same on a GPU, beside PyTorch if it is there
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda]'
	$(BIN)/python benchmarks/gpu.py

bench-others: .venv/.installed  ## the same, with the other packages in benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements.txt
	$(BIN)/python benchmarks/bench.py

clean:
	rm -rf .venv .venv-lowest demo benchmarks/limit
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
