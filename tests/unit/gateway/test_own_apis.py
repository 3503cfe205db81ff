"""The sidecar's own APIs: bodies that are read or refused, frames that are written, what ApiVersions tells of them."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from sidecar.changelog import View
from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.bindings import Bindings
from sidecar.exclusive.owning import TopicOwners
from sidecar.gateway.apis.spec import Route
from sidecar.gateway.apis.table import NOT_SERVED, OWN_APIS
from sidecar.gateway.metadata import ClusterApi
from sidecar.gateway.own import apis, bodies, describe
from sidecar.gateway.own.answers import GrantingRooms
from sidecar.gateway.own.bodies import BadRequestError
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.protocol.api import ApiKey
from sidecar.protocol.api_versions import ClientSoftware, VersionRange
from sidecar.protocol.session import Caller, Session
from sidecar.v1 import control_pb2 as control
from tests.unit.docs.pages import ROOT
from tests.unit.protocol import kio_entities as kio


def received(body: bytes) -> Request:
    """A request with this body behind a header of version 1."""
    head = struct.pack(">hhih", 1003, 0, 7, 3) + b"raw"
    data = bytearray(struct.pack(">i", len(head) + len(body)) + head + body)
    return Request(1003, 0, 7, b"raw", Frame(data, 0, len(data), True), 4 + len(head))


def test_a_body_is_read_as_the_message_it_is():
    asked = control.LastSequenceRequest(topic="orders", producer_name="zähler/1")
    assert bodies.decode(control.LastSequenceRequest, received(asked.SerializeToString())) == asked


def test_an_empty_body_is_a_message_without_fields():
    assert bodies.decode(control.DescribeOwnersRequest, received(b"")) == control.DescribeOwnersRequest()


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05ab", b"\x0a\x01\xff", b"\x0a"])
def test_a_body_that_is_no_message_is_named(body: bytes):
    with pytest.raises(BadRequestError, match=r"no sidecar\.v1\.LastSequenceRequest, see control\.proto"):
        bodies.decode(control.LastSequenceRequest, received(body))


def test_a_body_without_end_is_not_read():
    with pytest.raises(BadRequestError, match="has 1048576 bytes at most, this one 1048577"):
        bodies.decode(control.LastSequenceRequest, received(bytes(bodies.BODY_BYTES + 1)))


def test_an_answer_has_a_header_of_version_0_and_the_message_behind_it():
    answer = control.LastSequenceResponse(last_sequence_ids={0: 4, 1: -1}, last_sequence_id=-1)
    frame = bodies.encode_answer(7, answer)
    assert struct.unpack(">ii", frame[:8]) == (len(frame) - 4, 7)
    assert control.LastSequenceResponse.FromString(frame[8:]) == answer


@pytest.mark.parametrize("name", ["a", "x" * 255, "ä" * 127, "a/b {c}"])
def test_a_name_of_1_to_255_bytes_is_one(name: str):
    bodies.check_name(name)


@pytest.mark.parametrize(("name", "told"), [("", "is empty"), ("x" * 256, "255 bytes"), ("ä" * 128, "255 bytes")])
def test_another_name_is_refused(name: str, told: str):
    with pytest.raises(BadRequestError, match=told):
        bodies.check_name(name)


@pytest.mark.parametrize(
    "resource",
    [
        control.Resource(topic="orders"),
        control.Resource(topic="orders", partition=0),
        control.Resource(name="the leader"),
    ],
)
def test_a_resource_is_a_topic_one_of_its_partitions_or_a_name(resource: control.Resource):
    assert bodies.fault_of(resource) == ""


@pytest.mark.parametrize(
    "resource",
    [
        control.Resource(),
        control.Resource(partition=0),
        control.Resource(topic="orders", name="the leader"),
        control.Resource(topic="orders", partition=-1),
        control.Resource(name="the leader", partition=0),
    ],
)
def test_anything_else_is_none(resource: control.Resource):
    assert bodies.fault_of(resource)


def test_the_table_has_the_five_own_keys():
    assert OWN_APIS.keys() == {ApiKey.OWN, ApiKey.RELEASE, ApiKey.DESCRIBE_OWNERS, ApiKey.LAST_SEQUENCE, ApiKey.WATCH}
    assert not [key for key in NOT_SERVED if key >= 1000]
    said = f"{apis.__doc__}{describe.__doc__}"
    for own in OWN_APIS.values():
        assert (own.first, own.last, own.route) == (0, 0, Route.LOCAL)
        assert not own.is_flexible(0)
        assert f"message {own.name}Request" in (ROOT / "proto/sidecar/v1/control.proto").read_text()
        assert f"{own.name} (0)" in said


class Connection:
    """Takes one answer."""

    def __init__(self) -> None:
        self.answer = b""

    def expect(self, exchange: Exchange) -> None:
        """Not looked at."""

    def answer_ready(self, exchange: Exchange) -> None:
        self.answer = b"".join(exchange.parts or [])


class Client:
    """As much of a client as ApiVersions looks at."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.software = ClientSoftware()
        self.login = None
        self.is_known = True


