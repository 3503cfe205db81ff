"""Stores a node's Own requests by token: what each owns, waits for and has lost, and its calls in progress. Decides
nothing.

A request with the same token is the same request, so one whose answer was lost can be sent again without harm. `Watch`
returns what happened to a token since its last answer.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from sidecar.access.rules import KEPT_S
from sidecar.changelog import Key
from sidecar.exclusive.owning import TopicClaim
from sidecar.gateway.client import Client
from sidecar.gateway.own.asked import Asked, Target
from sidecar.resources.requests import Request
from sidecar.resources.waiting import count_down
from sidecar.v1 import control_pb2 as control

NameT = TypeVar("NameT")
FoundT = TypeVar("FoundT", bound="dict[bytes, Ticket]")

TICKETS: Final = 200_000
"""The limit of requests that own or wait on one node."""
TICKETS_OF_ONE: Final = 50_000
"""The same, of one principal."""
CONNECTIONS_KEPT: Final = 8
"""The number of connections to which one request is bound, the newest ones: without a bound, each of thousands of
connections could be bound to each of a principal's requests.
"""
LOST_KEPT: Final = 10_000
"""The limit of stored tokens that own nothing any more: a repetition of their request does not claim again."""


class Stand(Enum):
    """The state of a request as a whole."""

    TRYING = "it is being decided"
    WAITING = "it has its places"
    OWNING = "everything was granted; some of it may be lost since"
    OVER = "nothing is left of it"


@dataclass(slots=True, eq=False)
class Ticket:
    """One request. `clients`: the connections to which it is bound; `calls`: the number of their waiting calls;
    `own_calls`: those of Own, which receive a grant. If there are none, Watch receives it.

    `kept_until` (monotonic seconds): the time until which a place or promotion is kept without a call.
    """

    asked: Asked
    claims: dict[Target, TopicClaim]
    request: Request | None
    clients: dict[int, Client]
    stand: Stand = Stand.TRYING
    answer: control.OwnResponse | None = None
    keys: dict[Target, Key] = field(default_factory=dict["Target", Key])
    """The keys of the targets that the coordinator grants."""
    owned: dict[Target, int] = field(default_factory=dict["Target", int])
    lost: dict[Target, control.Ownership] = field(default_factory=dict["Target", control.Ownership])
    released: set[Target] = field(default_factory=set["Target"])
    news: dict[Target, control.Ownership] = field(default_factory=dict["Target", control.Ownership])
    calls: int = 0
    own_calls: int = 0
    kept_until: float = 0.0
    came: float = 0.0
    """When it took all its places at once (monotonic seconds)."""
    is_placed: bool = False
    """Whether it has, or had, places at the coordinator."""
    is_promoted: bool = False
    """Whether it was granted while no Own waited, and no call has reported that yet."""
    is_driven: bool = False
    is_due: bool = False
    """Whether its targets have changed since the last decision."""
    listeners: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])

    @property
    def is_alive(self) -> bool:
        """Whether it is bound to an open connection."""
        return any(client.is_alive() for client in self.clients.values())

    @property
    def client(self) -> Client:
        """The connection that was bound last."""
        return next(reversed(self.clients.values()))

    @property
    def lapses(self) -> bool:
        """Whether it is given up if no call comes: places and promotions are, an unreported loss is not."""
        return self.stand is Stand.WAITING or (self.stand is Stand.OWNING and self.is_promoted)

    def heard(self) -> list[control.Ownership]:
        """Returns the changes that were not reported yet, and marks them as reported."""
        news, self.news, self.is_promoted = list(self.news.values()), {}, False
        return news

    @property
    def has_moved(self) -> bool:
        """Whether other nodes now serve or coordinate everything that it owned."""
        return bool(self.lost) and all(each.error == control.NOT_SERVING for each in self.lost.values())

    def notify(self) -> None:
        """Wake all listeners, because something has changed."""
        listeners, self.listeners = self.listeners, set()
        for listener in listeners:
            _rouse(listener)

    def listen(self) -> asyncio.Future[None]:
        """Returns a future that is done at the next change."""
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listeners.add(listener)
        return listener


class Tickets:
    """All requests of a node, by token, by owned targets and by targets that they wait for."""

    def __init__(self) -> None:
        self._by_token: dict[bytes, Ticket] = {}
        self._owners: dict[Target, dict[bytes, Ticket]] = {}
        self._waiting: dict[Target, OrderedDict[bytes, Ticket]] = {}
        self._of_connection: dict[int, dict[bytes, Ticket]] = {}
        self._over: OrderedDict[bytes, None] = OrderedDict()
        self.of_principal: Counter[str] = Counter()
        """The number of requests that own or wait, by principal."""

    def __len__(self) -> int:
        return len(self._by_token) - len(self._over)

    def get(self, token: bytes) -> Ticket | None:
        """The request with this token."""
        return self._by_token.get(token)

    def add(self, ticket: Ticket, client: Client) -> None:
        """Store a request of a connection."""
        self._by_token[ticket.asked.token] = ticket
        self.of_principal[ticket.asked.caller.principal] += 1
        self.connect(ticket, client)

    def connect(self, ticket: Ticket, client: Client) -> None:
        """Bind a request to a connection; the newest `CONNECTIONS_KEPT` count."""
        ticket.clients.pop(client.connection_id, None)
        ticket.clients[client.connection_id] = client
        self._of_connection.setdefault(client.connection_id, {})[ticket.asked.token] = ticket
        if len(ticket.clients) > CONNECTIONS_KEPT:
            oldest = next(iter(ticket.clients))
            del ticket.clients[oldest]
            _take_out(self._of_connection, oldest, ticket)

    def of_connection(self, connection: int) -> list[Ticket]:
        """Returns the requests of a connection, and unbinds them from it."""
        found = list(self._of_connection.pop(connection, {}).values())
        for ticket in found:
            if len(ticket.clients) > 1:
                ticket.clients.pop(connection, None)
        return found

    def owning(self, ticket: Ticket, owned: dict[Target, int]) -> None:
        """Note the targets that a request was granted."""
        ticket.stand, ticket.owned = Stand.OWNING, owned
        for target in owned if self._is_known(ticket) else ():
            self._owners.setdefault(target, {})[ticket.asked.token] = ticket

    def disowned(self, ticket: Ticket, target: Target) -> None:
        """Note that a request no longer owns a target; its promotion to it is not reported any more."""
        ticket.owned.pop(target, None)
        if target in ticket.news and not ticket.news[target].error:
            del ticket.news[target]
        _take_out(self._owners, target, ticket)
        if not ticket.owned:
            self.over(ticket)

    def waits(self, ticket: Ticket) -> None:
        """Note that a request has a place for each of its targets."""
        ticket.stand = Stand.WAITING
        for target in ticket.asked.targets if self._is_known(ticket) else ():
            self._waiting.setdefault(target, OrderedDict())[ticket.asked.token] = ticket

    def waits_no_more(self, ticket: Ticket) -> None:
        """Note that a request has no places any more."""
        for target in ticket.asked.targets:
            _take_out(self._waiting, target, ticket)

    def over(self, ticket: Ticket) -> None:
        """End a request. Its token is stored for a while, and its Watch ends."""
        ticket.stand = Stand.OVER
        ticket.notify()
        if self._is_known(ticket):
            self._count_down(ticket)
            self._over[ticket.asked.token] = None
        while len(self._over) > LOST_KEPT:
            self.forget(self._by_token[next(iter(self._over))])

    def forget(self, ticket: Ticket) -> None:
        """Forget a request and its token."""
        token = ticket.asked.token
        self.waits_no_more(ticket)
        for target in list(ticket.owned):
            _take_out(self._owners, target, ticket)
        if self._is_known(ticket):
            self._count_down(ticket)
            self._over.pop(token, None)
            del self._by_token[token]
        for connection in ticket.clients:
            _take_out(self._of_connection, connection, ticket)
        if not ticket.is_driven:  # else it is decided first
            ticket.stand = Stand.OVER
            ticket.notify()

    def _count_down(self, ticket: Ticket) -> None:
        if ticket.asked.token not in self._over:
            count_down(self.of_principal, ticket.asked.caller.principal, 1)

    def _is_known(self, ticket: Ticket) -> bool:
        """Whether the request is still stored: its connection may have closed in the meantime."""
        return self._by_token.get(ticket.asked.token) is ticket

    def owners(self, target: Target) -> list[Ticket]:
        """The request that owns a target."""
        return list(self._owners.get(target, {}).values())

    def first_waiting(self, target: Target) -> Ticket | None:
        """The request that has waited longest for a target."""
        found = self._waiting.get(target)
        return next(iter(found.values())) if found else None

    def waiting_as(self, target: Target, session: str) -> Ticket | None:
        """The request of a session that has waited longest for a target."""
        found = self._waiting.get(target, OrderedDict[bytes, Ticket]()).values()
        return next((ticket for ticket in found if ticket.asked.session == session), None)

    def waited_for(self) -> Iterable[Target]:
        """All targets for which requests wait."""
        return list(self._waiting)


def _take_out(index: MutableMapping[NameT, FoundT], name: NameT, ticket: Ticket) -> None:
    """Remove a request from an index, unless another request has its token by now."""
    found = index.get(name)
    if found is not None and found.get(ticket.asked.token) is ticket:
        del found[ticket.asked.token]
        if not found:
            del index[name]


class Attendance:
    """The calls of Own and Watch in progress, and the requests without calls. During a call, and for 5 s longer, the
    place or promotion of a request is kept.
    """

    def __init__(self) -> None:
        self._parked: dict[int, set[asyncio.Future[None]]] = {}
        self._unattended: dict[bytes, Ticket] = {}

    @contextmanager
    def attended(self, ticket: Ticket, *, by_own: bool = False) -> Iterator[None]:
        """During a call for a request: its place or promotion is kept."""
        ticket.calls += 1
        ticket.own_calls += by_own
        self._unattended.pop(ticket.asked.token, None)
        try:
            yield
        finally:
            ticket.calls -= 1
            ticket.own_calls -= by_own
            self.left_alone(ticket)

    def left_alone(self, ticket: Ticket) -> None:
        """Note that a request has no call now."""
        if ticket.calls == 0 and ticket.lapses:
            ticket.kept_until = asyncio.get_running_loop().time() + KEPT_S
            self._unattended[ticket.asked.token] = ticket

    def waits(self, ticket: Ticket) -> None:
        """Note that a request took or keeps its places: this does not extend the time without a call."""
        if ticket.asked.token not in self._unattended:
            self.left_alone(ticket)

    async def park(self, client: Client, ticket: Ticket, seconds: float | None) -> None:
        """Wait until a request changes, its client disconnects, or `seconds` have passed."""
        listener = ticket.listen()
        parked = self._parked.setdefault(client.connection_id, set())
        parked.add(listener)
        alarm = None if seconds is None else asyncio.get_running_loop().call_later(seconds, _rouse, listener)
        client.connection.park()
        try:
            await listener  # nothing around it: thousands wait here
        finally:
            if alarm is not None:
                alarm.cancel()
            ticket.listeners.discard(listener)
            parked.discard(listener)
            if not parked:
                self._parked.pop(client.connection_id, None)

    def gone(self, client: Client) -> None:
        """End the calls of a client that has disconnected."""
        for listener in self._parked.pop(client.connection_id, ()):
            _rouse(listener)

    def forget(self, ticket: Ticket) -> None:
        """Forget a request."""
        self._unattended.pop(ticket.asked.token, None)

    def lapsed(self) -> Iterator[Ticket]:
        """The requests that had no call for too long, each once; calls may arrive during the iteration."""
        now = asyncio.get_running_loop().time()
        for token, ticket in list(self._unattended.items()):
            if self._unattended.get(token) is not ticket:
                continue  # a call has arrived in the meantime
            if not ticket.lapses:
                del self._unattended[token]
            elif now > ticket.kept_until:
                del self._unattended[token]
                yield ticket


def _rouse(listener: asyncio.Future[None]) -> None:
    if not listener.done():
        listener.set_result(None)
