"""The configuration of an app in code: its rules, and what a file beside it may say."""

import asyncio
import json
from pathlib import Path

import pytest
import qo
from qo import AppConfig, CustomQueueConfig, PostgresConfig, QueueMode, _qo


def settings_of(folder: Path, text: str, flags: dict[str, str] | None = None) -> dict[str, object]:
    """The settings in a folder whose file has this text."""
    (folder / ".qo.toml").write_text(text)
    asked = {"directory": str(folder), "config": None, "flags": flags or {}}
    return json.loads(_qo.settings(json.dumps(asked)))


def refused(**options: object) -> qo.Invalid:
    with pytest.raises(qo.Invalid) as caught:
        AppConfig(**options)
    return caught.value


def test_an_empty_configuration_sets_nothing():
    config = AppConfig()
    assert config.queue_mode is QueueMode.DEFAULT
    assert config.configuration() == {"limits": {}, "queue_priorities": {}}
    assert config.worker() == {}
    assert config.store is None


def test_queues_and_the_cap_become_limits_and_priorities():
    config = AppConfig(
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[
            CustomQueueConfig(name="stripe", priority=1, max_concurrency=3),
            CustomQueueConfig(name="held", priority=1000, max_concurrency=0),
            CustomQueueConfig(name="free"),
        ],
        cluster_wide_cap=15,
    )
    assert config.configuration() == {
        "limits": {"cluster": 15, "queue:stripe": 3, "queue:held": 0},
        "queue_priorities": {"stripe": 1, "held": 1000, "free": 100},
    }


def test_a_worker_is_told_only_what_is_set():
    assert AppConfig(prefetch_buffer=4, claim_lease_ms=5000).worker() == {"prefetch_buffer": 4, "claim_lease_ms": 5000}
    assert AppConfig(prefetch_buffer=0, cluster_wide_cap=50).worker() == {"prefetch_buffer": 0}


@pytest.mark.parametrize(
    ("options", "path", "rule"),
    [
        ({"prefetch_buffer": 4}, "prefetch_buffer", "needs claim_lease_ms"),
        ({"claim_lease_ms": 5000}, "claim_lease_ms", "set prefetch_buffer too"),
        ({"prefetch_buffer": 0, "claim_lease_ms": 5000}, "claim_lease_ms", "set prefetch_buffer too"),
        (
            {"cluster_wide_cap": 50, "prefetch_buffer": 4, "claim_lease_ms": 5000},
            "cluster_wide_cap",
            "set prefetch_buffer, which is 4, to 0",
        ),
        ({"queue_mode": QueueMode.CUSTOM}, "custom_queues", "needs at least one queue"),
        ({"custom_queues": [CustomQueueConfig("a")]}, "custom_queues", "queue_mode=QueueMode.CUSTOM only"),
        ({"queue_mode": "custom"}, "queue_mode", "must be QueueMode.DEFAULT or QueueMode.CUSTOM"),
        ({"custom_queues": 5}, "custom_queues", "must be a list of CustomQueueConfig"),
        ({"cluster_wide_cap": -1}, "cluster_wide_cap", "from 0 to 1000000"),
        ({"cluster_wide_cap": True}, "cluster_wide_cap", "must be a whole number"),
        ({"prefetch_buffer": 2, "claim_lease_ms": 99}, "claim_lease_ms", "from 100 to 86400000"),
        ({"broker": "mysql://db"}, "broker", "must be a PostgresConfig or the URL of a store"),
        ({"broker": 5}, "broker", "must be a PostgresConfig or the URL of a store"),
        ({"broker": PostgresConfig(database_url="db/shop")}, "broker.database_url", "must begin with postgres://"),
    ],
)
def test_a_mistake_names_the_setting_and_the_rule(options, path, rule):
    error = refused(**options)
    assert error.path == path
    assert rule in error.rule
    assert str(error).startswith(f"{path}: ")


def test_all_mistakes_are_in_one_error():
    error = refused(
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[
            CustomQueueConfig(name="a b", priority=0),
            CustomQueueConfig(name="cluster", max_concurrency=-2),
            CustomQueueConfig(name="x"),
            CustomQueueConfig(name="x", priority=1001, max_concurrency=2_000_000),
            {"name": "y"},
        ],
        cluster_wide_cap=1.5,
        prefetch_buffer=-1,
    )
    lines = [line.strip() for line in str(error).splitlines()]
    assert lines[0] == "10 mistakes in AppConfig:"
    assert [line.split(": ")[0] for line in lines[1:]] == [
        "custom_queues[0].name",
        "custom_queues[0].priority",
        "custom_queues[1].name",
        "custom_queues[1].max_concurrency",
        "custom_queues[3].name",
        "custom_queues[3].priority",
        "custom_queues[3].max_concurrency",
        "custom_queues[4]",
        "cluster_wide_cap",
        "prefetch_buffer",
    ]


