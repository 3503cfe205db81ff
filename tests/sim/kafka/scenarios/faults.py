"""What a cluster of three answers while brokers come and go. How long it takes is no part of an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.sim.kafka.batches import TRANSACTIONAL
from tests.sim.kafka.scenarios.common import (
    commit_fields,
    committed,
    end_of_epoch,
    group_at,
    known,
    list_fields,
    read_row,
    seen,
    settle,
    state_of,
)
from tests.sim.kafka.talk import fetch_fields
from tests.sim.kafka.trouble import Trouble

FaultScenario = Callable[[Trouble], list[Any]]
FAULTS: Final[dict[str, FaultScenario]] = {}


def fault(function: FaultScenario) -> FaultScenario:
    """Enter a scenario by its name."""
    FAULTS[function.__name__] = function
    return function


def _until(talk: Trouble, check: Callable[[], Any], what: str) -> Any:
    """What `check` returns once it is true; it may meet brokers that are gone."""
    for _ in range(600):
        try:
            if found := check():
                return found
        except OSError:
            pass
        talk.pause(0.1)
    raise AssertionError(f"never: {what}")


def _placed(talk: Trouble, *replicas: int, **configs: str) -> str:
    """A topic of one partition on these brokers, the first one leading, known to all."""
    name = talk.unique("placed")
    _create(talk, name, replicas, configs)
    return name


def _create(talk: Trouble, name: str, replicas: tuple[int, ...], configs: dict[str, str]) -> None:
    topic = {
        "name": name, "num_partitions": -1, "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": list(replicas)}],
        "configs": [{"name": each.replace("_", "."), "value": value} for each, value in configs.items()],
    }  # fmt: skip
    answer = talk.ask(None, 19, 4, {"topics": [topic], "timeout_ms": 10_000, "validate_only": False})
    assert answer["topics"][0]["error_code"] == 0, answer
    for broker in (1, 2, 3):
        _until(talk, lambda broker=broker: _partition(talk, name, broker).get("leader_id") == replicas[0], "known")
    _until(talk, lambda: talk.latest(name, broker=replicas[0])[0] == 0, "leads")
    _until(talk, lambda: _in_sync(talk, name) == sorted(replicas), "in sync")


def _partition(talk: Trouble, topic: str, broker: int | None = None) -> dict[str, Any]:
    """What Metadata says of partition 0."""
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    rows = talk.ask(broker, 3, 9, fields)["topics"][0]["partitions"]
    return rows[0] if rows else {}


def _in_sync(talk: Trouble, topic: str) -> list[int]:
    return sorted(_partition(talk, topic)["isr_nodes"])


def _led_by(talk: Trouble, topic: str, broker: int) -> None:
    """Wait until a broker leads, and says so itself."""
    _until(talk, lambda: _partition(talk, topic, broker)["leader_id"] == broker, f"{broker} leads")
    _until(talk, lambda: talk.latest(topic, broker=broker)[0] == 0, f"{broker} answers")


def _back(talk: Trouble, topic: str, broker: int) -> None:
    """Start a broker and wait until it is in sync."""
    talk.start(broker)
    _until(talk, lambda: broker in _in_sync(talk, topic), f"{broker} in sync")


def _accepted(talk: Trouble, topic: str, **more: Any) -> tuple[int, int]:
    """Produce as a client does: with newer metadata after 6, and again while there are too few replicas."""
    return _until(
        talk, lambda: (found := talk.produce(topic, b"v", **more))[0] not in (3, 5, 6, 7, 19, 20) and found, "on"
    )


@fault
def followers_do_not_lead(talk: Trouble) -> list[Any]:
    topic = _placed(talk, 1, 2)
    talk.produce(topic, b"v")
    found: list[Any] = []
    for broker in (2, 3):
        found += [talk.produce(topic, b"v", broker=broker), talk.latest(topic, broker=broker)]
        row = talk.ask(broker, 2, 5, list_fields(topic, -1, epoch=3))["topics"][0]["partitions"][0]
        found.append(row["error_code"])
        deleting = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout_ms": 500}
        found.append(talk.ask(broker, 21, 1, deleting)["topics"][0]["partitions"][0]["error_code"])
        asked = {"topics": [{"name": topic, "partition_indexes": [0]}]}
        found.append(talk.ask(broker, 61, 0, asked)["topics"][0]["partitions"][0]["error_code"])
        marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0, **asked}
        written = talk.ask(broker, 27, 1, {"markers": [marker]})["markers"][0]
        found.append(written["topics"][0]["partitions"][0]["error_code"])
    found.append(read_row(talk.fetch(topic, broker=3))[0])
    early = talk.ask(2, 1, 10, fetch_fields(topic))["responses"][0]["partitions"][0]
    return [*found, early["error_code"]]


@fault
def a_killed_leader_is_replaced(talk: Trouble) -> list[Any]:
    topic, (_, pid, epoch) = _placed(talk, 1, 2, 3), talk.init(None)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch + 1, seq=seq) for seq in range(7)]
    talk.kill(1)
    _led_by(talk, topic, 2)
    found += [_accepted(talk, topic, pid=pid, epoch=epoch + 1, seq=7), known(talk, topic, pid, epoch)]
    found += [talk.produce(topic, b"v", pid=pid, epoch=epoch + 1, seq=seq) for seq in (7, 3, 2, 9)]
    found += [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=8)]
    found += [end_of_epoch(talk, topic, each) for each in (0, 1, 2)]
    found += [seen(talk, topic, epoch=each)[0] for each in (0, 1, 2)]
    _back(talk, topic, 1)
    return [*found, talk.produce(topic, b"v", broker=1)[0], talk.leader_of(topic), seen(talk, topic)]


@fault
def an_epoch_in_which_nothing_is_appended_is_forgotten(talk: Trouble) -> list[Any]:
    topic = _placed(talk, 1, 2)
    for first, second in ((2, 1), (1, 2)):
        talk.reassign(topic, 0, [first, second])
        _until(talk, lambda: _partition(talk, topic)["replica_nodes"] == [first, second], "reassigned")  # noqa: B023
        talk.elect(topic, 0)
        _led_by(talk, topic, first)
    return [end_of_epoch(talk, topic, each) for each in range(4)] + [talk.produce(topic, b"v")]


@fault
def a_stopped_leader_hands_over(talk: Trouble) -> list[Any]:
    topic, (_, pid, epoch) = _placed(talk, 3, 2, min_insync_replicas="1"), talk.init(None)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for seq in range(3)]
    talk.stop(3)
    _led_by(talk, topic, 2)
    found += [_in_sync(talk, topic), talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=3, acks=1)]
    found.append(talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=1))
    _back(talk, topic, 3)
    return [*found, _accepted(talk, topic, pid=pid, epoch=epoch, seq=4), end_of_epoch(talk, topic, 0)]


@fault
def a_restarted_replica_knows_the_last_batch_alone(talk: Trouble) -> list[Any]:
    """A snapshot holds one batch of each producer; the window of five is gone with the process."""
    topic, (_, pid, epoch) = _placed(talk, 2, 3, min_insync_replicas="1"), talk.init(None)
    for seq in range(4):
        talk.produce(topic, b"v", pid=pid, epoch=epoch + 2, seq=seq)
    talk.stop(3)
    _until(talk, lambda: _in_sync(talk, topic) == [2], "alone")
    _back(talk, topic, 3)
    talk.stop(2)
    _led_by(talk, topic, 3)
    found: list[Any] = [known(talk, topic, pid, epoch)]
    found += [talk.produce(topic, b"v", pid=pid, epoch=epoch + 2, seq=seq) for seq in (3, 2, 1, 5, 4)]
    found.append(talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0))
    _back(talk, topic, 2)
    return found


@fault
def a_restarted_replica_forgets_producers_whose_records_were_deleted(talk: Trouble) -> list[Any]:
    """Its snapshots are none behind the log's start: also the one of the shutdown, where all records are gone."""
    topic, (_, pid, epoch) = _placed(talk, 2, 3, min_insync_replicas="1"), talk.init(None)
    for seq in range(3):
        talk.produce(topic, b"v", pid=pid, epoch=epoch + 2, seq=seq)
    found: list[Any] = [talk.delete(topic, 3), known(talk, topic, pid, epoch)]
    talk.stop(3)
    _until(talk, lambda: _in_sync(talk, topic) == [2], "alone")
    _back(talk, topic, 3)
    talk.stop(2)
    _led_by(talk, topic, 3)
    found += [talk.latest(topic), known(talk, topic, pid, epoch)]
    found.append(talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=7))
    _back(talk, topic, 2)
    return found


