"""AddPartitionsToTxn (0-3) (KIP-98): all or nothing, as in Kafka.

A governed topic gets 48 INVALID_TXN_STATE, a sidecar's own topic 29 TOPIC_AUTHORIZATION_FAILED, the others 55
OPERATION_NOT_ATTEMPTED.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from sidecar.cluster.resolver import TopicKind
from sidecar.gateway import asking
from sidecar.gateway.access.asked import (
    TOPIC,
    TRANSACTIONAL_ID,
    Asked,
    Asking,
    Divided,
    Operation,
    ResourceType,
    takes,
    whole,
)
from sidecar.gateway.access.cluster import not_added
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, Services, ShadowRule
from sidecar.gateway.client import Client
from sidecar.gateway.rights import KAFKAS_OWN
from sidecar.gateway.write_rights import refused_transaction
from sidecar.network.request import Exchange, Request
from sidecar.policy.admission import NO_TRANSACTIONS
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages.transactions import ADD_PARTITIONS_TO_TXN
from sidecar.protocol.schema import Values

_GOVERNED: Final = KafkaError(ErrorCode.INVALID_TXN_STATE, NO_TRANSACTIONS)


def _writable(asking: Asking, name: str) -> bool:
    return name not in KAFKAS_OWN and asking.rights.topic(Operation.WRITE, name)


def _added_beside(asking: Asking) -> list[str]:
    """The topics to look up: if one topic is refused nothing is added, and missing topics get a code of their own."""
    names: list[str] = [topic["name"] for topic in asking.fields["topics"]]
    writable = [name for name in names if _writable(asking, name)]
    return writable if len(writable) != len(names) else []


def _add_partitions(asking: Asking) -> Divided | None:
    refused = {topic["name"] for topic in asking.fields["topics"] if not _writable(asking, topic["name"])}
    if not refused:
        return None

    def code_of(name: str, index: int) -> int:
        if name in refused:
            return TOPIC
        there = asking.has(name, index)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return whole(not_added(asking.fields["topics"], code_of), TOPIC)


def _not_its_id(asking: Asking) -> Values:
    return not_added(asking.fields["topics"], lambda *_: TRANSACTIONAL_ID)


async def _handle(shadow: ShadowRule, of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Forward the request; refused as a whole if any topic is not ordinary."""

    def refusal(topic: str) -> KafkaError | None:
        kind = of.resolver.kind(topic.encode())
        return _GOVERNED if kind is TopicKind.GOVERNED else shadow.refused(kind)

    message = ADD_PARTITIONS_TO_TXN
    fields = await asking.fields(message, request)
    topics: list[Values] = fields["topics"]
    refused = {topic["name"]: error for topic in topics if (error := refusal(topic["name"])) is not None}
    owned = refused_transaction(fields["transactional_id"])
    code: int = ErrorCode.OPERATION_NOT_ATTEMPTED if owned is None else owned.code
    if owned is not None:
        refused = {}
    elif refused:
        _note(client, refused)
    else:
        ask = of.coordinators.ask
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


SPEC = ApiSpec(
    ApiKey.ADD_PARTITIONS_TO_TXN, (0, 3), Route.TRANSACTION,
    Asked(takes(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _not_its_id, _add_partitions), _added_beside),
    cold=lambda row, of: partial(_handle, row.shadow, of),
    reason="4 and 5 are for brokers: they name many transactions (KIP-890)", newest=5,
)  # fmt: skip
