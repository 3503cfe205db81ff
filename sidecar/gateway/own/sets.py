"""The sets of claims that clients ask for by Own: which set is granted, which waits, and what follows from an event.
Pure: no I/O, no clock; `owning` carries it out.

A set of topics, partitions, free strings and reader claims is granted as a whole or not at all. It is looked at in one
turn of the event loop, so that nothing changes in between (`decide`):

| of its resources | the set |
|---|---|
| one is refused | is refused as a whole; nothing was taken |
| one has to wait | takes a place in every queue at once, so that no circular wait arises |
| one is changing its owner | keeps the places that it has; without any it is looked at again, for ten seconds |
| all can be taken | is taken: topics by takeovers, the others by one append. If one fails, all are released again |

The queues are those of the topics and of the coordinator's claim table, each in the order of arrival: this module has
none. A request is known by its token, and is in one of four stands:

| event | TRYING | WAITING | OWNING | OVER |
|---|---|---|---|---|
| a resource changed, or the coordinator has news | decided again | decided | what is lost is news | - |
| all is granted; the session's other requests lose it | OWNING | OWNING, promoted | - | - |
| it is refused | OVER | leaves its queues; OVER | - | - |
| its last claim is lost or released | - | - | OVER | - |
| its connection closed, and its session with it | forgotten | leaves; forgotten | forgotten | forgotten |
| its connection closed, and its session may return | keeps on | keeps its places for 5 s | keeps on | - |
| no call for 5 s (`lapsed`) | - | leaves; forgotten | a promotion is released; forgotten | - |
| Release | decided first | leaves; OVER | what it names is released | - |

During a call of Own or Watch, and for 5 s longer, a place is kept, and so is a promotion that no call has reported yet.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from sidecar.access.prospects import Look, Prospect
from sidecar.access.rules import KEPT_S
from sidecar.changelog import Key
from sidecar.exclusive.owning import TopicClaim
from sidecar.gateway.client import Client
from sidecar.gateway.own.asked import Asked
from sidecar.resources.requests import Request
from sidecar.resources.waiting import count_down, take_out
from sidecar.v1 import control_pb2 as control

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


def decide(stand: Stand, looks: Mapping[Key, Look]) -> Prospect:
    """Return the prospect of a whole set, by the first table of this module."""
    prospects = {look.prospect for look in looks.values()}
    if Prospect.REFUSED in prospects:
        return Prospect.REFUSED
    if Prospect.WAIT in prospects or (Prospect.BUSY in prospects and stand is Stand.WAITING):
        return Prospect.WAIT
    return Prospect.BUSY if Prospect.BUSY in prospects else Prospect.READY


def rouse(listener: asyncio.Future[None]) -> None:
    """Set the result of a future that somebody may wait for."""
    if not listener.done():
        listener.set_result(None)


@dataclass(slots=True, eq=False)
class ClaimSet:
    """One request. `topics`: its claims to write; `request`: the coordinator's part. `clients`: the connections to
    which it is bound; `calls`: the number of their waiting calls; `own_calls`: those of Own, which receive a grant. If
    there are none, Watch receives it. `news`: changes that no call has reported yet.

    `kept_until` (monotonic seconds): the time until which a place or promotion is kept without a call.
    """

    asked: Asked
    topics: dict[Key, TopicClaim]
    request: Request | None
    clients: dict[int, Client] = field(default_factory=dict[int, Client])
    stand: Stand = Stand.TRYING
    answer: control.OwnResponse | None = None
    owned: dict[Key, int] = field(default_factory=dict[Key, int])
    """The generation of each claim that it owns."""
    lost: dict[Key, control.Ownership] = field(default_factory=dict[Key, control.Ownership])
    released: set[Key] = field(default_factory=set[Key])
    news: dict[Key, control.Ownership] = field(default_factory=dict[Key, control.Ownership])
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
    """Whether its resources have changed since the last decision."""
    listeners: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])

    @property
    def token(self) -> bytes:
        return self.asked.token

    @property
    def is_alive(self) -> bool:
        """Whether it is bound to an open connection."""
        return any(client.is_alive() for client in self.clients.values())

    @property
    def client(self) -> Client:
        """The connection that was bound last."""
        return next(reversed(self.clients.values()))

    @property
    def is_undecided(self) -> bool:
        return self.stand in (Stand.TRYING, Stand.WAITING)

    @property
    def lapses(self) -> bool:
        """Whether it is given up if no call comes: places and promotions are, an unreported loss is not."""
        return self.stand is Stand.WAITING or (self.stand is Stand.OWNING and self.is_promoted)

    @property
    def has_moved(self) -> bool:
        """Whether other nodes now serve or coordinate everything that it owned."""
        return bool(self.lost) and all(ownership.error == control.NOT_SERVING for ownership in self.lost.values())

    def heard(self) -> list[control.Ownership]:
        """Returns the changes that were not reported yet, and marks them as reported."""
        news, self.news, self.is_promoted = list(self.news.values()), {}, False
        return news

    def notify(self) -> None:
        """Wake all listeners, because something has changed."""
        listeners, self.listeners = self.listeners, set()
        for listener in listeners:
            rouse(listener)

    def listen(self) -> asyncio.Future[None]:
        """Returns a future that is done at the next change."""
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listeners.add(listener)
        return listener


class Sets:
    """All requests of a node: by token, by connection, and by the topics that they own or wait for."""

    def __init__(self) -> None:
        self._by_token: dict[bytes, ClaimSet] = {}
        self._owners: dict[Key, dict[ClaimSet, None]] = {}
        self._waiting: dict[Key, dict[ClaimSet, None]] = {}
        self._of_connection: dict[int, dict[ClaimSet, None]] = {}
        self._over: OrderedDict[bytes, ClaimSet] = OrderedDict()
        self._unattended: dict[ClaimSet, None] = {}
        self.of_principal: Counter[str] = Counter()
        """The number of requests that own or wait, by principal."""

    def __len__(self) -> int:
        return len(self._by_token) - len(self._over)

    def get(self, token: bytes) -> ClaimSet | None:
        return self._by_token.get(token)

    # Connections ------------------------------------------------------------------------------------------------------

    def add(self, claims: ClaimSet, client: Client) -> None:
        self._by_token[claims.token] = claims
        self.of_principal[claims.asked.caller.principal] += 1
        self.connect(claims, client)

    def connect(self, claims: ClaimSet, client: Client) -> None:
        """Bind a request to a connection; the newest `CONNECTIONS_KEPT` count."""
        number, clients = client.connection_id, claims.clients
        clients.pop(number, None)
        clients[number] = client
        self._of_connection.setdefault(number, {})[claims] = None
        if len(clients) > CONNECTIONS_KEPT:
            oldest = next(iter(clients))
            del clients[oldest]
            take_out(self._of_connection, oldest, claims)

    def closed(self, connection: int) -> list[ClaimSet]:
        """A connection has closed. Returns its requests, which are bound to it no more."""
        bound = list(self._of_connection.pop(connection, ()))
        for claims in bound:
            if len(claims.clients) > 1:
                claims.clients.pop(connection, None)
        return bound

    # Stands -----------------------------------------------------------------------------------------------------------

    def waits(self, claims: ClaimSet) -> None:
        """A request has a place for each of its resources."""
        assert claims.is_undecided, f"{claims.stand}: only a request that owns nothing waits"
        claims.stand = Stand.WAITING
        for key in claims.topics if self._is_known(claims) else ():
            self._waiting.setdefault(key, {})[claims] = None

    def waits_no_more(self, claims: ClaimSet) -> None:
        """A request has no places any more."""
        for key in claims.topics:
            take_out(self._waiting, key, claims)

    def owning(self, claims: ClaimSet, owned: dict[Key, int]) -> None:
        """A request was granted these, by generation."""
        assert claims.is_undecided, f"{claims.stand}: a request is granted once"
        assert owned.keys() == claims.asked.wishes.keys(), "a set is owned as a whole"
        self.waits_no_more(claims)
        claims.stand, claims.owned = Stand.OWNING, owned
        for key in claims.topics if self._is_known(claims) else ():
            self._owners.setdefault(key, {})[claims] = None

    def loses(self, claims: ClaimSet, key: Key, ownership: control.Ownership) -> None:
        """A request has lost a claim; the ownership says why."""
        assert key in claims.owned, "only what is owned is lost"
        claims.lost[key] = claims.news[key] = ownership
        self.disowned(claims, key)
        claims.notify()

    def disowned(self, claims: ClaimSet, key: Key) -> None:
        """A request no longer owns a resource; its promotion to it is not reported any more."""
        claims.owned.pop(key, None)
        if key in claims.news and not claims.news[key].error:
            del claims.news[key]
        take_out(self._owners, key, claims)
        if not claims.owned:
            self.over(claims)

    def settle(self, claims: ClaimSet, answer: control.OwnResponse) -> None:
        """A request is decided. If no Own waits for the answer, Watch or the next call reports it."""
        is_owning = claims.stand is Stand.OWNING
        claims.answer = None if is_owning else answer
        if claims.own_calls == 0:
            claims.is_promoted = is_owning
            answers = zip(claims.asked.wishes, answer.ownerships, strict=False)  # none if Kafka's ACLs forbid it
            claims.news.update((key, found) for key, found in answers if found.error or is_owning)
        if not is_owning:
            self.over(claims)

    def over(self, claims: ClaimSet) -> None:
        """A request has ended. Its token is stored for a while, and its Watch ends."""
        claims.stand = Stand.OVER
        claims.notify()
        if self._is_known(claims):
            self._count_down(claims)
            self._over[claims.token] = claims
        while len(self._over) > LOST_KEPT:
            self.forget(next(iter(self._over.values())))

    def forget(self, claims: ClaimSet) -> None:
        """Forget a request and its token."""
        self.waits_no_more(claims)
        self._unattended.pop(claims, None)
        for key in claims.topics:
            take_out(self._owners, key, claims)
        for connection in claims.clients:
            take_out(self._of_connection, connection, claims)
        if self._is_known(claims):
            self._count_down(claims)
            self._over.pop(claims.token, None)
            del self._by_token[claims.token]
        if not claims.is_driven:  # else it is decided first
            claims.stand = Stand.OVER
            claims.notify()

    def _count_down(self, claims: ClaimSet) -> None:
        if claims.token not in self._over:
            count_down(self.of_principal, claims.asked.caller.principal, 1)

    def _is_known(self, claims: ClaimSet) -> bool:
        """Whether the request is still stored: its connection may have closed in the meantime."""
        return self._by_token.get(claims.token) is claims

    # Topics -----------------------------------------------------------------------------------------------------------

    def owners(self, key: Key) -> list[ClaimSet]:
        return list(self._owners.get(key, ()))

    def waiting(self, key: Key, session: str | None = None) -> ClaimSet | None:
        """The request that has waited longest for a topic, of all or of a session."""
        waiting = self._waiting.get(key, ())
        return next((claims for claims in waiting if session is None or claims.asked.session == session), None)

    def waited_for(self) -> list[Key]:
        return list(self._waiting)

    # Time without a call ----------------------------------------------------------------------------------------------

    def left_alone(self, claims: ClaimSet, now: float, *, again: bool = True) -> None:
        """A request has no call now, or was decided. `again`: its time begins again."""
        if claims.calls == 0 and claims.lapses and (again or claims not in self._unattended):
            claims.kept_until = now + KEPT_S
            self._unattended[claims] = None

    def called(self, claims: ClaimSet) -> None:
        """A request has a call: it does not lapse."""
        self._unattended.pop(claims, None)

    def lapsed(self, now: float) -> Iterator[ClaimSet]:
        """The requests that had no call for too long, each once; calls may arrive during the iteration."""
        for claims in list(self._unattended):
            if claims in self._unattended and (now > claims.kept_until or not claims.lapses):
                del self._unattended[claims]
                if claims.lapses:
                    yield claims
