"""Requests whose claims were lost or let go of: a token that had something never claims it anew. Bounded."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from sidecar.changelog import Key

KEYS_KEPT: Final = 100_000


class LostTokens:
    """What each token lost, the newest `limit` resources in all."""

    def __init__(self, limit: int = KEYS_KEPT) -> None:
        self._limit = limit
        self._size = 0
        self._lost: OrderedDict[bytes, dict[Key, None]] = OrderedDict()

    def add(self, token: bytes, keys: Iterable[Key]) -> None:
        """A token lost these."""
        found = self._lost.setdefault(token, {})
        self._lost.move_to_end(token)
        self._size -= len(found)
        found.update(dict.fromkeys(keys))
        self._size += len(found)
        while self._size > self._limit:
            self._size -= len(self._lost.popitem(last=False)[1])

    def of(self, token: bytes) -> AbstractSet[Key]:
        """What a token lost."""
        return self._lost.get(token, {}).keys()
