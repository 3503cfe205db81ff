"""Errors on demand: what a broker answers with an error code although nothing is wrong, before or after the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.protocol.schema import Values

if TYPE_CHECKING:
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.channel import Request


@dataclass(slots=True)
class Refusal:
    """`times` requests still. Error 0: only throttled."""

    error: int
    times: int
    after: bool
    throttle_ms: int = 0


def refused(broker: Broker, request: Request) -> bool:
    """Whether the request was answered here. One refusal per request."""
    waiting = broker.refusals.get(request.key)
    if not waiting:
        return False
    refusal = waiting[0]
    refusal.times -= 1
    if refusal.times <= 0:
        waiting.pop(0)
    if refusal.throttle_ms:
        broker.cluster.effect("throttled")
        request.throttle_ms = refusal.throttle_ms
        if request.key == 1:
            request.answer({})
            return True
        return False
    if request.key == 0:
        broker.cluster.misled += [
            (_name(broker, topic), part["index"], bytes(part["records"] or b""), refusal.error)
            for topic in request.values["topic_data"]
            for part in topic["partition_data"]
        ]
    if refusal.after:
        broker.cluster.effect("refused_after")
        request.override = refusal.error
        return False
    broker.cluster.effect("refused")
    if request.key == 0 and request.values["acks"] == 0:
        request.channel.close()
    else:
        request.answer(answer_with(request.key, request.version, request.values, refusal.error))
    return True


def _name(broker: Broker, topic: Values) -> str:
    """Of a topic that a Produce names, or gives the id of (version 13)."""
    if "name" in topic:
        return topic["name"]
    found = broker.image.by_id.get(topic["topic_id"])
    return "" if found is None else found.name


def _each(topics: Any, partitions: str, code: str, index: str, topic: str, **more: Any) -> list[Values]:
    """Per topic and partition of the request: its index, the error, and `more`. The topic as the request names it."""
    return [
        {
            (called := topic if topic in each else "topic_id"): each[called],
            partitions: [
                {index: part[index] if isinstance(part, dict) else part, code: 0, **more} for part in _parts(each)
            ],
        }
        for each in topics or ()
    ]


def _parts(topic: Values) -> list[Any]:
    for name in ("partition_data", "partitions", "partition_indexes"):
        if name in topic:
            return topic[name]
    return []


def answer_with(key: int, version: int, values: Values, error: int) -> Values:
    """The answer to a request that was not carried out."""
    answer = _skeleton(key, version, values)
    from tests.sim.kafka.channel import put_error  # noqa: PLC0415

    put_error(answer, error)
    return answer


def _skeleton(key: int, version: int, values: Values) -> Values:
    if key == 0:
        more = {"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1}
        return {"responses": _each(values["topic_data"], "partition_responses", "error_code", "index", "name", **more)}
    if key == 1:
        more = {"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1, "preferred_read_replica": -1}
        found = _each(
            values["topics"], "partitions", "error_code", "partition", "topic", aborted_transactions=None, **more
        )
        for topic in found:
            for part in topic["partitions"]:
                part["partition_index"] = part.pop("partition")
        return {"responses": found}
    if key == 2:
        more = {"timestamp": -1, "offset": -1, "leader_epoch": -1}
        return {"topics": _each(values["topics"], "partitions", "error_code", "partition_index", "name", **more)}
    if key in (8, 28):
        return {"topics": _each(values["topics"], "partitions", "error_code", "partition_index", "name")}
    if key == 23:
        more = {"leader_epoch": -1, "end_offset": -1}
        return {"topics": _each(values["topics"], "partitions", "error_code", "partition", "topic", **more)}
    if key == 21:
        return {
            "topics": _each(values["topics"], "partitions", "error_code", "partition_index", "name", low_watermark=-1)
        }
    if key == 24:
        found = _each(values["topics"], "results_by_partition", "partition_error_code", "partition_index", "name")
        return {"results_by_topic": found}
    if key == 61:
        more = {"error_message": None, "active_producers": []}
        return {"topics": _each(values["topics"], "partitions", "error_code", "partition_index", "name", **more)}
    return _plain(key, version, values)


def _plain(key: int, version: int, values: Values) -> Values:
    """Answers with one error, or one per thing that was named."""
    if key == 3:
        topics = [{"error_code": 0, **each, "topic_authorized_operations": -(2**31)} for each in values["topics"] or ()]
        return {"topics": topics, "controller_id": -1, "cluster_authorized_operations": -(2**31)}
    if key == 9 and version >= 8:
        return {"groups": [{"group_id": each["group_id"], "topics": [], "error_code": 0} for each in values["groups"]]}
    if key == 10:
        return {"error_code": 0, "error_message": "", "node_id": -1, "port": -1}
    if key in (19, 37):
        listed = [{"name": each["name"], "error_code": 0, "configs": None} for each in values["topics"]]
        return {"topics": listed} if key == 19 else {"results": listed}
    if key == 20:
        named = values["topics"] if version >= 6 else [{"name": each} for each in values["topic_names"]]
        return {"responses": [{**each, "error_code": 0} for each in named]}
    if key in (32, 44):
        named = [
            {"resource_type": each["resource_type"], "resource_name": each["resource_name"], "error_code": 0}
            for each in values["resources"]
        ]
        return {"results": named} if key == 32 else {"responses": named}
    if key == 65:
        return {
            "transaction_states": [{"transactional_id": each, "error_code": 0} for each in values["transactional_ids"]]
        }
    return {"error_code": 0, "producer_id": -1, "producer_epoch": -1, "generation_id": -1, "members": [], "groups": []}
