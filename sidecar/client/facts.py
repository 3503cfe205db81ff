"""The results of `AdminClient`: a node's answers over HTTP, as frozen dataclasses.

Names are those of the REST interface (`/openapi.json` of a node describes each). Times are `datetime` in UTC, lists are
tuples, partitions are int keys. States, modes and kinds of events are strings, not enums: a newer node may know more.
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
    """A health check of a node; if a `required` one is not `ok`, the node is not ready."""

    name: str
    ok: bool
    required: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Requests of one client that a node refused, `count` times: Kafka's `error_code`, its name, and the newest
    `reason`. `topic` is "" if no topic is concerned, as for an invalid client.id; `address` has no port.
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
    """How many topics have deduplication, by what the node knows of their sequence ids. `crowded`: near the limit of
    names; `unprotected`: compaction may take ids; an older node returns neither.
    """

    ready: int
    reading: int
    lost: int
    crowded: int = 0
    unprotected: int = 0


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener of a node for Kafka clients: the address at which it listens, and the address that it advertises, both
    host:port.
    """

    name: str
    listen: str
    advertise: str
    security_protocol: str


@dataclass(frozen=True, slots=True)
class Status:
    """A node, and the nodes and brokers that it sees. `state`: starting, serving or draining. `advertise` and the
    addresses of `nodes` belong to the first of `listeners`.
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
    """Empty from a node of an older version, which has one listener only."""


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client's connection to a node. `client_id` is as the client sent it, cut if it is very long; `name` and `mode`
    are taken from it. `address` is host:port. `in_flight`: the number of `requests` without an answer yet; bytes count
    whole frames. `principal` has the form of Kafka's ACLs, and is None before the login. `listener` is the name of the
    listener. A node of an older version returns None and "" for these two.
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
    """A setting of a node, such as SIDECAR_LISTEN; a secret's `value` is masked. `origin`: default, environment, flag,
    or the path of the file. `reloadable`: the node reads a new value from its file on SIGHUP.
    """

    setting: str
    value: str
    origin: str
    reloadable: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of a topic or a prefix. A field that is None is not set there.

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
    """Statistics of a shadow. `readers` (connections in the last 30 s), `bytes` and `cursor_resets` count what the
    answering node did since it started. `groups` and lags, in records, are the cluster's; None if not known.
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
    partition) `owners` has them and `owner` is None. `producers` are the newest names, if the answering node serves
    the topic. `deduplication_state`: off, idle, reading, ready, lost or elsewhere; None for a prefix. `warnings`: only
    after a change of the policy, what is weaker, or may not work, on the topics that it covers; None: nothing.
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
    """By name of the shadow; only from `AdminClient.topic`."""
    policies: Mapping[str, Policy] | None = None
    """The policies that cover it, by topic or prefix; only from `AdminClient.topic`."""
    warnings: tuple[str, ...] | None = None
    """After a change of the policy: what is weaker, or may not work, on the topics that it covers; None: nothing."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """A read-only view of `source`. `allow`: the principals that may read it. A cursor that lags by more than
    `auto_reset_backlog_entries` records is reset to the end; 0: never. `state`: making, open or closed; `reason`: why
    it is closed and what to do; `warning`: why nobody can read it now. Only `AdminClient.shadow` returns `stats`.
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
    """The log of one partition: its leader's broker id (-1: none now), its first offset, the offset after its last one
    (high watermark), and its size on the leader in bytes (None if the broker does not report it).
    """

    partition: int
    leader: int
    start: int
    end: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class CutBytes:
    """The beginning of some bytes: as `text` if they are UTF-8 without control characters, else as `hex`. `size` counts
    all of the bytes; `cut`: whether some are left out.
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
    """A record of the log, cut. `producer_name` is from its header; None: the session's name. On governed topics
    `producer_id` and `producer_epoch` are those of the node that wrote it. `generation` is the present ownership's if
    that one wrote the record, else None.
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
    """A group's committed offset in a partition, the partition's end, and the number of offsets between them."""

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
    """The reset of a group's cursor that lagged by more than `limit` records: moved to the end in these partitions."""

    group: str
    limit: int
    partitions: Mapping[int, CursorMove]


@dataclass(frozen=True, slots=True)
class EventDetails:
    """Details of an event; None: the event has no such detail. `by` and `deposed` are names or sessions: the new owner
    and the former one; for a policy `by` describes who changed it. `deleted`: a policy or a shadow was deleted.
    `policy`, and a shadow's `source`, `allow` and `auto_reset_backlog_entries`, are the new values. `closed`: why a
    shadow can no longer be read; empty if it can be read again.
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
    """One ownership event. `kind`: claimed, deposed, released, failover, shadow, policy or refused. The same event may
    be returned twice, with the same `id`. `events(after=position)` continues after its `position`. `detail` is for
    people, `details` the same for programs: None if there are none, or if a node of an earlier version wrote the event.
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
