"""Memory that a thread reuses for decompressed batches, so that large batches do not block Python's lock.

To allocate and free a `bytearray` of 64 MiB holds Python's lock for 25 ms: the system finds and clears 16,000 pages
meanwhile. With a `Room` these pages are taken while the codec runs, without the lock. The room gives them back in
pieces, between which other threads have their turn.
"""

import mmap
import threading
import time
from typing import Final

from sidecar.protocol.limits import BATCH_AT_ONCE_BYTES, BATCH_BYTES

_PIECE_BYTES: Final = 1 << 20
_GIVES_BACK: Final[int | None] = getattr(mmap, "MADV_DONTNEED", None)


class Room:
    """The memory of one thread, by default for the largest batch. Parts that are never used cost nothing.

    The thread's next batch overwrites it: a caller that needs the bytes for longer copies them.
    """

    __slots__ = ("_map", "_used", "view")

    def __init__(self, size: int = BATCH_BYTES) -> None:
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory would not be freed
        self._used = 0
        self.view = memoryview(self._map)

    def of(self, limit: int) -> memoryview | None:
        """Return `limit` bytes of it; None if it is smaller."""
        if limit > len(self.view):
            return None
        self._used = max(self._used, limit)
        return self.view[:limit]

    def give_back(self) -> None:
        """Return the memory to the system; others have their turn between two pieces."""
        if _GIVES_BACK is not None:
            for start in range(0, self._used, _PIECE_BYTES):
                self._map.madvise(_GIVES_BACK, start, min(_PIECE_BYTES, len(self.view) - start))
                time.sleep(0)  # releases Python's lock
        self._used = 0


class _OfThread(threading.local):
    room: Room | None = None


_MINE: Final = _OfThread()


def take_room() -> None:
    """Give this thread a room, which `room_for` then returns."""
    _MINE.room = Room()


def give_back() -> None:
    """See `Room.give_back`, for this thread."""
    if _MINE.room is not None:
        _MINE.room.give_back()


def room_for(limit: int) -> memoryview | None:
    """Return memory for `limit` decompressed bytes; None if this thread has no such room, or `limit` is small."""
    if _MINE.room is None or limit <= BATCH_AT_ONCE_BYTES:
        return None
    return _MINE.room.of(limit)
