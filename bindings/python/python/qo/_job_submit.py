"""What a class of jobs says about a submit, as the store takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ._errors import Invalid
from ._handle import NewJob
from ._options import SubmitOptions, new_ids, number, template
from ._registered import TaskOptions

if TYPE_CHECKING:
    from ._job import Job
    from ._job_task import JobTask

MOST = 1_000_000
"""The largest limit."""


class RunOptions(SubmitOptions, total=False):
    """Every option of `run_in_worker`."""

    concurrency_key: str | None
    """Counts instead of `get_concurrency_key()`. `key` is the same."""
    retries: int | None
    """How often it is tried again if it fails. Counts instead of the class's."""


def task_options(job: type[Job]) -> TaskOptions:
    """Read the options of a class."""
    submit: dict[str, Any] = {"queue": job.queue, "priority": job.priority}
    if job.retries is not None:
        submit["max_attempts"] = number(f"{job.__name__}.retries", job.retries, 0, 999) + 1
    template("any", submit)
    found = cast("SubmitOptions", {option: value for option, value in submit.items() if value is not None})
    return TaskOptions(
        timeout=job.timeout, backoff=job.backoff, retry_on=job.retry_on, fail_on=job.fail_on, submit=found
    )


def task_of(job: Job) -> JobTask:
    """Return the task of a job."""
    task = type(job).__qo_task__
    if task is None:
        msg = f"{type(job).__name__} has no run()"
        raise NotImplementedError(msg)
    return task


def new(job: Job, options: dict[str, Any]) -> NewJob[Any]:
    """Describe a job as the store takes it."""
    task = task_of(job)
    given = {**task.options.submit, **options}
    key, retries = given.pop("concurrency_key", None), given.pop("retries", None)
    if key is not None and given.get("key", key) != key:
        raise Invalid.of("concurrency_key", key, f"is another name of key, which is {given['key']!r}")
    if given.get("key") is None:
        given["key"] = job.get_concurrency_key() if key is None else key
    if retries is not None:
        given["max_attempts"] = number("retries", retries, 0, 999) + 1
    _add_limit(job, task, given)
    described = template(task.name, given)
    delay = described.pop("delay", None)
    arguments, named = job.__qo_arguments__
    described.setdefault("id", new_ids(1)[0])
    described["payload"] = task.payload(arguments, named)
    return NewJob(described, delay, task.result)


def _add_limit(job: Job, task: JobTask, given: dict[str, Any]) -> None:
    """Add the limit that the job brings, and what becomes of the job if there is no room."""
    kind = type(job)
    if given.get("clear_limit") and given.get("limit") is None:
        given["limit"] = None
    limit = given.pop("limit") if (is_given := "limit" in given) else job.get_concurrency_limit()
    if limit is not None:
        given["limit"] = number("limit" if is_given else f"{kind.__name__}.get_concurrency_limit()", limit, 0, MOST)
    elif is_given or task.brings_limit:
        # Jobs of the same key may have brought a limit, which a job without one would leave.
        given["clear_limit"] = True
    if given.get("on_limit") is None:
        # Without a limit of its own a job is never dropped, whatever other limits it meets.
        given["on_limit"] = "wait" if limit is None else "skip"
    elif kind.unique and given["on_limit"] == "wait":
        raise Invalid.of("on_limit", "wait", f"{kind.__name__} is unique: a second one is skipped or rejected")
