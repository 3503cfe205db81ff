"""Produce, versions 3 to 13. Routed to the partitions' leaders; governed partitions go to the room `exclusive`.

- All partitions are ordinary and have one leader: request and answer are forwarded unchanged.
- Otherwise the request is split by leader without copying records, and the answers are merged in the request's order.
- acks=0 has no answer: a refusal closes the client's connection, as on a broker. So does a broker that refuses by
  closing its connection.
- A client that requests a mode or a generation makes an ordinary topic governed before its batch is forwarded.
- Partitions that Kafka's ACLs do not allow the client to WRITE are refused (29 TOPIC_AUTHORIZATION_FAILED, 53
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED); the others are forwarded (`write_rights.py`).
- Topics by id (version 13) are treated as topics by name; an unknown id is refused with 100 UNKNOWN_TOPIC_ID.
- The sidecar's own transactional ids are refused with 53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED. From version 12 on a
  batch adds its partition to the transaction implicitly (KIP-890).
- From version 10 on an answer with an error is encoded anew, because a broker's answer may name brokers
  (`leader_hints`).
- The sidecar's own topics are refused with 29 TOPIC_AUTHORIZATION_FAILED. `exclusive` refuses a transactional batch for
  a governed topic with 48 INVALID_TXN_STATE.
- A request that names a partition twice is rejected: Kafka would append one of the two and not answer for the other.
- A partition without a batch is refused with 87 INVALID_RECORD: Kafka never answers a null batch.

If the broker connection is lost before the request was sent, the answer is 6 NOT_LEADER_OR_FOLLOWER. If it is lost
afterwards, the outcome is unknown, the answer is 7 REQUEST_TIMED_OUT, and the client retries. Later batches that would
overtake a lost batch are answered with NOT_LEADER_OR_FOLLOWER too (`gaps`).
"""

from collections.abc import Generator, Mapping
from functools import partial
from typing import Final

from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver, TopicKind, is_legal
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.view import NO_LEADER
from sidecar.exclusive.producers import Producers
from sidecar.forwarder.outcome import Outcome
from sidecar.gateway.asking import refused_ids
from sidecar.gateway.client import Client
from sidecar.gateway.gaps import Buffer, Place, signature
from sidecar.gateway.leader_hints import LeaderHints
from sidecar.gateway.ordinary_produce import AGAIN, OrdinaryProduce, SplitProduce, behind_lost, refusal
from sidecar.gateway.rights import Rights
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.gateway.write_rights import denied_topics, refused_transaction, with_unknown
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, RejectError, Request
from sidecar.network.slices import in_slices
from sidecar.network.tasks import Tasks
from sidecar.network.turn import TURN
from sidecar.protocol import produce
from sidecar.protocol.batch import Numbers
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import at_once, new_tuple
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult
from sidecar.protocol.topic_ids import unknown_ids

_ACKS_ALL: Final = -1
_NONE_REFUSED: Final[Mapping[bytes, KafkaError]] = {}
_BAD_INPUT: Final[dict[int, str]] = {
    ErrorCode.CORRUPT_MESSAGE: "corrupt_batch",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "old_message_format",
    ErrorCode.INVALID_TXN_STATE: "transactional_batch",
    ErrorCode.INVALID_RECORD: "invalid_record",
}
"""The errors of invalid batches, and the log's word for each."""
_NO_BATCH: Final = "a partition without a record batch"


