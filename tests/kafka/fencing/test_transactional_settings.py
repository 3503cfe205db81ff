"""The same late batches (test_transactional_owners.py) by version of Kafka and by setting, after what a partition and a
coordinator forget, and after a change of leader. Results: docs/internals/transactional-ids.md.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import pytest

from sidecar.local import Kafka
from sidecar.protocol.errors import ErrorCode
from tests.conftest import OwnKafka, Unique
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.requests import request
from tests.raw import code
from tests.transactional import (
    FIRST,
    SECOND,
    VERSIONS,
    Dialect,
    Late,
    Past,
    TransactionalProducer,
    Wire,
    depose,
    spoken,
)
from tests.wait import wait_for

VERIFICATION = "transaction.partition.verification.enable"
UNVERIFIED_LANDS = {Past.NEVER, Past.COMMITTED, Past.ABORTED}
"""Where a batch in the first dialect lands if its leader does not ask: no marker of the new epoch is there."""

BY_VERSION: list[tuple[str, tuple[int | None, ...]]] = [("3.9.1", (None,)), ("4.1.1", (2, 1, 0)), ("4.3.1", (2, 1, 0))]
"""With the levels of `transaction.version` that brokers of this version have; in this order, as it is lowered."""


def _named(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def _late(wire: Wire, dialect: Dialect, past: Past) -> Late:
    return depose(wire, wire.create(_named("orders")), _named("txn"), dialect, past)


def _lower(kafka: Kafka, level: int) -> None:
    feature = ("downgrade", "--feature", f"transaction.version={level}")
    kafka.tools.run("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", kafka.bootstrap, *feature)


def _landed(wire: Wire, dialect: Dialect) -> set[Past]:
    """Where a late batch landed; what landed has to hold readers back, what did not has to have left nothing."""
    found: set[Past] = set()
    for past in Past:
        late = _late(wire, dialect, past)
        before = wire.log(late.topic)
        told = late.arrives()
        after = wire.log(late.topic)
        if told == ErrorCode.NONE:
            found.add(past)
            assert after.entries == (*before.entries, "txn 0")
            assert after.last_stable_offset == before.high_watermark < after.high_watermark, "no transaction was opened"
        else:
            assert (told, after) == (ErrorCode.INVALID_PRODUCER_EPOCH, before), past
    return found


def _marked(wire: Wire, dialect: Dialect) -> None:
    """With a marker of the new epoch, as a node would write it, the log itself refuses, verified or not."""
    for past in set(Past) - {Past.SUCCESSOR}:
        late = _late(wire, dialect, past)
        late.holder.mark(late.topic)
        before = wire.log(late.topic)
        assert late.arrives() == ErrorCode.INVALID_PRODUCER_EPOCH, past
        assert late.arrives(transactional=False, transactional_id=None) == ErrorCode.INVALID_PRODUCER_EPOCH, past
        assert wire.log(late.topic) == before


@pytest.mark.slow
@pytest.mark.parametrize("verified", [True, False], ids=["verified", "unverified"])
@pytest.mark.parametrize(("version", "levels"), BY_VERSION, ids=[version for version, _ in BY_VERSION])
def test_where_a_late_batch_lands(
    own_kafka: OwnKafka, version: str, levels: tuple[int | None, ...], verified: bool
) -> None:
    kafka = own_kafka(version=version, overrides={VERIFICATION: str(verified).lower()})
    with Wire(kafka.bootstrap) as wire:
        for level in levels:
            if level in {0, 1}:
                _lower(kafka, level)
            assert _landed(wire, FIRST) == (set() if verified else UNVERIFIED_LANDS), level
            _marked(wire, FIRST)
            if level == 2:
                assert _landed(wire, SECOND) == set()
                _marked(wire, SECOND)


@pytest.mark.slow
def test_a_running_broker_stops_verifying_when_it_is_told_to(own_kafka: OwnKafka) -> None:
    kafka = own_kafka()
    with Wire(kafka.bootstrap) as wire:
        late = _late(wire, FIRST, Past.NEVER)
        assert late.arrives() == ErrorCode.INVALID_PRODUCER_EPOCH
        off = {"name": VERIFICATION, "config_operation": 0, "value": "false"}
        brokers = {"resource_type": 4, "resource_name": "", "configs": [off]}
        assert codes(wire.any().ask(request(44, 1, resources=[brokers]))) == {0}
        wait_for(lambda: late.arrives() == ErrorCode.NONE, "the broker to stop verifying")


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("verified", [True, False], ids=["verified", "unverified"])
def test_what_is_forgotten_fences_nobody_unless_batches_are_verified(
    own_kafka: OwnKafka, version: str, verified: bool
) -> None:
    """Verified, a late batch is refused by a coordinator that remembers, and by one that does not."""
    forgetful = {
        "producer.id.expiration.ms": "500",
        "producer.id.expiration.check.interval.ms": "100",
        "transactional.id.expiration.ms": "8000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    kafka = own_kafka(version=version, overrides=forgetful | {VERIFICATION: str(verified).lower()})
    with Wire(kafka.bootstrap) as wire:
        for dialect, past in itertools.product(spoken(version), (Past.OPEN, Past.COMMITTED)):
            late = _late(wire, dialect, past)
            late.holder.mark(late.topic)
            assert late.arrives() == ErrorCode.INVALID_PRODUCER_EPOCH
            wait_for(lambda topic=late.topic: not _remembered(wire, topic), "the partition to forget")
            asks = verified or dialect is SECOND
            assert late.arrives() == (ErrorCode.INVALID_PRODUCER_EPOCH if asks else ErrorCode.NONE), (dialect, past)
        late = _late(wire, FIRST, Past.OPEN)
        former = late.holder.stamp.producer_id
        wait_for(lambda: late.holder.state() == "", "the coordinator to forget", 60)
        wait_for(lambda: not _remembered(wire, late.topic), "the partition to forget")
        assert late.arrives() == (ErrorCode.INVALID_PRODUCER_ID_MAPPING if verified else ErrorCode.NONE)
        assert late.holder.init().producer_id != former
        if verified:
            assert late.arrives() == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _remembered(wire: Wire, topic: str) -> tuple[int, ...]:
    """Producer ids that the leader of partition 0 remembers."""
    told = wire.leader(topic).ask(request(61, 0, topics=[{"name": topic, "partition_indexes": (0,)}]))
    (partition,) = told.topics[0].partitions
    assert code(partition) == ErrorCode.NONE
    return tuple(found.producer_id for found in partition.active_producers)


@pytest.fixture
def wire(kafka_cluster: Kafka) -> Iterator[Wire]:
    with Wire(kafka_cluster.bootstrap) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_leader_refuses_it_too(own_kafka: OwnKafka, unique: Unique, version: str) -> None:
    with Wire(own_kafka(version=version, brokers=2).bootstrap) as wire:
        for dialect, past in itertools.product(spoken(version), Past):
            topic = wire.create(unique("orders"), brokers=(1, 2))
            late = depose(wire, topic, unique("txn"), dialect, past)
            before = wire.log(topic)
            wire.move(topic, (2, 1))
            wait_for(lambda topic=topic, log=before: wire.log(topic) == log, "the new leader's high watermark")
            assert late.arrives() == ErrorCode.INVALID_PRODUCER_EPOCH
            assert wire.log(topic) == before


def test_a_partition_of_another_topic_without_leader_keeps_the_id_from_its_successor(
    wire: Wire, kafka_cluster: Kafka, unique: Unique
) -> None:
    """Kafka's own fence waits for the markers of all that was in the transaction, whatever topics these are."""
    topic, other = wire.create(unique("orders"), brokers=(1, 2)), wire.create(unique("other"), brokers=(3,))
    transactional_id = _led_elsewhere(wire, unique, kafka_cluster.address(3))
    deposed = TransactionalProducer(wire, transactional_id, FIRST)
    deposed.init()
    deposed.begin(topic)
    deposed.begin(other)
    kafka_cluster.kill(3)
    try:
        wait_for(lambda: not wire.leaders(other), "its leader to be gone", 60)
        holder = deposed.successor()
        wait_for(lambda: holder.init_once() == ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction to be aborted", 60)
        wait_for(lambda: wire.log(topic).entries == ("txn 0", "marker 1"), "the marker where a leader is", 60)
        assert deposed.write(topic, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (holder.init_once(), holder.state()) == (ErrorCode.CONCURRENT_TRANSACTIONS, "PrepareAbort")
    finally:
        kafka_cluster.restart(3)
    assert holder.init().epoch == 2


def _led_elsewhere(wire: Wire, unique: Unique, address: str) -> str:
    """A transactional id whose coordinator is at another broker."""
    while True:
        transactional_id = unique("txn")
        if wire.coordinator(transactional_id) is not wire.at(address):
            return transactional_id
