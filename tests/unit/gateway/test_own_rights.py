"""What the sidecar's own requests tell a client that may not know of it: as much as of what is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.gateway.own import describe
from sidecar.gateway.own.describe import DescribeOwnersApi, LastSequenceApi
from sidecar.gateway.owners import Standing
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import no_topic
from sidecar.protocol.primitives import I32
from sidecar.security.acls import Operation, ResourceType
from sidecar.v1 import control_pb2 as control
from tests.unit.gateway.test_access import rights, rule
from tests.unit.gateway.test_own_apis import Connection

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from sidecar.gateway.rights import Rights

SEEN = rule(Operation.DESCRIBE, "seen")


async def nothing() -> None:
    pass


async def asked(api: Any, body: Message, allowed: Rights | None) -> bytes:
    connection: Any = Connection()
    frame = bytearray(body.SerializeToString())
    request = Request(1002, 0, 7, b"tests", Frame(frame, 0, len(frame), True), 0)
    exchange = Exchange(connection, request)
    connection.error_answered = lambda *_: None
    await api.handle(SimpleNamespace(rights=allowed, listener="PLAINTEXT"), exchange, request)
    return connection.answer[2 * I32.size :]


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> DescribeOwnersApi:
    """Two governed topics, `seen` and `hidden`; a coordinator without claims."""
    there = {name: SimpleNamespace(name=name, partitions=[SimpleNamespace(partition=0)]) for name in ("seen", "hidden")}

    async def metadata(request: Any) -> Any:
        return SimpleNamespace(topics=[there[name] for name in request.topics or there])

    monkeypatch.setattr(describe, "standing", lambda *_: Standing(True, False, 4, {}, {}, (), None))
    upstream: Any = SimpleNamespace(metadata=metadata)
    governed: Any = SimpleNamespace(policy_of=lambda _: object())
    coordinator: Any = SimpleNamespace(state=SimpleNamespace(claimed=lambda _: []))
    whole: Any = SimpleNamespace(now=nothing)
    return DescribeOwnersApi(upstream, SimpleNamespace(), governed, coordinator, whole)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("allowed", "told"), [(None, ["hidden", "seen"]), (rights(SEEN), ["seen"]), (rights(), [])])
async def test_owners_are_told_of_topics_that_a_client_may_describe(
    owners: DescribeOwnersApi, allowed: Rights | None, told: list[str]
) -> None:
    answer = control.DescribeOwnersResponse.FromString(await asked(owners, control.DescribeOwnersRequest(), allowed))
    assert [each.resource.topic for each in answer.ownerships] == told


async def test_a_topic_that_may_not_be_described_is_not_told_from_one_that_is_not_there(
    owners: DescribeOwnersApi,
) -> None:
    request = control.DescribeOwnersRequest(resources=[control.Resource(topic=name) for name in ("seen", "hidden")])
    answer = control.DescribeOwnersResponse.FromString(await asked(owners, request, rights(SEEN)))
    assert [each.error for each in answer.ownerships] == [control.NONE, control.UNKNOWN_RESOURCE]
    assert answer.ownerships[1].message == no_topic("hidden")


async def test_the_claims_of_a_group_take_the_right_to_describe_it(owners: DescribeOwnersApi) -> None:
    request = control.DescribeOwnersRequest(group="readers")
    refused = control.DescribeOwnersResponse.FromString(await asked(owners, request, rights()))
    assert refused.error == control.NOT_AUTHORIZED
    may = rights(rule(Operation.DESCRIBE, "readers", ResourceType.GROUP))
    assert control.DescribeOwnersResponse.FromString(await asked(owners, request, may)).error == control.NONE


async def test_the_claims_of_a_group_are_told_without_topics_that_may_not_be_described(
    owners: DescribeOwnersApi,
) -> None:
    places = [control.Resource(topic="seen", partition=0), control.Resource(topic="hidden"), control.Resource(name="s")]
    state: Any = owners._coordinator.state  # pyright: ignore[reportPrivateUsage]
    state.claimed = lambda _: places
    state.describe = lambda some: (
        [control.Ownership(resource=place, owner_session="conn:1") for place in some],
        [control.Waiting(resource=place) for place in some],
    )
    may = rights(rule(Operation.DESCRIBE, "readers", ResourceType.GROUP), SEEN)
    answer = await asked(owners, control.DescribeOwnersRequest(group="readers"), may)
    told = control.DescribeOwnersResponse.FromString(answer)
    assert [each.resource for each in told.ownerships] == [places[0], places[2]]
    assert [each.resource for each in told.waiting] == [places[0], places[2]]


async def test_nobody_has_the_ids_of_a_topic_read_that_he_may_not_describe() -> None:
    async def of(*_: object) -> NoReturn:
        raise AssertionError("the topic was taken over")

    ids: Any = SimpleNamespace(of=of)
    request = control.LastSequenceRequest(topic="hidden", producer_name="me")
    answer = control.LastSequenceResponse.FromString(
        await asked(LastSequenceApi(ids, NodeDirectory(NodeAddress(1, "here", 1))), request, rights(SEEN))
    )
    assert (answer.error, answer.message) == (control.UNKNOWN_RESOURCE, no_topic("hidden"))
