"""The client that a producer id belongs to: no other one writes, claims or releases under it.

A session is its producer id, a small number that Kafka gives to all clients in turn, and that others can see or guess.
A client has one principal and uses one client.id for the life of a producer, on all its connections. So a session is
bound to both, the `Caller` (the client.id is bare, without settings), by the first of these that is known:

1. the records of the topic (`Serving`, `Slot` and the sessions that left): every node reads them, a restart keeps them;
2. InitProducerId, if it passed through this node: Kafka gave the id to that client, and to no other;
3. the first batch under it on this node, for each topic.

The second and third are bounded. A forgotten session is bound again by the next client that uses it. A claim by
request may name the producer id of another client as long as nobody has written under it. While its connection is open,
no other client may claim for that producer id, except the one that Kafka gave it to; no other principal may while it
owns a free string or a reader claim (`ClaimTable.is_anothers`). Where clients do not authenticate,
all have one principal, and a client with the client.id of another passes for it: docs/reference/guarantees.md says what
follows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from sidecar.changelog import MASTER_SLOT, Key, SlotName, View
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership.state import Claimant
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.session import Caller, Session
from sidecar.takeover.records import callers

_GIVEN_KEPT: Final = 20_000
_FIRST_KEPT: Final = 20_000
_CLAIMED_KEPT: Final = 1_000
"""The number of sessions that one connection may have claimed for; older ones are forgotten."""
_NOBODY: Final[Mapping[str, Caller]] = {}

KeyT = TypeVar("KeyT")

NOT_YOURS: Final = "this producer id belongs to another client.id or principal: create a new producer"
FOREIGN: Final = Outcome(ErrorCode.POLICY_VIOLATION, message=NOT_YOURS)


class Bindings:
    """The bindings of sessions to clients, for all topics of a node."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._given: OrderedDict[str, Caller] = OrderedDict()
        self._first: OrderedDict[tuple[str, str], Caller] = OrderedDict()
        self._claimed: dict[str, tuple[int, Caller]] = {}
        self._claims: dict[int, OrderedDict[str, None]] = {}
        self._recorded: dict[str, _Recorded] = {}
        self._topics: dict[str, set[_Recorded]] = {}
        self._unread: dict[str, dict[SlotName, None]] = {}
        """By topic, the slots whose newest record was not read yet."""

    # What happens -----------------------------------------------------------------------------------------------------

    def given(self, producer_id: int, caller: Caller) -> None:
        """Note that Kafka gave a producer id to a client of this node."""
        _keep(self._given, Session.by_producer_id(producer_id), caller, _GIVEN_KEPT)

    def admitted(self, topic: str, claimant: Claimant) -> Claimant | None:
        """The claimant, without a `succeeds` that is not its own; None if its session belongs to another client. By a
        batch, an unknown session is bound to the claimant's client. A claim by request does not bind: it may be for
        another client's producer that has not written yet.
        """
        found = self.look(topic, claimant)
        caller = None if claimant.names_session else claimant.caller
        if found is not None and caller is not None and self.written(topic, claimant.session) != caller:
            self.first(topic, claimant.session, caller)
        return found

    def first(self, topic: str, session: Session, caller: Caller) -> None:
        """Bind a session to a client on a topic, unless something else is known of it."""
        if session.is_idempotent:
            _keep(self._first, (topic, session), caller, _FIRST_KEPT)

    def claimed(self, session: Session, caller: Caller, connection: int) -> None:
        """Remember a claim by request that `check_claim` allowed; the newest one counts."""
        if not session.is_idempotent:
            return
        if session in self._claimed:
            del self._claims[self._claimed[session][0]][session]
        self._claimed[session] = connection, caller
        its = self._claims.setdefault(connection, OrderedDict())
        its[session] = None
        if len(its) > _CLAIMED_KEPT:
            del self._claimed[its.popitem(last=False)[0]]

    def claim_refused(self, session: Session, connection: int) -> None:
        """Forget a claim that was refused: the session belongs to another client."""
        if session in self._claims.get(connection, ()):
            del self._claims[connection][session], self._claimed[session]

    def connection_closed(self, connection: int) -> None:
        """Forget the claims of a closed connection."""
        for session in self._claims.pop(connection, ()):
            del self._claimed[session]

    def changed(self, key: Key) -> None:
        """Note that a slot's record has changed or is deleted. It is read at the next request for the topic."""
        self._unread.setdefault(key.topic, {})[key.slot or MASTER_SLOT] = None
        if not self._view.opened(key.topic):  # the topic is deleted, and may never be requested again
            self._read(key.topic)

    def forget(self, topic: str) -> None:
        """Forget the records of a deleted topic."""
        self._read(topic)

    # What it means ----------------------------------------------------------------------------------------------------

    def look(self, topic: str, claimant: Claimant) -> Claimant | None:
        """As `admitted`; remembers nothing."""
        bound = self.written(topic, claimant.session) if claimant.names_session else self.bound(topic, claimant.session)
        if not may_be(bound, claimant.caller):
            return None
        if claimant.succeeds is not None and not may_be(self.bound(topic, claimant.succeeds), claimant.caller):
            return replace(claimant, succeeds=None)
        return claimant

    def bound(self, topic: str, session: Session) -> Caller | None:
        """The client that a session belongs to on a topic; None if it is not known."""
        if not session.is_idempotent:
            return None
        return self._by_records(topic, session) or self._given.get(session) or self._first.get((topic, session))

    def written(self, topic: str, session: Session) -> Caller | None:
        """As `bound`, but only by what the session wrote: this is what a takeover stores."""
        if not session.is_idempotent:
            return None
        return self._by_records(topic, session) or self._first.get((topic, session))

    def writer_of(self, topic: str, claimant: Claimant) -> Caller | None:
        """The client that writes after a takeover for a claimant, for the record. None if it is not known yet: a
        request claimed for a producer id that Kafka gave to another client, or to this one through another node.
        """
        if claimant.session.is_plain:
            return claimant.caller
        written, given = self.written(topic, claimant.session), self._given.get(claimant.session)
        return given if written is None and given == claimant.caller else written

    def check_claim(self, session: Session, caller: Caller) -> KafkaError | None:
        """As `check`, for a claim by request. The client that Kafka gave the producer id to may always claim for it;
        another one only while nobody else has written under it or claimed for it.
        """
        known = set[Caller]() if self.was_given(session, caller) else self._anywhere(session)
        return _refusal(known, caller)

    def was_given(self, session: Session, caller: Caller) -> bool:
        """Whether Kafka gave the producer id to this client through this node."""
        return self._given.get(session) == caller

    def check(self, session: Session, caller: Caller) -> KafkaError | None:
        """The error if a client may not name a session, independent of a topic: it belongs to another client. If
        InitProducerId passed through this node, only that counts. Otherwise the id is refused if only other clients
        used it, even wrongly, on some topic.
        """
        given = self._given.get(session)
        return _refusal({given} if given is not None else self._anywhere(session), caller)

    def _anywhere(self, session: Session) -> set[Caller]:
        for topic in list(self._unread):
            self._read(topic)
        found = {recorded.caller(session) for recorded in self._topics.get(session, ())}
        if session in self._claimed:
            found.add(self._claimed[session][1])
        return {caller for caller in found if caller is not None}

    def _by_records(self, topic: str, session: Session) -> Caller | None:
        """The client by the newest record of any slot."""
        recorded = self._read(topic)
        return None if recorded is None else recorded.caller(session)

    def _read(self, topic: str) -> _Recorded | None:
        recorded, unread = self._recorded.get(topic), self._unread.pop(topic, None)
        if unread is None:
            return recorded
        opened = self._view.opened(topic)
        if not opened:
            if recorded is not None:
                recorded.clear()  # slots may be deleted without a notice so far
                del self._recorded[topic]
            return None
        if recorded is None:
            recorded = self._recorded[topic] = _Recorded(self._topics)
        for slot in unread:
            entry = opened.get(slot)
            recorded.note(slot, *((-1, _NOBODY) if entry is None else (entry.offset, callers(entry.value))))
        return recorded


