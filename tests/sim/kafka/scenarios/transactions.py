"""Transactions: InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), WriteTxnMarkers (27),
TxnOffsetCommit (28), DescribeTransactions (65), ListTransactions (66), and what their data looks like to readers.
"""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.batches import TRANSACTIONAL
from tests.sim.kafka.scenarios.common import (
    commit_fields,
    committed,
    finish,
    group_at,
    init_once,
    known,
    listed,
    scenario,
    seen,
    settle,
    stamped,
    state_of,
)
from tests.sim.kafka.talk import Talk


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
    found += [talk.produce(topic, b"plain", pid=pid, epoch=epoch, seq=1), known(talk, topic, pid, epoch)]
    found += [seen(talk, topic, isolation=1), seen(talk, topic), listed(talk, topic, -1, isolation=1)]
    found += [settle(talk, name, pid, epoch, commit=commit)]
    talk.pause(0.3)
    found += [seen(talk, topic, isolation=1), seen(talk, topic), listed(talk, topic, -1, isolation=1)]
    return [*found, known(talk, topic, pid, epoch)]


@scenario
def data_outside_of_the_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(2), talk.unique("app")
    _, pid, epoch = talk.init(name)
    more = {"pid": pid, "epoch": epoch, "attributes": TRANSACTIONAL, "transactional_id": name}
    found: list[Any] = [talk.produce(topic, b"a", seq=0, **more)]
    found += [talk.add(name, pid, epoch, topic, 0), talk.produce(topic, b"a", seq=0, **more)]
    return [*found, talk.produce(topic, b"a", seq=0, partition=1, **more)]


# Opening and ending ---------------------------------------------------------------------------------------------------


def _data(talk: Talk, topic: str, name: str, pid: int, epoch: int, seq: int, *, partition: int = 0) -> tuple[int, int]:
    return talk.produce(topic, b"t", partition=partition, pid=pid, epoch=epoch, seq=seq, attributes=TRANSACTIONAL,
                        transactional_id=name)  # fmt: skip


