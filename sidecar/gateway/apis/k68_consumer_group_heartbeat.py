"""ConsumerGroupHeartbeat (0-1) (KIP-848).

The coordinator keeps a regular expression (version 1) when rights are revoked, so answers are checked too: a member
whose expression brought a topic that it may no longer see gets 128 instead of its assignment. A member that named the
topic keeps it, as on a broker.
"""

from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked, Asking, Divided, whole
from sidecar.gateway.access.groups import NOT_EXPANDED, not_beaten, subscription
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule, SharedLinks
from sidecar.gateway.client import Client
from sidecar.gateway.groups import HeartbeatApi
from sidecar.gateway.rights import may_see
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.messages import new_groups
from sidecar.protocol.schema import Values


def _consumer_heartbeat(asking: Asking) -> Divided | None:
    refused = subscription(asking)
    if refused or not asking.fields.get("subscribed_topic_regex") or asking.rights.describes_every_topic():
        return refused
    return whole(not_beaten(NOT_EXPANDED.code, NOT_EXPANDED.message), NOT_EXPANDED.code)


async def _check_assigned(api: HeartbeatApi, client: Client, group: str, request: Request, answer: Frame) -> None:
    """Raise `KafkaError` if an expression brought the member a topic that it may no longer see."""
    is_limited = client.rights is not None and client.rights.enforced
    if not (is_limited or api.resolver.has_guards):
        return
    heartbeat = await asking.read(api.message, answer, request.version)
    assignment = heartbeat["assignment"]
    ids = {topic["topic_id"] for topic in assignment["topic_partitions"]} if assignment else set()
    names = api.upstream.view.names
    await asking.learn_ids(api.upstream, ids)
    if all(may_see(client, api.resolver, names[topic_id].decode()) for topic_id in ids if topic_id in names):
        return
    if await _has_expression(api, client, group, heartbeat["member_id"], request):
        raise NOT_EXPANDED


async def _has_expression(api: HeartbeatApi, client: Client, group: str, member: str, request: Request) -> bool:
    """Whether a member subscribed by an expression; asks the coordinator, which stores it."""
    message = new_groups.CONSUMER_GROUP_DESCRIBE
    coordinator = await api.coordinators.find(group, CoordinatorKind.GROUP)
    asked: Values = {"group_ids": [group], "include_authorized_operations": False}
    described = await asking.one(client, coordinator, request, message, asked)
    members = (element for found in described["groups"] for element in found["members"])
    return any(element["subscribed_topic_regex"] for element in members if element["member_id"] == member)


SPEC = ApiSpec(
    ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), Route.GROUP, Asked(_consumer_heartbeat), ShadowRule.OWN,
    links=SharedLinks(since=0),
    cold=lambda row, of: (
        HeartbeatApi(
            of.upstream, of.coordinators, of.resolver, row.message, row.shadow, check_answer=_check_assigned
        ).handle
    ),
    reason="newest known (KIP-848)",
)  # fmt: skip
