#!/usr/bin/env python3
"""Tests the page of `qo serve` in headless Chromium, as people see it.

    scripts/test_page.py [--pictures]

1. Installs Chromium with apt-get if it is missing, and the driver
   (crates/qo-server/tests/browser) with npm in the cache folder
   ${XDG_CACHE_HOME:-~/.cache}/qo/browser.
2. Builds `qo` with the profile of the tests.
3. Starts a server on a temporary directory and real workers, opens every page,
   does every action, and has axe-core look at all of it.

With --pictures, or QO_REWRITE=1, it also takes the pictures of the README
(docs/images/page-*.png).

Exit status: 0 if all is well, 1 if a test failed, 2 if something is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "crates" / "qo-server" / "tests" / "browser"
PICTURES = ROOT / "docs" / "images"
CARGO = os.environ.get("CARGO", "cargo")
# How long the tests may take.
PATIENCE_SECONDS = 300
# Larger pictures would make the repository heavy.
LARGEST_PICTURE = 150_000
BROWSERS = ["chromium", "chromium-browser", "google-chrome"]


def run(*command: object, **options: Any) -> bool:
    return subprocess.run([str(word) for word in command], check=False, **options).returncode == 0


def install(*packages: str) -> None:
    """Installs packages of the distribution, where it is one with apt-get."""
    if shutil.which("apt-get") is None:
        return
    become_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    apt = [*become_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=60"]
    command = [*apt, "install", "-y", "--no-install-recommends", *packages]
    if not run(*command):
        run(*apt, "update")
        run(*command)


def browser() -> str | None:
    """Chromium, from the distribution if there is none."""
    if not any(map(shutil.which, BROWSERS)):
        install("chromium", "fonts-dejavu-core")
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def driver() -> Path | None:
    """The driver with its packages, installed once for each lock file."""
    if not shutil.which("npm"):
        install("nodejs", "npm")
    if not shutil.which("npm"):
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qo" / "browser"
    lock = (TESTS / "package-lock.json").read_bytes()
    folder = cache / hashlib.sha256(lock).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for file in TESTS.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    if not (folder / "installed").exists():
        if not run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=folder):
            return None
        (folder / "installed").touch()
    return folder


def binary() -> str | None:
    """The program `qo`, where cargo says it is."""
    command = [CARGO, "build", "--locked", "-q", "-p", "qo-cli", "--bin", "qo", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        return None
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    programs = [message["executable"] for message in messages if message.get("executable")]
    return programs[-1] if programs else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Tests the page of qo serve in headless Chromium.")
    parser.add_argument("--pictures", action="store_true", help="take the pictures of the README")
    arguments = parser.parse_args()
    chromium, folder, qo = browser(), driver(), binary()
    if not (chromium and folder and qo):
        needed = {"chromium": chromium, "the driver's packages": folder, "the program qo": qo}
        print("missing:", ", ".join(name for name, found in needed.items() if not found), file=sys.stderr)
        return 2
    # A store of the caller's own must not be used.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QO_")}
    environment |= {"QO_TEST_BINARY": qo, "QO_TEST_CHROMIUM": chromium}
    if arguments.pictures or os.environ.get("QO_REWRITE"):
        PICTURES.mkdir(exist_ok=True)
        environment["QO_TEST_PICTURES"] = str(PICTURES)
    with tempfile.TemporaryDirectory(prefix="qo-page-") as world:
        environment["QO_TEST_FOLDER"] = world
        command = ["node", "--test", "--test-reporter=spec", "page.test.mjs"]
        try:
            passed = run(*command, cwd=folder, env=environment, timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"not within {PATIENCE_SECONDS} s", file=sys.stderr)
            passed = False
    large = [path.name for path in PICTURES.glob("page-*.png") if path.stat().st_size > LARGEST_PICTURE]
    if large:
        print(f"larger than {LARGEST_PICTURE} bytes:", *large, file=sys.stderr)
    return 0 if passed and not large else 1


if __name__ == "__main__":
    sys.exit(main())
