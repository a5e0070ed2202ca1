# Thin: every target calls python. `make run` and `make test` set up all that they need.
PYTHON ?= python3
BIN := .venv/bin
PY := $(BIN)/python

.PHONY: run test lint bench cost train gpu-train gpu-check test-servers clean

run: .venv/.run
	$(PY) app.py

test: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PY) -m specdemo fetch
	$(PY) -m pytest -n 2 --dist loadfile -k 'not browser'
	$(PY) -m pytest -k browser  # one browser at a time: two starve each other on two cores

lint: .venv/.test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: .venv/.run
	$(PY) -m specdemo bench --questions $(QUESTIONS) --drafters ngram,early_exit --peers

cost: .venv/.run
	$(PY) -m specdemo cost

train: .venv/.run
	$(PY) -m specdemo train --help

gpu-train:
	$(PYTHON) -m specdemo.gpu_train

gpu-check:
	$(PYTHON) -m specdemo.gpu_check

test-servers: .venv/.test
	$(PY) -m tests.servers.run

.venv/bin/python:
	$(PYTHON) -c "import sys; sys.exit('Python 3.11 or newer is needed.' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --upgrade pip

.venv/.run: requirements.txt | .venv/bin/python
	$(PY) -m pip install --quiet -r requirements.txt
	touch $@

.venv/.test: requirements.txt requirements-dev.txt tests/install_browser.py | .venv/bin/python
	$(PY) -m pip install --quiet -r requirements-dev.txt
	$(PY) tests/install_browser.py
	touch .venv/.run $@

clean:
	rm -rf .venv build out .pytest_cache .ruff_cache .mypy_cache
