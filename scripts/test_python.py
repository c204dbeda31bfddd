#!/usr/bin/env python3
"""Builds the Python package and tests it as its users have it.

    scripts/test_python.py [--python PATH] [PYTEST_ARGUMENT...]

1. Makes a virtual environment in a temporary folder, and installs the tools.
2. Builds the wheel, with the profile of the tests, and installs it there.
3. Checks the package with ruff, mypy and pyright.
4. Runs the examples of the docstrings and the suite, outside of the checkout.

It needs the servers that scripts/with_postgres.py and scripts/with_s3.py start.

Exit status: 0 if all is well, 1 if a check or a test failed, 2 if the build
failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bindings" / "python"
REQUIREMENTS = PACKAGE / "tests" / "requirements.txt"


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
        # `qo` of the wheel, for the examples that use it.
        "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}",
    }

    def run(*command: object) -> bool:
        return subprocess.run([str(word) for word in command], cwd=folder, env=environment, check=False).returncode == 0

    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    prepared = (
        run(interpreter, "-m", "venv", folder / "venv")
        and run(*pip, "install", "-r", REQUIREMENTS)
        and run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheels", PACKAGE)
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
