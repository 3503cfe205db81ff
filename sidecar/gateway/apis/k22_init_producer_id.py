"""InitProducerId (0-5) (KIP-98, KIP-360): to any broker, or to the coordinator of the transactional id.

Without a transactional id any broker gives a producer id; `exclusive` is asked before (a deposed session that names its
id gets 90 PRODUCER_FENCED) and notified afterwards. Transactional ids `sidecar.*` are refused with 53
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: initialising one would fence its topic's owner.
"""

from functools import partial
from typing import Final

from sidecar.gateway import asking
from sidecar.gateway.access.asked import (
    CLUSTER,
    Asked,
    Asking,
    Divided,
    Operation,
    ResourceType,
    error_fields,
    takes,
    whole,
)
from sidecar.gateway.access.cluster import NO_PRODUCER
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, Services, ShadowRule
from sidecar.gateway.client import Client
from sidecar.gateway.write_rights import refused_transaction
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages.transactions import INIT_PRODUCER_ID

_NONE: Final = -1


def _init_producer_id(asking: Asking) -> Divided | None:
    if asking.fields["transactional_id"] is not None:
        return takes(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, lambda _: NO_PRODUCER)(asking)
    if asking.rights.writes_idempotently():
        return None
    return whole(error_fields(CLUSTER) | NO_PRODUCER, CLUSTER)


async def _handle(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Forward the request to any broker, or to the coordinator of the transactional id."""
    message = INIT_PRODUCER_ID
    fields = await asking.fields(message, request)
    named: int | None = fields.get("producer_id", _NONE)
    named = None if named == _NONE else named
    try:
        answer = await _init(of, client, request, fields["transactional_id"], named)
    except KafkaError as error:
        exchange.note_error(error.code)
        await asking.answer(exchange, message, NO_PRODUCER | {"error_code": error.code})
        return
    given = await asking.read(message, answer, request.version)
    if given["error_code"]:
        exchange.note_error(given["error_code"])
    if given["error_code"] == ErrorCode.NONE and not client.connection.closed:
        transactional = fields["transactional_id"] is not None
        of.sessions.initialised(client, given["producer_id"], named, transactional=transactional)
    exchange.answer([answer.view(answer.start, answer.end)])


async def _init(
    of: Services, client: Client, request: Request, transactional_id: str | None, named: int | None
) -> Frame:
    if client.identity_error is not None:
        client.connection.report("client_id", client.identity_error.message)
        client.note_refusal(b"", client.identity_error.code, client.identity_error.message)
        raise client.identity_error
    if named is not None:
        refused = of.sessions.check(client, named, transactional=transactional_id is not None)
        if refused is not None:
            raise refused
    if transactional_id is None:
        # A repeated request costs only an unused producer id.
        return await asking.first_that_answers(client, of.upstream, None, request, harmless=True)
    owned = refused_transaction(transactional_id)
    if owned is not None:
        raise owned
    return await of.coordinators.ask(client, transactional_id, CoordinatorKind.TRANSACTION, request)


SPEC = ApiSpec(
    ApiKey.INIT_PRODUCER_ID, (0, 5), Route.TRANSACTION, Asked(_init_producer_id), ShadowRule.UNNAMED,
    cold=lambda _, of: partial(_handle, of),
    reason="newest known; 6 (two-phase commit, KIP-939) is not offered by Kafka 4.4 yet",
)  # fmt: skip
