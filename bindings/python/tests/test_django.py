"""A Django project with qo: its settings, its tasks, its transactions and its tests."""

import json
import os
import subprocess
import sys
from textwrap import dedent

import psycopg
import pytest
from conftest import url_of
from ways import server

SETTINGS = """
    import json, os
    SECRET_KEY = "not one"
    USE_TZ = True
    DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
    INSTALLED_APPS = ["shop", "stock", "qo.django"]
    DATABASES = {"default": json.loads(os.environ["SHOP_DATABASE"])}
    QO = {"url": os.environ["SHOP_JOBS"], "name": "shop"}
"""
QO = """
    import qo.django
    app = qo.django.setup("project.settings")
"""
MODELS = """
    from django.db import models
    class Order(models.Model):
        customer = models.CharField(max_length=40)
"""
JOBS = """
    import qo, qo.django
    from django.db import connection
    from asgiref.sync import sync_to_async
    from shop.models import Order

    app = qo.django.app()

    @app.task
    def count(customer: str) -> int:
        return Order.objects.filter(customer=customer).count()

    @app.task
    async def count_async(customer: str) -> int:
        return await Order.objects.filter(customer=customer).acount()

    @app.task
    def is_connected() -> bool:
        was = connection.connection is not None
        Order.objects.count()
        return was

    @app.task
    async def is_connected_async() -> bool:
        was = await sync_to_async(lambda: connection.connection is not None)()
        await Order.objects.acount()
        return was

    @app.task
    def ship(order: int) -> str:
        return Order.objects.get(pk=order).customer
"""
TASKS = """
    import qo.django

    @qo.django.app().task(max_concurrent=1)
    def restock(item: str) -> None: ...
"""
# What every script begins with.
BEGIN = """
    import asyncio, json
    import qo, qo.django
    from project.qo import app
    from django.core.management import call_command
    from django.db import connection, transaction
    from shop import jobs
    from shop.models import Order

    def ran(*submits):
        async def main():
            worker = asyncio.ensure_future(app.run(until_signal=False, max_concurrent_tasks=1))
            results = [await (await submit()).result(timeout=30) for submit in submits]
            app.shutdown()
            await worker
            return results
        return asyncio.run(main())

    def job_count():
        return len(qo.Client(app.client.url).call_sync("jobs", [{}, None, 100])["jobs"])

    def answer(value):
        print(json.dumps(value))
"""


class Project:
    """A project in a folder, with its own database and jobs."""

    def __init__(self, folder, database, jobs):
        self.folder = folder
        self.environment = os.environ | {
            "SHOP_DATABASE": json.dumps(database),
            "SHOP_JOBS": jobs,
            "DJANGO_SETTINGS_MODULE": "project.settings",
        }
        for path, text in {
            "project/__init__.py": "",
            "project/settings.py": SETTINGS,
            "project/qo.py": QO,
            "shop/__init__.py": "",
            "shop/models.py": MODELS,
            "shop/jobs.py": JOBS,
            "stock/__init__.py": "",
            "stock/tasks.py": TASKS,
        }.items():
            self.write(path, text)

    def write(self, path, text):
        (self.folder / path).parent.mkdir(exist_ok=True)
        (self.folder / path).write_text(dedent(text))

    def run(self, *command):
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def answer(self, script):
        """Run a script in the project; return what it answers."""
        done = self.run("-c", dedent(BEGIN) + dedent(script))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def project(tmp_path):
    """A project whose models are in SQLite and whose jobs are in a folder."""
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db")}
    made = Project(tmp_path, database, url_of("file", tmp_path))
    migrated = made.run("-m", "django", "migrate", "--run-syncdb", "--verbosity=0")
    assert migrated.returncode == 0, migrated.stderr
    return made


