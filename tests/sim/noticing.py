"""Notices situations (`situations`) during a history: looks in front of and behind methods of the product and of the
simulated Kafka and Redis. It changes nothing, draws nothing, and is there only if `install` was called.
"""

from __future__ import annotations

from collections import Counter
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from metadata import MetadataUnavailable
from metadata.store import MetadataStore
from sidecar.dedup.gate import Gate
from sidecar.dedup.marks import Marks
from sidecar.dedup.recovery import SnapshotLog
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.resource import Resource
from sidecar.exclusive.shared import SharedSessions
from sidecar.exclusive.topic import GovernedTopic
from sidecar.exclusive.writer import SlotWriter
from sidecar.fanout.recent import Chains, Recent
from sidecar.fencing.slot import WriterSlot
from sidecar.fencing.witness import Witness
from sidecar.forwarder.forwarder import LeaderLink, WholeReply
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.sequences import Verdict
from sidecar.gateway.severing import Severing
from sidecar.gateway.source_check import _CORRELATION, _Check
from sidecar.ownership import step
from sidecar.ownership.state import Owned
from sidecar.protocol.caller import BadAnswerError, FencedError, decode_frame
from sidecar.protocol.errors import ErrorCode
from sidecar.resources.claims import Claims
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.epoch import CLAIMS
from sidecar.takeover.arbitration import Arbitration, HeldError
from sidecar.takeover.records import FormerWriters
from sidecar.takeover.requests import NothingDoneError
from sidecar.takeover.tails import TailReader
from sidecar.takeover.takeover import Takeover
from sidecar.v1 import state_pb2
from sidecar.writing.epoch import SlotEpoch
from tests.sim import former
from tests.sim.collect import OWNERSHIP, read
from tests.sim.kafka.controller import Controller
from tests.sim.kafka.coordinator import Transactions
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.faults import Faults
from tests.sim.kafka.replica import Replica
from tests.sim.loop import SimLoop
from tests.sim.redis import SimRedis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sidecar.takeover.slots import SlotScope
    from tests.sim.host import Host
    from tests.sim.play import Play

_INVALID_EPOCH: Final = 47
_HAS_ID: Final = b"sidecar-sequence-id"
_MANY_SLOTS: Final = 3
_MANY_SESSIONS: Final = 10


class _Attempt:
    """An attempt of a takeover: where it runs, and the step that it entered last."""

    def __init__(self, scope: SlotScope, host: Host | None) -> None:
        self.topic = scope.topic
        self.resource = scope.resource
        self.host = host
        self.step = ""
        self.fenced = False
        self.sent = False


class _State:
    """What was noticed, and what is needed to notice more. What is known of slots outlives the start of a history."""

    def __init__(self) -> None:
        self.seen = Counter[str]()
        self.loop: SimLoop | None = None
        self.play: Play | None = None
        self.slots: dict[int, tuple[str, int]] = {}
        """By producer id of a slot: its transactional id, and the newest epoch that was opened."""
        self.marked: dict[tuple[str, int, int], int] = {}
        """By topic, partition and producer id of a slot: the epoch of its newest marker at the leader."""
        self.lanes: dict[Lane, Host | None] = {}
        self.made: dict[Any, Any] = {}
        """What was given to objects as they were made."""
        self.attempts: dict[Any, _Attempt] = {}
        self.asked: dict[Any, list[bool]] = {}
        self.shifts: dict[Gate, Host | None] = {}
        self.opened: dict[Any, bool] = {}
        """By slot epoch that is raised: whether the next one is open."""
        self.learned: dict[Any, set[bytes]] = {}
        self.covered: dict[tuple[str, int], int] = {}
        self.evicted: set[str] = set()
        self.joined: set[tuple[bytes, int]] = set()
        self.coordinators: dict[Any, Host | None] = {}

    @property
    def host(self) -> Host | None:
        """Whose code runs now."""
        return None if self.loop is None else self.loop.current

    def running(self, topic: str = "") -> Iterator[_Attempt]:
        """Attempts on live hosts, of a topic or of all."""
        for attempt in self.attempts.values():
            if (not topic or attempt.topic == topic) and (attempt.host is None or attempt.host.alive):
                yield attempt

    def flying(self, topic: str | None = None) -> list[Lane]:
        """Lanes with batches in flight, or to be sent again."""
        name = None if topic is None else topic.encode()
        return [
            lane
            for lane, host in self.lanes.items()
            if not lane.idle and (host is None or host.alive) and name in (None, lane.topic)
        ]


