"""What a node remembers of Own requests by their tokens: what each owns, waits for and lost, and which calls attend to
it. Decides nothing.

A request with the same token is the same request, so one whose answer was lost can be sent again without harm. `Watch`
returns what happened to a token since its last answer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from sidecar.access.rules import KEPT_S
from sidecar.exclusive.owning import TopicClaim
from sidecar.gateway.client import Client
from sidecar.gateway.own.asked import Asked, Target
from sidecar.resources.requests import Request
from sidecar.v1 import control_pb2 as control

NameT = TypeVar("NameT")
FoundT = TypeVar("FoundT", bound="dict[bytes, Ticket]")

TICKETS: Final = 200_000
"""As many requests own or wait at once on one node."""
LOST_KEPT: Final = 10_000
"""As many tokens are remembered that own nothing any more: a repeat of theirs claims nothing anew."""


class Stand(Enum):
    """How a request stands as a whole."""

    TRYING = "it is being decided"
    WAITING = "it has its places"
    OWNING = "everything was granted; some of it may be lost since"
    OVER = "nothing is left of it"


@dataclass(slots=True, eq=False)
class Ticket:
    """One request. `clients` are the connections that speak for it; `calls` how many of
    theirs wait right now, `own_calls` those of Own, which receive a grant; Watch receives it where there are none.

    `kept_until` (monotonic seconds): a place, or a promotion, is kept this long without a call.
    """

    asked: Asked
    claims: dict[Target, TopicClaim]
    request: Request | None
    clients: dict[int, Client]
    stand: Stand = Stand.TRYING
    answer: control.OwnResponse | None = None
    owned: dict[Target, int] = field(default_factory=dict["Target", int])
    lost: dict[Target, control.Ownership] = field(default_factory=dict["Target", control.Ownership])
    released: set[Target] = field(default_factory=set["Target"])
    news: dict[Target, control.Ownership] = field(default_factory=dict["Target", control.Ownership])
    calls: int = 0
    own_calls: int = 0
    kept_until: float = 0.0
    came: float = 0.0
    """When it took its places, all of them at once (monotonic seconds)."""
    is_placed: bool = False
    """It has, or had, places of the coordinator's."""
    is_promoted: bool = False
    """It was granted while no Own waited for it, and no call has reported that yet."""
    is_driven: bool = False
    is_due: bool = False
    """Something happened to what it asks for since it was last decided on."""
    listeners: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])

    @property
    def is_alive(self) -> bool:
        """Whether a connection stands for it."""
        return any(client.is_alive() for client in self.clients.values())

    @property
    def client(self) -> Client:
        """The connection that spoke for it last."""
        return next(reversed(self.clients.values()))

    @property
    def lapses(self) -> bool:
        """Whether it is given up where no call comes: a place, or a promotion. A loss that was not reported costs no
        more than what was lost.
        """
        return self.stand is Stand.WAITING or (self.stand is Stand.OWNING and self.is_promoted)

    def heard(self) -> list[control.Ownership]:
        """Takes what was not reported yet."""
        news, self.news, self.is_promoted = list(self.news.values()), {}, False
        return news

    @property
    def has_moved(self) -> bool:
        """Whether all that it owned is another node's business now."""
        return bool(self.lost) and all(each.error == control.NOT_SERVING for each in self.lost.values())

    def notify(self) -> None:
        """Something changed: listeners look again."""
        listeners, self.listeners = self.listeners, set()
        for listener in listeners:
            _rouse(listener)

    def listen(self) -> asyncio.Future[None]:
        """Done at the next change."""
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listeners.add(listener)
        return listener


