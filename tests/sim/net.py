"""TCP in memory: ordered streams between hosts, with seeded latency, and every way in which a connection can go wrong.

Within a direction of a connection nothing is lost or reordered, as in TCP; between connections everything may be. Data
may arrive in other pieces than it was sent in. A path between two hosts can be cut: what is sent waits, and arrives
when it is healed, or both ends find out after `SILENCE_S`, as keep-alive and TCP_USER_TIMEOUT have it. A single
connection can be reset, or lose one direction (answers) before it is.

Servers that are no asyncio code (brokers, Redis) take part as an `Acceptor`, with a `Peer` for each connection.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from zlib import crc32

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tests.sim.chance import Chance
    from tests.sim.host import Host
    from tests.sim.loop import SimLoop

SILENCE_S: Final = 25.0
_KERNEL_BYTES: Final = 1024 * 1024
"""What a peer that reads nothing takes all the same."""
_RETRY_S: Final = 0.5

Address = tuple[str, int]


class Channel(Protocol):
    """The server's end of a connection, where the server is not asyncio's."""

    def received(self, data: bytes) -> None: ...
    def closed(self) -> None: ...


class Acceptor(Protocol):
    """A server that is not asyncio's. None: the connection is refused."""

    def __call__(self, peer: WireEnd) -> Channel | None: ...


@dataclass(slots=True)
class Weather:
    """How the network behaves: seconds of the usual latency, how often there is a spike and how long it may be, and
    how often a piece arrives in two.
    """

    latency: float = 0.0003
    spikes: float = 0.0
    spike_s: float = 0.05
    splits: float = 0.02


class FakeSocket:
    """As much of a socket as protocols ask for; its family keeps TCP's options away."""

    family = socket.AF_UNIX

    def __init__(self, number: int, address: Address) -> None:
        self._number = number
        self._address = address

    def setsockopt(self, *_: object) -> None:
        return

    def fileno(self) -> int:
        return self._number

    def getsockname(self) -> Address:
        return self._address


class Link:
    """One connection. `is_up` False: nothing of it arrives any more. `waiting`: what a cut path holds back."""

    __slots__ = ("client", "ends", "is_up", "names", "number", "server", "waiting")

    def __init__(self, number: int, client: str, server: str) -> None:
        self.number = number
        self.client = client
        self.server = server
        self.names = frozenset((client, server))
        self.is_up = True
        self.ends: list[End] = []
        self.waiting: list[tuple[End, str, Any]] = []

    def __repr__(self) -> str:
        return f"{self.client}→{self.server} #{self.number}"


class End:
    """One end of a connection."""

    def __init__(self, network: Network, link: Link, host: Host | None, name: str) -> None:
        self.network = network
        self.link = link
        self.host = host
        self.name = name
        self.other: End = self
        self.last_arrival = 0.0
        self.is_deaf = False
        """What is sent to it is lost; so is everything behind that."""
        self.outstanding = 0
        link.ends.append(self)

    def arrived(self, kind: str, data: Any) -> None:
        raise NotImplementedError

    def consumed(self, size: int) -> None:
        """The other end has read so many bytes."""
        self.outstanding -= size


class WireEnd(End):
    """What a broker or Redis holds of a connection: `send`, `close`, and the channel that hears."""

    def __init__(self, network: Network, link: Link, name: str) -> None:
        super().__init__(network, link, None, name)
        self.channel: Channel | None = None
        self._open = True

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self._open:
            self.network.transmit(self.other, "data", bytes(data))

    def close(self) -> None:
        """Close, behind what was sent."""
        if self._open:
            self._open = False
            self.network.transmit(self.other, "eof", None)
            self.network.forget(self.link)

    def reset(self) -> None:
        """Close as a machine does whose process is gone and that is asked for the connection."""
        if self._open:
            self._open = False
            self.network.transmit(self.other, "reset", None)
            self.network.forget(self.link)

    def arrived(self, kind: str, data: Any) -> None:
        if not self._open or self.channel is None:
            return
        if kind == "data":
            self.other.consumed(len(data))
            self.network.note(self, data)
            self.channel.received(data)
        else:
            self._open = False
            self.network.forget(self.link)
            if kind == "eof":
                self.network.transmit(self.other, "eof", None)
            self.channel.closed()