@scenario
def sequences_go_on_over_transactions(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    found: list[Any] = []
    for first in (0, 2, 4):
        found += [talk.add(name, pid, epoch, topic), _data(talk, topic, name, pid, epoch, first),
                  _data(talk, topic, name, pid, epoch, first + 1), finish(talk, name, pid, epoch)]  # fmt: skip
    return [*found, known(talk, topic, pid, epoch), seen(talk, topic, isolation=1)]


@scenario
def data_behind_the_end_is_refused(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.add(name, pid, epoch, topic), _data(talk, topic, name, pid, epoch, 0)]
    found += [finish(talk, name, pid, epoch), _data(talk, topic, name, pid, epoch, 1)]
    return [*found, _data(talk, topic, name, pid, epoch, 0)]


@scenario
def data_of_an_older_epoch_in_a_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    _, _, raised = talk.init(name)
    found: list[Any] = [talk.add(name, pid, raised, topic), _data(talk, topic, name, pid, epoch, 0)]
    found += [_data(talk, topic, name, pid, raised, 0), _data(talk, topic, name, pid, epoch, 1)]
    return [*found, finish(talk, name, pid, raised)]


@scenario
def a_fenced_producer_cannot_end(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.add(name, pid, epoch, topic), _data(talk, topic, name, pid, epoch, 0)]
    _, _, raised = talk.init(name)
    found += [raised - epoch, talk.end(name, pid, epoch, commit=True), _data(talk, topic, name, pid, epoch, 1)]
    return [*found, seen(talk, topic, isolation=1), talk.add(name, pid, epoch, topic)]


@scenario
def commit_and_abort_do_not_mix(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    talk.add(name, pid, epoch, topic)
    found: list[Any] = [finish(talk, name, pid, epoch, commit=True), talk.end(name, pid, epoch, commit=False)]
    talk.add(name, pid, epoch, topic)
    return [*found, finish(talk, name, pid, epoch, commit=False), talk.end(name, pid, epoch, commit=True)]


@scenario
def two_open_transactions_hold_back_readers(talk: Talk) -> list[Any]:
    topic, one, two = talk.topic(), talk.unique("one"), talk.unique("two")
    (_, pid, epoch), (_, other, second) = talk.init(one), talk.init(two)
    for name, stamp in ((one, (pid, epoch)), (two, (other, second))):
        talk.add(name, *stamp, topic)
        _data(talk, topic, name, *stamp, 0)
    talk.produce(topic, b"plain")
    found: list[Any] = [seen(talk, topic, isolation=1), listed(talk, topic, -1, isolation=1)]
    found += [finish(talk, two, other, second, commit=False), seen(talk, topic, isolation=1)]
    found += [finish(talk, one, pid, epoch), seen(talk, topic, isolation=1), listed(talk, topic, -1, isolation=1)]
    return found


@scenario
def aborted_transactions_by_range(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    for number in range(4):
        talk.add(name, pid, epoch, topic)
        _data(talk, topic, name, pid, epoch, number)
        finish(talk, name, pid, epoch, commit=number % 2 == 1)
        talk.produce(topic, b"plain")
    return [seen(talk, topic, offset, isolation=1, partition_max_bytes=size)
            for offset, size in ((0, 1 << 20), (1, 1 << 20), (2, 1 << 20), (6, 1 << 20), (7, 1 << 20), (8, 1 << 20),
                                 (0, 80), (5, 80), (12, 80))]  # fmt: skip


@scenario
def only_readers_of_committed_data_hear_of_aborts(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    talk.add(name, pid, epoch, topic)
    _data(talk, topic, name, pid, epoch, 0)
    finish(talk, name, pid, epoch, commit=False)
    return [seen(talk, topic), seen(talk, topic, isolation=1)]


@scenario
def an_aborted_transaction_over_two_partitions(talk: Talk) -> list[Any]:
    topic, name = talk.topic(3), talk.unique("app")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.add(name, pid, epoch, topic, 0, 1)]
    found += [_data(talk, topic, name, pid, epoch, 0, partition=partition) for partition in (0, 1, 2)]
    found.append(finish(talk, name, pid, epoch, commit=False))
    return [*found, *(seen(talk, topic, partition=partition, isolation=1) for partition in range(3))]


@scenario
def a_partition_joins_an_open_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(2), talk.unique("app")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.add(name, pid, epoch, topic, 0), _data(talk, topic, name, pid, epoch, 0)]
    found += [talk.add(name, pid, epoch, topic, 1), _data(talk, topic, name, pid, epoch, 0, partition=1)]
    return [*found, finish(talk, name, pid, epoch), [seen(talk, topic, partition=each, isolation=1) for each in (0, 1)]]


@scenario
def nothing_to_add(talk: Talk) -> list[Any]:
    name = talk.unique("app")
    _, pid, epoch = talk.init(name)
    answer = talk.ask(talk.coordinator(name), 24, 3, stamped(name, pid, epoch) | {"topics": []})
    return [answer["results_by_topic"], state_of(talk, name)]


@scenario
def no_name_to_add_to(talk: Talk) -> list[Any]:
    topic = talk.topic()
    at = talk.coordinator("any")
    topics = [{"name": topic, "partitions": [0]}]
    row = talk.ask(at, 24, 3, stamped("", 5, 0) | {"topics": topics})["results_by_topic"][0]["results_by_partition"][0]
    end = talk.ask(at, 26, 3, stamped("", 5, 0) | {"committed": True})
    return [row["partition_error_code"], end["error_code"], state_of(talk, "")]


@scenario
def answers_of_each_init_version(talk: Talk) -> list[Any]:
    name = talk.unique("app")
    first = talk.init(name)
    found = [init_once(talk, name, version=version) for version in range(5)]
    return [(error, pid == first[1], epoch - first[2]) for error, pid, epoch in found]


@scenario
def timeouts_of_a_transaction(talk: Talk) -> list[Any]:
    name = talk.unique("app")
    talk.init(name)
    return [init_once(talk, name, timeout=each)[0] for each in (1, -1, 0, 900_000, 900_001)]


@scenario
def an_open_transaction_is_aborted_for_its_own_producer_too(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.add(name, pid, epoch, topic), _data(talk, topic, name, pid, epoch, 0)]
    error, again, raised = talk.init(name, pid, epoch)
    return [*found, error, again == pid if not error else None, raised - epoch if not error else None,
            seen(talk, topic, isolation=1), known(talk, topic, pid, epoch)]  # fmt: skip


@scenario
def the_producer_of_an_abort_may_take_the_raised_epoch(talk: Talk) -> list[Any]:
    """Its rival was answered 51 and has not come again (KIP-890 keeps the last epoch)."""
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [talk.add(name, pid, epoch, topic), init_once(talk, name)[0]]
    error, _, raised = talk.init(name, pid, epoch)
    found += [error, raised - epoch if not error else None]
    _, _, rival = talk.init(name)
    return [*found, rival - epoch, talk.init(name, pid, epoch)[0]]


# Descriptions of them -------------------------------------------------------------------------------------------------


@scenario
def partitions_of_a_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(3), talk.unique("app")
    _, pid, epoch = talk.init(name)

    def told() -> Any:
        row = talk.ask(talk.coordinator(name), 65, 0, {"transactional_ids": [name]})["transaction_states"][0]
        parts = sorted(part for each in row["topics"] for part in each["partitions"])
        return (row["error_code"], row["transaction_state"], row["transaction_timeout_ms"], row["producer_id"] == pid,
                row["producer_epoch"] - epoch, parts, row["transaction_start_time_ms"] > 10**12)  # fmt: skip

    found: list[Any] = [told(), talk.add(name, pid, epoch, topic, 0, 2), told()]
    return [*found, finish(talk, name, pid, epoch), told()]


@scenario
def transactions_by_state_and_producer(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)

    def names(states: list[str], pids: list[int]) -> Any:
        fields = {"state_filters": states, "producer_id_filters": pids}
        answer = talk.ask(talk.coordinator(name), 66, 0, fields)
        rows = [(row["transactional_id"] == name, row["transaction_state"]) for row in answer["transaction_states"]]
        return answer["error_code"], sorted(answer["unknown_state_filters"]), rows

    found: list[Any] = [names([], [pid]), names(["Ongoing"], [pid]), names(["Empty", "Ongoing"], [pid])]
    talk.add(name, pid, epoch, topic)
    found += [names(["Ongoing"], [pid]), names(["Asleep"], [pid]), names(["Asleep", "Ongoing"], [pid]), names([], [-5])]
    finish(talk, name, pid, epoch)
    return [*found, names(["CompleteCommit"], [pid])]


# Offsets of a group ---------------------------------------------------------------------------------------------------


def _add_group(talk: Talk, name: str, pid: int, epoch: int, group: str) -> int:
    fields = stamped(name, pid, epoch) | {"group_id": group}
    return talk.ask(talk.coordinator(name), 25, 3, fields)["error_code"]


def _commit(
    talk: Talk, name: str, pid: int, epoch: int, group: str, topic: str, offset: int, *, partition: int = 0,
    **more: Any,
) -> int:  # fmt: skip
    part = {
        "partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1,
        "committed_metadata": "",
    }  # fmt: skip
    fields = stamped(name, pid, epoch) | {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [part]}],
    } | more  # fmt: skip
    rows = talk.ask(group_at(talk, group), 28, 3, fields)["topics"]
    return rows[0]["partitions"][0]["error_code"]


