"""Requests to a whole node, as `tests.fuzz.world` has them: the gateway and all the rooms behind it, brokers and Redis
simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.world import NodeUnderFire, framed

if TYPE_CHECKING:
    from collections.abc import Iterator

_node: list[NodeUnderFire] = []


def play(data: bytes) -> None:
    if not _node:
        _node.append(NodeUnderFire())
    _node[0].send(data)


def seeds() -> Iterator[bytes]:
    from tests.fuzz.calls import CALLS  # noqa: PLC0415 - for seeds alone
    from tests.fuzz.seeds import batch, kafka_bodies  # noqa: PLC0415
    from tests.fuzz.targets import own  # noqa: PLC0415
    from tests.sim import wire  # noqa: PLC0415

    bodies = list(kafka_bodies())
    for number, body in bodies:
        yield framed(number, body)
    for first in range(0, len(bodies) - 4, 4):
        yield b"".join(framed(number, body, first % 10) for number, body in bodies[first : first + 4])
    for data in own.seeds():
        number = next(at for at, call in enumerate(CALLS) if call.key == 1000) + data[0]
        for name in (0, 2, 9):
            yield framed(number, data[1:], name)
    produce = next(at for at, call in enumerate(CALLS) if call == (0, 8))
    for topic in ("owned", "counted", "ordinary", "mirror", "split"):
        for name in (0, 2, 4, 7):
            for headers in ((), ((b"sidecar-sequence-id", b"3"),)):
                body = wire.produce(topic, {0: batch(headers), 1: batch(headers)}, 1_000)
                yield framed(produce, body, name) * 2
    yield (0xFFFF).to_bytes(2, "big") + b"\0\0\x10GET / HTTP/1.1\r\n"
