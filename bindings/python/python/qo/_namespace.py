"""A namespace: where jobs are. Opened by the first call; usable from any event loop and thread."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from . import _fork, _qo
from ._call import Question
from ._errors import Invalid

if TYPE_CHECKING:
    from ._call import Steps


class Namespace:
    """The connection that clients share. Making it opens nothing and starts no thread."""

    __slots__ = ("_is_closed", "connection", "url")

    def __init__(self, url: str, connection: _qo.Connection | None = None) -> None:
        if not isinstance(cast("object", url), str):
            raise Invalid.of("url", url, "must be the URL of a store, as in file:.qo, postgres://… or s3://…")
        self.url = url
        self.connection = _qo.connect(url) if connection is None else connection
        self._is_closed = False
        _fork.watch(url)

    def check_open(self) -> None:
        """Raise if it was closed."""
        if self._is_closed:
            raise RuntimeError("the client is closed: connect again")

    def ask(self, name: str, arguments: object = None, seconds: float | None = None) -> Question:
        """Make a call. `seconds` is how long to wait for its answer."""
        self.check_open()
        text = json.dumps(arguments, separators=(",", ":"))
        return Question(self.connection.call(name, text), seconds)

    def look(self) -> Steps[None]:
        """Open it now."""
        yield self.ask("now")

    def close(self) -> Steps[None]:
        """Close it. Calls raise from now on."""
        if not self._is_closed:
            question = Question(self.connection.close())
            self._is_closed = True
            yield question

    def migrate(self) -> Steps[Any]:
        """Make the namespace, or raise it to the version of this release."""
        self.check_open()
        return (yield Question(self.connection.migrate()))
