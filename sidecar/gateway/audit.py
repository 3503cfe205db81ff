"""The changes that clients make over Kafka's protocol, for the audit log: who, from where, what, with which result.

Brokers see only the node's principal, so their own audit log cannot name the client. Audited are the APIs that change
topics, rights, settings and owners; writing of records and offsets is not. The answers of these APIs are decoded a
second time, in slices. Values of settings, and salts and keys of passwords, are never logged.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from sidecar.gateway import asking
from sidecar.gateway.client import Client
from sidecar.gateway.enforcement import AmendedExchange
from sidecar.network.request import Request
from sidecar.network.slices import in_slices
from sidecar.protocol.api import ApiKey, api_name
from sidecar.protocol.errors import error_name
from sidecar.protocol.limits import PORTION
from sidecar.protocol.messages import admin, groups, security
from sidecar.protocol.primitives import MalformedFrameError
from sidecar.protocol.schema import Message, Values
from sidecar.security.acls import Operation, PatternType, Permission, ResourceType
from sidecar.v1 import control_pb2 as control

FoundT = TypeVar("FoundT")

_NAMED: Final = 100
"""The most names that are logged of one request."""
_OWN_HEAD: Final = 8
"""Length and correlation id, before the body of an answer of the sidecar's own APIs."""
_BROKER: Final = 4
_BODY_BYTES: Final = 1024 * 1024
"""A longer body of the sidecar's own APIs is not read."""


@dataclass(frozen=True, slots=True)
class Act:
    """A change that a client made or tried. `result`: done, refused (nothing was changed), partly, or failed (no
    answer, so there may have been a change). `on`: topics, rules, resources, and the number of `more`; `errors`:
    the names of the codes in the answer, each once.
    """

    api: str
    result: str
    principal: str
    peer: str
    client_id: str
    on: tuple[str, ...]
    more: int
    errors: tuple[str, ...]


class _Audited(NamedTuple):
    message: Message
    on: Callable[[Values], Iterable[str]]
    codes: Callable[[Values], Iterable[int]]


def _codes(*lists: str) -> Callable[[Values], Iterable[int]]:
    """The error codes of an answer: its own, and those of each element of its nested lists."""

    def found(values: Values, inner: tuple[str, ...] = lists) -> Iterator[int]:
        if (code := values.get("error_code")) is not None:
            yield code
        if inner:
            for each in values[inner[0]] or ():
                yield from found(each, inner[1:])

    return found


def _each(name: str, of: str = "name") -> Callable[[Values], Iterable[str]]:
    return lambda values: (each if isinstance(each, str) else str(each[of]) for each in values[name] or ())


def _deleted(values: Values) -> Iterable[str]:
    """The topics' names; a topic that is named only by id, by the id as Kafka writes it."""
    if (names := values.get("topic_names")) is not None:
        return names
    return (each["name"] or f"id {_text(each['topic_id'])}" for each in values["topics"])