def _offsets_in_a_transaction(talk: Talk, *, commit: bool) -> list[Any]:
    topic, name, group = talk.topic(), talk.unique("app"), talk.unique("group")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [_add_group(talk, name, pid, epoch, group), _commit(talk, name, pid, epoch, group, topic, 7)]
    found += [committed(talk, group, topic), committed(talk, group, topic, stable=True)]
    found.append(finish(talk, name, pid, epoch, commit=commit))
    return [*found, committed(talk, group, topic, stable=True), committed(talk, group, topic)]


@scenario
def offsets_count_with_the_commit(talk: Talk) -> list[Any]:
    return _offsets_in_a_transaction(talk, commit=True)


@scenario
def offsets_of_an_abort_never_count(talk: Talk) -> list[Any]:
    return _offsets_in_a_transaction(talk, commit=False)


@scenario
def the_newest_offset_of_a_transaction_counts(talk: Talk) -> list[Any]:
    topic, name, group = talk.topic(2), talk.unique("app"), talk.unique("group")
    _, pid, epoch = talk.init(name)
    _add_group(talk, name, pid, epoch, group)
    found: list[Any] = [_commit(talk, name, pid, epoch, group, topic, offset) for offset in (5, 3)]
    found.append(_commit(talk, name, pid, epoch, group, topic, 8, partition=1))
    found.append(finish(talk, name, pid, epoch))
    return [*found, *(committed(talk, group, topic, partition=each) for each in (0, 1))]


