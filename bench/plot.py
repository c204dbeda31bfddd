#!/usr/bin/env python3
"""Draws bench/results/postgres.json as bench/results/postgres.svg. It needs nothing but Python.

Above: the scenarios, as percentages of the rate that they are compared with, each with the bar that it must
reach. Below: jobs a second through the worker, beside the peer.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
WIDTH, LABEL, ROW, TOP = 960, 400, 26, 44
GOOD, BAD, PEER, LINE = "#2f7d4f", "#b4492f", "#8a8f98", "#1f2328"


def drawn(results: dict[str, Any]) -> str:
    """The whole picture."""
    parts: list[str] = []
    height = TOP
    ratios = list(ratio_rows(results))
    if ratios:
        most = max(110.0, *(row["high"] for row in ratios))
        parts += heading(height, "To the rate without limits (a line is the bar; whiskers are the rounds)")
        for row in ratios:
            height += ROW
            parts += bar(height, row, most, f"{row['value']:.0f} %")
        height += TOP + ROW
    rates = list(rate_rows(results))
    most = max(row["high"] for row in rates)
    parts += heading(height, "Jobs a second through the worker, none kept")
    for row in rates:
        height += ROW
        parts += bar(height, row, most, f"{row['value']:,.0f}")
    height += TOP
    style = "text{font:13px system-ui,sans-serif;fill:#1f2328}.h{font-weight:600}.v{font-size:12px}"
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    background = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([opening, f"<style>{style}</style>", background, *parts, "</svg>"]) + "\n"


def ratio_rows(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for figure in (results["scenarios"] or {}).get("figures", []):
        bar_at = (figure["bar"] or {}).get("at_least")
        if figure["unit"] == "percent" and bar_at is not None:
            name = f"{figure['scenario']}: {figure['figure']}"
            colour = GOOD if figure["reached"] else BAD
            spread = {"low": figure["min"], "high": figure["max"]}
            yield {"name": name, "value": figure["median"], "bar": bar_at, "colour": colour, **spread}


def rate_rows(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, rates in results["peers"]["rates"].items():
        if "kept" not in name:
            colour = GOOD if name.startswith("qo") else PEER
            spread = {"low": min(rates), "high": max(rates)}
            yield {"name": name, "value": statistics.median(rates), "bar": None, "colour": colour, **spread}


def heading(y: int, text: str) -> list[str]:
    return [f'<text class="h" x="16" y="{y - 8}">{escape(text)}</text>']


def bar(y: int, row: dict[str, Any], most: float, value: str) -> list[str]:
    """One line of a chart."""
    room = WIDTH - LABEL - 90

    def x(at: float) -> float:
        return LABEL + room * at / most

    middle = y - ROW / 2 + 4
    name = row["name"] if len(row["name"]) <= 62 else row["name"][:60] + "…"
    parts = [
        f"<g><title>{escape(row['name'])}: {escape(value)}</title>",
        f'<text x="{LABEL - 8}" y="{middle + 4:.1f}" text-anchor="end" class="v">{escape(name)}</text>',
        f'<rect x="{LABEL}" y="{middle - 8:.1f}" width="{x(row["value"]) - LABEL:.1f}" height="16" fill="{row["colour"]}"/>',
        f'<path d="M{x(row["low"]):.1f} {middle:.1f}H{x(row["high"]):.1f}" stroke="{LINE}" stroke-width="1"/>',
        f'<text x="{x(row["high"]) + 8:.1f}" y="{middle + 4:.1f}" class="v">{escape(value)}</text>',
    ]
    if row["bar"] is not None:
        at = x(row["bar"])
        parts.append(f'<path d="M{at:.1f} {middle - 11:.1f}v22" stroke="{LINE}" stroke-width="2"/>')
    return [*parts, "</g>"]


if __name__ == "__main__":
    found = json.loads((RESULTS / "postgres.json").read_text())
    (RESULTS / "postgres.svg").write_text(drawn(found))
