"""What members of share groups read and acknowledge (KIP-932), on a connection to a broker or to a node.

A session is a row of requests, so it is asked as a row: opened, acknowledged, read again, closed, and what is wrong in
it. Before each reading a record is written to each topic, so that what may be read always has some.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import Producer

from sidecar.protocol.messages import admin, cluster, shares
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.protocol.schema import Values
    from tests.kafka.security.secured import Secured, Wire

GROUPS: Final = ("share-mine", "share-theirs")
_NO_PARTITION: Final = 7
_GROUP_CONFIG: Final = 32
_ACCEPT: Final = 1
_WAIT_MS: Final = 2_000
"""Longer than a broker takes for the state of a partition that it has not looked at yet."""
_VERSION: Final = 2
_READS: Final = 20

Part = tuple[str, int]
Acks = dict[Part, tuple[int, int]]
"""First and last offset."""


class Seen(NamedTuple):
    """What is compared of a partition in an answer."""

    code: int
    acknowledged: int
    has_records: bool


class Told(NamedTuple):
    """What is compared of an answer. An answer to ShareAcknowledge has its codes in `Seen.code`."""

    code: int
    parts: dict[Part, Seen]


class Topics:
    """By name and id. None has an id that is nobody's: a broker with an authorizer answers that with a
    NullPointerException (measured with 4.4.0).
    """

    def __init__(self, broker: Secured, ids: Mapping[str, bytes]) -> None:
        self._producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.ports['PLAINTEXT']}", "linger.ms": 0})
        self.ids = ids
        self.names = {each: name for name, each in self.ids.items()}
        self.parts = [(name, index) for name in ids for index in (0, _NO_PARTITION)]

    async def write(self) -> None:
        """A record into each topic."""
        for name in self.ids:
            self._producer.produce(name, b"a record", partition=0)
        assert await asyncio.to_thread(self._producer.flush, 30) == 0


async def join(broker: Secured, topics: tuple[str, ...]) -> None:
    """Give each group a member, and have it read topics from their beginning."""
    configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
    resources = [{"resource_type": _GROUP_CONFIG, "resource_name": group, "configs": configs} for group in GROUPS]
    async with broker.wire("PLAINTEXT") as wire:
        changed = await wire.ask_table(admin.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources})
        assert {each["error_code"] for each in changed["responses"]} == {0}
        for group in GROUPS:
            await _be_assigned(wire, group, topics)


async def _be_assigned(wire: Wire, group: str, topics: tuple[str, ...]) -> None:
    """Join until all topics are the member's: a coordinator has the state of their partitions made first."""
    beat = {"group_id": group, "member_id": f"of-{group}", "subscribed_topic_names": [*topics]}

    async def has_all() -> bool:
        await wire.ask_table(cluster.FIND_COORDINATOR, 3, {"key": group, "key_type": 0})
        answer = await wire.ask_table(shares.SHARE_GROUP_HEARTBEAT, 1, beat)
        return answer["error_code"] == 0 and len((answer["assignment"] or {}).get("topic_partitions", ())) == len(
            topics
        )

    await wait_for_async(has_all, "the assignment of a share group")