class MergedProduce(SplitProduce):
    """A request that is answered once all its partitions have an outcome. With acks=0 a refusal closes the client's
    connection.
    """

    __slots__ = ("_hints", "_places", "_results", "as_node", "is_governed")

    def __init__(
        self, client: Client, request: Request, hints: LeaderHints, fields: ProduceRequest, *, is_governed: bool = False
    ) -> None:
        """`is_governed`: at least one partition belongs to a governed topic."""
        Exchange.__init__(self, client.connection, request)  # `super` costs more
        self.client = client
        self._hints = hints
        self.fields = fields
        self.replies = []
        self.is_governed = is_governed
        self.as_node = self.request_bytes if is_governed else 0
        """How many bytes of the request the node sends in its own name; known for clients with quotas."""
        self._results: dict[tuple[bytes, int], ProduceResult] = {}
        self._places: set[tuple[bytes, int]] | None = None
        """The partitions of the request; filled by the first call of `awaits`."""
        self.throttle_ms = 0

    def settle(self, result: ProduceResult) -> None:
        """Record the outcome of one partition; answer the request if it was the last one."""
        self._results[result.topic, result.partition] = result
        if result.error:
            self.note_error(result.error)
            self.client.note_refusal(result.topic, result.error, result.message)
        if self.fields.acks == 0:
            if result.error:
                self.connection.close()
            return
        fields = self.fields
        if len(self._results) == len(fields.parts) and not self.connection.closed:
            self.replies.clear()  # each refers to this exchange
            results = [self._results[part.topic, part.partition] for part in fields.parts]
            self.answer([self._hints.produced(self, self.client.listener, results, self.throttle_ms, fields.ids)])

    def awaits(self, part: ProducePart) -> bool:
        """Whether the batch for a partition has no outcome yet."""
        if self._places is None:
            self._places = {each[:2] for each in self.fields.parts}
        where = part[:2]
        return where not in self._results and where in self._places

    def settle_governed(self, part: ProducePart, kept: Buffer, result: ProduceResult) -> None:
        """Record the outcome of a batch for a governed topic that was appended by `_append`."""
        if result.error in AGAIN:
            self.client.ordinary.lost(part.topic, part.partition, kept)
        self.settle_checked(result)

    def settle_outcome(self, part: ProducePart, numbers: Numbers, outcome: Outcome) -> None:
        """Record the outcome of a batch for a governed topic in a request that was appended whole."""
        if outcome.error in AGAIN and numbers.producer_id >= 0:
            self.client.ordinary.expects(part.topic, part.partition, Place(*numbers[:3]))
        self.settle_checked(new_tuple(ProduceResult, (part.topic, part.partition, *outcome, ())))

    def settle_checked(self, result: ProduceResult) -> None:
        """Record the outcome of a partition whose batch was checked, and report an invalid batch."""
        if result.error in _BAD_INPUT:
            _report(self, result)
        self.settle(result)


def _report(exchange: MergedProduce, result: ProduceResult) -> None:
    where = f"{result.topic.decode(errors='replace')}-{result.partition}"
    exchange.connection.report(_BAD_INPUT[result.error], f"{where}: {result.message or 'refused by Kafka'}")


