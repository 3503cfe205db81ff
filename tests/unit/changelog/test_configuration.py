"""How the internal topics must be configured, and what is said where they are not."""

from __future__ import annotations

from uuid import uuid4

import pytest

from sidecar.changelog.topics import Finding, TopicNames, check, replicas_of, wanted_configs
from sidecar.protocol.calls.admin import PartitionDescription, TopicDescription

ROLES = ["ownership", "snapshots", "events"]


def described(replicas: int, partitions: int = 1) -> TopicDescription:
    of_each = tuple(range(replicas))
    parts = tuple(PartitionDescription(0, index, 0, 0, of_each, of_each) for index in range(partitions))
    return TopicDescription(0, "t", uuid4(), parts)


def findings(role: str, replicas: int, brokers: int, partitions: int = 1, **changed: str) -> list[Finding]:
    values: dict[str, str | None] = {**wanted_configs(role, replicas)}
    values |= {name.replace("_", "."): value for name, value in changed.items()}
    return check(role, values, described(replicas, partitions), brokers)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("brokers", [1, 2, 3, 7])
def test_what_we_create_passes_our_own_check(role: str, brokers: int) -> None:
    assert findings(role, replicas_of(brokers), brokers) == []


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (9, 3, "2")])
def test_replicas_are_as_safe_as_the_cluster_allows(brokers: int, replicas: int, in_sync: str) -> None:
    assert replicas_of(brokers) == replicas
    assert wanted_configs("ownership", replicas)["min.insync.replicas"] == in_sync


@pytest.mark.parametrize(
    "changed",
    [
        {"cleanup_policy": "delete"},
        {"cleanup_policy": "compact,delete"},
        {"message_timestamp_type": "CreateTime"},
        {"unclean_leader_election_enable": "true"},
        {"compression_type": "zstd"},
        {"min_insync_replicas": "1"},
        {"delete_retention_ms": "86400000"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_setting_that_costs_safety_is_fatal_and_named_with_its_right_value(changed: dict[str, str]) -> None:
    (found,) = findings("ownership", 3, 3, 1, **changed)
    name = next(iter(changed)).replace("_", ".")
    assert found.fatal
    assert f"{name} is {next(iter(changed.values()))}, must be {wanted_configs('ownership', 3)[name]}" in str(found)


def test_more_than_one_ownership_partition_is_fatal() -> None:
    (found,) = findings("ownership", 1, 1, partitions=2)
    assert found.fatal
    assert "2 partitions" in found.what
    assert findings("snapshots", 1, 1, partitions=8) == []


def test_fewer_replicas_than_the_cluster_allows_is_a_warning() -> None:
    (found,) = findings("ownership", 1, 3)
    assert not found.fatal
    assert "1 of 3 brokers" in found.what


def test_history_that_is_kept_shorter_is_a_warning_and_for_ever_is_fine() -> None:
    (found,) = findings("events", 1, 1, retention_ms="1000")
    assert not found.fatal
    assert findings("events", 1, 1, retention_ms="-1") == []


def test_the_topics_of_a_cluster_of_nodes_are_named_after_it() -> None:
    names = TopicNames.of("default")
    assert names == TopicNames("__sidecar_default", "__sidecar_default_snapshots", "__sidecar_default_events")
    assert names.all[-1] == names.ownership
