"""AlterShareGroupOffsets (0). Offsets for a shadow, which share groups cannot read, are refused with 29
TOPIC_AUTHORIZATION_FAILED; the rest of the request is relayed.
"""

from typing import Final

from sidecar.cluster.resolver import TopicKind
from sidecar.gateway import asking
from sidecar.gateway.access.asked import TOPIC, Asked, Divided, Operation, error_fields, refused_topic, some
from sidecar.gateway.access.groups import share_topics
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route
from sidecar.gateway.client import Client
from sidecar.gateway.groups import OneKeyApi
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.schema import Values

_NO_SHARES: Final = KafkaError(TOPIC, "a share group cannot read a shadow topic, so it has no offset there")
_NO_SHARES_THERE: Final = {"error_code": _NO_SHARES.code, "error_message": _NO_SHARES.message}


async def _without_shadows(
    api: OneKeyApi, _group: str, client: Client, exchange: Exchange, request: Request
) -> Divided | None:
    resolver = api.resolver
    if not resolver.has_shadows or api.shadow.refused(TopicKind.SHADOW) is None:
        return None

    def refused(topic: Values) -> Values | None:
        name: bytes = topic["topic_name"].encode()
        if not resolver.is_shadow(name):
            return None
        error = error_fields(TOPIC) if resolver.hides(name, client.principal) else _NO_SHARES_THERE
        client.note_refusal(name, _NO_SHARES.code, _NO_SHARES.message)
        return refused_topic(topic, error)

    divided = some(await asking.fields(api.message, request), ("topics", "responses"), refused)
    if divided is not None:
        exchange.note_error(_NO_SHARES.code)
    return divided


SPEC = ApiSpec(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), Route.GROUP,
    Asked(share_topics(Operation.READ, lambda topic: refused_topic(topic, error_fields(TOPIC)))),
    form=OneKey(divide=_without_shadows),
)  # fmt: skip
