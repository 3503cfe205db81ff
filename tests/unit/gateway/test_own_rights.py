"""What the sidecar's own requests tell a client that may not know of it: as much as of what is not there."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast
from unittest.mock import AsyncMock
from uuid import UUID

import pytest

from metadata.ownership import AccessMode
from sidecar.changelog import claim_key, claimed
from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import NameResolver, Source
from sidecar.exclusive.owning import TopicOwners
from sidecar.gateway.own import answers, describe
from sidecar.gateway.own.answers import GrantingRooms
from sidecar.gateway.own.apis import OwnApis
from sidecar.gateway.own.bodies import serve
from sidecar.gateway.own.describe import describe_owners, last_sequence
from sidecar.gateway.owners import OwnerAnswer, Standing
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.protocol.api import ApiKey
from sidecar.protocol.errors import no_topic
from sidecar.protocol.primitives import I32
from sidecar.protocol.session import Caller
from sidecar.security.acls import Operation, ResourceType
from sidecar.v1 import control_pb2 as control
from tests.unit.gateway.test_access import ALICE, rights, rule
from tests.unit.gateway.test_own_apis import Connection

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from sidecar.gateway.rights import Rights

SEEN = rule(Operation.DESCRIBE, "seen")
EVERYTHING = rule(Operation.ALL, "*"), rule(Operation.ALL, "*", ResourceType.GROUP)


async def nothing() -> None:
    pass


def with_shadow(name: str) -> NameResolver:
    """A resolver with a shadow that only bob may read."""
    resolver = NameResolver()
    resolver.set_shadows({name.encode(): Source(b"source", UUID(int=1), frozenset({"User:bob"}))})
    return resolver


async def asked(handle: Any, body: Message, allowed: Rights | None) -> bytes:
    connection: Any = Connection()
    frame = bytearray(body.SerializeToString())
    request = Request(1002, 0, 7, b"tests", Frame(frame, 0, len(frame), True), 0)
    exchange = Exchange(connection, request)
    connection.error_answered = lambda *_: None
    caller = Caller(ALICE, "tests")
    client = SimpleNamespace(rights=allowed, listener="PLAINTEXT", principal=ALICE, identity=None, caller=caller)
    await handle(client, exchange, request)
    return connection.answer[2 * I32.size :]


def describing(owners: GrantingRooms) -> Any:
    answer = partial(describe_owners, owners, cast(Any, SimpleNamespace(now=nothing)))
    return partial(serve, control.DescribeOwnersRequest, control.DescribeOwnersResponse, answer)


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> GrantingRooms:
    """Two governed topics, `seen` and `hidden`; a coordinator without claims."""
    there = {name: SimpleNamespace(name=name, partitions=[SimpleNamespace(partition=0)]) for name in ("seen", "hidden")}

    async def metadata(request: Any) -> Any:
        return SimpleNamespace(topics=[there[name] for name in request.topics or there])

    monkeypatch.setattr(describe, "standing", lambda *_: Standing(True, False, 4, {}, {}, (), None))
    upstream: Any = SimpleNamespace(metadata=metadata)
    governed: Any = SimpleNamespace(env=SimpleNamespace(policy_of=lambda _: object()))
    coordinator: Any = SimpleNamespace(claimed=AsyncMock(return_value=[]))
    nobody: Any = SimpleNamespace()
    return GrantingRooms(upstream, nobody, NameResolver(), governed, coordinator, nobody)


@pytest.mark.parametrize(("allowed", "told"), [(None, ["hidden", "seen"]), (rights(SEEN), ["seen"]), (rights(), [])])
async def test_owners_are_told_of_topics_that_a_client_may_describe(
    owners: GrantingRooms, allowed: Rights | None, told: list[str]
) -> None:
    answer = control.DescribeOwnersResponse.FromString(
        await asked(describing(owners), control.DescribeOwnersRequest(), allowed)
    )
    assert [each.resource.topic for each in answer.ownerships] == told


async def test_a_topic_that_may_not_be_described_is_not_told_from_one_that_is_not_there(
    owners: GrantingRooms,
) -> None:
    request = control.DescribeOwnersRequest(resources=[control.Resource(topic=name) for name in ("seen", "hidden")])
    answer = control.DescribeOwnersResponse.FromString(await asked(describing(owners), request, rights(SEEN)))
    assert [each.error for each in answer.ownerships] == [control.NONE, control.UNKNOWN_RESOURCE]
    assert answer.ownerships[1].message == no_topic("hidden")


async def test_the_claims_of_a_group_take_the_right_to_describe_it(owners: GrantingRooms) -> None:
    request = control.DescribeOwnersRequest(group="readers")
    refused = control.DescribeOwnersResponse.FromString(await asked(describing(owners), request, rights()))
    assert refused.error == control.NOT_AUTHORIZED
    may = rights(rule(Operation.DESCRIBE, "readers", ResourceType.GROUP))
    assert (
        control.DescribeOwnersResponse.FromString(await asked(describing(owners), request, may)).error == control.NONE
    )


async def test_the_claims_of_a_group_are_told_without_topics_that_may_not_be_described(
    owners: GrantingRooms,
) -> None:
    places = [control.Resource(topic="seen", partition=0), control.Resource(topic="hidden"), control.Resource(name="s")]
    coordinator: Any = owners.coordinator
    coordinator.claimed = AsyncMock(return_value=[claim_key("readers", place) for place in places])
    coordinator.owner = lambda key: control.Ownership(resource=claimed(key)[1], owner_session="conn:1")
    coordinator.queue = lambda key: [control.Waiting(resource=claimed(key)[1])]
    may = rights(rule(Operation.DESCRIBE, "readers", ResourceType.GROUP), SEEN)
    answer = await asked(describing(owners), control.DescribeOwnersRequest(group="readers"), may)
    told = control.DescribeOwnersResponse.FromString(answer)
    assert [each.resource for each in told.ownerships] == [places[0], places[2]]
    assert [each.resource for each in told.waiting] == [places[0], places[2]]


async def test_nobody_has_the_ids_of_a_topic_read_that_he_may_not_describe() -> None:
    async def of(*_: object) -> NoReturn:
        raise AssertionError("the topic was taken over")

    ids: Any = SimpleNamespace(of=of)
    request = control.LastSequenceRequest(topic="hidden", producer_name="me")
    nodes = NodeDirectory(NodeAddress(1, "here", 1))
    for resolver, allowed in ((NameResolver(), rights(SEEN)), (with_shadow("hidden"), rights(*EVERYTHING))):
        last = partial(last_sequence, ids, nodes, resolver)
        answer = control.LastSequenceResponse.FromString(
            await asked(
                partial(serve, control.LastSequenceRequest, control.LastSequenceResponse, last), request, allowed
            )
        )
        assert (answer.error, answer.message) == (control.UNKNOWN_RESOURCE, no_topic("hidden"))


_BOB = OwnerAnswer("bob", "pid:5", AccessMode.EXCLUSIVE, 0, "", 3)
OWNED = Standing(True, False, 3, {None: _BOB}, {}, (), 1)


def own_apis(resolver: NameResolver) -> OwnApis:
    """A node that serves what bob owns: every topic, and the claims of every group."""
    ownership = control.Ownership(owner_name="bob's reader", owner_session="pid:6", generation=4, serving_node=1)
    coordinator: Any = SimpleNamespace(owner=lambda _: ownership, coordinates=True)
    first_ids = SimpleNamespace(knows_first_id=False)
    governed: Any = SimpleNamespace(env=SimpleNamespace(watchers=[], node_id=1), producers=first_ids)
    nothing: Any = SimpleNamespace()
    return OwnApis(
        GrantingRooms(nothing, nothing, resolver, governed, coordinator, TopicOwners(governed)), nothing, {}, nothing
    )


async def test_a_release_without_a_token_names_no_owner_to_whom_it_may_not_be_described(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "standing", lambda *_, **__: OWNED)
    topic = control.ReleaseRequest(resources=[control.Resource(topic="hidden")])
    group = control.ReleaseRequest(group="readers", resources=[control.Resource(topic="seen")])
    may = rights(SEEN, rule(Operation.DESCRIBE, "readers", ResourceType.GROUP))
    for request, allowed, resolver, error in (
        (topic, rights(SEEN), NameResolver(), control.NONE),
        (topic, rights(*EVERYTHING), with_shadow("hidden"), control.NONE),
        (topic, rights(*EVERYTHING), NameResolver(), control.HELD),
        (topic, None, NameResolver(), control.HELD),
        (group, rights(SEEN), NameResolver(), control.NONE),
        (group, may, NameResolver(), control.HELD),
    ):
        release = own_apis(resolver).handlers()[ApiKey.RELEASE]
        answer = control.ReleaseResponse.FromString(await asked(release, request, allowed))
        assert answer.error == error
        assert ("bob" in answer.message) is (error == control.HELD)


async def test_a_shadow_of_others_is_refused_to_a_claim_as_a_topic_without_rights_is() -> None:
    claim = control.Claim(resource=control.Resource(topic="hidden"))
    request = control.OwnRequest(group="readers", claims=[claim], token=bytes(16), producer_id=7)
    said: set[tuple[int, str]] = set()
    for resolver, allowed in ((NameResolver(), rights(EVERYTHING[1])), (with_shadow("hidden"), rights(*EVERYTHING))):
        own = own_apis(resolver).handlers()[ApiKey.OWN]
        answer = control.OwnResponse.FromString(await asked(own, request, allowed))
        said.add((answer.error, answer.message))
    assert said == {(control.NOT_AUTHORIZED, "Kafka's ACLs do not allow it: hidden in group readers")}
