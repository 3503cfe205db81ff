"""What a node answers its HTTP side with: facts, values only, and the ways in which a call can fail.

The calls are in `sidecar.node.node_port`. All this lies beside the node and not in `sidecar.admin`, as a node may not
import what is above it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from metadata.ownership import AccessMode
from sidecar.exclusive.policies import PolicyFields as Policy
from sidecar.exclusive.policies import Scope  # noqa: F401 - of a policy, which is the same on both sides
from sidecar.gateway.refusals import Refusal  # noqa: F401 - as the gateway keeps it
from sidecar.protocol.calls import NewTopic  # noqa: F401 - as Kafka is asked for it

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.node.shadow_port import ShadowStats


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
    policies: Mapping[str, Policy] | None = None
    """The policies that cover it, by topic or prefix, each with its own fields; None where it was not asked for."""


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
class ListenerFacts:
    """One listener for Kafka clients: where it listens, what address clients get (both host:port), its protocol."""

    name: str
    listen: str
    advertise: str
    security_protocol: str

    def __str__(self) -> str:
        return f"{self.name}://{self.listen} as {self.advertise}, {self.security_protocol}"


@dataclass(frozen=True, slots=True)
class Status:
    """A node and what it sees. `started_ms`: Unix milliseconds; `kafka_cluster_id` None: never reached.

    `advertise` and the addresses of `nodes` are those of the first listener.
    """

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
    listeners: Sequence[ListenerFacts] = ()


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """A client's connection to this node. `client_id` as it was sent and the `name` in it, "" before its first request,
    both cut where they are absurdly long; `mode` what the client.id asks for; `software` its name and version as far as
    named (KIP-511); `principal` as ACLs name it, None before its login, cut likewise; `listener`: the name of that
    through which it came; `since_ms` Unix ms. `requests` were taken up, `in_flight` of them have no answer yet; bytes
    are those of whole frames.
    """

    node_id: int
    client_id: str
    name: str
    mode: AccessMode | None
    software: tuple[str | None, str | None]
    principal: str | None
    listener: str
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
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CursorMove:
    """A cursor that was moved in one partition: the offsets before and after."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class CursorReset:
    """A group's cursor that more than `limit` records lay behind, moved to the end in some partitions."""

    group: str
    limit: int
    partitions: Mapping[int, CursorMove]


@dataclass(frozen=True, slots=True)
class EventDetails:
    """What an event says besides, for programs; None: nothing of that. `by`, `deposed`: a name or a session. `closed`:
    why a shadow cannot be read any more, empty where it can again.
    """

    by: str | None = None
    deposed: str | None = None
    reason: str | None = None
    deleted: bool | None = None
    policy: Policy | None = None
    source: str | None = None
    allow: tuple[str, ...] | None = None
    auto_reset_backlog_entries: int | None = None
    closed: str | None = None
    reset: CursorReset | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history. `position` is where it stands, a repetition has the same `id`; times are Unix ms."""

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
    """Of a topic whose partitions have their own owners."""
    details: EventDetails | None = None
    """What `detail` says, for programs; None where that is nothing, or an earlier version wrote it."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """What a change is made under alone: the topic's generation, or that of a partition, is one of these. None: it need
    only exist.
    """

    generations: frozenset[int] | None
    partition: int | None = None


# Failures ----------------------------------------------------------------------------------------------------------


class PortError(Exception):
    """A call that failed for a reason that the caller sees. The message is meant for people."""


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
        """A change that failed on its way to Kafka, and may still have arrived there. `look`: a command that shows
        it.
        """
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