class SocketEnd(End, asyncio.Transport):
    """An asyncio transport."""

    def __init__(self, network: Network, link: Link, host: Host, name: str, peer: Address) -> None:
        End.__init__(self, network, link, host, name)
        self._info = {"socket": FakeSocket(link.number, (name, 0)), "peername": peer, "sockname": (name, 0)}
        self._protocol: Any = None
        self._is_buffered = False
        self._reading = True
        self._closing = False
        self._is_lost = False
        self._full = False
        self._inbox: list[tuple[str, Any]] = []

    def made(self, protocol: Any) -> None:
        """There is a connection."""
        self._take(protocol)
        protocol.connection_made(self)

    def _take(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    # asyncio.Transport --------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._info.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self._take(protocol)

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        if self._closing:
            return
        data = bytes(data)
        if not data:
            return
        self.outstanding += len(data)
        self.network.transmit(self.other, "data", data)
        if self.outstanding > _KERNEL_BYTES and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing:
            self.network.transmit(self.other, "eof", None)

    def get_write_buffer_size(self) -> int:
        return max(0, self.outstanding - _KERNEL_BYTES)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self._inbox:
                self.network.loop.soon(self.host, self._read_on)

    def is_reading(self) -> bool:
        return self._reading

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.network.transmit(self.other, "eof", None)
            self.network.loop.soon(self.host, self._lost, None)

    def abort(self) -> None:
        if not self._is_lost:
            self._closing = True
            self.network.transmit(self.other, "reset", None)
            self.network.loop.soon(self.host, self._lost, None)

    # From the network ---------------------------------------------------------------------------------------------

    def arrived(self, kind: str, data: Any) -> None:
        if self._is_lost:
            return
        if kind == "reset":
            self._hear(None)
            self._closing = True
            self._lost(data or ConnectionResetError(104, "Connection reset by peer"))
        elif kind == "made":
            self.made(data())
        elif self._closing:
            return
        elif self._reading and not self._inbox and self._protocol is not None:
            self._feed(kind, data)
        else:
            self._inbox.append((kind, data))

    def _read_on(self) -> None:
        while self._inbox and self._reading and not self._closing:
            self._feed(*self._inbox.pop(0))

    def _hear(self, data: bytes | None) -> None:
        if self.network.observer is not None:
            self.network.observer(self, data)

    def _feed(self, kind: str, data: Any) -> None:
        protocol = self._protocol
        if kind == "eof":
            self._hear(None)
            if not protocol.eof_received():
                self.close()
            return
        self.network.note(self, data)
        self._hear(data)
        self.other.consumed(len(data))
        if not self._is_buffered:
            protocol.data_received(data)
            return
        while data:
            buffer = protocol.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            del buffer  # as a loop lets go of it: what it is a view of may have to grow
            protocol.buffer_updated(size)
            data = data[size:]
            if data and (self._closing or not self._reading):
                self.other.outstanding += len(data)
                self._inbox.insert(0, (kind, data))
                return

    def consumed(self, size: int) -> None:
        self.outstanding -= size
        if self._full and self.outstanding < _KERNEL_BYTES // 2:
            self._full = False
            self.network.loop.soon(self.host, self._emptied)

    def _emptied(self) -> None:
        if not self._closing:
            self._protocol.resume_writing()

    def _lost(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._closing = True
        self.network.forget(self.link)
        if self._protocol is not None:
            self._protocol.connection_lost(error)


class SimServer:
    """What `create_server` returns."""

    def __init__(self, network: Network, address: Address, host: Host, factory: Callable[[], Any], number: int) -> None:
        self.sockets = (FakeSocket(number, address),)
        self.address = address
        self.host = host
        self.factory = factory
        self.accepts = False
        self.taken: set[SocketEnd] = set()
        self._network = network

    async def start_serving(self) -> None:
        self.accepts = True

    def is_serving(self) -> bool:
        return self.accepts

    def close(self) -> None:
        self.accepts = False
        if self._network.servers.get(self.address) is self:
            del self._network.servers[self.address]

    async def wait_closed(self) -> None:
        return


@dataclass(slots=True)
class Network:
    """All connections of a world."""

    loop: SimLoop
    rng: random.Random
    weather: Weather = field(default_factory=Weather)
    servers: dict[Address, SimServer] = field(default_factory=dict)
    acceptors: dict[Address, Acceptor] = field(default_factory=dict)
    links: dict[int, Link] = field(default_factory=dict)
    waiting: dict[int, Link] = field(default_factory=dict)
    """Those with something that a cut path holds back, closed ones among them."""
    cut_paths: set[frozenset[str]] = field(default_factory=set)
    digest: int = 0
    deliveries: int = 0
    bytes: int = 0
    observer: Callable[[SocketEnd, bytes | None], None] | None = None
    """Sees what a protocol is given of its connection; None: its end."""
    by_path: Chance | None = None
    """In a steady world, in place of `rng`."""
    count: int = 0

    # Connections --------------------------------------------------------------------------------------------------

    def listen(self, host: Host, factory: Callable[[], Any], address: Address, serving: bool) -> SimServer:
        """Bind an address. Raises OSError where somebody alive has it."""
        held = self.servers.get(address)
        if held is not None and held.host.alive:
            raise OSError(98, f"{address} is in use")
        self.count += 1
        server = self.servers[address] = SimServer(self, address, host, factory, self.count)
        server.accepts = serving
        return server

    def stop_accepting(self, number: int) -> bool:
        """As `remove_reader` of a listening socket."""
        for server in self.servers.values():
            if server.sockets[0].fileno() == number:
                server.accepts = False
                return True
        return False

    async def connect(self, host: Host, factory: Callable[[], Any], address: Address) -> tuple[SocketEnd, Any]:
        """As `create_connection`. Raises OSError."""
        while True:
            await asyncio.sleep(2 * self.latency(host.name, address[0]))
            if not self.is_cut(host.name, address[0]):
                break
            await asyncio.sleep(_RETRY_S)
        self.count += 1
        link = Link(self.count, host.name, address[0])
        mine = SocketEnd(self, link, host, host.name, address)
        acceptor = self.acceptors.get(address)
        if acceptor is not None:
            far = WireEnd(self, link, address[0])
            far.other, mine.other = mine, far
            far.channel = self._accepted(acceptor, far)
            if far.channel is None:
                raise ConnectionRefusedError(111, f"Connect call failed {address}")
        else:
            server = self.servers.get(address)
            if server is None or not server.accepts or not server.host.alive:
                raise ConnectionRefusedError(111, f"Connect call failed {address}")
            near = SocketEnd(self, link, server.host, address[0], (host.name, 40_000 + link.number))
            near.other, mine.other = mine, near
            self.transmit(near, "made", server.factory)
        self.links[link.number] = link
        protocol = factory()
        mine.made(protocol)
        return mine, protocol

    def _accepted(self, acceptor: Acceptor, end: WireEnd) -> Channel | None:
        with self.loop.on(None):
            return acceptor(end)

    def transmit(self, to: End, kind: str, data: Any) -> None:
        """Send something to an end of a connection."""
        link = to.link
        if not link.is_up or to.is_deaf:
            return
        if self.cut_paths and link.names in self.cut_paths:
            link.waiting.append((to, kind, data))
            self.waiting[link.number] = link
            return
        if kind == "data":
            rng = self._chance(to.other.name, to.name, "splits")
            if rng.random() < self.weather.splits and len(data) > 1:
                place = rng.randrange(1, len(data))
                self._send(to, kind, data[:place])
                data = data[place:]
        self._send(to, kind, data)

    def _send(self, to: End, kind: str, data: Any) -> None:
        when = self.loop.now + self.latency(to.other.name, to.name)
        if when <= to.last_arrival:
            when = to.last_arrival + 1e-9
        to.last_arrival = when
        self.loop.deliver(to.host, when, to.arrived, kind, data)

    def _chance(self, source: str, target: str, what: str) -> random.Random:
        """What decides how the way from one host to another is at this moment."""
        return self.rng if self.by_path is None else self.by_path.of(f"{what} {source} {target}")

    def latency(self, source: str, target: str) -> float:
        """Seconds for one way, this time."""
        weather, rng = self.weather, self._chance(source, target, "latency")
        took = weather.latency * (0.5 + rng.random())
        if weather.spikes and rng.random() < weather.spikes:
            took += rng.random() * weather.spike_s
        return took

    def note(self, to: End, data: bytes) -> None:
        """Something arrived: part of what makes a run the same run."""
        self.deliveries += 1
        self.bytes += len(data)
        self.digest = crc32(data, self.digest ^ int(self.loop.now * 1e6) & 0xFFFFFFFF)

    def forget(self, link: Link) -> None:
        """An end is closed."""
        self.links.pop(link.number, None)

    # Faults -------------------------------------------------------------------------------------------------------

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing passes between two hosts."""
        return bool(self.cut_paths) and frozenset((one, other)) in self.cut_paths

    def between(self, one: str, other: str) -> list[Link]:
        """Connections that stand between two hosts."""
        names = frozenset((one, other))
        return [link for link in self.links.values() if link.names == names]

    def of(self, name: str) -> list[Link]:
        """Connections of a host."""
        return [link for link in self.links.values() if name in link.names]

    def reset(self, link: Link) -> None:
        """Both ends learn it, each after what was on its way to it."""
        if link.is_up:
            for end in link.ends:
                self._send(end, "reset", None)
            link.is_up = False
            self.forget(link)

    def lose_answers(self, link: Link, after_s: float) -> None:
        """Nothing reaches the client's end any more; both learn of it some seconds later."""
        link.ends[0].is_deaf = True
        self.loop.at(None, self.loop.now + after_s, self.reset, link)

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between two hosts until `heal`; connections that wait too long are lost then."""
        names = frozenset((one, other))
        if names not in self.cut_paths:
            self.cut_paths.add(names)
            for link in self.between(one, other):
                self.loop.at(None, self.loop.now + SILENCE_S, self._too_long, link)

    def _too_long(self, link: Link) -> None:
        if link.is_up and link.names in self.cut_paths:
            self.waiting.pop(link.number, None)
            self.reset(link)

    def heal(self, one: str, other: str) -> None:
        """What waited goes on, in order."""
        names = frozenset((one, other))
        self.cut_paths.discard(names)
        for link in [link for link in self.waiting.values() if link.names == names]:
            del self.waiting[link.number]
            waiting, link.waiting = link.waiting, []
            for to, kind, data in waiting:
                self.transmit(to, kind, data)

    def heal_all(self) -> None:
        """Every path is whole again."""
        for names in sorted(self.cut_paths, key=sorted):
            self.heal(*sorted(names))

    def died(self, host: Host, *, silently: bool = False) -> None:
        """A process is gone. Its kernel closes its connections, or (`silently`) its machine is gone as well."""
        for address, server in list(self.servers.items()):
            if server.host is host:
                del self.servers[address]
        for link, end in list(self._ends_of(host)):
            if silently:
                self.loop.at(None, self.loop.now + SILENCE_S, self.reset, link)
                end.is_deaf = True
            else:
                self.transmit(end.other, "reset" if self.rng.random() < 0.5 else "eof", None)
                self.forget(link)

    def _ends_of(self, host: Host) -> Iterator[tuple[Link, End]]:
        for link in self.links.values():
            for end in link.ends:
                if end.host is host:
                    yield link, end
