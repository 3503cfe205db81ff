"""How facts are written and read, and what is refused before Redis hears of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata import (
    AccessMode,
    ClaimRequest,
    ClaimStatus,
    Generation,
    LiveNodes,
    Node,
    Ownership,
    Policies,
    Policy,
    new_boot_id,
    new_token,
)
from metadata.ownership import MAX_INT64

int64 = st.integers(0, MAX_INT64)
sessions = st.none() | st.from_regex(r"(pid|conn):[!-~]{1,30}", fullmatch=True)
OWNED = Ownership("orders", Generation(1), 0, "pid:1")


@given(
    resource=st.text(min_size=1, max_size=40),
    generation=int64,
    position=int64,
    session=sessions,
    name=st.text(st.characters(), max_size=40),
    mode=st.sampled_from(AccessMode),
    since_ms=int64,
    node_id=st.integers(-1, 2**31 - 1),
    producer_id=st.integers(-1, MAX_INT64),
    producer_epoch=st.integers(-1, 32_767),
)
def test_a_record_is_read_as_it_was_written(**fields: Any):
    record = Ownership(**fields)
    assert Ownership.decode(record.resource, record.wire.encode()) == record


@given(
    node_id=st.integers(0, 2**31 - 1),
    host=st.text(max_size=40),
    port=st.integers(1, 65_535),
    position=st.integers(-1, MAX_INT64),
    policy_version=int64,
    draining=st.booleans(),
    version=st.text(max_size=10),
)
def test_a_node_is_read_as_it_was_written(**fields: Any):
    node = Node(boot=new_boot_id(), **fields)
    assert Node.decode(node.node_id, node.encode().encode()) == node


def test_records_of_a_newer_version_of_the_software_are_understood():
    head, details = OWNED.wire.rsplit(" ", 1)
    newer = json.dumps(json.loads(details) | {"colour": "blue"})
    assert Ownership.decode("orders", f"{head} {newer}".encode()) == OWNED
    node = Node(1, "aa", "host", 1)
    assert Node.decode(1, json.dumps(json.loads(node.encode()) | {"colour": "blue"}).encode()) == node


@pytest.mark.parametrize(
    "fields",
    [
        {"resource": ""},
        {"generation": -1},
        {"generation": MAX_INT64 + 1},
        {"position": -1},
        {"session": ""},
        {"session": "-"},
        {"session": "pid 1"},
        {"session": "pid:1\n"},
        {"session": "pid:ž"},
    ],
)
def test_a_record_out_of_its_bounds_is_refused(fields: dict[str, Any]):
    with pytest.raises(ValueError, match=r"resource|generation|position|session"):
        Ownership(**{"resource": "orders", "generation": 1, "position": 0, "session": "pid:1"} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"token": b"short"},
        {"session": "a b"},
        {"resource": ""},
        {"asked": -1},
        {"asked": MAX_INT64 + 1},
        {"returns_to": -1},
        {"lease_ms": 0},
        {"known": Ownership("payments", Generation(1), 0, None)},
    ],
)
def test_a_claim_out_of_its_bounds_is_refused(fields: dict[str, Any]):
    good = {
        "resource": "orders",
        "token": new_token(),
        "node_id": 1,
        "boot": "aa",
        "session": "pid:1",
        "name": "",
        "mode": AccessMode.EXCLUSIVE,
        "lease_ms": 1000,
    }
    ClaimRequest(**good)
    with pytest.raises(ValueError, match=r"token|session|resource|generation|lease|known"):
        ClaimRequest(**good | fields)


@pytest.mark.parametrize("boot", ["", "AA", "xyz", "a b"])
def test_a_boot_id_is_lower_case_hexadecimal(boot: str):
    with pytest.raises(ValueError, match="hexadecimal"):
        Node(1, boot, "host", 1)


def test_a_negative_node_id_is_refused():
    with pytest.raises(ValueError, match="negative"):
        Node(-1, "aa", "host", 1)


@pytest.mark.parametrize("entries", [{"orders": (3, "{}")}, {"": (1, "{}")}])
def test_a_catalog_that_contradicts_itself_is_refused(entries: dict[str, tuple[int, str]]):
    with pytest.raises(ValueError, match="version"):
        Policies(2, {name: Policy(body, version) for name, (version, body) in entries.items()})


def test_a_policy_without_a_body_is_refused():
    with pytest.raises(ValueError, match="deleted"):
        Policy("", 1)


def test_only_a_claim_that_others_stand_in_the_way_of_for_a_while_is_worth_repeating():
    assert {status for status in ClaimStatus if status.retryable} == {ClaimStatus.BUSY, ClaimStatus.OVER}


def test_the_controller_is_the_lowest_live_node():
    nodes = {node_id: Node(node_id, "aa", "host", node_id) for node_id in (7, 3, 5)}
    assert LiveNodes(nodes, {}, 0).controller == 3
    assert LiveNodes({}, {}, 0).controller is None


def test_tokens_and_boot_ids_do_not_repeat():
    assert len({new_token() for _ in range(100)}) == 100
    assert {len(new_token()), len(bytes.fromhex(new_boot_id()))} == {16}
