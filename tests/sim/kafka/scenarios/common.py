"""What scenarios share: how one is entered, and requests whose answers are read in the same way again and again."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from crc32c import crc32c

from sidecar.protocol.compression import compress
from tests.sim.kafka.batches import encode, encode_record
from tests.sim.kafka.talk import Talk

Scenario = Callable[[Talk], list[Any]]
SCENARIOS: Final[dict[str, Scenario]] = {}
ONE_BROKER: Final[set[str]] = set()
DAY: Final = 86_400_000


def scenario(function: Scenario) -> Scenario:
    """Enter a scenario by its name."""
    assert function.__name__ not in SCENARIOS, function.__name__
    SCENARIOS[function.__name__] = function
    return function


def of_one_broker(function: Scenario) -> Scenario:
    """Enter a scenario that asks one broker about several partitions, and so has other answers from a cluster."""
    ONE_BROKER.add(function.__name__)
    return scenario(function)


def versions(talk: Talk, version: int) -> tuple[int, dict[int, tuple[int, int]], int]:
    """ApiVersions: error, versions by API key, size of the answer behind them."""
    body = b"\x05test\x021\0" if version >= 3 else b""
    frame = Struct(">hhih").pack(18, version, 7, 4) + b"test" + (b"\0" if version >= 3 else b"") + body
    answer = talk.exchange(None, Struct(">i").pack(len(frame)) + frame)
    assert answer is not None
    error = Struct(">h").unpack_from(answer, 8)[0]
    flexible = version >= 3 and not error
    count, at = (answer[10] - 1, 11) if flexible else (Struct(">i").unpack_from(answer, 10)[0], 14)
    found: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        key, first, last = Struct(">hhh").unpack_from(answer, at)
        found[key] = first, last
        at += 6 + flexible
    return error, found, len(answer) - at


# Produce, Fetch, ListOffsets -----------------------------------------------------------------------------------------


def produced(talk: Talk, topic: str, records: bytes | None, version: int = 8, acks: int = -1) -> dict[str, Any]:
    """The row of partition 0 in the answer to a Produce of these bytes."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    fields = {"transactional_id": None, "acks": acks, "timeout_ms": 5000, "topic_data": data}
    return talk.ask(talk.leader_of(topic), 0, version, fields)["responses"][0]["partition_responses"][0]


