"""What must hold of every history, from the answers that clients got and what the logs hold. Pure; finds, never acts.

`check` returns sentences, none where all is well. Each rule is a function of the `Evidence` and has a test with a
history that breaks it (`test_checker.py`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.sim.ledger import NOT_WRITTEN, REFUSED, Ledger, Read, Sent
from tests.sim.policies import Timeline
from tests.sim.sources import Life, Source, Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.sim.policies import Policy
    from tests.sim.wire import Record

ID_HEADER: Final = b"sidecar-sequence-id"
SHARED: Final = "shared"
NOBODY: Final = "nobody"
"""The owner of what was let go of, in answers to clients."""
_SHOWN: Final = 60
"""Bytes of a record that a sentence shows."""
_NOTHING: Final[list[Record]] = []
_MOST: Final = 5
"""Sentences for one rule: more of the same say nothing."""


@dataclass(frozen=True, slots=True)
class OwnershipRecord:
    """A record of the ownership topic, where it has the offset `at`: who got a topic (slot 0) or a partition, under
    which generation, from which offsets on.
    """

    topic: str
    slot: str
    generation: int
    session: str
    start: tuple[tuple[int, int], ...]
    released: bool = False
    at: int = -1
    when: float = 0.0
    """Its moment."""
    former: bool = False
    """Of a topic of that name that was deleted."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A record of a claim to a string, or for reading; without a session: free again."""

    resource: str
    generation: int = 0
    session: str = ""
    token: bytes = b""


@dataclass(slots=True)
class Evidence:
    """Everything that a history left behind.

    `logs`: committed records by topic and partition. `ownerships`: in the order of the ownership topic. `writers`:
    producer ids of writer slots. `sessions`: what nodes call the sessions of a client's (`pid:N`). `policies`: what
    nodes applied when. `gone`: records that Kafka lost by an unclean election, or that a deleted topic had, by topic
    and partition. `troubled`: sessions to whose batches for a topic without a policy a broker answered what was not
    so, each with the topic: a client gets over that as well, or badly, as without a node. `shadows`: source by shadow.
    `inside`: what did not hold within the nodes (`inside`). `claims`: the records of claims, in the order of the
    ownership topic; `zeroed`: those that somebody claimed under generation 0. `names_limit`: for how many producer
    names of a partition ids are remembered, 0: for all. `stuck`: what did not come to an end although nothing was
    wrong any more.
    """

    ledger: Ledger = field(default_factory=Ledger)
    logs: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    ownerships: list[OwnershipRecord] = field(default_factory=list)
    writers: set[int] = field(default_factory=set)
    sessions: dict[str, set[str]] = field(default_factory=dict)
    policies: Timeline = field(default_factory=Timeline)
    gone: dict[tuple[str, int], set[bytes]] = field(default_factory=dict)
    gone_to: dict[tuple[str, int], int] = field(default_factory=dict)
    """The last offset of what is gone: a reader may have come so far in a log that is another one now."""
    removed: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)
    """When a record was first missing in a replica's log, by offset: Kafka cleaned it away."""
    lives: list[Life] = field(default_factory=list)
    """The topics that there were, in the order in which they came."""
    former: dict[tuple[bytes, int], dict[int, set[bytes]]] = field(default_factory=dict)
    """What the logs of deleted topics had, by topic id and partition, by offset."""
    torn: dict[tuple[str, int], set[bytes]] = field(default_factory=dict)
    """The part of `gone` that an unclean election lost of the topic that has the name now."""
    renewed: dict[str, float] = field(default_factory=dict)
    """When a node first served a topic that was created anew: from then on nothing of the former one counts."""
    unfenced: dict[tuple[str, int], float] = field(default_factory=dict)
    """Of topics that were created anew: from which offset on a node had seen that, and fenced them."""
    troubled: set[tuple[str, str]] = field(default_factory=set)
    names_limit: int = 0
    shadows: dict[str, str] = field(default_factory=dict)
    stuck: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    began: float = 0.0
    """When the history began, in the world's seconds."""
    opened: dict[tuple[int, int], int] = field(default_factory=dict)
    """Where the ownership topic says that an epoch of a writer slot was opened, by producer id and epoch."""
    believed: list[str] = field(default_factory=list)
    """What nodes took on the word of a client that lied."""
    held: list[str] = field(default_factory=list)
    """Callbacks in which a node did more than it may at once."""
    since: dict[tuple[str, int], int] = field(default_factory=dict)
    """Where a partition ended when its topic began to have sequence ids: from there on no id comes again."""
    inside: list[str] = field(default_factory=list)
    sources: Sources = field(default_factory=Sources)
    overruled: list[str] = field(default_factory=list)
    """What operators were told, and does not hold (`words`)."""
    claims: list[Claimed] = field(default_factory=list)
    zeroed: set[str] = field(default_factory=set)
    _copies: dict[tuple[str, int], dict[bytes, list[Record]]] = field(default_factory=dict)
    _known: dict[tuple[str, int, bytes], Sent] | None = None

    def places(self, sent: Sent) -> list[int]:
        """Offsets at which a record stands."""
        return [record.offset for record in self.copies(sent)]

    def copies(self, sent: Sent) -> list[Record]:
        """What the log has of it."""
        where = sent.topic, sent.partition
        found = self._copies.get(where)
        if found is None:
            found = self._copies[where] = {}
            for record in self.logs.get(where, ()):
                found.setdefault(record.value, []).append(record)
        return found.get(sent.value) or _NOTHING

    @property
    def known(self) -> dict[tuple[str, int, bytes], Sent]:
        """What was sent, by topic, partition and value."""
        if self._known is None:
            self._known = {(sent.topic, sent.partition, sent.value): sent for sent in self.ledger.sent}
        return self._known

    def fenced(self, sent: Sent) -> list[Record]:
        """As `copies`, but for what was written to a topic that was created anew before a node had seen that: it is in
        nobody's epoch (`docs/reference/guarantees.md`, A topic deleted and created again).
        """
        begin = self.unfenced.get((sent.topic, sent.partition), 0)
        found = self.copies(sent)
        return found if not begin else [record for record in found if record.offset >= begin]

    def is_gone(self, sent: Sent) -> bool:
        """Whether Kafka had it, and lost it."""
        return sent.value in self.gone.get((sent.topic, sent.partition), ())

    def is_troubled(self, sent: Sent) -> bool:
        """Whether its session got a wrong answer about this topic."""
        return (sent.session, sent.topic) in self.troubled


