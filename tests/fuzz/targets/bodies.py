"""Bodies of requests of every API and version that is served: read, and written again as the same.

Input: which API and version (two bytes), then the body, behind the client id.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.gateway.apis.table import ALL_APIS
from sidecar.protocol import api_versions, metadata, partitioned, produce, usual_fetch
from sidecar.protocol.api import ApiKey
from sidecar.protocol.limits import elements
from sidecar.protocol.messages import admin, cluster, groups, logs, security, transactions
from sidecar.protocol.primitives import MalformedFrameError, RequestReader, at_once
from sidecar.protocol.schema import Message, leading_text
from tests.fuzz.calls import CALLS, Call

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES: Final = {
    message.key: message
    for module in (admin, cluster, groups, logs, security, transactions)
    for message in vars(module).values()
    if isinstance(message, Message)
}
_TEXTS: Final = frozenset({8, 9, 11, 12, 13, 14, 22, 24, 25, 26, 28, 47})


def play(data: bytes) -> None:
    if len(data) < 2:
        return
    call = CALLS[int.from_bytes(data[:2], "big") % len(CALLS)]
    body = data[2:]
    with suppress(MalformedFrameError):
        _walk(call, body)
    message = MESSAGES.get(call.key)
    if message is None:
        return
    try:
        values = message.decode_request(body, 0, len(body), call.version)
    except MalformedFrameError:
        return
    frame = message.encode_request(call.version, 1, b"c", values)
    again = message.decode_request(frame, 15, len(frame), call.version)
    assert repr(again) == repr(values), "read, written and read again it is another"


def _walk(call: Call, body: bytes) -> None:
    """What is read of it without a table."""
    key, version, end = call.key, call.version, len(body)
    if key == ApiKey.PRODUCE:
        for part in produce.walk(body, 0, end, version).parts:
            assert 0 <= part.start <= part.end <= end, "records beyond the frame"
    elif key == ApiKey.FETCH:
        request = usual_fetch.walk(body, 0, end, version, {bytes(16): b"t"})
        for fetched in request.parts:
            assert 0 <= fetched.start <= fetched.end <= end, "an element beyond the frame"
    elif key == ApiKey.METADATA:
        reader = RequestReader(body, 0, end, elements(key))
        reader.tags(version >= 9)
        at_once(metadata.request_steps(reader, version))
    elif key == ApiKey.API_VERSIONS:
        api_versions.decode_request(body, 0, end, version)
    elif key in partitioned.TABLES:
        layout = partitioned.layout_of(key, version)
        table = partitioned.walk(body, 0, end, layout)
        for part in table.parts:
            assert 0 <= part.start <= part.end <= end, "an element beyond the frame"
    elif key in _TEXTS:
        leading_text(body, 0, end, flexible=ALL_APIS[key].is_flexible(version), count=1)


def seeds() -> Iterator[bytes]:
    from tests.fuzz.seeds import kafka_bodies  # noqa: PLC0415 - for seeds alone

    for number, body in kafka_bodies():
        yield number.to_bytes(2, "big") + body
