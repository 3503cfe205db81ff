"""The memory of a thread for what it decompresses."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from sidecar.protocol.codec import Codec
from sidecar.protocol.compression import compress, decompress
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.limits import BATCH_AT_ONCE_BYTES, BATCH_BYTES
from sidecar.protocol.room import Room, give_back, room_for, take_room

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LARGE = os.urandom(64 * 1024) * 48
ResultT = TypeVar("ResultT")


def with_room(work: Callable[[], ResultT]) -> ResultT:
    """By a thread that has one."""
    with ThreadPoolExecutor(1, initializer=take_room) as thread:
        return thread.submit(work).result()


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_comes_into_the_threads_room(codec: Codec) -> None:
    packed = compress(codec, LARGE, bytes(len(LARGE)))

    def work() -> None:
        found = decompress(codec, packed, BATCH_BYTES)
        room = room_for(BATCH_BYTES)
        assert room is not None
        assert room[: len(LARGE)] == found == LARGE

    with_room(work)


@pytest.mark.parametrize("codec", CODECS)
def test_a_small_batch_may_be_kept_beyond_the_next_one(codec: Codec) -> None:
    small, packed = compress(codec, b"small", b""), compress(codec, LARGE, b"")

    def work() -> bytes:
        kept = decompress(codec, small, BATCH_BYTES)
        decompress(codec, packed, BATCH_BYTES)
        return bytes(kept)

    assert with_room(work) == b"small"


@pytest.mark.parametrize("codec", CODECS)
def test_in_a_room_too_no_more_is_made_than_is_allowed(codec: Codec) -> None:
    packed = compress(codec, LARGE, b"")
    with pytest.raises(KafkaError) as error:
        with_room(lambda: decompress(codec, packed, len(LARGE) - 1))
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert len(with_room(lambda: decompress(codec, packed, len(LARGE)))) == len(LARGE)


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_batch_is_found_in_a_room_too(codec: Codec) -> None:
    packed = bytes(compress(codec, LARGE, b""))
    with pytest.raises(KafkaError) as error:
        with_room(lambda: decompress(codec, packed[: len(packed) // 2], BATCH_BYTES))
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE


def test_members_of_gzip_in_a_row_are_read_as_one() -> None:
    packed = gzip.compress(LARGE) + gzip.compress(b"and more")
    assert with_room(lambda: bytes(decompress(Codec.GZIP, packed, BATCH_BYTES))) == LARGE + b"and more"


def test_without_a_room_or_for_little_there_is_none() -> None:
    assert room_for(BATCH_BYTES) is None
    assert with_room(lambda: room_for(BATCH_AT_ONCE_BYTES)) is None
    assert with_room(lambda: room_for(BATCH_BYTES + 1)) is None
    give_back()  # nothing to do


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere what is given back need not be cleared")
def test_what_is_given_back_is_no_longer_the_process_s() -> None:
    room = Room(3 * BATCH_AT_ONCE_BYTES + 4096)
    view = room.of(len(room.view))
    assert view is not None
    view[:] = b"x" * len(view)
    room.give_back()
    assert not any(view)