class Finding(str):
    """A sentence that says what is wrong, and the name of the rule that found it."""

    __slots__ = ("rule",)
    rule: str

    @classmethod
    def of(cls, rule: str, sentence: str) -> Finding:
        """Both."""
        found = cls(sentence)
        found.rule = rule
        return found


def check(evidence: Evidence) -> list[str]:
    """All that is wrong, a few sentences (`Finding`) for each rule."""
    found: list[str] = []
    for rule in RULES:
        sentences = [Finding.of(rule.__name__, sentence) for sentence in rule(evidence)]
        found += sentences[:_MOST]
        if len(sentences) > _MOST:
            found.append(f"… and {len(sentences) - _MOST} more of {rule.__name__}")
    return found


def _shown(value: bytes | None) -> str:
    """A record for people: some are 90,000 bytes."""
    return repr(value) if value is None or len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"


def _where(sent: Sent) -> str:
    return f"{_shown(sent.value)} of {sent.session} in {sent.topic}/{sent.partition}"


def _ids_count(policy: Policy) -> bool:
    return policy.ids


def _is_governed(policy: Policy) -> bool:
    return bool(policy.mode)


def _ownership(policy: Policy) -> tuple[str, bool]:
    """What the meaning of a generation depends on."""
    return policy.mode and (SHARED if policy.mode == SHARED else "owned"), policy.by_partition


