"""What type checkers say about programs that use qo."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
PACKAGE = Path(__file__).parent.parent


def mypy(file: Path) -> dict[int, str]:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--no-incremental",
        "--hide-error-context",
    ]
    ran = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False, cwd=file.parent)
    assert not ran.stderr, ran.stderr
    found = {}
    for line in ran.stdout.splitlines():
        name, number, kind, message = line.split(":", 3)
        if (kind.strip() == "error" and name == file.name) or name.endswith(f"/{file.name}"):
            found[int(number)] = message.strip()
    return found


def pyright(file: Path) -> dict[int, str]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--level", "error"]
    project = file.parent / "pyrightconfig.json"
    ran = subprocess.run([*command, "-p", str(project)], capture_output=True, text=True, check=False, cwd=file.parent)
    told = json.loads(ran.stdout)["generalDiagnostics"]
    of_file = [one for one in told if one["file"] == str(file)]
    return {one["range"]["start"]["line"] + 1: one["message"] for one in of_file}


@pytest.fixture(params=[mypy, pyright], ids=["mypy", "pyright"])
def check(request):
    return request.param


def test_right_calls_are_found_right(check):
    assert check(HERE / "right.py") == {}


def test_every_wrong_call_is_found_and_no_other(check):
    file = HERE / "wrong.py"
    lines = file.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    found = check(file)
    missed = [f"{number}: {lines[number - 1].strip()}" for number in sorted(wrong - found.keys())]
    strange = {number: found[number] for number in sorted(found.keys() - wrong)}
    assert (missed, strange) == ([], {})
