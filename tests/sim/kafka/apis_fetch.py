"""Fetch, api key 1 (`KafkaApis.handleFetchRequest`, `ReplicaManager.fetchMessages`, `DelayedFetch`).

Topics are named by id from version 13 on (KIP-516). Tagged fields are left out: new leaders (KIP-951), and where the
logs of a reader and of the leader part (KIP-595). Fetch sessions are declined: the answer's session id is 0, as from a
broker whose cache is full (KIP-227).
"""

from __future__ import annotations

from typing import Final

from sidecar.protocol.schema import Values
from tests.sim.kafka import errors
from tests.sim.kafka.broker import Broker, serves
from tests.sim.kafka.channel import Request
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.replica import Replica

_FIRST_FROM_FOLLOWERS: Final = 11
_NOT_THERE: Final = (errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNKNOWN_TOPIC_ID)
_NOT_WAITED_FOR: Final = (errors.NONE, *_NOT_THERE)


class _Fetch:
    """One request; parked while there is less than `min_bytes` and nothing is wrong."""

    __slots__ = ("broker", "committed", "done", "replicas", "request", "timer")

    def __init__(self, broker: Broker, request: Request) -> None:
        self.broker = broker
        self.request = request
        self.committed: bool = request.values["isolation_level"] == 1
        self.done = False
        self.replicas: list[Replica] = []
        self.timer = None

    def run(self) -> None:
        values = self.request.values
        if values.get("session_epoch", -1) not in (-1, 0):  # `FetchManager.newContext`
            self.request.answer({"error_code": errors.FETCH_SESSION_ID_NOT_FOUND, "responses": []})
            return
        if not self._try(last=values["max_wait_ms"] <= 0):
            for replica in self.replicas:
                replica.watchers[self] = self._poked
            self.timer = self.broker.later(values["max_wait_ms"] / 1000, self._overdue)

    def _poked(self) -> None:
        if not self.done:
            self._try(last=False)

    def _overdue(self) -> None:
        if not self.done:
            self._try(last=True)

    def _try(self, *, last: bool) -> bool:
        """Read; answer if that is enough, or if there is no more time."""
        values = self.request.values
        self.replicas = []
        left: int = values["max_bytes"]
        size = 0
        at_once = last
        topics: list[Values] = []
        for topic in values["topics"]:
            rows: list[Values] = []
            name = self._name(topic)
            for part in topic["partitions"]:
                row = self._read(name, part, left, first=size == 0)
                rows.append(row)
                found = len(row["records"])
                size += found
                left -= found
                # what this broker does not know of is left out of the waiting (`KafkaApis.handleFetchRequest`)
                at_once = at_once or row["error_code"] not in _NOT_WAITED_FOR
            topics.append({called: topic[called] for called in ("topic", "topic_id") if called in topic})
            topics[-1]["partitions"] = rows
        if not at_once and size < values["min_bytes"] and self.replicas:
            return False
        self.done = True
        for replica in self.replicas:
            replica.watchers.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()
        if size and self.broker.empty:
            self.broker.empty -= 1
            self.broker.cluster.effect("empty_fetch")
            for each in topics:
                for row in each["partitions"]:
                    row["records"] = b""
        self.request.answer({"error_code": 0, "session_id": 0, "responses": topics})
        return True

    def _name(self, topic: Values) -> str | None:
        """Which topic is named, be it by its id; None for an id that nobody has."""
        if "topic" in topic:
            return topic["topic"]
        found = self.broker.image.by_id.get(topic["topic_id"])
        return None if found is None else found.name

    def _read(self, topic: str | None, part: Values, left: int, *, first: bool) -> Values:
        index: int = part["partition"]
        try:
            if topic is None:
                raise RefusedError(errors.UNKNOWN_TOPIC_ID)
            replica = self._replica(topic, index, part.get("current_leader_epoch", -1))
            offset: int = part["fetch_offset"]
            log = replica.log
            if min(self.request.values["max_bytes"], part["partition_max_bytes"]) < 0:
                raise RefusedError(errors.UNKNOWN_SERVER_ERROR)  # `LogSegment.read`: IllegalArgumentException
            if offset < log.start or offset > log.end:
                raise RefusedError(errors.OFFSET_OUT_OF_RANGE)
        except RefusedError as error:
            return {
                "partition_index": index, "error_code": error.code, "high_watermark": -1, "last_stable_offset": -1,
                "log_start_offset": -1, "preferred_read_replica": -1, "records": b"",
                "aborted_transactions": [] if error.code in _NOT_THERE else None,
            }  # fmt: skip
        self.replicas.append(replica)
        stable = replica.stable_offset()
        upper = stable if self.committed else replica.high_watermark
        records = b""
        most = min(left, part["partition_max_bytes"])
        if offset < upper and (left > 0 or first):
            records = log.read(offset, upper, max(0, most), one_at_least=first)
        aborted = None
        does_not_fit = offset < upper and most > 0 and not records  # `FetchDataInfo.firstEntryIncomplete`
        if self.committed and not does_not_fit:
            aborted = [{"producer_id": pid, "first_offset": at} for pid, at in log.aborted_between(offset, upper)]
        return {
            "partition_index": index, "error_code": 0, "high_watermark": replica.high_watermark,
            "last_stable_offset": stable, "log_start_offset": log.start, "aborted_transactions": aborted,
            "preferred_read_replica": -1, "records": records,
        }  # fmt: skip

    def _replica(self, topic: str, index: int, epoch: int) -> Replica:
        """Since version 11 followers answer, too, up to their own high watermark (KIP-392), whatever the rack is."""
        replica = self.broker.hosted(topic, index)
        if replica is None:
            known = self.broker.image.partition(topic, index) is not None
            raise RefusedError(errors.NOT_LEADER_OR_FOLLOWER if known else errors.UNKNOWN_TOPIC_OR_PARTITION)
        replica.check_epoch(epoch)
        if self.request.version < _FIRST_FROM_FOLLOWERS:
            replica.check_leader()
        return replica


@serves(1)
def fetch(broker: Broker, request: Request) -> None:
    _Fetch(broker, request).run()