class _Recorded:
    """The clients of sessions by a topic's records. Each record is parsed only once: a topic may have thousands of
    slots, and every batch of a session that may not write needs this.
    """

    __slots__ = ("_found", "_said", "_slots", "_topics")

    def __init__(self, topics: dict[str, set[_Recorded]]) -> None:
        """`topics`: by session, the objects whose records name it."""
        self._topics = topics
        self._said: dict[SlotName, tuple[int, Mapping[str, Caller]]] = {}
        self._slots: dict[str, set[SlotName]] = {}
        self._found: dict[str, Caller] = {}

    def note(self, slot: SlotName, offset: int, said: Mapping[str, Caller]) -> None:
        """Store the clients of sessions by a slot's record at an offset."""
        _, before = self._said.get(slot, (-1, _NOBODY))
        for session in before.keys() - said.keys():
            slots = self._slots[session]
            slots.remove(slot)
            if not slots:
                del self._slots[session]
                self._topics[session].remove(self)
                if not self._topics[session]:
                    del self._topics[session]
        for session in said.keys() - before.keys():
            self._slots.setdefault(session, set()).add(slot)
            self._topics.setdefault(session, set()).add(self)
        self._said[slot] = offset, said
        if self._found:
            self._found = {}

    def clear(self) -> None:
        """Remove everything: the topic has no records any more."""
        for slot in self._said:
            self.note(slot, -1, _NOBODY)

    def caller(self, session: Session) -> Caller | None:
        """The client of a session, by the newest record that has it."""
        found = self._found.get(session)
        if found is None and (slots := self._slots.get(session)) is not None:
            _, said = max((self._said[slot] for slot in slots), key=_by_offset)
            found = self._found[session] = said[session]
        return found


def _by_offset(said: tuple[int, Mapping[str, Caller]]) -> int:
    return said[0]


def _keep(kept: OrderedDict[KeyT, Caller], key: KeyT, caller: Caller, most: int) -> None:
    kept[key] = caller
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def may_be(bound: Caller | None, caller: Caller | None) -> bool:
    """Whether a session that is `bound` to a client may be this client's; None: unknown."""
    return bound is None or caller is None or bound == caller


def _refusal(known: set[Caller], caller: Caller) -> KafkaError | None:
    """The error for a client, if a session is known to belong to others only."""
    if not known or caller in known:
        return None
    return KafkaError(ErrorCode.POLICY_VIOLATION, NOT_YOURS)
