# Everything runs from the checkout; .venv holds what it needs.
#
#   make demo      two training jobs share one simulated accelerator
#   make test      all tests
#   make check     what CI runs
#   make install   just the set-up (every other target does it when needed)
PYTHON ?= python3
BIN := .venv/bin

SECONDS ?= 120
SEEDS ?= 1
SERVER ?= valkey

.DELETE_ON_ERROR:
.PHONY: install demo test stateful chaos bench check lint format types clean

install: .venv/installed

.venv/installed: pyproject.toml tools/install.sh
	@PYTHON='$(PYTHON)' sh tools/install.sh

demo: install
	@$(BIN)/slicelock demo

test: install
	$(BIN)/pytest -n auto --dist loadgroup --ignore tests/alone
	$(BIN)/pytest tests/alone

stateful: install
	SLICELOCK_EXAMPLES=500 $(BIN)/pytest tests/stateful

chaos: install
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) --seeds $(SEEDS) --server $(SERVER) $(if $(WRITE),--write $(WRITE))

bench: install
	$(BIN)/slicelock bench handoff
	$(BIN)/slicelock bench throughput
	$(BIN)/slicelock bench queue

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/sizes.py
	$(BIN)/python tools/lint_lua.py
	$(BIN)/python tools/docs.py --check
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python tools/docs.py

types: install
	$(BIN)/pyright

check: lint types test

clean:
	rm -rf .venv dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
