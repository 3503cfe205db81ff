"""FindCoordinator (0-6): answered with the node that stands for the coordinator, which is looked up each time."""

import asyncio
from functools import partial
from typing import Final

from sidecar.gateway import asking
from sidecar.gateway.access.asked import (
    GROUP,
    NO_ID,
    TRANSACTIONAL_ID,
    Asked,
    Asking,
    Divided,
    Operation,
    error_fields,
    some,
    whole,
)
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, Services, ShadowRule
from sidecar.gateway.client import Client
from sidecar.gateway.write_rights import refused_transaction
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import CoordinatorKind, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages.cluster import FIND_COORDINATOR
from sidecar.protocol.schema import Values

_MANY_KEYS_FROM: Final = 4
"""The first version of FindCoordinator that names many keys (KIP-699)."""
_FOUND: Final = "NONE"
"""A broker's message beside a coordinator before version 4; later it is empty (`KafkaApis`)."""
_LOOKUPS_AT_ONCE: Final = 64


def _check(asking: Asking) -> Divided | None:
    kind, rights, nowhere = asking.fields.get("key_type", 0), asking.rights, {"node_id": NO_ID, "port": NO_ID}
    code = GROUP if kind == 0 else TRANSACTIONAL_ID

    def may(key: str) -> bool:
        if kind == 0:
            return rights.group(Operation.DESCRIBE, key)
        return kind != 1 or rights.transactional_id(Operation.DESCRIBE, key)

    def refused(key: str) -> Values | None:
        return None if may(key) else {"key": key, "error_code": code} | nowhere

    if asking.version >= _MANY_KEYS_FROM:
        return some(asking.fields, ("coordinator_keys", "coordinators"), refused, code)
    return None if may(asking.fields["key"]) else whole(error_fields(code) | nowhere, code)


async def _handle(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Answer with the node that represents the coordinator, or with upstream's error."""
    message = FIND_COORDINATOR
    fields = message.decode_request(request.frame.buffer, request.body, request.frame.end, request.version)
    kind: int = fields.get("key_type", CoordinatorKind.GROUP)
    has_many = request.version >= _MANY_KEYS_FROM
    keys: list[str] = [*dict.fromkeys(fields["coordinator_keys"])] if has_many else [fields["key"]]
    found: list[Values] = []
    for first in range(0, len(keys), _LOOKUPS_AT_ONCE):
        some = keys[first : first + _LOOKUPS_AT_ONCE]
        found += await asyncio.gather(*(_find(of, client, key, kind) for key in some))
    if not has_many and not found[0]["error_code"]:
        found[0]["error_message"] = _FOUND
    values = {"coordinators": found} if has_many else found[0]
    await asking.answer(exchange, message, values)


async def _find(of: Services, client: Client, key: str, kind: int) -> Values:
    error, reason = await _coordinator_error(of, key, kind)
    placement = of.nodes.at(client.listener)
    node = None if error else placement.nodes[placement.of_key(key.encode())]
    return {
        "key": key,
        "error_code": error,
        "error_message": reason,
        "node_id": node.id if node else -1,
        "host": node.host if node else "",
        "port": node.port if node else -1,
    }


async def _coordinator_error(of: Services, key: str, kind: int) -> tuple[int, str]:
    if kind not in (CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION):
        return ErrorCode.INVALID_REQUEST, f"coordinators of type {kind} are not served"
    if kind == CoordinatorKind.TRANSACTION and (refused := refused_transaction(key)) is not None:
        return refused.code, refused.message
    of.upstream.forget_coordinator(key, CoordinatorKind(kind))
    try:
        await of.upstream.coordinator(key, CoordinatorKind(kind))
    except KafkaError as error:
        return error.code, error.message
    except UpstreamError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "Kafka cannot be asked now"  # its text would name a broker
    return ErrorCode.NONE, ""


SPEC = ApiSpec(
    ApiKey.FIND_COORDINATOR, (0, 6), Route.LOCAL, Asked(_check), ShadowRule.UNNAMED,
    cold=lambda _, of: partial(_handle, of),
    reason="newest known; share coordinators, for which 6 can ask, are for brokers alone: INVALID_REQUEST (42)",
)  # fmt: skip
