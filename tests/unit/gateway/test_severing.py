"""Connections of readers that lost their claims are closed, however many there are and whatever changes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.changelog import Change, Entry, claim_key
from sidecar.cluster.resolver import ANONYMOUS, NameResolver, Source
from sidecar.gateway.rights import Rights
from sidecar.gateway.severing import Severing
from sidecar.gateway.whole_fetch import FetchExchange
from sidecar.network.request import Exchange
from sidecar.network.tasks import Tasks
from sidecar.protocol.calls.security import AclBinding
from sidecar.protocol.ids import Offset
from sidecar.resources.readers import Reader, ReaderClaims
from sidecar.security.acls import Acls, Operation, ResourceType
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state
from tests.wait import wait_until


class Parked(FetchExchange):
    """A Fetch without an answer."""

    def __init__(self, *places: tuple[bytes, int]) -> None:
        self.places = places

    def partitions(self) -> Iterable[tuple[bytes, int]]:
        return self.places


@dataclass
class Connection:
    pending: list[Exchange] = field(default_factory=list)
    aborted: int = 0

    def abort(self) -> None:
        self.aborted += 1


@dataclass
class Client:
    """A client as far as severing looks at it."""

    session: str
    name: str = ""
    principal: str = ANONYMOUS
    rights: Rights | None = None
    connection: Connection = field(default_factory=Connection)

    @property
    def reader(self) -> Reader:
        return Reader(self.session, self.name, (), self.principal)


class Cluster:
    """Clients of a node, and claims on partitions of `orders`, all of it under the policy."""

    def __init__(self, *readers: Client, guards: bool = True) -> None:
        self.readers = readers
        self.crashed: list[BaseException] = []
        self.claims = ReaderClaims(lambda _: guards)
        self._entries: dict[int, Entry[Any]] = {}
        clients = cast(Any, dict(enumerate(readers)))
        self.resolver = NameResolver()
        self.severing = Severing(clients, self.claims, self.resolver, Tasks(self.crashed.append))
        self.resolver.rerouted = self.severing._reroute

    def grant(self, reader: Client, partition: int = 0) -> None:
        resource = control.Resource(topic="orders", partition=partition)
        record = state.Claim(group="g", resource=resource, session=reader.session, name=reader.name)
        key = claim_key("g", resource)
        entry = Entry(key, record, None, Offset(0), 0)
        self.severing.changed(Change(key, self._entries.get(partition), entry))
        self._entries[partition] = entry

    def severed(self) -> list[str]:
        return [reader.session for reader in self.readers if reader.connection.aborted]


async def test_among_thousands_the_old_holders_connections_alone_are_closed() -> None:
    crowd = [Client(f"conn:{number}", f"r{number % 1_000}") for number in range(3_000)]
    cluster = Cluster(*crowd)
    cluster.grant(crowd[7])
    cluster.grant(crowd[8])
    await wait_until(lambda: len(cluster.severed()) == 3, "the last of them")
    assert cluster.severed() == ["conn:7", "conn:1007", "conn:2007"]
    assert not cluster.crashed


async def test_what_changes_while_many_are_looked_at_counts_too() -> None:
    crowd = [Client(f"conn:{number}", f"r{number}") for number in range(3_000)]
    crowd[-1].name = "r1"
    cluster = Cluster(*crowd)
    cluster.grant(crowd[1])
    cluster.grant(crowd[2])
    await asyncio.sleep(0)
    assert cluster.severed() == ["conn:1"], "it is under way"
    cluster.grant(crowd[0])
    await wait_until(lambda: cluster.severed() == ["conn:1", "conn:2", "conn:2999"], "the others")


async def test_who_waits_for_what_others_hold_is_closed_and_nobody_else() -> None:
    waiting = Client("conn:1", "a", connection=Connection([Parked((b"orders", 1)), Parked((b"orders", 0))]))
    elsewhere = Client("conn:2", "b", connection=Connection([Parked((b"orders", 1), (b"payments", 0))]))
    holder = Client("conn:3", "c", connection=Connection([Parked((b"orders", 0))]))
    idle = Client("conn:4", "d")
    cluster = Cluster(waiting, elsewhere, holder, idle)
    cluster.grant(holder)
    await wait_until(lambda: bool(cluster.severed()), "the reader that waits")
    assert cluster.severed() == ["conn:1"]


ORDERS = Source(b"orders", UUID(int=1))


@pytest.mark.parametrize(
    "now",
    [
        {},
        {b"audit": Source(b"other", UUID(int=2))},
        {b"audit": Source(b"orders", UUID(int=2))},
        {b"audit": ORDERS._replace(is_closed=True)},
        {b"audit": ORDERS._replace(allow=frozenset({"User:somebody"}))},
    ],
    ids=["deleted", "of another source", "its source was created anew", "closed", "not for it any more"],
)
async def test_who_waits_at_a_log_that_the_name_stands_for_no_longer_is_closed(now: dict[bytes, Source | None]):
    waits, elsewhere, idle = (Client(f"pid:{number}") for number in range(3))
    waits.connection.pending.append(Parked((b"audit", 0)))
    elsewhere.connection.pending.append(Parked((b"orders", 0)))
    cluster = Cluster(waits, elsewhere, idle)
    cluster.resolver.set_shadows({b"audit": ORDERS})
    await asyncio.sleep(0)
    assert waits.connection.aborted, "it waited at the topic of that name"
    waits.connection.aborted = 0
    cluster.resolver.set_shadows(now)
    await asyncio.sleep(0)
    assert [each.connection.aborted for each in (waits, elsewhere, idle)] == [1, 0, 0]
    assert cluster.crashed == []


async def test_who_waits_since_before_the_first_of_two_changes_is_closed() -> None:
    waits, other = Client("pid:1"), ORDERS._replace(topic=b"other")
    cluster = Cluster(waits)
    cluster.resolver.set_shadows({b"audit": ORDERS})
    await asyncio.sleep(0)
    waits.connection.pending.append(Parked((b"audit", 0)))
    cluster.resolver.set_shadows({b"audit": other})
    cluster.resolver.set_shadows({b"audit": other._replace(allow=frozenset({ANONYMOUS}))})
    await asyncio.sleep(0)
    assert (waits.connection.aborted, cluster.crashed) == (1, [])


async def test_a_parked_fetch_ends_with_the_right_to_read():
    class Current:
        take_over = Operation.ALTER
        acls: Acls | None = Acls(
            [AclBinding(ResourceType.TOPIC, name, 3, ANONYMOUS, "*", Operation.READ, 3) for name in ("a", "b")]
        )

    current = Current()
    loses, keeps, idle, unbound = (Client(f"pid:{number}") for number in range(4))
    for each in (loses, keeps, idle):
        each.rights = Rights(each, "10.0.0.1", current)
    loses.connection.pending.append(Parked((b"b", 0), (b"a", 0)))
    keeps.connection.pending.append(Parked((b"b", 0)))
    unbound.connection.pending.append(Parked((b"a", 0)))
    cluster = Cluster(loses, keeps, idle, unbound)
    assert current.acls is not None
    current.acls = current.acls.replaced([each for each in current.acls.bindings if each.resource_name == "b"])
    cluster.severing.rights_changed()
    await wait_until(lambda: cluster.severed() == ["pid:0"], "who lost it")
    assert cluster.crashed == []


async def test_who_may_read_on_is_left_alone():
    waits = Client("pid:1")
    cluster = Cluster(waits)
    cluster.resolver.set_shadows({b"audit": ORDERS._replace(allow=frozenset({ANONYMOUS}))})
    await asyncio.sleep(0)
    waits.connection.pending.append(Parked((b"audit", 0)))
    cluster.resolver.set_shadows({b"audit": ORDERS, b"copy": None})
    cluster.resolver.set_shadows({b"audit": ORDERS, b"copy": ORDERS})
    await asyncio.sleep(0)
    assert (waits.connection.aborted, cluster.crashed) == (0, [])


async def test_a_holder_is_closed_without_the_policy_too() -> None:
    """Without the policy nobody is kept from reading, so nothing else begins a look at the connections."""
    old, new = Client("conn:1", "r1"), Client("conn:2", "r2")
    cluster = Cluster(old, new, guards=False)
    cluster.grant(old)
    cluster.grant(new)
    await wait_until(lambda: cluster.severed() == ["conn:1"], "the former holder's end")
