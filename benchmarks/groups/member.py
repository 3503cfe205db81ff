"""The only member of a consumer group, on one connection: what a client asks its coordinator for, and nothing else."""

from __future__ import annotations

import asyncio
import random
import time
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, cast

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages import cluster, groups
from sidecar.protocol.schema import Message, Values

if TYPE_CHECKING:
    from collections.abc import Callable

_CLIENT: Final = b"member"
_FIND: Final = cluster.FIND_COORDINATOR
_JOIN: Final = groups.JOIN_GROUP
_SYNC: Final = groups.SYNC_GROUP
_HEARTBEAT: Final = groups.HEARTBEAT
_COMMIT: Final = groups.OFFSET_COMMIT
_VERSIONS: Final = {_FIND.key: 2, _JOIN.key: 5, _SYNC.key: 3, _HEARTBEAT.key: 3, _COMMIT.key: 7}
"""The last ones without tagged fields: clients of today ask the same by newer ones."""
_SESSION_MS: Final = 45_000
_EVERY_S: Final = {_HEARTBEAT.key: 3.0, _COMMIT.key: 5.0}
_RETRY_S: Final = 0.1
_RECONNECT_S: Final = (0.05, 1.0)
"""Java's reconnect.backoff.ms and its limit; each wait is a fifth longer or shorter."""
_SIZE: Final = Struct(">i")
_MEMBER_ID_REQUIRED: Final = 79
"""What a new member is told with its id (KIP-394)."""
_JOIN_AGAIN: Final = {
    ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS,
    _MEMBER_ID_REQUIRED,
}  # fmt: skip


class Told(Protocol):
    """Who hears what became of a member. Times are seconds."""

    def joined(self, took_s: float) -> None:
        """From the first request on its connection until its group was in balance."""

    def answered(self, message: Message, took_s: float) -> None:
        """A heartbeat or a commit."""

    def refused(self, message: Message, code: int) -> None:
        """Any other answer than was hoped for."""


class Member(asyncio.Protocol):
    """Joins its group, then sends a heartbeat every 3 s and commits every 5 s, one request at a time; connects again
    where its connection ends, and joins again where its coordinator says so. `heard`: the coordinator has answered a
    heartbeat or its last SyncGroup on the connection that there is.
    """

    def __init__(self, group: str, topic: str, connect: Callable[[Member], object], told: Told) -> None:
        self.heard = False
        self._group, self._topic, self._connect, self._told = group, topic, connect, told
        self._member_id, self._generation, self._offset = "", -1, 0
        self._in_balance = False
        self._transport: asyncio.Transport | None = None
        self._kept = b""
        self._asked: Message = _FIND
        self._asked_at = self._began = 0.0
        self._due = {_HEARTBEAT.key: 0.0, _COMMIT.key: 0.0}
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0

    # The connection -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports derive from nothing
        self._kept, self._began = b"", time.perf_counter()
        self._ask(_FIND)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self.heard = None, False
        if self._timer is not None:
            self._timer.cancel()
        self.connect_again()

    def connect_again(self) -> None:
        """After a while: the longer the oftener it failed."""
        wait = min(_RECONNECT_S[1], _RECONNECT_S[0] * 2**self._failures) * random.uniform(0.8, 1.2)
        self._failures += 1
        asyncio.get_running_loop().call_later(wait, self._connect, self)

    def data_received(self, data: bytes) -> None:
        if self._kept:
            data = self._kept + data
        if len(data) < 4 or len(data) < 4 + _SIZE.unpack_from(data)[0]:
            self._kept = data
            return
        self._kept = b""
        asked = self._asked
        values = asked.decode_answer(data, 0, len(data), _VERSIONS[asked.key])
        code = values["topics"][0]["partitions"][0]["error_code"] if asked is _COMMIT else values["error_code"]
        if asked is _JOIN:
            self._member_id, self._generation = values["member_id"] or self._member_id, values["generation_id"]
        if code:
            self._refused(asked, code)
        else:
            self._failures = 0
            self._go_on(asked)

    # What is asked --------------------------------------------------------------------------------------------------

    def _ask(self, message: Message) -> None:
        if self._transport is not None:
            self._asked, self._asked_at = message, time.perf_counter()
            frame = message.encode_request(_VERSIONS[message.key], 1, _CLIENT, self._values(message))
            self._transport.write(frame)

    def _values(self, message: Message) -> Values:
        if message is _FIND:
            return {"key": self._group, "key_type": 0}
        mine = {"group_id": self._group, "member_id": self._member_id, "group_instance_id": None}
        if message is _JOIN:
            times = {"session_timeout_ms": _SESSION_MS, "rebalance_timeout_ms": _SESSION_MS}
            return mine | times | {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
        if message is _COMMIT:
            self._offset += 1
            partition = {"partition_index": 0, "committed_offset": self._offset, "committed_leader_epoch": -1}
            topics = [{"name": self._topic, "partitions": [partition | {"committed_metadata": ""}]}]
            return mine | {"generation_id_or_member_epoch": self._generation, "topics": topics}
        assignments = [{"member_id": self._member_id, "assignment": b""}]
        return mine | {"generation_id": self._generation, "assignments": assignments}

    def _go_on(self, asked: Message) -> None:
        now = time.perf_counter()
        if asked is _FIND:
            self._ask(_HEARTBEAT if self._in_balance else _JOIN)
        elif asked is _JOIN:
            self._ask(_SYNC)
        elif asked is _SYNC:
            self._in_balance = self.heard = True
            self._told.joined(now - self._began)
            self._due = {key: now + random.uniform(0, every) for key, every in _EVERY_S.items()}
            self._rest()
        else:
            self.heard = True
            self._told.answered(asked, now - self._asked_at)
            self._due[asked.key] = now + _EVERY_S[asked.key]
            self._rest()

    def _rest(self) -> None:
        """Until the next one is due."""
        key = min(self._due, key=self._due.__getitem__)
        wait = max(0.0, self._due[key] - time.perf_counter())
        message = _HEARTBEAT if key == _HEARTBEAT.key else _COMMIT
        self._timer = asyncio.get_running_loop().call_later(wait, self._ask, message)

    def _refused(self, asked: Message, code: int) -> None:
        if code != _MEMBER_ID_REQUIRED:
            self._told.refused(asked, code)
        if code in _JOIN_AGAIN:
            self._in_balance = False
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            self._ask(_JOIN)
        else:
            self._timer = asyncio.get_running_loop().call_later(_RETRY_S, self._ask, asked)
