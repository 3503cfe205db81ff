"""What a node answers over HTTP, as frozen dataclasses: the results of `AdminClient`.

Names are those of the REST interface (`/openapi.json` of a node describes each). Times are `datetime` in UTC, lists are
tuples, partitions are int keys. Strings that stand for one of a few words (states, modes, kinds of events) stay
strings: a newer node may know more of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Peer:
    """A node or a broker, and where it listens."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a node looks at; where it is `required` and not `ok` the node is not ready."""

    name: str
    ok: bool
    required: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a node refused a client of its, `count` times: Kafka's `error_code`, its name, and the newest `reason`.
    `topic` is "" where it is of none, as with a client.id that cannot be; `address` has no port.
    """

    client_id: str
    address: str
    topic: str
    error_code: int
    error: str
    reason: str
    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Counted:
    """How many topics have deduplication, by what the node knows of their sequence ids."""

    ready: int
    reading: int
    lost: int


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener of a node for Kafka clients: where it listens, and the address that its clients are given, both
    host:port.
    """

    name: str
    listen: str
    advertise: str
    security_protocol: str


@dataclass(frozen=True, slots=True)
class Status:
    """A node and what it sees. `state`: starting, serving or draining. `advertise` and the addresses of `nodes` are of
    the first of `listeners`.
    """

    version: str
    node_id: int
    cluster: str
    state: str
    ready: bool
    started: datetime
    advertise: str
    kafka_cluster_id: str | None
    nodes: tuple[Peer, ...]
    brokers: tuple[Peer, ...]
    client_connections: int
    governed_topics: int
    deduplication: Counted
    checks: tuple[Check, ...]
    listeners: tuple[Listener, ...] = ()
    """Empty from a node that knows of one only."""


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client's connection to a node. `client_id` as it was sent, cut where it is very long, and the `name` and `mode`
    in it; `address` is host:port. `in_flight` of its `requests` have no answer yet; bytes are those of whole frames.
    `principal` as Kafka's ACLs name it, None before its login, and `listener`, the name of that through which it came,
    are None and "" from a node of an older version.
    """

    node_id: int
    client_id: str
    name: str
    mode: str | None
    software_name: str | None
    software_version: str | None
    address: str
    since: datetime
    requests: int
    bytes_in: int
    bytes_out: int
    in_flight: int
    principal: str | None = None
    listener: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a node, as SIDECAR_LISTEN; a secret's `value` is masked. `origin`: default, environment, flag, or
    the path of the file. `reloadable`: the node takes another value from its file on SIGHUP.
    """

    setting: str
    value: str
    origin: str
    reloadable: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """What is decided for a topic; None in the policy of a prefix: not decided there.

    `access_mode`: shared, exclusive, wait_for_exclusive or exclusive_with_fencing; `scope`: topic or partition;
    `log_append_time`: the topic's message.timestamp.type is LogAppendTime.
    """

    access_mode: str | None = None
    deduplication: bool | None = None
    exclusive_reader: bool | None = None
    scope: str | None = None
    log_append_time: bool | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a topic: `session` is `pid:N` or `conn:ID`, `client` its address and software as far as known."""

    name: str
    session: str
    mode: str
    since: datetime
    client: str


@dataclass(frozen=True, slots=True)
class PartitionOwner(Owner):
    """Who owns one partition, and under which generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A session that waits for a topic, or for one partition of it, since when."""

    name: str
    session: str
    since: datetime
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """A producer name with its highest sequence ids in the log, by partition. `last_sequence_id`: the least of them
    over all partitions, -1 where one has none.
    """

    name: str
    last_sequence_id: int
    last_sequence_ids: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ProducerState(ProducerIds):
    """All that is known of a producer name: the offsets of the records with its highest ids (None: not known), when it
    wrote last, and whether a connected session writes under it.
    """

    offsets: Mapping[int, int | None]
    last_seen: Mapping[int, datetime]
    in_use: bool


@dataclass(frozen=True, slots=True)
class ShadowStats:
    """A shadow in numbers: `readers` (connections in the last 30 s), `bytes` and `cursor_resets` of the node that was
    asked since it started; `groups` and lags, in records, of the cluster, None where they are not known.
    """

    readers: int
    bytes: int
    last_read: datetime | None
    cursor_resets: int
    groups: int | None
    total_lag: int | None
    max_lag: int | None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, or a prefix (`payments.*`) that has a policy.

    `generation` rises with each owner, 0: never owned. Where each partition has its own owner (`policy.scope` is
    partition) they stand in `owners` and `owner` is None. `producers` are the newest names, where the node that was
    asked serves the topic. `deduplication_state`: off, idle, reading, ready, lost or elsewhere; None of a prefix.
    """

    topic: str
    policy: Policy | None
    generation: int
    owner: Owner | None
    waiting: tuple[Waiting, ...]
    producers: tuple[ProducerIds, ...]
    shadows: tuple[str, ...]
    serving_node: int | None
    partitions: int
    deduplication_state: str | None = None
    deduplication_detail: str | None = None
    owners: Mapping[int, PartitionOwner] | None = None
    shadow_stats: Mapping[str, ShadowStats] | None = field(default=None, metadata={"name": "shadowReplication"})
    """By name of the shadow; only where one topic was asked for."""
    policies: Mapping[str, Policy] | None = None
    """The policies that cover it, by topic or prefix; only where one topic was asked for."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """A read-only view of `source`. `allow`: the principals that may read it. A cursor that more than
    `auto_reset_backlog_entries` records lie behind is reset to the end, 0: never. `state`: making, open or closed;
    `reason`: why it is closed and what to do; `warning`: why nobody can read it now. `stats` only where one shadow was
    asked for.
    """

    name: str
    source: str
    allow: tuple[str, ...]
    created: datetime
    is_made: bool
    auto_reset_backlog_entries: int
    state: str
    reason: str | None
    warning: str | None
    stats: ShadowStats | None = None


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The log of one partition: its leader's broker id (-1: none now), its first offset, the one after its last (high
    watermark), its size on the leader in bytes, None where the broker does not say.
    """

    partition: int
    leader: int
    start: int
    end: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class CutBytes:
    """The beginning of some bytes: `text` where they are UTF-8 without control characters, else `hex`; `size` of all of
    them, and whether some are left out.
    """

    size: int
    cut: bool
    text: str | None = None
    hex: str | None = None


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """One header of a record."""

    name: str
    value: CutBytes | None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record as it lies in the log, cut. `producer_name` as its header says it, None: that of the session;
    `producer_id` and `producer_epoch` of governed topics are the writing node's. `generation` of the ownership where it
    is the one that stands now, else None.
    """

    partition: int
    offset: int
    timestamp: datetime | None
    key: CutBytes | None
    value: CutBytes | None
    headers: tuple[RecordHeader, ...]
    sequence_id: int | None
    producer_name: str | None
    producer_id: int | None
    producer_epoch: int | None
    generation: int | None


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """Where a group stands in a partition, where that ends, and how many offsets are between."""

    offset: int
    end: int
    lag: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a group has committed for a topic or a shadow. `state` and `members` are those of Kafka's consumer group."""

    group: str
    state: str
    members: int
    lag: int
    partitions: Mapping[int, CursorPosition]


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
    """What an event says besides; None: nothing of that. `by` and `deposed` are names or sessions: who owns the topic
    since, who owned it before; of a policy `by` says in words who changed it. `deleted`: a policy or a shadow.
    `policy`, and of a shadow `source`, `allow` and `auto_reset_backlog_entries`, as they are since. `closed`: why a
    shadow cannot be read any more, empty where it can again.
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
    """One line of history. `kind`: claimed, deposed, released, failover, shadow, policy or refused. The same event may
    come twice, with the same `id`. `position` is where it stands: `events(after=position)` goes on after it. `detail`
    is for people, `details` the same for programs: None where that is nothing, or a node of an earlier version wrote
    it.
    """

    id: str
    at: datetime
    kind: str
    topic: str
    partition: int | None
    generation: int
    session: str
    name: str
    mode: str | None
    client: str
    node: int
    detail: str
    details: EventDetails | None = None
    position: int = -1
