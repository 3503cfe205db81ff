"""What a node forwards unchanged it has read to the last byte, and it has no tagged fields."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked
from sidecar.gateway.apis.spec import Route
from sidecar.gateway.apis.table import APIS
from sidecar.gateway.client import Client
from sidecar.gateway.handler import Apis, Gateway
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.protocol import partitioned, usual_fetch
from sidecar.protocol.api import ApiKey
from sidecar.protocol.api_versions import VersionRange
from sidecar.protocol.messages import groups
from sidecar.protocol.primitives import MalformedFrameError, at_once
from tests.unit.gateway.fetching import Consumer, Hooks
from tests.unit.protocol.test_fetch_tags import MINE, hidden_topic, partition, request, topic

TAGS = b"\1\x63\3abc"
_HEAD = 15
HEARTBEAT = b"\6group" + b"\0\0\0\1" + b"\7member" + b"\0"


def frame_of(key: int, version: int, body: bytes) -> bytes:
    rest = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7" + b"\0\1c" + body
    return len(rest).to_bytes(4, "big") + rest


def request_of(key: int, version: int, body: bytes) -> Request:
    data = b"before" + frame_of(key, version, body)
    return Request(key, version, 7, b"c", Frame(bytearray(data), 6, len(data), True), 6 + _HEAD)


def content(found: Request) -> bytes:
    return bytes(found.frame.buffer[found.frame.start : found.frame.end])


@pytest.mark.parametrize(
    "body",
    [b"\0" + HEARTBEAT + b"\0", TAGS + HEARTBEAT + TAGS, b"\0" + HEARTBEAT + b"\0!", b"\x80\0" + HEARTBEAT + b"\x80\0"],
    ids=["sound", "tagged", "longer", "no tagged fields in two bytes"],
)
def test_a_request_goes_on_with_what_was_read(body: bytes) -> None:
    found = request_of(12, 4, body)
    asyncio.run(asking.read_all(found))
    assert found.is_read
    assert content(found) == frame_of(12, 4, b"\0" + HEARTBEAT + b"\0")
    assert found.frame.buffer[found.body :] == b"\0" + HEARTBEAT + b"\0"


def test_a_request_that_is_sound_is_not_copied() -> None:
    found = request_of(12, 4, b"\0" + HEARTBEAT + b"\0")
    frame = found.frame
    asyncio.run(asking.read_all(found))
    assert found.frame is frame


def test_a_request_that_cannot_be_read_does_not_go_on() -> None:
    found = request_of(12, 4, b"\0" + HEARTBEAT[:-1])
    with pytest.raises(MalformedFrameError):
        asyncio.run(asking.read_all(found))
    assert not found.is_read


@pytest.mark.parametrize(("tags", "is_read"), [(b"\0", True), (TAGS, False)])
def test_reading_the_fields_is_reading_all_if_nothing_was_left_out(tags: bytes, is_read: bool) -> None:
    found = request_of(12, 4, b"\0" + HEARTBEAT + tags)
    fields = asyncio.run(asking.fields(groups.HEARTBEAT, found))
    assert fields["member_id"] == "member"
    assert found.is_read is is_read


def test_a_request_that_was_not_read_is_never_sent() -> None:
    found = request_of(12, 4, b"\0" + HEARTBEAT + b"\0")
    with pytest.raises(AssertionError, match="what the node has not read"):
        Client.send(cast("Any", None), cast("Any", None), found, None)


def test_every_api_that_brokers_answer_can_be_read() -> None:
    """Those of the hot path, of pages of topics, share groups and client metrics read their requests by themselves."""
    own = {0, 1, 2, 21, 23, 71, 72, 75, 78, 79}
    of_brokers = [api for key, api in APIS.items() if api.route is not Route.LOCAL and key not in own]
    assert all(isinstance(api.access, Asked) for api in of_brokers)


def test_a_table_is_walked_without_tagged_fields() -> None:
    element = b"\0\0\0\5" + b"\0\0\0\1" + b"\xff" * 8
    bodies = [
        tags + b"\xff\xff\xff\xff\0" + b"\2" + b"\7orders" + b"\2" + element + tags + tags + tags
        for tags in (TAGS, b"\0")
    ]
    found = request_of(ApiKey.LIST_OFFSETS, 6, bodies[0])
    table = at_once(asking.read_table(found, partitioned.layout_of(ApiKey.LIST_OFFSETS, 6)))
    assert content(found) == frame_of(ApiKey.LIST_OFFSETS, 6, bodies[1])
    assert [found.frame.buffer[part.start : part.end] for part in table.parts] == [element + b"\0"]
    assert found.is_read


class Rejections(Hooks):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def client_rejected(self, _peer: str, _client_id: str, reason: str, _detail: str) -> None:
        self.reasons.append(reason)


class Node:
    """A gateway whose Fetch keeps the frames that it would forward."""

    def __init__(self) -> None:
        self.hooks, self.forwarded = Rejections(), list[bytes]()
        self.gateway = Gateway(cast("Any", None), 1, "boot", 1 << 20, cast("Any", self.hooks))
        self.gateway.serve(Apis({ApiKey.FETCH: self._fetch}, {}), [VersionRange(ApiKey.FETCH, 4, 18)])

    def _fetch(self, _client: Client, found: Request) -> None:
        usual_fetch.walk(found.frame.buffer, found.body, found.frame.end, found.version, {MINE: b"mine"})
        self.forwarded.append(content(found))


async def sent(*bodies: bytes) -> Node:
    node = Node()
    consumer = Consumer(cast("Any", node))
    consumer.sends(b"".join(frame_of(ApiKey.FETCH, 17, body) for body in bodies))
    return node


def test_a_hot_request_goes_on_without_tagged_fields() -> None:
    plain = request(topic(MINE, partition(3)))
    tagged = request(topic(MINE, partition(3, TAGS), tags=TAGS), tags=TAGS, header=TAGS)
    node = asyncio.run(sent(plain, tagged, plain))
    assert node.forwarded == [frame_of(ApiKey.FETCH, 17, plain)] * 3
    assert node.hooks.reasons == []


def test_a_hot_request_that_hides_a_topic_ends_the_connection_with_one_event() -> None:
    node = asyncio.run(sent(hidden_topic(), request(topic(MINE, partition(3)))))
    assert node.forwarded == []
    assert node.hooks.reasons == ["malformed"]