class Tickets:
    """All of a node's, by token, by what they own and by what they wait for."""

    def __init__(self) -> None:
        self._by_token: dict[bytes, Ticket] = {}
        self._owners: dict[Target, dict[bytes, Ticket]] = {}
        self._waiting: dict[Target, OrderedDict[bytes, Ticket]] = {}
        self._of_connection: dict[int, dict[bytes, Ticket]] = {}
        self._over: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_token) - len(self._over)

    def get(self, token: bytes) -> Ticket | None:
        """The request with this token."""
        return self._by_token.get(token)

    def add(self, ticket: Ticket, client: Client) -> None:
        """Remember a request that a connection makes."""
        self._by_token[ticket.asked.token] = ticket
        self.connect(ticket, client)

    def connect(self, ticket: Ticket, client: Client) -> None:
        """A connection speaks for a request."""
        ticket.clients.pop(client.connection_id, None)
        ticket.clients[client.connection_id] = client
        self._of_connection.setdefault(client.connection_id, {})[ticket.asked.token] = ticket

    def of_connection(self, connection: int) -> list[Ticket]:
        """The requests that a connection speaks for, which it does no more."""
        found = list(self._of_connection.pop(connection, {}).values())
        for ticket in found:
            if len(ticket.clients) > 1:
                ticket.clients.pop(connection, None)
        return found

    def owning(self, ticket: Ticket, owned: dict[Target, int]) -> None:
        """It was granted all this."""
        ticket.stand, ticket.owned = Stand.OWNING, owned
        for target in owned if self._is_known(ticket) else ():
            self._owners.setdefault(target, {})[ticket.asked.token] = ticket

    def disowned(self, ticket: Ticket, target: Target) -> None:
        """It owns a target no longer; that it was promoted to it is no news any more."""
        ticket.owned.pop(target, None)
        if target in ticket.news and not ticket.news[target].error:
            del ticket.news[target]
        _take_out(self._owners, target, ticket)
        if not ticket.owned:
            self.over(ticket)

    def waits(self, ticket: Ticket) -> None:
        """It has a place for each of its targets."""
        ticket.stand = Stand.WAITING
        for target in ticket.asked.targets if self._is_known(ticket) else ():
            self._waiting.setdefault(target, OrderedDict())[ticket.asked.token] = ticket

    def waits_no_more(self, ticket: Ticket) -> None:
        """Its places are gone."""
        for target in ticket.asked.targets:
            _take_out(self._waiting, target, ticket)

    def over(self, ticket: Ticket) -> None:
        """Nothing is left of it; its token is remembered for a while, and a Watch for it ends."""
        ticket.stand = Stand.OVER
        ticket.notify()
        if self._is_known(ticket):
            self._over[ticket.asked.token] = None
        while len(self._over) > LOST_KEPT:
            self.forget(self._by_token[next(iter(self._over))])

    def forget(self, ticket: Ticket) -> None:
        """Its token means nothing any more."""
        token = ticket.asked.token
        self.waits_no_more(ticket)
        for target in list(ticket.owned):
            _take_out(self._owners, target, ticket)
        if self._is_known(ticket):
            self._over.pop(token, None)
            del self._by_token[token]
        for connection in ticket.clients:
            _take_out(self._of_connection, connection, ticket)
        if not ticket.is_driven:  # else it is decided first
            ticket.stand = Stand.OVER
            ticket.notify()

    def _is_known(self, ticket: Ticket) -> bool:
        """Whether it was not forgotten while something was under way for it: its connection may be gone."""
        return self._by_token.get(ticket.asked.token) is ticket

    def owners(self, target: Target) -> list[Ticket]:
        """The request that owns a target."""
        return list(self._owners.get(target, {}).values())

    def first_waiting(self, target: Target) -> Ticket | None:
        """The request that waits for it longest."""
        found = self._waiting.get(target)
        return next(iter(found.values())) if found else None

    def waiting_as(self, target: Target, session: str) -> Ticket | None:
        """The request of a session that waits for it longest."""
        found = self._waiting.get(target, OrderedDict[bytes, Ticket]()).values()
        return next((ticket for ticket in found if ticket.asked.session == session), None)

    def waited_for(self) -> Iterable[Target]:
        """Everything that somebody waits for."""
        return list(self._waiting)


def _take_out(index: MutableMapping[NameT, FoundT], name: NameT, ticket: Ticket) -> None:
    """Take a request out of an index, unless its token stands for another one by now."""
    found = index.get(name)
    if found is not None and found.get(ticket.asked.token) is ticket:
        del found[ticket.asked.token]
        if not found:
            del index[name]


class Attendance:
    """The calls of Own and Watch that are under way, and the requests that nobody calls for. While one does, and 5 s
    longer, the place or promotion of a request is kept.
    """

    def __init__(self) -> None:
        self._parked: dict[int, set[asyncio.Future[None]]] = {}
        self._unattended: dict[bytes, Ticket] = {}

    @contextmanager
    def attended(self, ticket: Ticket, *, by_own: bool = False) -> Iterator[None]:
        """A call for a request is under way: what it waits for, or was promoted to, is kept."""
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
        """Nobody calls for a request for the time being."""
        if ticket.calls == 0 and ticket.lapses:
            ticket.kept_until = asyncio.get_running_loop().time() + KEPT_S
            self._unattended[ticket.asked.token] = ticket

    def waits(self, ticket: Ticket) -> None:
        """A request took its places, or keeps them: without a call, not for longer than before."""
        if ticket.asked.token not in self._unattended:
            self.left_alone(ticket)

    async def park(self, client: Client, ticket: Ticket, seconds: float | None) -> None:
        """Until something happens to a request, its client is gone, or so many seconds have passed."""
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
        """Its calls end."""
        for listener in self._parked.pop(client.connection_id, ()):
            _rouse(listener)

    def forget(self, ticket: Ticket) -> None:
        """Nothing of it is kept for anybody."""
        self._unattended.pop(ticket.asked.token, None)

    def lapsed(self) -> Iterator[Ticket]:
        """The requests that nobody has called for too long, each once; others may be called for in between."""
        now = asyncio.get_running_loop().time()
        for token, ticket in list(self._unattended.items()):
            if self._unattended.get(token) is not ticket:
                continue  # it was called for meanwhile
            if not ticket.lapses:
                del self._unattended[token]
            elif now > ticket.kept_until:
                del self._unattended[token]
                yield ticket


def _rouse(listener: asyncio.Future[None]) -> None:
    if not listener.done():
        listener.set_result(None)
