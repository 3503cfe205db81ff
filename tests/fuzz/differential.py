"""Kafka's own parsers against the node's, on requests that are damaged in all ways which could make the two differ.

`python -m tests.fuzz.differential [--frames N] [--seed S] [--kafka VERSION]`; `test_differential.py` plays a sample.

For each frame that the node would forward, Kafka (`java/ReadRequests.java`) has to read the same topics, ids,
partitions, groups, whatever is in it. So what Kafka read is written again by Kafka, in its canonical form, and the node
has to find the same in that as in its own frame. Otherwise a client could hide from the node what it asks of a broker.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import struct
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from sidecar.cluster.resolver import is_legal
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked
from sidecar.gateway.apis.spec import Route
from sidecar.gateway.apis.table import ALL_APIS, APIS
from sidecar.local.jars import DEFAULT_VERSION, resolve
from sidecar.local.java import find_java
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.protocol import fetch, partitioned, produce, usual_fetch
from sidecar.protocol.api import ApiKey
from sidecar.protocol.fetch_tags import FIRST_WITH_STATE
from sidecar.protocol.primitives import MalformedFrameError, TaggedFieldsError, Writer
from sidecar.protocol.topic_ids import is_stand_in
from tests.clients import javabuild
from tests.fuzz.calls import CALLS, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sidecar.protocol.fetch_parts import FetchPart
    from sidecar.protocol.partitioned import TablePart
    from sidecar.protocol.produce import ProducePart

JAVA: Final = Path(__file__).with_name("java")
_HEAD: Final = struct.Struct(">ihhih")
_CLIENT_ID: Final = b"c"
_BODY: Final = _HEAD.size + len(_CLIENT_ID)
_AT_ONCE: Final = 2_000
_FEW: Final = 50
"""Frames that the pipes hold, both ways."""
_FIELDS: Final = (
    (0, b"\0"),
    (0, b"\5abcd"),
    (0, bytes(range(16))),
    (1, b"\0\0\0\0\0\0\0\5"),
    (1, b"\0\0\0\5" + bytes(9)),
    (99, b"abc"),
)
"""Tagged fields: a null string, a string, an id, an offset, the state of a replica, one that Kafka does not know."""
REFUSED: Final = -1
NOT_SERVED: Final = -2


class Kafka:
    """The Java program, as one process for many frames."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def read(self, frames: Sequence[bytes]) -> list[bytes | int]:
        """What Kafka reads in each frame, as a frame in its canonical form, or why there is none: below 0."""
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        found: list[bytes | int] = []
        for first in range(0, len(frames), _FEW):
            some = frames[first : first + _FEW]
            into.write(b"".join(some))
            into.flush()
            for _ in some:
                size: int = int.from_bytes(out.read(4), "big", signed=True)
                found.append(size if size < 0 else size.to_bytes(4, "big") + out.read(size))
        return found


