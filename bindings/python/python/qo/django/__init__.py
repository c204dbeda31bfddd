"""qo in a Django project.

1. Say where the jobs are, in the settings::

       QO = {"url": "postgres://shop@db/shop?schema=qo", "name": "shop"}
       INSTALLED_APPS = [..., "qo.django"]

2. Declare tasks in `jobs.py` or `tasks.py` of any installed app::

       import qo.django

       app = qo.django.app()

       @app.task(max_concurrent=10)
       def send_invoice(order: int) -> None: ...

3. Submit jobs, in a transaction or after it::

       with transaction.atomic():
           order = Order.objects.create(...)
           send_invoice.submit_in(connection, order.pk)                 # part of the transaction
           qo.django.submit_on_commit(send_invoice, order.pk)           # or: once it has committed

4. Run them: `qo worker myproject.qo:app`, with this in `myproject/qo.py`::

       import qo.django

       app = qo.django.setup("myproject.settings")

Django is imported when a function of this module is called, not before.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec

from qo._app import App, set_default
from qo._call import drive_sync
from qo._errors import Invalid
from qo._handle import JobHandle, submit

from ._connections import close_old_connections, close_old_connections_async

if TYPE_CHECKING:
    from qo._task import TaskCalls

__all__ = ["app", "autodiscover", "setup", "submit_on_commit"]

P = ParamSpec("P")

_LOCK = threading.Lock()
_MADE: list[App] = []
_KEYS = ("name", "url")


def setup(settings: str | None = None) -> App:
    """Set Django up if that was not done, import the modules with tasks, and return the project's app.

    For the module that `qo worker` is given. `settings` is the name of the settings module, unless the environment
    (DJANGO_SETTINGS_MODULE) has one.
    """
    if settings is not None:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)
    if not import_module("django.apps").apps.ready:
        import_module("django").setup()
    made = app()
    autodiscover()
    return made


def app() -> App:
    """Return the project's app. The first call makes it, by the settings, and makes it the process's default.

    The settings are ``QO = {"url": …, "name": …}``, or ``QO_URL`` alone. Without a URL it is that of `.qo.toml` or
    QO_STORE. Making the app opens no connection. Around every job it closes database connections that are unusable or
    older than CONN_MAX_AGE, as Django does around a request.
    """
    with _LOCK:
        if not _MADE:
            made = App(**_options())
            made.middleware(close_old_connections)
            made.middleware(close_old_connections_async)
            set_default(made)
            _MADE.append(made)
        return _MADE[0]


def autodiscover() -> None:
    """Import `jobs.py` and `tasks.py` of every installed app that has one."""
    import_module("django.utils.module_loading").autodiscover_modules("jobs", "tasks")


def submit_on_commit(task: TaskCalls[P, Any, Any], /, *arguments: P.args, **named: P.kwargs) -> None:
    """Submit a job once the transaction on the default database has committed; at once if none is open.

    Use it where the jobs are on another store than the models. The arguments are checked and written now, so a mistake
    is raised here. The submit comes after the commit: if the process dies in between, or the store cannot be reached
    (the commit then raises), there is no job. `Task.submit_in` has no such gap.

    In a `django.test.TestCase` nothing commits: use `captureOnCommitCallbacks(execute=True)`.
    """
    job = task.job(*arguments, **named)

    def submit_now() -> None:
        namespace = task._namespace  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        drive_sync(submit(namespace, [job], JobHandle))

    import_module("django.db.transaction").on_commit(submit_now)


def _options() -> dict[str, Any]:
    settings = import_module("django.conf").settings
    given: Any = getattr(settings, "QO", {})
    if not isinstance(given, dict):
        raise Invalid.of("settings.QO", given, 'must be a dict: {"url": …, "name": …}')
    options: dict[str, Any] = {**given}
    for key in options:
        if key not in _KEYS:
            raise Invalid.of("settings.QO", key, f"there is no such key: there are {', '.join(_KEYS)}")
    alone: Any = getattr(settings, "QO_URL", None)
    if alone is not None:
        if options.get("url") not in (None, alone):
            raise Invalid.of("settings.QO_URL", "…", 'must be the same as settings.QO["url"], or left out')
        options["url"] = alone
    return options
