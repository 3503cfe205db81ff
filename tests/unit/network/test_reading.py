"""Which connections the kernel is asked about: those that sent nothing for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.network import reading
from sidecar.network.keepalive import LOOK_S
from tests.unit.network.peers import Recorder

_LIMIT_S = 23.0
_LOOKS = int(_LIMIT_S / LOOK_S)


def test_the_kernel_is_not_asked_about_a_client_that_sent_a_request_a_moment_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, asked = Recorder().factory(), list[bool]()
    connection._transport = cast("Any", SimpleNamespace())

    def silent(_transport: object, _limit_s: float) -> bool:
        asked.append(True)
        return True

    monkeypatch.setattr(reading, "has_silent_peer", silent)
    assert connection.is_silent(_LIMIT_S), "one that never asked for anything"
    connection.requests += 1
    found = [connection.is_silent(_LIMIT_S) for _ in range(_LOOKS)]
    assert found[0] is False
    assert True in found, "it is found before the limit has passed twice"
    assert found == sorted(found)
    assert len(asked) == 1 + sum(found)


def test_with_a_short_limit_every_connection_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Recorder().factory()
    connection._transport = cast("Any", SimpleNamespace())
    monkeypatch.setattr(reading, "has_silent_peer", lambda *_: True)
    connection.requests += 1
    assert connection.is_silent(LOOK_S)
