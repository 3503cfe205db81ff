"""Forwards requests about transactions and producer ids to their coordinators (KIP-98, KIP-360).

InitProducerId (0-5): without a transactional id any broker gives a producer id; `exclusive` is asked before (a deposed
session that names its id gets 90 PRODUCER_FENCED) and notified afterwards. AddPartitionsToTxn (0-3): all or nothing as
in Kafka; a governed topic gets 48 INVALID_TXN_STATE, a sidecar's own topic 29 TOPIC_AUTHORIZATION_FAILED, the others
55 OPERATION_NOT_ATTEMPTED. DescribeTransactions (0). Other APIs with one transactional id are in `gateway.groups`.
Transactional ids `sidecar.*` are refused everywhere with 53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED: initialising one
would fence its topic's owner.
"""

from collections.abc import Mapping
from typing import Final

from sidecar.cluster.resolver import NameResolver, TopicKind
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.producers import Producers
from sidecar.gateway import asking
from sidecar.gateway.access.cluster import not_added
from sidecar.gateway.client import Client
from sidecar.gateway.coordinators import Coordinators
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.gateway.write_rights import refused_transaction
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.policy.admission import NO_TRANSACTIONS
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import transactions
from sidecar.protocol.schema import Values

_NONE: Final = -1
_GOVERNED: Final = KafkaError(ErrorCode.INVALID_TXN_STATE, NO_TRANSACTIONS)


class TransactionsApi:
    """Handles the requests of all clients of a node."""

    def __init__(
        self, upstream: KafkaUpstream, coordinators: Coordinators, resolver: NameResolver, sessions: Producers
    ) -> None:
        self._upstream = upstream
        self._coordinators = coordinators
        self._resolver = resolver
        self._sessions = sessions

    async def handle_init_producer_id(self, client: Client, exchange: Exchange, request: Request) -> None:
        """InitProducerId: forwarded to any broker, or to the coordinator of the transactional id."""
        message = transactions.INIT_PRODUCER_ID
        fields = await asking.fields(message, request)
        named: int | None = fields.get("producer_id", _NONE)
        named = None if named == _NONE else named
        try:
            answer = await self._init(client, request, fields["transactional_id"], named)
        except KafkaError as error:
            exchange.note_error(error.code)
            refusal = {"error_code": error.code, "producer_id": _NONE, "producer_epoch": _NONE}
            await asking.answer(exchange, message, refusal)
            return
        given = await asking.read(message, answer, request.version)
        if given["error_code"]:
            exchange.note_error(given["error_code"])
        if given["error_code"] == ErrorCode.NONE and not client.connection.closed:
            transactional = fields["transactional_id"] is not None
            self._sessions.initialised(client, given["producer_id"], named, transactional=transactional)
        exchange.answer([answer.view(answer.start, answer.end)])

    async def _init(self, client: Client, request: Request, transactional_id: str | None, named: int | None) -> Frame:
        if client.identity_error is not None:
            client.connection.report("client_id", client.identity_error.message)
            client.note_refusal(b"", client.identity_error.code, client.identity_error.message)
            raise client.identity_error
        if named is not None:
            refused = self._sessions.check(client, named, transactional=transactional_id is not None)
            if refused is not None:
                raise refused
        if transactional_id is None:
            # A repeated request costs only an unused producer id.
            upstream = self._upstream
            return await asking.first_that_answers(client, upstream, None, request, harmless=True)
        owned = refused_transaction(transactional_id)
        if owned is not None:
            raise owned
        return await self._coordinators.ask(client, transactional_id, CoordinatorKind.TRANSACTION, request)

    async def handle_add_partitions(
        self, shadow: ShadowRule, client: Client, exchange: Exchange, request: Request
    ) -> None:
        """AddPartitionsToTxn: refused as a whole if any topic is not ordinary."""
        message = transactions.ADD_PARTITIONS_TO_TXN
        fields = await asking.fields(message, request)
        topics: list[Values] = fields["topics"]
        refused = {
            topic["name"]: refusal for topic in topics if (refusal := self._refusal(shadow, topic["name"])) is not None
        }
        owned = refused_transaction(fields["transactional_id"])
        code: int = ErrorCode.OPERATION_NOT_ATTEMPTED if owned is None else owned.code
        if owned is not None:
            refused = {}
        elif refused:
            _note(client, refused)
        else:
            ask = self._coordinators.ask
            try:
                answer = await ask(client, fields["transactional_id"], CoordinatorKind.TRANSACTION, request)
            except KafkaError as error:
                code = error.code
            else:
                exchange.answer([answer.view(answer.start, answer.end)])
                return
        codes = {topic["name"]: code for topic in topics} | {name: error.code for name, error in refused.items()}
        for code in codes.values():
            exchange.note_error(code)
        await asking.answer(exchange, message, not_added(topics, lambda name, _: codes[name]))

    def _refusal(self, shadow: ShadowRule, topic: str) -> KafkaError | None:
        kind = self._resolver.kind(topic.encode())
        return _GOVERNED if kind is TopicKind.GOVERNED else shadow.refused(kind)


def _note(client: Client, refused: Mapping[str, KafkaError]) -> None:
    """Store the reasons in the list of refusals, because the answer has no field for them: for one topic of each code,
    as a request may name thousands.
    """
    first: dict[int, str] = {}
    for name, refusal in refused.items():
        first.setdefault(refusal.code, name)
    for code, name in first.items():
        reason = refused[name].message
        client.note_refusal(name.encode(), code, reason)
        if code == ErrorCode.INVALID_TXN_STATE:
            client.connection.report("transactional_batch", f"a transaction that is to write to {name}: {reason}")
