"""The doctor looks for those who read a shadow past the nodes."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from sidecar.cli.checks.finding import Level
from sidecar.cli.checks.kafka import Member, assigned, hosts_of, judged, members_of
from tests.conftest import Unique
from tests.kafka_calls import kafka_calls
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic


@pytest.fixture
def audit(services: Services, rest: Rest, unique: Unique) -> Iterator[str]:
    orders, name = create_topic(services.kafka_bootstrap), unique("audit")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201
    yield name
    assert rest.call("DELETE", f"/v1/topics/{orders}?force=true")[0] == 204


async def test_a_member_from_elsewhere_is_found_by_its_address(services: Services, audit: str, unique: Unique) -> None:
    """Members of groups that read other topics are nobody's business."""
    other, group = create_topic(services.kafka_bootstrap), unique("g")
    readers = [
        AIOKafkaConsumer(topic, bootstrap_servers=services.kafka_bootstrap, group_id=name, client_id=name)
        for topic, name in ((audit, group), (other, unique("g")))
    ]
    async with kafka_calls(services.kafka_bootstrap) as kafka:
        await kafka.upstream.brokers()
        assert await members_of(kafka.upstream, {audit}) == []
        try:
            for reader in readers:
                await reader.start()
            (found,) = await members_of(kafka.upstream, {audit})
        finally:
            for reader in readers:
                await reader.stop()
        assert found == Member(group, group, "127.0.0.1", audit)
        elsewhere = judged([found], {"10.0.0.1"})
        assert (elsewhere.level, f"{group} ({group}) at 127.0.0.1 reads {audit}" in elsewhere.detail) == (
            Level.WARN,
            True,
        )
        here = judged([found], hosts_of(["localhost"], []))
        assert (here.level, "cannot be distinguished" in here.detail) == (Level.OK, True)


def test_the_command_says_who_reads_shadows(services: Services, node: NodeProcess, audit: str) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "SIDECAR_ADMIN_URL": node.admin_url,
        "SIDECAR_BOOTSTRAP_SERVERS": services.kafka_bootstrap,
        "SIDECAR_REDIS_URL": services.redis_url,
        "SIDECAR_CLUSTER": node.cluster,
    }
    command = [Path(sys.executable).with_name("sidecar"), "doctor", "-o", "json"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    checks: list[dict[str, Any]] = json.loads(told.stdout)["checks"]
    (found,) = [each for each in checks if each["name"] == "shadow readers"]
    assert (found["level"], found["detail"]) == ("ok", "no member of a group has partitions of a shadow now")


def test_many_strangers_are_counted_and_a_few_named() -> None:
    strangers = [Member(f"g{number}", "c", "10.0.0.9", "audit") for number in range(8)]
    found = judged([*strangers, Member("g", "c", "10.0.0.1", "audit")], {"10.0.0.1"})
    assert found.detail.count(" reads audit") == 5
    assert "and 3 more" in found.detail
    assert "10.0.0.1 " not in found.detail


def test_nodes_on_this_machine_are_seen_at_the_address_that_leads_to_the_brokers() -> None:
    assert "127.0.0.1" in hosts_of(["127.0.0.1"], [("127.0.0.1", 9092)])
    assert hosts_of(["192.0.2.7"], [("127.0.0.1", 9092)]) == {"192.0.2.7"}
    assert hosts_of(["no.such.host.invalid"], []) == set()


def test_what_is_no_assignment_of_a_consumer_has_no_topics() -> None:
    whole = struct.pack(">hih5sii", 0, 1, 5, b"audit", 1, 0) + struct.pack(">i", -1)
    assert assigned(whole) == ["audit"]
    assert [assigned(whole[:size]) for size in range(20)] == [[]] * 20
    assert assigned(b"\xff" * 30) == []
