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
from typing import Any, Final

from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver, TopicKind
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.producers import Producers
from sidecar.forwarder.outcome import Outcome
from sidecar.gateway import asking
from sidecar.gateway.client import Client
from sidecar.gateway.gaps import Buffer, Place, signature
from sidecar.gateway.leader_hints import LeaderHints
from sidecar.gateway.ordinary_produce import (
    AGAIN,
    OrdinaryProduce,
    SplitProduce,
    behind_lost,
    bound_expected,
    refusal,
)
from sidecar.gateway.plan import GOVERNED, Fact, Facts, Missing, Rule, Verdict, only_verdict, plan
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.gateway.write_rights import denied_topics, refused_transaction
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

_ACKS_ALL: Final = -1
_NOTHING: Final[Mapping[Any, Any]] = {}
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
            bound_expected(self.client)
        self.settle_checked(result)

    def settle_outcome(self, part: ProducePart, numbers: Numbers, outcome: Outcome) -> None:
        """Record the outcome of a batch for a governed topic in a request that was appended whole."""
        if outcome.error in AGAIN and numbers.producer_id >= 0:
            self.client.ordinary.expects(part.topic, part.partition, Place(*numbers[:3]))
            bound_expected(self.client)
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
        self._rule = Rule.of(shadow, governs=True)
        self._view = upstream.view
        self._resolver = resolver
        self._kinds = resolver.kinds
        self._governed = governed
        self._tasks = tasks
        self._hints = LeaderHints(upstream.view, nodes, resolver.kinds)
        self._ordinary_parts = OrdinaryProduce(upstream, resolver.kinds, self._hints)

    def handle(self, client: Client, request: Request) -> None:
        """Handle one request; the frame may be borrowed."""
        frame = request.frame
        fields = produce.walk(frame.buffer, request.body, frame.end, request.version, self._view.names)
        request.is_read = True
        if len(fields.parts) > BOUNDS.turn:
            self._hold(client, request, fields, set())
            return
        rest = self._begin(client, request, fields)
        if rest is None:
            return
        if isinstance(rest, set):
            self._hold(client, request, fields, rest)
        else:
            at_once(rest)

    def _begin(
        self,
        client: Client,
        request: Request,
        fields: ProduceRequest,
        asked: Mapping[Fact, bool] = _NOTHING,
        ungoverned: Mapping[bytes, KafkaError] = _NOTHING,
    ) -> set[Missing] | Generator[None, None, None] | None:
        """Forward a request whole, or answer it (None); else return the facts that are missing, or what is left to do
        if none is. `asked`: the facts that were looked up; `ungoverned`: the topics that could not become governed.
        """
        parts = fields.parts
        if len(parts) != 1 and not self._is_plain(client, request, fields):
            return None
        error = client.identity_error
        if error is None and fields.transactional_id is not None:
            error = refused_transaction(fields.transactional_id)
        if error is not None:
            self._refuse_all(client, request, fields, error)
            return None
        denied, rights, identity = ungoverned, client.rights, client.identity
        if rights is not None:
            denied = denied_topics(rights, identity, request.frame, fields, self._governed.policy_mode)
            denied = {**ungoverned, **denied} if ungoverned else denied
        needs_policy = identity is not None and identity.asks and Fact.POLICY not in asked
        by_id = fields.ids is not None
        known = self._view, self._resolver, client.principal, denied, _NOTHING, asked, by_id, needs_policy
        facts: Facts = new_tuple(Facts, known)
        verdicts = plan(parts, self._rule, facts)
        only = verdicts[0] if len(parts) == 1 else only_verdict(verdicts)
        if not isinstance(only, int) and only is not GOVERNED:
            missing = {verdict for verdict in verdicts if isinstance(verdict, Missing)}
            if missing:
                return missing
        is_behind = client.ordinary.expected and behind_lost(client, request.frame, fields)
        if (
            isinstance(only, int)
            and not is_behind
            and self._ordinary_parts.may_pass(client, request, fields)
            and not (client.governed.claimants and self._follows_governed(client, fields))
        ):
            self._ordinary_parts.pass_whole(client, request, fields, only)
            return None
        moved = request.own()
        merge = None
        if only is GOVERNED and fields.acks == _ACKS_ALL and fields.transactional_id is None:
            merge = MergedProduce(client, request, self._hints, fields, is_governed=True)
            client.connection.expect(merge)
            if self._governed.append_whole(client, fields, request.frame, request.body, moved, merge):
                return None
        return self._split(client, request, fields.moved(moved) if moved else fields, facts, verdicts, merge)

    def _hold(self, client: Client, request: Request, fields: ProduceRequest, missing: set[Missing]) -> None:
        client.connection.hold()
        moved = request.own()
        self._tasks.start(self._handle_held(client, request, fields.moved(moved) if moved else fields, missing))

    async def _handle_held(
        self, client: Client, request: Request, fields: ProduceRequest, missing: set[Missing]
    ) -> None:
        """Look up the missing facts, and begin again; works in slices."""
        connection = client.connection
        asked: dict[Fact, bool] = {}
        ungoverned: Mapping[bytes, KafkaError] = _NOTHING
        try:
            while True:
                if missing:
                    topics = {each.topic for each in missing if each.fact is Fact.POLICY}
                    if topics and Fact.NAME not in {each.fact for each in missing}:
                        ungoverned, asked[Fact.POLICY] = await self._governed.govern(topics), True
                    else:
                        asked |= await asking.look_up(self._upstream, missing)
                        frame, names = request.frame, self._view.names
                        fields = produce.walk(frame.buffer, request.body, frame.end, request.version, names)
                    if connection.closed:
                        return
                rest = self._begin(client, request, fields, asked, ungoverned)
                if not isinstance(rest, set):
                    break
                missing = rest
            if rest is not None:
                await in_slices(rest)
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

    def _follows_governed(self, client: Client, fields: ProduceRequest) -> bool:
        """Whether a batch that the client sent to one of these partitions while it was governed is unanswered."""
        before = _governed_before(client)
        return any(each.awaits(part) for part in fields.parts for each in before)

    def _split(
        self,
        client: Client,
        request: Request,
        fields: ProduceRequest,
        facts: Facts,
        verdicts: list[Verdict],
        merge: MergedProduce | None = None,
    ) -> Generator[None, None, None]:
        """Send each partition to its leader. `merge`: the exchange, if there is one already.

        Leaders are chosen last, in the turn in which the batches are sent: which batches would overtake others is known
        only for one state of the view.
        """
        if merge is None:
            merge = self._merged(client, request, fields)
        frame, behind, parts = request.frame, self._behind(client, request, fields), fields.parts
        is_large = len(parts) > BOUNDS.turn
        if not is_large:
            ordinary = self._ordinary(merge, frame, parts, verdicts)
        else:  # between the slices leaders may move, batches be lost, and topics become governed
            facts = facts._replace(asked={**dict.fromkeys(Fact, True), **facts.asked}, needs_policy=False)
            ordinary: list[tuple[ProducePart, int]] = []
            for first in range(0, len(parts), BOUNDS.turn):
                some = parts[first : first + BOUNDS.turn]
                ordinary += self._ordinary(merge, frame, some, plan(some, self._rule, facts))
                yield
            parts = [part for part, _ in ordinary]
            behind |= self._behind(client, request, fields._replace(parts=parts))
            ordinary = self._ordinary(merge, frame, parts, plan(parts, self._rule, facts))
        by_leader: dict[int, list[ProducePart]] = {}
        for part, leader in ordinary:
            if part[:2] in behind:
                merge.refuse(frame, part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif part.start == part.end:
                merge.settle_checked(refusal(part, ErrorCode.INVALID_RECORD, _NO_BATCH))
            else:
                by_leader.setdefault(leader, []).append(part)
        for leader, parts in by_leader.items():
            if client.connection.closed:
                return
            self._ordinary_parts.send(merge, request, leader, parts)

    def _ordinary(
        self, merge: MergedProduce, frame: Frame, parts: list[ProducePart], verdicts: list[Verdict]
    ) -> list[tuple[ProducePart, int]]:
        """Append governed batches, and refuse batches. Returns those that are to be forwarded, with their leaders."""
        before = _governed_before(merge.client, merge)
        ordinary: list[tuple[ProducePart, int]] = []
        for part, verdict in zip(parts, verdicts, strict=True):
            if verdict is GOVERNED:
                self._append(merge, frame, part)
            elif isinstance(verdict, KafkaError):
                merge.refuse(frame, part, verdict.code, verdict.message or None)
            elif any(each.awaits(part) for each in before):
                merge.refuse(frame, part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                assert isinstance(verdict, int), "all facts are known, and no shadow is written to"
                ordinary.append((part, verdict))
        return ordinary

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
