"""What groups have committed: requests about many groups, split over paper coordinators and merged."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.cluster.resolver import NameResolver, Source
from sidecar.gateway.apis.k09_offset_fetch import OffsetFetchApi
from sidecar.gateway.guarded_cursors import GuardedCursors
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.messages.groups import OFFSET_FETCH
from sidecar.protocol.schema import Values

AUDIT, SECRET, NOBODYS = b"the id of audits", b"the id of secret", b"the id of nobody"


class Coordinators:
    """Groups are coordinated by the broker whose number ends their name; all have committed 5 everywhere. `asked`: the
    groups in each request that came to a broker.
    """

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.away: set[str] = set()
        self.lost_keys: list[str] = []

    async def by_broker(self, keys: list[str], _kind: object) -> tuple[dict[int, list[str]], dict[str, KafkaError]]:
        found: dict[int, list[str]] = {}
        for key in keys:
            if key[-1] != "0":
                found.setdefault(int(key[-1]), []).append(key)
        return found, {key: KafkaError(15) for key in keys if key[-1] == "0"}

    async def ask(self, _client: object, key: str, _kind: object, request: Request) -> Frame:
        frame = request.frame
        fields = OFFSET_FETCH.decode_request(frame.buffer, request.body, frame.end, request.version)
        groups = fields.get("groups", [fields])
        assert groups[0]["group_id"] == key
        self.asked.append([group["group_id"] for group in groups])
        if key in self.away:
            raise KafkaError(15)
        results = [
            {
                "group_id": group["group_id"],
                "error_code": 16 if group["group_id"].startswith("moved") else 0,
                "topics": list(map(self._offsets, group["topics"])),
            }
            for group in groups
        ]
        values: Values = {"groups": results, "throttle_time_ms": len(groups)}
        data = OFFSET_FETCH.encode_answer(request.version, 7, values if "groups" in fields else results[0])
        return Frame(bytearray(data), 0, len(data), True)

    def _offsets(self, topic: Values) -> Values:
        offsets = [{"partition_index": index, "committed_offset": 5} for index in topic["partition_indexes"]]
        return {name: topic[name] for name in ("name", "topic_id") if name in topic} | {"partitions": offsets}

    def lost(self, _client: object, key: str, _kind: object) -> None:
        self.lost_keys.append(key)

    def forget(self, key: str, kind: object) -> None:
        self.lost(None, key, kind)


class Shadows:
    """Cursors of `audit` are too far behind: the log ends at 90."""

    limits: Mapping[str, int] = {"audit": 10}

    async def reset(self, _group: str, shadow: str, committed: Mapping[int, int]) -> dict[int, int]:
        assert shadow == "audit"
        return dict.fromkeys(committed, 90)


class Asked:
    """A node with a shadow that its limit holds for, and one that the client may not read."""

    def __init__(self) -> None:
        resolver = NameResolver()
        theirs = Source(b"orders", UUID(int=1), frozenset({"User:bob"}))
        mine = Source(b"orders", UUID(int=1), frozenset({"User:alice"}))
        resolver.set_shadows({b"audit": mine, b"secret": theirs})
        view = SimpleNamespace(names={AUDIT: b"audit", SECRET: b"secret"})
        upstream = SimpleNamespace(view=view, find_ids=self._nothing)
        guards = GuardedCursors(cast(Any, upstream), resolver, cast(Any, None))
        self.coordinators = Coordinators()
        self.api = OffsetFetchApi(cast(Any, self.coordinators), guards, cast(Any, Shadows()))
        self.errors: set[int] = set()

    async def _nothing(self, _ids: set[bytes]) -> bool:
        return True

    async def ask(self, version: int, **fields: Any) -> Values:
        data = OFFSET_FETCH.encode_request(version, 7, b"", fields)
        request = Request(OFFSET_FETCH.key, version, 7, b"", Frame(bytearray(data), 0, len(data), True), 14)
        answers: list[bytes] = []
        exchange = SimpleNamespace(
            version=version,
            correlation_id=7,
            connection=SimpleNamespace(closed=False),
            answer=lambda parts: answers.append(b"".join(parts)),
            note_error=self.errors.add,
        )
        client = SimpleNamespace(identity=None, principal="User:alice", rights=None)
        await self.api.handle(cast(Any, client), cast(Any, exchange), request)
        (answer,) = answers
        return OFFSET_FETCH.decode_answer(answer, 0, len(answer), version)


@pytest.fixture
def node() -> Asked:
    return Asked()


def group(name: str, *topics: bytes | str) -> Values:
    named = [{"topic_id" if isinstance(topic, bytes) else "name": topic, "partition_indexes": [0]} for topic in topics]
    return {"group_id": name, "topics": named}


def told(answer: Values) -> list[tuple[str, int, list[tuple[int, int]]]]:
    """Of each group its error, and error and offset of its partitions."""
    return [
        (
            each["group_id"],
            each["error_code"],
            [
                (part["error_code"], part["committed_offset"])
                for topic in each["topics"]
                for part in topic["partitions"]
            ],
        )
        for each in answer["groups"]
    ]


async def test_each_coordinator_is_asked_once_and_groups_are_answered_in_their_order(node: Asked) -> None:
    names = ["a1", "b2", "c1", "a1", "d2"]
    answer = await node.ask(8, groups=[group(name, "orders") for name in names])
    assert told(answer) == [(name, 0, [(0, 5)]) for name in names]
    assert sorted(node.coordinators.asked) == [["a1", "a1", "c1"], ["b2", "d2"]]
    assert answer["throttle_time_ms"] == 3


async def test_a_group_without_a_coordinator_costs_the_others_nothing(node: Asked) -> None:
    node.coordinators.away = {"b2"}
    answer = await node.ask(9, groups=[group(name, "orders") for name in ("a1", "b2", "c0", "d2", "moved1")])
    assert told(answer) == [
        ("a1", 0, [(0, 5)]),
        ("b2", 15, [(15, -1)]),
        ("c0", 15, [(15, -1)]),
        ("d2", 15, [(15, -1)]),
        ("moved1", 16, [(0, 5)]),
    ]
    assert sorted(node.coordinators.lost_keys) == ["d2", "moved1"]
    assert node.errors == {15, 16}


async def test_no_groups_at_all_are_answered(node: Asked) -> None:
    assert told(await node.ask(8, groups=[])) == []


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_shadows_are_what_they_are_by_name_and_by_id(node: Asked, version: int) -> None:
    topics = [AUDIT, SECRET, NOBODYS] if version == 10 else ["audit", "secret", "orders"]
    answer = await node.ask(version, groups=[group("a1", *topics)])
    ends = [(29, -1), (100, -1)] if version == 10 else [(0, 5), (29, -1)]
    assert told(answer) == [("a1", 0, [(0, 90), *ends])]


@pytest.mark.parametrize("version", [2, 7])
async def test_one_group_before_version_8_is_answered_as_such(node: Asked, version: int) -> None:
    answer = await node.ask(version, **group("a1", "audit", "secret"))
    codes = [
        (part["error_code"], part["committed_offset"]) for topic in answer["topics"] for part in topic["partitions"]
    ]
    assert (answer["error_code"], codes) == (0, [(0, 90), (29, -1)])
    assert node.errors == {29}
