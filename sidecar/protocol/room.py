"""Memory that a thread keeps for what it decompresses, so that large batches do not hold Python's lock.

To make a `bytearray` of 64 MiB, and to free it, takes Python's lock for 25 ms: the system finds and clears 16,000
pages meanwhile. A thread that has a `Room` lets the codec find them instead, without the lock, and gives them back in
pieces between which other threads have their turn.
"""

import mmap
import threading
import time
from typing import Final

from sidecar.protocol.limits import BATCH_AT_ONCE_BYTES, BATCH_BYTES

_PIECE_BYTES: Final = 1 << 20
_GIVES_BACK: Final[int | None] = getattr(mmap, "MADV_DONTNEED", None)


class Room:
    """The memory of one thread: as many bytes as the records of one batch may have. What is never used costs nothing.

    What was decompressed into it is overwritten by the thread's next batch: who keeps it for longer copies it.
    """

    __slots__ = ("_map", "_used", "view")

    def __init__(self, size: int = BATCH_BYTES) -> None:
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared, it would not be freed
        self._used = 0
        self.view = memoryview(self._map)

    def of(self, limit: int) -> memoryview | None:
        """`limit` bytes of it; None where it has not so many."""
        if limit > len(self.view):
            return None
        self._used = max(self._used, limit)
        return self.view[:limit]

    def give_back(self) -> None:
        """Return the memory to the system; others have their turn between two pieces."""
        if _GIVES_BACK is not None:
            for start in range(0, self._used, _PIECE_BYTES):
                self._map.madvise(_GIVES_BACK, start, min(_PIECE_BYTES, len(self.view) - start))
                time.sleep(0)  # without Python's lock
        self._used = 0


class _OfThread(threading.local):
    room: Room | None = None


_MINE: Final = _OfThread()


def take_room() -> None:
    """From now on this thread has a room: `room_for` finds it."""
    _MINE.room = Room()


def give_back() -> None:
    """See `Room.give_back`, for this thread."""
    if _MINE.room is not None:
        _MINE.room.give_back()


def room_for(limit: int) -> memoryview | None:
    """Where this thread decompresses `limit` bytes to; None where it has no such room, or they are few."""
    if _MINE.room is None or limit <= BATCH_AT_ONCE_BYTES:
        return None
    return _MINE.room.of(limit)
