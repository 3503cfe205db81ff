"""Keys of records: one thing, one key, the same bytes for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import MASTER_SLOT, Key, Kind, claim_key, claimed, partition_slot, shared_slot, whole_of
from sidecar.changelog.keys import ForeignKeyError, SlotName, decode_key
from sidecar.v1 import control_pb2 as control

topics = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
slots = st.one_of(st.just(SlotName("0")), st.integers(0, 9).map(partition_slot), st.integers(1, 9).map(shared_slot))
keys = st.one_of(
    st.builds(Key, st.sampled_from([Kind.OWNERSHIP, Kind.SERVING, Kind.SLOT]), topics, slots),
    st.builds(Key, st.sampled_from([Kind.TAIL, Kind.SEQUENCE_BASE]), topics, slots, st.integers(0, 10_000)),
    st.builds(Key, st.sampled_from([Kind.POLICY, Kind.SHADOW]), topics),
)


@given(keys)
def test_a_key_reads_back_as_itself(key: Key) -> None:
    assert decode_key(key.encode()) == key


@given(keys, keys)
def test_different_keys_have_different_bytes(left: Key, right: Key) -> None:
    assert (left.encode() == right.encode()) == (left == right)


def test_keys_are_text_that_never_changes() -> None:
    """Compaction goes by these bytes: a node of another version must write the same."""
    assert Key(Kind.OWNERSHIP, "orders", MASTER_SLOT).encode() == b"ownership/orders/0"
    assert Key(Kind.SERVING, "orders", partition_slot(3)).encode() == b"serving/orders/p3"
    assert Key(Kind.SLOT, "orders", shared_slot(2)).encode() == b"slot/orders/2"
    assert Key(Kind.TAIL, "orders", shared_slot(2), 11).encode() == b"tail/orders/2/11"
    assert Key(Kind.SEQUENCE_BASE, "orders", SlotName("0"), 11).encode() == b"sequence-base/orders/0/11"
    assert Key(Kind.POLICY, "payments.*").encode() == b"policy/payments.*"
    assert Key(Kind.SHADOW, "audit").encode() == b"shadow/audit"
    assert claim_key("", control.Resource(name="a/b: ä")).encode() == b"claim/name:a%2Fb%3A%20%C3%A4"
    assert claim_key("g:1", control.Resource(name="x")).encode() == b"claim/g%3A1:name:x"
    assert claim_key("g", control.Resource(topic="orders")).encode() == b"claim/g:read:orders"
    assert claim_key("g", control.Resource(topic="orders", partition=0)).encode() == b"claim/g:read:orders:0"


resources = st.one_of(
    st.builds(lambda name: control.Resource(name=name), st.text(st.sampled_from("ab:/%ä"), min_size=1, max_size=4)),
    st.builds(lambda topic: control.Resource(topic=topic), st.sampled_from(["a", "name", "read"])),
    st.builds(lambda topic, index: control.Resource(topic=topic, partition=index), topics, st.integers(0, 3)),
)
claims = st.tuples(st.text(st.sampled_from("ab:/nameread"), max_size=4), resources)


@given(claims, claims)
def test_different_resources_have_different_keys(
    left: tuple[str, control.Resource], right: tuple[str, control.Resource]
) -> None:
    if (left[1].topic and not left[0]) or (right[1].topic and not right[0]):
        return  # for writing: no such claim
    assert decode_key(claim_key(*left).encode()) == claim_key(*left)
    assert (claim_key(*left) == claim_key(*right)) == (left == right)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ownership",
        b"ownership/orders",
        b"ownership//0",
        b"ownership/orders/0/1",
        b"ownership/orders/00",
        b"ownership/orders/p01",
        b"ownership/orders/-1",
        b"ownership/orders/x",
        b"tail/orders/0/01",
        b"tail/orders/0/-1",
        b"tail/orders/0/",
        b"policy/",
        b"policy/a/b",
        b"lease/orders",
        b"ownership/\xff/0",
    ],
)
def test_what_no_node_writes_is_foreign(data: bytes) -> None:
    with pytest.raises(ForeignKeyError):
        decode_key(data)


def test_a_key_that_would_not_read_back_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="not a key"):
        Key(Kind.POLICY, "a/b")
    with pytest.raises(ValueError, match="not a key"):
        Key(Kind.OWNERSHIP, "orders")
    with pytest.raises(ValueError, match="not a slot"):
        Key(Kind.OWNERSHIP, "orders", SlotName("p"))
    with pytest.raises(ValueError, match="count from 1"):
        shared_slot(0)


@pytest.mark.parametrize("group", ["", "g", "name", "read", "a:b/c", "é"])
@pytest.mark.parametrize("name", ["x", "name", "read", "a:b:c:d", "a/b%"])
def test_a_key_says_what_it_stands_for(group: str, name: str) -> None:
    string = control.Resource(name=name)
    assert claimed(claim_key(group, string)) == (group, string)
    assert whole_of(claim_key(group, string)) is None
    topic, partition = control.Resource(topic=name), control.Resource(topic=name, partition=0)
    assert claimed(claim_key(group, topic)) == (group, topic)
    assert claimed(claim_key(group, partition)) == (group, partition)
    assert whole_of(claim_key(group, partition)) == claim_key(group, topic)
    assert whole_of(claim_key(group, topic)) is None
