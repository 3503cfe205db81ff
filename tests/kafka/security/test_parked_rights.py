"""Who waits for records when Kafka's ACLs take the right to read them gets none of what is written from then on, and
nobody who waits with him is disturbed.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sidecar.protocol import fetch
from sidecar.protocol.calls.tails import VERSION
from sidecar.security.credentials import PasswordCredentials
from tests.kafka.security.secured import NODE, PASSWORD, Secured, Wire, wire
from tests.kafka.security.test_audit import client
from tests.kafka.security.test_limits import metric
from tests.raw import PARKED_MS
from tests.rest import Rest
from tests.wait import wait_for, wait_for_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from sidecar.protocol.primitives import Octets
    from tests.conftest import OwnValkey, StartNode, Unique
    from tests.nodes import NodeProcess

_LITERAL = ResourcePatternType.LITERAL
_REFUSED = 29
_WRITTEN = b"written since"


@pytest.fixture
def node(secured: Secured, own_valkey: OwnValkey, node_process: StartNode) -> Iterator[NodeProcess]:
    yield node_process(
        kafka=f"127.0.0.1:{secured.ports['SASL_PLAINTEXT']}",
        redis=own_valkey().url,
        SECURITY_PROTOCOL="SASL_PLAINTEXT",
        SUPER_USERS=f"User:{NODE}",
        KAFKA_SECURITY_PROTOCOL="SASL_PLAINTEXT",
        KAFKA_SASL_MECHANISM="PLAIN",
        KAFKA_SASL_USERNAME=NODE,
        KAFKA_SASL_PASSWORD=PASSWORD,
        SHARED_FETCH_MIN_READERS="2",
    )
    secured.forget_acls()


class Asked(NamedTuple):
    """A Fetch: from the beginning of partition 0 of each topic."""

    topics: Sequence[str]
    min_bytes: int = 1

    def frame(self, wait_ms: int) -> bytes:
        parts: list[tuple[bytes, Octets]] = [
            (topic.encode(), struct.pack(">iiqqi", 0, -1, 0, -1, 1 << 20)) for topic in self.topics
        ]
        return bytes(fetch.encode_request(1, b"reader", VERSION, (wait_ms, self.min_bytes, 1 << 24, 0), parts))


def errors(answer: bytes) -> set[int]:
    return {part.error for part in fetch.walk_answer(answer, 0, len(answer), VERSION).parts}


def logged_in(node: NodeProcess) -> AbstractAsyncContextManager[Wire]:
    return wire(int(node.bootstrap.rpartition(":")[2]))


async def connected(stack: AsyncExitStack, node: NodeProcess, user: str) -> Wire:
    found = await stack.enter_async_context(logged_in(node))
    await found.login(PasswordCredentials("PLAIN", user, PASSWORD))
    return found


def rules(permission: AclPermissionType, user: str, *topics: str) -> list[AclBinding]:
    return [
        AclBinding(ResourceType.TOPIC, topic, _LITERAL, f"User:{user}", "*", AclOperation.READ, permission)
        for topic in topics
    ]


def add(admin: AdminClient, *found: AclBinding) -> None:
    for made in admin.create_acls([*found]).values():
        made.result(30)


def delete(secured: Secured, kind: ResourceType, name: str, user: str) -> None:
    any_host: Any = None  # the stubs know no such filter
    allowed = AclBindingFilter(
        kind, name, _LITERAL, f"User:{user}", any_host, AclOperation.READ, AclPermissionType.ALLOW
    )
    for gone in secured.admin.delete_acls([allowed]).values():
        assert len(gone.result(30)) == 1


def take_by_deleting(secured: Secured, topic: str) -> None:
    delete(secured, ResourceType.TOPIC, topic, "alice")


def take_by_denying(secured: Secured, topic: str) -> None:
    add(secured.admin, *rules(AclPermissionType.DENY, "alice", topic))


def share_a_poll(node: NodeProcess) -> bool:
    return metric(node, "sidecar_fanout_waiting") == 2


def both_wait(node: NodeProcess) -> bool:
    _, found = Rest(node.admin_url).call("GET", "/v1/clients")
    return sum(each["in_flight"] for each in found["items"]) >= 2


@pytest.mark.parametrize(
    ("way", "take"),
    [
        ("alone", take_by_deleting),
        ("shared", take_by_deleting),
        ("shared", take_by_denying),
        ("shadow", take_by_deleting),
        ("both names", take_by_deleting),
    ],
    ids=["alone", "shared", "denied", "shadow", "both names"],
)
async def test_a_fetch_that_waits_gets_nothing_of_what_is_written_after_the_right_was_taken(
    secured: Secured, node: NodeProcess, unique: Unique, way: str, take: Callable[[Secured, str], None]
) -> None:
    topic, shadow = unique("orders"), unique("audit")
    secured.topics(topic)
    rest = Rest(node.admin_url)
    made = {"name": shadow}
    wait_for(lambda: rest.call("POST", f"/v1/topics/{topic}/shadows", made)[0] == 201, "brokers to know the topic")
    through = client(node, NODE)  # what passes through the node it knows at once
    allowed = [each for user in ("alice", "bob") for each in rules(AclPermissionType.ALLOW, user, topic, shadow)]
    group = AclBinding(
        ResourceType.GROUP, "readers", _LITERAL, "User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    add(through, *allowed, group)
    asked = {
        "alone": Asked([topic], min_bytes=2),
        "shared": Asked([topic]),
        "shadow": Asked([shadow]),
        "both names": Asked([topic, shadow]),
    }[way]
    taken = shadow if way in ("shadow", "both names") else topic
    async with AsyncExitStack() as stack:
        alice, bob = [await connected(stack, node, user) for user in ("alice", "bob")]

        async def is_refused(expected: bool) -> bool:
            async with AsyncExitStack() as own:
                other = await connected(own, node, "alice")
                try:
                    return (errors(await other.send(Asked([taken]).frame(0))) == {_REFUSED}) == expected
                except asyncio.IncompleteReadError:  # the right was taken while this one was at the broker
                    return False

        await wait_for_async(lambda: is_refused(False), "the right to read", 20)
        for each in (alice, bob, alice, bob):
            assert errors(await each.send(asked.frame(1))) == {0}
        waits = [asyncio.create_task(each.send(asked.frame(PARKED_MS))) for each in (alice, bob)]
        if asked.min_bytes == 1 and way != "both names":
            await wait_for_async(lambda: asyncio.to_thread(share_a_poll, node), "both in one poll")
        else:
            await wait_for_async(lambda: asyncio.to_thread(both_wait, node), "both to wait at the node")
        delete(secured, ResourceType.GROUP, "readers", "bob")  # a group's rights are no matter of a Fetch
        take(secured, taken)
        await wait_for_async(lambda: is_refused(True), "the end of the right to read", 20)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{secured.ports['PLAINTEXT']}"})
        producer.produce(topic, _WRITTEN)
        assert await asyncio.to_thread(producer.flush, 30) == 0
        assert _WRITTEN in await waits[1], "nobody else is disturbed"
        with pytest.raises(asyncio.IncompleteReadError) as ended:
            await waits[0]
        assert ended.value.partial == b""
        again = await connected(stack, node, "alice")
        answer = await again.send(asked.frame(1))
        assert _REFUSED in errors(answer)
        assert (_WRITTEN in answer) == (way == "both names"), "what she may still read she gets"
        secured.forget_acls()
        add(through, *rules(AclPermissionType.ALLOW, "alice", topic, shadow))
        await wait_for_async(lambda: is_refused(False), "the right that is given back", 20)
        assert _WRITTEN in await again.send(asked.frame(PARKED_MS))
