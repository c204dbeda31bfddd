"""What is measured: the sides, how each is set, and which figure has which bar."""

from __future__ import annotations

import os
from dataclasses import dataclass

from drain import Side

PROCESSES = os.cpu_count() or 1
PERMITS, BATCH = 2_000, 1_000
PREFETCH = 256
SCENARIOS = ("procrastinate", "celery", "rust", "def", "submit", "sleep", "import")


@dataclass(frozen=True)
class Bar:
    """What a figure must reach."""

    value: float
    is_most: bool = False

    def reached(self, value: float) -> bool:
        """Whether a value is good enough."""
        return value <= self.value if self.is_most else value >= self.value


@dataclass(frozen=True)
class Ratio:
    """A rate compared with another one of the same round."""

    scenario: str
    figure: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    """Of the settings of either, the fastest counts."""
    unit: str
    bar: Bar | None


def qo_worker(name: str, *flags: str, task: str = "noop") -> Side:
    """Return a worker of the Python app, by the command line, without a line for each job."""
    command = ("{bin}/python", "-m", "qo", "worker", "qo_jobs:app", "--quiet", *flags)
    return Side(name, "qo", command, task)


def celery(name: str, multiplier: int, *, keeps_results: bool = False) -> Side:
    """Return a prefork worker of Celery."""
    command: tuple[str, ...] = ("{bin}/celery", "--app", "celery_jobs", "worker", "--pool", "prefork")
    command += ("--concurrency", str(PROCESSES), "--prefetch-multiplier", str(multiplier), "--loglevel", "WARNING")
    command += ("--without-gossip", "--without-mingle", "--without-heartbeat")
    return Side(name, "celery", command, variables={"BENCH_RESULTS": "1" if keeps_results else "0"})


def procrastinate(name: str, concurrency: int, pool: int) -> Side:
    """Return a worker of procrastinate."""
    command: tuple[str, ...] = (
        "{bin}/procrastinate",
        "--app",
        "procrastinate_jobs.app",
        "--log-level",
        "warning",
        "worker",
    )
    command += ("--concurrency", str(concurrency), "--listen-notify")
    return Side(name, "procrastinate", command, variables={"BENCH_POOL": str(pool)})


MANY = (f"--max-concurrent-tasks={PERMITS}", f"--claim-batch-size={BATCH}")
AHEAD = (f"--prefetch-buffer={PREFETCH}", "--claim-lease-ms=60000", f"--claim-batch-size={PREFETCH}")

ASYNC = qo_worker(f"qo, async, {PERMITS:,} at once, claims of {BATCH:,}", *MANY)
ASYNC_USUAL = qo_worker("qo, async, defaults (100 at once, claims of 50)")
DEF_USUAL = qo_worker("qo, def, defaults (100 at once, claims of 50)", task="noop_def")
CHILDREN = qo_worker(
    f"qo, def, --processes={PROCESSES}, prefetch of {PREFETCH}", f"--processes={PROCESSES}", *AHEAD, task="noop_def"
)
CHILDREN_USUAL = qo_worker(f"qo, def, --processes={PROCESSES}, defaults", f"--processes={PROCESSES}", task="noop_def")
RUST = Side(f"qo, Rust, {PERMITS:,} at once, claims of {BATCH:,}", "qo", ("{rust}", "drain", str(PERMITS), str(BATCH)))
CELERY = celery(f"Celery, prefork {PROCESSES}, prefetch multiplier 128, results ignored", 128)
CELERY_USUAL = celery(f"Celery, prefork {PROCESSES}, prefetch multiplier 4 (default), results ignored", 4)
CELERY_RESULTS = celery(
    f"Celery, prefork {PROCESSES}, prefetch multiplier 128, results in Redis", 128, keeps_results=True
)
PROCRASTINATE = [
    procrastinate(f"procrastinate, concurrency {concurrency}, pool of {pool}", concurrency, pool)
    for concurrency, pool in ((4, 4), (10, 10), (100, 20))
]
SLEEP = qo_worker("qo, async, sleeps", "--max-concurrent-tasks={count}", f"--claim-batch-size={BATCH}", task="sleep")

TO_PROCRASTINATE = tuple(side.name for side in PROCRASTINATE)
OWN_CHILDREN = (CHILDREN.name, CHILDREN_USUAL.name)
TO_CELERY = (CELERY.name, CELERY_USUAL.name)
ON_CHILDREN = f"sync noop, qo --processes={PROCESSES} to Celery prefork {PROCESSES}"
ON_LOOP = f"async noop on qo to Celery prefork {PROCESSES}"

RATIOS = [
    Ratio("procrastinate", "async noop, qo to procrastinate", (ASYNC.name,), TO_PROCRASTINATE, "times", Bar(5)),
    Ratio("procrastinate", "the same, qo at its defaults", (ASYNC_USUAL.name,), TO_PROCRASTINATE, "times", None),
    Ratio("celery", ON_CHILDREN, OWN_CHILDREN, TO_CELERY, "times", Bar(1)),
    Ratio("celery", "the same, Celery keeps results, as qo does", OWN_CHILDREN, (CELERY_RESULTS.name,), "times", None),
    Ratio("celery", "the same, both at their defaults", (CHILDREN_USUAL.name,), (CELERY_USUAL.name,), "times", None),
    Ratio("celery", ON_LOOP, (ASYNC.name,), TO_CELERY, "times", Bar(2)),
    Ratio("rust", "Python worker to Rust worker, async noop", (ASYNC.name,), (RUST.name,), "percent", Bar(25)),
    Ratio("def", "def to async, one process, defaults", (DEF_USUAL.name,), (ASYNC_USUAL.name,), "percent", Bar(50)),
]


def sides(scenarios: set[str]) -> list[Side]:
    """Return the sides that some scenarios compare, in the order of a round."""
    needed = {name for ratio in RATIOS if ratio.scenario in scenarios for name in (*ratio.ours, *ratio.theirs)}
    every = [ASYNC, RUST, *PROCRASTINATE, ASYNC_USUAL, DEF_USUAL, CHILDREN, CELERY, CELERY_RESULTS, CHILDREN_USUAL]
    return [side for side in [*every, CELERY_USUAL] if side.name in needed]
