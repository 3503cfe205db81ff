"""Buffers for large answers of brokers, used again once nobody holds them.

A Fetch answer of a megabyte in a new buffer costs the kernel its pages and Python their zeroes, a third of what
passing it on costs at all. A buffer is free when nothing but the pool refers to it: a frame, a view of it, or a
transport that has not sent it yet all count as references, so no one has to give anything back (and nothing is
overwritten that somebody still needs).
"""

from __future__ import annotations

from sys import getrefcount
from typing import Final

_SMALLEST: Final = 64 * 1024
_LARGEST: Final = 8 * 1024 * 1024
_KEPT_BYTES: Final = 8 * 1024 * 1024
_FREE: Final = 3
"""The list of the pool, the loop's own name, and the argument of getrefcount."""


class BufferPool:
    """Buffers by size, powers of two from 64 KiB to 8 MiB; at most 8 MiB are kept."""

    __slots__ = ("_buffers", "_kept")

    def __init__(self) -> None:
        self._buffers: dict[int, list[bytearray]] = {}
        self._kept = 0

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, with whatever was in it."""
        if size > _LARGEST:
            return bytearray(size)
        rounded = max(_SMALLEST, 1 << (size - 1).bit_length())
        buffers = self._buffers.setdefault(rounded, [])
        for buffer in buffers:
            if getrefcount(buffer) == _FREE:
                return buffer
        fresh = bytearray(rounded)
        if self._kept + rounded <= _KEPT_BYTES:
            self._kept += rounded
            buffers.append(fresh)
        return fresh