@fault
def too_few_replicas_in_sync(talk: Trouble) -> list[Any]:
    topic, (_, pid, epoch) = _placed(talk, 1, 3, min_insync_replicas="2"), talk.init(None)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0)]
    talk.kill(3)
    _until(talk, lambda: _in_sync(talk, topic) == [1], "alone")
    _until(talk, lambda: talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=1)[0] == 19, "19")
    found += [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0), talk.latest(topic)]
    found += [talk.produce(topic, b"v", acks=1), seen(talk, topic)]
    _back(talk, topic, 3)
    return [*found, _accepted(talk, topic, pid=pid, epoch=epoch, seq=1), seen(talk, topic)]


@fault
def a_partition_whose_only_replica_is_gone(talk: Trouble) -> list[Any]:
    topic, (_, pid, epoch) = _placed(talk, 3, min_insync_replicas="1"), talk.init(None)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for seq in (0, 1)]
    talk.kill(3)
    row = _until(talk, lambda: (row := _partition(talk, topic))["leader_id"] == -1 and row, "nobody")
    found += [row["error_code"], row["leader_epoch"], row["isr_nodes"], row["offline_replicas"]]
    found += [talk.produce(topic, b"v", broker=1), talk.latest(topic, broker=1)]
    talk.start(3)
    _led_by(talk, topic, 3)
    found += [
        talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=1),
        talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=2),
    ]
    return [*found, _partition(talk, topic)["leader_epoch"], seen(talk, topic)]


