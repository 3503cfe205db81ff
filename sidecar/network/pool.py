"""Buffers for large answers of brokers, used again once nobody holds them.

A Fetch answer of a megabyte in a new buffer costs the kernel its pages and Python their zeroes, a third of what
passing it on costs at all. A buffer is free when nothing but the pool refers to it: a frame, a view of it, or a
transport that has not sent it yet all count as references. So nobody has to give a buffer back, and none is
overwritten while it is in use.
"""

from sys import getrefcount
from typing import Final

_STEP: Final = 64 * 1024
_KEPT_BYTES: Final = 4 * 1024 * 1024
_FREE: Final = 3
"""The list of the pool, the loop's own name, and the argument of getrefcount."""


class BufferPool:
    """Buffers of any size, at most 4 MiB of them kept."""

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    @property
    def kept_bytes(self) -> int:
        """What the pool holds on to, in use or not."""
        return sum(len(buffer) for buffer in self._buffers)

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, with whatever was in it."""
        for buffer in self._buffers:
            if size <= len(buffer) <= 4 * size + _STEP and getrefcount(buffer) == _FREE:
                return buffer
        fresh = bytearray((size + _STEP - 1) // _STEP * _STEP)
        if len(fresh) <= _KEPT_BYTES:
            self._make_room(len(fresh))
            if self.kept_bytes + len(fresh) <= _KEPT_BYTES:
                self._buffers.append(fresh)
        return fresh

    def _make_room(self, size: int) -> None:
        """Let go of buffers that nobody uses, the oldest first, as far as needed."""
        for buffer in list(self._buffers):
            if self.kept_bytes + size <= _KEPT_BYTES:
                return
            if getrefcount(buffer) == _FREE + 1:
                self._buffers.remove(buffer)