def lost(evidence: Evidence) -> Iterator[str]:
    """What was acknowledged is in the log; of a duplicate, the record with its id is. Ids of a name rise in a log, so
    there are two exceptions. Its application heard that it failed, and went on with higher ids. Or it sends again what
    a deleted topic had. Once a new topic is served, both need a higher id in that one.
    """
    present, former = _ids(evidence), _former_ids(evidence)
    outdone = former | _given_up(evidence, present | former)
    for sent in evidence.ledger.sent:
        if not sent.delivered or evidence.places(sent) or evidence.is_gone(sent) or evidence.is_troubled(sent):
            continue
        may_repeat = evidence.policies.ever(sent.topic, sent.sent_at, sent.told_at, _ids_count)
        of_former = sent.sent_at <= evidence.renewed.get(sent.topic, math.inf)
        sent_id = sent.topic, sent.partition, sent.name, sent.sequence_id
        if may_repeat and (sent_id in present or (sent_id in outdone and (of_former or _is_passed(evidence, sent)))):
            continue
        told = f"told at {sent.told_at - evidence.began:.3f}"
        yield f"acknowledged and lost: {_where(sent)}, offset {sent.offset}, {told}"


def doubled(evidence: Evidence) -> Iterator[str]:
    """What an idempotent session sent once stands there once; a plain one's only where it was sent again in doubt.

    Where a policy ends, what was in doubt under it is sent again to Kafka as an ordinary record. A client that raises
    its own epoch while a batch is in doubt, as librdkafka does where another partition is refused, and Java where
    another batch is, sends that one anew: only ids show Kafka's log, and a node, that they are the same.
    """
    for sent in evidence.ledger.sent:
        copies = evidence.fenced(sent)
        if len(copies) < 2 or evidence.is_troubled(sent):
            continue
        life = sent.topic, sent.sent_at, max(record.at for record in copies)
        counts = sent.sequence_id is not None and evidence.policies.constant(*life, _ids_count)
        stays = evidence.policies.constant(*life, _is_governed) is not None
        if not sent.doubtful or (stays and ((sent.idempotent and not sent.is_anew) or counts)):
            yield f"written {len(copies)} times: {_where(sent)}, offsets {evidence.places(sent)}"


def reordered(evidence: Evidence) -> Iterator[str]:
    """Records of an idempotent session stand in the order in which they were sent."""
    lanes = defaultdict[tuple[str, str, int], list[Sent]](list)
    for sent in evidence.ledger.sent:
        if sent.idempotent and not evidence.is_troubled(sent):
            lanes[sent.session, sent.topic, sent.partition].append(sent)
    for lane in lanes.values():
        last, before = -1, None
        for sent in sorted(lane, key=lambda each: each.order):
            places = [record.offset for record in evidence.fenced(sent)]
            if places and places[0] < last:
                yield f"reordered: {_where(sent)} at {places[0]} stands in front of {_shown(before)} at {last}"
            if places:
                last, before = places[0], sent.value


def phantom(evidence: Evidence) -> Iterator[str]:
    """Whatever is in the log somebody sent, there."""
    known = evidence.known
    for (topic, partition), records in evidence.logs.items():
        for record in records:
            if (topic, partition, record.value) not in known:
                yield f"nobody sent {_shown(record.value)}, which is in {topic}/{partition} at {record.offset}"


def refused(evidence: Evidence) -> Iterator[str]:
    """What was refused for good is not in the log, unless an attempt before that ended in doubt."""
    for sent in evidence.ledger.sent:
        if sent.delivered is False and sent.code in REFUSED and not sent.doubtful and evidence.places(sent):
            yield f"refused with {sent.code} and written: {_where(sent)} at {evidence.places(sent)}"


def not_written(evidence: Evidence) -> Iterator[str]:
    """As `refused`, for codes that promise the same without being final."""
    for sent in evidence.ledger.sent:
        certain = sent.delivered is False and sent.code in NOT_WRITTEN - REFUSED and not sent.doubtful
        stays = evidence.policies.constant(sent.topic, sent.sent_at, sent.told_at, _is_governed) is not None
        if certain and stays and evidence.places(sent):
            yield f"answered {sent.code} and written: {_where(sent)} at {evidence.places(sent)}"


