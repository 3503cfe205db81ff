"""The generated tables against kio, in every version: the same fields, the same bytes; and they are current."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.gateway.apis.table import APIS
from sidecar.protocol import calls
from sidecar.protocol.caller import Request
from sidecar.protocol.messages import (
    admin,
    cluster,
    groups,
    logs,
    new_groups,
    security,
    shares,
    telemetry,
    transactions,
)
from sidecar.protocol.primitives import MalformedFrameError
from sidecar.protocol.schema import TAGS, Message
from tests.unit.protocol import kio_entities as kio
from tests.unit.protocol.examples import examples
from tools import messages as tool

TABLES = {package: last for _, apis in tool.MODULES.values() for package, last in apis.items()}
MESSAGES: dict[int, Message] = {
    found.key: found
    for module in (admin, cluster, groups, logs, new_groups, security, shares, telemetry, transactions)
    for found in vars(module).values()
    if isinstance(found, Message)
}
VERSIONS = [
    (key, version) for key in sorted(MESSAGES) for version in tool.known(kio.PACKAGES[key], TABLES[kio.PACKAGES[key]])
]
every_version = pytest.mark.parametrize(
    ("key", "version"), VERSIONS, ids=[f"{kio.PACKAGES[key]}-{version}" for key, version in VERSIONS]
)
FLEXIBLE = [(key, version) for key, version in VERSIONS if version >= MESSAGES[key].flexible]
_OF_TOMORROW = b"\x01\x90\x4e\x03new"
"""One tagged field: number 10,000, of three bytes."""
WITHOUT_KIO = {(29, 0), (30, 0), (31, 0), (32, 0), (35, 0)}
"""The APIs of ACLs, DescribeConfigs and DescribeLogDirs v0 left Kafka with 4.0, and kio: see the tests of their own."""


def decode(message: Message, side: str, frame: bytes, version: int) -> dict[str, Any]:
    if side == "request":
        return message.decode_request(frame, kio.body_at(), len(frame), version)
    return message.decode_answer(frame, 0, len(frame), version)


def encode(message: Message, side: str, version: int, values: dict[str, Any]) -> bytes:
    if side == "request":
        return message.encode_request(version, 7, b"tests", values)
    return message.encode_answer(version, 7, values)


def frame_of(side: str, entity: Any) -> bytes:
    return kio.request_frame(entity) if side == "request" else kio.answer_frame(entity)


def plain(value: Any) -> Any:
    """A value of kio's as a number or bytes."""
    if isinstance(value, dt.timedelta):
        return round(value / dt.timedelta(milliseconds=1))
    if isinstance(value, dt.datetime):
        return round((value - dt.datetime.fromtimestamp(0, dt.UTC)) / dt.timedelta(milliseconds=1))
    if isinstance(value, enum.Enum):
        return value.value
    return value.bytes if hasattr(value, "hex") and hasattr(value, "bytes") else value


def assert_same(values: dict[str, Any], entity: Any) -> None:
    """Every untagged field of kio's is in `values` under Kafka's name, with the same value, and nothing else is."""
    left = set(values) - {TAGS}
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            continue
        name = field.name.removeprefix("v3_and_below_").removesuffix("_v3_and_below")
        name = name if name in values else name + "_ms"
        found, expected = values[name], getattr(entity, field.name)
        left.discard(name)
        if isinstance(expected, tuple):
            assert len(found) == len(expected)
            for mine, theirs in zip(found, expected, strict=True):
                if dataclasses.is_dataclass(theirs):
                    assert_same(mine, theirs)
                else:
                    assert mine == plain(theirs)
        elif dataclasses.is_dataclass(expected):
            assert_same(found, expected)
        else:
            assert found == plain(expected), name
    assert not left


@pytest.mark.parametrize("name", tool.MODULES)
def test_a_generated_module_is_current(name: str) -> None:
    assert (tool.TARGET / f"{name}.py").read_text(encoding="utf-8") == tool.module(name), "make messages"


def test_every_table_is_generated() -> None:
    assert {path.stem for path in tool.TARGET.glob("*.py")} == {*tool.MODULES, "__init__", "by_key"}
    assert {kio.PACKAGES[key] for key in MESSAGES} == set(TABLES)


