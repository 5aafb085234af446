# Every target sets up what it needs and does nothing twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := src studies tests benchmarks examples docs/generate tools hatch_build.py
# The tests start hundreds of processes, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
# One more than two cores: a third of the time tests wait, for a process or a browser.
TESTS := $(BIN)/python -m pytest --numprocesses 3 --dist worksteal --durations 25 --quiet

.PHONY: help demo test test-long tests lint check chaos fuzz nodes bench bench-peers bench-service bench-ray bench-proof bench-duels bench-context bench-items reproduce reference \
  docs figures lock release clean

help:
	@echo "make demo       run the main job: the service, live searchers, what was learned"
	@echo "make test       lint, check types, run all tests; ROOM=policies: the tests of one room alone"
	@echo "make test-long  the same, and try each property on ten times as many examples"
	@echo "make lint       lint, check types, audit the dependencies, no tests"
	@echo "make check      measure the source: its size, how often it says the same thing, the way of a decision"
	@echo "make chaos      kill, cut and fill up the service 200 times; nothing may be lost"
	@echo "make fuzz       5 minutes of requests bent from the OpenAPI document"
	@echo "make nodes      kill a node of a Ray cluster at a sweep, an evaluation and the service in shards"
	@echo "make bench      measure speed, and against C"
	@echo "make bench-peers measure speed and learning against other packages; goes on where it was cut off"
	@echo "make bench-service  measure the decision service: speed, memory, recovery"
	@echo "make bench-ray  measure what Ray costs and gains on this machine"
	@echo "make bench-duels  measure how often the verdict on interleaving errs; QUICK=1: fewer runs"
	@echo "make bench-context  measure regret and time of a user's context over named arms, beside other packages"
	@echo "make bench-items  measure regret and time of items known by embeddings, beside what is tuned in hindsight"
	@echo "make bench-proof  measure how often the proof that learning helps errs; QUICK=1 in minutes"
	@echo "make reproduce  compute every table and figure anew, into out/; with DATA=FILE that of search interest"
	@echo "make docs       build the documentation site into site/"
	@echo "make lock       hashes of what is installed, into deploy/, from constraints.txt"
	@echo "make release    build sdist and wheels, with and without compiled code, into dist/; try each extra in an empty environment"
	@echo "make figures    run the tutorials and take over their outputs and pictures"

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "tacit needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)

# A stamp per set of extras, renewed when the requirements change.
$(VENV)/.run: $(VENV)/bin/python pyproject.toml constraints.txt Makefile
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[service,client,plots]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev,docs]'
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[service,client,plots,docs]'
	@touch $@

# The page is tested in a real browser; Debian has one.
$(VENV)/.browser:
	@command -v chromium >/dev/null || { \
	  echo "installing chromium for the tests of the page"; \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends chromium >/dev/null; }
	@mkdir -p $(VENV) && touch $@

# The store in PostgreSQL is tested on a server of its own; Debian has one.
$(VENV)/.postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { \
	  echo "installing postgresql for the tests of the store"; \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends postgresql >/dev/null; }
	@mkdir -p $(VENV) && touch $@

demo: $(VENV)/.run
	$(BIN)/tacit demo

# Beside each other: types are checked on one core, and the advisory service is waited for.
test: $(VENV)/.dev $(VENV)/.browser $(VENV)/.postgres
	$(MAKE) --no-print-directory --jobs 2 $(if $(ROOM),,lint) tests

test-long: $(VENV)/.dev $(VENV)/.browser $(VENV)/.postgres
	$(MAKE) --no-print-directory --jobs 2 lint tests LONG='--hypothesis-profile long'

tests: $(VENV)/.dev $(VENV)/.browser $(VENV)/.postgres
	$(TESTS) $(LONG) $(if $(ROOM),$(wildcard tests/$(ROOM) src/tacit/$(ROOM)))

lint: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check --quiet $(SOURCES)
	$(BIN)/mypy
	$(BIN)/python tests/audit.py

