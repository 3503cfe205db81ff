"""What a writer slot relies on: stale stamps after InitProducerId (22), empty aborts, markers from outside (27)."""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.scenarios.common import init_once, known, scenario, seen, settle
from tests.sim.kafka.talk import Talk


@scenario
def init_alone_fences_nothing(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0)]
    _, again, raised = talk.init(name)
    found += [again == pid, raised - epoch, talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=1)]
    return [*found, known(talk, topic, pid, epoch)]


@scenario
def empty_abort_fences(talk: Talk) -> list[Any]:
    topic, name = talk.topic(2), talk.unique("slot")
    pid, epoch = talk.fence(name, topic, 0, 1)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0), known(talk, topic, pid, epoch)]
    _, raised = talk.fence(name, topic, 0, 1)
    found += [raised - epoch, known(talk, topic, pid, epoch)]
    for partition in (0, 1):
        for of, seq in ((epoch, 1), (epoch, 0), (raised, 1), (raised, 0), (raised, 0), (raised, 1)):
            found.append(talk.produce(topic, b"v", partition=partition, pid=pid, epoch=of, seq=seq))
    return [*found, seen(talk, topic)]


@scenario
def keep_alive_at_the_same_epoch(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    pid, epoch = talk.fence(name, topic)
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for seq in (0, 1)]
    found.append(talk.add(name, pid, epoch, topic))
    found.append(talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=2))
    found.append(seen(talk, topic, isolation=1))
    found.append(settle(talk, name, pid, epoch))
    found.append(talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=3)[0])
    found.append(talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=1))
    return [*found, known(talk, topic, pid, epoch)]


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
    return [*found, init_once(talk, name, pid, epoch + 9, version=3)[0], init_once(talk, name, pid, epoch + 9)[0]]


@scenario
def raise_by_name(talk: Talk) -> list[Any]:
    name = talk.unique("slot")
    _, pid, epoch = talk.init(name)
    found: list[Any] = []
    for named, at in ((pid, 0), (pid, 0), (pid, 1), (pid, 0), (pid, 1), (pid, 2), (pid + 100_000, 3)):
        error, _, given = init_once(talk, name, named, epoch + at)
        found.append((error, None if error else given - epoch))
    error, _, given = talk.init(name)
    return [*found, (error, given - epoch), init_once(talk, name, pid, epoch + 3)[0]]


@scenario
def raise_of_nobody(talk: Talk) -> list[Any]:
    name = talk.unique("slot")
    for _ in range(50):
        error, pid, epoch = init_once(talk, name, 777, 5)
        if error not in (14, 15, 16, 51):
            return [error, pid != 777, epoch]
        talk.pause(0.1)
    return ["never"]


@scenario
def half_a_name(talk: Talk) -> list[Any]:
    name = talk.unique("slot")
    talk.init(name)
    return [init_once(talk, name, 5, -1)[0], init_once(talk, name, -1, 5)[0], init_once(talk, name, timeout=0)[0],
            init_once(talk, name, timeout=2**31 - 1)[0], init_once(talk, "")[0]]  # fmt: skip


@scenario
def ends_of_an_empty_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.end(name, pid, epoch), talk.end(name, pid, epoch, commit=True)]
    found += [talk.add(name, pid, epoch, topic), settle(talk, name, pid, epoch)]
    talk.pause(0.2)
    found += [settle(talk, name, pid, epoch), talk.end(name, pid, epoch, commit=True)]
    found += [talk.add(name, pid, epoch, topic), talk.add(name, pid, epoch, topic)]
    found += [settle(talk, name, pid, epoch, commit=True)]
    talk.pause(0.2)
    return [*found, settle(talk, name, pid, epoch, commit=True), talk.end(name, pid, epoch), seen(talk, topic)]


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
    found: list[Any] = [talk.add(name, pid, epoch, topic), init_once(talk, name)[0]]
    error, again, raised = talk.init(name)
    found += [error, again == pid, raised - epoch, known(talk, topic, pid, epoch)]
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
    settle(talk, name, pid, epoch)
    talk.pause(0.3)
    found.append(state())
    talk.init(name)
    return [*found, state()]


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
    found += [write(32_767, 8), talk.produce(topic, b"v", pid=pid, epoch=32_766, seq=0), seen(talk, topic)]
    return found
