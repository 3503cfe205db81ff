"""Shadows by Pulsar's own path, as `pulsar-admin topics` asks for them."""

from __future__ import annotations

import pytest

from tests.conftest import Unique
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic


@pytest.fixture
def orders(services: Services) -> str:
    return create_topic(services.kafka_bootstrap, 1)


def path_of(topic: str, what: str = "shadowTopics", at: str = "public/default") -> str:
    return f"/admin/v2/persistent/{at}/{topic}/{what}"


def made(rest: Rest, orders: str) -> dict[str, str]:
    """When each shadow was made, by name."""
    items = rest.call("GET", f"/v1/topics/{orders}/shadows")[1]["items"]
    return {item["name"]: item["created"] for item in items}


def test_put_replaces_post_adds_delete_removes(rest: Rest, orders: str, unique: Unique) -> None:
    """What is on both lists stays as it was, with its cursors."""
    path, names = path_of(orders), sorted(unique("s") for _ in range(4))
    a, b, c, d = names
    assert rest.call("GET", path) == (200, [])
    assert rest.call("PUT", path, [a, b, a]) == (204, None)
    assert rest.call("GET", path) == (200, [a, b])
    before = made(rest, orders)
    assert rest.call("PUT", path, [b, c]) == (204, None)
    assert rest.call("GET", path) == (200, [b, c])
    assert made(rest, orders)[b] == before[b]
    assert rest.call("POST", path, [c, d]) == rest.call("POST", path, [c, d]) == (204, None)
    assert rest.call("GET", path) == (200, [b, c, d])
    assert rest.call("DELETE", path, [c]) == rest.call("DELETE", path, [c]) == (204, None)
    assert rest.call("GET", path) == (200, [b, d])
    assert rest.call("DELETE", path) == rest.call("DELETE", path) == (204, None)
    assert rest.call("GET", path) == (200, [])
    assert rest.topic(orders)["shadows"] == []


def test_names_come_as_pulsar_writes_them_and_tenant_and_namespace_say_nothing(
    rest: Rest, orders: str, unique: Unique
) -> None:
    a, b, c = sorted(unique("s") for _ in range(3))
    wanted = [f"persistent://acme/eu/{a}", f"acme/eu/{b}", c, f"persistent://other/x/{a}"]
    assert rest.call("PUT", path_of(orders, at="acme/eu"), wanted)[0] == 204
    assert rest.call("GET", path_of(orders, at="any/thing")) == (200, [a, b, c])
    source = {"PULSAR.SHADOW_SOURCE": f"persistent://acme/eu/{orders}"}
    assert rest.call("GET", path_of(a, "properties", "acme/eu")) == (200, source)
    assert rest.call("GET", path_of(orders, "properties")) == (200, {})
    assert rest.call("GET", path_of(unique("nothing"), "properties"))[0] == 404
    assert rest.call("DELETE", path_of(orders), [f"persistent://acme/eu/{a}"])[0] == 204
    assert rest.call("GET", path_of(orders)) == (200, [b, c])


def test_a_list_that_makes_no_sense_changes_nothing(rest: Rest, orders: str, unique: Unique) -> None:
    path, name = path_of(orders), unique("s")
    assert rest.call("PUT", path, [name])[0] == 204
    bad: list[object] = [
        [],
        {},
        {"shadowTopics": [name]},
        name,
        [1],
        [unique("s"), "a b"],
        ["persistent://acme/" + name],
        ["non-persistent://acme/eu/" + name],
        [f"s{number}" for number in range(1_001)],
    ]
    for method in ("PUT", "POST", "DELETE"):
        assert [rest.call(method, path, body)[0] for body in bad] == [400] * len(bad)
    assert rest.call("GET", path) == (200, [name])
    assert rest.call("PUT", path_of("__consumer_offsets"), [name])[0] == 400
    for method, body in (("GET", None), ("PUT", [name]), ("POST", [name]), ("DELETE", None)):
        assert rest.call(method, path_of(unique("nothing")), body)[0] == 404


def test_what_was_done_before_a_failure_stays_is_told_and_is_not_done_again(
    services: Services, rest: Rest, orders: str, unique: Unique
) -> None:
    """The second name of three is a topic's. Nothing is deleted as long as not all are made."""
    path, taken = path_of(orders), create_topic(services.kafka_bootstrap, 1)
    old, first, last = unique("s"), unique("s"), unique("s")
    assert rest.call("PUT", path, [old])[0] == 204
    status, refused = rest.call("PUT", path, [first, taken, last])
    assert status == 409
    assert f"cannot make {taken}" in refused["message"]
    assert f"done before: make {first}" in refused["message"]
    assert rest.call("GET", path) == (200, sorted([old, first]))
    before = made(rest, orders)
    assert rest.call("PUT", path, [first, last])[0] == 204
    assert rest.call("GET", path) == (200, sorted([first, last]))
    assert made(rest, orders)[first] == before[first]
