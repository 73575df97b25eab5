# Every target brings what it needs: a virtual environment in .venv, the pinned packages, and for `test` the Debian
# packages some tests use. A newcomer types `make demo` and `make test`; Python 3.11 or newer and make are enough.

.DEFAULT_GOAL := help
SHELL   := /bin/sh
PYTHON  ?= python3
BIN     := .venv/bin
# What the tests are shared out to, and anything more to say to pytest: make test ARGS='-k lease -x'.
WORKERS ?= 3
ARGS    ?=
# The first seed and the number of seeds of `make simulate`.
SEED    ?= 0
SEEDS   ?= 1000
# The peers that `make bench-NAME` runs beside the project; PEERS=none leaves them out.
PEERS   ?= all
export PEERS
export PYTHONUTF8 := 1
# Compiled tests and modules are kept: without them each worker and each process that a test starts compiles all again.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_LINK_MODE := copy
# A version manager can put a `uv` on the path that refuses to run, so it is asked for its version.
UV      := $(shell uv --version >/dev/null 2>&1 && echo uv)

help:                 ## this list
	@sed -n 's/^\([a-zA-Z-]*\)\(%\{0,1\}\):.*## /\1\2\t/p' Makefile | sed 's/%/NAME/' | expand -t 14

demo: .venv/run.installed                ## one minute: an agent lives, one is undone, one survives kill -9, all are deleted
	@$(BIN)/python examples/03_lifecycle/demo.py

# ------------------------------------------------------------------------------------------------ tests

PYTEST := $(BIN)/python -m pytest tests -n $(WORKERS) --dist worksteal

test: .venv/test.installed debian        ## everything the project promises; MEASURE=1: and which branches that takes
	@$(if $(MEASURE),MEASURED='$(MEASURED)') $(PYTEST) -m 'not long' $(if $(MEASURE),$(COUNTED)) $(ARGS)
	@$(if $(MEASURE),$(COVERED))

test-fast: .venv/test.installed          ## what can be tested in under a minute; `make check` has the house rules
	@$(PYTEST) --ignore tests/real --ignore tests/e2e --ignore tests/tidy -m 'not slow and not long' $(ARGS)

test-long: .venv/test.installed debian   ## the same promises, tried for longer
	@$(PYTEST) $(ARGS)

check: .venv/test.installed              ## lint, format, types and the house rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q . || { echo "make format lays these files out"; exit 1; }
	@$(BIN)/mypy src proofs tests
	@$(BIN)/python -m pytest -q tests/tidy tests/unit/proofs/test_pages.py tests/unit/test_public_surface.py

docs: .venv/test.installed               ## every page that is made from the code; MEASURE=1: the ablations too (an hour)
	@$(BIN)/python -m proofs.pages docs/reference
ifdef MEASURE
	@$(BIN)/python -m proofs.ablations --page operations --seeds 300 --write docs/reference/ablations.md
	@$(BIN)/python -m proofs.ablations --page lifecycle --seeds 300 --seconds 10 --write docs/reference/lifecycle_ablations.md
endif

format: .venv/test.installed             ## lay out every file as ruff does
	@$(BIN)/ruff check -q --select I --fix .
	@$(BIN)/ruff format -q .

# Measured on unit and contract tests, store files and the provider host on a real disk, what speaks with a real server,
# and a thin crash run: counting branches slows the mass runs threefold.
MEASURED := tests/unit tests/contract tests/crash tests/real/postgres/test_postgres_ tests/real/temporal/test_temporal \
            $(addprefix tests/real/,store/test_store_gate.py http/test_api.py http/test_oauth.py http/test_floods.py \
            runtime/test_keeper.py runtime/test_runtime.py runtime/test_sandbox.py runtime/test_prefork.py runtime/test_address_owner.py \
            runtime/test_bad_commands.py runtime/test_hostile_specs.py kills/test_provider_host.py \
            upkeep/test_plane.py upkeep/test_move.py upkeep/test_doctor.py upkeep/test_worker.py upkeep/test_preflight.py)