def wrong_offset(evidence: Evidence) -> Iterator[str]:
    """A record stands where its acknowledgement says."""
    for sent in evidence.ledger.sent:
        if sent.delivered and sent.offset >= 0 and not evidence.is_gone(sent):
            places = evidence.places(sent)
            if places and sent.offset not in places:
                yield f"acknowledged at {sent.offset}, written at {places}: {_where(sent)}"


def twice_counted(evidence: Evidence) -> Iterator[str]:
    """A sequence id of a producer name is once in a partition, from its first record on as long as ids count.

    A node that has room for fewer names than there are forgets the ids of some.
    """
    known = evidence.known
    for (topic, partition), records in evidence.logs.items():
        both = [(record, known.get((topic, partition, record.value))) for record in records]
        with_ids = [(record, sent) for record, sent in both if sent is not None and sent.sequence_id is not None]
        if 0 < evidence.names_limit < len({sent.name for _, sent in with_ids}):
            continue
        seen: dict[tuple[str, int | None], tuple[int, float]] = {}
        for record, sent in with_ids:
            key = sent.name, sent.sequence_id
            offset, began = seen.get(key, (-1, sent.sent_at))
            if offset >= 0 and evidence.policies.constant(topic, min(began, sent.sent_at), record.at, _ids_count):
                yield f"id {key[1]} of {key[0]} twice in {topic}/{partition}: offsets {offset} and {record.offset}"
            seen[key] = record.offset, sent.sent_at


def behind_the_fence(evidence: Evidence) -> Iterator[str]:
    """Behind the offsets at which a generation begins only its own session's records stand.

    A generation of before the policy changed says nothing about records that were sent since.
    """
    known = evidence.known
    for (topic, partition), spans in _spans(evidence).items():
        writers: dict[int, str] = {}
        for record in evidence.logs.get((topic, partition), ()):
            sent = known.get((topic, partition, record.value))
            ownership = next((each for start, each in reversed(spans) if record.offset >= start), None)
            if sent is None or ownership is None or not _is_fenced(evidence, ownership, record, sent):
                continue
            session, names = sent.session, evidence.sessions.get(sent.session, set())
            if ownership.session.startswith("pid:") and ownership.session not in names:
                yield (
                    f"{_shown(record.value)} of {session} ({', '.join(sorted(names)) or 'no producer id'})"
                    f" at {record.offset} of {topic}/{partition},"
                    f" behind generation {ownership.generation} of {ownership.session}"
                )
            other = writers.setdefault(ownership.generation, session)
            if other != session:
                yield (
                    f"two sessions in generation {ownership.generation} of {topic}/{partition}: {other}, then {session}"
                    f" with {_shown(record.value)} at {record.offset}"
                )


def _is_fenced(evidence: Evidence, ownership: OwnershipRecord, record: Record, sent: Sent) -> bool:
    """Whether the policy wanted a record after an ownership's begin to be its session's."""
    policy = evidence.policies.constant(sent.topic, sent.sent_at, record.at, _ownership)
    if policy is None or not policy[0] or ownership.when < evidence.policies.since(sent.topic, record.at, _ownership):
        return False
    return policy[0] != SHARED or not _is_free(evidence, ownership, record)


def strange_writers(evidence: Evidence) -> Iterator[str]:
    """Whatever was sent to a governed topic was stamped by a writer slot."""
    known = evidence.known
    for (topic, partition), records in evidence.logs.items():
        for record in records:
            sent = known.get((topic, partition, record.value))
            if record.producer_id in evidence.writers or sent is None:
                continue
            if evidence.policies.constant(topic, sent.sent_at, record.at, _is_governed):
                where = f"{topic}/{partition} at {record.offset}"
                yield f"{_shown(record.value)} in {where} is stamped {record.producer_id}"


