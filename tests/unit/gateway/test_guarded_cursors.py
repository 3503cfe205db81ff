"""Which cursors a commit goes on with where topics are named by id, which brokers offer since Kafka 4.3 alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.cluster.resolver import NameResolver, Source
from sidecar.gateway.access.asked import Divided
from sidecar.gateway.guarded_cursors import GuardedCursors
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


CLIENT = cast(Any, SimpleNamespace(reader=None, identity=None, principal="User:alice"))


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


async def divide(guards: GuardedCursors, *topics: tuple[bytes, tuple[int, ...]]) -> tuple[Divided, list[int]]:
    """The request without what is refused, and the codes that were counted."""
    codes: list[int] = []
    exchange = cast(Any, SimpleNamespace(note_error=codes.append))
    divided = await guards.divide(OFFSET_COMMIT, "readers", CLIENT, exchange, committing(*topics))
    assert divided is not None
    return divided, codes


def answered(topics: list[Any]) -> set[tuple[bytes, int, int]]:
    return {
        (topic["topic_id"], each["partition_index"], each["error_code"])
        for topic in topics
        for each in topic["partitions"]
    }


async def test_a_commit_by_id_goes_on_without_what_is_not_the_clients(guards: GuardedCursors) -> None:
    divided, codes = await divide(guards, (ORDERS, (0, 1)), (AUDIT, (1,)), (NOBODYS, (3,)))
    assert divided.fields is not None
    assert places(divided.fields["topics"]) == [(ORDERS, [1])]
    assert answered(divided.amend({"topics": []})["topics"]) == {(ORDERS, 0, 22), (AUDIT, 1, 29), (NOBODYS, 3, 100)}
    assert sorted(codes) == [22, 29, 100]


async def test_of_a_commit_by_ids_that_nobody_knows_nothing_goes_on(guards: GuardedCursors) -> None:
    divided, codes = await divide(guards, (NOBODYS, (1,)), (bytes(16), (2,)))
    assert divided.fields is None
    assert answered(divided.amend({})["topics"]) == {(NOBODYS, 1, 100), (bytes(16), 2, 100)}
    assert codes == [100, 100]


async def test_a_commit_of_which_all_is_the_clients_goes_on_as_it_is(guards: GuardedCursors) -> None:
    assert await guards.divide(OFFSET_COMMIT, "readers", CLIENT, cast(Any, None), committing((ORDERS, (1,)))) is None


async def test_an_id_is_looked_up_once_while_it_is_known(guards: GuardedCursors) -> None:
    for _ in range(2):
        await guards.divide(OFFSET_COMMIT, "readers", CLIENT, cast(Any, None), committing((ORDERS, (1,))))
    assert cast(Any, guards).upstream.asked == [{ORDERS}]


async def test_what_is_refused_of_a_topic_stands_beside_what_was_committed_of_it(guards: GuardedCursors) -> None:
    divided, _ = await divide(guards, (ORDERS, (0, 1)), (AUDIT, (0,)))
    done = {"topics": [{"topic_id": ORDERS, "partitions": [{"partition_index": 1, "error_code": 0}]}]}
    data = OFFSET_COMMIT.encode_answer(10, 7, divided.amend(done))
    topics = OFFSET_COMMIT.decode_answer(data, 0, len(data), 10)["topics"]
    assert places(topics) == [(ORDERS, [1, 0]), (AUDIT, [0])]
    assert answered(topics) == {(ORDERS, 1, 0), (ORDERS, 0, 22), (AUDIT, 0, 29)}
