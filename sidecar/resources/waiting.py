"""Waiting requests: each enters the queues of all its resources at once. Tokens that lost or released claims: a token
never claims again what it had. And which resources overlap. Pure.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sidecar.changelog import Key, whole_of
from sidecar.resources.requests import Request

NameT = TypeVar("NameT")
ValueT = TypeVar("ValueT")
MembersT = TypeVar("MembersT", bound="dict[Any, Any]")

KEYS_KEPT: Final = 100_000
"""The number of lost resources that are remembered."""
_NOBODY: Final[Mapping[bytes, WaitingRequest]] = {}


class ByResource(dict[Key, ValueT]):
    """Values by resource. Two resources *overlap* if they are the same, or if one is a topic and the other one of its
    partitions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[Key, dict[Key, None]] = {}
        """Partitions by their topic."""

    def __setitem__(self, key: Key, value: ValueT) -> None:
        super().__setitem__(key, value)
        whole = whole_of(key)
        if whole is not None:
            self._parts.setdefault(whole, {})[key] = None

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        whole = whole_of(key)
        if whole is not None:
            take_out(self._parts, whole, key)

    def overlapping(self, key: Key) -> Iterator[Key]:
        """Yield the resources in it that overlap with one."""
        whole = whole_of(key)
        near = (key, *self._parts.get(key, ())) if whole is None else (key, whole)
        return (one for one in near if one in self)


@dataclass(slots=True)
class WaitingRequest:
    """A request that waits. `number` counts arrivals; `ready`: its turn has come."""

    request: Request
    number: int
    since_ms: int
    ready: bool = False
    blocked: int = 0
    """The index of the wish that was blocked at the last check; it is checked first the next time."""

    @property
    def token(self) -> bytes:
        return self.request.token


class WaitingRequests:
    """All waiting requests by token, in the order of arrival; and the queues by resource."""

    def __init__(self) -> None:
        self.by_token: dict[bytes, WaitingRequest] = {}
        self.wishes = 0
        """The number of places taken in queues."""
        self.wishes_of: Counter[str] = Counter()
        """The same by principal; only those with places."""
        self._arrivals = 0
        self._of_session: dict[str, dict[bytes, None]] = {}
        self._queues: ByResource[OrderedDict[bytes, WaitingRequest]] = ByResource()

    def add(self, request: Request, now_ms: int) -> None:
        """Add a request behind all others. `now_ms`: Unix time."""
        self._arrivals += 1
        waiting = self.by_token[request.token] = WaitingRequest(request, self._arrivals, now_ms)
        self._of_session.setdefault(request.session, {})[request.token] = None
        self.wishes += len(request.wishes)
        self.wishes_of[request.principal] += len(request.wishes)
        for wish in request.wishes:
            if wish.key not in self._queues:
                self._queues[wish.key] = OrderedDict()
            self._queues[wish.key][request.token] = waiting

    def remove(self, token: bytes) -> list[Key]:
        """Remove a request, and return the keys of its queues."""
        waiting = self.by_token.pop(token, None)
        if waiting is None:
            return []
        keys = [wish.key for wish in waiting.request.wishes]
        self.wishes -= len(keys)
        count_down(self.wishes_of, waiting.request.principal, len(keys))
        take_out(self._of_session, waiting.request.session, token)
        for key in keys:
            take_out(self._queues, key, token)
        return keys

    def of_session(self, session: str, about: int) -> list[bytes]:
        """Return tokens of a session's waiting requests, with about so many places: one at least if there is any."""
        found: list[bytes] = []
        for token in self._of_session.get(session, ()):
            if about <= 0:
                break
            found.append(token)
            about -= len(self.by_token[token].request.wishes)
        return found

    def queue(self, key: Key) -> Mapping[bytes, WaitingRequest]:
        """Return the requests that wait for exactly this resource, in order, by token."""
        return self._queues.get(key, _NOBODY)

    def queued(self) -> Iterable[Key]:
        return self._queues.keys()

    def is_anybody_ahead(self, token: bytes, key: Key) -> bool:
        """Return whether an earlier request waits for a resource that overlaps with this one."""
        own = self.by_token.get(token)
        firsts = (next(iter(queue.values())) for queue in self._overlapping(key))
        return any(first is not own and (own is None or first.number < own.number) for first in firsts)

    def rivals(self, keys: Iterable[Key]) -> Collection[WaitingRequest]:
        """Return all requests that wait for a resource which overlaps with any of these."""
        queues = (queue for key in keys for queue in self._overlapping(key))
        return {waiting.token: waiting for queue in queues for waiting in queue.values()}.values()

    def next_in_line(self, keys: Iterable[Key], sessions: Collection[str]) -> list[WaitingRequest]:
        """Return the requests whose turn may have come after owners or queues of these resources changed, in the order
        of arrival: the first in each queue, and the requests of these `sessions`, which need not queue for what they
        own.
        """
        found: dict[bytes, WaitingRequest] = {}
        for key in keys:
            for queue in self._overlapping(key):
                first = next(iter(queue.values()))
                found[first.token] = first
                for session in sessions:
                    tokens = self._of_session.get(session, {})
                    fewer, more = (tokens, queue) if len(tokens) < len(queue) else (queue, tokens)
                    found.update({token: queue[token] for token in fewer if token in more})
        return sorted(found.values(), key=lambda waiting: waiting.number)

    def _overlapping(self, key: Key) -> Iterator[OrderedDict[bytes, WaitingRequest]]:
        return (self._queues[one] for one in self._queues.overlapping(key))


class LostTokens:
    """The resources that each token lost: the newest `limit` in all."""

    def __init__(self, limit: int = KEYS_KEPT) -> None:
        self._limit = limit
        self._size = 0
        self._lost: OrderedDict[bytes, dict[Key, None]] = OrderedDict()

    def add(self, token: bytes, keys: Iterable[Key]) -> None:
        found = self._lost.setdefault(token, {})
        self._lost.move_to_end(token)
        self._size -= len(found)
        found.update(dict.fromkeys(keys))
        self._size += len(found)
        while self._size > self._limit:
            self._size -= len(self._lost.popitem(last=False)[1])

    def of(self, token: bytes) -> AbstractSet[Key]:
        return self._lost.get(token, {}).keys()


def count_down(counts: Counter[str], name: str, number: int) -> None:
    """Subtract a number, and remove the name if nothing is left."""
    counts[name] -= number
    if not counts[name]:
        del counts[name]


def take_out(index: dict[NameT, MembersT], name: NameT, member: Any) -> None:
    """Remove a member from an index if it is there, and its name if nothing is left under it."""
    members = index.get(name)
    if members is not None:
        members.pop(member, None)
        if not members:
            del index[name]
