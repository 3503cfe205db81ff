"""The node's facts as the JSON of REST, and a policy's JSON as a fact. Pure; `openapi.py` describes every shape."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from reprlib import Repr
from typing import TYPE_CHECKING, Any, Final

from sidecar.node.port import AccessMode, Policy, Scope

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sidecar.node.port import Check, ClientFacts, Event, Owner, Peer, Producer, ProducerIds, Status, Topic, Waiting

LAST_PARTITION: Final = 2**31 - 1
POLICY_FIELDS: Final[dict[str, type[bool | StrEnum]]] = {
    "access_mode": AccessMode,
    "deduplication": bool,
    "exclusive_reader": bool,
    "scope": Scope,
    "log_append_time": bool,
}


_TOLD: Final = 5
"""Faults of one kind that are named in one answer."""
_QUOTED: Final = 100
"""Characters of what was sent."""


class ShapeError(ValueError):
    """The body is not what it should be; the message names the faults."""


class _Beginning(Repr):
    def repr_str(self, x: str, level: int) -> str:
        return repr(x[:_QUOTED])

    def repr_dict(self, x: dict[object, object], level: int) -> str:
        return super().repr_dict(dict(islice(x.items(), self.maxdict + 1)), level)  # it sorts all


_beginning: Final = _Beginning()
_beginning.maxlevel = 3


def policy_from_json(body: object) -> Policy:
    """The fields that are to change. Raises ShapeError that names unknown fields and values at once."""
    if not isinstance(body, dict):
        raise ShapeError('the body has to be a JSON object such as {"access_mode": "exclusive"}')
    faults = unknown_fields(body, POLICY_FIELDS)
    found: dict[str, Any] = {}
    for name, kind in POLICY_FIELDS.items():
        if name not in body:
            continue
        value = body[name]
        if kind is bool:
            if not isinstance(value, bool):
                faults.append(f"{name} has to be true or false, not {quoted(value)}")
            found[name] = value
        else:
            legal = [each.value for each in kind]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
            if value not in legal:
                faults.append(f"{name} has to be one of {', '.join(legal)}, not {quoted(value)}")
            else:
                found[name] = kind(value)
    if faults:
        raise ShapeError("; ".join(faults))
    return Policy(**found)


def check_known(body: Mapping[str, object], known: Collection[str]) -> None:
    """Raises ShapeError where fields are not known."""
    if faults := unknown_fields(body, known):
        raise ShapeError(*faults)


def unknown_fields(body: Mapping[str, object], known: Collection[str]) -> list[str]:
    """A fault that names the first fields that are not known; none where all are."""
    unknown = [name for name in body if name not in known]
    more = f" and {len(unknown) - _TOLD} more" if len(unknown) > _TOLD else ""
    named = ", ".join(map(quoted, unknown[:_TOLD]))
    return [f"unknown fields: {named}{more} (known: {', '.join(known)})"] if unknown else []


def quoted(value: object) -> str:
    """What was sent, for a message; of long values the beginning, whatever they hold."""
    text = _beginning.repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def policy_to_json(policy: Policy | None) -> dict[str, Any] | None:
    """Only the fields that are decided."""
    if policy is None:
        return None
    values = {each.name: getattr(policy, each.name) for each in fields(policy)}
    return {name: value for name, value in values.items() if value is not None}


def topic_to_json(topic: Topic) -> dict[str, Any]:
    """The shape of `GET /v1/topics/{topic}`."""
    found: dict[str, Any] = {
        "topic": topic.name,
        "policy": policy_to_json(topic.policy),
        "generation": topic.generation,
        "owner": None if topic.owner is None else _owner(topic.owner),
        "waiting": [_waiting(each) for each in topic.waiting],
        "producers": [producer_to_json(each) for each in topic.producers],
        "shadows": list(topic.shadows),
        "serving_node": topic.serving_node,
        "partitions": topic.partitions,
        "deduplication_state": topic.deduplication,
        "deduplication_detail": topic.deduplication_detail,
    }
    if topic.owners is not None:
        found["owners"] = {
            str(partition): {**_owner(owner), "generation": owner.generation}
            for partition, owner in sorted(topic.owners.items())
        }
    return found


def status_to_json(status: Status, version: str) -> dict[str, Any]:
    """The shape of `GET /v1/status`."""
    return {
        "version": version,
        "node_id": status.node_id,
        "cluster": status.cluster,
        "state": status.state,
        "ready": is_ready(status.checks),
        "started": time_to_json(status.started_ms),
        "advertise": f"{status.advertise[0]}:{status.advertise[1]}",
        "kafka_cluster_id": status.kafka_cluster_id,
        "nodes": [_peer(each) for each in status.nodes],
        "brokers": [_peer(each) for each in status.brokers],
        "client_connections": status.client_connections,
        "governed_topics": status.governed_topics,
        "deduplication": {
            "ready": status.deduplication.ready,
            "reading": status.deduplication.reading,
            "lost": status.deduplication.lost,
        },
        "checks": [check_to_json(each) for each in status.checks],
    }


def client_to_json(client: ClientFacts) -> dict[str, Any]:
    """One item of `GET /v1/clients`."""
    name, version = client.software
    return {
        "node_id": client.node_id,
        "client_id": client.client_id,
        "name": client.name,
        "mode": client.mode,
        "software_name": name,
        "software_version": version,
        "address": client.address,
        "since": time_to_json(client.since_ms),
        "requests": client.requests,
        "bytes_in": client.bytes_in,
        "bytes_out": client.bytes_out,
        "in_flight": client.in_flight,
    }


def check_to_json(check: Check) -> dict[str, Any]:
    """One line of `/readyz`."""
    return {"name": check.name, "ok": check.ok, "required": check.required, "detail": check.detail}


def is_ready(checks: Sequence[Check]) -> bool:
    """True where nothing that is required fails."""
    return all(check.ok or not check.required for check in checks)


def time_to_json(unix_ms: int) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _owner(owner: Owner) -> dict[str, Any]:
    return {
        "name": owner.name,
        "session": owner.session,
        "mode": owner.mode,
        "since": time_to_json(owner.since_ms),
        "client": owner.client,
    }


def _waiting(waiting: Waiting) -> dict[str, Any]:
    since = time_to_json(waiting.since_ms)
    return {"name": waiting.name, "session": waiting.session, "since": since, "partition": waiting.partition}


def producer_to_json(producer: Producer) -> dict[str, Any]:
    """A producer name with its highest sequence ids."""
    return {
        "name": producer.name,
        "last_sequence_id": producer.last_sequence_id,
        "last_sequence_ids": {str(partition): last for partition, last in sorted(producer.last_sequence_ids.items())},
    }


def ids_to_json(producer: ProducerIds) -> dict[str, Any]:
    """All that is known of a producer name."""
    return {
        **producer_to_json(producer),
        "offsets": {str(partition): offset for partition, offset in sorted(producer.offsets.items())},
        "last_seen": {str(partition): time_to_json(at) for partition, at in sorted(producer.last_seen_ms.items())},
        "in_use": producer.in_use,
    }


def event_to_json(event: Event) -> dict[str, Any]:
    """One line of history."""
    return {
        "id": event.id,
        "at": time_to_json(event.at_ms),
        "kind": event.kind,
        "topic": event.topic,
        "partition": event.partition,
        "generation": event.generation,
        "session": event.session,
        "name": event.name,
        "mode": event.mode,
        "client": event.client,
        "node": event.node_id,
        "detail": event.detail,
    }


def _peer(peer: Peer) -> dict[str, Any]:
    return {"id": peer.id, "host": peer.host, "port": peer.port}
