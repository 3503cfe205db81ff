"""What the HTTP side needs of a node: its calls, the facts they return, and the four ways they can fail.

The node implements `NodePort`; tests do too. Names are checked before a call is made: what arrives here is a legal
Kafka topic name, or `PREFIX*` where a method says so, and never an internal topic (`__…`) in a method that changes
something.

It lies beside the node and not in `sidecar.admin`, as a node may not import what is above it; for the same reason the
node is given the HTTP side as an `AdminFactory`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from sidecar.node.shadow_port import ShadowPort, ShadowStats
    from sidecar.settings import Settings
    from sidecar.settings.told import Shown
    from sidecar.telemetry.hooks import NodeMetrics


class AccessMode(StrEnum):
    """Who may write to a topic (PIP-68)."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"
    WAIT_FOR_EXCLUSIVE = "wait_for_exclusive"
    EXCLUSIVE_WITH_FENCING = "exclusive_with_fencing"


class Scope(StrEnum):
    """What one owner owns."""

    TOPIC = "topic"
    PARTITION = "partition"


class IdsState(StrEnum):
    """What a node knows of the sequence ids of a topic."""

    OFF = "off"
    """No deduplication."""
    IDLE = "idle"
    """Nobody serves the topic: they are read when somebody writes or asks."""
    READING = "reading"
    READY = "ready"
    LOST = "lost"
    """They cannot be known: no batch is taken."""
    ELSEWHERE = "elsewhere"
    """Another node serves the topic, and knows."""


class NodeState(StrEnum):
    """Where a node is in its life."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is decided for a topic; None: not decided here.

    In a change: leave that field as it is. In a topic: the effective value, so that None stands only in the policy of
    a prefix.
    `log_append_time` True: the topic's `message.timestamp.type` is LogAppendTime.
    """

    access_mode: AccessMode | None = None
    deduplication: bool | None = None
    exclusive_reader: bool | None = None
    scope: Scope | None = None
    log_append_time: bool | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a topic, or one partition of it.

    `session` is `pid:N` or `conn:ID`; `since_ms` Unix milliseconds; `client` the address and software of its connection
    as far as known, empty where it is not connected to this node; `generation` that of this ownership.
    """

    name: str
    session: str
    mode: AccessMode
    since_ms: int
    client: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A session in a topic's queue, or in that of one of its partitions. `since_ms`: Unix milliseconds."""

    name: str
    session: str
    since_ms: int
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer name with sequence ids: the highest persisted id per partition.

    `last_sequence_id` is their minimum over all partitions of the topic, -1 where one has none.
    """

    name: str
    last_sequence_id: int
    last_sequence_ids: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ProducerIds(Producer):
    """All that is known of a producer name: `offsets` of the records with those ids (None: not known), when a record
    of it came last (`last_seen_ms`, Unix ms), whether a connected session writes under it.
    """

    offsets: Mapping[int, int | None]
    last_seen_ms: Mapping[int, int]
    in_use: bool


@dataclass(frozen=True, slots=True)
class Topic:
    """Everything REST says of a topic, or of a prefix (`payments.*`: no partitions, no owner).

    `policy` None: not governed. `generation` 0: never owned. `owners`: None unless the scope is partition, then the
    owners by partition (`owner` is None). `deduplication` None: a prefix, or no such topic yet; `deduplication_detail`
    says how far the reading has come, or what is lost.
    """

    name: str
    partitions: int
    policy: Policy | None = None
    generation: int = 0
    owner: Owner | None = None
    owners: Mapping[int, Owner] | None = None
    waiting: Sequence[Waiting] = ()
    producers: Sequence[Producer] = ()
    shadows: Sequence[str] = ()
    serving_node: int | None = None
    deduplication: IdsState | None = None
    deduplication_detail: str | None = None
    generations: Mapping[int, int] | None = None
    """By partition, of those that anybody ever owned; None unless the scope is partition."""
    shadow_stats: Mapping[str, ShadowStats] | None = None
    """By shadow; None where it was not asked for."""


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """Topics with deduplication that a node serves, by what it knows of their sequence ids."""

    ready: int = 0
    reading: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Peer:
    """A live node, or a broker: its id and the address it is reached at."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Check:
    """One finding about the node's own health. `detail` says what is wrong and, if it can, what helps.

    A failed check that is not `required` is reported and leaves the node ready.
    """

    name: str
    ok: bool
    detail: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class Status:
    """A node and what it sees. `started_ms`: Unix milliseconds; `kafka_cluster_id` None: never reached."""

    node_id: int
    cluster: str
    state: NodeState
    started_ms: int
    advertise: tuple[str, int]
    kafka_cluster_id: str | None
    nodes: Sequence[Peer]
    brokers: Sequence[Peer]
    client_connections: int
    governed_topics: int
    checks: Sequence[Check] = field(default=())
    deduplication: Deduplicated = Deduplicated()


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """A client's connection to this node. `client_id` as it was sent and the `name` in it, "" before its first request,
    both cut where they are absurdly long; `mode` what the client.id asks for; `software` its name and version as far as
    told (KIP-511); `since_ms` Unix ms. `requests` were taken up, `in_flight` of them have no answer yet; bytes are
    those of whole frames.
    """

    node_id: int
    client_id: str
    name: str
    mode: AccessMode | None
    software: tuple[str | None, str | None]
    address: str
    since_ms: int
    requests: int
    bytes_in: int
    bytes_out: int
    in_flight: int


