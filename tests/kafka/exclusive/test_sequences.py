"""Sequences of idempotent sessions: Kafka stays the judge, the base never comes from the batch that happens to arrive
first.
"""

import pytest

from tests.kafka.exclusive.conftest import Connect
from tests.logs import read_log
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

OUT_OF_ORDER, DUPLICATE, STALE_EPOCH, REFUSED = 45, 46, 47, 44


def test_a_batch_that_arrives_before_the_first_one_is_out_of_order(
    services: Services, topic: str, connect: Connect
) -> None:
    billing = connect("billing")
    assert billing.send(topic, b"1", sequence=1).error == OUT_OF_ORDER
    assert billing.send(topic, b"0", sequence=0).error == 0
    assert billing.send(topic, b"1", sequence=1).error == 0
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1"]


def test_a_repeated_batch_is_answered_with_its_first_offset(services: Services, topic: str, connect: Connect) -> None:
    billing = connect("billing")
    first = billing.send(topic, [b"0", b"1"], sequence=0)
    assert billing.send(topic, [b"0", b"1"], sequence=0) == first
    assert billing.send(topic, b"2", sequence=2).error == 0
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2"]


def test_a_gap_is_out_of_order(topic: str, connect: Connect) -> None:
    billing = connect("billing")
    billing.send(topic, b"0", sequence=0)
    assert billing.send(topic, b"5", sequence=5).error == OUT_OF_ORDER
    assert billing.send(topic, b"1", sequence=1).error == 0


def test_pipelined_batches_are_appended_in_order(services: Services, topic: str, connect: Connect) -> None:
    billing = connect("billing")
    for i in range(200):
        billing.begin(topic, b"%d" % i, sequence=i)
    assert [billing.finish().error for _ in range(200)] == [0] * 200
    assert read_log(services.kafka_bootstrap, topic) == [b"%d" % i for i in range(200)]


@pytest.mark.parametrize("version", [3, 8, 9])
def test_requests_for_several_partitions_are_appended_in_order(
    services: Services, topic: str, connect: Connect, version: int
) -> None:
    billing = connect("billing")
    first = {partition: billing.send(topic, b"0", sequence=0, partition=partition) for partition in (0, 1)}
    for i in range(1, 200):
        billing.begin_all(topic, {0: (b"%d" % i, i), 1: (b"%d" % i, i)}, version=version)
    for i in range(1, 200):
        for partition, sent in billing.finish_all(version=version).items():
            assert (sent.error, sent.offset) == (0, first[partition].offset + i)
    for partition in (0, 1):
        assert read_log(services.kafka_bootstrap, topic, partition) == [b"%d" % i for i in range(200)]


def test_what_is_wrong_with_one_batch_of_a_request_is_told_of_it_alone(
    services: Services, topic: str, connect: Connect
) -> None:
    billing = connect("billing")
    first = {partition: billing.send(topic, b"0", sequence=0, partition=partition) for partition in (0, 1)}
    billing.begin_all(topic, {0: (b"5", 5), 1: (b"1", 1)})
    billing.begin_all(topic, {0: (b"1", 1), 1: (b"1", 1)})
    assert {partition: sent.error for partition, sent in billing.finish_all().items()} == {0: OUT_OF_ORDER, 1: 0}
    for partition, sent in billing.finish_all().items():
        assert (sent.error, sent.offset) == (0, first[partition].offset + 1)
    assert read_log(services.kafka_bootstrap, topic, 0) == [b"0", b"1"]
    assert read_log(services.kafka_bootstrap, topic, 1) == [b"0", b"1"]


def test_plain_pipelined_batches_are_appended_in_order(services: Services, topic: str, connect: Connect) -> None:
    billing = connect("billing", plain=True)
    for i in range(200):
        billing.begin(topic, b"%d" % i)
    assert [billing.finish().error for _ in range(200)] == [0] * 200
    assert read_log(services.kafka_bootstrap, topic) == [b"%d" % i for i in range(200)]


def test_a_plain_batch_that_kafka_refuses_leaves_no_gap(services: Services, rest: Rest, connect: Connect) -> None:
    """Too large for the topic: the batches behind it are counted anew and go through."""
    name = create_topic(services.kafka_bootstrap, 1, **{"max.message.bytes": "2000"})
    govern(rest, name)
    billing = connect("billing", plain=True)
    for value in (b"0", b"x" * 4000, b"1", b"2", b"3"):
        billing.begin(name, value)
    assert [billing.finish().error for _ in range(5)] == [0, 10, 0, 0, 0]
    assert billing.send(name, b"4").error == 0
    assert read_log(services.kafka_bootstrap, name) == [b"0", b"1", b"2", b"3", b"4"]


def test_refused_sequences_count_as_used(topic: str, connect: Connect, rest: Rest) -> None:
    """aiokafka never restarts its numbering after 44 (see docs/reference/guarantees.md)."""
    owner, later = connect("owner"), connect("later")
    owner.send(topic, b"a", sequence=0)
    assert [later.send(topic, b"x", sequence=i).error for i in range(3)] == [REFUSED] * 3
    owner.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    assert later.send(topic, b"b", sequence=3).error == 0
    assert later.send(topic, b"c", sequence=4).error == 0


