"""Which session writes under which producer name: present sessions, and the writers of earlier batches. Pure.

A name has one live session per topic at a time: two processes under one name would drop each other's records as
duplicates (PIP-6).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

NAME_BYTES = 255
"""The longest producer name, in bytes of UTF-8."""


FORGOTTEN = b""
"""The name of writers whose name is not known any more: no producer has it."""


class Rival(NamedTuple):
    """Another session that is alive under a name."""

    name: bytes
    session: str


class NameHolders:
    """The sessions at work on one topic and their names. `is_live`: whether a session has a connection."""

    def __init__(self, is_live: Callable[[str], bool]) -> None:
        self._is_live = is_live
        self._held: dict[bytes, str] = {}
        self._carrying: set[str] = set()

    def rival(self, names: Iterable[bytes], session: str) -> Rival | None:
        """Another live session that has one of these names."""
        for name in names:
            held = self._held.get(name)
            if held is not None and held != session and self._is_live(held):
                return Rival(name, held)
        return None

    def hold(self, names: Iterable[bytes], session: str) -> None:
        """A session writes under these names from now on, and with ids for ever."""
        for name in names:
            self._held[name] = session
        self._carrying.add(session)

    def must_carry(self, session: str) -> bool:
        """Whether a session has written with ids: then every record of it needs one (PIP-6)."""
        return session in self._carrying

    def is_live(self, name: bytes) -> bool:
        """Whether a session that is connected writes under a name."""
        held = self._held.get(name)
        return held is not None and self._is_live(held)

    def session_of(self, name: bytes) -> str | None:
        """The session that wrote last under a name, as far as this node knows."""
        return self._held.get(name)

    def forget_gone(self) -> None:
        """Forget sessions that are gone."""
        self._held = {name: session for name, session in self._held.items() if self._is_live(session)}
        self._carrying = {session for session in self._carrying if self._is_live(session)}


class WriterNames:
    """The name under which an epoch of a slot wrote, as far as the changelog shows: for records without one of their
    own.

    A slot's record says who has its newest epoch, and who had it up to which epoch before. A session whose client
    raised its own epoch has several in a row.
    """

    def __init__(self) -> None:
        self._until: dict[int, list[tuple[int, bytes | None]]] = {}

    def add(self, producer_id: int, last_epoch: int, name: bytes | None) -> None:
        """Up to this epoch, from the one before on, a producer id was `name`'s; None: nobody's who has one; or
        `FORGOTTEN`.
        """
        found = self._until.setdefault(producer_id, [])
        found.append((last_epoch, name))
        found.sort(key=lambda entry: entry[0])

    def of(self, producer_id: int, epoch: int) -> bytes | None:
        """Who wrote a batch with this stamp; None where the writer has no name, `FORGOTTEN` where it may be
        somebody's.
        """
        found = self._until.get(producer_id)
        if found is None:
            return None
        index = bisect_left(found, epoch, key=lambda entry: entry[0])
        return found[index][1] if index < len(found) else None

    def spans(self) -> Iterator[tuple[int, int, int, bytes | None]]:
        """All of it: producer id, first and last epoch, and the name that `of` returns for each epoch between them."""
        for producer_id, found in self._until.items():
            first = 0
            for last, name in found:
                if last >= first:
                    yield producer_id, first, last, name
                    first = last + 1
