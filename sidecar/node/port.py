"""The values that a node returns to its HTTP side, and the errors of the calls.

The calls are `sidecar.node.view`. All this lies beside the node and not in `sidecar.admin`, as a node may not
import what is above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from metadata.ownership import AccessMode
from sidecar.cluster.logs import LastRecord
from sidecar.cluster.nodes import NodeAddress
from sidecar.gateway.owners import OwnerAnswer, Waiter
from sidecar.gateway.refusals import Refusal  # noqa: F401 - as the gateway keeps it
from sidecar.gateway.sequence_ids import State
from sidecar.policy.policies import PolicyFields as Policy
from sidecar.policy.policies import Scope  # noqa: F401 - of a policy, which is the same on both sides
from sidecar.protocol.calls.admin import NewTopic  # noqa: F401 - as Kafka is asked for it
from sidecar.protocol.metadata import Broker
from sidecar.shadow import catalog
from sidecar.shadow.cursor_room import Numbers


class NodeState(StrEnum):
    """The phase of a node's life."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


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
    """All that is known of a producer name: `offsets` of the records with those ids (None: not known), `last_seen_ms`
    of its last record by partition (Unix ms), `in_use`: whether a connected session writes under it.
    """

    offsets: Mapping[int, int | None]
    last_seen_ms: Mapping[int, int]
    in_use: bool


@dataclass(frozen=True, slots=True)
class Topic:
    """Everything that REST returns of a topic, or of a prefix (`payments.*`: no partitions, no owner).

    `policy` None: not governed. `generation` 0: never owned. `owners`: None unless the scope is partition, then the
    owners by partition (`owner` is None). `deduplication` None: a prefix, or no such topic yet; `deduplication_detail`
    says how far the reading has come, or what is lost.
    """

    name: str
    partitions: int
    policy: Policy | None = None
    generation: int = 0
    owner: OwnerAnswer | None = None
    owners: Mapping[int, OwnerAnswer] | None = None
    waiting: Sequence[Waiter] = ()
    producers: Sequence[Producer] = ()
    shadows: Sequence[str] = ()
    serving_node: int | None = None
    deduplication: State | None = None
    deduplication_detail: str | None = None
    generations: Mapping[int, int] | None = None
    """The generations of all partitions that ever had an owner; None unless the scope is partition."""
    shadow_stats: Mapping[str, Numbers] | None = None
    """The numbers of each shadow; None if not requested."""
    policies: Mapping[str, Policy] | None = None
    """The policies that cover it, by topic or prefix, each with its own fields; None if not requested."""
    warnings: Sequence[str] = ()
    """After a change of the policy: what is weaker, or may not work, on the topics that it covers."""


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """The numbers of topics with deduplication that a node serves, by the state of their sequence ids. `crowded`: with
    a partition that remembers nearly as many producer names as it may. `unprotected`: compaction may take ids too soon.
    """

    ready: int = 0
    reading: int = 0
    lost: int = 0
    crowded: int = 0
    unprotected: int = 0


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
    """A node and its view of the cluster. `started_ms`: Unix milliseconds; `kafka_cluster_id` None: never reached.

    `advertise` and the addresses of `nodes` are those of the first listener.
    """

    node_id: int
    cluster: str
    state: NodeState
    started_ms: int
    advertise: tuple[str, int]
    kafka_cluster_id: str | None
    nodes: Sequence[NodeAddress]
    brokers: Sequence[Broker]
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


class ShadowState(StrEnum):
    """Whether a shadow can be read."""

    MAKING = "making"
    OPEN = "open"
    CLOSED = "closed"
    """Its source was deleted, or its source's name now belongs to another topic."""


@dataclass(frozen=True, slots=True)
class Shadow(catalog.Shadow):
    """A read-only name over a source topic's log. `warning`: why nobody can read it, if so."""

    warning: str | None = None

    @property
    def state(self) -> ShadowState:
        """Whether it can be read; `closed` says why not, and what to do."""
        if not self.is_made:
            return ShadowState.MAKING
        return ShadowState.CLOSED if self.closed else ShadowState.OPEN


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The log of one partition: its leader's broker id, its first offset, the next one after its last (high watermark),
    and its size on the leader in bytes, None if the broker does not return it.
    """

    partition: int
    leader: int
    start: int
    end: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record, and the generation of the ownership under which it was written: None if that is not the present
    ownership, or if this node does not know it.
    """

    record: LastRecord
    generation: int | None


@dataclass(frozen=True, slots=True)
class IfMatch:
    """The condition of a change: the generation of the topic, or of a partition, is one of `generations`. None: the
    topic or policy only has to exist.
    """

    generations: frozenset[int] | None
    partition: int | None = None


# Failures ----------------------------------------------------------------------------------------------------------


class PortError(Exception):
    """A call failed for a reason that is reported to the caller. The message is for people."""


class NotFoundError(PortError):
    """There is no such topic, no policy to delete, or no such producer name in the topic."""


class ConflictError(PortError):
    """The present state does not allow the call: nothing to fence or release, no deduplication, a name in use, or a
    topic that has changed meanwhile.
    """


class GenerationError(PortError):
    """The generation is none of those that the change requires. Nothing was done."""

    @classmethod
    def of(cls, name: str, current: int) -> GenerationError:
        """Make the error from the topic's name and its `current` generation."""
        return cls(f"the generation of {name} is {current} now; nothing was done")


class UnavailableError(PortError):
    """Kafka or Redis does not answer, or a takeover is under way; another attempt may succeed."""

    @classmethod
    def unsettled(cls, error: Exception, look: str) -> UnavailableError:
        """Make the error of a change that failed, but may still have been done. `look`: a command that shows it."""
        return cls(f"{error}. It may have been done anyway: check with `{look}`")


class NothingDoneError(UnavailableError):
    """The topic moves between nodes: nothing was begun, so the call may be repeated at once, on either node."""


class ElsewhereError(NothingDoneError):
    """Another node serves the topic; `admin` is the address of its HTTP side (host:port), None if that is not known to
    be another address than this node's.
    """

    def __init__(self, message: str, admin: str | None) -> None:
        super().__init__(message)
        self.admin = admin


class InvalidError(PortError):
    """A legal value that is not possible for this topic or this node."""
