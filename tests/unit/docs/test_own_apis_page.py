"""docs/reference/own-apis.md says what control.proto says, and its frames are what a node reads and writes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from sidecar.gateway.apis.table import OWN_APIS
from sidecar.gateway.own import asked, bodies, sets
from sidecar.network.client import FIRST_FRAME_LIMIT, ClientConnection
from sidecar.network.request import Exchange, Request
from sidecar.resources import sessions
from sidecar.resources.limits import CHANGE_RECORDS, CLAIMS_LIMIT, PLACES_LIMIT
from sidecar.v1 import control_pb2 as control
from tests.unit.docs.pages import ROOT, page
from tests.unit.network.peers import feed

PAGE = page("docs/reference/own-apis.md")
PROTO = (ROOT / "proto/sidecar/v1/control.proto").read_text(encoding="utf-8")
MESSAGES = dict(control.DESCRIPTOR.message_types_by_name)
ENUMS = dict(control.DESCRIPTOR.enum_types_by_name)


def table(name: str) -> list[list[str]]:
    """The rows of the table whose first column is called so."""
    found = re.search(rf"^\| {name} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE.prose, re.MULTILINE)
    assert found is not None, f"the page has no table of {name}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[1].splitlines()]


def type_of(field: FieldDescriptor) -> str:
    """As control.proto writes it."""
    kind = field.message_type or field.enum_type
    name = kind.name if kind is not None else _SCALARS[field.type]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (type_of(field.message_type.fields_by_name[part]) for part in ("key", "value"))
        return f"map<{key}, {value}>"
    if field.is_repeated:
        return f"repeated {name}"
    alone = field.message_type is None and field.has_presence
    return f"optional {name}" if alone else name


_SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_the_page_has_every_field_of_a_message(message: Descriptor) -> None:
    told = [(name, int(number), kind) for name, number, kind, *_ in table(message.name)]
    assert told == [(f"`{field.name}`", field.number, type_of(field)) for field in message.fields]


@pytest.mark.parametrize("enum", ENUMS.values(), ids=ENUMS)
def test_the_page_has_every_value_of_an_enum(enum: Any) -> None:
    told = [(name, int(number)) for name, number, *_ in table(enum.name)]
    assert told == [(f"`{value.name}`", value.number) for value in enum.values]


def test_the_types_of_the_page_are_those_that_control_proto_writes() -> None:
    for message in MESSAGES.values():
        for field in message.fields:
            assert f"{type_of(field)} {field.name} = {field.number};" in PROTO


def test_every_key_stands_on_the_page() -> None:
    told = {int(key): re.sub(r"\[(\w+)\]\(.*\)", r"\1", name) for key, name, *_ in table("key")}
    assert told == {key: api.name for key, api in OWN_APIS.items()}


# Frames ---------------------------------------------------------------------------------------------------------------


class Requests:
    """Takes what a connection reads."""

    def __init__(self) -> None:
        self.received: list[Request] = []

    def request_received(self, connection: ClientConnection, request: Request) -> None:
        request.own()
        self.received.append(request)

    def exchange_done(self, exchange: Exchange, answer_bytes: int) -> None:
        """None is answered."""


def frame(name: str) -> bytes:
    """The bytes of a block; what stands behind # is for people."""
    [block] = [block for block in PAGE.blocks if block.comment == f"hex {name}"]
    return bytes.fromhex(" ".join(line.split("#")[0] for line in block.text.splitlines()))


def test_the_request_of_the_page_is_read_as_it_is_explained() -> None:
    data, requests = bytearray(frame("OwnRequest")), Requests()
    handler: Any = requests
    feed(ClientConnection(handler, 1, 1 << 20), bytes(data))
    [head] = requests.received
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert (head.key, head.version, head.correlation_id, head.client_id) == (1000, 0, 7, b"own-client")
    assert bodies.decode(control.OwnRequest, head) == control.OwnRequest(
        claims=[control.Claim(resource=control.Resource(name="leader"))],
        mode=control.WAIT_FOR_EXCLUSIVE,
        producer_name="billing-1",
        token=bytes.fromhex("5f1c0a9e3b7d4e2188c6f0d2a4b91e37"),
        wait_ms=5000,
        producer_id=-1,
    )


def test_the_answer_of_the_page_is_what_a_node_writes() -> None:
    owned = control.Ownership(
        resource=control.Resource(name="leader"),
        generation=1,
        owner_name="billing-1",
        owner_session="conn:1-3f9a17c2-7",
        serving_node=1,
        since_ms=1_767_225_600_000,
        fencing_token=1_767_225_000_000_057,
    )
    answer = control.OwnResponse(ownerships=[owned], producer_name="billing-1")
    assert bodies.encode_answer(7, answer) == frame("OwnResponse")


@pytest.mark.parametrize("name", ["OwnRequest", "OwnResponse"])
def test_a_frame_is_explained_as_the_bytes_are(name: str) -> None:
    """Numbers that a line names: of fields, of bytes."""
    [block] = [block for block in PAGE.blocks if block.comment == f"hex {name}"]
    lines = [line.split("#") for line in block.text.splitlines() if "#" in line]
    for raw, told in lines:
        data = bytes.fromhex(raw)
        if found := re.search(r"^\s*field (\d+), (\w+)", told):
            assert data[0] >> 3 == int(found[1]), told
        if found := re.search(r"of (\d+) bytes$", told):
            assert data[1] == int(found[1]), told
        if found := re.search(r"^ (\d+) bytes follow", told):
            assert int.from_bytes(data, "big") == int(found[1]), told


# Limits ---------------------------------------------------------------------------------------------------------------


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    limits = " ".join(" ".join(row) for row in table("what"))
    sizes = (bodies.BODY_BYTES, bodies.RESOURCES, bodies.NAME_BYTES, bodies.STRING_BYTES, asked.TOKEN_BYTES)
    many = (
        CLAIMS_LIMIT,
        PLACES_LIMIT,
        CHANGE_RECORDS,
        sets.TICKETS,
        sets.TICKETS_OF_ONE,
        sessions.SESSIONS_LIMIT,
    )
    for number in (*sizes, *many, asked.LONGEST_WAIT_MS, FIRST_FRAME_LIMIT):
        assert f"{number:,}" in limits