@contextmanager
def kafka(version: str = DEFAULT_VERSION) -> Iterator[Kafka]:
    """Kafka's parsers of one version, until the end of the block."""
    java, jars = find_java(), resolve(version)
    jar = javabuild.compiled(java, jars, sorted(JAVA.glob("*.java")), "read-requests")
    path = f"{jar}:{jars.class_path}"
    command = [str(java.path), "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", path, "ReadRequests"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Kafka(process)
        assert process.stdin is not None
        process.stdin.close()


# What the node makes of a frame ---------------------------------------------------------------------------------------


_NAMES: Final[dict[bytes, bytes]] = {}
"""The topics of sound requests by id, as compiled code reads only such. Others have a stand-in with the id."""


def is_forwarded(call: Call) -> bool:
    """Whether requests of an API may reach a broker unchanged."""
    hot = call.key in (ApiKey.PRODUCE, ApiKey.FETCH) or call.key in partitioned.TABLES
    if call.key not in APIS:
        return False
    return hot or (APIS[call.key].route is not Route.LOCAL and isinstance(ALL_APIS[call.key].access, Asked))


def request_of(frame: bytes) -> Request | None:
    """The request of a frame, as the network reads its header; None for a frame that it refuses."""
    _, key, version, correlation_id, length = _HEAD.unpack_from(frame)
    body = _HEAD.size + max(0, length)
    if length < -1 or body > len(frame):
        return None
    owned = Frame(bytearray(frame), 0, len(frame), True)
    return Request(key, version, correlation_id, frame[_HEAD.size : body], owned, body)


def walked(request: Request) -> Any:
    """What a hot API finds in a request. Raises `MalformedFrameError`."""
    buffer, body, end, version = request.frame.buffer, request.body, request.frame.end, request.version
    if request.key == ApiKey.PRODUCE:
        found = produce.walk(buffer, body, end, version, _NAMES)
        parts = [_element(buffer, part) for part in found.parts]
        return found._replace(parts=cast("Any", parts))
    if request.key == ApiKey.FETCH:
        asked = usual_fetch.walk(buffer, body, end, version, _NAMES)
        parts = [_element(buffer, part) for part in asked.parts]
        return asked._replace(session=0, parts=cast("Any", parts))
    layout = partitioned.layout_of(request.key, version)
    table = partitioned.walk(buffer, body, end, layout)
    around = buffer[table.prefix : table.prefix + layout.prefix], buffer[table.suffix : table.suffix + layout.suffix]
    return around, [_element(buffer, part) for part in table.parts]


def _element(buffer: bytearray, part: ProducePart | FetchPart | TablePart) -> tuple[bytes, int, bytes]:
    """A partition of a request. What can be no topic's name has one name: Kafka replaces bytes that are not UTF-8."""
    topic = part.topic if is_legal(part.topic) or is_stand_in(part.topic) else b"?"
    return topic, part.partition, bytes(buffer[part.start : part.end])


async def forwarded(frame: bytes) -> tuple[bytes, Any] | None:
    """The frame that a broker would get, and what the node found in it; None for a frame that the node refuses, or
    answers by itself.
    """
    request = request_of(frame)
    if request is None:
        return None
    try:
        found = await _found(request)
    except MalformedFrameError:
        return None
    if request.key == ApiKey.FETCH and found.replica_id >= 0:
        return None
    return bytes(request.frame.buffer[request.frame.start : request.frame.end]), found


async def _found(request: Request) -> Any:
    """What the node finds in a request, which is changed to what the node would forward."""
    row = ALL_APIS[request.key].access
    if isinstance(row, Asked):
        await asking.read_all(request)
        return await asking.fields(ALL_APIS[request.key].message, request)
    try:
        return walked(request)
    except TaggedFieldsError as tagged:
        request.drop_tags(tagged.sections)
        return walked(request)


# Damage ---------------------------------------------------------------------------------------------------------------


def frame_of(call: Call, body: bytes) -> bytes:
    """A frame with a header before a body, which begins with the header's tagged fields in flexible versions."""
    return _HEAD.pack(_HEAD.size - 4 + 1 + len(body), *call, 7, 1) + _CLIENT_ID + body


def _uvarint(value: int) -> bytes:
    writer = Writer()
    writer.uvarint(value)
    return writer.finish()


def _field(number: int, content: bytes, *, announced: int | None = None) -> bytes:
    return _uvarint(number) + _uvarint(len(content) if announced is None else announced) + content


def _tag_section(dice: random.Random, rest: bytes) -> bytes:
    """Tagged fields; some announce a size behind which a parser that does not look at it finds other content.

    `rest`: what follows them in the request.
    """
    number, content = dice.choice(_FIELDS)
    second = _field(*dice.choice(_FIELDS))
    match dice.randrange(4):
        case 0:
            return b"\1" + _field(number, content + _changed(dice, rest))
        case 1:
            return b"\2" + _field(number, content, announced=len(content) + len(second)) + second + _field(99, b"")
        case 2:
            fields = [_field(*dice.choice(_FIELDS)) for _ in range(dice.choice((1, 1, 2, 3)))]
            return _uvarint(len(fields)) + b"".join(fields)
        case _:
            return b"\1" + _field(number, content, announced=dice.choice((0, 1, 8, 15, 16, 17, len(rest))))


def _changed(dice: random.Random, body: bytes) -> bytes:
    """The same with one byte of it replaced."""
    if not body:
        return body
    at = dice.randrange(len(body))
    return body[:at] + bytes([body[at] ^ dice.randrange(1, 256)]) + body[at + 1 :]


def _tagged(dice: random.Random, body: bytes) -> bytes:
    """A zero, maybe an empty section of tagged fields, becomes one that is not empty."""
    zeros = [at for at, byte in enumerate(body) if not byte]
    if not zeros:
        return body
    at = dice.choice(zeros)
    return body[:at] + _tag_section(dice, body[at + 1 :]) + body[at + 1 :]


def _long_varint(dice: random.Random, body: bytes) -> bytes:
    at = dice.randrange(len(body))
    last = dice.choice((b"\0", b"\x80\0", b"\x80\x80\0", b"\x80\x80\x80\0", b"\x80\x80\x80\x10", b"\x80\x80\x80\x80\0"))
    return body[:at] + bytes([body[at] | 0x80]) + last + body[at + 1 :]


def _inserted(dice: random.Random, body: bytes) -> bytes:
    at = dice.randrange(len(body) + 1)
    return (
        body[:at]
        + dice.choice((b"\0", b"\1", b"\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", dice.randbytes(3)))
        + body[at:]
    )


def _removed(dice: random.Random, body: bytes) -> bytes:
    at = dice.randrange(len(body))
    return body[:at] + body[at + dice.choice((1, 1, 2, 4)) :]


def _repeated(dice: random.Random, body: bytes) -> bytes:
    first = dice.randrange(len(body))
    behind = dice.randrange(first, len(body) + 1)
    return body[:behind] + body[first:behind] + body[behind:]


def _length(dice: random.Random, body: bytes) -> bytes:
    """A byte becomes another length, or null, or empty."""
    at = dice.randrange(len(body))
    return (
        body[:at]
        + bytes([dice.choice((0, 1, 2, 0x7F, 0x80, 0xFF, body[at] ^ 1, (body[at] + 1) & 0xFF))])
        + body[at + 1 :]
    )


def _longer(dice: random.Random, body: bytes) -> bytes:
    return body + dice.choice((b"\0", b"\1\0\0", dice.randbytes(5)))


_DAMAGES: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    _tagged, _tagged, _tagged, _long_varint, _inserted, _removed, _repeated, _length, _longer, _changed,
)  # fmt: skip


