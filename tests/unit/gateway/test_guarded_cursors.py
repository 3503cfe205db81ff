"""Which cursors a commit goes on with where topics are named by id, which brokers offer since Kafka 4.3 alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.cluster.resolver import NameResolver, Source
from sidecar.gateway.guarded_cursors import Divided, GuardedCursors
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.protocol.messages.groups import OFFSET_COMMIT

ORDERS, AUDIT, NOBODYS = b"the id of orders", b"the id of audits", b"the id of nobody"
NAMES = {ORDERS: b"orders", AUDIT: b"audit"}


class Upstream:
    """Kafka, which has two topics; the node hears of them when it asks. `asked`: for which ids."""

    def __init__(self) -> None:
        self.view = SimpleNamespace(names=dict[bytes, bytes]())
        self.asked: list[set[bytes]] = []

    async def find_ids(self, ids: set[bytes]) -> bool:
        self.asked.append(ids)
        self.view.names.update({topic_id: name for topic_id, name in NAMES.items() if topic_id in ids})
        return True


class Claims:
    """Somebody else reads partition 0 of everything."""

    any = True

    def may_commit(self, _group: str, topic: bytes, partition: int, _client: object) -> bool:
        assert topic in NAMES.values()
        return partition != 0


CLIENT = cast(Any, SimpleNamespace(identity=None, principal="User:alice"))


@pytest.fixture
def guards() -> GuardedCursors:
    resolver = NameResolver()
    resolver.set_shadows({b"audit": Source(b"orders", UUID(bytes=ORDERS), frozenset({"User:bob"}))})
    return GuardedCursors(cast(Any, Upstream()), resolver, cast(Any, Claims()))


def committing(*topics: tuple[bytes, tuple[int, ...]]) -> Request:
    named = [
        {"topic_id": topic_id, "partitions": [{"partition_index": index} for index in indexes]}
        for topic_id, indexes in topics
    ]
    data = OFFSET_COMMIT.encode_request(10, 7, b"", {"group_id": "readers", "topics": named})
    return Request(OFFSET_COMMIT.key, 10, 7, b"", Frame(bytearray(data), 0, len(data), True), 14)


def places(topics: list[Any]) -> list[tuple[bytes, list[int]]]:
    return [(topic["topic_id"], [each["partition_index"] for each in topic["partitions"]]) for topic in topics]


def kept(divided: Divided) -> list[tuple[bytes, list[int]]]:
    request = divided.request
    assert request is not None
    frame = request.frame
    return places(OFFSET_COMMIT.decode_request(frame.buffer, request.body, frame.end, 10)["topics"])


async def test_a_commit_by_id_goes_on_without_what_is_not_the_clients(guards: GuardedCursors) -> None:
    divided = await guards.divide("readers", CLIENT, committing((ORDERS, (0, 1)), (AUDIT, (1,)), (NOBODYS, (3,))))
    assert kept(divided) == [(ORDERS, [1])]
    told = {(each.code, *map(str, places([each.topic]))) for each in divided.refused}
    assert told == {
        (22, str((ORDERS, [0]))),
        (29, str((AUDIT, [1]))),
        (100, str((NOBODYS, [3]))),
    }


async def test_of_a_commit_by_ids_that_nobody_knows_nothing_goes_on(guards: GuardedCursors) -> None:
    divided = await guards.divide("readers", CLIENT, committing((NOBODYS, (1,)), (bytes(16), (2,))))
    assert divided.request is None
    assert [each.code for each in divided.refused] == [100, 100]


async def test_an_id_is_looked_up_once_while_it_is_known(guards: GuardedCursors) -> None:
    for _ in range(2):
        await guards.divide("readers", CLIENT, committing((ORDERS, (1,))))
    assert cast(Any, guards)._upstream.asked == [{ORDERS}]


async def test_what_is_refused_of_a_topic_stands_beside_what_was_committed_of_it(guards: GuardedCursors) -> None:
    request = committing((ORDERS, (0, 1)))
    done = {"topics": [{"topic_id": ORDERS, "partitions": [{"partition_index": 1, "error_code": 0}]}]}
    data = OFFSET_COMMIT.encode_answer(10, 7, done)
    refused = [
        {"topic_id": topic_id, "partitions": [{"partition_index": 0, "error_code": code}]}
        for topic_id, code in ((ORDERS, 22), (AUDIT, 29))
    ]
    joined = await guards.joined(Frame(bytearray(data), 0, len(data), True), request, refused)
    assert joined is not None
    topics = OFFSET_COMMIT.decode_answer(joined, 0, len(joined), 10)["topics"]
    assert places(topics) == [(ORDERS, [1, 0]), (AUDIT, [0])]
