# Every target sets up its own virtual environment in .venv; nothing has to be installed by hand.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint study bench bench-others clean

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

test: lint
	$(BIN)/python -m pytest

study: .venv/.installed  ## the heavier statistical studies
	$(BIN)/python -m pytest -m study

bench: .venv/.installed  ## ratios measured in one run, on this machine
	$(BIN)/python benchmarks/bench.py

bench-others: .venv/.installed  ## the same, with the other packages in benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements.txt
	$(BIN)/python benchmarks/bench.py

clean:
	rm -rf .venv demo benchmarks/limit
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
