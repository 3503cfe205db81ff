"""Requests to a whole node whose clients have to log in, by a file of users: as `node`, most of them before a login."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.world import NodeUnderFire, framed

if TYPE_CHECKING:
    from collections.abc import Iterator

_USERS = """[users]
alice = [
    "SCRAM-SHA-256$4096:{salt}${key}:{key}",
]
"""
_node: list[NodeUnderFire] = []


def play(data: bytes) -> None:
    if not _node:
        users = Path(tempfile.mkdtemp()) / "users.toml"
        users.write_text(_USERS.format(salt="AA" * 8, key="A" * 43 + "="))
        _node.append(
            NodeUnderFire(
                security_protocol="SASL_PLAINTEXT",
                sasl_authentication="file",
                sasl_users_file=str(users),
                authorizer="none",
            )
        )
    _node[0].send(data)


def seeds() -> Iterator[bytes]:
    from tests.fuzz.calls import CALLS  # noqa: PLC0415 - for seeds alone
    from tests.fuzz.seeds import kafka_bodies  # noqa: PLC0415

    handshake = next(at for at, call in enumerate(CALLS) if call.key == 17)
    exchange = next(at for at, call in enumerate(CALLS) if call == (36, 2))
    api_versions = next(at for at, call in enumerate(CALLS) if call == (18, 0))
    hello = {
        name: framed(handshake, len(name).to_bytes(2, "big") + name)
        for name in (b"PLAIN", b"SCRAM-SHA-256", b"SCRAM-SHA-512", b"OAUTHBEARER", b"")
    }
    messages = (
        b"\0alice\0secret", b"n,,n=alice,r=nonce", b"c=biws,r=nonce,p=AAAA", b"n,,\x01auth=Bearer x.y.z\x01\x01", b"",
    )  # fmt: skip
    for name in hello.values():
        for message in messages:
            said = framed(exchange, b"\0" + bytes((len(message) + 1,)) + message + b"\0")
            yield name + said
            yield framed(api_versions, b"") + name + said + said + name
    for number, body in list(kafka_bodies())[::7]:
        yield hello[b"PLAIN"] + framed(number, body)
        yield framed(number, body)
