"""Readers that wait at the end of a log share a poll (`sidecar.fanout`), and get what Kafka would tell each alone."""

from __future__ import annotations

import contextlib
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # pyright: ignore[reportPrivateImportUsage]

from sidecar.fanout import tails as fanout
from sidecar.fanout import waiting as patience
from sidecar.protocol import fetch
from sidecar.protocol.calls.tails import VERSION
from sidecar.protocol.errors import ErrorCode
from tests import raw
from tests.conftest import Unique
from tests.kafka.gateway.test_shadows import Topics, admin, topics, write
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.fanout.tails import Tails
    from sidecar.protocol.primitives import Octets

__all__ = ["topics"]

_LONG_MS = 20_000
_READERS = 12
Part = tuple[str, int, int]
"""Topic, partition, offset."""


class Limits(NamedTuple):
    wait_ms: int = _LONG_MS
    isolation: int = 0
    most_bytes: int = 1 << 20
    total_bytes: int = 1 << 24
    min_bytes: int = 1
    version: int = VERSION


def send(wire: RawClient, asked: list[Part], limits: Limits) -> None:
    parts: list[tuple[bytes, Octets]] = [
        (topic.encode(), struct.pack(">iiqqi", partition, -1, offset, -1, limits.most_bytes))
        for topic, partition, offset in asked
    ]
    of_request = (limits.wait_ms, limits.min_bytes, limits.total_bytes, limits.isolation)
    wire.send_bytes(fetch.encode_request(1, b"wire", limits.version, of_request, parts))


class Element(NamedTuple):
    error: int
    data: bytes
    record_bytes: int

    @property
    def records(self) -> bytes:
        return self.data[len(self.data) - self.record_bytes :]

    @property
    def aborted(self) -> set[tuple[int, int]]:
        """Producer ids and first offsets."""
        count = struct.unpack_from(">i", self.data, 30)[0]
        return {struct.unpack_from(">qq", self.data, 34 + 16 * index) for index in range(max(0, count))}

    def next(self, offset: int) -> int:
        """The offset behind its last whole batch."""
        at, records = 0, self.records
        while at + 61 <= len(records):
            base, length = struct.unpack_from(">qi", records, at)
            if at + 12 + length > len(records):
                break
            offset = base + struct.unpack_from(">i", records, at + 23)[0] + 1
            at += 12 + length
        return offset


def receive(wire: RawClient, version: int = VERSION) -> dict[tuple[str, int], Element]:
    frame = wire.receive_frame()
    answer = fetch.walk_answer(frame, 0, len(frame), version)
    return {
        (part.topic.decode(), part.partition): Element(part.error, frame[part.start : part.end], part.record_bytes)
        for part in answer.parts
    }


def ask(wire: RawClient, asked: list[Part], limits: Limits) -> dict[tuple[str, int], Element]:
    send(wire, asked, limits)
    return receive(wire, limits.version)


def direct(topics: Topics, part: Part, limits: Limits) -> Element:
    with RawClient(topics.kafka) as wire:
        return ask(wire, [part], limits._replace(wait_ms=200))[part[:2]]


def end_of(topics: Topics, partition: int = 0) -> int:
    with RawClient(topics.kafka) as kafka:
        (topic,) = kafka.ask(raw.list_offsets({(topics.source, partition): -1})).topics
    return topic.partitions[0].offset