@scenario
def a_plain_commit_beside_a_pending_one(talk: Talk) -> list[Any]:
    topic, name, group = talk.topic(), talk.unique("app"), talk.unique("group")
    _, pid, epoch = talk.init(name)
    _add_group(talk, name, pid, epoch, group)
    found: list[Any] = [_commit(talk, name, pid, epoch, group, topic, 5)]
    plain = talk.ask(group_at(talk, group), 8, 7, commit_fields(group, topic, 9))
    found += [plain["topics"][0]["partitions"][0]["error_code"], committed(talk, group, topic)]
    return [*found, finish(talk, name, pid, epoch), committed(talk, group, topic, stable=True)]


@scenario
def offsets_outside_of_the_transaction(talk: Talk) -> list[Any]:
    topic, name, group = talk.topic(), talk.unique("app"), talk.unique("group")
    _, pid, epoch = talk.init(name)
    group_at(talk, group)
    return [_commit(talk, name, pid, epoch, group, topic, 5), committed(talk, group, topic)]


@scenario
def offsets_of_a_stale_producer(talk: Talk) -> list[Any]:
    topic, name, group = talk.topic(), talk.unique("app"), talk.unique("group")
    _, pid, epoch = talk.init(name)
    group_at(talk, group)
    _, _, raised = talk.init(name)
    found: list[Any] = [_add_group(talk, name, pid, epoch, group), _add_group(talk, name, pid + 100_000, raised, group)]
    found += [_add_group(talk, name, pid, raised, group), _commit(talk, name, pid, epoch, group, topic, 5)]
    found += [_commit(talk, name, pid, raised, group, topic, 6), finish(talk, name, pid, raised)]
    return [*found, committed(talk, group, topic), _commit(talk, name, pid, raised, group, topic, 7)]


@scenario
def offsets_of_a_producer_that_was_fenced_by_a_marker(talk: Talk) -> list[Any]:
    topic, name, group = talk.topic(), talk.unique("app"), talk.unique("group")
    _, pid, epoch = talk.init(name)
    found: list[Any] = [_add_group(talk, name, pid, epoch, group), _commit(talk, name, pid, epoch, group, topic, 5)]
    _, _, raised = talk.init(name)
    return [*found, raised - epoch, _commit(talk, name, pid, epoch, group, topic, 6), committed(talk, group, topic)]


@scenario
def offsets_of_no_member_of_a_group_in_a_transaction(talk: Talk) -> list[Any]:
    topic, name, group = talk.topic(), talk.unique("app"), talk.unique("group")
    _, pid, epoch = talk.init(name)
    _add_group(talk, name, pid, epoch, group)
    return [_commit(talk, name, pid, epoch, group, topic, 5, member_id="nobody", generation_id_or_member_epoch=3),
            _commit(talk, name, pid, epoch, group, topic, 5, generation_id_or_member_epoch=3)]  # fmt: skip


@scenario
def no_group_to_add(talk: Talk) -> list[Any]:
    name = talk.unique("app")
    _, pid, epoch = talk.init(name)
    return [
        _add_group(talk, name, pid, epoch, ""),
        _add_group(talk, talk.unique("none"), pid, epoch, "g"),
        state_of(talk, name),
    ]


# Markers --------------------------------------------------------------------------------------------------------------


def _mark(talk: Talk, topic: str, pid: int, epoch: int, *, commit: bool, partitions: tuple[int, ...] = (0,)) -> Any:
    marker = {
        "producer_id": pid, "producer_epoch": epoch, "transaction_result": commit, "coordinator_epoch": 100,
        "topics": [{"name": topic, "partition_indexes": list(partitions)}],
    }  # fmt: skip
    rows = talk.ask(talk.leader_of(topic), 27, 1, {"markers": [marker]})["markers"][0]["topics"]
    return sorted((part["partition_index"], part["error_code"]) for each in rows for part in each["partitions"])


@scenario
def a_marker_from_outside_ends_a_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    talk.add(name, pid, epoch, topic)
    found: list[Any] = [_data(talk, topic, name, pid, epoch, 0), _mark(talk, topic, pid, epoch, commit=False)]
    return [*found, seen(talk, topic, isolation=1), known(talk, topic, pid, epoch), state_of(talk, name)]


@scenario
def a_marker_for_an_unknown_partition(talk: Talk) -> list[Any]:
    topic, (_, pid, _) = talk.topic(), talk.init(None)
    return [_mark(talk, topic, pid, 0, commit=True, partitions=(0, 7)), talk.latest(topic)]
