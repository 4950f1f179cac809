# `make demo` and `make test` create the environment the first time and work without a network after that.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
UV     := uv==0.13.7
CORES  := $(shell nproc 2>/dev/null || echo 2)
# Many tests wait for processes that they start: two workers more than there are cores keep the cores busy.
WORKERS := $(shell expr $(CORES) + 2)
# A browser or a terminal UI on each is busy most of the time.
E2E_WORKERS := $(shell expr $(CORES) + 1)
# With PYTHONDONTWRITEBYTECODE, every process would compile all modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test suite lint web e2e bench simulate peers schemathesis phoenix clean

demo: $(READY)
	@TREADLE_HOME=$${TREADLE_HOME:-$(CURDIR)/.demo} $(BIN)/python -m treadle.surfaces.demo
	@echo
	@$(BIN)/python web/build.py --soft
	@echo "Open the dashboard: TREADLE_HOME=$${TREADLE_HOME:-$(CURDIR)/.demo} $(BIN)/treadle serve --open"

test: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint suite

# What failed is tried once more, alone: a fault fails twice. More than three tests that need it fail the run.
suite: $(READY)
	$(BIN)/python -m tests.repeats -n $(WORKERS) --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --level error --project pyproject.toml
	@$(BIN)/python -m tests.lengths

# The dashboard. Node comes with the type checker; npm fetches the packages of the lock file.
web: $(READY)
	$(BIN)/python web/build.py

# Browsers, terminals and programs of others. What the machine lacks is skipped with the reason. What failed is tried
# once more, alone: a browser on a busy machine may be too slow. A test that hangs ends its worker, since even its
# clean-up may hang.
e2e: $(READY)
	-$(MAKE) --no-print-directory web
	$(BIN)/python web/build.py --test
	$(BIN)/python -m tests.repeats -n $(E2E_WORKERS) --dist worksteal --timeout-method thread -- tests/e2e

bench: $(READY)
	$(BIN)/python -m bench

simulate: $(READY)
	$(BIN)/python -m treadle.testing.simulation --schedules $(or $(SCHEDULES),1000000) --processes $(CORES)

# Programs of others, from the registries of npm and PyPI. The machine must have Node.js with npm.
peers: $(READY)
	npm install --silent --no-audit --no-fund --prefix .peers \
		@copilotkit/aimock@1.43.0 eventsource@3.0.7 \
		@modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/server-everything@2026.8.31 \
		@modelcontextprotocol/server-filesystem@2026.8.31 \
		@modelcontextprotocol/server-memory@2026.8.31 \
		@openai/codex@0.169.0 opencode-ai@1.18.33 openai@6.49.0 ai@6.0.326 @ai-sdk/openai@3.0.141 zod@4.6.7 \
		acpx@0.19.1 emulate@0.12.2 telegram-test-api@4.2.1 node@22 \
		@redocly/cli@2.77.0 openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3 @types/node@22 \
		@ag-ui/client@1.0.0
	$(call install,openapi,openapi-python-client==0.29.1)
	$(call install,mcp,mcp-server-git==2026.10.19 mcp-server-time==2026.10.19)
	$(call install,synapse,matrix-synapse==1.163.2)
	$(call install,frameworks,pydantic-ai-slim[openai]==2.68.0 openai-agents==0.24.0 langchain==1.4.7 \
		langchain-openai==1.7.3 llm==0.36 inspect-ai==0.3.285 openai==3.51.0)
	$(BIN)/pytest -n $(CORES) --dist worksteal tests/peers

# Create the environment $(1) under .peers with the packages $(2).
install = test -x .peers/$(1)/bin/python || $(PYTHON) -m venv .peers/$(1); \
	$(BIN)/uv pip install --quiet --python .peers/$(1)/bin/python $(2)

# The description of the API, with more sequences of requests than `make e2e` tries.
schemathesis: $(READY)
	SEQUENCES=$(or $(SEQUENCES),100) $(BIN)/pytest tests/e2e/test_api_description.py

phoenix: $(READY)
	test -x .phoenix/bin/phoenix || $(PYTHON) -m venv .phoenix
	.phoenix/bin/python -m pip install --quiet --disable-pip-version-check arize-phoenix==20.26.1
	$(BIN)/pytest tests/peers/test_phoenix.py

clean:
	rm -rf $(VENV) web/node_modules src/treadle/surfaces/http/dashboard .demo .peers .phoenix .pytest_cache .ruff_cache .hypothesis bench/.envs

$(READY): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Treadle needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(UV)
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv sync --quiet --frozen --active --inexact
	@touch $(READY)