@pytest.fixture
def project_on_postgresql(tmp_path):
    """A project whose models and jobs are in one database of PostgreSQL."""
    jobs = url_of("postgres", tmp_path)
    name = jobs.rpartition("=")[2]
    info = psycopg.conninfo.conninfo_to_dict(server(jobs))
    with psycopg.connect(server(jobs), autocommit=True) as connection:
        # The tables of the models, in a schema of their own.
        connection.execute(f"CREATE SCHEMA {name}_models")
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": info["dbname"],
        "USER": info["user"],
        "HOST": info["host"],
        "PORT": info["port"],
        "OPTIONS": {"options": f"-c search_path={name}_models"},
    }
    made = Project(tmp_path, database, jobs)
    migrated = made.run("-m", "django", "migrate", "--run-syncdb", "--verbosity=0")
    assert migrated.returncode == 0, migrated.stderr
    return made


def test_setup_finds_the_tasks_of_every_installed_app(project):
    found = project.answer("answer([sorted(app.tasks), app.name, qo.get_default() is app, qo.django.app() is app])")
    tasks, name, is_default, is_same = found
    assert {"shop.jobs.count", "shop.jobs.ship", "stock.tasks.restock"} <= set(tasks)
    assert (name, is_default, is_same) == ("shop", True, True)


def test_an_installed_app_alone_makes_the_app_without_setup(project):
    done = project.run("-c", "import django; django.setup(); import qo; print(sorted(qo.get_default().tasks))")
    assert "stock.tasks.restock" in done.stdout, done.stderr


def test_a_module_with_tasks_that_is_broken_is_an_error(project):
    project.write("stock/tasks.py", "import there_is_no_such_module")
    done = project.run("-c", "import project.qo")
    assert "there_is_no_such_module" in done.stderr
    assert done.returncode == 1


def test_handlers_use_the_models_of_the_project(project):
    script = """
        Order.objects.create(customer="ACME")
        answer(ran(lambda: jobs.count.submit("ACME"), lambda: jobs.count_async.submit("ACME")))
    """
    assert project.answer(script) == [1, 1]


@pytest.mark.parametrize("task", ["is_connected", "is_connected_async"])
def test_old_connections_are_closed_around_every_job(project, task):
    # CONN_MAX_AGE is 0: a connection is too old as soon as the job has ended.
    assert project.answer(f"answer(ran(*[jobs.{task}.submit] * 3))") == [False, False, False]


@pytest.mark.parametrize("options", [[], ["--processes=1"]], ids=["threads", "processes"])
def test_the_command_runs_a_worker_of_the_project(project, options):
    command = [sys.executable, "-m", "qo", "worker", "project.qo:app", *options]
    worker = subprocess.Popen(command, cwd=project.folder, env=project.environment)
    try:
        script = """
            order = Order.objects.create(customer="ACME")
            answer([jobs.ship.submit_sync(order.pk).result(timeout=60) for _ in range(3)])
        """
        assert project.answer(script) == ["ACME"] * 3
    finally:
        worker.terminate()
        assert worker.wait(60) == 0


def test_a_job_is_submitted_when_the_transaction_has_committed(project):
    script = """
        counts = []
        with transaction.atomic():
            order = Order.objects.create(customer="ACME")
            qo.django.submit_on_commit(jobs.ship.options(key="customer-7"), order.pk)
            counts.append(job_count())
        counts.append(job_count())
        try:
            with transaction.atomic():
                qo.django.submit_on_commit(jobs.ship, order=1)
                raise LookupError
        except LookupError:
            counts.append(job_count())
        qo.django.submit_on_commit(jobs.ship, 2)
        counts.append(job_count())
        answer(counts)
    """
    assert project.answer(script) == [0, 1, 1, 2]


def test_a_mistake_in_an_argument_is_raised_before_the_commit(project):
    script = """
        told = []
        with transaction.atomic():
            for wrong in ({"order": object()}, {"order": 1, "colour": "red"}):
                try:
                    qo.django.submit_on_commit(jobs.ship, **wrong)
                except (TypeError, qo.Invalid) as error:
                    told.append(str(error))
        answer([told, job_count()])
    """
    told, count = project.answer(script)
    assert count == 0
    assert "order" in told[0]
    assert "colour" in told[1]