def generations(evidence: Evidence) -> Iterator[str]:
    """A generation never falls and never has two owners, in the ownership topic and in the answers that clients got."""
    newest: dict[tuple[str, str], OwnershipRecord] = {}
    for ownership in evidence.ownerships:
        key = ownership.topic, ownership.slot
        before = newest.get(key)
        if ownership.released and before is not None and ownership.generation == before.generation:
            continue
        if before is not None and ownership.generation < before.generation:
            yield f"the generation of {key} fell from {before.generation} to {ownership.generation}"
        elif before is not None and ownership.generation == before.generation and ownership.session != before.session:
            yield f"generation {ownership.generation} of {key} belongs to {before.session} and to {ownership.session}"
        newest[key] = ownership
    owners: dict[tuple[str, int], str] = {}
    for told in evidence.ledger.told:
        if told.owner == NOBODY:
            continue
        other = owners.setdefault((told.resource, told.generation), told.owner)
        if other != told.owner:
            yield f"answers differ: generation {told.generation} of {told.resource} is {other} and {told.owner}"


def claims_fall(evidence: Evidence) -> Iterator[str]:
    """A claim's generation never falls while somebody has it, and stays with one session."""
    owners: dict[str, Claimed] = {}
    for claim in evidence.claims:
        before = owners.pop(claim.resource, None)
        if not claim.session:
            continue
        owners[claim.resource] = claim
        from_zero = claim.generation == 1 and claim.resource in evidence.zeroed
        if before is None or from_zero:
            continue
        if claim.generation < before.generation:
            yield f"the generation of {claim.resource} fell from {before.generation} to {claim.generation}"
        elif claim.generation == before.generation and claim.session != before.session:
            yield f"generation {claim.generation} of {claim.resource} is {before.session}, then {claim.session}"


def granted_otherwise(evidence: Evidence) -> Iterator[str]:
    """Each granted claim is in the ownership topic."""
    written = {(each.resource, each.generation, each.session) for each in evidence.claims}
    for told in evidence.ledger.granted:
        if (told.resource, told.generation, told.session) not in written:
            yield f"generation {told.generation} of {told.resource} was granted to {told.session}, not by the log"


def tokens_fall(evidence: Evidence) -> Iterator[str]:
    """Fencing tokens rise with the order of the claims in the ownership topic, and one claim has one. A request that
    comes again on another connection may be another claim: that of the first one ended with its connection.
    """
    given: dict[tuple[str, bytes, str], set[int]] = defaultdict(set)
    for told in evidence.ledger.granted:
        if told.fencing_token:
            given[told.resource, told.token, told.session].add(told.fencing_token)
    highest = 0
    for claim in evidence.claims:
        tokens = given.pop((claim.resource, claim.token, claim.session), None)
        if tokens is None:
            continue
        if len(tokens) > 1 or min(tokens) <= highest:
            yield f"the claim of {claim.session} to {claim.resource} has the tokens {sorted(tokens)} after {highest}"
        highest = max(tokens)


def too_credulous(evidence: Evidence) -> Iterator[str]:
    """What the fence depends on is checked, not believed."""
    yield from evidence.believed


def held_up(evidence: Evidence) -> Iterator[str]:
    """No client's bytes hold a node's loop."""
    yield from evidence.held


def comes_again(evidence: Evidence) -> Iterator[str]:
    """Behind the offset at which a topic began to have sequence ids none comes that stands in front of it."""
    names = evidence.known
    for (topic, partition), since in evidence.since.items():
        seen: dict[tuple[str, int], int] = {}
        for record in evidence.logs.get((topic, partition), ()):
            sent = names.get((topic, partition, record.value))
            if sent is None or sent.sequence_id is None:
                continue
            key = sent.name, sent.sequence_id
            if record.offset >= since and key in seen:
                yield f"id {key[1]} of {key[0]} again in {topic}/{partition}: offsets {seen[key]} and {record.offset}"
            seen[key] = record.offset


def inside(evidence: Evidence) -> Iterator[str]:
    """What holds within the nodes at every moment."""
    yield from (f"within the nodes: {each}" for each in evidence.inside)


