"""The changes that clients make over Kafka's protocol, for the audit log: who, from where, what, with which result.

Brokers see only the node's principal, so their own audit log cannot name the client. Audited are the APIs that change
topics, rights, settings and owners; writing of records and offsets is not. The answers of these APIs are decoded a
second time, in slices. Values of settings, and salts and keys of passwords, are never logged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from google.protobuf.message import DecodeError

from sidecar.gateway import asking
from sidecar.gateway.apis.audited import Audited, OwnAudited
from sidecar.gateway.apis.table import ALL_APIS
from sidecar.gateway.client import Client
from sidecar.gateway.enforcement import AmendedExchange
from sidecar.network.request import Request
from sidecar.network.slices import in_slices
from sidecar.protocol.errors import error_name
from sidecar.protocol.limits import PORTION
from sidecar.protocol.primitives import MalformedFrameError
from sidecar.protocol.schema import Message
from sidecar.v1 import control_pb2 as control

FoundT = TypeVar("FoundT")

_NAMED: Final = 100
"""The most names that are logged of one request."""
_OWN_HEAD: Final = 8
"""Length and correlation id, before the body of an answer of the sidecar's own APIs."""
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


async def act_of(client: Client, exchange: AmendedExchange, request: Request) -> Act | None:
    """The request and its result; None if it has no result yet, or cannot be decoded."""
    api = ALL_APIS[request.key]
    try:
        if isinstance(api.audit, OwnAudited):
            seen = _own(api.audit, exchange, request)
        else:
            assert api.audit is not None
            seen = await _kafkas(api.message, api.audit, exchange, request)
    except (MalformedFrameError, DecodeError, KeyError):
        return None  # the API's module has answered with the error
    if seen is None:
        return None
    every, codes = seen
    named = tuple(each[: _NAMED * 2] for each in islice(every, _NAMED))
    said = "" if client.identity is None else client.identity.raw.decode(errors="replace")
    errors = [code for code in codes or () if code]
    name_of: Callable[[int], str] = control.Error.Name if isinstance(api.audit, OwnAudited) else error_name
    return Act(
        api.name,
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


async def _kafkas(message: Message, audited: Audited, exchange: AmendedExchange, request: Request) -> _Found:
    asked = await asking.fields(message, request, whole=False)
    every = await in_slices(_listed(audited.on(asked)))
    if exchange.given is None:
        return every, None
    answer = b"".join(exchange.given)
    values = await in_slices(message.read_answer_steps(answer, 0, len(answer), request.version))
    names = audited.names(values)
    return [names.get(name) or name for name in every], await in_slices(_listed(audited.codes(values)))


def _listed(elements: Iterable[FoundT]) -> Generator[None, None, list[FoundT]]:
    """The whole list, in portions: a request may name thousands, and each text has to be composed."""
    made: list[FoundT] = []
    for number, each in enumerate(elements, 1):
        made.append(each)
        if not number % PORTION:
            yield
    return made


def _own(audited: OwnAudited, exchange: AmendedExchange, request: Request) -> _Found | None:
    body = bytes(request.frame.view(request.body, request.frame.end))
    if exchange.given is None or len(body) > _BODY_BYTES:
        return None
    every = [_resource(resource) for resource in audited.on(body)]
    code = audited.code(b"".join(exchange.given)[_OWN_HEAD:])
    return None if code is None else (every, [code] * max(1, len(every)))  # all or nothing


def _resource(resource: control.Resource) -> str:
    if resource.name:
        return resource.name
    return f"{resource.topic}-{resource.partition}" if resource.HasField("partition") else resource.topic
