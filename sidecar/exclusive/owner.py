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
    """Whose one topic or partition is: by the changelog, by Redis, and by what this node does itself.

    `record` is what the changelog says, at `position` in the ownership topic; None and -1 where it says nothing.
    """

    def __init__(self, scope: SlotScope, environment: Environment) -> None:
        self.record: state.Ownership | None = None
        self.position = -1
        self.listed: frozenset[str] = frozenset()
        """The sessions that the record lists as deposed."""
        self._scope = scope
        self._env = environment
        self.holder: Held | None = None
        """Who owns it, present or not: the state that `ownership` describes."""
        self._floor = 0
        self.read()

    @property
    def current(self) -> Held | None:
        """The holder, unless it is only awaited and its time is over."""
        return self.holder if is_held(self.holder, self._env.now()) else None

    @property
    def seconds_left(self) -> float | None:
        """See `ownership.seconds_left`."""
        return ownership.seconds_left(self.holder, self._env.now())

    @property
    def _alone_until(self) -> float | None:
        """How long an owner keeps it after its last connection ended; None: not at all."""
        grace = self._env.disconnect_grace
        return self._env.now() + grace if grace > 0 else None

    @property
    def generation(self) -> int:
        """0 before anybody owned it."""
        return max(self.record.generation if self.record is not None else 0, self._floor)

    @property
    def entry(self) -> Entry[state.Ownership] | None:
        """The newest record of the changelog, which may be another node's."""
        return self._env.changelog.view.ownership(self._scope.topic, self._scope.slot)

    def is_deposed(self, session: Session) -> bool:
        """Whether a record says that a session lost this for ever."""
        return session in self.listed or self._env.deposed.has(self._scope, session)

    def connected(self, connection: int, *, writes: bool = False) -> None:
        """A connection speaks for the owner. `writes`: its own batch was admitted."""
        self.holder = ownership.connected(self.holder, connection, writes=writes)

    def disconnected(self, connection: int) -> None:
        """A connection is gone."""
        self.holder = ownership.disconnected(self.holder, connection, self._alone_until)

    def taken_over(self, owner: Owned | None) -> None:
        """A takeover was committed for this owner, or for nobody."""
        self.holder = ownership.taken_over(self.holder, owner, self._alone_until)

    def freed(self) -> None:
        """The owner was let go of, or others write beside each other."""
        self.holder = None

    def note(self, record: state.Ownership, position: int) -> None:
        """What the changelog says now."""
        self.record, self.position = record, position
        self.listed = frozenset(deposed.session for deposed in record.deposed)

    def read(self) -> None:
        """Take over what the changelog says, after a start or a loss. An owner that is still held may come back."""
        entry = self.entry
        self._floor = generation_floor(self._env.changelog.view, self._scope)
        self.holder = None if entry is None else self._named(entry)

    def _named(self, entry: Entry[state.Ownership]) -> Awaited | None:
        """The owner that a record names, which may come back."""
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
        """Redis knows a holder that this node did not: it may come back, as after a start. False where this is no
        news.
        """
        if owner is None or owner.session is None or self.current is not None:
            return False
        until = self._env.now() + self._env.reconnect_grace
        session = Session(owner.session)
        self.holder = Awaited(session, owner.name, owner.mode, owner.generation, until=until, recorded=owner)
        return True

    def in_redis(self) -> list[Ownership]:
        """What a node that serves it asserts to Redis with every heartbeat."""
        entry = self.entry
        return [] if entry is None else [self._as_in_redis(entry)]

    def _as_in_redis(self, entry: Entry[state.Ownership]) -> Ownership:
        return owner_record(self._scope.resource, entry.value, entry.offset, entry.writer, self._env.services.node_id)
