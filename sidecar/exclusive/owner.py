"""The owner of one topic or partition, as this node knows it: the state that `ownership` describes, and its record.
Only this module assigns either.
"""

from metadata.ownership import Ownership
from sidecar.changelog import Entry
from sidecar.exclusive import ownership
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.ownership import Awaited, Held, Owned, is_held
from sidecar.exclusive.records import mode_of
from sidecar.exclusive.slots import SlotScope, generation_floor, is_outdated, owner_record
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as state


class TopicOwner:
    """The owner of one topic or partition: by the changelog, by Redis, and by what this node does itself.

    `record`: the changelog's newest record, at offset `position` in the ownership topic; None and -1 without one.
    """

    def __init__(self, scope: SlotScope, environment: Environment) -> None:
        self.record: state.Ownership | None = None
        self.position = -1
        self.listed: frozenset[str] = frozenset()
        """The sessions that the record lists as deposed."""
        self._scope = scope
        self._env = environment
        self.holder: Held | None = None
        """The owner, connected or not: the state that `ownership` describes."""
        self._floor = 0
        self.read()

    @property
    def current(self) -> Held | None:
        """The holder; None also if it is absent and its grace has ended."""
        return self.holder if is_held(self.holder, self._env.now()) else None

    @property
    def seconds_left(self) -> float | None:
        """See `ownership.seconds_left`."""
        return ownership.seconds_left(self.holder, self._env.now())

    @property
    def _alone_until(self) -> float | None:
        """Until when an owner keeps it after its last connection closed; None: it does not."""
        grace = self._env.disconnect_grace
        return self._env.now() + grace if grace > 0 else None

    @property
    def generation(self) -> int:
        """The generation; 0 before anybody owned it."""
        return max(self.record.generation if self.record is not None else 0, self._floor)

    @property
    def entry(self) -> Entry[state.Ownership] | None:
        """The newest record of the changelog, which may be another node's."""
        return self._env.changelog.view.ownership(self._scope.topic, self._scope.slot)

    def is_deposed(self, session: Session) -> bool:
        """Whether a record lists a session as deposed from this."""
        return session in self.listed or self._env.deposed.has(self._scope, session)

    def connected(self, connection: int, *, writes: bool = False) -> None:
        """Add a connection of the owner. `writes`: a batch on it was admitted."""
        self.holder = ownership.connected(self.holder, connection, writes=writes)

    def disconnected(self, connection: int) -> None:
        """Remove a closed connection."""
        self.holder = ownership.disconnected(self.holder, connection, self._alone_until)

    def taken_over(self, owner: Owned | None) -> None:
        """Set the owner after a committed takeover; None: nobody."""
        self.holder = ownership.taken_over(self.holder, owner, self._alone_until)

    def freed(self) -> None:
        """Remove the owner: it was released, or sessions write beside each other."""
        self.holder = None

    def note(self, record: state.Ownership, position: int) -> None:
        """Set the changelog's newest record, and its offset."""
        self.record, self.position = record, position
        self.listed = frozenset(deposed.session for deposed in record.deposed)

    def read(self) -> None:
        """Read the owner from the changelog, after a start or a lost epoch. It may come back within the grace."""
        entry = self.entry
        self._floor = generation_floor(self._env.changelog.view, self._scope)
        self.holder = None if entry is None else self._named(entry)

    def _named(self, entry: Entry[state.Ownership]) -> Awaited | None:
        """The owner that a record names, if it may come back."""
        value = entry.value
        self.note(value, entry.offset)
        if value.released_ms or not value.session or is_outdated(self._env.changelog.view, self._scope, entry):
            return None
        session = Session(value.session)
        until = self._env.now() + (0.0 if session.is_plain else self._env.reconnect_grace)
        mode = mode_of(value.mode)
        return Awaited(session, value.name, mode, value.generation, until=until, recorded=self._as_in_redis(entry))

    def moved_away(self) -> None:
        """Another node serves it now; if that node dies, the owner may come back here within the grace."""
        self.holder = ownership.moved_away(self.holder, self._env.now() + self._env.reconnect_grace)

    def learn(self, owner: Ownership | None) -> bool:
        """Note a holder that Redis knows and this node did not: it may come back, as after a start. False if the
        node knew a holder already, or Redis has none.
        """
        if owner is None or owner.session is None or self.current is not None:
            return False
        until = self._env.now() + self._env.reconnect_grace
        session = Session(owner.session)
        self.holder = Awaited(session, owner.name, owner.mode, owner.generation, until=until, recorded=owner)
        return True

    def in_redis(self) -> list[Ownership]:
        """The ownership that the serving node reports to Redis with every heartbeat."""
        entry = self.entry
        return [] if entry is None else [self._as_in_redis(entry)]

    def _as_in_redis(self, entry: Entry[state.Ownership]) -> Ownership:
        return owner_record(self._scope.resource, entry.value, entry.offset, entry.writer, self._env.services.node_id)
