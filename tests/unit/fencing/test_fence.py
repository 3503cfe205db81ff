"""Slots and fences against a cluster on paper: what is tried again, what ends a slot, and when a fence is complete.

`tests/kafka/fencing` shows that real brokers answer so.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from sidecar.fencing.expiry import BROKER_DEFAULTS, read_keep_alives
from sidecar.fencing.slot import ROTATE_AT, EpochsUsedUpError, FencingLimits, WriterSlot
from sidecar.fencing.topic import fence_topic, open_slots, retire_formers, retire_producer
from sidecar.fencing.witness import FencingRefusedError, Witness
from sidecar.network.backoff import RetryTimeoutError
from sidecar.protocol.caller import Channel, DisconnectedError, FencedError
from sidecar.protocol.calls.admin import ConfigResource, Described, Resource
from sidecar.protocol.calls.transactions import (
    AddPartitionsToTxn,
    DescribeProducers,
    EndTxn,
    InitProducerId,
    WriteTxnMarkers,
)
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import MAX_PRODUCER_EPOCH, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.v1 import state_pb2 as state
from tests.unit.fencing.paper import PaperCluster

ALL = {"t": (0, 1, 2)}
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
LOST = DisconnectedError("gone")
STALE, FENCED, NO_MAPPING = (
    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)  # fmt: skip


@pytest.fixture
def cluster() -> PaperCluster:
    return PaperCluster({"t": {0: 1, 1: 2, 2: 1}, "other": {0: 2}})


async def opened(cluster: PaperCluster, epoch: int = 0, name: str = "sidecar.c.t") -> WriterSlot:
    cluster.stamp = Stamp(ProducerId(70), ProducerEpoch(epoch - 1))
    slot = WriterSlot(cluster.upstream, name)
    await slot.open()
    return slot


# When a fence is complete -------------------------------------------------------------------------------------------


async def test_a_fence_is_complete_only_when_every_leader_confirms_it(cluster: PaperCluster) -> None:
    slot = await opened(cluster, 4)
    cluster.unmarked = [T1, T1]
    await slot.fence({"t": (2, 0, 1), "other": ()})
    assert cluster.stamps() == {T0: 4, T1: 4, T2: 4}
    assert [request.partitions for request in cluster.asked(AddPartitionsToTxn)] == [ALL, {"t": (1,)}, {"t": (1,)}]
    assert {broker for broker, request in cluster.calls if isinstance(request, DescribeProducers)} == {1, 2}


async def test_a_marker_of_an_earlier_epoch_confirms_nothing(cluster: PaperCluster) -> None:
    slot = await opened(cluster, 4)
    cluster.know(T1, Stamp(ProducerId(70), ProducerEpoch(3)))
    cluster.unmarked = [T1]
    await slot.fence(ALL)
    assert cluster.stamps()[T1] == 4


@pytest.mark.parametrize(
    ("ends", "adds"),
    [
        ([0, 0], 1),
        ([0, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, 0], 1),
        ([ErrorCode.NOT_COORDINATOR, 0, 0], 1),
        ([0, LOST, 0], 1),
        ([0, ErrorCode.INVALID_TXN_STATE, 0, 0], 2),
        ([ErrorCode.INVALID_TXN_STATE, 0, 0], 2),
    ],
)
async def test_markers_are_written_when_the_second_abort_is_accepted(
    cluster: PaperCluster, ends: list[int | Exception], adds: int
) -> None:
    slot = await opened(cluster)
    cluster.faults[EndTxn] = list(ends)
    await slot.fence(ALL)
    assert len(cluster.asked(EndTxn)) == len(ends)
    assert len(cluster.asked(AddPartitionsToTxn)) == adds


@pytest.mark.parametrize("code", [STALE, FENCED, NO_MAPPING])
@pytest.mark.parametrize("kind", [AddPartitionsToTxn, EndTxn])
async def test_a_slot_that_kafka_fences_is_lost_until_it_is_opened_again(
    cluster: PaperCluster, kind: type, code: int
) -> None:
    slot = await opened(cluster)
    cluster.faults[kind] = [code]
    for use in (slot.fence, slot.fence, slot.rotate):
        with pytest.raises(FencedError):
            await use(ALL)
    with pytest.raises(FencedError):
        _ = slot.stamp
    assert (await slot.open()).epoch == 1
    assert slot.stamp.epoch == 1


async def test_a_partition_that_knows_a_newer_epoch_ends_the_slot(cluster: PaperCluster) -> None:
    slot = await opened(cluster)
    cluster.unmarked = [T1]
    cluster.know(T1, Stamp(ProducerId(70), ProducerEpoch(5)))
    with pytest.raises(FencedError, match="newer epoch"):
        await slot.keep_alive(ALL)
    with pytest.raises(FencedError):
        _ = slot.stamp


@pytest.mark.parametrize(
    ("code", "forgets"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, 0),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0),
        (ErrorCode.NOT_COORDINATOR, 1),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 1),
    ],
)
async def test_partitions_that_were_not_added_are_added_again(cluster: PaperCluster, code: int, forgets: int) -> None:
    slot = await opened(cluster)
    cluster.faults[AddPartitionsToTxn] = [code]
    await slot.fence(ALL)
    assert len(cluster.asked(AddPartitionsToTxn)) == 2
    assert cluster.stamps() == {T0: 0, T1: 0, T2: 0}
    assert cluster.forgotten == forgets


@pytest.mark.parametrize("kind", [AddPartitionsToTxn, EndTxn, DescribeProducers])
async def test_a_refusal_that_stays_ends_a_fence_but_not_the_slot(cluster: PaperCluster, kind: type) -> None:
    slot = await opened(cluster)
    cluster.faults[kind] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(FencingRefusedError) as refused:
        await slot.fence(ALL)
    assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert slot.stamp.epoch == 0


async def test_a_coordinator_that_may_not_be_looked_up_is_a_refusal(
    cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = await opened(cluster)

    async def refuse(*_: object) -> int:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no")

    monkeypatch.setattr(cluster, "coordinator", refuse)
    for asked in (slot.fence(ALL), slot.open()):
        with pytest.raises(FencingRefusedError) as refused:
            await asked
        assert refused.value.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert cluster.forgotten == 0


async def test_a_leader_that_does_not_say_what_it_knows_is_no_witness(cluster: PaperCluster) -> None:
    cluster.faults[DescribeProducers] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with pytest.raises(KafkaError) as unknown:
        await witness(cluster).producers(ALL)
    assert unknown.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_leaders_that_moved_are_looked_up_again(cluster: PaperCluster) -> None:
    slot = await opened(cluster)
    cluster.faults[DescribeProducers] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, LOST]
    await slot.fence(ALL)
    assert cluster.refreshed >= 1
    assert cluster.stamps() == {T0: 0, T1: 0, T2: 0}


async def test_a_fence_that_is_not_confirmed_in_time_fails(cluster: PaperCluster) -> None:
    slot = WriterSlot(cluster.upstream, "sidecar.c.t", limits=FencingLimits(deadline=0.05))
    await slot.open()
    cluster.unmarked = [T2] * 1_000
    with pytest.raises(RetryTimeoutError):
        await slot.fence(ALL)


# Epochs -------------------------------------------------------------------------------------------------------------


async def test_a_slot_that_is_not_open_has_no_stamp(cluster: PaperCluster) -> None:
    slot = WriterSlot(cluster.upstream, "sidecar.c.t")
    with pytest.raises(LookupError):
        _ = slot.stamp


async def test_a_slot_that_cannot_be_opened_again_has_no_stamp_any_more(cluster: PaperCluster) -> None:
    slot = await opened(cluster, 4)
    cluster.faults[InitProducerId] = [50] * 20
    with pytest.raises(FencingRefusedError):
        await slot.open()
    with pytest.raises(LookupError):
        _ = slot.stamp


@pytest.mark.parametrize("code", [STALE, FENCED, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, LOST])
async def test_a_slot_is_opened_however_often_rivals_and_coordinators_are_in_the_way(
    cluster: PaperCluster, code: int | Exception
) -> None:
    cluster.faults[InitProducerId] = [code, code]
    assert (await opened(cluster, 6)).stamp.epoch == 6
    assert cluster.forgotten == (2 if code in (ErrorCode.NOT_COORDINATOR, LOST) else 0)


@pytest.mark.parametrize(("allowed", "tries"), [(900_000, 1), (400_000, 3), (112_500, 4)])
async def test_the_transaction_timeout_is_halved_until_the_broker_accepts_it(
    cluster: PaperCluster, allowed: int, tries: int
) -> None:
    def judge(request: Any) -> None:
        if isinstance(request, InitProducerId) and request.transaction_timeout_ms > allowed:
            cluster.faults[InitProducerId] = [50]

    cluster.before = judge
    await opened(cluster)
    assert len(cluster.asked(InitProducerId)) == tries


async def test_a_broker_that_allows_less_than_ten_seconds_is_refused(cluster: PaperCluster) -> None:
    cluster.faults[InitProducerId] = [50] * 20
    with pytest.raises(FencingRefusedError):
        await opened(cluster)
    assert cluster.asked(InitProducerId)[-1].transaction_timeout_ms == 7_031


async def test_a_raised_epoch_is_the_next_one_of_the_holder(cluster: PaperCluster) -> None:
    slot = await opened(cluster, 8)
    assert (await slot.raise_epoch()).epoch == slot.stamp.epoch == 9
    assert cluster.asked(InitProducerId)[-1].current == Stamp(ProducerId(70), ProducerEpoch(8))


@pytest.mark.parametrize(
    "answered", [Stamp(ProducerId(70), ProducerEpoch(10)), Stamp(ProducerId(71), ProducerEpoch(9))]
)
async def test_an_epoch_that_was_raised_to_another_than_the_next_one_is_lost(
    cluster: PaperCluster, answered: Stamp
) -> None:
    """What Kafka answered is checked after it was awaited: a rival may have been in between."""
    slot = await opened(cluster, 8)

    def rival(request: Any) -> None:
        if isinstance(request, InitProducerId):
            cluster.answered = answered

    cluster.before = rival
    with pytest.raises(FencedError):
        await slot.raise_epoch()
    with pytest.raises(FencedError):
        _ = slot.stamp


@pytest.mark.parametrize("code", [STALE, FENCED, NO_MAPPING])
async def test_an_epoch_that_a_rival_opened_cannot_be_raised(cluster: PaperCluster, code: int) -> None:
    slot = await opened(cluster)
    cluster.faults[InitProducerId] = [code]
    with pytest.raises(FencedError):
        await slot.raise_epoch()


async def test_epochs_are_used_up_one_before_the_limit(cluster: PaperCluster) -> None:
    slot = await opened(cluster, ROTATE_AT - 2)
    await slot.raise_epoch()
    assert not slot.rotation_due
    with pytest.raises(EpochsUsedUpError):
        await slot.raise_epoch()
    with pytest.raises(ValueError, match="not due"):
        await slot.rotate(ALL)
    await slot.open()
    assert slot.rotation_due


async def test_a_rotation_fences_the_old_producer_id_and_returns_the_new_one(cluster: PaperCluster) -> None:
    slot = await opened(cluster, ROTATE_AT)

    def wrap(request: Any) -> None:
        if isinstance(request, InitProducerId) and cluster.stamp.epoch == ROTATE_AT + 2:
            cluster.stamp = Stamp(ProducerId(71), ProducerEpoch(-1))

    cluster.before = wrap
    assert await slot.rotate(ALL) == slot.stamp == Stamp(ProducerId(71), ProducerEpoch(0))
    assert cluster.stamps() == {T0: ROTATE_AT, T1: ROTATE_AT, T2: ROTATE_AT}


async def test_operations_of_a_slot_queue(cluster: PaperCluster) -> None:
    slot = await opened(cluster)
    first, second = await asyncio.gather(slot.raise_epoch(), slot.raise_epoch())
    assert (first.epoch, second.epoch) == (1, 2)


# What leaders know --------------------------------------------------------------------------------------------------


def witness(cluster: PaperCluster) -> Witness:
    return Witness(cluster.upstream, Channel("c"), 1.0)


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ({"t": 999, "u": 1}, [{"t": 999, "u": 1}]),
        ({"t": 999, "u": 2}, [{"t": 999}, {"u": 2}]),
        ({"t": 1_000}, [{"t": 1_000}]),
        ({"t": 2_001, "u": 999, "v": 1}, [{"t": 1_000}, {"t": 1_000}, {"t": 1, "u": 999}, {"v": 1}]),
    ],
)
async def test_a_leader_is_asked_about_a_thousand_partitions_at_once(
    sizes: dict[str, int], calls: list[dict[str, int]]
) -> None:
    cluster = PaperCluster({topic: dict.fromkeys(range(size), 1) for topic, size in sizes.items()})
    asked = {topic: tuple(range(size)) for topic, size in sizes.items()}
    answers = await witness(cluster).producers(asked)
    sent = [request.partitions for request in cluster.asked(DescribeProducers)]
    assert [{topic: len(indexes) for topic, indexes in each.items()} for each in sent] == calls
    assert len(answers) == sum(sizes.values())


async def test_the_leaders_to_ask_may_be_given(cluster: PaperCluster) -> None:
    await witness(cluster).producers({"t": (0, 1)}, leaders={"t": {0: 5, 1: 6}})
    assert sorted(broker for broker, _ in cluster.calls if broker) == [5, 6]


@pytest.mark.parametrize("leaders", [{"t": {0: -1}}, {"t": {}}])
async def test_a_partition_without_a_leader_is_not_confirmed(leaders: dict[str, dict[int, int]]) -> None:
    with pytest.raises(DisconnectedError, match="no leader") as error:
        await witness(PaperCluster(leaders)).without_fence(Stamp(ProducerId(1), ProducerEpoch(0)), {"t": (0,)})
    assert not error.value.sent


@pytest.mark.parametrize(
    ("epochs", "missing"),
    [({}, {"t": (0, 1, 2)}), ({T0: 4, T1: 3}, {"t": (1, 2)}), ({T0: 4, T1: 4, T2: 4}, {})],
)
async def test_partitions_without_the_fence_are_those_that_know_only_lower_epochs(
    cluster: PaperCluster, epochs: dict[TopicPartition, int], missing: dict[str, tuple[int, ...]]
) -> None:
    for partition, epoch in epochs.items():
        cluster.know(partition, Stamp(ProducerId(70), ProducerEpoch(epoch)))
    assert await witness(cluster).without_fence(Stamp(ProducerId(70), ProducerEpoch(4)), ALL) == missing


# Topics -------------------------------------------------------------------------------------------------------------


async def test_partitions_that_were_added_during_a_fence_are_fenced_too(cluster: PaperCluster) -> None:
    slot = await opened(cluster, 2)

    def grow(request: Any) -> None:
        if isinstance(request, EndTxn):
            cluster.leaders["t"][3] = 2

    cluster.before = grow
    fenced = await fence_topic(cluster.upstream, [slot], "t", also={"other": (0,)})
    assert fenced.partitions == (0, 1, 2, 3)
    assert fenced.topic_id == cluster.ids["t"]
    assert len(cluster.stamps()) == 5
    assert cluster.asked(AddPartitionsToTxn)[-1].partitions == {"other": (0,), "t": (3,)}


async def test_a_topic_that_was_created_again_is_fenced_from_the_start(cluster: PaperCluster) -> None:
    slot = await opened(cluster, 2)

    def create(request: Any) -> None:
        if isinstance(request, EndTxn):
            cluster.ids["t"] = UUID(int=77)

    cluster.before = create
    fenced = await fence_topic(cluster.upstream, [slot], "t", also={})
    assert fenced.topic_id == UUID(int=77)
    assert [request.partitions for request in cluster.asked(AddPartitionsToTxn)] == [ALL, ALL]


async def test_a_slot_of_one_partition_fences_that_one(cluster: PaperCluster) -> None:
    master, of_one = await opened(cluster), await opened(cluster, name="sidecar.c.t/p1")
    only = {of_one.transactional_id: 1}
    await fence_topic(cluster.upstream, [master, of_one], "t", also={}, only=only)
    assert [request.partitions for request in cluster.asked(AddPartitionsToTxn)] == [ALL, {"t": (1,)}]


async def test_slots_are_opened_the_first_before_the_others(cluster: PaperCluster) -> None:
    slots = [WriterSlot(cluster.upstream, f"sidecar.c.t/{number}") for number in range(130)]
    await open_slots(slots)
    assert sorted(slot.stamp.epoch for slot in slots) == list(range(130))
    assert slots[0].stamp.epoch == 0


@pytest.mark.parametrize(("former", "retired"), [(69, True), (70, False), (None, False)])
async def test_a_former_producer_id_is_fenced_for_ever(
    cluster: PaperCluster, former: int | None, retired: bool
) -> None:
    slot = await opened(cluster)
    formers = {slot.transactional_id: ProducerId(former)} if former else {}
    await fence_topic(cluster.upstream, [slot], "t", also={}, former=formers)
    assert (cluster.stamps(69) == dict.fromkeys((T0, T1, T2), MAX_PRODUCER_EPOCH)) == retired
    assert bool(cluster.asked(WriteTxnMarkers)) is retired


async def test_a_slot_at_its_last_epochs_gets_a_new_producer_id_while_its_topic_is_fenced(
    cluster: PaperCluster,
) -> None:
    slot = await opened(cluster, ROTATE_AT)

    def wrap(request: Any) -> None:
        if isinstance(request, InitProducerId):
            cluster.stamp = Stamp(ProducerId(71), ProducerEpoch(-1))

    cluster.before = wrap
    await fence_topic(cluster.upstream, [slot], "t", also={}, former={slot.transactional_id: ProducerId(70)})
    assert cluster.stamps(71) == {T0: 0, T1: 0, T2: 0}
    assert not cluster.asked(WriteTxnMarkers)


async def test_markers_of_a_former_producer_id_carry_the_coordinator_epoch_that_a_partition_knows(
    cluster: PaperCluster,
) -> None:
    cluster.know(T0, Stamp(ProducerId(69), ProducerEpoch(3)), 5)
    cluster.know(T1, Stamp(ProducerId(69), ProducerEpoch(3)), -1)
    cluster.unmarked = [T2]
    await retire_producer(cluster.upstream, ProducerId(69), ALL)
    markers = [marker for request in cluster.asked(WriteTxnMarkers) for marker in request.markers]
    assert sorted((marker.coordinator_epoch, marker.partitions["t"]) for marker in markers) == [
        (0, (1,)), (0, (2,)), (0, (2,)), (5, (0,)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "tries"), [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0)]
)
async def test_a_refused_marker_is_tried_again_unless_the_right_to_write_it_is_missing(
    cluster: PaperCluster, code: int, tries: int
) -> None:
    cluster.faults[WriteTxnMarkers] = [code]
    cluster.unmarked = [T0]
    if tries:
        await retire_producer(cluster.upstream, ProducerId(69), {"t": (0,), "other": ()})
        assert len(cluster.asked(WriteTxnMarkers)) == tries
        return
    with pytest.raises(FencingRefusedError):
        await retire_producer(cluster.upstream, ProducerId(69), {"t": (0,)})


async def test_the_last_sixteen_former_producer_ids_stay_fenced(cluster: PaperCluster) -> None:
    await retire_formers(cluster.upstream, state.Slot(retired_producer_ids=range(20)), {"t": (0,)})
    assert {producer_id for producer_id in range(20) if cluster.stamps(producer_id)} == set(range(4, 20))
    await retire_formers(cluster.upstream, None, {"t": (0,)})


# Settings -----------------------------------------------------------------------------------------------------------


def described(error: int = 0, **values: str) -> Described:
    return Described(error, None, {name.replace("_", "."): value for name, value in values.items()})


async def test_keep_alives_come_from_the_shortest_setting_of_all_brokers(cluster: PaperCluster) -> None:
    day = str(24 * 3600 * 1000)
    for broker, expiration in ((1, day), (2, "8000")):
        values = {"producer.id.expiration.ms": expiration, "transactional.id.expiration.ms": day}
        cluster.configs[Resource(ConfigResource.BROKER, str(broker))] = Described(0, None, values)
    appended = described(message_timestamp_type="LogAppendTime")
    for topic, answer in (("t", described()), ("gone", described(3)), ("u", appended)):
        cluster.configs[Resource(ConfigResource.TOPIC, topic)] = answer
    found = await read_keep_alives(cluster.upstream, ["t", "gone", "u"])
    assert {topic: (each.interval, each.assumed, each.stamped) for topic, each in found.items()} == {
        "t": (2.0, False, False),
        "u": (2.0, False, True),
    }
    in_part = Described(0, None, {"transactional.id.expiration.ms": "4000"})
    cluster.configs[Resource(ConfigResource.BROKER, "2")] = in_part
    found = await read_keep_alives(cluster.upstream, ["t"])
    assert (found["t"].interval, found["t"].assumed) == (1.0, True)
    del cluster.configs[Resource(ConfigResource.BROKER, "2")]
    found = await read_keep_alives(cluster.upstream, ["t"])
    assert found["t"].assumed
    assert found["t"].interval == BROKER_DEFAULTS["producer.id.expiration.ms"] / 4_000


async def test_a_topic_whose_settings_are_refused_is_an_error(cluster: PaperCluster) -> None:
    cluster.configs[Resource(ConfigResource.TOPIC, "t")] = described(29)
    with pytest.raises(KafkaError, match="refused"):
        await read_keep_alives(cluster.upstream, ["t"])
