"""DescribeLogDirs (0-5): of the brokers that belong to this node (KIP-113).

Named partitions are those that Metadata places on this node, described by all brokers that have their replicas: clients
ask the node that Metadata names (kadm, `Admin.describeReplicaLogDirs`). A node without brokers has no directories. If a
broker is lost, the client's connection is closed, as if its broker were.
"""

from functools import partial
from typing import Final

from sidecar.cluster.resolver import TopicKind
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, Services, ShadowRule
from sidecar.gateway.client import Client
from sidecar.gateway.merged import in_front
from sidecar.network.request import Exchange, Request
from sidecar.protocol.messages.admin import DESCRIBE_LOG_DIRS
from sidecar.protocol.schema import Values

_NO_LOG_DIR: Final[Values] = {"log_dir": "(none)", "topics": [], "total_bytes": -1, "usable_bytes": -1}
"""The answer of a node without brokers: Java takes an empty list for CLUSTER_AUTHORIZATION_FAILED."""


async def _handle(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Answer with the directories of this node's brokers, and with all that have named partitions of this node."""
    topics: list[Values] | None = (await asking.fields(DESCRIBE_LOG_DIRS, request))["topics"]
    if topics is None and not of.resolver.has_guards:
        await _pass(of, client, exchange, request)
        return
    placed = [
        topic | {"partitions": [index for index in topic["partitions"] if _is_here(of, client, topic, index)]}
        for topic in topics or ()
    ]
    named = {"topics": None if topics is None else [topic for topic in placed if topic["partitions"]]}

    async def ask(broker_id: int) -> Values:
        answer = await asking.one(client, broker_id, request, DESCRIBE_LOG_DIRS, named)
        if broker_id in _mine(of, client):
            return answer
        return answer | {"results": [directory for directory in answer["results"] if directory["topics"]]}

    brokers = (lambda: of.upstream.view.brokers) if named["topics"] else (lambda: _mine(of, client))
    values = _joined(await of.merged.ask_all(client, brokers, ask))
    shown = [directory | {"topics": _seen(of, client, directory["topics"])} for directory in values["results"]]
    await asking.answer(exchange, DESCRIBE_LOG_DIRS, values | {"results": shown})


async def _pass(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """All directories of this node's brokers: the answer of a single broker is forwarded unchanged."""
    await asking.read_all(request)
    answers = await of.merged.ask_all(
        client, lambda: _mine(of, client), lambda broker_id: client.ask(broker_id, request)
    )
    if len(answers) == 1:
        exchange.answer([answers[0].view(answers[0].start, answers[0].end)])
        return
    values = _joined([await asking.read(DESCRIBE_LOG_DIRS, answer, request.version) for answer in answers])
    await asking.answer(exchange, DESCRIBE_LOG_DIRS, values)


def _mine(of: Services, client: Client) -> list[int]:
    """The brokers that belong to this node."""
    return of.nodes.at(client.listener).brokers_of(of.nodes.me.id, of.upstream.view.brokers)


def _seen(of: Services, client: Client, topics: list[Values]) -> list[Values]:
    """The topics without hidden ones: shadows whose allow list lacks the client. Metadata omits them too."""
    return [topic for topic in topics if not of.resolver.hides(topic["name"].encode(), client.principal)]


def _is_here(of: Services, client: Client, topic: Values, partition: int) -> bool:
    """Whether Metadata places the partition on this node."""
    name: bytes = topic["topic"].encode()
    if of.resolver.kind(name) is TopicKind.GOVERNED:
        return of.nodes.serves(name) == of.nodes.me.id
    return of.nodes.at(client.listener).of_partition(name, partition) == of.nodes.me.id


def _joined(answers: list[Values]) -> Values:
    """Numbers directories of the same name on different brokers: clients identify them by name."""
    values = in_front(answers)
    results: list[Values] = []
    seen: dict[str, int] = {}
    for result in (result for answer in answers for result in answer["results"]):
        name: str = result["log_dir"]
        seen[name] = count = seen.get(name, 0) + 1
        results.append(result | {"log_dir": name if count == 1 else f"{name} ({count})"})
    if not results and not values["error_code"]:
        results = [_NO_LOG_DIR]
    return values | {"results": results}


SPEC = ApiSpec(
    ApiKey.DESCRIBE_LOG_DIRS, (0, 5), Route.OWN_BROKERS, Asked(takes(Operation.DESCRIBE, ResourceType.CLUSTER)),
    ShadowRule.OWN, cold=lambda _, of: partial(_handle, of),
    reason="newest known; named partitions: by the node that leads them, of all brokers",
)  # fmt: skip
