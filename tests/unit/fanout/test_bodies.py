"""An answer that was encoded for one reader is, for every other one, what the codec would have made of it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.fanout import recent as module
from sidecar.fanout.recent import Bodies
from sidecar.protocol import fetch


def element(partition: int, records: bytes) -> bytes:
    return fetch.error_element(11, partition, 0)[:-4] + len(records).to_bytes(4, "big") + records


_ASKED = st.tuples(
    st.integers(0, 2**31 - 1), st.sampled_from([10, 11]), st.sampled_from([b"a", b"orders"]), st.integers(0, 3)
)


@given(st.lists(_ASKED))
def test_every_reader_gets_its_own_head_and_the_body_of_all(asked: list[tuple[int, int, bytes, int]]) -> None:
    bodies, elements = Bodies(), [element(number, bytes(9_000 * number)) for number in range(4)]
    for correlation_id, version, topic, number in asked:
        given_element = fetch.converted(elements[number], 11, version)
        whole = b"".join(fetch.encode_answer(correlation_id, version, [(topic, given_element)]))
        assert b"".join(bodies.answer(correlation_id, version, topic, elements[number])) == whole


@given(st.lists(st.tuples(st.integers(0, 2**60), st.integers(0, 2**60)), max_size=3), st.binary(max_size=20))
def test_an_element_goes_to_the_version_before_and_back(aborted: list[tuple[int, int]], records: bytes) -> None:
    head = struct.pack(">ihqqqi", 1, 0, 9, 8, 7, len(aborted) or -1)
    before = head + b"".join(struct.pack(">qq", *each) for each in aborted)
    after = struct.pack(">i", len(records)) + records
    newest = before + struct.pack(">i", -1) + after
    assert fetch.converted(memoryview(newest), 11, 10) == before + after
    assert fetch.converted(memoryview(before + after), 10, 11) == newest
    assert fetch.converted(newest, 11, 11) == newest


def test_a_large_body_is_not_copied_for_each_reader() -> None:
    bodies, large = Bodies(), element(0, bytes(100_000))
    first, second = (bodies.answer(number, 11, b"orders", large) for number in (1, 2))
    assert first[1] is second[1]


@pytest.mark.parametrize("version", [10, 11, 12, 18])
def test_a_partition_among_several_is_made_once_for_all_readers(version: int) -> None:
    bodies, elements = Bodies(), [element(number, bytes(100_000)) for number in range(3)]
    first, second = ([bodies.part(version, each) for each in elements] for _ in range(2))
    assert first == [fetch.converted(each, 11, version) for each in elements]
    assert all(mine is others for mine, others in zip(first, second, strict=True))


def test_what_is_kept_is_bounded_and_never_mistaken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is late asks with an element that lives where one stood that nobody has any more."""
    monkeypatch.setattr(module, "_BODIES", 4)
    bodies = Bodies()
    for number in range(100):
        given = element(number, b"%d" % number)
        assert b"".join(bodies.answer(7, 11, b"orders", given)) == b"".join(
            fetch.encode_answer(7, 11, [(b"orders", given)])
        )
        assert len(bodies._bodies) <= 4
    monkeypatch.setattr(module, "_BODIES_BYTES", 250_000)
    for number in range(10):
        bodies.answer(7, 11, b"orders", element(number, bytes(100_000)))
        assert bodies._bytes <= 250_000
