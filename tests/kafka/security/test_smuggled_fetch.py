"""A client may READ one topic, and hides another in its Fetch where a broker finds it and a node might not."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from sidecar.security.credentials import PasswordCredentials
from tests.kafka.gateway import by_id
from tests.kafka.security.enforced import USER, enforced_node, set_rules
from tests.kafka.security.secured import PASSWORD, Secured, Wire
from tests.raw import RawClient, batch, produce
from tests.unit.protocol.test_fetch_tags import field, partition, request, topic

HOST: Final = "127.0.0.1"
OWN: Final = ("mine", "also-mine")
_ALLOW: Final = AclPermissionType.ALLOW
SECRET: Final = b"a record of somebody else"
_REFUSED: Final = b"\0\0\0\0" + b"\0\x1d"
"""A partition's index and 29 TOPIC_AUTHORIZATION_FAILED."""


@pytest.fixture(scope="module")
def broker(secured: Secured) -> Secured:
    secured.topics(*OWN, "theirs")
    with RawClient(f"{HOST}:{secured.ports['PLAINTEXT']}") as client:
        client.ask(produce({("theirs", 0): batch(SECRET)}))
    return secured


def hidden(own: bytes, also: bytes, theirs: bytes) -> bytes:
    """A Fetch of two topics: for who steps over announced sizes `own` and `also`, for who reads 16 bytes of a
    directory's id `own` and `theirs`.
    """
    head, _, end = request(b"?").partition(b"?")
    rest = topic(also, partition(0))
    instead = b"\0" + topic(theirs, partition(0)) + end[:-1] + b"\1\x63" + bytes([len(rest) + 4])
    return head[:-1] + b"\3" + topic(own, partition(0, b"\1" + field(0, bytes(16) + instead))) + rest + end


def frame(body: bytes) -> bytes:
    rest = b"\0\1\0\x11" + b"\0\0\0\1" + b"\0\2me" + body
    return len(rest).to_bytes(4, "big") + rest


async def test_a_topic_hidden_in_a_tagged_field_is_not_read(broker: Secured) -> None:
    address = f"{HOST}:{broker.ports['PLAINTEXT']}"
    mine, also, theirs = (by_id.id_of(address, name) for name in (*OWN, "theirs"))
    openly = frame(request(topic(mine.bytes, partition(0)), topic(theirs.bytes, partition(0))))
    smuggled = frame(hidden(mine.bytes, also.bytes, theirs.bytes))
    may_read = [
        AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, USER, "*", AclOperation.READ, _ALLOW)
        for name in OWN
    ]
    with enforced_node(broker) as (virtual, mirror):
        await set_rules(broker, virtual, mirror, may_read)
        async with broker.wire("SASL_PLAINTEXT") as direct:
            await direct.login(PasswordCredentials("PLAIN", "alice", PASSWORD))
            for sent in (openly, smuggled):
                assert theirs.bytes + b"\2" + _REFUSED in await direct.send(sent), "a broker sees who asks"
        reader, writer = await asyncio.open_connection(HOST, virtual.nodes[0].port)
        try:
            through = Wire(reader, writer)
            assert theirs.bytes + b"\2" + _REFUSED in await through.send(openly)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await through.send(smuggled)
        finally:
            writer.close()