class ProduceApi:
    """Handles Produce requests of all clients of a node."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        nodes: NodeDirectory,
        resolver: NameResolver,
        governed: Producers,
        tasks: Tasks,
        shadow: ShadowRule = ShadowRule.REFUSED,
    ) -> None:
        self._upstream = upstream
        self._shadow = shadow
        self._view = upstream.view
        self._kinds = resolver.kinds
        self._hides = resolver.hides
        self._governed = governed
        self._tasks = tasks
        self._hints = LeaderHints(upstream.view, nodes, resolver.kinds)
        self._ordinary_parts = OrdinaryProduce(upstream, resolver.kinds, self._hints)

    def handle(self, client: Client, request: Request) -> None:
        """Handle one request; the frame may be borrowed."""
        frame = request.frame
        fields = produce.walk(frame.buffer, request.body, frame.end, request.version, self._view.names)
        request.is_read = True
        parts = fields.parts
        if len(parts) > BOUNDS.turn or (fields.ids is not None and unknown_ids(fields.ids)):
            self._hold(client, request, fields)
            return
        if client.rights is not None and self._denied(client.rights, client, request, fields):
            self._hold(client, request, fields)
            return
        if len(parts) != 1 and not self._is_plain(client, request, fields):
            return
        if (error := _refused_whole(client, fields)) is not None:
            self._refuse_all(client, request, fields, error)
            return
        if client.identity is not None and client.identity.asks and self._ordinary(fields):
            self._hold(client, request, fields)
            return
        is_behind = client.ordinary.expected and behind_lost(client, request.frame, fields)
        is_governed = self._kinds[parts[0].topic] is TopicKind.GOVERNED
        if not is_governed and not is_behind:
            leader = self._ordinary_parts.single_leader(client, request, fields)
            if leader != NO_LEADER and not self._follows_governed(client, fields):
                self._ordinary_parts.pass_whole(client, request, fields, leader)
                return
        moved = request.own()
        merge = None
        if is_governed and fields.acks == _ACKS_ALL and fields.transactional_id is None and self._all_governed(parts):
            merge = MergedProduce(client, request, self._hints, fields, is_governed=True)
            client.connection.expect(merge)
            if self._governed.append_whole(client, fields, request.frame, request.body, moved, merge):
                return
        if moved:
            fields = fields.moved(moved)
        if merge is None and self._ordinary_parts.missing(fields):
            self._hold(client, request, fields)
        else:
            at_once(self._split(client, request, fields, merge))

    def _walk(self, request: Request) -> ProduceRequest:
        frame = request.frame
        return produce.walk(frame.buffer, request.body, frame.end, request.version, self._view.names)

    def _denied(
        self, rights: Rights, client: Client, request: Request, fields: ProduceRequest
    ) -> dict[bytes, KafkaError]:
        return denied_topics(rights, client.identity, request.frame, fields, self._governed.policy_mode)

    def _hold(self, client: Client, request: Request, fields: ProduceRequest) -> None:
        client.connection.hold()
        moved = request.own()
        self._tasks.start(self._handle_held(client, request, fields.moved(moved) if moved else fields))

    async def _handle_held(self, client: Client, request: Request, fields: ProduceRequest) -> None:
        """As `handle`, for a request that needs an answer of Kafka or of other rooms first. Works in slices, and
        refuses topics that the client may not write to or that do not exist.
        """
        connection = client.connection
        asked = True
        try:
            if unknown := unknown_ids(fields.ids):
                asked = await self._upstream.find_ids(unknown)
                if connection.closed:
                    return
                fields = self._walk(request)
            refused = _NONE_REFUSED if client.rights is None else self._denied(client.rights, client, request, fields)
            refused = with_unknown(refused, refused_ids(fields.ids, asked=asked))
            if not self._is_plain(client, request, fields):
                return
            if (error := _refused_whole(client, fields)) is not None:
                self._refuse_all(client, request, fields, error)
                return
            if (
                client.identity is not None
                and client.identity.asks
                and (names := self._ordinary(fields) - refused.keys())
            ):
                refused = {**await self._governed.govern(names), **refused}
            elif (
                not refused
                and not client.ordinary.expected
                and (leader := self._ordinary_parts.single_leader(client, request, fields)) != NO_LEADER
                and not self._follows_governed(client, fields)
            ):
                self._ordinary_parts.pass_whole(client, request, fields, leader)
                return
            elif missing := self._ordinary_parts.missing(fields) - refused.keys():
                asked = await self._upstream.find_leaders(missing)
            if not connection.closed:
                await in_slices(self._split(client, request, fields, asked=asked, refused=refused))
        except RejectError as error:
            connection.reject(error.reason, error.detail)
        finally:
            connection.release()

    def _merged(self, client: Client, request: Request, fields: ProduceRequest) -> MergedProduce:
        """The exchange that merges the request's outcomes; awaits its turn to answer unless acks=0."""
        merge = MergedProduce(client, request, self._hints, fields)
        meter = client.connection.meter
        if meter is not None:
            sizes = [(part.end - part.start, self._kinds[part.topic] is TopicKind.GOVERNED) for part in fields.parts]
            ordinary = sum(size for size, is_governed in sizes if not is_governed)
            merge.as_node = request.frame.size - ordinary if any(is_governed for _, is_governed in sizes) else 0
        if fields.acks != 0:
            client.connection.expect(merge)
        elif meter is not None:
            meter.unanswered(request, merge.as_node)
        return merge

    def _is_plain(self, client: Client, request: Request, fields: ProduceRequest) -> bool:
        """Whether the request has partitions; one that has none is answered here. Rejects one that names one twice."""
        if not fields.parts:
            if fields.acks != 0:
                merge = self._merged(client, request, fields)
                merge.answer([produce.encode_answer(request.correlation_id, request.version, [])])
            return False
        TURN.elements += len(fields.parts)
        if len({(part.topic, part.partition) for part in fields.parts}) != len(fields.parts):
            raise RejectError("malformed", "a Produce request that names a partition twice")
        return True

    def _all_governed(self, parts: list[ProducePart]) -> bool:
        """Whether all partitions belong to governed topics, if the first does."""
        kinds = self._kinds
        return len(parts) == 1 or all(kinds[part.topic] is TopicKind.GOVERNED for part in parts)

    def _ordinary(self, fields: ProduceRequest) -> set[bytes]:
        """The topics of a request that are ordinary and could become governed."""
        topics = {part.topic for part in fields.parts}
        return {topic for topic in topics if self._kinds[topic] is TopicKind.ORDINARY and is_legal(topic)}

    def _follows_governed(self, client: Client, fields: ProduceRequest) -> bool:
        """Whether a batch that the client sent to one of these partitions while it was governed is unanswered."""
        before = _governed_before(client) if client.governed.claimants else ()
        return bool(before) and any(each.awaits(part) for part in fields.parts for each in before)

    def _split(
        self,
        client: Client,
        request: Request,
        fields: ProduceRequest,
        merge: MergedProduce | None = None,
        *,
        asked: bool = True,
        refused: Mapping[bytes, KafkaError] = _NONE_REFUSED,
    ) -> Generator[None, None, None]:
        """Send each partition to its leader. `merge`: the exchange, if there is one already. `asked` False: Kafka could
        not be asked for unknown leaders. `refused`: the topics to refuse, with the error of each.

        Leaders are chosen last, in the turn in which the batches are sent: which batches would overtake others is known
        only for one state of the view.
        """
        if merge is None:
            merge = self._merged(client, request, fields)
        frame, behind = request.frame, self._behind(client, request, fields)
        ordinary: list[ProducePart] = []
        for first in range(0, len(fields.parts), BOUNDS.turn):
            some = fields.parts[first : first + BOUNDS.turn]
            before = _governed_before(client, merge)
            ordinary += [part for part in some if not self._settled(merge, frame, part, refused, before)]
            if len(fields.parts) > BOUNDS.turn:
                yield
        if len(fields.parts) > BOUNDS.turn:  # between the slices leaders may move and batches be lost
            behind |= self._behind(client, request, fields._replace(parts=ordinary))
        by_leader: dict[int, list[ProducePart]] = {}
        for part in ordinary:
            leader = self._view.leader(part.topic, part.partition)
            if part[:2] in behind:
                merge.refuse(frame, part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif leader == NO_LEADER:
                merge.refuse(frame, part, self._ordinary_parts.why_no_leader(part, asked=asked))
            elif part.start == part.end:
                merge.settle_checked(refusal(part, ErrorCode.INVALID_RECORD, _NO_BATCH))
            else:
                by_leader.setdefault(leader, []).append(part)
        for leader, parts in by_leader.items():
            if client.connection.closed:
                return
            self._ordinary_parts.send(merge, request, leader, parts)

    def _settled(
        self,
        merge: MergedProduce,
        frame: Frame,
        part: ProducePart,
        refused: Mapping[bytes, KafkaError],
        before: list[MergedProduce],
    ) -> bool:
        """Append a governed batch, or refuse a batch. Returns False for one that is to be forwarded to a broker.
        `before`: see `_governed_before`.
        """
        kind = self._kinds[part.topic]
        if (error := refused.get(part.topic)) is not None:
            merge.refuse(frame, part, error.code, error.message or None)
        elif kind is TopicKind.GOVERNED:
            self._append(merge, frame, part)
        elif (error := self._shadow.refused(kind)) is not None:
            is_hidden = self._hides(part.topic, merge.client.principal)
            merge.settle(refusal(part, error.code, None if is_hidden else error.message))
        elif any(each.awaits(part) for each in before):
            merge.refuse(frame, part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            return False
        return True

    def _behind(self, client: Client, request: Request, fields: ProduceRequest) -> set[tuple[bytes, int]]:
        """See `OrdinaryProduce.not_now`; empty if the client has no earlier batches that matter."""
        return self._ordinary_parts.not_now(client, request.frame, fields) if client.ordinary.matters() else set()

    def _append(self, merge: MergedProduce, frame: Frame, part: ProducePart) -> None:
        """Give the batch of a governed partition to the room `exclusive`."""
        if part.start == part.end:
            merge.settle_checked(refusal(part, ErrorCode.INVALID_RECORD, _NO_BATCH))
            return
        merge.is_governed = True
        done = partial(merge.settle_governed, part, signature(frame.buffer, part.start, part.end))
        fields = merge.fields
        topic_id = b"" if fields.ids is None else fields.ids[part.topic]
        batch = frame.view(part.start, part.end)
        self._governed.append(merge.client, part, batch, fields.timeout_ms, done, topic_id)

    def _refuse_all(self, client: Client, request: Request, fields: ProduceRequest, error: KafkaError) -> None:
        if error is client.identity_error:
            client.connection.report("client_id", error.message)
        merge = self._merged(client, request, fields)
        for part in fields.parts:
            merge.settle(refusal(part, error.code, error.message))


def _governed_before(client: Client, merge: MergedProduce | None = None) -> list[MergedProduce]:
    """The unanswered requests, except `merge`, that have batches for governed topics."""
    pending = (each for each in client.connection.pending if isinstance(each, MergedProduce))
    return [each for each in pending if each.is_governed and each is not merge]


def _refused_whole(client: Client, fields: ProduceRequest) -> KafkaError | None:
    name = fields.transactional_id
    return client.identity_error or (None if name is None else refused_transaction(name))
