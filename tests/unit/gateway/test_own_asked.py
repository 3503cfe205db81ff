"""What an Own request asks for: what is wrong with one is named, the same request is known again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import claimed
from sidecar.gateway.own.asked import Asked, read
from sidecar.gateway.own.bodies import BadRequestError
from sidecar.policy.identity import parse
from sidecar.protocol.session import Caller
from sidecar.resources.requests import Wish
from sidecar.v1 import control_pb2 as control
from tests.own import claims, string, topic


def client(client_id: bytes = b"billing;mode=exclusive") -> Any:
    return SimpleNamespace(
        identity=parse(client_id), session="conn:7", connection_id=7, caller=Caller("User:app", "billing")
    )


def asked(*resources: control.Resource, client_id: bytes = b"billing", **fields: Any) -> Asked:
    request = control.OwnRequest(claims=claims(*resources), **({"producer_id": -1, "token": bytes(16)} | fields))
    return read(request, client(client_id))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mode": control.SHARED}, "mode SHARED owns nothing"),
        ({"mode": 9}, "mode 9 is not known"),
        ({"token": b"short"}, "16 random bytes, not 5"),
        ({"wait_ms": -1}, "wait_ms is -1"),
        ({"producer_id": -2}, "producer_id is -2"),
        ({"producer_name": "ä" * 128}, "255 bytes"),
        ({"group": "x" * 1_025}, "1024 bytes of UTF-8"),
        ({"group": "a\n"}, "control characters"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        asked(string("leader"), **fields)


def test_what_is_claimed_twice_is_named() -> None:
    with pytest.raises(BadRequestError, match="'b' is claimed twice"):
        asked(string("a"), string("b"), string("c"), string("b"))


def test_a_request_claims_something_and_nothing_twice() -> None:
    with pytest.raises(BadRequestError, match="1 to 1000 claims, not 0"):
        asked()
    with pytest.raises(BadRequestError, match="partition 0 of orders is claimed twice"):
        asked(topic("orders", 0), topic("orders", 1), topic("orders", 0))
    with pytest.raises(BadRequestError, match="generation -1"):
        read(control.OwnRequest(claims=claims(string("a"), generation=-1), producer_id=-1), client())


def test_0_is_a_producer_id_where_a_client_has_it_and_minus_1_is_the_connection() -> None:
    request = control.OwnRequest(claims=claims(string("a")), producer_id=0)
    assert read(request, client(), knows_first=True).session == "pid:0"
    assert read(request, client(), knows_first=False).session == "conn:7"
    request.producer_id = 1
    assert read(request, client(), knows_first=False).session == "pid:1"
    assert asked(string("a")).session == "conn:7"


@pytest.mark.parametrize(
    ("given_name", "client_id", "name"),
    [("audit", b"billing", "audit"), ("", b"billing;mode=exclusive", "billing"), ("", b"rdkafka", None)],
)
def test_a_claim_bears_the_name_of_the_request_or_of_the_client(
    given_name: str, client_id: bytes, name: str | None
) -> None:
    found = asked(string("a"), client_id=client_id, producer_name=given_name).name
    assert found == name if name is not None else found.startswith("sidecar-")


def test_the_same_request_is_known_again_however_long_it_waits() -> None:
    first = asked(string("a"), wait_ms=0)
    assert asked(string("a"), wait_ms=5_000).fingerprint == first.fingerprint
    assert asked(string("b")).fingerprint != first.fingerprint
    assert asked(string("a"), producer_id=4).fingerprint != first.fingerprint


def test_who_asks_to_wait_for_hours_is_answered_within_minutes() -> None:
    assert asked(string("a"), wait_ms=2**31 - 1).wait_s == 300


groups = st.text(st.sampled_from("ab:/%ä name"), max_size=4)
named = st.builds(string, st.text(st.sampled_from("ab:/%ä"), min_size=1, max_size=4))
read_topics = st.builds(topic, st.sampled_from(["a", "name", "read"]), st.none() | st.integers(0, 3))


@given(st.tuples(groups, named) | st.tuples(groups.filter(bool), read_topics))
def test_a_target_is_found_again_by_its_key_in_the_changelog(found: tuple[str, control.Resource]) -> None:
    wish = Wish.of(*found)
    assert claimed(wish.key) == found
    assert not wish.is_written
