"""An app: its store, its tasks, and the worker that runs them."""

from __future__ import annotations

import copy
import importlib
import inspect
import logging
import os
import types
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast, overload

from ._call import drive
from ._client import Client
from ._errors import Invalid
from ._options import name as checked_name
from ._options import one_of
from ._settings import app_name, is_same_store, merged_configuration, read_settings, task_list, worker_settings
from ._tasks import BaseRouter, BaseTasks, Declares
from ._worker import Running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import ModuleType, TracebackType

    from typing_extensions import Self, Unpack

    from . import _qo
    from ._call import Steps
    from ._config import AppConfig
    from ._context import Context
    from ._handle import JobHandle, KeptJob, NewJob
    from ._namespace import Namespace
    from ._options import OnFailure
    from ._registered import Registered
    from ._settings import WorkerOptions
    from ._workflow import Workflow

M = TypeVar("M", bound="Callable[[Context], Iterator[Any] | AsyncIterator[Any]]")
_LOG = logging.getLogger("qo")
_APPS: weakref.WeakSet[BaseApp] = weakref.WeakSet()
_DEFAULT: list[BaseApp] = []


class BaseApp(BaseTasks):
    """What `qo.App` and `qo.sync.App` share."""

    def __init__(
        self,
        url: str | AppConfig | None = None,
        *,
        name: str | None = None,
        lifespan: Callable[[Any], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]] | None = None,
    ) -> None:
        super().__init__()
        self.config: AppConfig | None = None
        """The configuration in code, if there is one."""
        if url is None or isinstance(url, str):
            self._url = url
        elif hasattr(url, "check_against"):
            self.config, self._url = url, url.store
        else:
            raise Invalid.of("url", url, "must be the URL of a store, a qo.AppConfig, or left out to read .qo.toml")
        self._name = None if name is None else checked_name("name", name)
        self.state: Any = types.SimpleNamespace()
        """For what the lifespan makes and handlers use: `app.state.pool`."""
        self._lifespan = lifespan
        self._inside: dict[object, Any] = {}
        self._around: list[Callable[..., Any]] = []
        self._modules: list[str] = []
        self._included: dict[str, Registered] = {}
        self._running: list[Running] = []
        self._client: Any = None
        self._is_closed = False
        _APPS.add(self)

    @property
    def app(self) -> Self:
        """The app itself. Not part of the interface."""
        return self

    @property
    def name(self) -> str:
        """The name under which its workers push configuration. Defaults to that of `.qo.toml`, else `default`."""
        return self._name if self._name is not None else app_name(self.read_settings(), None)

    def read_settings(self) -> dict[str, Any]:
        """Read `.qo.toml` and the environment. Not part of the interface."""
        return read_settings()

    _client_class: ClassVar[Any] = Client

    @property
    def client(self) -> Any:
        """A client of its store."""
        return self._connected()

    @client.setter
    def client(self, client: Any) -> None:
        self._client = client

    def _connected(self) -> Any:
        """Return the client. It is made when it is first needed, and opened by its first call."""
        if self._is_closed:
            raise RuntimeError("the app is closed: entering it opens it again, as in `async with app:`")
        if self._client is None:
            if self._url is None:
                settings = self.read_settings()
                if self.config is not None:
                    self.config.check_against(settings)
                self._url = settings["store"]
            self._client = self._client_class(self._url)
        return self._client

    @property
    def namespace(self) -> Namespace:
        """The namespace of its client. Not part of the interface."""
        namespace: Namespace = self._connected().namespace
        return namespace

    @property
    def connection(self) -> _qo.Connection:
        """The extension's connection. Not part of the interface."""
        return self.namespace.connection

    def use_store(self, settings: Mapping[str, Any]) -> None:
        """Use the store of a flag. A file that names another one than the code is Invalid.

        Not part of the interface.
        """
        given = settings.get("given", {}).get("store")
        if self._url is None or (given is not None and given["kind"] == "flag"):
            self._url = settings["store"]
        elif self._url == "memory:" or given is None or is_same_store(self._url, settings["store"]):
            # The store of a test stands for any other.
            return
        elif given["kind"] == "environment":
            # A program may have apps on several stores: the variable cannot mean all of them.
            _LOG.warning("%s is not used: the code names the store of its app itself", given["source"])
        else:
            rule = f"{given['source']} names another store: leave one of them out"
            raise Invalid.of("store", self._url.partition("//")[0], rule)

    def add(self, registered: Registered) -> None:
        """Add a handler. Two of one name are refused. Not part of the interface."""
        super().add(registered)
        registered.middleware = self._around

    def include(self, what: Iterable[BaseRouter | ModuleType | str]) -> None:
        """Add tasks that are declared elsewhere: `qo.Tasks`, modules that have some, or names of modules.

        A module that is given by name is imported when a worker starts, or when one of its tasks is submitted.
        """
        if isinstance(what, (str, BaseRouter, types.ModuleType)):
            rule = "must be a list, as in app.include([tasks])"
            raise Invalid.of("include", what, rule)
        given: Iterable[Any] = what
        for one in given:
            if isinstance(one, str):
                self._modules.append(one)
            elif isinstance(one, BaseRouter):
                self._include(one)
            elif isinstance(one, types.ModuleType):
                self._include_module(one)
            else:
                raise Invalid.of("include", one, "must be a qo.Tasks, a module, or the name of a module")

    def _include(self, router: BaseRouter) -> None:
        self.add_all(router)
        router.included_by(self)

    def add_all(self, router: BaseRouter) -> None:
        """Add what a router has and this app has not. Not part of the interface."""
        for name, registered in router.tasks.items():
            if self._included.get(name) is not registered:
                # Of its own, because it has middleware of its own.
                self.add(copy.copy(registered))
                self._included[name] = registered
        for name, schedule in router.schedules.items():
            if self.schedules.setdefault(name, schedule) is not schedule:
                raise Invalid.of("schedule", name, "is declared twice: give one of them a name")

    def _include_module(self, module: ModuleType) -> None:
        for value in list(vars(module).values()):
            if isinstance(value, BaseRouter):
                self._include(value)

    def load(self) -> None:
        """Import the modules that it includes by name. Not part of the interface."""
        while self._modules:
            name = self._modules[0]
            self._include_module(importlib.import_module(name))
            if name in self._modules:
                self._modules.remove(name)
        from ._job_registry import adopt_if_default  # noqa: PLC0415 -- it imports this module

        adopt_if_default(self)

    def middleware(self, function: M) -> M:
        """Run a function `(ctx)` around every attempt: a generator that yields once.

        An async generator runs around attempts of `async def` handlers only. An exception of the handler is raised at
        the yield. The first that is declared is the outermost.

        >>> import time, qo
        >>> app = qo.App("memory:")
        >>> @app.middleware
        ... def timed(ctx: qo.Context):
        ...     began = time.monotonic()
        ...     try:
        ...         yield
        ...     finally:
        ...         ctx.log(f"it took {time.monotonic() - began:.3f} s")
        """
        if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
            raise Invalid.of("middleware", function, "must be a function with one yield, async or not")
        self._around.append(function)
        return function

    async def enter_lifespan(self) -> object:
        """Enter the lifespan, once per worker. Return what `exit_lifespan` takes. Not part of the interface."""
        inside: Any = None if self._lifespan is None else self._lifespan(self)
        if inside is None:
            pass
        elif hasattr(inside, "__aenter__"):
            await inside.__aenter__()
        elif hasattr(inside, "__enter__"):
            inside.__enter__()
        else:
            rule = "must return a context manager: decorate it with contextlib.asynccontextmanager"
            raise Invalid.of("lifespan", self._lifespan, rule)
        token = object()
        self._inside[token] = inside
        return token

    async def exit_lifespan(self, token: object = None) -> None:
        """Leave the lifespan that was entered with a token; without one, the newest. Not part of the interface."""
        if token is None and self._inside:
            token = next(reversed(self._inside))
        inside: Any = self._inside.pop(token, None)
        if hasattr(inside, "__aexit__"):
            await inside.__aexit__(None, None, None)
        elif inside is not None:
            inside.__exit__(None, None, None)

    def describe_worker(self, settings: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """Describe a worker of this app. Not part of the interface."""
        settings = self.read_settings() if settings is None else settings
        if self.config is not None and settings:
            self.config.check_against(settings)
        self.load()
        tasks = list(self.tasks.values())
        described = worker_settings(settings, self.config, options)
        described["app"] = app_name(settings, self._name)
        described["tasks"] = task_list(settings, tasks)
        schedules = dict(self.schedules)
        for task in tasks:
            schedules.update(task.schedules())
        configuration = merged_configuration(settings, self.config, tasks, schedules)
        says_something = any(configuration.values()) or settings.get("configuration") is not None
        # An app that has a name says all that there is to say: what it no longer says is taken back. Without a name it
        # may share `default` with others.
        if says_something or self._name is not None:
            described["configuration"] = {**configuration, "app": described["app"]}
        return described

    async def run_worker(
        self,
        *,
        until_signal: bool = True,
        on_stuck: Literal["exit", "tell"] | Callable[[Context], Any] = "exit",
        **options: Any,
    ) -> None:
        """Run a worker, on the event loop of the caller. Not part of the interface."""
        settings = self.read_settings()
        self.use_store(settings)
        described = self.describe_worker(settings, **options)
        described["programs"] = settings.get("programs", [])
        described["guard"] = os.path.join(os.path.dirname(__file__), "qo-guard")  # noqa: PTH118, PTH120
        if not callable(on_stuck):
            one_of("on_stuck", on_stuck, ("exit", "tell"))
        described["tell_stuck"] = on_stuck != "exit"
        running = Running(self, described, on_stuck=on_stuck if callable(on_stuck) else None)
        self._running.append(running)
        try:
            await running.run(until_signal=until_signal)
        finally:
            self._running.remove(running)

    def shutdown(self) -> None:
        """End the workers that `run` has started, when the jobs that run have ended. Callable from any thread."""
        for running in list(self._running):
            running.drain()

    async def aclose(self) -> None:
        """Close the client, of both kinds of app. Not part of the interface."""
        await drive(self._close())

    def _close(self) -> Steps[None]:
        client, self._client, self._is_closed = self._client, None, True
        if client is not None:
            yield from client.namespace.close()

    def _reopen(self) -> None:
        """Let a closed app be used again."""
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name or 'without a name'}: {len(self.tasks)} tasks>"


