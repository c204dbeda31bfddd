#!/usr/bin/env python3
"""Builds the Python package and tests it as its users have it.

    scripts/test_python.py [--python PATH] [PYTEST_ARGUMENT...]

1. Makes a virtual environment in a temporary folder, and installs the tools.
2. Makes a source distribution, builds the wheel from it alone, with the profile
   of the tests, and installs it there. The sources are unpacked at one place
   in the cache folder, and files that have not changed are left alone, so
   that cargo builds only what has changed.
3. Checks the package with ruff, mypy and pyright.
4. Runs the examples of the docstrings and the suite, outside of the checkout.

It needs the servers that scripts/with_postgres.py and scripts/with_s3.py start.

Exit status: 0 if all is well, 1 if a check or a test failed, 2 if the build
failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bindings" / "python"
REQUIREMENTS = PACKAGE / "tests" / "requirements.txt"

# What pip does for a source distribution.
SDIST = """
import pathlib, sys
sys.path.insert(0, "backend")
import qo_backend
pathlib.Path(sys.argv[1]).mkdir()
qo_backend.build_sdist(sys.argv[1])
"""
# What a source distribution must have beside the crates: the licences, and all that the wheel is made of.
NEEDED = ["Cargo.lock", "Cargo.toml", "PKG-INFO", "README.md", "backend/qo_backend.py", "pyproject.toml"]


def target() -> Path:
    """Where cargo builds."""
    told = subprocess.run(
        [os.environ.get("CARGO", "cargo"), "metadata", "--no-deps", "--format-version", "1"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return Path(json.loads(told.stdout)["target_directory"])


def place_of_sources() -> Path:
    """Where the sources are unpacked: one place for each target folder, and not below it.

    Cargo takes what it built from files below the target folder for fresh as long as these do not change. The checkout's
    own crates have the same names there, so its later builds would go on using the code of this one.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "qo" / "sdist" / hashlib.sha256(os.fsencode(target())).hexdigest()[:16]


def files_of(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def unpack(folder: Path, aside: Path) -> Path | None:
    """Unpack a source distribution at a place that stays, and check that it is whole. None if it is not."""
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(aside, filter="data")
    (fresh,) = aside.iterdir()
    package = {path for path in files_of(PACKAGE / "python") if path.suffix in (".py", ".pyi", ".typed")}
    missing = [name for name in NEEDED if not (fresh / name).is_file()]
    missing += [f"python/{path}" for path in sorted(package - files_of(fresh / "python"))]
    if missing:
        print("The source distribution lacks:", *missing, file=sys.stderr)
        return None
    place = place_of_sources()
    for path in files_of(place) - files_of(fresh):
        (place / path).unlink()
    for path in files_of(fresh):
        content = (fresh / path).read_bytes()
        if not (place / path).is_file() or (place / path).read_bytes() != content:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            # With the time of now, by which cargo knows that it has changed.
            (place / path).write_bytes(content)
    return place


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the Python package and tests it.")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to test with")
    arguments, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="qo-python-") as folder:
        return test(Path(folder), arguments.python, rest)


def test(folder: Path, interpreter: str, arguments: list[str]) -> int:
    environment = os.environ | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "QO_BUILD_PROFILE": os.environ.get("QO_BUILD_PROFILE", "dev"),
        "QO_CHECKOUT": str(ROOT),
        # The unpacked sources are built where the checkout is.
        "CARGO_TARGET_DIR": str(target()),
        # `qo` of the wheel, for the examples that use it.
        "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}",
    }

    def run(*command: object, cwd: Path = folder) -> bool:
        return subprocess.run([str(word) for word in command], cwd=cwd, env=environment, check=False).returncode == 0

    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    prepared = (
        run(interpreter, "-m", "venv", folder / "venv")
        and run(*pip, "install", "-r", REQUIREMENTS)
        and run(python, "-c", SDIST, folder / "sdist", cwd=PACKAGE)
        and (sources := unpack(folder / "sdist", folder / "unpacked")) is not None
        and run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheels", sources)
        and run(*pip, "install", next((folder / "wheels").glob("*.whl"), folder / "no-wheel"))
    )
    if not prepared:
        return 2
    # Not from the checkout: there `import qo` would find the sources, without the extension.
    shutil.copytree(PACKAGE / "tests", folder / "tests")
    shutil.copy(PACKAGE / "pyproject.toml", folder)
    checks = [
        [python, "-m", "ruff", "check", "--quiet", PACKAGE],
        [python, "-m", "ruff", "format", "--check", "--quiet", PACKAGE],
        [python, "-m", "mypy", "--config-file", PACKAGE / "pyproject.toml", "-p", "qo"],
        [python, "-m", "pyright", "--project", folder, "--pythonpath", python, folder / "venv" / "lib" / "qo"],
        [python, "-m", "pytest", "--doctest-modules", "--pyargs", "qo"],
        [python, "-m", "pytest", "--durations", "10", *(arguments or ["tests"])],
    ]
    # Pyright reads an installed package as a library: it checks sources that it is given.
    sources = folder / "venv" / "lib" / "qo"
    shutil.copytree(PACKAGE / "python" / "qo", sources, ignore=shutil.ignore_patterns("*.so", "qo-guard"))
    failed = [command for command in checks if not run(*command)]
    for command in failed:
        print("FAILED:", *command, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