def put(topics: Topics, *values: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": topics.kafka, "linger.ms": 0, "log_level": 0})
    for value in values:
        producer.produce(topics.source, value, partition=partition)
        producer.flush(20)


def tails_of(topics: Topics) -> Tails:
    return topics.node.nodes[0].fetches.tails


class Reader(NamedTuple):
    wire: RawClient
    name: str
    isolation: int


@pytest.fixture
def readers(topics: Topics) -> Iterator[list[Reader]]:
    """Connections that the node knows to read partition 0, the source's and its shadows', at both isolation levels."""
    names = (topics.source, topics.shadow, topics.other)
    with contextlib.ExitStack() as stack:
        found = [
            Reader(stack.enter_context(RawClient(topics.node.bootstrap)), names[index % 3], index // 3 % 2)
            for index in range(_READERS)
        ]
        end = end_of(topics)
        for _ in range(2):
            for reader in found:
                ask(reader.wire, [(reader.name, 0, end)], Limits(20, reader.isolation))
        yield found


def park(topics: Topics, readers: list[Reader], offset: int, limits: Limits | None = None) -> None:
    for reader in readers:
        send(reader.wire, [(reader.name, 0, offset)], (limits or Limits())._replace(isolation=reader.isolation))
    wait_for(lambda: tails_of(topics).waiting == len(readers), "everyone waits")


def test_one_poll_per_isolation_level_serves_everyone_what_kafka_tells(topics: Topics, readers: list[Reader]) -> None:
    end = end_of(topics)
    park(topics, readers, end)
    wait_for(lambda: tails_of(topics).polls == 2, "one poll for each isolation level")
    put(topics, b"for everyone")
    answers = [receive(reader.wire)[reader.name, 0] for reader in readers]
    for reader, answer in zip(readers, answers, strict=True):
        assert answer == direct(topics, (topics.source, 0, end), Limits(isolation=reader.isolation))
        assert answer.error == 0
        assert b"for everyone" in answer.records
    assert tails_of(topics).waiting == 0


def test_readers_of_the_version_before_share_the_same_polls(topics: Topics, readers: list[Reader]) -> None:
    end = end_of(topics)
    park(topics, readers[::2], end)
    for reader in readers[1::2]:
        send(reader.wire, [(reader.name, 0, end)], Limits(isolation=reader.isolation, version=10))
    wait_for(lambda: tails_of(topics).waiting == len(readers), "everyone waits")
    put(topics, b"for both")
    for number, reader in enumerate(readers):
        limits = Limits(isolation=reader.isolation, version=10 if number % 2 else VERSION)
        found = receive(reader.wire, limits.version)[reader.name, 0]
        assert found == direct(topics, (topics.source, 0, end), limits)
        assert b"for both" in found.records
        nothing = ask(reader.wire, [(reader.name, 0, end + 1)], limits._replace(wait_ms=20))
        assert nothing[reader.name, 0] == direct(topics, (topics.source, 0, end + 1), limits)


def test_aborted_transactions_are_told_as_kafka_tells_them(topics: Topics, readers: list[Reader]) -> None:
    start = end_of(topics)
    park(topics, readers, start)
    write(topics.kafka, topics.source)
    end = end_of(topics)
    for isolation in (0, 1):
        records, aborted, offset = b"", set[tuple[int, int]](), start
        while offset < end:
            element = direct(topics, (topics.source, 0, offset), Limits(isolation=isolation))
            records, aborted, offset = records + element.records, aborted | element.aborted, element.next(offset)
        assert bool(aborted) == bool(isolation)
        for reader in readers:
            if reader.isolation == isolation:
                assert everything(topics, reader, start, end) == (records, aborted)


def everything(topics: Topics, reader: Reader, start: int, end: int) -> tuple[bytes, set[tuple[int, int]]]:
    """What a reader whose first request is under way gets up to an offset."""
    records, aborted, offset = b"", set[tuple[int, int]](), start
    while True:
        element = receive(reader.wire)[reader.name, 0]
        assert element.error == 0
        records, aborted, offset = records + element.records, aborted | element.aborted, element.next(offset)
        if offset >= end:
            return records, aborted
        send(reader.wire, [(reader.name, 0, offset)], Limits(1000, reader.isolation))


def test_who_comes_late_gets_what_the_others_got(topics: Topics, readers: list[Reader]) -> None:
    end = end_of(topics)
    late, others = readers[0], [reader for reader in readers[1:] if reader.isolation == readers[0].isolation]
    park(topics, others, end)
    put(topics, b"first")
    answers = [receive(reader.wire)[reader.name, 0] for reader in others]
    park(topics, others, end + 1)
    assert ask(late.wire, [(late.name, 0, end)], Limits(isolation=late.isolation))[late.name, 0] == answers[0]
    put(topics, b"second")
    send(late.wire, [(late.name, 0, end + 1)], Limits(isolation=late.isolation))
    expected = direct(topics, (topics.source, 0, end + 1), Limits(isolation=late.isolation))
    for reader in (late, *others):
        assert receive(reader.wire)[reader.name, 0] == expected


def test_who_comes_late_is_told_of_records_that_were_deleted_since(topics: Topics, readers: list[Reader]) -> None:
    end = end_of(topics)
    late, others = readers[0], readers[1:]
    park(topics, others, end)
    put(topics, b"soon gone")
    for reader in others:
        assert b"soon gone" in receive(reader.wire)[reader.name, 0].records
    park(topics, others, end + 1)
    deleting, until = admin(topics.kafka), TopicPartition(topics.source, 0, end + 1)
    deleting.delete_records([until])[until].result(20)
    put(topics, b"next")  # with it the node hears where the log begins
    for reader in others:
        receive(reader.wire)
    park(topics, others, end + 2)
    found = ask(late.wire, [(late.name, 0, end)], Limits(isolation=late.isolation))[late.name, 0]
    assert found == direct(topics, (topics.source, 0, end), Limits(isolation=late.isolation))
    assert found.error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_was_deleted_is_known_to_readers_of_either_isolation_level(topics: Topics, readers: list[Reader]) -> None:
    """Nobody waits at the level of the one that comes late: the node hears of the log by the other one alone."""
    end = end_of(topics)
    levels = [[reader for reader in readers if reader.isolation == level] for level in (0, 1)]
    for others, (late, *before) in (levels, levels[::-1]):
        park(topics, [*before, *others], end)
        put(topics, b"soon gone")
        for reader in (*before, *others):
            assert b"soon gone" in receive(reader.wire)[reader.name, 0].records
        park(topics, others, end + 1)
        deleting, until = admin(topics.kafka), TopicPartition(topics.source, 0, end + 1)
        deleting.delete_records([until])[until].result(20)
        put(topics, b"next")  # with it the node hears where the log begins
        for reader in others:
            receive(reader.wire)
        park(topics, others, end + 2)
        found = ask(late.wire, [(late.name, 0, end)], Limits(isolation=late.isolation))[late.name, 0]
        assert found == direct(topics, (topics.source, 0, end), Limits(isolation=late.isolation))
        put(topics, b"the last one")
        for reader in others:
            receive(reader.wire)
        end += 3


def test_who_takes_less_at_a_time_gets_less(topics: Topics, readers: list[Reader]) -> None:
    """Two batches come at once; one reader's limits take one of them, as Kafka's answer to it alone."""
    end = end_of(topics)
    park(topics, readers[:-2], end)
    small = Limits(most_bytes=700, isolation=readers[-2].isolation)
    little = Limits(total_bytes=700, isolation=readers[-1].isolation)
    for reader, limits in zip(readers[-2:], (small, little), strict=True):
        send(reader.wire, [(reader.name, 0, end)], limits)
    wait_for(lambda: tails_of(topics).waiting == len(readers), "everyone waits")
    put(topics, b"x" * 1000)
    for reader, limits in zip(readers[-2:], (small, little), strict=True):
        assert receive(reader.wire)[reader.name, 0] == direct(topics, (topics.source, 0, end), limits)
    for reader in readers[:-2]:
        assert b"x" * 1000 in receive(reader.wire)[reader.name, 0].records


def test_who_waits_in_vain_is_told_where_the_log_ends(topics: Topics, readers: list[Reader]) -> None:
    end = end_of(topics)
    for reader in readers:
        send(reader.wire, [(reader.name, 0, end)], Limits(700, reader.isolation))
    for reader in readers:
        expected = direct(topics, (topics.source, 0, end), Limits(isolation=reader.isolation))
        assert receive(reader.wire)[reader.name, 0] == expected
    assert tails_of(topics).waiting == 0


def test_who_waits_longer_than_asked_for_in_a_crowd_hears_of_the_first_record(
    topics: Topics, readers: list[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "EACH_S", 10.0)  # as if each of them were thousands
    monkeypatch.setattr(tails_of(topics), "_longest_s", 60.0)
    end = end_of(topics)
    park(topics, readers[:1], end)
    for reader in readers[1:]:
        send(reader.wire, [(reader.name, 0, end)], Limits(100, reader.isolation))
    wait_for(lambda: tails_of(topics).waiting == len(readers), "everyone waits")
    time.sleep(0.5)
    assert tails_of(topics).waiting == len(readers), "nobody is answered with nothing"
    put(topics, b"at last")
    for reader in readers:
        assert b"at last" in receive(reader.wire)[reader.name, 0].records


def test_who_asks_for_a_part_of_what_it_reads_waits_in_a_crowd_as_long_as_it_asked_for(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients ask so while they work on records of the other partitions, and send no other request meanwhile."""
    monkeypatch.setattr(patience, "EACH_S", 100.0)
    monkeypatch.setattr(tails_of(topics), "_longest_s", 60.0)
    both = [(topics.source, partition, end_of(topics, partition)) for partition in (0, 1)]
    with contextlib.ExitStack() as stack:
        waiting, reader = (stack.enter_context(RawClient(topics.node.bootstrap)) for _ in range(2))
        for wire in (waiting, reader) * 2:
            ask(wire, both, Limits(20))
        send(waiting, both, Limits(60_000))
        wait_for(lambda: tails_of(topics).waiting == 2, "one waits")
        for asked in both * 2:
            assert ask(reader, [asked], Limits(100))[asked[:2]] == direct(topics, asked, Limits())


def test_a_client_that_sends_many_requests_at_once_is_no_crowd(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "EACH_S", 0.5)
    monkeypatch.setattr(tails_of(topics), "_longest_s", 60.0)
    end = end_of(topics)
    with contextlib.ExitStack() as stack:
        many, reader = (stack.enter_context(RawClient(topics.node.bootstrap)) for _ in range(2))
        for wire in (many, reader) * 2:
            ask(wire, [(topics.source, 0, end)], Limits(20))
        for _ in range(200):
            send(many, [(topics.source, 0, end)], Limits(60_000, total_bytes=1))
        wait_for(lambda: tails_of(topics).waiting == 200, "all wait")
        found = ask(reader, [(topics.source, 0, end)], Limits(100))
        assert found[topics.source, 0] == direct(topics, (topics.source, 0, end), Limits())


def test_another_request_of_a_reader_that_waits_in_a_crowd_is_not_kept_waiting(
    topics: Topics, readers: list[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader hears that there is nothing when it wanted to hear so, then gets its other answer."""
    monkeypatch.setattr(patience, "EACH_S", 10.0)
    monkeypatch.setattr(tails_of(topics), "_longest_s", 60.0)
    end = end_of(topics)
    park(topics, readers[:1], end)
    for reader in readers[1:]:
        send(reader.wire, [(reader.name, 0, end)], Limits(100, reader.isolation))
    wait_for(lambda: tails_of(topics).waiting == len(readers), "everyone waits")
    for reader in readers[1:]:
        reader.wire.send(raw.list_offsets({(topics.source, 0): -1}))
        expected = direct(topics, (topics.source, 0, end), Limits(isolation=reader.isolation))
        assert receive(reader.wire)[reader.name, 0] == expected
        assert reader.wire.receive().topics[0].partitions[0].offset == end
    assert tails_of(topics).waiting == 1


def test_who_wants_more_than_a_byte_waits_alone(topics: Topics, readers: list[Reader]) -> None:
    end, reader = end_of(topics), readers[0]
    send(reader.wire, [(reader.name, 0, end)], Limits(1500, reader.isolation, min_bytes=100_000))
    put(topics, b"not enough")
    assert tails_of(topics).waiting == 0
    element = receive(reader.wire)[reader.name, 0]
    assert element == direct(topics, (topics.source, 0, end), Limits(isolation=reader.isolation))


def test_who_goes_leaves_nothing(topics: Topics, readers: list[Reader]) -> None:
    park(topics, readers, end_of(topics))
    for reader in readers:
        reader.wire.close()
    fetches = topics.node.nodes[0].fetches
    wait_for(lambda: fetches.tails.waiting == 0, "nobody waits")
    wait_for(lambda: fetches.tails.crowd.connections == 0, "nobody is known")
    wait_for(lambda: fetches.tails.polls == 0, "no poll stands")
    assert not fetches.tails.ends._ends


def test_an_offset_behind_the_end_is_refused_as_kafka_refuses_it(topics: Topics, readers: list[Reader]) -> None:
    beyond = end_of(topics) + 1000
    for reader in readers:
        send(reader.wire, [(reader.name, 0, beyond)], Limits(isolation=reader.isolation))
    for reader in readers:
        assert receive(reader.wire)[reader.name, 0].error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_readers_of_a_topic_that_is_deleted_are_told(topics: Topics, readers: list[Reader]) -> None:
    park(topics, readers, end_of(topics))
    deleting = admin(topics.kafka)
    deleting.delete_topics([topics.source])[topics.source].result(20)
    gone = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    for reader in readers:
        assert receive(reader.wire)[reader.name, 0].error in gone


def test_a_topic_made_anew_after_its_readers_went_gives_none_of_the_old_ones_records(
    topics: Topics, unique: Unique
) -> None:
    name, tails, direct_to = unique("anew"), tails_of(topics), admin(topics.kafka)
    producer = Producer({"bootstrap.servers": topics.kafka, "linger.ms": 0, "log_level": 0})
    for value, count in ((b"old", 3), (b"new", 1)):
        direct_to.create_topics([NewTopic(name, 1, 1)])[name].result(20)
        with contextlib.ExitStack() as stack:
            late, *others = [stack.enter_context(RawClient(topics.node.bootstrap)) for _ in range(3)]
            for wire in (late, *others) * 2:
                wait_for(lambda wire=wire: leads(name, wire, 0), "a leader")
            for offset in range(count + 1):
                for wire in others:
                    send(wire, [(name, 0, offset)], Limits())
                wait_for(lambda: tails.waiting == 2, "both wait")
                if offset < count:
                    producer.produce(name, value, partition=0)
                    producer.flush(20)
                    for wire in others:
                        assert value in receive(wire)[name, 0].records
            found = ask(late, [(name, 0, 0)], Limits())[name, 0]
            assert found.records == direct(topics, (name, 0, 0), Limits()).records
        wait_for(lambda: tails.crowd.connections == 0, "everyone has gone")
        direct_to.delete_topics([name])[name].result(20)
        wait_for(lambda: name not in direct_to.list_topics(timeout=20).topics, "the topic is gone")


def test_several_partitions_in_one_request(topics: Topics) -> None:
    """Each reader waits at both ends; a record in one partition answers all of them, the other one is told empty."""
    ends = [end_of(topics, partition) for partition in (0, 1)]
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(RawClient(topics.node.bootstrap)) for _ in range(6)]
        asked = [(topics.shadow, partition, ends[partition]) for partition in (0, 1)]
        for _ in range(2):
            for wire in wires:
                ask(wire, asked, Limits(20))
        for wire in wires:
            send(wire, asked, Limits())
        wait_for(lambda: tails_of(topics).waiting == 12, "everyone waits")
        wait_for(lambda: tails_of(topics).polls == 1, "one poll for all")
        put(topics, b"here", partition=1)
        for wire in wires:
            found = receive(wire)
            assert b"here" in found[topics.shadow, 1].records
            assert found[topics.shadow, 0] == direct(topics, (topics.source, 0, ends[0]), Limits())


def test_who_is_told_by_two_polls_at_once_answers_once(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """The second poll comes while its readers still wait for their turn to be told of the first; what either brought is
    more than they take.
    """
    ends, tails = [end_of(topics, partition) for partition in (0, 1)], tails_of(topics)
    asked = [(topics.shadow, partition, ends[partition]) for partition in (0, 1)]
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(RawClient(topics.node.bootstrap)) for _ in range(4)]
        for _ in range(2):
            for wire in wires:
                ask(wire, asked, Limits(20))
        topics.node.run(busy(tails))
        for wire in wires:
            send(wire, asked, Limits(most_bytes=200))
        wait_for(lambda: tails.waiting == 8, "everyone waits")
        for partition in (0, 1):
            put(topics, b"x" * 1000, partition=partition)
            wait_for(lambda told=4 * (partition + 1): tails.waking.left == told, "everyone is to be told")
        topics.node.run(telling(tails))
        for wire in wires:
            assert b"x" * 1000 in b"".join(element.records for element in receive(wire).values())
        for wire in wires:
            assert ask(wire, [(topics.shadow, 0, ends[0] + 1)], Limits(20))[topics.shadow, 0].error == 0
    assert caplog.text == ""


async def busy(tails: Tails) -> None:
    """As while many readers are told. In the node's loop: the last answer leaves before it is done with telling."""
    tails.waking.is_busy = True


async def telling(tails: Tails) -> None:
    tails.waking.go_on()


@pytest.mark.parametrize("names", [1, 2])
def test_a_partition_that_is_named_again_and_again_costs_no_more_than_once(
    topics: Topics, readers: list[Reader], names: int
) -> None:
    """As on a broker its last element counts; with two names of the log each has its own poll."""
    end = end_of(topics)
    asked = [(name, 0, end + 5 + index) for name in (topics.shadow, topics.other)[:names] for index in range(300)]
    asked += [(name, 0, end) for name in (topics.shadow, topics.other)[:names]]
    before = connections(topics)
    with RawClient(topics.node.bootstrap) as wire:
        found = ask(wire, asked, Limits(200))
        for name in (topics.shadow, topics.other)[:names]:
            assert found[name, 0] == direct(topics, (topics.source, 0, end), Limits())
        assert connections(topics) - before <= 3


def connections(topics: Topics) -> int:
    """Those to Kafka in this process."""
    kafka = int(topics.kafka.rsplit(":", 1)[1])
    found = psutil.Process().net_connections("tcp")
    return sum(bool(each.raddr) and each.raddr.port == kafka and each.status == "ESTABLISHED" for each in found)


def test_readers_of_many_partitions_take_a_bounded_number_of_polls(
    topics: Topics, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come one after the other, so none finds others to be bundled with; whoever finds no room asks alone."""
    count, most = 12, 4
    monkeypatch.setattr(fanout, "MOST_POLLS", most)
    name, tails, direct = unique("wide"), tails_of(topics), admin(topics.kafka)
    direct.create_topics([NewTopic(name, count, 1)])[name].result(20)
    with contextlib.ExitStack() as stack:
        wires = [(stack.enter_context(RawClient(topics.node.bootstrap)), index // 2) for index in range(2 * count)]
        for wire, partition in wires * 2:
            wait_for(lambda reader=(wire, partition): leads(name, *reader), "a leader")
        wait_for(lambda: tails.polls == 0, "no poll stands")
        for wire, partition in wires:
            send(wire, [(name, partition, 0)], Limits())
            time.sleep(0.005)
            assert tails.polls <= most
        producer = Producer({"bootstrap.servers": topics.kafka, "linger.ms": 0, "log_level": 0})
        for partition in range(count):
            producer.produce(name, b"here", partition=partition)
        producer.flush(20)
        for wire, partition in wires:
            assert b"here" in receive(wire)[name, partition].records


def leads(topic: str, wire: RawClient, partition: int) -> bool:
    return ask(wire, [(topic, partition, 0)], Limits(5))[topic, partition].error == 0