def read_otherwise(evidence: Evidence) -> Iterator[str]:
    """What consumers got is what the log has there; of a shadow, that of the topic for which it was created, not of
    another one that has or had its name.
    """
    values = {
        (topic, partition, record.offset): record.value
        for (topic, partition), records in evidence.logs.items()
        for record in records
    }
    present = {life.topic_id for life in evidence.lives if life.died == math.inf} | {b""}
    for read in evidence.ledger.read:
        there: list[bytes | None] = []
        fine = False
        for source in sorted(_read_from(evidence, read)):
            if source.topic_id in present:
                there.append(values.get((source.name, read.partition, read.offset)))
                fine = fine or read.value in evidence.torn.get((source.name, read.partition), ())
            else:
                there += evidence.former.get((source.topic_id, read.partition), {}).get(read.offset, ())
        if not fine and read.value not in there:
            where, it_is = f"{read.topic}/{read.partition} at {read.offset}", ", ".join(map(_shown, there)) or "nothing"
            yield f"{where} was read as {_shown(read.value)} at {read.at - evidence.began:.3f}, it is {it_is}"


def _read_from(evidence: Evidence, read: Read) -> set[Source]:
    """The topics that what was read may be of. A broker may show a deleted topic until it hears of that."""
    if read.topic in evidence.sources.spans:
        return evidence.sources.at(read.topic, read.at)
    name = evidence.shadows.get(read.topic, read.topic)
    lives = {Source(name, life.topic_id) for life in evidence.lives if life.name == name and life.born <= read.at}
    return lives or {Source(name)}


def moved_shadows(evidence: Evidence) -> Iterator[str]:
    """A shadow is one of the topic that it was created for, until it is deleted."""
    yield from evidence.sources.moved


def skipped(evidence: Evidence) -> Iterator[str]:
    """A consumer that has read some record has read all in front of it, but where Kafka lost what stood there: it may
    have read that, and goes on behind it; and but for what was cleaned away before it read on. A member of a group
    begins where it was told that the group stands.
    """
    runs = defaultdict[tuple[str, int, str, int], dict[int, float]](dict)
    for read in evidence.ledger.read:
        runs[read.topic, read.partition, read.reader, read.begin][read.offset] = read.at
    for (name, partition, reader, begin), seen in runs.items():
        if evidence.sources.has_changed(name):
            continue  # it goes on where it stood, in another log
        where = evidence.shadows.get(name, name), partition
        removed = evidence.removed.get(where, {})
        first, last = max(begin, evidence.gone_to.get(where, -1) + 1), max(seen)
        for record in evidence.logs.get(where, ()):
            if first <= record.offset < last and record.offset not in seen:
                read_on = min((offset, at) for offset, at in seen.items() if offset > record.offset)[1]
                if removed.get(record.offset, math.inf) <= read_on:
                    continue
                missed = f"{_shown(record.value)} at {record.offset}"
                yield f"{name}/{partition}: {missed} was never read by {reader or 'its reader'}, {last} was"


def resumed_elsewhere(evidence: Evidence) -> Iterator[str]:
    """A group stands where one of its members committed, but where an operator moved a shadow's cursors."""
    for told in evidence.ledger.resumed:
        place = told.group, told.topic, told.partition, told.offset
        if place not in evidence.ledger.committed and told.topic not in evidence.ledger.moved:
            where = f"{told.topic}/{told.partition} at {told.offset}"
            moment = f"{told.at - evidence.began:.3f}"
            yield f"{told.group} was told at {moment} to go on in {where}, which none of it committed"


def overruled(evidence: Evidence) -> Iterator[str]:
    """What an operator was told of a policy or shadow holds until somebody changes it, in every node and in the log."""
    yield from evidence.overruled


def broken_protocol(evidence: Evidence) -> Iterator[str]:
    """What clients found against the protocol, and callbacks that raised."""
    yield from evidence.ledger.broken
    yield from (f"unhandled: {each}" for each in evidence.crashes)


def stuck(evidence: Evidence) -> Iterator[str]:
    """Nothing waits for ever once nothing is wrong."""
    yield from (f"stuck although nothing is wrong: {each}" for each in evidence.stuck)


