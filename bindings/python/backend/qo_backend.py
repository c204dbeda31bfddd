"""Builds the wheel: maturin builds the extension, and cargo the guard that the wheel ships beside it.

The guard is an executable of its own, because the guards of programs and child processes start without Python.

`QO_BUILD_PROFILE=dev` builds both as the tests do, which is faster.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def _package() -> Path:
    """Find the folder of the Python package: in a checkout, or in an unpacked source distribution."""
    for folder in (Path(), Path("bindings/python")):
        if (folder / "python" / "qo").is_dir():
            return folder / "python" / "qo"
    msg = "there is no folder python/qo here"
    raise FileNotFoundError(msg)


def _prepare() -> None:
    profile = os.environ.get("QO_BUILD_PROFILE", "release")
    os.environ.setdefault("MATURIN_PEP517_ARGS", f"--profile {profile} --locked")
    command = [
        "cargo",
        "build",
        "--locked",
        "--profile",
        profile,
        "-p",
        "qo-cli",
        "--bin",
        "qo-guard",
        "--features",
        "guard",
    ]
    built = subprocess.run([*command, "--message-format=json-render-diagnostics"], check=True, stdout=subprocess.PIPE)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith(b"{")]
    guard = next(message["executable"] for message in reversed(messages) if message.get("executable"))
    target = _package() / "qo-guard"
    shutil.copy2(guard, target)
    if profile != "release":
        subprocess.run(["strip", target], check=False)


def build_wheel(folder: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """Build a wheel."""
    _prepare()
    name: str = maturin.build_wheel(folder, settings, metadata)
    return name


def build_editable(folder: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """Build an editable wheel."""
    _prepare()
    name: str = maturin.build_editable(folder, settings, metadata)
    return name
