"""The product's own requests to a simulated cluster, without sockets and without a simulated network: for unit tests of
what asks Kafka. Time is virtual: `JumpLoop`'s clock jumps to the next timer when nothing is left to run.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar, cast

from metadata.clock import elapsed
from sidecar.changelog import Clock
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.network.framing import Frame
from sidecar.network.slices import in_slices
from sidecar.network.turn import TURN
from sidecar.network.upstream import Owner, Reply, UpstreamLostError
from sidecar.protocol.caller import (
    SHARED_CHANNEL,
    AnswerT,
    CallTimeoutError,
    Channel,
    DisconnectedError,
    Request,
    encode_frame,
    frame_steps,
)
from sidecar.protocol.primitives import Octets
from tests.kafka_calls import KafkaCalls
from tests.sim.kafka import Cluster, ClusterSettings

RequestT = TypeVar("RequestT", bound=Request[Any])
_LONGEST_S: Final = 24 * 3600.0
"""Of virtual time, for a test."""
_TURN_S: Final = 2e-6
"""What a turn of the loop takes: code that turns until something has happened gets somewhere."""


class _Jump(selectors.SelectSelector):
    """Waits for nothing: the clock is set forward instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen"
            self.now += max(timeout, _TURN_S)
            assert self.now < _LONGEST_S, "the test does not end"
        return ready


class JumpLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._clock = _Jump()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Here and now: the clock would not wait for a thread."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done


class _Link:
    """A connection to a broker: answers come in the order of the requests."""

    def __init__(self, cluster: Cluster, broker: int) -> None:
        self.is_open = True
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self.channel = cluster.accept(broker, self)

    def ask(self, frame: bytes) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self.channel.received(frame)
        return answer

    def send(self, data: bytes) -> None:
        """A broker sends a frame at a time."""
        if not (answer := self._waiting.popleft()).done():
            answer.set_result(data)

    def close(self) -> None:
        self.is_open = False
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(DisconnectedError("the broker closed the connection"))


class _Stream:
    """As `sidecar.network.upstream.UpstreamConnection`: a connection for batches, in plain calls."""

    def __init__(self, owner: Owner, cluster: Cluster, address: tuple[str, int]) -> None:
        self.address = address
        self.closed = self.lost = self.stood = False
        self.failure: str | None = None
        self._owner = owner
        self._waiting: deque[Reply] = deque()
        try:
            self._channel = cluster.accept(cluster.addresses[address], self)
        except ConnectionRefusedError as error:
            self.failure = str(error)
            asyncio.get_running_loop().call_soon(partial(self._end, sent=False))

    def send_parts(self, parts: list[Octets], reply: Reply | None) -> None:
        if reply is not None:
            self._waiting.append(reply)
        if not self.closed and self.failure is None:
            self._channel.received(b"".join(parts))

    def send(self, data: bytes) -> None:
        """A broker sends a frame at a time."""
        TURN.run(partial(self._received, Frame(bytearray(data), 0, len(data), owned=True)))

    def _received(self, frame: Frame) -> None:
        if self.closed:
            return
        if not self.stood:
            self.stood = True
            self._owner.upstream_opened(cast(Any, self))
        self._waiting.popleft().answer_received(frame)

    def close(self, reason: str = "") -> None:
        """By either end."""
        if not self.closed:
            self._channel.closed()
            self._end(sent=True)

    def _end(self, *, sent: bool) -> None:
        self.closed = True
        waiting, self._waiting = self._waiting, deque()
        self._owner.upstream_closed(cast(Any, self))
        for reply in waiting:
            reply.answer_lost(UpstreamLostError("the connection ended", sent=sent))