def forget(app: BaseApp) -> None:
    """Let an app never be the default by itself. Not part of the interface."""
    _APPS.discard(app)


def load_all() -> None:
    """Import the modules that apps include by name."""
    for app in list(_APPS):
        app.load()


def set_default(app: BaseApp) -> None:
    """Make an app the process's default: classes of `qo.Job` that name no app belong to it."""
    if not isinstance(cast("object", app), BaseApp):
        raise Invalid.of("app", app, "must be a qo.App")
    _DEFAULT[:] = [app]
    from ._job_registry import adopt  # noqa: PLC0415 -- it imports this module

    adopt(app)


def default_app() -> Any:
    """Return the process's default app, of either kind."""
    if _DEFAULT:
        return _DEFAULT[0]
    apps = list(_APPS)
    if len(apps) == 1:
        return apps[0]
    many = f"there are {len(apps)} apps" if apps else "there is no app"
    raise LookupError(f"{many}: say which one is the default, by qo.set_default(app)")


class App(Declares, BaseApp):
    """A service: where its jobs are, and the functions that run them.

    Making it opens nothing and starts no thread. Without a URL it reads `.qo.toml` when it is first used. `name` is
    what its limits and schedules are pushed under. `lifespan` is a function `(app)` that returns a context manager,
    async or not: it is entered once per worker and once per child process.

    >>> app = App("memory:", name="shop")
    >>> @app.task(max_concurrent=10)
    ... async def call_api(url: str) -> int:
    ...     return len(url)
    >>> call_api.name.endswith("call_api")
    True
    """

    @property
    def client(self) -> Client:
        """A client of its store."""
        client: Client = self._connected()
        return client

    @client.setter
    def client(self, client: Client | None) -> None:
        self._client = client

    async def run(
        self,
        *,
        until_signal: bool = True,
        on_stuck: Literal["exit", "tell"] | Callable[[Context], Any] = "exit",
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Run a worker of this app's tasks until SIGTERM or SIGINT, or until `shutdown` is called.

        The first signal drains: jobs that run go on, no more are taken. The second gives them back, the third ends the
        process. Inside of another server, which hears signals itself, use `until_signal=False` and `shutdown`.

        A handler that does not stop when it must ends the process, with exit code 70, because its job may run
        elsewhere by then. With `on_stuck="tell"` that is only logged; a function is called with its context instead.
        """
        await self.run_worker(until_signal=until_signal, on_stuck=on_stuck, **options)

    @overload
    async def submit_many(self, jobs: Iterable[KeptJob[Any]]) -> list[JobHandle[Any]]: ...
    @overload
    async def submit_many(self, jobs: Iterable[NewJob[Any]]) -> list[JobHandle[Any] | None]: ...
    async def submit_many(self, jobs: Iterable[NewJob[Any]]) -> list[Any]:
        """Submit many jobs in one call: `submit_many([charge.job(7), mail.job("ann")])`."""
        return await self.client.submit_many(jobs)

    def workflow(self, name: str, *, on_failure: OnFailure | None = None) -> Workflow:
        """Return a workflow, by name: jobs that run strictly one after another, across the fleet."""
        return self.client.workflow(name, on_failure=on_failure)

    async def close(self) -> None:
        """Close the client. Calls on it raise from now on."""
        await self.aclose()

    async def __aenter__(self) -> Self:
        """Open the app, again if it was closed."""
        self._reopen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def get_default() -> App:
    """Return the process's default app: that of `set_default`, else the only one that there is.

    LookupError if there is none, or several of which none was set.
    """
    app: App = default_app()
    return app