class Member:
    """A member on one connection; its session goes on from request to request, until it is closed."""

    def __init__(self, wire: Wire, topics: Topics, group: str, name: str) -> None:
        self._wire = wire
        self._topics = topics
        self._who = {"group_id": group, "member_id": name}
        self.epoch = 0
        self._acquired: Acks = {}

    async def fetch(
        self, *, epoch: int | None = None, acks: Acks | None = None, wait_ms: int = 0, forget: tuple[str, ...] = ()
    ) -> Told:
        """ShareFetch, of all topics where it opens the session. `forget`: topics that are read no more."""
        asked = self.epoch if epoch is None else epoch
        named: dict[Part, tuple[int, int] | None] = dict.fromkeys(self._topics.parts) if asked == 0 else {}
        values = self._who | {
            "share_session_epoch": asked,
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 5_000,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "topics": self._by_topic(named | (acks or {})),
            "forgotten_topics_data": [
                {"topic_id": self._topics.ids[name], "partitions": [0, _NO_PARTITION]} for name in forget
            ],
        }
        answer = await self._wire.ask_table(shares.SHARE_FETCH, _VERSION, values)
        self._acquired |= {
            part: (found["acquired_records"][0]["first_offset"], found["acquired_records"][-1]["last_offset"])
            for part, found in self._parts(answer).items()
            if found["acquired_records"]
        }
        return self._told(answer, epoch)

    async def acknowledge(self, *, epoch: int | None = None, acks: Acks | None = None) -> Told:
        """ShareAcknowledge of what was read last, and of `acks`."""
        values = self._who | {
            "share_session_epoch": self.epoch if epoch is None else epoch,
            "topics": self._by_topic((acks or {}) | self._acquired),
        }
        self._acquired = {}
        return self._told(await self._wire.ask_table(shares.SHARE_ACKNOWLEDGE, _VERSION, values), epoch)

    async def read(self) -> Told:
        """ShareFetch until each topic has a record or is refused: a broker may give one of them first."""
        parts: dict[Part, Seen] = {}
        for _ in range(_READS):
            told = await self.fetch(wait_ms=_WAIT_MS)
            parts |= {part: each for part, each in told.parts.items() if part not in parts or each.has_records}
            found = [parts[name, 0] for name in self._topics.ids if (name, 0) in parts]
            if told.code or sum(each.has_records or each.code != 0 for each in found) == len(self._topics.ids):
                break
        return Told(told.code, parts)

    def _told(self, answer: Values, epoch: int | None) -> Told:
        if answer["error_code"] == 0 and epoch is None:
            self.epoch += 1
        parts = {
            part: Seen(
                found["error_code"],
                found.get("acknowledge_error_code", 0),
                bool(found.get("records")) or bool(found.get("acquired_records")),
            )
            for part, found in self._parts(answer).items()
        }
        return Told(answer["error_code"], parts)

    def _parts(self, answer: Values) -> dict[Part, Any]:
        return {
            (self._topics.names[topic["topic_id"]], found["partition_index"]): found
            for topic in answer["responses"]
            for found in topic["partitions"]
        }

    def _by_topic(self, parts: Mapping[Part, tuple[int, int] | None]) -> list[Values]:
        topics: dict[str, list[Values]] = {}
        for (name, index), acked in parts.items():
            batches: list[Values] = []
            if acked is not None:
                first, last = acked
                batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": [_ACCEPT]}]
            topics.setdefault(name, []).append({"partition_index": index, "acknowledgement_batches": batches})
        return [{"topic_id": self._topics.ids[name], "partitions": found} for name, found in topics.items()]


class Side:
    """The same members on one connection: each time a session of its own, and one that stays open."""

    def __init__(self, wire: Wire, topics: Topics) -> None:
        self._wire = wire
        self._topics = topics
        self._standing = [Member(wire, topics, group, "standing") for group in GROUPS]

    async def ask(self) -> dict[str, Told]:
        """All requests, in their order, with what was answered."""
        found: dict[str, Told] = {}
        for group, standing in zip(GROUPS, self._standing, strict=True):
            await self._topics.write()
            found[f"{group}: read on"] = await standing.read()
            found[f"{group}: acknowledged on"] = await standing.acknowledge()
            found |= {f"{group}: {name}": each for name, each in (await self._session(group)).items()}
        return found

    async def _session(self, group: str) -> dict[str, Told]:
        member = Member(self._wire, self._topics, group, "passing")
        foreign: Acks = dict.fromkeys(self._topics.parts, (0, 0))
        await self._topics.write()
        forgotten = {
            "read": await member.read(),
            "forgotten": await member.fetch(forget=("shut",)),
            "all forgotten": await member.fetch(forget=(*self._topics.ids,)),
            "acknowledged": await member.acknowledge(),
            "closed": await member.acknowledge(epoch=-1),
        }
        member = Member(self._wire, self._topics, group, "passing")
        await self._topics.write()
        return {f"{name} before it ended": each for name, each in forgotten.items()} | {
            "read": await member.read(),
            "acknowledged": await member.acknowledge(acks=foreign),
            "read and acknowledged": await member.fetch(acks=foreign),
            "epoch of another": await member.fetch(epoch=99),
            "acknowledged at an epoch of another": await member.acknowledge(epoch=99, acks=foreign),
            "acknowledged to open": await member.acknowledge(epoch=0, acks=foreign),
            "closed": await member.acknowledge(epoch=-1, acks=foreign),
            "read without a session": await member.fetch(epoch=5, acks=foreign),
            "acknowledged without a session": await member.acknowledge(epoch=5, acks=foreign),
            "opened with acknowledgements": await member.fetch(epoch=0, acks=foreign),
            "closed by reading": await member.fetch(epoch=-1),
        }
