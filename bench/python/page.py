"""The page of the results, for people."""

from __future__ import annotations

import statistics
from typing import Any

import figures

import plan

FAIRNESS = f"""\
**How it is timed.** Jobs are submitted before the worker starts; tables are then vacuumed and analyzed, and the server
checkpoints. The clock runs from the beginning of the first job, by the jobs' own records, until the store has settled
the last one: every process records its jobs in the same way, and the store is asked only when all handlers have ended.
So starting up counts for no side, and settling counts for every side, also where it is done in batches. What a side
claims before its first job begins is not timed: {plan.BATCH:,} jobs for qo with claims of that size, one for
procrastinate, the prefetched ones for Celery. No side logs its jobs.

**qo** runs as `qo worker`, keeps finished jobs with their results for its default retention, and is on PostgreSQL in
all figures. **procrastinate** is on the same server, in one process, with `listen_notify` and finished jobs kept, which
are its defaults; the faster of its settings counts. **Celery** has its prefork pool on Redis with the advice of its own
page on short tasks (a large prefetch multiplier), gossip, mingle and heartbeat off, and acknowledges early, as is its
default; its faster setting without results counts, although qo keeps results. Redis writes nothing to the disk, and
PostgreSQL waits for it: the comparison with Celery is one of whole systems as they are used, and gives Celery the
cheaper guarantees. **Rust** is the same worker and client without Python: one process, the same jobs, the same
settings.
"""


def shown(value: float, unit: str) -> str:
    """Write a value with its unit."""
    match unit:
        case "times":
            return f"{value:.2f} ×"  # noqa: RUF001
        case "seconds":
            return f"{value:.2f} s"
        case "MiB":
            return f"{value:.0f} MiB"
        case _:
            return figures.shown(value, unit)


def row(figure: dict[str, Any]) -> str:
    """Write a row of the table of bars."""
    unit = figure["unit"]
    values = [shown(figure[name], unit) for name in ("median", "min", "max")]
    bar, verdict = "", ""
    if figure["bar"]:
        ((kind, value),) = figure["bar"].items()
        bar = f"{'≤' if kind == 'at_most' else '≥'} {shown(value, unit)}"
        verdict = "reached" if figure["reached"] else "**missed**"
    cells = [f"`{figure['scenario']}`", figure["figure"], f"**{values[0]}**", *values[1:], bar, verdict]
    return "| " + " | ".join(cells) + " |"


def rates(results: dict[str, Any]) -> list[str]:
    """Write the rates behind the ratios."""
    lines = ["| | median | min | max | until the last handler ended |", "|---|---|---|---|---|"]
    for name, drained in results["drains"].items():
        values = [one["jobs"] / one["seconds"] for one in drained]
        handlers = statistics.median(one["jobs"] / one["handlers"] for one in drained if one["handlers"])
        numbers = [statistics.median(values), min(values), max(values), handlers]
        lines.append(f"| {name} | " + " | ".join(f"{number:,.0f} jobs/s" for number in numbers) + " |")
    for name, values in results["submits"].items():
        numbers = [statistics.median(values), min(values), max(values)]
        lines.append(f"| {name} | " + " | ".join(f"{number:,.0f} jobs/s" for number in numbers) + " | |")
    return lines


def written(results: dict[str, Any]) -> str:
    """Write the page."""
    facts = results["facts"]
    postgres, redis = facts["postgres"], facts["redis"]
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    lines = ["# qo from Python", "", f"`{results['command']}` {figures.on(results['machine'])}", ""]
    lines += [f"qo at {facts['commit']}; Python {facts['python']}; {packages}."]
    lines += [f"PostgreSQL {postgres['server_version']}, fsync {postgres['fsync']}, synchronous_commit"]
    lines[-1] += f" {postgres['synchronous_commit']}, shared_buffers {postgres['shared_buffers']}; a small commit takes"
    lines[-1] += f" {postgres['commit_ms']:.2f} ms. Redis {redis['server_version']}, no snapshots, no append-only file."
    lines += [f"{results['jobs']:,} jobs a drain, {results['rounds']} rounds, in which the sides take turns;"]
    lines[-1] += " a ratio is one of the same round; median, smallest and largest."
    lines += ["", *figures.TABLE, *(row(one) for one in results["figures"])]
    if results["drains"] or results["submits"]:
        lines += ["", "## Rates", "", *rates(results)]
    lines += ["", "## What is compared", "", FAIRNESS.rstrip(), "", "Workers, as they were started:", ""]
    lines += [f"- {name}: `{command}`" for name, command in results["commands"].items()]
    return "\n".join(lines) + "\n"