def test_every_version_served_is_checked_here() -> None:
    tabled = MESSAGES.keys() & APIS.keys()
    served = {(key, version) for key in tabled for version in range(APIS[key].first, APIS[key].last + 1)}
    assert served - set(VERSIONS) == WITHOUT_KIO


def test_every_version_that_the_node_itself_asks_in_is_checked_here() -> None:
    asked = {
        (each.api_key, each.api_version)
        for module in iter_modules(calls.__path__, f"{calls.__name__}.")
        for each in vars(import_module(module.name)).values()
        if isinstance(each, type) and issubclass(each, Request) and hasattr(each, "api_key")
    }
    assert {found for found in asked if found[0] in MESSAGES} <= set(VERSIONS)


@every_version
def test_the_flexible_versions_are_those_of_the_definitions(key: int, version: int) -> None:
    assert kio.is_flexible(kio.entity(key, version, "request")) == (version >= MESSAGES[key].flexible)
    assert key not in APIS or APIS[key].is_flexible(version) == (version >= MESSAGES[key].flexible)


@pytest.mark.parametrize("side", ["request", "response"])
@every_version
@examples(4)
@given(data=st.data())
def test_what_kio_wrote_is_read_and_written_again_byte_for_byte(
    key: int, version: int, side: str, data: st.DataObject
) -> None:
    entity = data.draw(kio.messages(kio.entity(key, version, side)))
    frame = frame_of(side, entity)
    values = decode(MESSAGES[key], side, frame, version)
    assert_same(values, entity)
    assert encode(MESSAGES[key], side, version, values) == frame


def tagged(value: Any) -> Any:
    """With a tagged field that Kafka does not have yet, in each record."""
    if isinstance(value, list):
        return [tagged(each) for each in value]
    if isinstance(value, dict):
        return {name: tagged(each) for name, each in value.items()} | {TAGS: _OF_TOMORROW}
    return value


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize(("key", "version"), FLEXIBLE, ids=[f"{kio.PACKAGES[key]}-{at}" for key, at in FLEXIBLE])
@examples(2)
@given(data=st.data())
def test_a_tagged_field_of_tomorrow_goes_on_with_the_record_of_an_answer_that_has_it(
    key: int, version: int, side: str, data: st.DataObject
) -> None:
    """KIP-482. Not with a request: a broker that knows the field may read it otherwise than a node that does not."""
    entity = data.draw(kio.messages(kio.entity(key, version, side)))
    plain = decode(MESSAGES[key], side, frame_of(side, entity), version)
    values = tagged(plain)
    expected = plain if side == "request" else values
    assert decode(MESSAGES[key], side, encode(MESSAGES[key], side, version, values), version) == expected


@pytest.mark.parametrize("side", ["request", "response"])
@every_version
@examples(2)
@given(data=st.data())
def test_a_frame_cut_off_anywhere_is_malformed(key: int, version: int, side: str, data: st.DataObject) -> None:
    frame = frame_of(side, data.draw(kio.messages(kio.entity(key, version, side))))
    for size in range(kio.body_at() if side == "request" else 8, len(frame)):
        with pytest.raises(MalformedFrameError):
            decode(MESSAGES[key], side, frame[:size], version)
    with pytest.raises(MalformedFrameError):
        decode(MESSAGES[key], side, frame + b"\0", version)


@every_version
@examples(4)
@given(data=st.data())
def test_no_damaged_request_raises_anything_but_malformed(key: int, version: int, data: st.DataObject) -> None:
    frame = bytearray(kio.request_frame(data.draw(kio.messages(kio.entity(key, version, "request")))))
    at = data.draw(st.integers(kio.body_at(), len(frame)))
    frame[at : at + 4] = data.draw(st.binary(min_size=1, max_size=6))
    try:
        values = MESSAGES[key].decode_request(frame, kio.body_at(), len(frame), version)
    except MalformedFrameError:
        return
    again = MESSAGES[key].encode_request(version, 7, b"tests", values)
    assert MESSAGES[key].decode_request(again, kio.body_at(), len(again), version) == values