# Of these every branch must be taken; of the rest 95 in 100.
WHOLE    := src/tenure/core/saga.py,src/tenure/core/decisions.py,src/tenure/core/progress.py,src/tenure/app/operations/executor.py,src/tenure/sqlite/*,src/tenure/home/*,src/tenure/atomic_file.py,$\
            src/tenure/adapters/engine/embedded/*,src/tenure/adapters/engine/waiters.py

COUNTED  := --cov --cov-report= -o timeout=60
COVERED  := $(BIN)/coverage report --fail-under=95 && $(BIN)/coverage report --fail-under=100 --include='$(WHOLE)'

coverage: .venv/test.installed           ## which branches the tests take
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m 'not slow and not long' $(COUNTED) $(MEASURED) $(ARGS)
	@$(COVERED)

simulate: .venv/test.installed           ## many simulation runs, one for each seed: SEEDS=n [SEED=first] [SUBJECT=agents] [PROFILE=closing]
	@$(BIN)/python -m proofs.simulation --seeds $(SEEDS) --first $(SEED) $(if $(SUBJECT),--subject $(SUBJECT)) $(if $(PROFILE),--profile $(PROFILE))

# How many cases of schemathesis, and how many of our own generator over the route table.
CASES   ?= 20000
REQUESTS ?= 200000

fuzz: .venv/test.installed               ## strange requests at the HTTP face: [CASES=n] [REQUESTS=n] [SEED=first]
	@TENURE_CASES=$(CASES) $(BIN)/python -m pytest -q tests/real/http/test_openapi.py -n $(WORKERS) $(ARGS)
	@TENURE_FUZZ=$(REQUESTS) TENURE_SEED=$(SEED) $(BIN)/python -m pytest -q tests/real/http/test_fuzz.py -n $(WORKERS) $(ARGS)

prove: .venv/test.installed              ## the proof of one promise: P=n [ABLATE=safeguard to switch off]; exits 0 if it holds, 2 if not
	@[ -n '$(P)' ] || { echo "say which promise: make prove P=1"; exit 2; }
	@$(BIN)/python -m proofs.prove $(P) $(if $(ABLATE),--ablate $(ABLATE))

# ------------------------------------------------------------------------------------------- benchmarks

bench:                                   ## the benchmarks there are
	@for f in $$(grep -l '^if __name__' bench/*.py 2>/dev/null); do n=$$(basename $$f .py); \
	    printf 'make bench-%-16s %s\n' $$n "$$(sed -n '1s/^"""//; 1s/"""$$//; 1p' $$f)"; done

bench-%: .venv/run.installed FORCE       ## one benchmark, beside its peers unless PEERS=none
	@[ -f bench/$*.py ] || { echo "there is no bench/$*.py; make bench lists what there is"; exit 2; }
	@$(BIN)/python bench/$*.py $(ARGS)

# These start servers that only the tests' packages bring.
bench-scale_out bench-events: .venv/test.installed

# --------------------------------------------------------------------------------------------- set-up

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "tenure needs Python 3.11 or newer; say make PYTHON=/path/to/python3.x"; exit 1; }
	@if [ -n "$(UV)" ]; then \
	    uv venv -q --clear --no-python-downloads --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv; \
	 else \
	    rm -rf .venv && $(PYTHON) -m venv .venv || \
	    { rm -rf .venv; echo "$(PYTHON) -m venv does not work here (Debian: apt-get install python3-venv)"; exit 1; }; \
	 fi
	@touch $@

# One stamp for one set, made after it succeeded: first the pins with their hashes, then the project itself, which
# has no hash; it brings no dependencies and is built by the pinned backend.
.venv/%.installed: requirements/%.txt pyproject.toml | .venv/made
	@echo "installing requirements/$*.txt"
	@if [ -n "$(UV)" ]; then install="uv pip install -q --compile-bytecode --python $(BIN)/python"; \
	 else install="$(BIN)/python -m pip install -q"; fi; \
	 $$install --only-binary :all: --require-hashes -r requirements/$*.txt && \
	 $$install --no-deps --no-build-isolation -e .
	@touch $@

DEBIAN := bubblewrap iproute2 strace

debian:
	@missing=$$(for p in $(DEBIAN); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	 [ -n "$$missing" ] || exit 0; \
	 without="tests that need $$missing are skipped and say so"; \
	 command -v apt-get >/dev/null || { echo "not Debian: $$without"; exit 0; }; \
	 [ "$$(id -u)" = 0 ] || { echo "not root: $$without; sudo apt-get install $$missing brings them"; exit 0; }; \
	 get="env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing"; \
	 $$get >/dev/null 2>&1 || { apt-get -qq update && $$get; } >/dev/null 2>&1 || echo "$$missing cannot be had here: $$without"

# The pins for every supported Python in one file for each set, without host names. Versions stay as they are unless
# they must move; UPGRADE=1 moves them all.
COMPILE = $(or $(UV),.venv-lock/bin/uv) pip compile -q --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --no-strip-extras --no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)

lock: $(if $(UV),,.venv-lock/bin/uv)     ## the pins in requirements/, worked out anew: [UPGRADE=1]
	@$(COMPILE) pyproject.toml requirements/build.in -o requirements/run.txt
	@$(COMPILE) --extra postgres --extra temporal --extra nats pyproject.toml requirements/build.in -c requirements/run.txt \
	    -o requirements/scale.txt
	@$(COMPILE) --extra testing --extra postgres --extra temporal --extra nats pyproject.toml requirements/build.in requirements/test.in -c requirements/run.txt \
	    -o requirements/test.txt
	@$(COMPILE) requirements/peers.in -o requirements/peers.txt
	@! grep -n '://' requirements/*.txt

.venv-lock/bin/uv:
	@$(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip install -q uv

FORCE:
.PHONY: help demo test test-fast test-long check docs format coverage simulate fuzz prove bench debian lock FORCE
