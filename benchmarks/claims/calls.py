"""The sidecar's own requests as the raw clients of the benchmarks send them (`proto/sidecar/v1/control.proto`)."""

from __future__ import annotations

import secrets

from sidecar.protocol.own import Own, Release
from sidecar.v1 import control_pb2 as control


class NotAnsweredError(RuntimeError):
    """An answer is not the one that the measurement is about."""


def expect(what: str, found: int, message: str, wanted: control.Error = control.NONE) -> None:
    """Raises NotAnsweredError where the error is another one."""
    if found != wanted:
        name = control.Error.Name(wanted)
        raise NotAnsweredError(f"{what} was answered {control.Error.Name(found)} ({message}), not {name}")


def new_token() -> bytes:
    """16 random bytes."""
    return secrets.token_bytes(16)


def strings(*names: str) -> list[control.Resource]:
    """Free strings."""
    return [control.Resource(name=name) for name in names]


def own(
    resources: list[control.Resource],
    token: bytes,
    mode: control.AccessMode = control.EXCLUSIVE,
    *,
    wait_ms: int = 0,
    session: int = -1,
) -> Own:
    """Claim all of these for a session: a producer id, or -1 for the connection."""
    claims = [control.Claim(resource=resource) for resource in resources]
    return Own(control.OwnRequest(claims=claims, mode=mode, token=token, wait_ms=wait_ms, producer_id=session))


def release(token: bytes, resources: list[control.Resource] | None = None) -> Release:
    """Let go of these, or of all that the token owns."""
    return Release(control.ReleaseRequest(token=token, resources=resources))
