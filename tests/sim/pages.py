"""Memory of a history's process, which is a fork: what every history writes to is copied 2 MB at a time.

A fork shares the pages of its parent, and copies each as it writes to it for the first time. A history does that to
5,000 pages of 4 KB, as Python counts references in the objects themselves: a sixth of its time. Two thirds of these
pages are where the project's own modules and the world are. So these are kept apart from what other packages have
(`spans` before they are imported, `newer` once they are there), and the process has Linux copy them as huge pages
(`own`): one call for 512 pages, which costs as much as 160 faults. Where a system cannot do that, nothing changes.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import Final

Span = tuple[int, int]
"""The first address of some memory, and the one behind its end."""

_HUGE: Final = 2 * 1024 * 1024
_COLLAPSE: Final = 25
"""MADV_COLLAPSE, since Linux 6.1: at once, whatever `transparent_hugepage/enabled` says."""
_MAPS: Final = Path("/proc/self/maps")
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_kept: list[object] = []


def keep_memory() -> None:
    """Have the C library give no memory back and map none by itself: each page costs a fault again."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_TRIM_THRESHOLD, 1 << 30)
        library.mallopt(_TOP_PAD, _HUGE)
        library.mallopt(_MMAP_THRESHOLD, 16 * _HUGE)


def spans() -> list[Span]:
    """Where this process has memory of its own that is no file's, by address; nothing where there is no `/proc`."""
    found: list[Span] = []
    for line in _MAPS.read_text().splitlines() if _MAPS.exists() else ():
        where, rights, *rest = line.split()
        if rights == "rw-p" and rest[3:] in ([], ["[heap]"]):
            begin, _, end = where.partition("-")
            found.append((int(begin, 16), int(end, 16)))
    return found


def pad() -> None:
    """Leave a gap that nothing is written to: what comes next begins within it, with a whole huge page."""
    _kept.append(mmap.mmap(-1, _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def make_room(size: int) -> None:
    """Have Python ask for so many bytes of memory now, all in one place, for what comes."""
    filling = [bytes(400) for _ in range(size // 448)]
    _kept.append(filling[::512])


def newer(old: list[Span]) -> list[int]:
    """Addresses of the huge pages of `spans` of which less than a half is in `old`."""
    return [
        at
        for begin, end in spans()
        for at in range(-(-begin // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE)
        if sum(max(0, min(last, at + _HUGE) - max(first, at)) for first, last in old) < _HUGE // 2
    ]


def own(memory: list[int]) -> None:
    """Have copies of these huge pages, as far as the system can."""
    if memory:
        advise = ctypes.CDLL(None).madvise
        for at in memory:
            advise(ctypes.c_void_p(at), ctypes.c_size_t(_HUGE), _COLLAPSE)