@pytest.mark.parametrize("connection", ["connection", "'default'", "transaction.get_connection()"])
def test_a_job_is_part_of_a_transaction_of_the_models(project_on_postgresql, connection):
    script = f"""
        counts = []
        for commits in (False, True):
            try:
                with transaction.atomic():
                    order = Order.objects.create(customer="ACME")
                    jobs.ship.submit_in({connection}, order.pk)
                    counts.append([Order.objects.count(), job_count()])
                    if not commits:
                        raise LookupError
            except LookupError:
                pass
            counts.append([Order.objects.count(), job_count()])
        answer([counts, ran(lambda: jobs.ship.submit(order.pk))])
    """
    assert project_on_postgresql.answer(script) == [[[1, 0], [0, 0], [1, 0], [1, 1]], ["ACME"]]


def test_a_refused_job_leaves_the_transaction_of_the_models(project_on_postgresql):
    script = """
        ship = jobs.ship.options(limit=1, on_limit="reject")
        with transaction.atomic():
            ship.submit_in(connection, 1)
            try:
                ship.submit_in(connection, 2)
            except qo.LimitReached:
                Order.objects.create(customer="late")
            try:
                with transaction.atomic():
                    jobs.ship.options(cost=2, limit=1).submit_in(connection, 3)
            except qo.Invalid as error:
                path = error.path
        answer([path, Order.objects.count(), job_count()])
    """
    assert project_on_postgresql.answer(script) == ["cost", 1, 1]


def test_jobs_cannot_join_a_transaction_of_sqlite(project):
    script = """
        try:
            jobs.ship.submit_in(connection, 1)
        except qo.Invalid as error:
            answer(str(error))
    """
    assert "postgres://" in project.answer(script)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ('QO = {"url": "memory:", "nane": "shop"}', "'nane': there is no such key: there are name, url"),
        ('QO = "memory:"', "must be a dict"),
        ('QO = {"url": "memory:"}; QO_URL = "file:.qo"', "settings.QO_URL"),
    ],
)
def test_a_mistake_in_the_settings_is_named(project, settings, told):
    project.write("project/settings.py", f"{dedent(SETTINGS)}\n{settings}")
    done = project.run("-c", "import project.qo")
    assert told in done.stderr
    assert "Invalid" in done.stderr


def test_the_url_can_stand_alone_in_the_settings(project):
    project.write("project/settings.py", f'{dedent(SETTINGS)}\ndel QO\nQO_URL = "memory:"')
    assert project.answer("answer([app.client.url, app.name])")[0] == "memory:"


def test_jobs_run_in_the_transaction_of_a_test_case(project):
    project.write(
        "shop/tests.py",
        """
        import qo.django, qo.testing
        from django.db import connection
        from django.test import TestCase
        from shop import jobs
        from shop.models import Order

        class Orders(TestCase):
            def setUp(self):
                replaced = qo.testing.replaced(qo.django.app())
                self.qo = replaced.__enter__()
                self.addCleanup(replaced.__exit__, None, None, None)

            def test_a_job_sees_the_rows_of_the_test(self):
                order = Order.objects.create(customer="ACME")
                job = jobs.ship.submit_sync(order.pk)
                [ran] = self.qo.drain_sync()
                self.assertEqual((ran.job, ran.outcome, ran.result), (job.id, "succeeded", "ACME"))

            def test_jobs_of_on_commit_run_too(self):
                with self.captureOnCommitCallbacks(execute=True):
                    order = Order.objects.create(customer="ACME")
                    qo.django.submit_on_commit(jobs.ship, order.pk)
                self.assertEqual([ran.result for ran in self.qo.drain_sync()], ["ACME"])

            def test_a_job_of_a_transaction_is_there_at_once(self):
                order = Order.objects.create(customer="ACME")
                jobs.ship.submit_in(connection, order.pk)
                self.assertEqual([ran.result for ran in self.qo.drain_sync()], ["ACME"])
        """,
    )
    done = project.run("-m", "django", "test", "shop")
    assert done.returncode == 0, done.stderr
    assert "Ran 3 tests" in done.stderr
