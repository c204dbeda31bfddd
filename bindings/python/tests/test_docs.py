"""The documentation says what is so: its examples run, and its reference names everything that is public."""

import inspect
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import page
import pytest
import qo
import qo.django
import qo.sync
import qo.testing
from qo._client import JobFilter
from qo._tasks import ScheduleOptions, TaskDeclaration

CHECKOUT = Path(os.environ.get("QO_CHECKOUT") or Path(__file__).parents[3])
PAGES = sorted((CHECKOUT / "docs" / "python").rglob("*.md"))
PATIENCE = 120
"""Seconds that the examples of a page may take. A page that hangs must not hang the suite."""


def run_page(path: Path, folder: Path, *flags: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QO_")}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "PYTHONPATH": str(Path(__file__).parent),
        "NO_COLOR": "1",
        "TZ": "UTC",
    }
    log = folder / ".log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", "import page; page.run()", str(path), *flags],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # Workers that the page has left in the background.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code == 0, f"{path}: {'it hangs' if code is None else f'exit code {code}'}\n{log.read_text()}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT / "docs" / "python")))
def test_the_examples_of_a_page_run(path, tmp_path):
    run_page(path, tmp_path)


def test_the_examples_on_the_page_of_the_wheel_run(tmp_path):
    run_page(CHECKOUT / "bindings" / "python" / "README.md", tmp_path)


def test_the_python_examples_of_the_readme_run(tmp_path):
    # Its other blocks are run by the tests of the command line.
    run_page(CHECKOUT / "README.md", tmp_path, "--python")


