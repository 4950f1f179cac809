# `make demo` and `make test` create the environment the first time and work without a network after that.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
UV     := uv==0.13.7
CORES  := $(shell nproc 2>/dev/null || echo 2)
# Many tests wait for processes that they start: one worker more than there are cores keeps the cores busy.
WORKERS := $(shell expr $(CORES) + 1)
# With PYTHONDONTWRITEBYTECODE, every process would compile all modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test suite lint bench simulate peers phoenix clean

demo: $(READY)
	@TREADLE_HOME=$${TREADLE_HOME:-$(CURDIR)/.demo} $(BIN)/python -m treadle.surfaces.demo

test: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint suite

suite: $(READY)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --level error --project pyproject.toml

bench: $(READY)
	$(BIN)/python -m bench

simulate: $(READY)
	$(BIN)/python -m treadle.testing.simulation --schedules $(or $(SCHEDULES),1000000) --processes $(CORES)

peers: $(READY)
	npm install --silent --no-audit --no-fund --prefix .peers @copilotkit/aimock@1.43.0 eventsource@3.0.7
	$(BIN)/pytest tests/peers

phoenix: $(READY)
	test -x .phoenix/bin/phoenix || $(PYTHON) -m venv .phoenix
	.phoenix/bin/python -m pip install --quiet --disable-pip-version-check arize-phoenix==20.26.1
	$(BIN)/pytest tests/peers/test_phoenix.py

clean:
	rm -rf $(VENV) .demo .peers .phoenix .pytest_cache .ruff_cache .hypothesis bench/.envs

$(READY): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Treadle needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(UV)
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv sync --quiet --frozen --active --inexact
	@touch $(READY)
