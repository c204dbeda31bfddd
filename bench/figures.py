"""What pages of figures have in common: the machine, values with their units, and rows of tables."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ["| scenario | figure | median | min | max | bar | |", "|---|---|---|---|---|---|---|"]


def build(*packages: str) -> Path:
    """Builds programs for release, and says where they are."""
    words = [word for package in packages for word in ("-p", package)]
    subprocess.run(["cargo", "build", "--release", "--locked", "-q", "--bins", "--features", "qo-cli/bench", *words], cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def machine() -> dict[str, Any]:
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpus": os.cpu_count(),
        "model": model,
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def on(host: dict[str, Any]) -> str:
    """The machine, in words."""
    return f"on {host['cpus']} CPUs ({host['model']}), {host['memory_gib']} GiB, {host['system']}."


def shown(value: float, unit: str) -> str:
    match unit:
        case "jobs_per_second":
            return f"{value:,.0f} jobs/s"
        case "percent":
            return f"{value:.1f} %"
        case "ms":
            return f"{value:.2f} ms"
        case "requests":
            return f"{value:g}"
        case "per_job":
            return f"{value:.4f}"
        case "per_minute":
            return f"{value:.1f}"
        case "mebibytes":
            return f"{value:.0f} MiB"
        case "dollars":
            return f"${value:.3f}"
        case _:
            return f"{value:.1f} µs"


def row(figure: dict[str, Any]) -> str:
    unit = figure["unit"]
    values = [shown(figure[name], unit) for name in ("median", "min", "max")]
    bar, verdict = "", ""
    if figure["bar"]:
        ((kind, value),) = figure["bar"].items()
        bar = f"{'≥' if kind == 'at_least' else '≤'} {shown(value, unit)}"
        verdict = "reached" if figure["reached"] else "**missed**"
    cells = [f"`{figure['scenario']}`", figure["figure"], f"**{values[0]}**", *values[1:], bar, verdict]
    return "| " + " | ".join(cells) + " |"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
