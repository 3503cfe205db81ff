"""How large records are said to be; keys on the partitions that Java's client chooses."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client.receipt import largest_size, murmur2, octets, partition_of
from sidecar.protocol.new_batch import NewRecord, build_batch

SOME = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=70), SOME), max_size=3).map(tuple)
NOW = 1_700_000_000_000
RECORDS = st.lists(st.tuples(SOME, SOME, HEADERS, st.integers(NOW - 2**33, NOW + 2**33)), min_size=1, max_size=80)


@given(RECORDS)
def test_no_batch_is_larger_than_its_records_were_said_to_be(records: list[Any]) -> None:
    most = sum(largest_size(key, value, headers) for key, value, headers, _ in records)
    assert len(build_batch([NewRecord(*each) for each in records], 1, 0, 0)) <= most


@pytest.mark.parametrize("data", ["text", 1, [1]])
def test_what_is_no_bytes_is_refused_before_it_is_on_its_way(data: Any) -> None:
    with pytest.raises(TypeError, match=f"are bytes, not {type(data).__name__}: encode it first"):
        octets(data)


@pytest.mark.parametrize(
    "data",
    [
        bytearray(b"12345678"),
        memoryview(b"12345678"),
        memoryview(b"1-2-3-4-5-6-7-8")[::2],
        array("i", struct.unpack("=2i", b"12345678")),
        memoryview(array("d", struct.unpack("=d", b"12345678"))),
    ],
)
def test_what_lies_in_memory_is_its_bytes_whatever_its_items(data: Any) -> None:
    assert octets(data) == b"12345678"


def test_what_is_sent_stays_what_it_was() -> None:
    data: Any = bytearray(b"first")
    sent = octets(data)
    data[:] = b"other"
    assert sent == b"first"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_javas_client_does(data: bytes, expected: int) -> None:
    """The values of `UtilsTest.testMurmur2`."""
    assert murmur2(data) == expected % 2**32
    assert partition_of(data, 12) == (expected & 0x7FFFFFFF) % 12