@pytest.mark.parametrize(
    ("version", "software", "told"),
    [(3, "sidecar-sdk", True), (3, "sidecar", True), (3, "raw", False), (3, "a-sidecar", False), (2, "", False)],
)
def test_own_apis_are_told_to_clients_whose_software_is_ours(version: int, software: str, told: bool):
    upstream = KafkaUpstream([("127.0.0.1", 1)], connect_timeout=1, request_timeout=1)
    cluster = ClusterApi(upstream, NodeDirectory(NodeAddress(1, "127.0.0.1", 19092)), NameResolver(), cast(Any, None))
    cluster.served = [VersionRange(18, 0, 3)]
    fields = {"client_software_name": software, "client_software_version": "1"} if version == 3 else {}
    frame = bytearray(kio.request_frame(kio.entity(18, version, "request")(**fields)))
    client: Any = Client()
    request = Request(18, version, 7, b"tests", Frame(frame, 0, len(frame), True), kio.body_at())
    cluster.handle_api_versions(client, request)
    answer = kio.answer_of(kio.entity(18, version, "response"), client.connection.answer)
    found = {(each.api_key, each.min_version, each.max_version) for each in answer.api_keys}
    assert found == {(18, 0, 3)} | ({(key, 0, 0) for key in range(1000, 1005)} if told else set())


@pytest.mark.parametrize("alive", [True, False])
async def test_a_claim_of_a_client_that_has_gone_keeps_nobody_from_its_producer_id(alive: bool):
    """Its connection ended before its request had its turn: nobody would report the end a second time."""
    bindings = Bindings(View())
    environment = SimpleNamespace(watchers=[], bindings=bindings)
    first_ids = SimpleNamespace(knows_first_id=False)
    nothing: Any = SimpleNamespace(env=environment, is_anothers=lambda *_: False, producers=first_ids)
    rooms = GrantingRooms(nothing, nothing, NameResolver(), nothing, nothing, TopicOwners(nothing))
    own = apis.OwnApis(rooms, nothing, {}, nothing)
    claim = control.Claim(resource=control.Resource(name="the leader"))
    asked = control.OwnRequest(producer_id=7, token=bytes(16), claims=[claim])
    connection: Any = Connection()
    caller = Caller("User:app", "billing")
    client: Any = SimpleNamespace(
        connection=connection, connection_id=1, is_alive=lambda: alive, identity=None, rights=None, caller=caller
    )
    head = received(asked.SerializeToString())

    async def nobody(*_: object) -> control.OwnResponse:
        return control.OwnResponse()

    with patch.object(own.ownerships, "own", nobody):
        await own.handlers()[ApiKey.OWN](client, Exchange(connection, head), head)
    other = bindings.check_claim(Session("pid:7"), Caller("User:app", "payments"))
    assert (other is not None) is alive