def test_a_broker_is_a_url_or_postgresql():
    assert AppConfig(broker="s3://jobs/shop").store == "s3://jobs/shop"
    url = "postgresql+psycopg://shop:pass:w@rd@db/shop"
    assert AppConfig(broker=PostgresConfig(database_url=url)).store == "postgresql://shop:pass:w@rd@db/shop"
    broker = PostgresConfig(database_url="postgres://db/shop?sslmode=require", schema="jobs")
    assert broker.url == "postgres://db/shop?sslmode=require&schema=jobs"


def test_no_password_is_shown():
    config = AppConfig(broker=PostgresConfig(database_url="postgresql+psycopg://shop:pass:w@rd@db/shop"))
    wrong = refused(broker="mysql://shop:pass:w@rd@db/shop")
    for text in (repr(config), repr(config.broker), str(wrong), str(refused(broker="x://db?password=pass:w@rd"))):
        assert "w@rd" not in text
    assert repr(config.broker) == "PostgresConfig('postgresql://shop:***@db/shop')"
    with pytest.raises(qo.Invalid) as caught:
        config.check_against(
            {"store": "file:x", "given": {"store": {"value": "file:x", "source": "f:1", "kind": "file"}}}
        )
    assert "w@rd" not in str(caught.value)


FILE = """
store = "file:jobs"
[concurrency]
cluster_wide_cap = 20
[concurrency.limits]
"queue:mail" = 5
[queues.stripe]
priority = 2
max_concurrency = 3
[queues."a.b"]
priority = 7
"""


def custom(*queues: CustomQueueConfig, **options: object) -> AppConfig:
    return AppConfig(queue_mode=QueueMode.CUSTOM, custom_queues=queues, **options)


def test_a_file_and_code_that_agree_are_accepted(tmp_path):
    settings = settings_of(tmp_path, FILE)
    AppConfig().check_against(settings)
    custom(
        CustomQueueConfig("stripe", priority=2, max_concurrency=3),
        CustomQueueConfig("mail", max_concurrency=5),
        CustomQueueConfig("a.b", priority=7),
        CustomQueueConfig("other", priority=9, max_concurrency=1),
        cluster_wide_cap=20,
        broker=f"file:{tmp_path / 'jobs'}",
    ).check_against(settings)


def test_a_file_and_code_that_differ_are_an_error_for_each_key(tmp_path):
    settings = settings_of(tmp_path, FILE)
    config = custom(
        CustomQueueConfig("stripe", priority=1, max_concurrency=4),
        CustomQueueConfig("mail", max_concurrency=6),
        CustomQueueConfig("a.b", priority=8),
        cluster_wide_cap=21,
        broker="file:elsewhere",
    )
    with pytest.raises(qo.Invalid) as caught:
        config.check_against(settings)
    lines = [line.strip() for line in str(caught.value).splitlines()]
    assert [line.split(": ")[0] for line in lines[1:]] == [
        "AppConfig.broker",
        "AppConfig.cluster_wide_cap",
        "AppConfig.custom_queues[0].priority",
        "AppConfig.custom_queues[0].max_concurrency",
        "AppConfig.custom_queues[1].max_concurrency",
        "AppConfig.custom_queues[2].priority",
    ]
    assert lines[2].endswith("21: .qo.toml:4 sets concurrency.cluster_wide_cap = 20: leave one of them out")


def test_prefetching_differs_between_a_file_and_code(tmp_path):
    settings = settings_of(tmp_path, "[worker]\nprefetch_buffer = 4\nclaim_lease_ms = 5000\n")
    AppConfig(prefetch_buffer=4, claim_lease_ms=5000).check_against(settings)
    AppConfig().check_against(settings)
    for config in (AppConfig(prefetch_buffer=0), AppConfig(prefetch_buffer=5, claim_lease_ms=5000)):
        with pytest.raises(qo.Invalid, match=r"worker\.prefetch_buffer = 4"):
            config.check_against(settings)


def test_flags_may_differ_from_code(tmp_path):
    settings = settings_of(tmp_path, FILE, {"--cluster-wide-cap": "7"})
    AppConfig(cluster_wide_cap=21).check_against(settings)


def test_a_flag_counts_before_code_and_code_before_nothing(tmp_path):
    app = qo.App(AppConfig(cluster_wide_cap=21, broker="memory:"))
    with_flag = app.describe_worker(settings_of(tmp_path, "", {"--cluster-wide-cap": "7"}))
    assert with_flag["configuration"]["limits"] == {"cluster": 7}
    assert app.describe_worker(settings_of(tmp_path, ""))["configuration"]["limits"] == {"cluster": 21}


def test_an_app_refuses_a_file_that_says_otherwise(tmp_path, monkeypatch):
    (tmp_path / ".qo.toml").write_text("[concurrency]\ncluster_wide_cap = 5\n")
    monkeypatch.chdir(tmp_path)
    app = qo.App(AppConfig(cluster_wide_cap=21, broker="memory:"))
    with pytest.raises(qo.Invalid, match=r"AppConfig\.cluster_wide_cap: 21: \.qo\.toml:2 sets"):
        asyncio.run(app.run(until_signal=False))
