"""Shadows in numbers, as REST, the command line and the metrics tell them."""

from __future__ import annotations

import time
import urllib.request
from contextlib import ExitStack
from datetime import datetime

import pytest

from sidecar.cluster.nodes import NodeAddress, Placement
from sidecar.fanout.crowd import LEAST
from tests.conftest import StartNode, Unique
from tests.http.paper_cli import run as command
from tests.kafka.shadow.groups import commit, member, shadow_of, write
from tests.kafka.shadow.test_auto_reset import metric
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


@pytest.fixture
def source(services: Services) -> str:
    return create_topic(services.kafka_bootstrap, 2)


def test_readers_groups_and_lag_are_told(
    node: NodeProcess, services: Services, rest: Rest, source: str, unique: Unique
) -> None:
    shadow, unread = (shadow_of(rest, source, unique("audit")) for _ in range(2))
    write(services.kafka_bootstrap, source, 30, 0)
    write(services.kafka_bootstrap, source, 10, 1)
    nothing = {
        "readers": 0,
        "bytes": 0,
        "last_read": None,
        "cursor_resets": 0,
        "groups": 0,
        "total_lag": 0,
        "max_lag": 0,
    }
    assert rest.call("GET", f"/v1/shadows/{unread}")[1]["stats"] == nothing
    began = time.time()
    assert len(read_log(node.bootstrap, source)) == 30  # who reads the source is no reader of its shadows
    with member(node.bootstrap, unique("near"), shadow) as reader:
        seen = 0
        while seen < 40:
            message = reader.poll(20)
            seen += message is not None and not message.error()
        commit(node.bootstrap, unique("far"), shadow, {0: 5, 1: 0})
        commit(node.bootstrap, unique("nearer"), shadow, {0: 27})

        def known() -> bool:
            return rest.call("GET", f"/v1/shadows/{shadow}")[1]["stats"]["groups"] == 2

        wait_for(known, "the groups that have committed", 15)
        stats = rest.call("GET", f"/v1/shadows/{shadow}")[1]["stats"]
        assert (stats["total_lag"], stats["max_lag"]) == (38, 35)
        assert stats["readers"] == 1
        written = 40 * len("record 0")
        assert written < stats["bytes"] < 40 * 100
        assert began - 1 < datetime.fromisoformat(stats["last_read"]).timestamp() < time.time() + 1
        assert rest.call("GET", f"/v1/shadows/{unread}")[1]["stats"] == nothing
        assert metric(node, "sidecar_shadow_readers", shadow) == 1
        assert metric(node, "sidecar_shadow_read_bytes_total", shadow) == stats["bytes"]
        found = rest.topic(source)["shadowReplication"]
        assert set(found) == {shadow, unread}
        assert found[shadow] | {"last_read": None} == stats | {"last_read": None}
    assert "shadowReplication" not in rest.call("GET", "/v1/topics")[1]["items"][0]
    shown = command("--admin-url", node.admin_url, "shadow", "show", shadow).out
    assert "longest lag    35\n" in shown


def test_a_deleted_shadow_leaves_no_numbers_behind(
    node: NodeProcess, services: Services, rest: Rest, source: str, unique: Unique
) -> None:
    shadow = shadow_of(rest, source, unique("audit"))
    write(services.kafka_bootstrap, source, 3)
    assert len(read_log(node.bootstrap, shadow)) == 3
    assert (metric(node, "sidecar_shadow_read_bytes_total", shadow) or 0) > 0
    assert rest.call("DELETE", f"/v1/topics/{source}/shadows/{shadow}")[0] == 204
    assert metric(node, "sidecar_shadow_read_bytes_total", shadow) is None

    def made() -> bool:
        return rest.call("POST", f"/v1/topics/{source}/shadows", {"name": shadow})[0] == 201

    wait_for(made, "the name to be free", 20)
    assert metric(node, "sidecar_shadow_read_bytes_total", shadow) == 0


def test_the_metrics_tell_a_lag_once_in_all_nodes(services: Services, node_process: StartNode, unique: Unique) -> None:
    """By the node that is first in line for the shadow's name, as soon as it is there."""
    cluster = unique("pair")
    source = create_topic(services.kafka_bootstrap, 1)
    write(services.kafka_bootstrap, source, 12)
    nodes = {number: node_process(cluster=cluster, node_id=number) for number in (1, 2)}
    placement = Placement([NodeAddress(number, "", 0) for number in nodes])
    names = [unique("audit") for _ in range(20)]
    first = {placement.of_topic(name.encode()): name for name in names}
    assert first.keys() == nodes.keys()
    for name in first.values():
        shadow_of(Rest(nodes[1].admin_url), source, name)
        commit(nodes[1].bootstrap, unique("group"), name, {0: 2})
    for node in nodes.values():  # each looks at the cursors when it starts
        node.stop()
        node.start()

    def told(number: int) -> dict[str, float]:
        found = {name: metric(nodes[number], "sidecar_shadow_lag_records", name) for name in first.values()}
        return {name: lag for name, lag in found.items() if lag is not None}

    for number, name in first.items():
        wait_for(lambda: told(number), "the lag to be told", 60)  # noqa: B023
        assert told(number) == {name: 10}
        assert metric(nodes[number], "sidecar_shadow_max_lag_records", name) == 10
        assert metric(nodes[number], "sidecar_shadow_groups", name) == 1


def gauge(node: NodeProcess, name: str) -> float:
    with urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} "))


def test_who_waits_at_the_end_of_a_log_with_others_is_counted(
    node: NodeProcess, services: Services, rest: Rest, source: str, unique: Unique
) -> None:
    shadow = shadow_of(rest, source, unique("audit"))
    write(services.kafka_bootstrap, source, 1)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(member(node.bootstrap, unique("group"), name))
            for name in (shadow, source) * (LEAST // 2)
        ]

        def waiting() -> bool:
            for reader in readers:
                reader.poll(0)
            return gauge(node, "sidecar_fanout_waiting") >= LEAST and gauge(node, "sidecar_fanout_polls") >= 1

        wait_for(waiting, "all wait", 30)