STATE: Final = _State()
_LOOKS: Final[list[tuple[Any, str, Callable[..., Any]]]] = []


def _at(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function that is called in place of a method, with the method as its first argument."""

    def enter(look: Callable[..., Any]) -> Callable[..., Any]:
        _LOOKS.append((owner, name, look))
        return look

    return enter


def install() -> None:
    """Notice from here on, in this process and its forks."""
    for owner, name, look in _LOOKS:
        setattr(owner, name, _called(getattr(owner, name), look))


def _called(method: Any, look: Callable[..., Any]) -> Any:
    @wraps(method)
    def called(*args: Any, **named: Any) -> Any:
        return look(method, *args, **named)

    return called


@_at(SimLoop, "__init__")
def _made(call: Any, loop: SimLoop, **named: Any) -> None:
    call(loop, **named)
    STATE.loop = loop


def begin(play: Play) -> None:
    """A history begins."""
    STATE.seen.clear()
    STATE.play = play


def end(play: Play) -> dict[str, int]:
    """What was noticed in a history, and what its steps and effects say."""
    found, steps = STATE.seen, play.history.steps
    produced = [step.args for step in steps if step.kind == "produce"]
    found["rebuilt leads"] += play.world.effects["rebuilt replica leads"]
    found["mixed versions"] += len({args.get("version", 8) for args in produced}) >= _MANY_SLOTS
    found["thirty sessions"] += len(play.producers) >= 30
    found["twenty partitions"] += max(play.counts.values()) >= 20
    found["a minute"] += play.history.length >= 60
    found["owner's deposed rival"] += play.world.ledger.codes.get(90, 0)
    found["two releases"] += play.world.effects["node upgraded"] + play.world.effects["node rolled back"]
    if play.world.release is not None:
        _note_passes(play)
    return dict(+found)


def _note_passes(play: Play) -> None:
    """Which release served after which, by the ownership topic."""
    served: dict[bytes, bool] = {}
    for record in read(play.world, OWNERSHIP, 0):
        key = record.key or b""
        if not key.startswith(b"serving/") or not record.value:
            continue
        node = state_pb2.Serving.FromString(record.value).node
        starts = [is_former for at, number, is_former in play.world.started if number == node and at <= record.at]
        is_former = bool(starts) and starts[-1]
        before = served.setdefault(key, is_former)
        _note("goes back", is_former and not before)
        _note("goes to today's", before and not is_former)
        served[key] = is_former


def _note(name: str, happened: object = True) -> None:
    if happened:
        STATE.seen[name] += 1


# Lanes ------------------------------------------------------------------------------------------------------------


@_at(Lane, "begin")
def _sent(call: Any, lane: Lane, append: Any) -> None:
    call(lane, append)
    STATE.lanes[lane] = STATE.host
    slot = STATE.slots.get(lane.stamp.producer_id)
    _note("fenced node writes", slot is not None and slot[1] > lane.stamp.epoch)
    if not STATE.seen["many slots"]:
        writers = {each.stamp.producer_id for each in STATE.flying(lane.topic.decode())}
        _note("many slots", len(writers) >= _MANY_SLOTS)


@_at(Lane, "settled")
def _settled(call: Any, lane: Lane, append: Any, outcome: Any) -> None:
    _note("answer after the end", lane._closed is not None and outcome.error != 13)
    _note("append after the end", lane._closed is not None and not outcome.error)
    _note("batch behind a failed one", not outcome.error and lane._closed is None and lane.overtakes(append))
    call(lane, append, outcome)
    if lane.idle:
        STATE.lanes.pop(lane, None)


@_at(Lane, "acknowledged")
def _acknowledged(call: Any, lane: Lane, append: Any, outcome: Any = None) -> None:
    _note("answer after the end", lane._closed is not None)
    _note("append after the end", lane._closed is not None)
    call(lane, append, outcome)
    if lane.idle:
        STATE.lanes.pop(lane, None)


@_at(Lane, "close")
def _ended(call: Any, lane: Lane, outcome: Any) -> None:
    _note("ends in flight", lane._closed is None and not lane.idle)
    call(lane, outcome)


@_at(WholeReply, "_overtakes")
def _overtakes(call: Any, reply: Any) -> bool:
    found = call(reply)
    _note("whole behind a failed one", found)
    return found


@_at(LeaderLink, "_leads_no_more")
def _leads_no_more(call: Any, link: Any, reply: Any) -> bool:
    found = call(link, reply)
    _note("silent with a successor", found)
    return found


@_at(Lane, "_drop")
def _given_up(call: Any, lane: Lane, append: Any, outcome: Any) -> None:
    _note("given up in doubt", append.in_doubt)
    call(lane, append, outcome)


@_at(Lane, "_refused")
def _refused(call: Any, lane: Lane, append: Any, outcome: Any) -> None:
    _note("given up in doubt", append.in_doubt and outcome.error != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    call(lane, append, outcome)


@_at(Resource, "numbering_lost")
def _numbering_lost(call: Any, resource: Any, lane: Lane) -> None:
    _note("numbering lost", resource.writer.writes_under(lane))
    call(resource, lane)


# Fences -----------------------------------------------------------------------------------------------------------


@_at(WriterSlot, "_init")
async def _opened(call: Any, slot: Any, current: Any) -> Any:
    stamp = await call(slot, current)
    before = next((pid for pid, (name, _) in STATE.slots.items() if name == slot.transactional_id), stamp.producer_id)
    _note("producer id rotated", before != stamp.producer_id)
    if before != stamp.producer_id:
        del STATE.slots[before]
    STATE.slots[stamp.producer_id] = slot.transactional_id, stamp.epoch
    return stamp


@_at(WriterSlot, "keep_alive")
async def _kept_alive(call: Any, slot: Any, partitions: Any) -> None:
    _note("renewed in flight", any(lane.stamp == slot.stamp for lane in STATE.flying()))
    await call(slot, partitions)


@_at(Witness, "without_fence")
async def _confirmed(call: Any, witness: Any, writer: Any, indexes: Any, **named: Any) -> Any:
    answers = STATE.asked[witness] = []
    try:
        missing = await call(witness, writer, indexes, **named)
    finally:
        _note("leader silent", True in answers and False in answers)
        STATE.asked.pop(witness, None)
    asked = sum(map(len, indexes.values()))
    slot = STATE.slots.get(writer.producer_id)
    is_marked = slot is not None and any(pid == writer.producer_id for _, _, pid in STATE.marked)
    _note("marker missing", is_marked and 0 < sum(map(len, missing.values())) < asked)
    return missing


@_at(Witness, "_ask")
async def _asked(call: Any, witness: Any, leader: int, asked: Any) -> Any:
    answers = STATE.asked.get(witness)
    try:
        found = await call(witness, leader, asked)
    except BaseException:
        if answers is not None:
            answers.append(False)
        raise
    if answers is not None:
        answers.append(True)
    return found


@_at(Replica, "append_data")
def _appended(call: Any, replica: Replica, batch: Any, acks: int) -> Any:
    slot = STATE.slots.get(batch.pid)
    if slot is None:
        return call(replica, batch, acks)
    _note("writer forgotten", replica.leading and batch.first_seq > 0 and batch.pid not in replica.producers.entries)
    try:
        found = call(replica, batch, acks)
    except RefusedError as error:
        _note("former refused", error.code == _INVALID_EPOCH)
        raise
    if not found.repeat and batch.producer_epoch < slot[1]:
        name, topic, index = slot[0], replica.topic.name, replica.index
        _note("former appended")
        master = name.rpartition("/")[0] or name
        for pid, (other, epoch) in STATE.slots.items():
            if other == master != name and STATE.marked.get((topic, index, pid)) == epoch:
                _note("between markers", STATE.marked.get((topic, index, batch.pid)) != slot[1])
    return found


@_at(Replica, "append_marker")
def _marker(call: Any, replica: Replica, batch: Any) -> Any:
    found = call(replica, batch)
    if batch.pid in STATE.slots:
        STATE.marked[replica.topic.name, replica.index, batch.pid] = batch.producer_epoch
    return found


@_at(Replica, "truncate")
def _truncated(call: Any, replica: Replica, offset: int) -> None:
    lost = [batch for batch in replica.log.batches if batch.last >= offset and not batch.control]
    _note("uncommitted dropped", any(batch.pid in STATE.slots for batch in lost))
    call(replica, offset)


@_at(Replica, "advance_start")
def _advanced(call: Any, replica: Replica, offset: int) -> None:
    gone = [batch for batch in replica.log.batches if batch.last < offset]
    _note("marker deleted", any(batch.control and batch.pid in STATE.slots for batch in gone))
    if replica.leading:
        _removed(replica.topic.name, replica.index, gone)
    call(replica, offset)


@_at(Faults, "cleaned")
def _cleaned(call: Any, cluster: Any, topic: bytes, partition: int, batches: Any) -> None:
    names = {image.id: name for name, image in cluster.controller.topics.items()}
    _removed(names.get(topic, ""), partition, batches)
    call(cluster, topic, partition, batches)


def _removed(topic: str, partition: int, batches: Any) -> None:
    covered = STATE.covered.get((topic, partition), 0)
    _note("removed before snapshot", any(batch.last >= covered and _HAS_ID in batch.data for batch in batches))


@_at(Transactions, "resigned")
def _resigned(call: Any, coordinator: Any, replica: Replica) -> None:
    is_fencing = any(attempt.step == "_fence" for attempt in STATE.running())
    _note("coordinator moves", is_fencing and replica.index in coordinator.shards)
    call(coordinator, replica)


# Takeovers --------------------------------------------------------------------------------------------------------


def _remember(owner: Any) -> None:
    @_at(owner, "__init__")
    def made(call: Any, found: Any, *args: Any, **named: Any) -> None:
        call(found, *args, **named)
        STATE.made[found] = args


for _owner in (Takeover, TailReader, Arbitration):
    _remember(_owner)


@_at(Takeover, "_attempt")
async def _attempted(call: Any, takeover: Any, granted: Any, fenced: Any) -> Any:
    attempt = _Attempt(STATE.made[takeover][1], STATE.host)
    for other in STATE.running(attempt.topic):
        _note("takeover meets takeover", other.resource == attempt.resource and other.host is not attempt.host)
    cluster = STATE.play.world.cluster if STATE.play is not None else None
    _note("record without leader", cluster is not None and cluster.leader(OWNERSHIP, 0) < 0)
    STATE.attempts[takeover] = attempt
    try:
        found = await call(takeover, granted, fenced)
    finally:
        del STATE.attempts[takeover]
    _note("starts over", found is None)
    return found


def _step(name: str) -> None:
    @_at(Takeover, name)
    async def entered(call: Any, takeover: Any, *args: Any) -> Any:
        attempt = STATE.attempts.get(takeover)
        if attempt is not None:
            attempt.step = name
            attempt.sent = attempt.sent or name == "_append"
        return await call(takeover, *args)


for _name in ("_note_tails", "_commit", "_append"):
    _step(_name)


@_at(Takeover, "_fence")
async def _fencing(call: Any, takeover: Any, noted: Any, others: Any) -> Any:
    if (attempt := STATE.attempts.get(takeover)) is not None:
        attempt.step = "_fence"
    scope = STATE.made[takeover][1]
    entry = noted.formers.get(scope.slot)
    own = entry.value.producer_id if entry is not None else -1
    writers = {lane.stamp.producer_id for lane in STATE.flying(scope.topic)}
    _note("sister in flight", not scope.is_master and writers - {own})
    _note("several in flight", scope.is_master and len(writers) > 1)
    found = await call(takeover, noted, others)
    if attempt is not None:
        attempt.fenced = True
    return found


@_at(Takeover, "_still_holds")
async def _still_holds(call: Any, takeover: Any, start: Any, fenced: Any) -> bool:
    if (attempt := STATE.attempts.get(takeover)) is not None:
        attempt.step = "_still_holds"
    is_same = fenced.topic.topic_id == start.topic_id
    _note("born again in takeover", not is_same)
    _note(
        "grows in takeover",
        is_same and len(STATE.made[takeover][1].of(fenced.topic.partitions)) > len(start.partitions),
    )
    return await call(takeover, start, fenced)


@_at(Takeover, "_sequences")
async def _sequences(call: Any, takeover: Any, start: Any, *args: Any) -> Any:
    opened, session = start.known.opened, STATE.made[takeover][2].session
    left = [each.session for each in opened.value.left] if opened is not None else []
    _note("returning session", session and session in left)
    _note("evicted returns", session and session in STATE.evicted)
    return await call(takeover, start, *args)


@_at(TailReader, "behind")
async def _behind(call: Any, reader: Any, writer: Any, tails: Any, marker: Any, ends: Any) -> Any:
    found = await call(reader, writer, tails, marker, ends)
    cluster = STATE.play.world.cluster if STATE.play is not None else None
    topic = STATE.made[reader][1]
    if cluster is not None and topic not in cluster.controller.topics:
        return found
    for index, tail in tails.items():
        claim = tail.claim
        replica = cluster.replica(topic, index) if cluster is not None and claim is not None else None
        for batch in reversed(replica.log.batches if replica is not None else []):
            if batch.control and batch.pid == marker.producer_id and batch.producer_epoch == marker.epoch:
                _note("claim of a tail dropped", claim is not None and batch.epoch != claim.leader_epoch)
                break
    return found


@_at(Controller, "elect")
def _elected(call: Any, controller: Any, topic: str, *args: Any, **named: Any) -> bool:
    found = call(controller, topic, *args, **named)
    _note("leader changes in takeover", found and any(STATE.running(topic)))
    return found


@_at(GovernedTopic, "apply")
def _applied(call: Any, topic: Any, event: Any, *args: Any) -> Any:
    if isinstance(event, step.ClaimEnded):
        _note("turn in queue", event.session in topic.state.places)
    effects = call(topic, event, *args)
    is_later = any(isinstance(effect, step.Verdict) and effect.act is step.Act.LATER for effect in effects)
    _note("meets its ghost", is_later and isinstance(topic.state.holder, Owned))
    return effects


@_at(GovernedTopic, "policy_changed")
def _policy_changed(call: Any, topic: Any) -> None:
    _note("policy in flight", STATE.flying(topic.name))
    call(topic)


@_at(GovernedTopic, "ungoverned")
async def _ungoverned(call: Any, topic: Any) -> None:
    _note("policy in flight", STATE.flying(topic.name))
    await call(topic)


@_at(GovernedTopic, "hand_back")
async def _handed_back(call: Any, topic: Any) -> None:
    _note("hand-over in flight", STATE.flying(topic.name))
    await call(topic)


@_at(GovernedTopic, "_serve")
async def _served(call: Any, topic: Any) -> Any:
    try:
        return await call(topic)
    except NothingDoneError as error:
        _note("held elsewhere", error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise


@_at(SimLoop, "kill")
def _killed(call: Any, loop: SimLoop, host: Host) -> None:
    if host.alive and host.name.startswith("node-"):
        for attempt in STATE.running():
            if attempt.host is host and attempt.fenced:
                _note("dies at record" if attempt.sent else "dies before record")
        _note("dies before drop", any(each is host for each in STATE.shifts.values()))
    call(loop, host)
    STATE.coordinators = {lease: each for lease, each in STATE.coordinators.items() if each is not host}


@_at(SimLoop, "thaw")
def _thawed(call: Any, loop: SimLoop, host: Host, **named: Any) -> None:
    for attempt in STATE.running():
        _note("stops before record", attempt.host is host and attempt.fenced and not attempt.sent)
    for process in STATE.play.world.nodes.values() if STATE.play is not None else ():
        rooms = process.node.rooms
        if process.host is not host or rooms is None:
            continue
        for topic in former.named(rooms.governed).values():
            for part in topic.parts:
                for writer in (part.writer, *(each.writer for each in part.shared.connected())):
                    stamp = writer.epoch.taken.stamp if writer.epoch is not None else None
                    slot = STATE.slots.get(stamp.producer_id) if stamp is not None else None
                    _note("returns with another's", stamp is not None and slot is not None and slot[1] > stamp.epoch)
    call(loop, host, **named)


@_at(Controller, "delete")
def _deleted(call: Any, controller: Any, topic: str, *args: Any, **named: Any) -> Any:
    _note("born again in flight", STATE.flying(topic))
    return call(controller, topic, *args, **named)


@_at(Controller, "grow")
def _grown(call: Any, controller: Any, topic: str, *args: Any, **named: Any) -> Any:
    _note("grows in flight", STATE.flying(topic))
    return call(controller, topic, *args, **named)


# Sequences and slots ----------------------------------------------------------------------------------------------


@_at(SlotWriter, "raise_epoch")
async def _raised(call: Any, writer: Any, work: Any, offer: Any) -> bool:
    epoch = writer.epoch
    _note("raised in flight", epoch is not None and not epoch.idle)
    is_raised = await call(writer, work, offer)
    is_open = STATE.opened.pop(epoch, None)
    _note("raise meets a drop", bool(is_open) and not is_raised)
    _note("raise in doubt", is_open is None)
    return bool(is_raised)


@_at(SlotEpoch, "_next")
async def _next(call: Any, epoch: SlotEpoch, *args: Any) -> Any:
    STATE.opened[epoch] = False
    try:
        found = await call(epoch, *args)
    except FencedError:
        _note("raise refused")
        raise
    _note("epoch raised")
    STATE.opened[epoch] = True
    return found


@_at(SlotEpoch, "verdict")
def _judged(call: Any, epoch: Any, *args: Any) -> Verdict:
    found = call(epoch, *args)
    _note("refusals unheard", found is Verdict.UNHEARD)
    _note("repeat below base", found is Verdict.REPEAT)
    return found


@_at(SharedSessions, "_introduce")
def _introduced(call: Any, sessions: Any, *args: Any) -> Any:
    found = call(sessions, *args)
    _note("many sessions", len(sessions.connected()) >= _MANY_SESSIONS)
    if found is not None and found.replaces is not None:
        _note("slot evicted")
        STATE.evicted.add(found.replaces.session)
    return found


# Deduplication ----------------------------------------------------------------------------------------------------


@_at(Marks, "learn")
def _learned(call: Any, marks: Any, mark: Any) -> None:
    call(marks, mark)
    STATE.learned.setdefault(marks, set()).add(mark.name)


@_at(Gate, "_decide_ids")
def _decided(call: Any, gate: Any, arrival: Any, content: Any) -> bool:
    is_settled = call(gate, arrival, content)
    if not is_settled:
        _note("drop behind others" if gate._out.under_way else "id in flight")
    return is_settled


@_at(Gate, "_drop")
def _dropped(call: Any, gate: Any, arrival: Any, content: Any, kept: Any) -> None:
    _note("part duplicate", kept)
    _note("repeated after failover", STATE.learned.get(gate._state.marks, set()).intersection(content.names))
    call(gate, arrival, content, kept)


@_at(Gate, "_shift")
async def _shifted(call: Any, gate: Any, *args: Any) -> None:
    STATE.shifts[gate] = STATE.host
    try:
        await call(gate, *args)
    finally:
        _note("epoch ends in drop", gate._closed is not None)
        STATE.shifts.pop(gate, None)


@_at(FormerWriters, "check")
def _checked(call: Any, former: Any, node: int, opened: Any) -> None:
    ids = former._ids
    if ids is not None and opened is not None and former._is_master and opened.value.node != node:
        _note("returns with memory", ids.partitions)
    call(former, node, opened)


@_at(Marks, "make_room")
def _made_room(call: Any, marks: Any, *args: Any) -> bool:
    before = marks.evicted
    found = call(marks, *args)
    _note("names forgotten", marks.evicted > before)
    return found


@_at(SnapshotLog, "write")
async def _saved(call: Any, log: Any, state: Any, **named: Any) -> bool:
    covered = state.marks.covered
    found = await call(log, state, **named)
    if found:
        STATE.covered[log.topic, state.partition] = covered
    return found


@_at(TopicIds, "_lose")
def _lost(call: Any, ids: Any, *args: Any) -> None:
    _note("ids unknown")
    call(ids, *args)


# Redis and claims -------------------------------------------------------------------------------------------------


@_at(Arbitration, "claim")
async def _arbitrated(call: Any, arbitration: Any, *args: Any, **named: Any) -> Any:
    try:
        return await call(arbitration, *args, **named)
    except MetadataUnavailable:
        _note("away at claim")
        raise
    except HeldError:
        _note("newer in changelog")
        raise


@_at(Arbitration, "_ask")
async def _asked_redis(call: Any, arbitration: Any, request: Any) -> Any:
    try:
        return await call(arbitration, request)
    except MetadataUnavailable:
        services = STATE.made[arbitration][0]
        serving = services.changelog.view.serving(request.topic)
        _note("goes on alone", serving is not None and serving.value.node == services.node_id)
        raise


@_at(SimRedis, "empty")
def _emptied(call: Any, redis: Any, **named: Any) -> None:
    _note("forgets in takeover", any(STATE.running()))
    call(redis, **named)


@_at(SimRedis, "roll_back")
def _rolled_back(call: Any, redis: Any) -> None:
    _note("forgets in takeover", any(STATE.running()))
    call(redis)


@_at(MetadataStore, "serve")
async def _served_claims(call: Any, store: Any, topic: str, *args: Any, **named: Any) -> Any:
    try:
        return await call(store, topic, *args, **named)
    except MetadataUnavailable:
        _note("claims without Redis", topic == CLAIMS)
        raise


@_at(Claims, "_end")
def _sessions_end(call: Any, claims: Any, sessions: Any) -> Any:
    sessions, table = list(sessions), claims.table
    for session in sessions:
        _note("ends with claims", list(table.keys_of_session(session, 1)))
        _note("ends in queue", table.waiting.of_session(session, 1))
    return call(claims, sessions)


@_at(Coordinator, "_step_down")
def _coordinator_ends(call: Any, coordinator: Any, reason: Any) -> None:
    _note("coordinator ends at work", coordinator.commits is not None and not coordinator.commits.idle.is_set())
    call(coordinator, reason)


@_at(Coordinator, "_begin")
def _coordinates(call: Any, coordinator: Any, *args: Any) -> None:
    host = STATE.host
    for other, where in STATE.coordinators.items():
        _note("two coordinators", where is not host and other.epoch is not None)
    STATE.coordinators[coordinator] = host
    call(coordinator, *args)


# Readers ----------------------------------------------------------------------------------------------------------


@_at(Chains, "_parts")
def _joined(call: Any, chains: Any, question: Any, *args: Any) -> Any:
    parts = call(chains, question, *args)
    if len(parts) > 1:
        STATE.joined.add(question.position.of)
    return parts


@_at(Recent, "keep")
def _stored(call: Any, recent: Any, question: Any, *args: Any) -> Any:
    _note("joined answer replaced", question.position.of in STATE.joined)
    return call(recent, question, *args)


@_at(_Check, "answer_received")
def _source_checked(call: Any, check: Any, frame: Any) -> None:
    if check._read.frame is not None:
        try:
            is_same = decode_frame(check._question, _CORRELATION, frame.buffer, frame.start + 4, frame.end)
        except BadAnswerError:
            is_same = False
        _note("source changed", not is_same)
    call(check, frame)


@_at(Severing, "changed")
def _severed(call: Any, severing: Any, change: Any) -> None:
    call(severing, change)
    _note("reader severed", bool(severing._passed))
