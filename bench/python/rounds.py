"""Measures, round by round: in every second round the order is turned around."""

from __future__ import annotations

import dataclasses
import json
import statistics
from typing import TYPE_CHECKING, Any

from figures import say

import plan
from drain import Drained, Side, drain
from ground import SIDES, Ground

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

TIME_IMPORT = "import time; began = time.perf_counter(); import qo; print(time.perf_counter() - began)"
CALLS = 3
"""Calls of submit_many that a process times; their median counts."""


def in_turn(rounds: int, turns: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Let the sides take turns."""
    for number in range(rounds):
        for name, turn in turns if number % 2 == 0 else reversed(turns):
            say(f"round {number + 1} of {rounds}: {name}")
            turn()


def figure(scenario: str, what: str, unit: str, values: list[float], bar: plan.Bar | None) -> dict[str, Any]:
    """Make a row of the table."""
    median = statistics.median(values)
    limit = None if bar is None else {"at_most" if bar.is_most else "at_least": bar.value}
    row = {"scenario": scenario, "figure": what, "unit": unit, "median": median}
    row |= {"min": min(values), "max": max(values), "bar": limit}
    return row | {"reached": None if bar is None else bar.reached(median), "rounds": values}


def drains(ground: Ground, options: Namespace, scenarios: set[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Measure the drains, and return their ratios and their rates."""
    chosen = plan.sides(scenarios)
    found: dict[str, list[Drained]] = {side.name: [] for side in chosen}

    def turn(side: Side) -> Callable[[], None]:
        def once() -> None:
            drained = drain(ground, side, options.jobs)
            found[side.name].append(drained)
            say(f"  {drained.rate:,.0f} jobs/s")

        return once

    in_turn(options.rounds, [(side.name, turn(side)) for side in chosen])
    rates = {name: [drained.rate for drained in all_rounds] for name, all_rounds in found.items()}
    ratios = [compared(ratio, rates) for ratio in plan.RATIOS if ratio.scenario in scenarios]
    raw = {name: [dataclasses.asdict(drained) for drained in all_rounds] for name, all_rounds in found.items()}
    return ratios, raw


def compared(ratio: plan.Ratio, rates: dict[str, list[float]]) -> dict[str, Any]:
    """Compare, round by round, the fastest setting of one with the fastest of the other."""
    ours, theirs = (max(names, key=lambda name: statistics.median(rates[name])) for names in (ratio.ours, ratio.theirs))
    scale = 100.0 if ratio.unit == "percent" else 1.0
    values = [scale * one / other for one, other in zip(rates[ours], rates[theirs], strict=True)]
    return figure(ratio.scenario, ratio.figure, ratio.unit, values, ratio.bar) | {"ours": ours, "theirs": theirs}


def submits(ground: Ground, options: Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Measure submit_many from Python and from Rust."""
    jobs = options.submits
    found: dict[str, list[float]] = {"Python": [], "Rust": []}

    def turn(side: str, command: list[object]) -> Callable[[], None]:
        def once() -> None:
            schema = f"qo_bench_python_submit_{side.lower()}"
            ground.schema("drop", schema)
            told = ground.run(command, BENCH_STORE=f"{ground.server}?schema={schema}")
            ground.schema("drop", schema)
            found[side].append(jobs / statistics.median(json.loads(told)))
            say(f"  {found[side][-1]:,.0f} jobs/s")

        return once

    python = turn("Python", [ground.qo, SIDES / "qo_side.py", "submit-many", jobs, CALLS])
    rust = turn("Rust", [ground.rust, "submit", jobs, CALLS])
    in_turn(options.rounds, [("submit_many from Python", python), ("submit_many from Rust", rust)])
    ratios = [100 * ours / theirs for ours, theirs in zip(found["Python"], found["Rust"], strict=True)]
    row = figure("submit", f"submit_many of {jobs:,}, Python to Rust", "percent", ratios, plan.Bar(40))
    return [row], {f"submit_many of {jobs:,} from {side}": rates for side, rates in found.items()}


def sleeps(ground: Ground, options: Namespace) -> list[dict[str, Any]]:
    """Measure jobs that wait for a second, all of them at once."""
    jobs = options.sleeps
    command = tuple(word.replace("{count}", str(jobs)) for word in plan.SLEEP.command)
    side = dataclasses.replace(plan.SLEEP, command=command)
    found: list[Drained] = []
    in_turn(options.rounds, [(f"{jobs:,} sleeps of 1 s", lambda: found.append(drain(ground, side, jobs)))])
    what = f"{jobs:,} asyncio.sleep(1) at max_concurrent_tasks={jobs}"
    seconds, starts = [drained.seconds for drained in found], [drained.from_start for drained in found]
    memory = [drained.peak_mib for drained in found]
    return [
        figure("sleep", f"{what}: first start to last settled", "seconds", seconds, plan.Bar(3, is_most=True)),
        figure("sleep", f"{what}: from the start of the process", "seconds", starts, None),
        figure("sleep", f"{what}: peak RSS of the worker", "MiB", memory, plan.Bar(300, is_most=True)),
    ]


def imports(ground: Ground, options: Namespace) -> list[dict[str, Any]]:
    """Measure `import qo` in fresh processes. The first one fills the caches and does not count."""
    values = [1000 * float(ground.run([ground.qo, "-c", TIME_IMPORT])) for _ in range(options.imports + 1)][1:]
    return [figure("import", "import qo", "ms", values, plan.Bar(60, is_most=True))]