def test_log_directories_have_the_same_fields_in_versions_0_and_1() -> None:
    answer = {"results": [{"log_dir": "/data", "topics": [{"name": "orders", "partitions": [{"offset_lag": 5}]}]}]}
    assert admin.DESCRIBE_LOG_DIRS.encode_answer(0, 7, answer) == admin.DESCRIBE_LOG_DIRS.encode_answer(1, 7, answer)


def test_configurations_in_version_0_say_whether_they_are_defaults() -> None:
    head = b"\0\0\0\x07" + b"\0\0\0\0" + b"\0\0\0\x01" + b"\0\0" + b"\xff\xff" + b"\x02" + b"\0\x01t"
    config = b"\0\x01a" + b"\0\x01b" + b"\0" + b"\x01" + b"\0"  # name, value, read-only, default, sensitive
    rest = head + b"\0\0\0\x01" + config
    frame = len(rest).to_bytes(4, "big") + rest
    values = admin.DESCRIBE_CONFIGS.decode_answer(frame, 0, len(frame), 0)
    assert values["results"][0]["configs"] == [
        {"name": "a", "value": "b", "read_only": False, "is_default": True, "is_sensitive": False}
    ]
    assert admin.DESCRIBE_CONFIGS.encode_answer(0, 7, values) == frame


def test_rules_in_version_0_have_no_kind_of_pattern() -> None:
    acl = b"\0\x06User:a" + b"\0\x01*" + b"\x03" + b"\x03"  # principal, host, operation, permission
    resource = b"\x02" + b"\0\x01t" + b"\0\0\0\x01" + acl
    rest = b"\0\0\0\x07" + b"\0\0\0\0" + b"\0\0" + b"\xff\xff" + b"\0\0\0\x01" + resource
    frame = len(rest).to_bytes(4, "big") + rest
    values = security.DESCRIBE_ACLS.decode_answer(frame, 0, len(frame), 0)
    rule = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    assert values["resources"] == [{"resource_type": 2, "resource_name": "t", "acls": [rule]}]
    assert security.DESCRIBE_ACLS.encode_answer(0, 7, values) == frame


def test_an_error_code_and_a_tag_that_nobody_here_knows_survive() -> None:
    body = b"\0\0\0\0" + b"\x7f\xff" + b"\x01\x63\x03abc"
    frame = (4 + 1 + len(body)).to_bytes(4, "big") + b"\0\0\0\x07" + b"\0" + body
    values = transactions.END_TXN.decode_answer(frame, 0, len(frame), 3)
    assert values["error_code"] == 32_767
    assert values[TAGS] == b"\x01\x63\x03abc"
    assert transactions.END_TXN.encode_answer(3, 7, values) == frame


def test_a_list_longer_than_its_frame_costs_nothing() -> None:
    frame = b"\0\0\0\x18" + b"\0\x2a\0\x00\0\0\0\x07\0\x05tests" + b"\x7f\xff\xff\xff"
    with pytest.raises(MalformedFrameError, match="a collection of 2147483647 elements, 0 bytes left"):
        groups.DELETE_GROUPS.decode_request(frame, kio.body_at(), len(frame), 0)


@pytest.mark.parametrize("version", [0, 2])
def test_null_where_the_definition_has_a_list_is_malformed(version: int) -> None:
    body = b"\0\0" if version == 2 else b"\xff\xff\xff\xff"
    with pytest.raises(MalformedFrameError, match="null where a list must be"):
        groups.DELETE_GROUPS.decode_request(body, 0, len(body), version)


def test_what_a_record_does_not_say_is_written_as_absent() -> None:
    frame = groups.DESCRIBE_GROUPS.encode_answer(6, 7, {"groups": [{"error_code": 15, "group_id": "g"}]})
    answer = kio.answer_of(kio.entity(15, 6, "response"), frame)
    (found,) = answer.groups
    assert (found.error_code, found.error_message, found.group_id) == (15, None, "g")
    assert (found.group_state, found.members, found.authorized_operations) == ("", (), 0)
