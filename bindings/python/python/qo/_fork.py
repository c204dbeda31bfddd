"""Forks: a child keeps no lock of its parent alive.

A child has copies of its parent's descriptors. A lock on a file lasts until the last copy is closed, so a child that
lives on would hold the locks of a parent that was killed. The child closes its copies of files in namespaces.
"""

from __future__ import annotations

import os

_DIRECTORIES: set[str] = set()


def watch(url: str) -> None:
    """Remember the directory of a namespace."""
    scheme, _, rest = url.partition(":")
    if scheme == "file":
        path, _, query = rest.rpartition("?")
        if not path or "/" in query:
            path = rest
        path = path.removeprefix("//localhost").removeprefix("//") if path.startswith("//") else path
        _DIRECTORIES.add(os.path.realpath(os.path.expanduser(path)))  # noqa: PTH111


def _after_fork_in_child() -> None:
    if not _DIRECTORIES:
        return
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    except OSError:
        return
    nothing: int | None = None
    for descriptor in descriptors:
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        except OSError:
            # That of the listing itself.
            continue
        if any(path == directory or path.startswith(f"{directory}/") for directory in _DIRECTORIES):
            # The number stays taken, because objects of the parent that are freed here close it once more.
            if nothing is None:
                nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nothing, descriptor, inheritable=False)
    if nothing is not None:
        os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
