"""Produce, versions 3 to 9. Routed to the partitions' leaders; governed partitions go to the room `exclusive`.

- All partitions ordinary and with one leader: frame and answer pass unchanged.
- Otherwise the request is split by leader, records uncopied, and the answers are merged in the order of the request.
- acks=0 has no answer; a refusal closes the connection, as a broker does, also where a broker refuses by closing.
- A client that asks for a mode or a generation makes an ordinary topic governed before its batch is forwarded.
- Topics of the sidecar's own are refused with 29 TOPIC_AUTHORIZATION_FAILED. `exclusive` refuses a transactional batch
  for a governed topic with 48 INVALID_TXN_STATE.
- A request that names a partition twice is rejected: Kafka would append one of the two and not answer for the other.
- A partition without a batch is refused with 87 INVALID_RECORD: Kafka never answers a null one.

If a broker is lost before the request was sent, the answer is 6 NOT_LEADER_OR_FOLLOWER; after that 7 REQUEST_TIMED_OUT:
the outcome is unknown, and the client retries. Later batches that overtook a lost one are answered 6 too (`gaps`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from sidecar.cluster.resolver import TopicKind, is_legal
from sidecar.cluster.view import NO_LEADER
from sidecar.gateway import passing
from sidecar.gateway.gaps import signature
from sidecar.gateway.produce_answers import MergedProduce, PartReply, PassedProduce, refusal
from sidecar.network.client import RejectError
from sidecar.network.slices import in_slices
from sidecar.protocol import produce, produce_upstream
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.limits import SLICE
from sidecar.protocol.primitives import Octets, at_once
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Generator, Mapping

    from sidecar.cluster.resolver import NameResolver
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.forwarder.whole import Asker
    from sidecar.gateway.client import Client
    from sidecar.network.client import RequestHead
    from sidecar.network.framing import Frame
    from sidecar.network.tasks import Tasks


_ACKS_ALL: Final = -1
_NONE_REFUSED: Final[Mapping[bytes, KafkaError]] = {}
_NO_BATCH: Final = "a partition without a record batch"


class GovernedTopics(Protocol):
    """The room that appends to governed topics."""

    def append(
        self,
        client: Client,
        part: ProducePart,
        batch: memoryview,
        timeout_ms: int,
        done: Callable[[ProduceResult], None],
    ) -> None:
        """Append one batch (owned by the callee from now on) and call `done` once, perhaps within this call."""
        ...

    def append_whole(
        self, client: Client, request: ProduceRequest, frame: Frame, body: int, moved: int, asker: Asker
    ) -> bool:
        """Send a request with acks=all on as it is, where it is the usual one: sound batches of its topic's owner, none
        of which has to wait for anything. The owned frame is the callee's then, and `asker` is answered later. False
        otherwise: nothing was done.

        `body`: where the client id ends; `moved`: what to add to the positions in `request`.
        """
        ...

    async def govern(self, topics: Collection[bytes]) -> dict[bytes, KafkaError]:
        """Have ordinary topics governed, every node knowing it; why not, by topic, where that is not to be had."""
        ...


class ProduceApi:
    """Handles Produce requests of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver, governed: GovernedTopics, tasks: Tasks) -> None:
        self._upstream = upstream
        self._view = upstream.view
        self._resolver = resolver
        self._governed = governed
        self._tasks = tasks

    def handle(self, client: Client, frame: Frame, head: RequestHead) -> None:
        """One request; the frame may be borrowed."""
        request = produce.walk(frame.buffer, head.body, frame.end, head.version)
        parts = request.parts
        if len(parts) > SLICE:
            self._hold_large(client, frame, head, request)
            return
        if len(parts) != 1 and not self._is_plain(client, frame, head, request):
            return
        if client.identity_error is not None:
            self._refuse_all(client, frame, head, request, client.identity_error)
            return
        if client.identity is not None and client.identity.asks and (names := self._ordinary(request)):
            client.connection.hold()
            self._tasks.start(self._govern(client, frame.own(), head, frame.start, request, names))
            return
        if not client.gaps.expected or not self._gaps(client, frame, request):
            leader = self._single_leader(request)
            if leader != NO_LEADER:
                self._pass(client, frame, head, request, leader)
                return
        owned, moved = frame.own(), 0
        if owned is not frame:
            moved = -frame.start
            head.body += moved
        merge = None
        if request.acks == _ACKS_ALL and request.transactional_id is None and self._is_governed(request):
            merge = MergedProduce(client, head, frame.size, request)
            client.connection.expect(merge)
            if self._governed.append_whole(client, request, owned, head.body, moved, merge):
                return
        if moved:
            request = _moved(request, moved)
        if missing := self._missing(request):
            client.connection.hold()
            self._tasks.start(self._find_leaders(client, owned, head, request, missing))
        else:
            at_once(self._split(client, owned, head, request, merge))

    def _hold_large(self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest) -> None:
        owned = frame.own()
        if owned is not frame:
            head.body -= frame.start
            request = _moved(request, -frame.start)
        client.connection.hold()
        self._tasks.start(self._handle_large(client, owned, head, request))

    async def _handle_large(self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest) -> None:
        """As `handle`, in slices."""
        connection = client.connection
        refused, asked = _NONE_REFUSED, True
        try:
            if not self._is_plain(client, frame, head, request):
                return
            if client.identity_error is not None:
                self._refuse_all(client, frame, head, request, client.identity_error)
                return
            if client.identity is not None and client.identity.asks and (names := self._ordinary(request)):
                refused = await self._governed.govern(names)
            elif not client.gaps.expected and (leader := self._single_leader(request)) != NO_LEADER:
                self._pass(client, frame, head, request, leader)
                return
            elif missing := self._missing(request):
                asked = await self._upstream.find_leaders(missing)
            if not connection.closed:
                await in_slices(self._split(client, frame, head, request, asked=asked, refused=refused))
        except RejectError as error:
            connection.reject(error.reason, error.detail)
        finally:
            connection.release()

    def _missing(self, request: ProduceRequest) -> set[bytes]:
        """The ordinary topics of a request whose leaders have to be asked for."""
        kind = self._resolver.kind
        ordinary = ((part.topic, part.partition) for part in request.parts if kind(part.topic) is TopicKind.ORDINARY)
        return self._view.missing(ordinary)

    def _is_plain(self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest) -> bool:
        """Whether a request of several partitions, or none, goes on: one without any is answered here."""
        if not request.parts:
            if request.acks != 0:
                merge = MergedProduce(client, head, frame.size, request)
                client.connection.expect(merge)
                merge.answer([produce.encode_answer(head.correlation_id, head.version, [])])
            return False
        if len({(part.topic, part.partition) for part in request.parts}) != len(request.parts):
            raise RejectError("malformed", "a Produce request that names a partition twice")
        return True

    def _is_governed(self, request: ProduceRequest) -> bool:
        """Whether all of a request is for governed topics."""
        kind = self._resolver.kind
        return all(kind(part.topic) is TopicKind.GOVERNED for part in request.parts)

    def _ordinary(self, request: ProduceRequest) -> set[bytes]:
        """The topics of a request that are not governed, but might be."""
        kind = self._resolver.kind
        return {part.topic for part in request.parts if kind(part.topic) is TopicKind.ORDINARY and is_legal(part.topic)}

    async def _govern(
        self, client: Client, frame: Frame, head: RequestHead, start: int, request: ProduceRequest, names: set[bytes]
    ) -> None:
        try:
            refused = await self._governed.govern(names)
            if client.connection.closed:
                return
            if start != frame.start:
                request = _moved(request, frame.start - start)
                head.body += frame.start - start
            at_once(self._split(client, frame, head, request, refused=refused))
        finally:
            client.connection.release()

    def _gaps(self, client: Client, frame: Frame, request: ProduceRequest) -> set[tuple[bytes, int]]:
        """The partitions whose batch comes behind a lost one."""
        return {
            (part.topic, part.partition)
            for part in request.parts
            if not client.gaps.admits(part.topic, part.partition, signature(frame.buffer, part.start, part.end))
        }

    def _single_leader(self, request: ProduceRequest) -> int:
        """The one broker that leads all partitions, if all are ordinary, bring a batch, and there is one."""
        leader_of, kind = self._view.leader, self._resolver.kind
        found = NO_LEADER
        for part in request.parts:
            if kind(part.topic) is not TopicKind.ORDINARY or part.start == part.end:
                return NO_LEADER
            leader = leader_of(part.topic, part.partition)
            if leader == NO_LEADER or (found not in (NO_LEADER, leader)):
                return NO_LEADER
            found = leader
        return found

    def _pass(self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest, leader: int) -> None:
        exchange = None
        if request.acks != 0:
            exchange = PassedProduce(client, frame, head, self._upstream, request)
            client.connection.expect(exchange)
        try:
            connection = client.links.to(leader)
        except DisconnectedError:
            if exchange is None:
                client.connection.close()
            else:
                exchange.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        client.carries_ordinary = True
        if exchange is None:
            client.links.unconfirmed(connection, [part.topic for part in request.parts])
        passing.send(connection, client, frame, head, exchange)

    async def _find_leaders(
        self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest, topics: set[bytes]
    ) -> None:
        found = await self._upstream.find_leaders(topics)
        try:
            if not client.connection.closed:
                at_once(self._split(client, frame, head, request, asked=found))
        finally:
            client.connection.release()

    def _split(
        self,
        client: Client,
        frame: Frame,
        head: RequestHead,
        request: ProduceRequest,
        merge: MergedProduce | None = None,
        *,
        asked: bool = True,
        refused: Mapping[bytes, KafkaError] = _NONE_REFUSED,
    ) -> Generator[None, None, None]:
        """Each partition to its leader. `merge` has the place of the answer, if it was taken already. `asked` False:
        Kafka could not be asked for those that are not known. `refused` are topics that nothing may be written to.
        """
        if merge is None:
            merge = MergedProduce(client, head, frame.size, request)
            if request.acks != 0:
                client.connection.expect(merge)
        gaps = self._gaps(client, frame, request) if client.gaps.expected else ()
        by_leader: dict[int, list[ProducePart]] = {}
        for first in range(0, len(request.parts), SLICE):
            for part in request.parts[first : first + SLICE]:
                error = refused.get(part.topic)
                if error is not None:
                    merge.settle_checked(refusal(part, error.code, error.message))
                    continue
                leader = self._place(client, frame, request, merge, part, gaps, asked=asked)
                if leader != NO_LEADER:
                    by_leader.setdefault(leader, []).append(part)
            if len(request.parts) > SLICE:
                yield
        for leader, parts in by_leader.items():
            if client.connection.closed:
                return
            self._send_part(client, frame, head, request, merge, leader, parts)

    def _place(
        self,
        client: Client,
        frame: Frame,
        request: ProduceRequest,
        merge: MergedProduce,
        part: ProducePart,
        gaps: Container[tuple[bytes, int]],
        *,
        asked: bool,
    ) -> int:
        """The leader to send an ordinary partition's batch to; else it is appended, or answered, here."""
        kind = self._resolver.kind(part.topic)
        if kind is not TopicKind.ORDINARY:
            if (error := kind.change_refused) is not None:
                merge.settle(refusal(part, error.code, error.message))
            else:
                self._append(client, frame, part, request.timeout_ms, merge.settle_checked)
            return NO_LEADER
        leader = self._view.leader(part.topic, part.partition)
        if (part.topic, part.partition) in gaps:
            merge.settle(refusal(part, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif leader == NO_LEADER:
            merge.settle(refusal(part, self._why_no_leader(part, asked=asked)))
        elif part.start == part.end:
            merge.settle_checked(refusal(part, ErrorCode.INVALID_RECORD, _NO_BATCH))
        else:
            return leader
        return NO_LEADER

    def _why_no_leader(self, part: ProducePart, *, asked: bool) -> ErrorCode:
        return self._view.why_no_leader(part.topic, part.partition) if asked else ErrorCode.LEADER_NOT_AVAILABLE

    def _append(
        self, client: Client, frame: Frame, part: ProducePart, timeout_ms: int, done: Callable[[ProduceResult], None]
    ) -> None:
        """Hand a governed partition's batch on."""
        if part.start == part.end:
            done(refusal(part, ErrorCode.INVALID_RECORD, _NO_BATCH))
            return
        self._governed.append(client, part, frame.view(part.start, part.end), timeout_ms, done)

    def _send_part(
        self,
        client: Client,
        frame: Frame,
        head: RequestHead,
        request: ProduceRequest,
        merge: MergedProduce,
        leader: int,
        parts: list[ProducePart],
    ) -> None:
        identity = client.identity
        assert identity is not None
        records: list[tuple[bytes, int, Octets]] = [
            (part.topic, part.partition, frame.view(part.start, part.end)) for part in parts
        ]
        message = produce_upstream.encode_request(
            head.correlation_id,
            identity.name.encode(),
            head.version,
            request.acks,
            request.timeout_ms,
            records,
            request.transactional_id,
        )
        client.carries_ordinary = True
        reply = PartReply(client, self._upstream, frame, merge, parts)
        try:
            connection = client.links.to(leader)
        except DisconnectedError:
            reply.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if request.acks == 0:
            client.links.unconfirmed(connection, [part.topic for part in parts])
        connection.send_parts(message, reply if request.acks != 0 else None)

    def _refuse_all(
        self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest, error: KafkaError
    ) -> None:
        client.connection.report("client_id", error.message)
        merge = MergedProduce(client, head, frame.size, request)
        if request.acks != 0:
            client.connection.expect(merge)
        for part in request.parts:
            merge.settle(refusal(part, error.code, error.message))


def _moved(request: ProduceRequest, by: int) -> ProduceRequest:
    """The same request in a copy of its frame."""
    parts = [ProducePart(part.topic, part.partition, part.start + by, part.end + by) for part in request.parts]
    return request._replace(parts=parts)
