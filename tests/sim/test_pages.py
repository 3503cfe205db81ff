"""Which memory is new, and that a process which owns its pages has what was in them."""

from __future__ import annotations

import ctypes
import mmap

from tests.sim import pages

_SIZE = 8 * 1024 * 1024


def test_memory_is_found_once_it_is_there_and_holds_what_was_written_to_it() -> None:
    before = pages.spans()
    with mmap.mmap(-1, _SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        written = bytes(range(256)) * (_SIZE // 256)
        memory[:] = written
        view = ctypes.c_char.from_buffer(memory)
        begin = ctypes.addressof(view)
        del view
        found = [page for page in pages.newer(before) if begin <= page < begin + _SIZE]
        assert len(found) >= 2
        assert not set(found) & set(pages.newer(pages.spans()))
        pages.own(found)
        assert memory[:] == written


def test_without_memory_nothing_is_owned() -> None:
    assert pages.newer([(0, 1 << 63)]) == []
    pages.own([])
