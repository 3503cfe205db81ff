"""What a broker answers, as scenarios that run alike on the simulation and on a real cluster.

Each takes a `Talk` and returns answers that can be compared: producer ids are left out, topics are fresh, epochs are
relative to the first one. They need one broker and no faults.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from tests.sim.kafka.batches import LAST_SEQUENCE, TRANSACTIONAL, encode
from tests.sim.kafka.talk import Talk, fetch_fields

Scenario = Callable[[Talk], list[Any]]
SCENARIOS: Final[dict[str, Scenario]] = {}
_DAY: Final = 86_400_000


def scenario(function: Scenario) -> Scenario:
    """Enter a scenario by its name."""
    SCENARIOS[function.__name__] = function
    return function


def _row(talk: Talk, topic: str, records: bytes | None, version: int = 8, acks: int = -1) -> dict[str, Any]:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    fields = {"transactional_id": None, "acks": acks, "timeout_ms": 5000, "topic_data": data}
    return talk.ask(talk.leader_of(topic), 0, version, fields)["responses"][0]["partition_responses"][0]


def _list(
    talk: Talk, topic: str, timestamp: int, *, isolation: int = 0, epoch: int = -1, version: int = 5
) -> list[int]:
    part = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": timestamp}
    fields = {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": topic, "partitions": [part]}]}
    row = talk.ask(talk.leader_of(topic), 2, version, fields)["topics"][0]["partitions"][0]
    return [row["error_code"], row["offset"], row.get("leader_epoch", -1)]


def _seen(talk: Talk, topic: str, offset: int = 0, **more: Any) -> list[Any]:
    """Error, watermarks, aborted transactions without their producers, and the header of each whole batch."""
    row = talk.fetch(topic, offset, **more)
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
        row["error_code"], row["high_watermark"], row["last_stable_offset"], row["log_start_offset"],
        None if aborted is None else [each["first_offset"] for each in aborted], found, len(data),
    ]  # fmt: skip


def _known(talk: Talk, topic: str, pid: int, epoch: int) -> list[int] | None:
    """Epoch above `epoch`, last sequence, coordinator epoch (0 or more: 0), start of the transaction of a producer."""
    found = talk.producers(topic).get(pid)
    if found is None:
        return None
    coordinator = min(0, found["coordinator_epoch"])
    return [found["producer_epoch"] - epoch, found["last_sequence"], coordinator, found["current_txn_start_offset"]]


def _init(
    talk: Talk, name: str | None, pid: int = -1, epoch: int = -1, *, version: int = 4, timeout: int = 60_000
) -> Any:
    fields = {
        "transactional_id": name, "transaction_timeout_ms": timeout, "producer_id": pid, "producer_epoch": epoch,
    }  # fmt: skip
    broker = None if not name else talk.coordinator(name)
    answer = talk.ask(broker, 22, version, fields)
    return answer["error_code"], answer["producer_id"], answer["producer_epoch"]


def _settle(talk: Talk, name: str, pid: int, epoch: int, *, commit: bool = False) -> int:
    """EndTxn until it is no longer 51."""
    for _ in range(200):
        error = talk.end(name, pid, epoch, commit=commit)
        if error != 51:
            return error
        talk.pause(0.02)
    return 51


# Produce without a transactional id ----------------------------------------------------------------------------------


@scenario
def sequences(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    steps = [(0, 2), (2, 1), (4, 1), (3, 1), (3, 1), (2, 1), (0, 2), (0, 1), (1, 1), (4, 3)]
    return [talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=first) for first, count in steps]


@scenario
def window_of_five(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    steps = [*range(7), 2, 3, 6, 1, 0, 7, 2, 3]
    return [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=each) for each in steps]


@scenario
def unknown_producer_begins_anywhere(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    return [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=each) for each in (9, 10, 12, 9, 8)]


@scenario
def epochs_of_data(talk: Talk) -> list[Any]:
    topic, (_, pid, _) = talk.topic(), talk.init(None)
    steps = [(0, 0), (0, 1), (1, 2), (1, 0), (0, 2), (0, 1), (1, 1), (3, 1), (3, 0), (2, 0)]
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for epoch, seq in steps]
    return [*found, _known(talk, topic, pid, 0)]


@scenario
def wrap_of_sequences(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    steps = [(LAST_SEQUENCE - 1, 2), (0, 1), (1, 1), (LAST_SEQUENCE - 1, 2), (0, 1)]
    found: list[Any] = [talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=seq) for seq, count in steps]
    return [*found, _known(talk, topic, pid, epoch)]


@scenario
def batch_over_the_wrap(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    found: list[Any] = [
        talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=seq)
        for seq, count in [(LAST_SEQUENCE, 3), (2, 1), (LAST_SEQUENCE, 3), (1, 1)]
    ]
    return [*found, _known(talk, topic, pid, epoch)]


@scenario
def broken_batches(talk: Talk) -> list[Any]:
    topic = talk.topic()
    good = encode([(None, b"abc")], talk.wall_ms())
    broken = [
        good[:-1] + bytes((good[-1] ^ 1,)), good + good, b"", encode([(None, b"a")], talk.wall_ms(), attributes=0x20),
        encode([(None, b"a")], talk.wall_ms(), 5, 0, -1), good[:-3], good[:20], good[:16] + b"\1" + good[17:],
    ]  # fmt: skip
    return [*(_row(talk, topic, each)["error_code"] for each in broken), _row(talk, topic, good)["base_offset"]]


@scenario
def required_acks(talk: Talk) -> list[Any]:
    topic = talk.topic()
    good = encode([(None, b"abc")], talk.wall_ms())
    return [_row(talk, topic, good, acks=acks)["error_code"] for acks in (1, -1, 2, -2)]


@scenario
def unknown_places(talk: Talk) -> list[Any]:
    topic = talk.topic()
    leader = talk.leader_of(topic)
    found: list[Any] = [
        talk.produce(topic, b"v", partition=3, broker=leader), talk.produce(topic + "-none", b"v", broker=leader)
    ]  # fmt: skip
    found.append(talk.fetch(topic, partition=3, broker=leader)["error_code"])
    found.append(talk.latest(topic, 3, broker=leader))
    return found


@scenario
def too_large_too_young_too_old(talk: Talk) -> list[Any]:
    topic, now = talk.topic(max_message_bytes="500"), talk.wall_ms()
    return [
        talk.produce(topic, b"v" * 500), talk.produce(topic, b"v", timestamp=now + 2 * _DAY),
        talk.produce(topic, b"v", timestamp=now - 30 * _DAY), talk.produce(topic, b"v", timestamp=1),
    ]  # fmt: skip


@scenario
def compacted_topic_wants_keys(talk: Talk) -> list[Any]:
    topic = talk.topic(cleanup_policy="compact")
    return [talk.produce(topic, b"v"), talk.produce(topic, b"v", key=b"k")]


@scenario
def answers_of_each_produce_version(talk: Talk) -> list[Any]:
    topic = talk.topic()
    good = encode([(None, b"abc")], talk.wall_ms())
    found = [_row(talk, topic, good, version) for version in range(3, 10)]
    return [{name: value for name, value in row.items() if name != "error_message"} for row in found]


@scenario
def log_append_time(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(message_timestamp_type="LogAppendTime"), talk.init(None)
    batch = encode([(None, b"v")], 5, pid, epoch, 0)
    first, repeat = _row(talk, topic, batch), _row(talk, topic, batch)
    same = first["log_append_time_ms"] == repeat["log_append_time_ms"] > 10**12
    return [same, first["base_offset"], repeat["base_offset"], _seen(talk, topic)]


@scenario
def create_time(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    now = talk.wall_ms()
    batch = encode([(None, b"v")], now, pid, epoch, 0)
    first, repeat = _row(talk, topic, batch), _row(talk, topic, batch)
    return [first["log_append_time_ms"], repeat["log_append_time_ms"] - now]


# Fences --------------------------------------------------------------------------------------------------------------


@scenario
def init_alone_fences_nothing(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0)]
    _, again, raised = talk.init(name)
    found += [again == pid, raised - epoch, talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=1)]
    return [*found, _known(talk, topic, pid, epoch)]


@scenario
def empty_abort_fences(talk: Talk) -> list[Any]:
    topic, name = talk.topic(2), talk.unique("slot")
    pid, epoch = talk.fence(name, topic, 0, 1)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0), _known(talk, topic, pid, epoch)]
    _, raised = talk.fence(name, topic, 0, 1)
    found += [raised - epoch, _known(talk, topic, pid, epoch)]
    for partition in (0, 1):
        for of, seq in ((epoch, 1), (epoch, 0), (raised, 1), (raised, 0), (raised, 0), (raised, 1)):
            found.append(talk.produce(topic, b"v", partition=partition, pid=pid, epoch=of, seq=seq))
    return [*found, _seen(talk, topic)]


@scenario
def keep_alive_at_the_same_epoch(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    pid, epoch = talk.fence(name, topic)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for seq in (0, 1)]
    found.append(talk.add(name, pid, epoch, topic))
    found.append(talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=2))
    found.append(_seen(talk, topic, isolation=1))
    found.append(_settle(talk, name, pid, epoch))
    found.append(talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=3)[0])
    found.append(talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=1))
    return [*found, _known(talk, topic, pid, epoch)]


@scenario
def stale_stamps_at_the_coordinator(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    _, pid, epoch = talk.init(name)
    talk.init(name)
    found: list[Any] = [talk.add(name, pid, epoch, topic), talk.end(name, pid, epoch)]
    found += [talk.add(name, pid + 100_000, epoch + 1, topic), talk.end(name, pid + 100_000, epoch + 1)]
    found += [talk.add(name, pid, epoch + 5, topic), talk.end(name, pid, epoch + 1)]
    nobody = talk.unique("nobody")
    return [*found, talk.add(nobody, pid, epoch, topic), talk.end(nobody, pid, epoch)]


@scenario
def older_versions_say_47(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    _, pid, epoch = talk.init(name)
    talk.init(name)
    at = talk.coordinator(name)
    end = {"transactional_id": name, "producer_id": pid, "producer_epoch": epoch, "committed": False}
    add = {
        "transactional_id": name, "producer_id": pid, "producer_epoch": epoch,
        "topics": [{"name": topic, "partitions": [0]}],
    }  # fmt: skip
    found: list[Any] = [talk.ask(at, 26, version, end)["error_code"] for version in (0, 1, 2, 3)]
    for version in (0, 1, 2, 3):
        row = talk.ask(at, 24, version, add)["results_by_topic"][0]["results_by_partition"][0]
        found.append(row["partition_error_code"])
    return [*found, _init(talk, name, pid, epoch + 9, version=3)[0], _init(talk, name, pid, epoch + 9)[0]]


@scenario
def raise_by_name(talk: Talk) -> list[Any]:
    name = talk.unique("slot")
    _, pid, epoch = talk.init(name)
    found: list[Any] = []
    for named, at in ((pid, 0), (pid, 0), (pid, 1), (pid, 0), (pid, 1), (pid, 2), (pid + 100_000, 3)):
        error, _, given = _init(talk, name, named, epoch + at)
        found.append((error, None if error else given - epoch))
    error, _, given = talk.init(name)
    return [*found, (error, given - epoch), _init(talk, name, pid, epoch + 3)[0]]


@scenario
def raise_of_nobody(talk: Talk) -> list[Any]:
    name = talk.unique("slot")
    for _ in range(50):
        error, pid, epoch = _init(talk, name, 777, 5)
        if error not in (14, 15, 16, 51):
            return [error, pid != 777, epoch]
        talk.pause(0.1)
    return ["never"]


@scenario
def half_a_name(talk: Talk) -> list[Any]:
    name = talk.unique("slot")
    talk.init(name)
    return [_init(talk, name, 5, -1)[0], _init(talk, name, -1, 5)[0], _init(talk, name, timeout=0)[0],
            _init(talk, name, timeout=2**31 - 1)[0], _init(talk, "")[0]]  # fmt: skip


@scenario
def ends_of_an_empty_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.end(name, pid, epoch), talk.end(name, pid, epoch, commit=True)]
    found += [talk.add(name, pid, epoch, topic), _settle(talk, name, pid, epoch)]
    talk.pause(0.2)
    found += [_settle(talk, name, pid, epoch), talk.end(name, pid, epoch, commit=True)]
    found += [talk.add(name, pid, epoch, topic), talk.add(name, pid, epoch, topic)]
    found += [_settle(talk, name, pid, epoch, commit=True)]
    talk.pause(0.2)
    return [*found, _settle(talk, name, pid, epoch, commit=True), talk.end(name, pid, epoch), _seen(talk, topic)]


@scenario
def one_unknown_partition(talk: Talk) -> list[Any]:
    topic, name = talk.topic(2), talk.unique("slot")
    _, pid, epoch = talk.init(name)
    fields = {
        "transactional_id": name, "producer_id": pid, "producer_epoch": epoch,
        "topics": [{"name": topic, "partitions": [0, 1, 7]}],
    }  # fmt: skip
    rows = talk.ask(talk.coordinator(name), 24, 3, fields)["results_by_topic"][0]["results_by_partition"]
    codes = {row["partition_index"]: row["partition_error_code"] for row in rows}
    return [sorted(codes.items()), talk.end(name, pid, epoch)]


@scenario
def init_during_an_open_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.add(name, pid, epoch, topic), _init(talk, name)[0]]
    error, again, raised = talk.init(name)
    found += [error, again == pid, raised - epoch, _known(talk, topic, pid, epoch)]
    return [*found, talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0), talk.end(name, pid, epoch)]


@scenario
def states_of_a_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")

    def state() -> tuple[int, str]:
        answer = talk.ask(talk.coordinator(name), 65, 0, {"transactional_ids": [name]})["transaction_states"][0]
        return answer["error_code"], answer["transaction_state"]

    found: list[Any] = []
    _, pid, epoch = talk.init(name)
    found.append(state())
    talk.add(name, pid, epoch, topic)
    found.append(state())
    _settle(talk, name, pid, epoch)
    talk.pause(0.3)
    found.append(state())
    talk.init(name)
    return [*found, state()]


# Markers from outside ---------------------------------------------------------------------------------------------


@scenario
def markers_from_outside(talk: Talk) -> list[Any]:
    topic, (_, pid, _) = talk.topic(), talk.init(None)

    def write(epoch: int, coordinator: int) -> int:
        marker = {
            "producer_id": pid, "producer_epoch": epoch, "transaction_result": False, "coordinator_epoch": coordinator,
            "topics": [{"name": topic, "partition_indexes": [0]}],
        }  # fmt: skip
        answer = talk.ask(talk.leader_of(topic), 27, 1, {"markers": [marker]})["markers"][0]
        return answer["topics"][0]["partitions"][0]["error_code"]

    found: list[Any] = [write(3, 7), write(3, 7), write(2, 7), write(3, 6), write(4, 8)]
    found += [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for epoch, seq in ((3, 0), (4, 1), (4, 0))]
    found += [write(32_767, 8), talk.produce(topic, b"v", pid=pid, epoch=32_766, seq=0), _seen(talk, topic)]
    return found


# Transactions with data -------------------------------------------------------------------------------------------


@scenario
def aborted_data(talk: Talk) -> list[Any]:
    return _with_data(talk, commit=False)


@scenario
def committed_data(talk: Talk) -> list[Any]:
    return _with_data(talk, commit=True)


def _with_data(talk: Talk, *, commit: bool) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    more = {"pid": pid, "epoch": epoch, "attributes": TRANSACTIONAL, "transactional_id": name}
    found: list[Any] = [talk.produce(topic, b"before"), talk.add(name, pid, epoch, topic)]
    found += [talk.produce(topic, b"a", seq=0, **more), talk.produce(topic, b"other")]
    found += [talk.produce(topic, b"plain", pid=pid, epoch=epoch, seq=1), _known(talk, topic, pid, epoch)]
    found += [_seen(talk, topic, isolation=1), _seen(talk, topic), _list(talk, topic, -1, isolation=1)]
    found += [_settle(talk, name, pid, epoch, commit=commit)]
    talk.pause(0.3)
    found += [_seen(talk, topic, isolation=1), _seen(talk, topic), _list(talk, topic, -1, isolation=1)]
    return [*found, _known(talk, topic, pid, epoch)]


@scenario
def data_outside_of_the_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(2), talk.unique("app")
    _, pid, epoch = talk.init(name)
    more = {"pid": pid, "epoch": epoch, "attributes": TRANSACTIONAL, "transactional_id": name}
    found: list[Any] = [talk.produce(topic, b"a", seq=0, **more)]
    found += [talk.add(name, pid, epoch, topic, 0), talk.produce(topic, b"a", seq=0, **more)]
    return [*found, talk.produce(topic, b"a", seq=0, partition=1, **more)]


# Reading ------------------------------------------------------------------------------------------------------------


@scenario
def edges_of_the_log(talk: Talk) -> list[Any]:
    topic = talk.topic()
    found: list[Any] = [_seen(talk, topic), _list(talk, topic, -1), _list(talk, topic, -2)]
    for count in (1, 3, 2):
        talk.produce(topic, *[b"v"] * count)
    return [*found, *(_seen(talk, topic, offset) for offset in (0, 2, 5, 6, 7))]


@scenario
def sizes_of_a_fetch(talk: Talk) -> list[Any]:
    topic = talk.topic()
    for _ in range(3):
        talk.produce(topic, b"v" * 100)
    sizes = [(1, 1 << 20), (1 << 20, 1), (250, 1 << 20), (400, 1 << 20), (1 << 20, 400), (0, 1 << 20)]
    return [_seen(talk, topic, partition_max_bytes=part, max_bytes=whole) for part, whole in sizes]


@scenario
def two_partitions_in_one_fetch(talk: Talk) -> list[Any]:
    topic = talk.topic(2)
    if talk.leader_of(topic, 0) != talk.leader_of(topic, 1):
        return ["one broker wanted"]
    for partition in (0, 1):
        talk.produce(topic, b"v" * 100, partition=partition)
    found: list[Any] = []
    for whole in (1, 200, 1000):
        fields = fetch_fields(topic, max_bytes=whole)
        part = fields["topics"][0]["partitions"][0]
        fields["topics"][0]["partitions"] = [part, part | {"partition": 1}]
        rows = talk.ask(talk.leader_of(topic), 1, 11, fields)["responses"][0]["partitions"]
        found.append(sorted(len(row["records"] or b"") for row in rows))
    return found


@scenario
def leader_epochs(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"v")
    found: list[Any] = [_seen(talk, topic, epoch=epoch)[0] for epoch in (0, 1)]
    found += [_list(talk, topic, -1, epoch=epoch) for epoch in (0, 1)]
    for epoch in (0, 1, 5):
        part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
        row = talk.ask(talk.leader_of(topic), 23, 3, fields)["topics"][0]["partitions"][0]
        found.append((row["error_code"], row["leader_epoch"], row["end_offset"]))
    return found


@scenario
def offsets_by_time(talk: Talk) -> list[Any]:
    topic, now = talk.topic(), talk.wall_ms()
    for time in (now - 3000, now - 2000, now - 1000):
        talk.produce(topic, b"a", b"b", timestamp=time)
    times = (-2, -1, 0, now - 3000, now - 2500, now - 1000, now - 999, now + 5000)
    return [_list(talk, topic, each) for each in times]


@scenario
def list_offsets_versions(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"a")
    return [_list(talk, topic, -1, version=version) for version in range(1, 8)]


@scenario
def deleted_records(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    for seq in range(4):
        talk.produce(topic, b"a", pid=pid, epoch=epoch, seq=seq)

    def delete(offset: int) -> tuple[int, int]:
        fields = {
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}],
            "timeout_ms": 5000,
        }
        row = talk.ask(talk.leader_of(topic), 21, 1, fields)["topics"][0]["partitions"][0]
        return row["error_code"], row["low_watermark"]

    found: list[Any] = [delete(2), _seen(talk, topic, 1), _seen(talk, topic, 2), _list(talk, topic, -2), delete(9)]
    found += [delete(1), delete(-1), _list(talk, topic, -2), talk.produce(topic, b"a", pid=pid, epoch=epoch, seq=1)]
    return [*found, talk.produce(topic, b"a", pid=pid, epoch=epoch, seq=4), _known(talk, topic, pid, epoch)]


@scenario
def fetch_sessions(talk: Talk) -> list[Any]:
    topic = talk.topic()
    fields = fetch_fields(topic) | {"session_id": 987_654, "session_epoch": 1}
    return [talk.ask(talk.leader_of(topic), 1, 11, fields)["error_code"]]


@scenario
def producers_of_a_partition(talk: Talk) -> list[Any]:
    topic = talk.topic()
    found: list[Any] = [sorted(talk.producers(topic))]
    _, pid, epoch = talk.init(None)
    time = talk.wall_ms() - 5000
    talk.produce(topic, b"a", b"b", pid=pid, epoch=epoch, seq=0, timestamp=time)
    talk.produce(topic, b"a")
    row = dict(talk.producers(topic)[pid])
    row["last_timestamp"] -= time
    del row["producer_id"]
    fields = {"topics": [{"name": topic, "partition_indexes": [5]}]}
    missing = talk.ask(talk.leader_of(topic), 61, 0, fields)["topics"][0]["partitions"][0]["error_code"]
    return [*found, row, missing]