def _text(topic_id: bytes) -> str:
    """`Uuid.toString`."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def _word(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return "ANY"


def _rule(acl: Values, end: str = "") -> str:
    """For example `ALLOW User:alice from * WRITE on TOPIC orders LITERAL`; `*` for open fields of a filter."""

    def text(name: str) -> str:
        return str(acl[name + end] or "*")

    pattern = acl.get("resource_pattern_type", acl.get("pattern_type_filter", 1))
    return (
        f"{_word(Permission, acl['permission_type'])} {text('principal')} from {text('host')}"
        f" {_word(Operation, acl['operation'])} on {_word(ResourceType, acl[f'resource_type{end}'])}"
        f" {text('resource_name')} {_word(PatternType, pattern)}"
    )


def _settings(values: Values) -> Iterator[str]:
    for each in values["resources"]:
        kind = {2: "topic", _BROKER: "cluster"}.get(each["resource_type"], str(each["resource_type"]))
        yield f"{kind} {each['resource_name']}: {', '.join(config['name'] for config in each['configs'])}"


def _users(values: Values) -> Iterator[str]:
    yield from (f"delete {each['name']}" for each in values["deletions"])
    yield from (f"set {each['name']}" for each in values["upsertions"])


def _quotas(values: Values) -> Iterator[str]:
    for entry in values["entries"]:
        whose = " ".join(f"{each['entity_type']} {each['entity_name'] or 'default'}" for each in entry["entity"])
        yield f"{whose}: {', '.join(op['key'] for op in entry['ops'])}"


_AUDITED: Final = {
    each.message.key: each
    for each in (
        _Audited(admin.CREATE_TOPICS, _each("topics"), _codes("topics")),
        _Audited(admin.DELETE_TOPICS, _deleted, _codes("responses")),
        _Audited(admin.CREATE_PARTITIONS, _each("topics"), _codes("results")),
        _Audited(admin.ALTER_CONFIGS, _settings, _codes("responses")),
        _Audited(admin.INCREMENTAL_ALTER_CONFIGS, _settings, _codes("responses")),
        _Audited(
            admin.ELECT_LEADERS,
            _each("topic_partitions", "topic"),
            _codes("replica_election_results", "partition_result"),
        ),
        _Audited(admin.ALTER_PARTITION_REASSIGNMENTS, _each("topics"), _codes("responses", "partitions")),
        _Audited(groups.DELETE_GROUPS, _each("groups_names"), _codes("results")),
        _Audited(security.CREATE_ACLS, lambda values: map(_rule, values["creations"]), _codes("results")),
        _Audited(
            security.DELETE_ACLS,
            lambda values: (_rule(each, "_filter") for each in values["filters"]),
            _codes("filter_results"),
        ),
        _Audited(security.ALTER_CLIENT_QUOTAS, _quotas, _codes("entries")),
        _Audited(security.ALTER_USER_SCRAM_CREDENTIALS, _users, _codes("results")),
    )
}
_OWN: Final = frozenset({ApiKey.OWN, ApiKey.RELEASE})
_SETTLED: Final = frozenset({control.NONE, control.NOT_AUTHORIZED, control.DEPOSED, control.LOWER_GENERATION})
"""Final outcomes of a claim; after others its client repeats the request."""
KEYS: Final = frozenset(_AUDITED) | _OWN
"""The APIs that are audited."""


async def act_of(client: Client, exchange: AmendedExchange, request: Request) -> Act | None:
    """The request and its result; None if it has no result yet, or cannot be decoded."""
    try:
        if request.key in _OWN:
            found = _own(exchange, request)
        else:
            found = await _kafkas(exchange, request)
    except (MalformedFrameError, DecodeError, KeyError):
        return None  # the API's module has answered with the error
    if found is None:
        return None
    every, codes = found
    named = tuple(each[: _NAMED * 2] for each in islice(every, _NAMED))
    said = "" if client.identity is None else client.identity.raw.decode(errors="replace")
    errors = [code for code in codes or () if code]
    name_of: Callable[[int], str] = control.Error.Name if request.key in _OWN else error_name
    return Act(
        api_name(request.key),
        "failed" if codes is None else "done" if not errors else "refused" if len(errors) >= len(every) else "partly",
        client.principal,
        client.connection.peer,
        said[:200],
        named,
        len(every) - len(named),
        tuple(dict.fromkeys(map(name_of, errors))),
    )


_Found = tuple[list[str], list[int] | None]
"""The names in the request, and the codes of the answer; None: there was no answer."""


async def _kafkas(exchange: AmendedExchange, request: Request) -> _Found:
    audited = _AUDITED[request.key]
    asked = await asking.fields(audited.message, request, whole=False)
    every = await in_slices(_listed(audited.on(asked)))
    if exchange.given is None:
        return every, None
    answer = b"".join(exchange.given)
    values = await in_slices(audited.message.read_answer_steps(answer, 0, len(answer), request.version))
    if audited.message is admin.DELETE_TOPICS:
        names = {f"id {_text(row['topic_id'])}": row["name"] for row in values["responses"] if row.get("topic_id")}
        every = [names.get(each) or each for each in every]
    return every, await in_slices(_listed(audited.codes(values)))


def _listed(found: Iterable[FoundT]) -> Generator[None, None, list[FoundT]]:
    """The whole list, in portions: a request may name thousands, and each text has to be composed."""
    made: list[FoundT] = []
    for number, each in enumerate(found, 1):
        made.append(each)
        if not number % PORTION:
            yield
    return made


def _own(exchange: AmendedExchange, request: Request) -> _Found | None:
    body = bytes(request.frame.view(request.body, request.frame.end))
    if exchange.given is None or len(body) > _BODY_BYTES:
        return None
    data = b"".join(exchange.given)[_OWN_HEAD:]
    if request.key == ApiKey.OWN:
        resources: list[Any] = [claim.resource for claim in control.OwnRequest.FromString(body).claims]
        error = control.OwnResponse.FromString(data).error
        if error not in _SETTLED:
            return None
    else:
        resources = list(control.ReleaseRequest.FromString(body).resources)
        error = control.ReleaseResponse.FromString(data).error
    every = [_resource(each) for each in resources]
    return every, [int(error)] * max(1, len(every))  # all or nothing


def _resource(found: control.Resource) -> str:
    if found.name:
        return found.name
    return f"{found.topic}-{found.partition}" if found.HasField("partition") else found.topic
