"""The sequence ids of a topic: read behind a takeover, saved while it is served, distrusted and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, cast
from uuid import UUID

import pytest

from metadata.errors import MetadataUnavailable, Reason
from sidecar.changelog.records import RawRecord, build_batch
from sidecar.dedup import topic
from sidecar.dedup.content import Headers
from sidecar.dedup.marks import Pushed, UnderWay
from sidecar.dedup.names import WriterNames
from sidecar.dedup.partition import IdsServices, PartitionIds
from sidecar.dedup.topic import TopicIds
from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ClientSequence, ProducerEpoch, ProducerId, Stamp, TopicPartition
from tests.unit.dedup.paper import logged, recs

FENCED, NOW = UUID(int=1), UUID(int=2)
STAMP = Stamp(ProducerId(7), ProducerEpoch(0))
SNAPSHOTS = TopicPartition("snapshots", 0)


def behind(data: bytes) -> int:
    header = read_header(data, 0, len(data))
    return header.base_offset + header.last_offset_delta + 1


class Place:
    """The logs of a topic and of its snapshots, and everything else that ids need from a node. A node that takes the
    topic over has a `TopicIds` of its own here. Implements what is in `IdsServices`.
    """

    def __init__(self, *partitions: list[bytes]) -> None:
        self.logs = {TopicPartition("orders", index): list(found) for index, found in enumerate(partitions)}
        self.logs[SNAPSHOTS] = []
        self.first: dict[TopicPartition, int] = {}
        self.ends_at: dict[TopicPartition, int] = {}
        self.id = FENCED
        self.reads: list[tuple[int, int]] = []
        self.stored: dict[int, bytes] = {}
        self.has_redis = True
        self.lets_write = True
        self.failures: list[str] = []
        self.lost: list[str] = []
        self.fences = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.live: set[str] = set()
        self.is_confirmed = True
        self.seconds = 1_000

    @property
    def clock(self) -> Place:
        return self

    def now_ms(self) -> int:
        return self.seconds * 1_000

    def node(self, *, limit: int = 10) -> TopicIds:
        """One that serves the topic."""
        me = cast(Any, self)
        services = IdsServices(me, me, me, me, me, Headers(), limit)
        return TopicIds("orders", services, lambda session: session in self.live, self.want_fence)

    def want_fence(self) -> None:
        self.fences += 1

    async def take_over(self, ids: TopicIds, *, ids_from: int = 0) -> None:
        """All slots were fenced. Returns when everything that can be read is."""
        partitions = [each.partition for each in self.logs if each.topic == "orders"]
        ids.begin(self.id, STAMP, partitions, dict.fromkeys(partitions, ids_from), WRITERS)
        await self.settle()

    async def settle(self) -> None:
        async with asyncio.timeout(10):
            await asyncio.gather(*self.tasks)

    # `Tasks`, `LogReader`

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    def bound(self, topic_id: UUID) -> Place:
        return self

    async def topic_id(self, name: str) -> UUID:
        return self.id

    async def starts(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        return {index: self.first.get(TopicPartition(name, index), 0) for index in partitions}

    async def ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        ends: dict[int, int] = {}
        for index in partitions:
            each = TopicPartition(name, index)
            ends[index] = max([behind(data) for data in self.logs[each]] + [self.ends_at.get(each, 0)])
        return ends

    async def read(self, each: TopicPartition, offset: int, end: int, *_: object) -> AsyncIterator[bytes]:
        if each != SNAPSHOTS:
            self.reads.append((each.partition, offset))
        for data in self.logs[each]:
            assert len(list(batch_sizes(data, 0, len(data)))) == 1
            if offset < behind(data) <= end:
                yield data

    # `Changelog`, `Journal`, `MetadataStore`

    def snapshot_journal(self, stamp: object, name: str) -> Place:
        return self

    def snapshots_of(self, name: str) -> TopicPartition:
        return SNAPSHOTS

    async def append(self, records: list[RawRecord]) -> int:
        if not self.lets_write:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "no")
        offset = len(self.logs[SNAPSHOTS])
        data = bytearray(build_batch(records, None, 0))
        data[:8] = offset.to_bytes(8, "big")
        self.logs[SNAPSHOTS].append(bytes(data))
        return offset

    async def snapshots(self, name: str, topic_id: bytes, partitions: list[int]) -> dict[int, bytes]:
        if not self.has_redis:
            raise MetadataUnavailable(Reason.CLOSED, "gone")
        return {index: value for index, value in self.stored.items() if index in partitions}

    async def keep_snapshot(self, name: str, index: int, topic_id: bytes, order: object, value: bytes) -> None:
        if not self.has_redis:
            raise MetadataUnavailable(Reason.CLOSED, "gone")
        self.stored[index] = value

    # `IdsHooks`

    def operation_failed(self, name: str, error: BaseException) -> None:
        self.failures.append(str(error))

    def ids_lost(self, name: str, reason: str) -> None:
        self.lost.append(reason)

    def ids_read(self, *_: object) -> None: ...
    def ids_recovered(self, *_: object) -> None: ...
    def snapshot_written(self, *_: object) -> None: ...
    def names_forgotten(self, *_: object) -> None: ...


WRITERS = WriterNames()
WRITERS.add(7, 9, b"billing")
WRITERS.add(8, 9, b"audit")


def batch(offset: int, *ids: int, producer: int = 7) -> bytes:
    return logged(recs(*ids), offset, producer)


def send(state: PartitionIds, name: bytes, sequence_id: int, producer: int) -> UnderWay:
    """A batch that is on its way."""
    return state.marks.push((Pushed(name, sequence_id, 0),), producer, ClientSequence(0), 1)


async def test_a_takeover_reads_the_log_and_knows_its_ids() -> None:
    place = Place([batch(0, 1, 2), batch(2, 3, producer=8)], [batch(0, 5)])
    ids = place.node()
    assert not ids.is_ready
    await place.take_over(ids)
    assert ids.is_ready
    assert [{mark.name: mark.id for mark in ids.of(index).marks} for index in (0, 1)] == [
        {b"billing": 2, b"audit": 3}, {b"billing": 5},
    ]  # fmt: skip
    assert ids.progress == (4, 4, 4)
    await ids.known(0.1)
    ids.end()
    assert not ids.is_ready
    with pytest.raises(KafkaError, match="being read"):
        await ids.known(0.1)


async def test_a_node_that_takes_its_own_topic_over_again_reads_only_what_is_new() -> None:
    place = Place([batch(0, 1, 2)])
    ids = place.node()
    await place.take_over(ids)
    place.logs[TopicPartition("orders", 0)].append(batch(2, 3))
    place.reads.clear()
    await place.take_over(ids)
    assert place.reads == [(0, 2)]
    assert ids.of(0).marks.persisted(b"billing") == 3


@pytest.mark.parametrize("distrusts", [False, True])
async def test_ids_in_memory_are_distrusted_once_another_node_served_the_topic(distrusts: bool) -> None:
    place = Place([batch(0, 1, 2)])
    ids, other = place.node(), place.node()
    await place.take_over(ids)
    await place.take_over(other)
    assert await other.forget(b"billing")
    if distrusts:
        ids.distrust()
    await place.take_over(ids)
    assert ids.of(0).marks.knows(b"billing") is not distrusts


@pytest.mark.parametrize("has_redis", [True, False])
async def test_another_node_goes_on_from_the_snapshot_wherever_it_is(has_redis: bool) -> None:
    place = Place([batch(0, 1, 2)])
    ids, other = place.node(), place.node()
    await place.take_over(ids)
    await ids.save_all()
    assert 0 in place.stored
    place.has_redis = has_redis
    place.first[TopicPartition("orders", 0)] = 2
    place.logs[TopicPartition("orders", 0)] = [batch(2, 3)]
    place.reads.clear()
    await place.take_over(other)
    assert place.reads == [(0, 2)]
    assert other.of(0).marks.persisted(b"billing") == 3
    assert other.of(0).last_number == 1
    assert not place.lost


async def test_ids_that_are_lost_stop_their_partition_alone() -> None:
    place = Place([batch(5, 6)], [batch(0, 1)])
    place.first[TopicPartition("orders", 0)] = 5
    ids = place.node()
    await place.take_over(ids)
    assert [ids.of(index).is_ready for index in (0, 1)] == [False, True]
    assert ids.problem is not None
    assert "begins at offset 5" in ids.problem
    assert len(place.lost) == 1
    with pytest.raises(KafkaError, match="begins at offset 5"):
        await ids.known(5.0)
    await place.take_over(ids, ids_from=5)
    assert ids.is_ready
    assert ids.problem is None


@pytest.mark.parametrize("fenced", [7, 8])
async def test_a_fence_of_one_slot_leaves_what_is_under_way_in_another(fenced: int) -> None:
    place = Place([batch(0, 1)], [batch(0, 1)])
    ids = place.node()
    await place.take_over(ids)
    state = ids.of(0)
    for name, producer in ((b"billing", 7), (b"audit", 8)):
        state.failed(send(state, name, 5, producer), in_doubt=True)
    place.reads.clear()
    ids.begin_slot(fenced, [0, 1], WRITERS)
    assert not state.is_ready
    assert ids.of(1).is_ready
    await place.settle()
    assert state.is_ready
    assert [index for index, _ in place.reads] == [0]
    still = 15 - fenced
    assert state.marks.is_quiet(fenced)
    assert not state.marks.is_quiet(still)
    assert not state.marks.doubtful(b"billing" if fenced == 7 else b"audit", 0)
    assert state.marks.doubtful(b"billing" if still == 7 else b"audit", 0)


async def test_a_slot_without_batches_under_way_needs_no_reading() -> None:
    place = Place([batch(0, 1)])
    ids = place.node()
    await place.take_over(ids)
    place.reads.clear()
    ids.begin_slot(7, [0], WRITERS)
    assert ids.is_ready
    assert place.reads == []


# Snapshots ----------------------------------------------------------------------------------------------------------


async def landed(ids: TopicIds, index: int, offset: int, sequence_id: int) -> PartitionIds:
    state = ids.of(index)
    state.landed(send(state, b"billing", sequence_id, 7), offset, 1)
    return state


async def test_all_that_changed_is_saved_and_nothing_twice() -> None:
    place = Place([batch(0, 1)], [])
    ids = place.node()
    await place.take_over(ids)
    await ids.save_all()
    assert [ids.of(index).saved_up_to for index in (0, 1)] == [1, 0]
    written = len(place.logs[SNAPSHOTS])
    await ids.save_all()
    assert len(place.logs[SNAPSHOTS]) == written
    ids.of(0).is_ready = False
    await landed(ids, 0, 1, 2)
    await ids.save_all()
    assert len(place.logs[SNAPSHOTS]) == written


@pytest.mark.parametrize("index", [0, 1])
async def test_a_snapshot_that_is_urged_is_written_soon(index: int) -> None:
    place = Place([batch(0, 1)], [batch(0, 1)])
    ids = place.node()
    await place.take_over(ids)
    await ids.save_all()
    await landed(ids, index, 1, 2)
    for state in ids.partitions.values():
        state.saved_at -= 20
    await ids.save_due()
    assert ids.of(index).saved_up_to == 1
    ids.urge()
    ids.of(1 - index).is_ready = False
    await ids.save_due()
    assert ids.of(index).saved_up_to == 2
    assert ids.is_urged  # the other one is still to come
    ids.of(1 - index).is_ready = True
    await ids.save_due()
    assert not ids.is_urged


async def test_marks_move_on_to_the_end_of_a_log_where_only_markers_are_left() -> None:
    place = Place([batch(0, 1)])
    ids = place.node()
    await place.take_over(ids)
    place.ends_at[TopicPartition("orders", 0)] = 9
    await ids.save_all()
    assert ids.of(0).saved_up_to == 9
    place.ends_at[TopicPartition("orders", 0)] = 12
    send(ids.of(0), b"billing", 2, 7)
    await ids.save_all()
    assert ids.of(0).saved_up_to == 9  # a batch is on its way


@pytest.mark.parametrize(("wanted", "covered", "saved"), [(-1, 3, 3), (2, 2, 3), (3, 3, 3), (4, -1, -1), (0, 0, 3)])
async def test_offsets_that_may_be_deleted_are_covered_by_a_snapshot(wanted: int, covered: int, saved: int) -> None:
    place = Place([batch(0, 1, 2, 3)])
    ids = place.node()
    await place.take_over(ids)
    assert await ids.cover({0: wanted}, 5.0) == {0: covered}
    assert ids.of(0).saved_up_to == saved


async def test_offsets_that_no_snapshot_covers_in_time_are_left_out() -> None:
    place = Place([batch(0, 1)], [batch(0, 1)])
    ids = place.node()
    await place.take_over(ids)
    ids.of(1).is_ready = False
    assert await ids.cover({0: 1, 1: 1}, 0.0) == {0: 1}
    assert await place.node().cover({0: 1}, 0.0) == {0: 1}  # it has no ids


async def test_what_is_covered_is_known_by_producer_id() -> None:
    place = Place([batch(0, 1)])
    ids = place.node()
    assert not ids.is_covered(7, 0)
    await place.take_over(ids)
    assert not ids.is_covered(7, 0)
    await ids.save_all()
    assert ids.is_covered(7, 0)
    sent = send(ids.of(0), b"billing", 2, 8)
    assert ids.is_covered(7, 0)
    assert not ids.is_covered(8, 0)
    ids.of(0).landed(sent, 1, 1)
    assert not ids.is_covered(8, 0)
    await ids.save_all()
    assert ids.is_covered(8, 0)


# Names --------------------------------------------------------------------------------------------------------------


async def test_a_name_is_forgotten_in_kafka_in_redis_and_here() -> None:
    place = Place([batch(0, 1), batch(1, 4, producer=8)], [batch(0, 2, producer=8)])
    ids = place.node()
    await place.take_over(ids)
    assert not await ids.forget(b"nobody")
    assert not place.stored
    assert await ids.forget(b"billing")
    assert list(place.stored) == [0]
    assert not ids.of(0).marks.knows(b"billing")
    other = place.node()
    await place.take_over(other)
    assert not other.of(0).marks.knows(b"billing")
    assert other.of(0).marks.persisted(b"audit") == 4


@pytest.mark.parametrize("how", ["busy", "not written", "no redis", "not in the log"])
async def test_a_name_that_cannot_be_forgotten_for_good_is_not_forgotten(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic, "_FORGET_S", 0.0)
    place = Place([batch(0, 1)])
    ids = place.node()
    await place.take_over(ids)
    if how == "busy":
        send(ids.of(0), b"billing", 2, 7)
    elif how == "not in the log":
        first = send(ids.of(0), b"audit", 2, 8)
        await landed(ids, 0, 2, 2)
        assert not first.is_over
    place.lets_write = how != "not written"
    place.has_redis = how != "no redis"
    with pytest.raises(MetadataUnavailable if how == "no redis" else TimeoutError):
        await ids.forget(b"billing")
    assert ids.of(0).marks.knows(b"billing")


async def test_a_name_is_in_use_while_its_session_is_live_or_a_batch_is_on_its_way() -> None:
    place = Place([batch(0, 1)])
    ids = place.node()
    await place.take_over(ids)
    assert not ids.is_in_use(b"billing")
    sent = send(ids.of(0), b"billing", 2, 7)
    assert ids.is_in_use(b"billing")
    ids.of(0).failed(sent, in_doubt=False)
    assert not ids.is_in_use(b"billing")
    ids.of(0).names.hold([b"billing"], "s")
    assert not ids.is_in_use(b"billing")
    place.live.add("s")
    assert ids.is_in_use(b"billing")


@pytest.mark.parametrize("is_confirmed", [True, False])
async def test_names_of_connected_sessions_count_as_used_now_if_the_clock_is_known(is_confirmed: bool) -> None:
    place = Place([batch(0, 1), batch(1, 4, producer=8)])
    ids = place.node()
    await place.take_over(ids)
    place.live = {"s"}
    ids.of(0).names.hold([b"billing"], "s")
    ids.of(0).names.hold([b"audit"], "gone")
    place.seconds, place.is_confirmed = 5_000, is_confirmed
    await ids.forget_gone()
    seen = {mark.name: mark.seen for mark in ids.of(0).marks}
    assert seen == {b"billing": 5_000 if is_confirmed else 1_000, b"audit": 1_000}
    assert ids.of(0).names.session_of(b"audit") is None
    assert ids.of(0).names.session_of(b"billing") == "s"


async def test_a_partition_with_nearly_as_many_names_as_it_may_have_is_crowded() -> None:
    for limit, crowded in ((3, False), (2, True)):
        place = Place([batch(0, 1), batch(1, 4, producer=8)])
        ids = place.node(limit=limit)
        await place.take_over(ids)
        assert (ids.crowded is not None) is crowded


# A topic of the same name -------------------------------------------------------------------------------------------


async def test_a_topic_that_was_created_again_meanwhile_is_fenced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of what was fenced are nowhere any more: a client that waits for them waits for ever."""
    monkeypatch.setattr(topic, "_AGAIN_S", 0.0)
    place = Place([batch(0, 1)], [])
    ids = place.node()
    ids.fence_wanted = ids.end
    ids.begin(NOW, STAMP, [0, 1], {}, WriterNames())
    await place.settle()
    assert place.failures == ["LEADER_NOT_AVAILABLE (5): orders was created anew"]
    assert not ids.is_begun


async def test_ids_of_a_former_topic_of_the_name_count_for_nothing() -> None:
    place = Place([batch(0, 1)])
    ids = place.node()
    await place.take_over(ids)
    await ids.save_all()
    place.id = NOW
    place.logs[TopicPartition("orders", 0)] = []
    await place.take_over(ids)
    assert ids.is_ready
    assert not ids.of(0).marks.knows(b"billing")
