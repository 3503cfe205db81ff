"""Which session writes under which producer name: the present sessions, and the writers of earlier batches. Pure.

A name has one live session per topic at a time: of two processes with one name, each would have its records dropped as
duplicates of the other's (PIP-6).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from sidecar.protocol.session import is_default_name

NAME_BYTES: Final = 255
"""The longest producer name, in bytes of UTF-8. A client id may have 32 KiB: of a longer one the beginning is
remembered and shown.
"""
_CUT: Final = "…"


FORGOTTEN: Final = b""
"""Stands for a producer name that is not known any more; no producer can have it."""


def producer_name(name: str) -> bytes | None:
    """The name of a client as a producer name for sequence ids; None if two clients may share it, or it is longer
    than 255 bytes.
    """
    found = name.encode()
    if len(found) > NAME_BYTES or name.endswith(_CUT) or is_default_name(name):
        return None
    return found


def shown_name(name: str) -> str:
    """A name as it is remembered and shown: one that is too long is cut, and its last character shows that."""
    return name if len(name.encode()) <= NAME_BYTES else name[: NAME_BYTES // 4] + _CUT


class Rival(NamedTuple):
    """Another live session with the same name."""

    name: bytes
    session: str


class NameHolders:
    """The sessions that write to one topic, and their names. `is_live`: whether a session has a connection."""

    def __init__(self, is_live: Callable[[str], bool]) -> None:
        self._is_live = is_live
        self._held: dict[bytes, str] = {}
        self._carrying: set[str] = set()

    def rival(self, names: Iterable[bytes], session: str) -> Rival | None:
        """Return another live session that has one of these names."""
        for name in names:
            held = self._held.get(name)
            if held is not None and held != session and self._is_live(held):
                return Rival(name, held)
        return None

    def hold(self, names: Iterable[bytes], session: str) -> None:
        """Record that a session writes under these names. From now on all its records need ids."""
        for name in names:
            self._held[name] = session
        self._carrying.add(session)

    def must_carry(self, session: str) -> bool:
        """Whether a session has written with ids: then each of its records needs one (PIP-6)."""
        return session in self._carrying

    def is_live(self, name: bytes) -> bool:
        """Whether a session that is connected writes under a name."""
        held = self._held.get(name)
        return held is not None and self._is_live(held)

    def session_of(self, name: bytes) -> str | None:
        """Return the session that last wrote under a name, as far as this node knows."""
        return self._held.get(name)

    def forget_gone(self) -> None:
        """Forget sessions that have no connection."""
        self._held = {name: session for name, session in self._held.items() if self._is_live(session)}
        self._carrying = {session for session in self._carrying if self._is_live(session)}


class WriterNames:
    """The producer name of each epoch of a slot, as far as the changelog shows: for records without a name of their
    own.

    The record of a slot contains the session with the newest epoch, and the earlier sessions with the last epoch of
    each. A session whose client raised its own epoch has several epochs in a row.
    """

    def __init__(self) -> None:
        self._until: dict[int, list[tuple[int, bytes | None]]] = {}

    def add(self, producer_id: int, last_epoch: int, name: bytes | None) -> None:
        """Record that the epochs of a producer id up to `last_epoch`, and after the next lower one added, belong to
        `name`. None: the writer had no name. `FORGOTTEN`: its name is not known any more.
        """
        found = self._until.setdefault(producer_id, [])
        found.append((last_epoch, name))
        found.sort(key=lambda entry: entry[0])

    def of(self, producer_id: int, epoch: int) -> bytes | None:
        """Return the name of the writer of a batch with this stamp: None if it has no name, `FORGOTTEN` if it is not
        known any more.
        """
        found = self._until.get(producer_id)
        if found is None:
            return None
        index = bisect_left(found, epoch, key=lambda entry: entry[0])
        return found[index][1] if index < len(found) else None

    def spans(self) -> Iterator[tuple[int, int, int, bytes | None]]:
        """Yield each span: producer id, first and last epoch, and the name that `of` returns for every epoch in it."""
        for producer_id, found in self._until.items():
            first = 0
            for last, name in found:
                if last >= first:
                    yield producer_id, first, last, name
                    first = last + 1
