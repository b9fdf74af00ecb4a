# Everything is run from the checkout; .venv holds what it needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test stateful check lint types clean

install: .venv/installed

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable '.[demo,bench]' --group dev
	touch $@

demo: install
	$(BIN)/slicelock demo

test: install
	$(BIN)/pytest

stateful: install
	SLICELOCK_EXAMPLES=500 $(BIN)/pytest tests/stateful

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/sizes.py
	$(BIN)/python tools/lint_lua.py
	$(BIN)/lint-imports

types: install
	$(BIN)/pyright

check: lint types test

clean:
	rm -rf .venv dist build