class DirectUpstream(KafkaUpstream):
    """A node's upstream. `before` and `behind` may let something happen around a call (`behind` knows the answer);
    `asked` are the calls: broker and request.
    """

    def __init__(self, cluster: Cluster) -> None:
        addresses = [broker.address for broker in cluster.brokers.values()]
        super().__init__(addresses, connect_timeout=1.0, request_timeout=5.0)
        self._random = random.Random(7)
        self.asked: list[tuple[int, Request[Any]]] = []
        self.before: Callable[[Request[Any]], Awaitable[object]] | None = None
        self.behind: Callable[[Request[Any], Any], Awaitable[object]] | None = None
        self._cluster = cluster
        self._links: dict[tuple[int, Channel], _Link] = {}
        self._number = 0

    async def call(
        self,
        broker_id: int | None,
        request: Request[AnswerT],
        *,
        timeout: float | None = None,
        channel: Channel = SHARED_CHANNEL,
    ) -> AnswerT:
        """See `Upstream.call`."""
        if self.before is not None:
            await self.before(request)
        broker = self.live_broker() if broker_id is None else broker_id
        self.asked.append((broker, request))
        link = self._link(self._cluster.addresses[self.address(broker)], channel)
        self._number += 1
        number = self._number
        answer = link.ask(encode_frame(request, number, "node"))
        try:
            async with asyncio.timeout(self.request_timeout if timeout is None else timeout):
                frame = await answer
        except TimeoutError:
            link.close()
            link.channel.closed()
            raise CallTimeoutError(f"broker {broker} did not answer {request}") from None
        decoded = await in_slices(frame_steps(request, number, frame, 4, len(frame)))
        if self.behind is not None:
            await self.behind(request, decoded)
        return decoded

    def open(self, owner: Owner, address: tuple[str, int], *_: Any, **__: Any) -> Any:
        """See `Brokers.open`."""
        return _Stream(owner, self._cluster, address)

    async def call_pair(self, broker_id: int, first: Any, second: Any, **how: Any) -> tuple[Any, Any]:
        """See `Upstream.call_pair`."""
        answer = await DirectUpstream.call(self, broker_id, first, **how)
        return answer, await DirectUpstream.call(self, broker_id, second, **how)

    def requests(self, kind: type[RequestT]) -> list[RequestT]:
        """The calls of one kind."""
        return [request for _, request in self.asked if isinstance(request, kind)]

    def _link(self, broker: int, channel: Channel) -> _Link:
        found = self._links.get((broker, channel))
        if found is None or not found.is_open:
            try:
                found = self._links[broker, channel] = _Link(self._cluster, broker)
            except ConnectionRefusedError as error:
                self.connect_failed(broker, str(error))
                raise DisconnectedError(str(error), sent=False) from None
        return found


class SimulatedKafka(KafkaCalls):
    """A simulated cluster on the running loop: tests' own calls, the cluster's faults (`cluster`), and upstreams of
    nodes. Implements `Scheduler`.
    """

    def __init__(self, **settings: Any) -> None:
        self.rng = random.Random(7)
        self._loop = asyncio.get_running_loop()
        self._nodes: list[DirectUpstream] = []
        self._began, self._elapsed = time.time(), elapsed()
        self.cluster = Cluster(self, ClusterSettings(session=1.5, heartbeat=0.3, **settings))
        super().__init__(self.node())

    def node(self) -> DirectUpstream:
        """The upstream of another node."""
        self._nodes.append(DirectUpstream(self.cluster))
        return self._nodes[-1]

    async def close(self) -> None:
        """End what upstreams have begun."""
        for node in self._nodes:
            await node.close()

    def clock(self) -> Clock:
        """The clock of another node, right from the beginning."""
        return Clock(wall=lambda: self.wall_ms() / 1000, elapsed=lambda: self._elapsed + self.now())

    def refuse(self, api_key: int, error: int, times: int = 1) -> None:
        """Let every broker answer its next requests of an API with an error."""
        for broker in self.cluster.brokers.values():
            broker.refuse(api_key, error, times)

    async def pause(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    # As `Scheduler`

    def now(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return int((self._began + self.now()) * 1000)

    def call_later(self, delay: float, call: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay, call, *args)
