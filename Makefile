# `make test` is the one command that proves this checkout. CARGO_TARGET_DIR is honoured.
CARGO ?= cargo
SEEDS ?= 2000
MINUTES ?= 20
STORE ?= all
SEED ?=

.PHONY: help test test-fast test-python attack lint bench bench-postgres bench-bucket bench-served bench-python plans sim

help:
	@echo "make test            every suite: units, conformance, properties, sabotage, 300 simulated seeds;"
	@echo "                     with throw-away PostgreSQL 15 and 18, a PgBouncer and two S3 servers, which it"
	@echo "                     starts itself; test programs run side by side, the slowest tests are told at the end"
	@echo "make test-python     the Python package alone: builds the wheel from the source distribution, tests it as users have it"
	@echo "make test-fast       what needs no server and takes seconds: for every save"
	@echo "make attack MINUTES=60 [STORE=directory|postgres|bucket|served|all] [SEED=17]"
	@echo "                     a fleet under attack for so long on each store, with a report: docs/testing.md"
	@echo "make lint            formatting, clippy and licences"
	@echo "make bench           the figures of the rule book, as a table"
	@echo "make bench-postgres  qo on PostgreSQL, beside graphile-worker: bench/results/postgres.md; about two hours"
	@echo "make bench-bucket    qo in a bucket where every request takes 60 ms: bench/results/bucket.md; half an hour"
	@echo "make bench-served    a fleet behind qo serve, on each store: bench/results/served.md; about half an hour"
	@echo "make bench-python    the Python package, beside procrastinate, Celery and Rust: bench/results/python.md"
	@echo "make plans           the plans of the hot statements at 1,000,000 pending: bench/results/plans"
	@echo "make sim SEEDS=2000  more simulated seeds; QO_SEED=17 make sim replays one, step by step"

test:
	scripts/with_postgres.py --versions 15,18 --bouncer -- scripts/with_s3.py -- scripts/run_tests.py

test-python:
	scripts/with_postgres.py --versions 15 -- scripts/with_s3.py -- scripts/test_python.py

test-fast:
	scripts/run_tests.py --fast

attack:
	QO_ATTACK_MINUTES=$(MINUTES) QO_ATTACK_STORE=$(STORE) QO_ATTACK_SEED=$(SEED) \
	scripts/with_postgres.py --versions 15 -- \
	$(CARGO) test --locked -q -p qo-cli --test attack -- --nocapture --test-threads 1 holds_under_attack

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features qo-cli/bench,qo-cli/guard --locked -- -D warnings
	$(CARGO) clippy -p qo --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked -q
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install cargo-deny --locked
	$(CARGO) deny --log-level error check bans licenses sources

bench:
	$(CARGO) bench --locked -p qo-testkit --bench rule_book

bench-postgres:
	bench/compare

bench-bucket:
	bench/bucket

bench-served:
	bench/served

bench-python:
	bench/python/run

plans:
	bench/plans

sim:
	SEEDS=$(SEEDS) $(CARGO) run --release --locked -q -p qo-testkit --bin sim