WRONG = {
    "a line that is not printed": "```python\nprint('one two three')\n```\n\n```text\none … four\n```\n",
    "a line that goes on": "```python\nprint('one two three')\n```\n\n```text\none two\n```\n",
    "an exception": "```python\nraise SystemExit\n```\n",
    "an exception after an await": "```python\nimport asyncio\nawait asyncio.sleep(0)\nraise KeyError\n```\n",
    "a command": "```sh\nsleep 100 &\nfalse\necho still here\n```\n",
    "a file": "```python\n# a.py\nx = 1\n```\n```python\nimport a\nassert a.x == 2\n```\n",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_page_that_is_wrong_fails(what, tmp_path):
    (tmp_path / "page.md").write_text(WRONG[what])
    with pytest.raises(AssertionError, match="exit code 1"):
        run_page(tmp_path / "page.md", tmp_path)


def test_a_page_that_is_right_passes(tmp_path):
    text = "```python\nprint('one two three')\n```\n\n```text\none … three\n```\n"
    (tmp_path / "page.md").write_text(f"{text}<!-- not run: why -->\n```sh\nfalse\n```\n")
    run_page(tmp_path / "page.md", tmp_path)


def test_a_block_that_is_not_run_says_why():
    for path in PAGES:
        for line in path.read_text().splitlines():
            if line.startswith(page.SKIP):
                assert re.fullmatch(r"<!-- not run: .{4,} -->", line), f"{path}: {line}"


REFERENCE = CHECKOUT / "docs" / "python" / "reference.md"
MODULES = {"Names of qo": qo, "qo.sync": qo.sync, "qo.testing": qo.testing, "qo.django": qo.django}
OPTIONS = {
    "Submit options": qo.SubmitOptions,
    "Task options": TaskDeclaration,
    "Schedule options": ScheduleOptions,
    "Worker options": qo.WorkerOptions,
}
CLASSES = {
    one.__name__: one
    for one in (
        qo.App,
        qo.Task,
        qo.Client,
        qo.Concurrency,
        qo.Slot,
        qo.JobHandle,
        qo.Workflow,
        qo.Context,
        qo.Job,
    )
}
# Public to the other modules of the package, not to its users.
INTERNAL = {"add", "app", "declare", "plan", "submit_described_sync"}


def sections() -> dict[str, str]:
    """The sections of the reference, by their headings."""
    parts = re.split(r"^## (.+)$", REFERENCE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def cells(section: str) -> list[list[str]]:
    """What stands in backquotes in the first cell of each row of its tables."""
    return [re.findall(r"`([^`]+)`", line.split(" | ")[0]) for line in section.splitlines() if line.startswith("| `")]


def named(section: str) -> dict[str, str]:
    """The names in the first cells, each with what stands behind it: its parameters."""
    return {re.match(r"\w+", text)[0]: re.sub(r"^\w+", "", text) for row in cells(section) for text in row}


def parameters(function: object) -> list[tuple[str, object, object]]:
    """The parameters of a function: names, kinds and defaults."""
    found = [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]
    return [one for one in found if one[0] != "self"]


def check_signature(written: str, function: object) -> None:
    """Compare a signature of the page with the real one."""
    if "…" in written:
        return
    on_page = parameters(eval(f"lambda {written[1:-1]}: None", {"QueueMode": qo.QueueMode}))  # noqa: S307
    real = parameters(function)
    if "connection" not in written:
        # Of Client: how other modules of the package make one.
        real = [one for one in real if one[0] != "connection"]
    assert on_page == real, f"{function}: the page has {written}"


def test_the_reference_has_every_public_name():
    everything = sections()
    for heading, module in MODULES.items():
        found = named(everything[heading])
        listed = set(re.findall(r"`(\w+)`", everything[heading])) | set(found)
        if module is qo:
            listed |= set(named(everything["Exceptions"]))
        assert set(module.__all__) <= listed, f"{module.__name__}: {set(module.__all__) - listed} are missing"
        assert set(found) <= set(module.__all__), f"{module.__name__} has no {set(found) - set(module.__all__)}"


@pytest.mark.parametrize("heading", OPTIONS)
def test_the_reference_has_every_option(heading):
    assert set(named(sections()[heading])) == OPTIONS[heading].__optional_keys__


def test_the_reference_has_every_part_of_a_filter():
    line = next(line for line in sections()["Names of qo"].splitlines() if line.startswith("| `JobFilter`"))
    assert set(re.findall(r"`(\w+)`", line)) == {"JobFilter", *JobFilter.__annotations__}


@pytest.mark.parametrize("heading", CLASSES)
def test_the_reference_has_every_member_of_a_class(heading):
    of = CLASSES[heading]
    written = named(sections()[heading])
    members = {
        name
        for name in dir(of)
        if not name.startswith("_") and "Not part of the interface" not in (inspect.getdoc(getattr(of, name)) or "")
    }
    missing = members - INTERNAL - set(written)
    assert not missing, f"{heading}: {missing} are not on the page"
    for name, signature in written.items():
        if signature.startswith("(") and name not in ("task", "options") and name in members:
            check_signature(signature, getattr(of, name))


@pytest.mark.parametrize("heading", MODULES)
def test_the_reference_has_the_signatures_of_functions_and_classes(heading):
    module = MODULES[heading]
    for name, signature in named(sections()[heading]).items():
        if signature.startswith("("):
            check_signature(signature, getattr(module, name))


def test_the_reference_has_every_field_of_what_stores_say():
    for line in sections()["What stores say"].splitlines():
        if not line.startswith("| `"):
            continue
        of, *fields = re.findall(r"`(\w+)`", line)
        real = set(getattr(getattr(qo, of), "__dataclass_fields__", {"next": None}))
        if of == "ConcurrencyStatus":
            fields.extend(qo.GroupInfo.__dataclass_fields__)
        unknown = {field for field in fields if not hasattr(getattr(qo, of), field)} - real
        assert real <= set(fields), f"{of}: {real - set(fields)} are not on the page"
        assert not unknown - {"GroupInfo", "group_full", "print", "after"}, f"{of} has no {unknown}"


def test_the_reference_has_every_exception_with_its_kind():
    for line in sections()["Exceptions"].splitlines():
        row = re.match(r"\| `(\w+)` \| `(\w+)` \|", line)
        if row:
            assert getattr(qo, row[1]).kind == row[2]