@fault
def a_coordinator_that_moves_keeps_the_transaction(talk: Trouble) -> list[Any]:
    name = talk.unique("app")
    _, pid, epoch = talk.init(name)
    old = talk.coordinator(name)
    others = [broker for broker in (1, 2, 3) if broker != old]
    topic = _placed(talk, *others)
    more = {"pid": pid, "epoch": epoch, "attributes": TRANSACTIONAL, "transactional_id": name}
    found: list[Any] = [talk.add(name, pid, epoch, topic), talk.produce(topic, b"a", seq=0, **more)]
    talk.kill(old)
    _until(talk, lambda: talk.coordinator(name) in others and state_of(talk, name)[0] == 0, "another coordinator")
    found += [state_of(talk, name), talk.add(name, pid, epoch, topic), talk.produce(topic, b"a", seq=1, **more)]
    found += [seen(talk, topic, isolation=1)[2], settle(talk, name, pid, epoch, commit=True)]
    found += [
        settle(talk, name, pid, epoch, commit=True),
        seen(talk, topic, isolation=1),
        known(talk, topic, pid, epoch),
    ]
    talk.start(old)
    return [*found, talk.init(name)[2] - epoch]


@fault
def a_fence_outlives_its_leader(talk: Trouble) -> list[Any]:
    name = talk.unique("slot")
    talk.init(name)
    talk.pause(0.1)
    other = next(broker for broker in (1, 2, 3) if broker != talk.coordinator(name))
    rest = [broker for broker in (1, 2, 3) if broker != other]
    topic = _placed(talk, other, *rest)
    pid, epoch = talk.fence(name, topic)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0)]
    _, raised = talk.fence(name, topic)
    talk.kill(other)
    _led_by(talk, topic, rest[0])
    found += [raised - epoch, talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=1)[0]]
    found += [_accepted(talk, topic, pid=pid, epoch=raised, seq=0)[0], known(talk, topic, pid, epoch)]
    _back(talk, topic, other)
    return found


