"""Topics deleted together with their shadows."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.conftest import Unique
from tests.http.paper_cli import Said
from tests.http.paper_cli import run as command
from tests.kafka.exclusive.producers import RawProducer
from tests.nodes import NodeProcess
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


@pytest.fixture
def orders(services: Services) -> str:
    return create_topic(services.kafka_bootstrap, 2)


def exists(services: Services, topic: str) -> bool:
    client = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    return topic in client.list_topics(timeout=20).topics


def make(rest: Rest, orders: str, *names: str) -> None:
    for name in names:
        assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201


def test_a_topic_with_shadows_is_deleted_by_force_only(
    services: Services, rest: Rest, orders: str, unique: Unique
) -> None:
    names = [unique("audit"), unique("copy")]
    make(rest, orders, *names)
    for path in (f"/v1/topics/{orders}", f"/v1/topics/{orders}?force=false"):
        status, refused = rest.call("DELETE", path)
        assert status == 409
        assert all(name in refused["message"] for name in names)
    assert rest.topic(orders)["shadows"] == sorted(names)
    assert rest.call("DELETE", f"/v1/topics/{orders}?force=true") == (204, None)
    wait_for(lambda: not any(exists(services, name) for name in (orders, *names)), "all three to be gone", 20)
    assert [rest.call("GET", f"/v1/shadows/{name}")[0] for name in names] == [404, 404]
    assert rest.call("DELETE", f"/v1/topics/{orders}?force=true")[0] == 404


def test_a_topic_without_shadows_needs_no_force(services: Services, rest: Rest, orders: str) -> None:
    assert rest.call("DELETE", f"/v1/topics/{orders}") == (204, None)
    wait_for(lambda: not exists(services, orders), "it to be gone", 20)
    assert rest.call("DELETE", f"/v1/topics/{orders}")[0] == 404


def test_what_cannot_be_deleted_is_refused_with_the_reason(rest: Rest, orders: str, unique: Unique) -> None:
    name = unique("audit")
    make(rest, orders, name)
    status, refused = rest.call("DELETE", f"/v1/topics/{name}?force=true")
    assert status == 409
    assert f"sidecar shadow delete {name}" in refused["message"]
    internal = rest.call("GET", "/v1/status")[1]["cluster"]
    paths = [f"__sidecar_{internal}", "__consumer_offsets", "orders.*", "a%20b", f"{orders}?force=perhaps"]
    assert [rest.call("DELETE", f"/v1/topics/{path}")[0] for path in paths] == [400] * 5
    assert rest.topic(orders)["shadows"] == [name]


def test_a_deletion_that_was_interrupted_is_finished_by_doing_it_again(
    services: Services, rest: Rest, orders: str, unique: Unique
) -> None:
    """The source is gone, a shadow is left; and the other way round."""
    name = unique("audit")
    make(rest, orders, name)
    client = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    client.delete_topics([orders])[orders].result(20)
    assert rest.call("DELETE", f"/v1/topics/{orders}")[0] == 409
    assert rest.call("DELETE", f"/v1/topics/{orders}?force=true")[0] == 204
    assert rest.call("GET", f"/v1/shadows/{name}")[0] == 404
    wait_for(lambda: not exists(services, name), "its topic to be gone", 20)


def test_a_topic_with_an_owner_is_deleted_as_by_kafkas_own_tool(
    services: Services, node: NodeProcess, rest: Rest, orders: str
) -> None:
    """Its policy stays for the next topic of the name; its owner writes no more."""
    govern(rest, orders)
    with RawProducer(node.bootstrap, "billing") as producer:
        assert producer.send(orders, [b"a"]).error == 0
        assert rest.call("DELETE", f"/v1/topics/{orders}?force=true")[0] == 204
        wait_for(lambda: not exists(services, orders), "it to be gone", 20)
        producer.begin(orders, b"b")
        assert producer.finish().error in {3, 5}
    found = rest.topic(orders)
    assert (found["partitions"], found["policy"]["access_mode"]) == (0, "exclusive")


def test_the_command_asks_names_the_shadows_and_deletes(
    services: Services, node: NodeProcess, rest: Rest, orders: str, unique: Unique
) -> None:
    name = unique("audit")
    make(rest, orders, name)

    def run(*words: str) -> Said:
        return command("--admin-url", node.admin_url, "topic", *words)

    refused = run("delete", orders)
    assert (refused.code, refused.out) == (4, "")
    assert name in refused.err
    assert run("delete", orders, "--force").code == 0
    assert run("delete", orders, "--force").code == 3
    assert run("delete", "__consumer_offsets").code == 2
