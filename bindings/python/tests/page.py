"""A page of the documentation: its examples, and how they run.

Every block of code runs, in the order of the page, in a folder of the page's own.

| block | what becomes of it |
|---|---|
| any, whose first line is the name of a file, as in `# jobs.py` | it is saved as that file |
| `python` | it runs, and its names live on in the page's next block; `await` may stand outside of functions |
| `sh` | it runs, in one shell for the whole page |
| `text`, after a block that ran | each of its lines is in the output of that block; `…` stands for any text |
| any, after a line `<!-- not run: … -->` | nothing |

    python -c "import page; page.run()" PAGE

runs a page in the current folder. The test runs this in a process of its own, because a page may leave workers behind.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import queue
import re
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SAVED = re.compile(r"# (\S+\.(?:py|toml|ini|txt))")
SKIP = "<!-- not run"
MARK = "@@ end of block"
END = "@@ end of shell"


@dataclass
class Block:
    """A block of code."""

    language: str
    text: str
    line: int
    """The number of its first line in the page."""
    is_skipped: bool = False

    @property
    def file(self) -> str | None:
        """The file that it is to be saved as."""
        named = SAVED.fullmatch(self.text.split("\n", 1)[0])
        return named and named[1]


def blocks(text: str) -> Iterator[Block]:
    """Find the blocks of a page."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if lines[at].startswith("```"):
            end = lines.index("```", at + 1)
            is_skipped = at > 0 and lines[at - 1].startswith(SKIP)
            yield Block(lines[at][3:], "\n".join(lines[at + 1 : end]), at + 2, is_skipped)
            at = end
        at += 1


def shows(output: str, expected: str) -> bool:
    """Whether a line of the output is like this one, in which `…` stands for any text."""
    parts = [re.escape(" ".join(part.split())) for part in expected.split("…")]
    pattern = re.compile(r"\s*.*?\s*".join(parts))
    return any(pattern.fullmatch(" ".join(line.split())) for line in output.splitlines())


class Shell:
    """A shell that runs blocks one after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["sh", "-eu"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        # The end of its output is no sign: a worker in the background keeps the pipe open.
        self._say(f"trap 'echo; echo {END}' EXIT")

    def _say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        # A worker in the background writes whether or not a block runs.
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put(END)

    def run(self, block: Block) -> str:
        """Run a block, and return what it has printed."""
        script = Path(f".block-{block.line}.sh")
        script.write_text(block.text)
        # The block must not read the shell's own commands.
        self._say(f". ./{script} < /dev/null\necho; echo '{MARK}'")
        output = ""
        while (line := self._lines.get()).strip() not in (MARK, END):
            output += line
        assert line.strip() == MARK, f"a command failed:\n{output}"
        return output


class Runner:
    """Runs the blocks of a page."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._shell: Shell | None = None
        # As at a prompt: what blocks define is in `__main__`.
        self._names = vars(sys.modules["__main__"])

    def run(self, block: Block) -> str:
        """Run a block, and return what it has printed."""
        if block.file is not None:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(f"{block.text}\n")
            return ""
        if block.language == "sh":
            self._shell = self._shell or Shell()
            return self._shell.run(block)
        if block.language == "python":
            return self._python(block)
        return ""

    def _python(self, block: Block) -> str:
        # Lines have the numbers that they have in the page.
        source = "\n" * (block.line - 1) + block.text
        code = compile(source, self._path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            if code.co_flags & inspect.CO_COROUTINE:
                self._loop.run_until_complete(eval(code, self._names))  # noqa: S307
            else:
                exec(code, self._names)  # noqa: S102
        return output.getvalue()


def run() -> None:
    """Run the page that is named on the command line, in the current folder."""
    path = sys.argv[1]
    sys.path.insert(0, str(Path.cwd()))
    page = Path(path).read_text().replace("8765", free_port())
    runner, output, before = Runner(path), "", ""
    only_python = "--python" in sys.argv[2:]
    for block in blocks(page):
        if block.is_skipped or (only_python and block.language != "python"):
            before = ""
            continue
        place = f"{path}:{block.line}"
        if block.language == "text" and before:
            missing = [line for line in block.text.split("\n") if line.strip() and not shows(output, line)]
            if missing:
                sys.exit(f"{place}: not in the output: {missing}\nThe output is:\n{output}")
            continue
        before = block.language
        try:
            output = runner.run(block)
        except BaseException:  # noqa: BLE001 -- SystemExit, too
            traceback.print_exc()
            sys.exit(f"{place}: the block failed")


def free_port() -> str:
    """A port that is free, in the place of 8765, which stands in the pages."""
    with socket.create_server(("localhost", 0)) as server:
        return str(server.getsockname()[1])
