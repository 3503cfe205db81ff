"""Shadows made and deleted by a node: their topics, their names, what is left of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
)

from tests.conftest import Unique
from tests.http.paper_cli import Said
from tests.http.paper_cli import run as command
from tests.kafka.shadow.conftest import without_stats
from tests.kafka.shadow.history import history
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture
def orders(services: Services) -> str:
    """A topic of two partitions with a record in each."""
    topic = create_topic(services.kafka_bootstrap, 2)
    producer = Producer({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    for partition in (0, 1):
        producer.produce(topic, f"record {partition}", partition=partition)
    producer.flush(30)
    return topic


def partitions(bootstrap: str, topic: str) -> int:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = client.list_topics(timeout=20).topics.get(topic)
    return 0 if found is None or found.error else len(found.partitions)


def test_a_shadow_is_made_read_and_deleted(
    node: NodeProcess, services: Services, rest: Rest, orders: str, unique: Unique
) -> None:
    name = unique("audit")
    status, made = rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})
    assert (status, made["name"], made["source"], made["allow"], made["is_made"]) == (
        201,
        name,
        orders,
        ["User:*"],
        True,
    )
    assert without_stats(rest.call("GET", f"/v1/shadows/{name}")) == (200, made)
    assert rest.call("GET", f"/v1/topics/{orders}/shadows") == (200, {"items": [made], "next_page_token": None})
    assert rest.topic(orders)["shadows"] == [name]
    assert [read_log(node.bootstrap, name, partition) for partition in (0, 1)] == [[b"record 0"], [b"record 1"]]
    assert read_log(services.kafka_bootstrap, name) == []
    assert rest.call("DELETE", f"/v1/topics/{orders}/shadows/{name}")[0] == 204
    assert rest.call("GET", f"/v1/shadows/{name}")[0] == 404
    wait_for(lambda: partitions(services.kafka_bootstrap, name) == 0, "its topic to be gone")
    assert read_log(services.kafka_bootstrap, orders) == [b"record 0"]


def test_the_command_line_does_the_same(node: NodeProcess, orders: str, unique: Unique) -> None:
    name = unique("audit")

    def run(*words: str) -> Said:
        return command("--admin-url", node.admin_url, "shadow", *words)

    made = run("create", name, "--source", orders).out
    assert ["source", orders] in [line.split() for line in made.splitlines()]
    assert name in run("list", orders).out
    assert run("create", name, "--source", orders).code == 4
    assert "User:*" in run("show", name).out
    assert run("delete", name).code == 0
    assert run("show", name).code == 3


def test_names_that_cannot_be_are_refused_with_the_reason(rest: Rest, orders: str, unique: Unique) -> None:
    first = unique("audit")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": first})[0] == 201
    refused = [
        (orders, {"name": first}, 409),  # one of the name is there
        (orders, {"name": orders}, 409),
        (orders, {"name": "__audit"}, 400),
        (orders, {"name": "a b"}, 400),
        (orders, {"name": unique("x"), "allow": ["billing"]}, 400),
        (orders, {"nom": "x"}, 400),
        (orders, {"name": "x", "more": 1}, 400),
        (first, {"name": unique("x")}, 400),  # no shadow of a shadow
        (unique("nothing"), {"name": unique("x")}, 404),
    ]
    assert [rest.call("POST", f"/v1/topics/{topic}/shadows", body)[0] for topic, body, _ in refused] == [
        status for _, _, status in refused
    ]
    status, said = rest.call("PUT", f"/v1/topics/{first}/policy", {"access_mode": "exclusive"})
    assert (status, f"govern its source {orders}" in said["message"]) == (400, True)
    listed = rest.call("GET", "/v1/shadows")[1]["items"]
    assert [each["source"] for each in listed if each["name"] == first] == [orders]
    other = create_topic_of(rest, orders)
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": other})[0] == 409


def test_a_name_that_kafka_takes_for_another_is_a_conflict_and_nothing_stays(
    node: NodeProcess, rest: Rest, orders: str, unique: Unique
) -> None:
    first = unique("audit.eu")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": first})[0] == 201
    second = first.replace(".", "_")
    status, said = rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": second})
    assert (status, first in said["message"]) == (409, True)
    assert command("--admin-url", node.admin_url, "shadow", "create", second, "--source", orders).code == 4
    assert rest.call("GET", f"/v1/shadows/{second}")[0] == 404


def create_topic_of(rest: Rest, orders: str) -> str:
    """A topic with records of its own: never taken for a shadow."""
    return next(item["topic"] for item in rest.call("GET", "/v1/topics")[1]["items"] if item["topic"] != orders)


def test_no_client_writes_to_a_shadow_or_deletes_its_source(
    node: NodeProcess, rest: Rest, orders: str, unique: Unique
) -> None:
    name = unique("audit")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201
    told: list[int] = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    producer.produce(name, b"x", on_delivery=lambda error, _: told.append(error.code() if error else 0))
    producer.flush(30)
    assert told == [TOPIC_AUTHORIZATION_FAILED]
    client = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    assert client.delete_topics([orders])[orders].exception(20) is not None
    assert rest.call("DELETE", f"/v1/topics/{orders}/shadows/{name}")[0] == 204
    assert client.delete_topics([orders])[orders].exception(20) is None


def test_a_shadow_grows_with_its_source(
    node: NodeProcess, services: Services, rest: Rest, orders: str, unique: Unique
) -> None:
    name = unique("audit")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201
    client = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    client.create_partitions([NewPartitions(orders, 4)])[orders].result(20)
    wait_for(lambda: partitions(services.kafka_bootstrap, name) == 4, "as many partitions", 20)
    wait_for(lambda: partitions(node.bootstrap, name) == 4, "clients to see them", 20)


def test_another_node_serves_a_shadow_as_soon_as_it_is_made(
    services: Services, unique: Unique, orders: str, tmp_path: Path
) -> None:
    """And after both were started again."""
    cluster, name = unique("pair"), unique("audit")
    first = NodeProcess(tmp_path, services.kafka_bootstrap, services.redis_url, cluster=cluster, node_id=1)
    second = NodeProcess(tmp_path, services.kafka_bootstrap, services.redis_url, cluster=cluster, node_id=2)
    for process in (first, second):
        process.start()
    try:
        assert Rest(first.admin_url).call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201
        assert read_log(second.bootstrap, name) == [b"record 0"]
        for process in (first, second):
            process.stop()
            process.start()
        assert read_log(first.bootstrap, name, 1) == read_log(second.bootstrap, name, 1) == [b"record 1"]
    finally:
        for process in (first, second):
            process.stop()
    for process in (first, second):
        process.check_log()


def test_what_was_deleted_behind_the_sidecars_back_is_forgotten(
    services: Services, rest: Rest, orders: str, unique: Unique
) -> None:
    name = unique("audit")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201
    client = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    client.delete_topics([name])[name].result(20)
    wait_for(lambda: rest.call("GET", f"/v1/shadows/{name}")[0] == 404, "the record to go", 20)
    client.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 409


def test_a_shadow_is_changed_field_by_field(node: NodeProcess, rest: Rest, orders: str, unique: Unique) -> None:
    name = unique("audit")
    status, made = rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name, "allow": ["User:a", "User:a"]})
    assert (status, made["allow"], made["auto_reset_backlog_entries"]) == (201, ["User:a"], 0)
    assert "User:ANONYMOUS" in made["warning"]
    path = f"/v1/shadows/{name}"
    assert rest.call("PATCH", path, {"auto_reset_backlog_entries": 10}) == (
        200,
        made | {"auto_reset_backlog_entries": 10},
    )
    expected = made | {"auto_reset_backlog_entries": 10, "allow": ["User:ANONYMOUS"], "warning": None}
    assert rest.call("PATCH", path, {"allow": ["User:ANONYMOUS"]}) == (200, expected)
    assert without_stats(rest.call("GET", path)) == (200, expected)
    status, closed = rest.call("PATCH", path, {"allow": []})
    assert (status, closed["allow"], bool(closed["warning"])) == (200, [], True)
    refused = [
        {},
        [],
        {"source": "other"},
        {"allow": None},
        {"allow": "User:*"},
        {"allow": [f"User:{number}" for number in range(1_001)]},
        {"allow": ["User:" + "x" * 251]},
        {"allow": ["billing"]},
        {"auto_reset_backlog_entries": -1},
        {"auto_reset_backlog_entries": 2**63},
        {"auto_reset_backlog_entries": True},
        {"auto_reset_backlog_entries": 1.5},
    ]
    assert [rest.call("PATCH", path, body)[0] for body in refused] == [400] * len(refused)
    assert without_stats(rest.call("GET", path)) == (200, closed)
    assert rest.call("PATCH", f"/v1/shadows/{unique('x')}", {"allow": []})[0] == 404
    longest = [f"User:{number:0250}" for number in range(1_000)]
    status, full = rest.call("PATCH", path, {"allow": longest})
    assert (status, full["allow"]) == (200, longest)
    events = history(node, name)
    assert [event["kind"] for event in events] == ["shadow"] * 5
    assert [event["detail"][:30] for event in events[1:4]] == [
        "readers: User:a; cursors more ",
        "readers: User:ANONYMOUS; curso",
        "readers: nobody; cursors more ",
    ]
    assert [event["details"].get("allow") for event in events[1:]] == [["User:a"], ["User:ANONYMOUS"], [], None]
    assert {event["details"]["source"] for event in events} == {orders}


def test_every_node_knows_a_change_when_it_is_answered(
    services: Services, unique: Unique, orders: str, tmp_path: Path
) -> None:
    cluster, name = unique("pair"), unique("audit")
    nodes = [
        NodeProcess(tmp_path, services.kafka_bootstrap, services.redis_url, cluster=cluster, node_id=number)
        for number in (1, 2)
    ]
    try:
        for process in nodes:
            process.start()
        first, second = (Rest(process.admin_url) for process in nodes)
        assert first.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201
        for number in range(1, 7):
            status, found = first.call("PATCH", f"/v1/shadows/{name}", {"auto_reset_backlog_entries": number})
            assert (status, found["auto_reset_backlog_entries"]) == (200, number)
            assert without_stats(second.call("GET", f"/v1/shadows/{name}")) == (200, found)
            first, second = second, first
    finally:
        for process in nodes:
            process.stop()
    for process in nodes:
        process.check_log()


def test_the_command_line_changes_a_shadow_and_warns_where_nobody_can_read_it(
    node: NodeProcess, orders: str, unique: Unique
) -> None:
    name = unique("x")

    def run(*words: str) -> Said:
        return command("--admin-url", node.admin_url, "shadow", *words)

    assert "nobody can read it" in run("create", name, "--source", orders, "--allow", "User:a").err
    changed = run("set", name, "--allow", "User:*", "--auto-reset-backlog-entries", "5")
    assert (changed.code, changed.err) == (0, "")
    assert "behind 5 records" in changed.out
    assert "nobody can read it" in run("set", name, "--allow-nobody").err
    assert run("set", name).code == run("set", name, "--allow", "x").code == 2
    assert run("set", name, "--allow", "User:a", "--allow-nobody").code == 2
    assert run("set", unique("x"), "--allow-nobody").code == 3
