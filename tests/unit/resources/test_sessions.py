"""Who speaks for a session, until when one is waited for, and what tokens lost."""

from __future__ import annotations

import pytest

from sidecar.changelog import claim_key
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.sessions import SESSIONS_LIMIT, Sessions
from sidecar.resources.waiting import LostTokens
from sidecar.v1 import control_pb2 as control


def test_a_connections_session_ends_with_it_whatever_the_grace() -> None:
    sessions = Sessions(disconnect_grace=60.0)
    sessions.bind(1, "conn:1")
    sessions.bind(1, "pid:0")
    assert sessions.closed(1, 100.0) == ["conn:1"]
    assert (sessions.is_present("conn:1"), sessions.is_present("pid:0")) == (False, True)


def test_a_pid_session_ends_with_its_last_connection_or_its_grace() -> None:
    none, some = Sessions(disconnect_grace=0.0), Sessions(disconnect_grace=2.0)
    for sessions in (none, some):
        for number in (1, 2):
            sessions.bind(number, "pid:7")
        assert sessions.closed(1, 100.0) == []
    assert none.closed(2, 100.0) == ["pid:7"]
    assert some.closed(2, 100.0) == []
    assert (some.next_end(), some.overdue(101.9)) == (102.0, [])
    assert some.overdue(102.0) == ["pid:7"]
    assert not some.is_present("pid:7")


def test_a_session_that_comes_back_is_not_waited_for_any_more() -> None:
    sessions = Sessions(disconnect_grace=0.0)
    sessions.bind(1, "pid:1")
    sessions.wait_for(["pid:1", "pid:2", "pid:3"], 10.0)
    sessions.bind(2, "pid:2")
    assert sessions.overdue(10.0) == ["pid:3"]


def test_a_connection_speaks_for_so_many_sessions_and_no_more() -> None:
    sessions = Sessions(disconnect_grace=0.0)
    for number in range(SESSIONS_LIMIT):
        sessions.bind(1, f"pid:{number}")
    sessions.bind(1, "pid:0")
    with pytest.raises(KafkaError) as refused:
        sessions.bind(1, "pid:-")
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert len(sessions.closed(1, 0.0)) == SESSIONS_LIMIT
    assert not sessions._connections


def test_what_tokens_lost_is_remembered_the_newest_first() -> None:
    keys = [claim_key("", control.Resource(name=str(number))) for number in range(4)]
    lost = LostTokens(limit=3)
    lost.add(b"a", keys[:1])
    lost.add(b"b", keys[1:2])
    lost.add(b"a", keys[:2])
    assert (set(lost.of(b"a")), set(lost.of(b"b"))) == (set(keys[:2]), set(keys[1:2]))
    lost.add(b"c", keys[3:])
    assert (set(lost.of(b"a")), set(lost.of(b"b")), set(lost.of(b"c"))) == (set(keys[:2]), set(), set(keys[3:]))