RULES: Final[tuple[Callable[[Evidence], Iterator[str]], ...]] = (
    lost, doubled, reordered, phantom, refused, not_written, wrong_offset, twice_counted, behind_the_fence,
    strange_writers, generations, claims_fall, granted_otherwise, tokens_fall, too_credulous, held_up, comes_again,
    inside, read_otherwise, moved_shadows, skipped, resumed_elsewhere, overruled, broken_protocol,
    stuck,
)  # fmt: skip


def _ids(evidence: Evidence) -> set[tuple[str, int, str, int | None]]:
    """Topic, partition, producer name and sequence id of what is, or was, in the logs."""
    return {
        (sent.topic, sent.partition, sent.name, sent.sequence_id)
        for sent in evidence.ledger.sent
        if sent.sequence_id is not None
        and (evidence.places(sent) or sent.value in evidence.torn.get((sent.topic, sent.partition), ()))
    }


def _former_ids(evidence: Evidence) -> set[tuple[str, int, str, int | None]]:
    """As `_ids`, of deleted topics."""
    return {
        (sent.topic, sent.partition, sent.name, sent.sequence_id)
        for sent in evidence.ledger.sent
        if sent.sequence_id is not None and evidence.is_gone(sent)
    }


def _is_passed(evidence: Evidence, sent: Sent) -> bool:
    """Whether the present topic had a higher id of its producer name when it was acknowledged."""
    lane = sent.topic, sent.partition, sent.name
    return sent.sequence_id is not None and any(
        (other.topic, other.partition, other.name) == lane
        and other.sequence_id is not None
        and other.sequence_id > sent.sequence_id
        and any(record.at <= sent.told_at for record in evidence.copies(other))
        for other in evidence.ledger.sent
    )


def _is_free(evidence: Evidence, ownership: OwnershipRecord, record: Record) -> bool:
    """Whether a record after the begin of an ownership was stamped under an epoch that was opened when its owner had
    let go.
    """
    opened = evidence.opened.get((record.producer_id, record.producer_epoch))
    said = [each for each in _words_on(evidence, ownership) if opened is not None and each.at <= opened]
    return bool(said) and said[-1].released


def _words_on(evidence: Evidence, ownership: OwnershipRecord) -> list[OwnershipRecord]:
    """The records of a topic's generation, in order, and those of later ones that are nobody's: an operator deposed the
    owner.
    """
    where, generation = (ownership.topic, ownership.slot), ownership.generation
    return [
        each
        for each in evidence.ownerships
        if (each.topic, each.slot) == where
        and (each.generation == generation or (each.generation > generation and not each.session))
    ]


_LAST_ID: Final = 1 << 40
"""What is sent to see that a session goes on has this id: it is no reason for what came before."""


def _given_up(
    evidence: Evidence, logged: set[tuple[str, int, str, int | None]]
) -> set[tuple[str, int, str, int | None]]:
    """As `_ids`, of what was reported to an application as failed. One that goes on with higher ids all the same, which
    are in the log, has what it sends again later taken for a duplicate: ids of a name rise in the log.
    """
    highest: dict[tuple[str, int, str], int] = {}
    for topic, partition, name, found in logged:
        if found is not None and found < _LAST_ID:
            highest[topic, partition, name] = max(found, highest.get((topic, partition, name), -1))
    return {
        (sent.topic, sent.partition, sent.name, sent.sequence_id)
        for sent in evidence.ledger.sent
        if sent.sequence_id is not None
        and sent.delivered is False
        and sent.sequence_id < highest.get((sent.topic, sent.partition, sent.name), -1)
    }


def _spans(evidence: Evidence) -> dict[tuple[str, int], list[tuple[int, OwnershipRecord]]]:
    """Where each generation begins in each partition, in order."""
    found = defaultdict[tuple[str, int], list[tuple[int, OwnershipRecord]]](list)
    for ownership in evidence.ownerships:
        if not ownership.released and not ownership.former:
            for partition, offset in ownership.start:
                spans = found[ownership.topic, partition]
                if not spans or spans[-1][1].generation != ownership.generation:
                    spans.append((offset, ownership))
    return found