def damaged(dice: random.Random, body: bytes) -> bytes:
    """A body with one to three kinds of damage."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        if body:
            body = dice.choice(_DAMAGES)(dice, body)
    return body


def frames(seed: int, count: int, bodies: Sequence[tuple[Call, bytes]]) -> Iterator[bytes]:
    """Requests: each body as it is, then damaged ones. Every second one of these is a newer Fetch: no other has tagged
    fields that Kafka knows.
    """
    dice = random.Random(seed)
    fetches = [
        (call, _fetch(call.version)) for call in CALLS if call.key == ApiKey.FETCH and call.version >= FIRST_WITH_STATE
    ]
    for call, body in (*bodies, *fetches):
        yield frame_of(call, body)
    for number in range(count - len(bodies) - len(fetches)):
        call, body = dice.choice(fetches if number % 2 else bodies)
        yield frame_of(call, _tagged(dice, body) if number % 4 == 1 else damaged(dice, body))


@cache
def bodies() -> list[tuple[Call, bytes]]:
    """Sound requests of every API and version that may be forwarded."""
    from tests.fuzz.seeds import kafka_bodies  # noqa: PLC0415 - it makes strategies for all messages

    found = [(CALLS[number], body) for number, body in kafka_bodies() if is_forwarded(CALLS[number])]
    found += [(call, _fetch(call.version)) for call in CALLS if call.key == ApiKey.FETCH]
    for call, body in found:
        if call.key in (ApiKey.PRODUCE, ApiKey.FETCH) and call.version >= 13:
            with suppress(MalformedFrameError):
                ids = walked(cast("Request", request_of(frame_of(call, body)))).ids
                _NAMES.update((topic_id, topic_id.hex().encode()) for topic_id in ids.values())
    return found


def _fetch(version: int) -> bytes:
    """A consumer's Fetch of three partitions of two topics."""
    writer = Writer()
    writer.tags(version >= fetch.FIRST_FLEXIBLE)
    size, end = fetch.partition_bytes(version), b"\0" if version >= fetch.FIRST_FLEXIBLE else b""
    topics = (b"\1" * 16, b"\2" * 16) if version >= fetch.FIRST_BY_ID else (b"orders", b"secrets")
    parts = [(topics[number // 2], number.to_bytes(4, "big") + b"\7" * (size - 4) + end) for number in (0, 1, 2)]
    fetch.write_body(writer, version, (500, 1, 1 << 20, 0), parts)
    return writer.finish()


# The comparison -------------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """A frame that the node would forward, and in which Kafka reads something else."""

    frame: bytes
    forwarded: bytes
    node: Any
    kafka: Any

    def __str__(self) -> str:
        _, key, version, *_ = _HEAD.unpack_from(self.frame)
        return (
            f"{APIS[key].name} v{version} {self.frame.hex()}\n forwarded as {self.forwarded.hex()}\n"
            f" the node: {self.node!r}\n Kafka: {self.kafka!r}"
        )


async def compare(judge: Kafka, inputs: Sequence[bytes], counts: Counter[str]) -> list[Difference]:
    """The differences between the node and Kafka. `counts`: of frames by what became of them."""
    sent = [(frame, *found) for frame in inputs if (found := await forwarded(frame)) is not None]
    counts["refused by the node"] += len(inputs) - len(sent)
    differences: list[Difference] = []
    for (frame, going_on, found), said in zip(sent, judge.read([each[1] for each in sent]), strict=True):
        if said in (REFUSED, NOT_SERVED):
            counts["refused by Kafka" if said == REFUSED else "not known to Kafka"] += 1
            continue
        again = await forwarded(said) if isinstance(said, bytes) else None
        if again is None or again[1] != found or _head(again[0]) != _head(going_on):
            differences.append(Difference(frame, going_on, found, again and again[1]))
        counts["read alike"] += 1
        counts["changed by the node"] += going_on != frame
    return differences


def _head(frame: bytes) -> Any:
    """API, version, correlation id and client id."""
    request = request_of(frame)
    return request and (request.key, request.version, request.correlation_id, request.client_id)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.differential")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kafka", default=DEFAULT_VERSION, metavar="VERSION")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    every, failed = frames(asked.seed, asked.frames, bodies()), False
    with kafka(asked.kafka) as judge:
        for _ in range(0, asked.frames, _AT_ONCE):
            some = [*islice(every, _AT_ONCE)]
            for difference in asyncio.run(compare(judge, some, counts)):
                failed = True
                print(difference, flush=True)
    print(", ".join(f"{count:,} {what}" for what, count in counts.items()))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