@fault
def a_retry_that_spans_a_change_of_the_coordinator_is_refused(talk: Trouble) -> list[Any]:
    """The coordinator's log does not have the last epoch (`TransactionLog.read`)."""
    name = talk.unique("retried")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.init(name, pid=pid, epoch=epoch)[2] - epoch for _ in range(2)]
    old = talk.coordinator(name)
    talk.stop(old)
    others = [broker for broker in (1, 2, 3) if broker != old]
    _until(talk, lambda: talk.coordinator(name) in others and state_of(talk, name)[0] == 0, "another coordinator")
    found += [talk.init(name, pid=pid, epoch=epoch)[0], talk.init(name, pid=pid, epoch=epoch + 1)[2] - epoch]
    talk.start(old)
    return found


@fault
def a_broker_that_starts_has_settings_of_a_deleted_topic(talk: Trouble) -> list[Any]:
    """It reads the settings of both topics as one change (`ConfigurationsDelta.replay(RemoveTopicRecord)`)."""
    name = talk.unique("again")

    def create(**settings: str) -> None:
        _create(talk, name, (2, 3), settings)

    def own(broker: int) -> list[tuple[str, str]]:
        resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
        rows = talk.ask(broker, 32, 4, {"resources": [resource]})["results"][0]["configs"]
        return sorted((row["name"], row["value"]) for row in rows if row["config_source"] == 1)

    def delete() -> None:
        topics = {"topics": [{"name": name, "topic_id": bytes(16)}], "timeout_ms": 10_000}
        assert not talk.ask(None, 20, 6, topics)["responses"][0]["error_code"]
        for broker in (1, 2, 3):
            _until(talk, lambda broker=broker: not _partition(talk, name, broker), "gone")

    create(retention_ms="86400000", segment_ms="3600000")
    delete()
    create(segment_ms="7200000")
    found = [own(1), own(2)]
    talk.stop(1)
    talk.start(1)
    _until(talk, lambda: _partition(talk, name, 1).get("leader_id") == 2, "started")
    found += [own(1), own(2)]
    delete()
    create()
    return [*found, own(1), own(2)]


@fault
def offsets_outlive_their_coordinator(talk: Trouble) -> list[Any]:
    group = talk.unique("group")
    old = group_at(talk, group)
    others = [broker for broker in (1, 2, 3) if broker != old]
    topic = _placed(talk, *others)
    row = talk.ask(old, 8, 7, commit_fields(group, topic, 7))["topics"][0]["partitions"][0]
    found: list[Any] = [row["error_code"], committed(talk, group, topic)]
    talk.kill(old)
    _until(talk, lambda: group_at(talk, group) in others, "another coordinator")
    # 4.x answers without the offset until its new coordinator's high watermark has passed it
    found.append(_until(talk, lambda: (row := committed(talk, group, topic))[1][1] >= 0 and row, "the offset"))
    talk.start(old)
    return found


@fault
def a_frozen_leader_is_deposed(talk: Trouble) -> list[Any]:
    topic, (_, pid, epoch) = _placed(talk, 3, 1, 2), talk.init(None)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0)]
    talk.freeze(3)
    _led_by(talk, topic, 1)
    found.append(_accepted(talk, topic, pid=pid, epoch=epoch, seq=1))
    talk.thaw(3)
    _until(talk, lambda: talk.produce(topic, b"v", broker=3)[0] == 6, "it knows")
    _until(talk, lambda: 3 in _in_sync(talk, topic), "in sync")
    return [*found, _accepted(talk, topic, pid=pid, epoch=epoch, seq=2), end_of_epoch(talk, topic, 0)[0]]
