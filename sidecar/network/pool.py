"""Buffers for large answers of brokers, reused once nothing refers to them.

For a new buffer of a megabyte, the kernel has to find pages and Python has to fill them with zeroes: a third of the
whole cost of passing on a Fetch answer. A buffer is free when only the pool refers to it: a frame, a view of it, or a
transport that has not sent it yet all count as references. So no code has to give a buffer back, and none is
overwritten while it is in use.
"""

from sys import getrefcount
from typing import Final

_STEP: Final = 64 * 1024
_KEPT_BYTES: Final = 4 * 1024 * 1024
_FREE: Final = 3
"""References to a free buffer: the pool's list, the loop variable, and the argument of getrefcount."""


class BufferPool:
    """Buffers of any size. The pool stores at most 4 MiB of them."""

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    @property
    def kept_bytes(self) -> int:
        """Bytes of the pool's buffers, in use or free."""
        return sum(len(buffer) for buffer in self._buffers)

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes. Its old content is still in it."""
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
        """Remove free buffers, the oldest first, until there is room for `size` bytes."""
        for buffer in list(self._buffers):
            if self.kept_bytes + size <= _KEPT_BYTES:
                return
            if getrefcount(buffer) == _FREE + 1:
                self._buffers.remove(buffer)
