"""FindCoordinator (10), InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26),
WriteTxnMarkers (27), DescribeTransactions (65), ListTransactions (66) (`KafkaApis`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sidecar.protocol.schema import Values
from tests.sim.kafka import errors, markers
from tests.sim.kafka.broker import Broker, serves
from tests.sim.kafka.channel import Request
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.sim.kafka.transaction import State


@serves(10)
def find_coordinator(broker: Broker, request: Request) -> None:
    """The leader of the key's partition in this broker's image; 15 while that one is not live."""
    key, kind = request.values["key"], request.values.get("key_type", 0)
    cluster = broker.cluster
    if kind not in (0, 1):
        message = "Unknown coordinator type"
        request.answer({"error_code": errors.INVALID_REQUEST, "error_message": message, "node_id": -1, "port": -1})
        return
    if kind == 0:
        topic, index = CONSUMER_OFFSETS, cluster.group_partition(key)
    else:
        topic, index = TRANSACTION_STATE, cluster.transaction_partition(key)
    found = broker.image.partition(topic, index)
    if found is None or found.leader not in broker.image.live:
        message = "The coordinator is not available."
        request.answer(
            {"error_code": errors.COORDINATOR_NOT_AVAILABLE, "error_message": message, "node_id": -1, "port": -1}
        )
        return
    host, port = cluster.brokers[found.leader].address
    request.answer({"error_code": 0, "error_message": "NONE", "node_id": found.leader, "host": host, "port": port})


@serves(22)
def init_producer_id(broker: Broker, request: Request) -> None:
    """90 in versions below 4 is 47 (KA 1617)."""
    values = request.values
    expected = values.get("producer_id", -1), values.get("producer_epoch", -1)

    def done(error: int, producer_id: int, epoch: int) -> None:
        if error == errors.PRODUCER_FENCED and request.version < 4:
            error = errors.INVALID_PRODUCER_EPOCH
        request.answer({"error_code": error, "producer_id": producer_id, "producer_epoch": epoch})

    if (expected[0] == -1) != (expected[1] == -1):
        done(errors.INVALID_REQUEST, -1, -1)
        return
    broker.transactions.init(values["transactional_id"], values["transaction_timeout_ms"], expected, done)


@serves(24)
def add_partitions(broker: Broker, request: Request) -> None:
    """All or nothing: with one partition that this broker does not know, the others are answered 55 (KA 1843)."""
    values = request.values
    wanted = [(topic["name"], index) for topic in values["topics"] for index in topic["partitions"]]
    missing = {each for each in wanted if broker.image.partition(*each) is None}

    def answer(error_of: Callable[[tuple[str, int]], int]) -> None:
        found = [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": error_of((topic["name"], index))}
                    for index in topic["partitions"]
                ],
            }
            for topic in values["topics"]
        ]
        request.answer({"results_by_topic": found})

    if missing:
        unknown, untried = errors.UNKNOWN_TOPIC_OR_PARTITION, errors.OPERATION_NOT_ATTEMPTED
        answer(lambda each: unknown if each in missing else untried)
        return

    def done(error: int) -> None:
        error = _older(error, request, 2)
        answer(lambda each: error)

    broker.transactions.add(
        values["transactional_id"], values["producer_id"], values["producer_epoch"], frozenset(wanted), done
    )


def _older(error: int, request: Request, first: int) -> int:
    """Versions that do not know 90 get 47 (KA 1668, 1924)."""
    if error == errors.PRODUCER_FENCED and request.version < first:
        return errors.INVALID_PRODUCER_EPOCH
    return error


@serves(25)
def add_offsets(broker: Broker, request: Request) -> None:
    """The group's partition of `__consumer_offsets` joins the transaction."""
    values = request.values
    partition = CONSUMER_OFFSETS, broker.cluster.group_partition(values["group_id"])
    broker.transactions.add(
        values["transactional_id"], values["producer_id"], values["producer_epoch"], frozenset({partition}),
        lambda error: request.answer({"error_code": _older(error, request, 2)}),
    )  # fmt: skip


@serves(26)
def end_txn(broker: Broker, request: Request) -> None:
    values = request.values
    broker.transactions.end(
        values["transactional_id"], values["producer_id"], values["producer_epoch"],
        lambda error: request.answer({"error_code": _older(error, request, 2)}), commit=values["committed"],
    )  # fmt: skip


@serves(27)
def write_txn_markers(broker: Broker, request: Request) -> None:
    """Markers from outside, on behalf of no coordinator (KA 1703); answered when all are replicated."""
    rows: list[Values] = []
    left = 1

    def one_less() -> None:
        nonlocal left
        left -= 1
        if not left:
            request.answer({"markers": rows})

    def told(row: dict[str, Any]) -> Callable[[int], None]:
        def tell(error: int) -> None:
            row["error_code"] = error
            one_less()

        return tell

    for each in request.values["markers"]:
        topics: list[Values] = []
        rows.append({"producer_id": each["producer_id"], "topics": topics})
        stamp = each["producer_id"], each["producer_epoch"]
        for topic in each["topics"]:
            partitions: list[Values] = []
            topics.append({"name": topic["name"], "partitions": partitions})
            for index in topic["partition_indexes"]:
                row = {"partition_index": index, "error_code": 0}
                partitions.append(row)
                left += 1
                markers.append(
                    broker,
                    (topic["name"], index),
                    stamp,
                    each["coordinator_epoch"],
                    each["transaction_result"],
                    told(row),
                )
    one_less()


@serves(65)
def describe_transactions(broker: Broker, request: Request) -> None:
    states = [_describe(broker, each) for each in request.values["transactional_ids"]]
    request.answer({"transaction_states": states})


def _describe(broker: Broker, name: str) -> Values:
    row: Values = {
        "error_code": 0, "transactional_id": name, "transaction_state": "", "transaction_timeout_ms": 0,
        "transaction_start_time_ms": 0, "producer_id": 0, "producer_epoch": 0, "topics": [],
    }  # fmt: skip
    try:
        if not name:
            raise RefusedError(errors.INVALID_REQUEST)
        _, transaction = broker.transactions.find(name)
        if transaction is None:
            raise RefusedError(errors.TRANSACTIONAL_ID_NOT_FOUND)
    except RefusedError as error:
        return row | {"error_code": error.code}
    facts = transaction.facts
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(facts.partitions):
        topics.setdefault(topic, []).append(index)
    return row | {
        "transaction_state": facts.state.value, "transaction_timeout_ms": facts.timeout_ms,
        "transaction_start_time_ms": facts.started_ms, "producer_id": facts.producer_id, "producer_epoch": facts.epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }  # fmt: skip


@serves(66)
def list_transactions(broker: Broker, request: Request) -> None:
    wanted_states, wanted_ids = request.values["state_filters"], request.values["producer_id_filters"]
    unknown = sorted(set(wanted_states) - {state.value for state in State})
    found: list[Values] = []
    for shard in broker.transactions.shards.values():
        if shard.loading:
            request.answer({"error_code": errors.COORDINATOR_LOAD_IN_PROGRESS})
            return
        for name, transaction in shard.ids.items():
            facts = transaction.facts
            if (not wanted_states or facts.state.value in wanted_states) and (
                not wanted_ids or facts.producer_id in wanted_ids
            ):
                found.append(
                    {"transactional_id": name, "producer_id": facts.producer_id, "transaction_state": facts.state.value}
                )
    request.answer({"error_code": 0, "unknown_state_filters": unknown, "transaction_states": found})
