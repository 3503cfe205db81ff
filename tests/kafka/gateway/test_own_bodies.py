"""Whatever is in the body of one of the sidecar's own requests, it is answered, and the connection goes on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sidecar.gateway.apis.table import OWN_APIS
from sidecar.v1 import control_pb2 as control
from tests.nodes import running_node
from tests.raw import RawClient
from tests.services import Services

ASKED = {key: getattr(control, f"{api.name}Request") for key, api in OWN_APIS.items()}
ANSWERED = {key: getattr(control, f"{api.name}Response") for key, api in OWN_APIS.items()}
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
SHORT = st.text(max_size=8) | st.sampled_from(["orders", "leader", "x" * 256, "x" * 1_025, "__consumer_offsets"])
TOKENS = st.binary(min_size=16, max_size=16) | st.binary(max_size=17)


def _resource(**fields: Any) -> control.Resource:
    return control.Resource(**fields)


def resources() -> st.SearchStrategy[control.Resource]:
    fields = {"topic": SHORT, "name": SHORT, "partition": st.none() | st.sampled_from([0, -1]) | INT32}
    return st.builds(_resource, **fields)


def requests() -> st.SearchStrategy[Message]:
    """Messages of the right kind with any values; nothing waits, as the next one would wait behind it."""
    claims = st.builds(
        lambda resource, generation: control.Claim(resource=resource, generation=generation),
        resources(),
        st.none() | st.sampled_from([0, 1, -1]) | INT64,
    )
    own = st.builds(
        lambda claims, **given: control.OwnRequest(claims=claims, **given),
        st.lists(claims, max_size=3),
        group=SHORT,
        mode=INT32 | st.sampled_from(control.AccessMode.values()),
        producer_name=SHORT,
        token=TOKENS,
        wait_ms=st.sampled_from([0, 1, -1, -(2**31)]),
        producer_id=INT64 | st.sampled_from([-1, 0, -2]),
    )
    some = st.lists(resources(), max_size=3)
    release = st.builds(
        lambda some, **given: control.ReleaseRequest(resources=some, **given), some, group=SHORT, token=TOKENS
    )
    describe = st.builds(lambda some, group: control.DescribeOwnersRequest(resources=some, group=group), some, SHORT)
    last = st.builds(lambda topic, name: control.LastSequenceRequest(topic=topic, producer_name=name), SHORT, SHORT)
    watch = st.builds(
        lambda token, wait_ms: control.WatchRequest(token=token, wait_ms=wait_ms), TOKENS, st.sampled_from([0, -1])
    )
    return own | release | describe | last | watch


def spoiled(data: bytes, at: int, bits: int) -> bytes:
    """One byte of it changed, or where it has none of it the end cut off."""
    if not data:
        return b"\xff"
    at %= len(data)
    return data[:at] if not bits else bytes([*data[:at], data[at] ^ bits, *data[at + 1 :]])


@pytest.fixture(scope="module")
def client(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    """One connection to a node whose topics are few: none is created by a question."""
    with (
        running_node(tmp_path_factory.mktemp("node"), services.kafka_bootstrap, services.redis_url) as node,
        RawClient(node.bootstrap) as raw,
    ):
        yield raw


def ask(client: RawClient, key: int, body: bytes) -> Any:
    """The answer, of the kind that belongs to the key. Raises `ClosedError` where the node hangs up."""
    head = struct.pack(">hhih", key, 0, 7, -1)
    client.send_bytes(struct.pack(">i", len(head) + len(body)) + head + body)
    frame = client.receive_frame()
    assert frame[4:8] == struct.pack(">i", 7)
    return ANSWERED[key].FromString(frame[8:])


def check(client: RawClient, key: int, body: bytes) -> None:
    """It is answered, as INVALID_REQUEST where it is no message, and an error has a message of its own."""
    answer = ask(client, key, body)
    assert answer.error in control.Error.values()
    assert bool(answer.message) == (answer.error != control.NONE)
    try:
        ASKED[key].FromString(body)
    except DecodeError:
        assert answer.error == control.INVALID_REQUEST
    for each in getattr(answer, "ownerships", ()):
        assert each.error in control.Error.values()


endlessly = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)


@pytest.mark.parametrize("key", OWN_APIS)
@endlessly
@given(body=st.binary(max_size=200))
@example(body=b"")
@example(body=b"\xff" * 64)
@example(body=bytes(1 << 10))
def test_arbitrary_bytes_are_answered(client: RawClient, key: int, body: bytes) -> None:
    check(client, key, body)


@pytest.mark.parametrize("key", OWN_APIS)
@endlessly
@given(request_=requests(), at=st.integers(0, 1 << 12), bits=st.integers(0, 255))
def test_a_request_with_any_values_whole_or_spoiled_is_answered(
    client: RawClient, key: int, request_: Message, at: int, bits: int
) -> None:
    """Of another kind than the key's too."""
    whole = request_.SerializeToString()
    check(client, key, whole)
    body = spoiled(whole, at, bits)
    if not _waits(key, body):
        check(client, key, body)


def _waits(key: int, body: bytes) -> bool:
    try:
        message = ASKED[key].FromString(body)
    except DecodeError:
        return False
    return getattr(message, "wait_ms", 0) > 1_000


def test_a_body_beyond_the_limit_is_answered(client: RawClient) -> None:
    for key in OWN_APIS:
        ask(client, key, b"")  # a first frame may not be as long
        answer = ask(client, key, bytes(1024 * 1024 + 1))
        assert answer.error == control.INVALID_REQUEST
        assert "1048576 bytes at most" in answer.message