class EventKind(StrEnum):
    """What happened."""

    CLAIMED = "claimed"
    DEPOSED = "deposed"
    RELEASED = "released"
    FAILOVER = "failover"
    SHADOW = "shadow"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history. `position` is where it stands, `id` tells it from a repetition; times are Unix ms."""

    position: int
    id: str
    kind: EventKind
    at_ms: int
    topic: str
    generation: int = 0
    session: str = ""
    name: str = ""
    mode: AccessMode | None = None
    client: str = ""
    node_id: int = -1
    detail: str = ""
    partition: int | None = None
    """Of a topic whose partitions have owners of their own."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """What a change is made under alone: the topic's generation, or that of a partition, is one of these. None: it need
    only exist.
    """

    generations: frozenset[int] | None
    partition: int | None = None


class PortError(Exception):
    """A call that failed for a reason the caller is told. The message is meant for people."""


class NotFoundError(PortError):
    """No such topic, it has no policy to delete, or nobody wrote there under a name."""


class ConflictError(PortError):
    """Not in this state: nothing to fence or release, no deduplication, a name in use, or the topic has changed
    meanwhile.
    """


class GenerationError(PortError):
    """The generation is none of those that a change was to be made under. Nothing was done."""

    @classmethod
    def of(cls, name: str, current: int) -> GenerationError:
        """`current`: what it is."""
        return cls(f"the generation of {name} is {current} now; nothing was done")


class UnavailableError(PortError):
    """Kafka or Redis is away, or a takeover is under way: worth another try."""

    @classmethod
    def unsettled(cls, error: Exception, look: str) -> UnavailableError:
        """A change that failed on its way to Kafka, and may still have arrived there. `look`: a command that tells."""
        return cls(f"{error}. It may have been done anyway: check with `{look}`")


class NothingDoneError(UnavailableError):
    """The topic moves between nodes: nothing was begun, so it may be asked for again at once, here or there."""


class ElsewhereError(NothingDoneError):
    """Another node serves the topic; `admin` is where its HTTP side listens (host:port), None where this node cannot
    reach it.
    """

    def __init__(self, message: str, admin: str | None) -> None:
        super().__init__(message)
        self.admin = admin


class InvalidError(PortError):
    """A legal value that this topic or this node cannot take."""


class NodePort(Protocol):
    """The node as the HTTP side sees it. All methods may raise `UnavailableError`."""

    async def checks(self) -> Sequence[Check]:
        """Readiness as known now; at least `kafka`, `redis` and `changelog`. Quick: no round trip of its own."""
        ...

    async def status(self) -> Status:
        """The node and what it sees now."""
        ...

    async def clients(self, after: int, most: int) -> tuple[Sequence[ClientFacts], int | None]:
        """The clients connected to this node, oldest first: `most` of them behind the place `after` (0: the beginning),
        and the place to go on behind, None at the end.
        """
        ...

    def settings(self) -> Sequence[Shown]:
        """What this node was told, secrets masked."""
        ...

    async def catch_up(self) -> None:
        """Returns once this node knows what any node acknowledged before. Whoever is told of owners, of who serves a
        topic, or of sequence ids waits for that first.
        """
        ...

    async def topic_names(self, *, governed: bool) -> Sequence[str]:
        """All topics that clients see and all prefixes with a policy, sorted.

        With `governed` only topics that are governed, by whatever policy, and the prefixes.
        """
        ...

    async def topics(self, names: Sequence[str], *, producers: bool = False) -> Sequence[Topic]:
        """These topics and prefixes in this order; those that do not exist are left out.

        With `producers` the newest names, of topics that this node serves and whose sequence ids it knows, and the
        numbers of shadows.
        """
        ...

    def events(self, after: int | None, newest: int = 0, topic: str | None = None) -> AsyncGenerator[Event | None]:
        """What happens, with one topic or at all, from now on, with the `newest` so many of before, or behind a
        position, for ever.

        None at first, unless it is refused, and every second while nothing happens.
        """
        ...

    async def merge_policy(self, name: str, change: Policy, match: IfMatch | None = None) -> Topic:
        """Set the fields of `change` that are not None; returns when the policy is in force.

        An empty change governs the topic with the defaults. `name` may be a prefix. Raises NotFoundError, InvalidError,
        ConflictError, GenerationError where `match` does not hold at the moment of the change.
        """
        ...

    async def delete_policy(self, name: str, match: IfMatch | None = None) -> None:
        """Forget the topic's or prefix's own policy. Raises NotFoundError where it has none, GenerationError."""
        ...

    async def fence(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> Topic:
        """Depose the owner for ever. `partition`: of a topic with scope partition.

        Raises NotFoundError, ConflictError without an owner, InvalidError where `partition` does not fit the scope,
        GenerationError where the generation is none of `generations` at the moment of the change, NothingDoneError
        while the topic moves between nodes.
        """
        ...

    async def release(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> Topic:
        """Clear the owner; its session may claim again. Raises as `fence`."""
        ...

    def check_serving(self, name: str) -> None:
        """Raises ElsewhereError where another live node serves the topic. Quick: no round trip."""
        ...

    async def producers(
        self, name: str, most: int, behind: tuple[int, bytes] | None = None
    ) -> tuple[Sequence[Producer], tuple[int, bytes] | None]:
        """The `most` producer names that wrote to a topic last, newest first, of those behind a place (Unix seconds of
        the last record, name); and the place to go on behind, None at the end.

        Takes a topic over that nobody serves. Raises NotFoundError without such a topic, ConflictError without
        deduplication, ElsewhereError, UnavailableError while the sequence ids are being read.
        """
        ...

    async def producer(self, name: str, producer: str) -> ProducerIds:
        """What is known of one name. Raises as `producers`, and NotFoundError for a name that is not known."""
        ...

    async def forget_producer(self, name: str, producer: str) -> None:
        """Forget a name and its sequence ids for good. Raises as `producer`, and ConflictError while it is in use."""
        ...

    @property
    def shadows(self) -> ShadowPort:
        """What is asked about shadow topics."""
        ...


class AdminService(Protocol):
    """The HTTP side as the node sees it."""

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""
        ...

    async def stop(self) -> None:
        """Close; calls under way get a moment to end. Repeating it is harmless."""
        ...

    def take(self, settings: Settings) -> None:
        """From now on these hold, as far as they may change while it runs."""
        ...


AdminFactory = Callable[[NodePort, "NodeMetrics", "Settings"], AdminService]
"""How the node is given its HTTP side: `sidecar.admin.server.AdminServer` is one."""