check: $(VENV)/.run
	$(BIN)/python tools/house.py
	$(BIN)/python tools/walk.py

chaos: $(VENV)/.dev $(VENV)/.postgres
	$(BIN)/python tests/chaos.py --faults 200

fuzz: $(VENV)/.dev
	$(BIN)/python tests/fuzz.py --seconds 300

nodes: $(VENV)/.dev $(VENV)/.postgres
	$(BIN)/python tests/nodes.py

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/bench.py

bench-peers: $(VENV)/.dev
	$(BIN)/python benchmarks/bench_peers.py $(if $(DATA),--data "$(DATA)")
	$(BIN)/python benchmarks/pages.py

bench-service: $(VENV)/.dev
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/recovery.py
	$(BIN)/python benchmarks/open_decisions.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/beside.py
	$(BIN)/python benchmarks/local_decisions.py

bench-ray: $(VENV)/.dev
	$(BIN)/python benchmarks/ray_bench.py
	$(BIN)/python benchmarks/shards.py

bench-duels: $(VENV)/.dev
	$(BIN)/python benchmarks/duel_looks.py $(if $(QUICK),--quick)

bench-context: $(VENV)/.dev
	$(BIN)/python benchmarks/context.py
	$(BIN)/python benchmarks/context.py --times
	$(BIN)/python benchmarks/bench_context.py $(if $(DATA),--data "$(DATA)")

bench-items: $(VENV)/.dev
	$(BIN)/python benchmarks/embeddings.py --times
	$(BIN)/python benchmarks/embeddings.py
	$(BIN)/python benchmarks/item_lists.py --times
	$(BIN)/python benchmarks/item_lists.py
	$(BIN)/python benchmarks/items_elsewhere.py

bench-proof: $(VENV)/.dev
	$(BIN)/python benchmarks/proof.py $(if $(QUICK),--quick)
	$(BIN)/python benchmarks/proof_service.py $(if $(QUICK),--seeds 2)
	$(BIN)/python benchmarks/guardrail.py $(if $(QUICK),--quick)

# One item needs a table of search interest: make reproduce DATA=FILE
reproduce: $(VENV)/.run
	@for item in $$($(BIN)/python -m studies --list --json | $(BIN)/python -c 'import json, sys; print(*(name for name, item in json.load(sys.stdin).items() if not item["needs_data"]))'); do \
	  $(BIN)/python -m studies $$item --out out || exit 1; done
	@if [ -n "$(DATA)" ]; then \
	  $(BIN)/python -m studies search-interest --data "$(DATA)" --out out; \
	else echo "left out: search-interest, which needs a table of search interest: DATA=FILE"; fi

# The pages of docs/reference, which hold what is generated from the code.
reference: $(VENV)/.dev
	PYTHONPATH=docs:. $(BIN)/python -m generate.hooks

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The outputs and pictures of tutorials and of the first page; the gallery takes an hour:
# PYTHONPATH=docs $(BIN)/python -m generate.gallery --data FILE
figures: $(VENV)/.dev $(VENV)/.browser
	PYTHONPATH=docs $(BIN)/python -m generate.home
	PYTHONPATH=docs $(BIN)/python -m generate.page
	PYTHONPATH=docs $(BIN)/python -m generate.run --write docs/tutorials/*.md

lock: $(VENV)/.dev
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet pip-tools
	build/lock/bin/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate \
	  --strip-extras --extra all --constraint constraints.txt --output-file build/lock/compiled.txt pyproject.toml
	PYTHONPATH=docs $(BIN)/python tools/lock.py build/lock/compiled.txt

# More interpreters: make release PYTHONS='python3.12 python3.13'
PYTHONS ?= $(PYTHON)
release: test-long
	rm -rf dist
	$(BIN)/python tests/release.py --out dist --compiled --tests $(foreach each,$(PYTHONS),--python $(each))

clean:
	rm -rf $(VENV) build dist site out demo benchmarks/.venvs benchmarks/.measured
	find . -name __pycache__ -prune -exec rm -rf {} +
