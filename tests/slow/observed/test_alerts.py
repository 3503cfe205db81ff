"""Alerts go off for real: two nodes, a Redis that is stopped, a node that is killed, a producer that was deposed."""

from __future__ import annotations

import pytest

from tests.slow.observed.conftest import Observed
from tests.slow.observed.prometheus import Prometheus, instance
from tests.unit.deploy.files import RULES, load_yaml
from tests.wait import wait_for

TIMEOUT_S = 120

pytestmark = pytest.mark.timeout(300)


def fires(prometheus: Prometheus, name: str, *nodes: str) -> None:
    """Wait until an alert fires, for each of these nodes; "" for one that names none."""
    wanted = {(name, node) for node in nodes}
    wait_for(lambda: wanted <= prometheus.firing(), f"{name} to fire", TIMEOUT_S)


def ends(prometheus: Prometheus, name: str) -> None:
    """Wait until an alert fires no more."""
    wait_for(lambda: all(found != name for found, _ in prometheus.firing()), f"{name} to end", TIMEOUT_S)


def test_prometheus_has_all_alerts_and_each_can_be_evaluated(observed: Observed) -> None:
    groups = observed.prometheus.api("rules")["groups"]
    found = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    wanted = [rule["alert"] for group in load_yaml(RULES)["groups"] for rule in group["rules"]]
    assert found == dict.fromkeys(wanted, "ok")


def test_a_deposed_producer_that_wrote_is_told_of(observed: Observed) -> None:
    query = 'ALERTS{alertname="StaleProducerWriting", alertstate="firing"}'
    stale = [series["metric"] for series in observed.prometheus.query(query, observed.scene.at)]
    assert {(found["topic"], found["reason"]) for found in stale} == {
        (observed.scene.orders, "deposed"),
        (observed.scene.orders, "not_owner"),
    }


def test_redis_away_is_told_of_every_node_and_its_return_ends_it(observed: Observed) -> None:
    nodes = [instance(node) for node in observed.scene.nodes]
    observed.scene.redis.pause()
    try:
        fires(observed.prometheus, "RedisUnavailable", *nodes)
        assert not [name for name, _ in observed.prometheus.firing() if name in {"SidecarDown", "LeaseExpired"}]
    finally:
        observed.scene.redis.resume()
    ends(observed.prometheus, "RedisUnavailable")


def test_a_node_that_is_killed_is_told_of_and_its_return_ends_it(observed: Observed) -> None:
    second = observed.scene.nodes[1]
    second.kill()
    try:
        fires(observed.prometheus, "SidecarDown", instance(second))
        assert ("SidecarDown", instance(observed.scene.nodes[0])) not in observed.prometheus.firing()
    finally:
        second.start()
    ends(observed.prometheus, "SidecarDown")


def test_a_redis_that_may_evict_is_told_of_while_the_nodes_run(observed: Observed) -> None:
    with observed.scene.redis_client() as redis:
        redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            fires(observed.prometheus, "RedisEvictionPolicyWrong", "")
        finally:
            redis.config_set("maxmemory-policy", "noeviction")