def list_fields(topic: str, timestamp: int, *, isolation: int = 0, epoch: int = -1, partition: int = 0) -> Any:
    """A ListOffsets of one partition."""
    part = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}
    return {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": topic, "partitions": [part]}]}


def listed(talk: Talk, topic: str, timestamp: int, *, version: int = 5, **more: int) -> list[int]:
    """Error, offset, leader epoch."""
    fields = list_fields(topic, timestamp, **more)
    row = talk.ask(talk.leader_of(topic), 2, version, fields)["topics"][0]["partitions"][0]
    return [row["error_code"], row["offset"], row.get("leader_epoch", -1)]


def seen(talk: Talk, topic: str, offset: int = 0, **more: Any) -> list[Any]:
    """Error, watermarks, aborted transactions without their producers, and the header of each whole batch."""
    return read_row(talk.fetch(topic, offset, **more))


def read_row(row: dict[str, Any]) -> list[Any]:
    """As `seen`, of one partition of a Fetch answer."""
    aborted = row["aborted_transactions"]
    found: list[Any] = []
    data: bytes = row["records"] or b""
    while len(data) >= 61 and len(data) >= 12 + int.from_bytes(data[8:12], "big"):
        size = 12 + int.from_bytes(data[8:12], "big")
        base, epoch, attributes, last, sequence = (
            Struct(">q").unpack_from(data)[0], *Struct(">i").unpack_from(data, 12), *Struct(">h").unpack_from(data, 21),
            *Struct(">i").unpack_from(data, 23), *Struct(">i").unpack_from(data, 53),
        )  # fmt: skip
        found.append((base, epoch, attributes, last, sequence, size))
        data = data[size:]
    return [
        row["error_code"], row["high_watermark"], row["last_stable_offset"], row.get("log_start_offset", -1),
        None if aborted is None else [each["first_offset"] for each in aborted], found, len(data),
    ]  # fmt: skip


def deleted(talk: Talk, topic: str, offset: int, *, partition: int = 0, broker: int | None = None) -> tuple[int, int]:
    """DeleteRecords: error, low watermark."""
    parts = [{"partition_index": partition, "offset": offset}]
    fields = {"topics": [{"name": topic, "partitions": parts}], "timeout_ms": 5000}
    row = talk.ask(broker or talk.leader_of(topic), 21, 1, fields)["topics"][0]["partitions"][0]
    return row["error_code"], row["low_watermark"]


def end_of_epoch(
    talk: Talk, topic: str, epoch: int, *, current: int = -1, version: int = 3, partition: int = 0
) -> tuple[int, int, int]:
    """OffsetForLeaderEpoch: error, epoch, its end."""
    part = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
    fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
    row = talk.ask(talk.leader_of(topic), 23, version, fields)["topics"][0]["partitions"][0]
    return row["error_code"], row["leader_epoch"], row["end_offset"]


# Producers and transactions ------------------------------------------------------------------------------------------


def known(talk: Talk, topic: str, pid: int, epoch: int) -> list[int] | None:
    """Epoch above `epoch`, last sequence, coordinator epoch (0 or more: 0), start of the transaction of a producer."""
    found = talk.producers(topic).get(pid)
    if found is None:
        return None
    coordinator = min(0, found["coordinator_epoch"])
    return [found["producer_epoch"] - epoch, found["last_sequence"], coordinator, found["current_txn_start_offset"]]


def init_once(
    talk: Talk, name: str | None, pid: int = -1, epoch: int = -1, *, version: int = 4, timeout: int = 60_000
) -> Any:
    """InitProducerId, not tried again: error, producer id, epoch."""
    fields = {
        "transactional_id": name, "transaction_timeout_ms": timeout, "producer_id": pid, "producer_epoch": epoch,
    }  # fmt: skip
    broker = None if not name else talk.coordinator(name)
    answer = talk.ask(broker, 22, version, fields)
    return answer["error_code"], answer["producer_id"], answer["producer_epoch"]


def settle(talk: Talk, name: str, pid: int, epoch: int, *, commit: bool = False) -> int:
    """EndTxn until it is no longer 51."""
    for _ in range(200):
        error = talk.end(name, pid, epoch, commit=commit)
        if error != 51:
            return error
        talk.pause(0.02)
    return 51


def finish(talk: Talk, name: str, pid: int, epoch: int, *, commit: bool = True) -> int:
    """EndTxn, and wait until its markers are written."""
    error = talk.end(name, pid, epoch, commit=commit)
    return error or settle(talk, name, pid, epoch, commit=commit)


def stamped(name: str, pid: int, epoch: int) -> dict[str, Any]:
    """The fields that all requests of a transactional producer share."""
    return {"transactional_id": name, "producer_id": pid, "producer_epoch": epoch}


def state_of(talk: Talk, name: str) -> tuple[int, str]:
    """DescribeTransactions: error, state."""
    broker = talk.coordinator(name or "any")
    answer = talk.ask(broker, 65, 0, {"transactional_ids": [name]})["transaction_states"][0]
    return answer["error_code"], answer["transaction_state"]


# Groups --------------------------------------------------------------------------------------------------------------


def group_at(talk: Talk, group: str) -> int:
    """The broker that coordinates a group, once it does."""
    for _ in range(200):
        answer = talk.ask(None, 10, 1, {"key": group, "key_type": 0})
        if not answer["error_code"]:
            ready = talk.ask(answer["node_id"], 9, 5, {"group_id": group, "topics": []})["error_code"]
            if ready not in (14, 15, 16):
                return answer["node_id"]
        talk.pause(0.05)
    raise AssertionError("no coordinator of groups")


def commit_fields(group: str, topic: str, offset: int, partition: int = 0, metadata: str | None = "") -> Any:
    """OffsetCommit of a consumer that is no member; a member's fields can be put over it."""
    part = {
        "partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }  # fmt: skip
    return {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "retention_time_ms": -1, "topics": [{"name": topic, "partitions": [part]}],
    }  # fmt: skip


def committed(talk: Talk, group: str, topic: str, *, partition: int = 0, stable: bool = False) -> list[Any]:
    """OffsetFetch: error of the group and of the partition, offset, metadata."""
    topics = [{"name": topic, "partition_indexes": [partition]}]
    fields = {"group_id": group, "topics": topics, "require_stable": stable}
    answer = talk.ask(group_at(talk, group), 9, 7, fields)
    rows = [part for each in answer["topics"] for part in each["partitions"]]
    return [
        answer["error_code"], *((row["error_code"], row["committed_offset"], row["metadata"]) for row in rows)
    ]  # fmt: skip


# Batches -------------------------------------------------------------------------------------------------------------


def patched(batch: bytes, at: int, form: str, value: int) -> bytes:
    """A batch with another number in its header, and a CRC that is right again."""
    out = bytearray(batch)
    Struct(form).pack_into(out, at, value)
    Struct(">I").pack_into(out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)


def timed(times: list[int], pid: int = -1, epoch: int = -1, sequence: int = -1, attributes: int = 0) -> bytes:
    """A batch with a record at each of these times, Unix milliseconds."""
    section = b"".join(encode_record(delta, None, b"v", at - times[0]) for delta, at in enumerate(times))
    out = encode([(None, b"v")] * len(times), times[0], pid, epoch, sequence, attributes)[:61] + section
    out = patched(out, 8, ">i", len(out) - 12)
    return patched(out, 35, ">q", max(times))


def compressed(batch: bytes, codec: int) -> bytes:
    """A batch with its records compressed: 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    out = batch[:61] + bytes(compress(codec, batch[61:], b""))
    out = patched(out, 8, ">i", len(out) - 12)
    return patched(out, 21, ">h", int.from_bytes(batch[21:23], "big") | codec)