def test_a_refused_batch_is_never_called_a_repeat(services: Services, topic: str, connect: Connect, rest: Rest) -> None:
    """It was never written: 46 would tell the client that it was. It is refused for good, also after a hand-over."""
    owner, later = connect("owner"), connect("later")
    owner.send(topic, b"a", sequence=0)
    assert [later.send(topic, b"x", sequence=i).error for i in range(2)] == [REFUSED] * 2
    owner.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    assert [later.send(topic, b"x", sequence=i).error for i in range(2)] == [REFUSED] * 2
    assert later.send(topic, b"b", sequence=2).error == 0
    assert later.send(topic, b"x", sequence=1).error == REFUSED
    later.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the next owner to be gone")
    again = connect("later", producer_id=later.producer_id)
    assert again.send(topic, b"x", sequence=0).error == REFUSED
    assert again.send(topic, b"b", sequence=2).error == DUPLICATE
    assert again.send(topic, b"c", sequence=3).error == 0
    assert read_log(services.kafka_bootstrap, topic) == [b"a", b"b", b"c"]


def test_a_client_may_raise_its_own_epoch_on_one_partition(
    services: Services, topic: str, connect: Connect, rest: Rest
) -> None:
    """Java and librdkafka do so after errors, partition by partition; others go on at the old epoch until drained."""
    billing = connect("billing")
    assert [billing.send(topic, b"%d" % i, sequence=i).error for i in range(3)] == [0] * 3
    assert [billing.send(topic, b"%d" % i, sequence=i, partition=1).error for i in range(2)] == [0] * 2
    assert billing.send(topic, b"4", sequence=1, epoch=1).error == OUT_OF_ORDER
    assert billing.send(topic, b"3", sequence=0, epoch=1).error == 0
    assert billing.send(topic, b"4", sequence=1, epoch=1).error == 0
    assert billing.send(topic, b"2", sequence=2, partition=1).error == 0
    assert billing.send(topic, b"5", sequence=5, epoch=0).error == STALE_EPOCH
    assert rest.topic(topic)["generation"] == 1
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2", b"3", b"4"]
    assert read_log(services.kafka_bootstrap, topic, 1) == [b"0", b"1", b"2"]


def test_a_session_that_left_comes_back_to_its_place(
    services: Services, topic: str, connect: Connect, rest: Rest
) -> None:
    """Java closes idle connections after nine minutes; it comes back with its producer id and the next sequence."""
    billing = connect("billing")
    assert [billing.send(topic, b"%d" % i, sequence=i).error for i in range(3)] == [0] * 3
    billing.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    again = connect("billing", producer_id=billing.producer_id)
    assert again.send(topic, b"3", sequence=3).error == 0
    assert again.send(topic, b"2", sequence=2).error == DUPLICATE
    assert rest.topic(topic)["generation"] == 1
    again.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    other = connect("other")
    assert other.send(topic, b"x", sequence=0).error == 0
    other.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the other to be gone")
    third = connect("billing", producer_id=billing.producer_id)
    assert third.send(topic, b"5", sequence=5).error == OUT_OF_ORDER
    assert third.send(topic, b"4", sequence=4).error == 0
    assert rest.topic(topic)["generation"] == 3
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2", b"3", b"x", b"4"]


def test_sequences_refused_to_a_session_that_left_count_as_used_too(
    services: Services, topic: str, connect: Connect, rest: Rest
) -> None:
    """It owned the topic before, was refused behind its last record, and goes on behind the refused ones."""
    billing, other = connect("billing"), connect("other")
    assert [billing.send(topic, b"%d" % i, sequence=i).error for i in range(3)] == [0] * 3
    billing.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    assert other.send(topic, b"x", sequence=0).error == 0
    again = connect("billing", producer_id=billing.producer_id)
    assert [again.send(topic, b"%d" % i, sequence=i).error for i in (3, 4)] == [REFUSED] * 2
    other.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the other to be gone")
    assert again.send(topic, b"5", sequence=5).error == 0
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2", b"x", b"5"]


def test_sequences_refused_behind_what_was_written_before_the_policy_count_as_used(
    services: Services, connect: Connect, rest: Rest
) -> None:
    name = create_topic(services.kafka_bootstrap)
    billing, other = connect("billing"), connect("other")
    assert [billing.send(name, b"%d" % i, sequence=i).error for i in range(3)] == [0] * 3
    govern(rest, name)
    assert other.send(name, b"x", sequence=0).error == 0
    assert [billing.send(name, b"%d" % i, sequence=i).error for i in (3, 4)] == [REFUSED] * 2
    other.close()
    wait_for(lambda: rest.topic(name)["owner"] is None, "the other to be gone")
    assert billing.send(name, b"5", sequence=5).error == 0
    assert read_log(services.kafka_bootstrap, name) == [b"0", b"1", b"2", b"x", b"5"]


def test_a_batch_across_the_place_where_a_session_goes_on_is_out_of_order(
    services: Services, topic: str, connect: Connect, rest: Rest
) -> None:
    """Half of it is in the log: calling it a repeat would lose the other half."""
    billing = connect("billing")
    assert [billing.send(topic, b"%d" % i, sequence=i).error for i in range(3)] == [0] * 3
    billing.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    again = connect("billing", producer_id=billing.producer_id)
    assert again.send(topic, [b"2", b"3"], sequence=2).error == OUT_OF_ORDER
    assert again.send(topic, [b"1", b"2"], sequence=1).error == DUPLICATE
    assert again.send(topic, b"3", sequence=3).error == 0
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2", b"3"]
