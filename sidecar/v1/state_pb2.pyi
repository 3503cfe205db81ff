from sidecar.v1 import control_pb2 as _control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Scope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCOPE_UNSPECIFIED: _ClassVar[Scope]
    SCOPE_TOPIC: _ClassVar[Scope]
    SCOPE_PARTITION: _ClassVar[Scope]
SCOPE_UNSPECIFIED: Scope
SCOPE_TOPIC: Scope
SCOPE_PARTITION: Scope

class Positions(_message.Message):
    __slots__ = ("partition", "client_epoch", "sequence")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    partition: _containers.RepeatedScalarFieldContainer[int]
    client_epoch: _containers.RepeatedScalarFieldContainer[int]
    sequence: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition: _Optional[_Iterable[int]] = ..., client_epoch: _Optional[_Iterable[int]] = ..., sequence: _Optional[_Iterable[int]] = ...) -> None: ...

class Offsets(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: _containers.RepeatedScalarFieldContainer[int]
    offset: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition: _Optional[_Iterable[int]] = ..., offset: _Optional[_Iterable[int]] = ...) -> None: ...

class Deposed(_message.Message):
    __slots__ = ("session", "name", "generation", "last_try_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LAST_TRY_MS_FIELD_NUMBER: _ClassVar[int]
    session: str
    name: str
    generation: int
    last_try_ms: int
    def __init__(self, session: _Optional[str] = ..., name: _Optional[str] = ..., generation: _Optional[int] = ..., last_try_ms: _Optional[int] = ...) -> None: ...

class Ownership(_message.Message):
    __slots__ = ("topic_id", "generation", "session", "name", "mode", "since_ms", "start", "deposed", "released_ms", "client")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DEPOSED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    generation: int
    session: str
    name: str
    mode: _control_pb2.AccessMode
    since_ms: int
    start: Offsets
    deposed: _containers.RepeatedCompositeFieldContainer[Deposed]
    released_ms: int
    client: str
    def __init__(self, topic_id: _Optional[bytes] = ..., generation: _Optional[int] = ..., session: _Optional[str] = ..., name: _Optional[str] = ..., mode: _Optional[_Union[_control_pb2.AccessMode, str]] = ..., since_ms: _Optional[int] = ..., start: _Optional[_Union[Offsets, _Mapping]] = ..., deposed: _Optional[_Iterable[_Union[Deposed, _Mapping]]] = ..., released_ms: _Optional[int] = ..., client: _Optional[str] = ...) -> None: ...

class RefusedSpans(_message.Message):
    __slots__ = ("partition", "client_epoch", "first", "behind")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    partition: int
    client_epoch: int
    first: _containers.RepeatedScalarFieldContainer[int]
    behind: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition: _Optional[int] = ..., client_epoch: _Optional[int] = ..., first: _Optional[_Iterable[int]] = ..., behind: _Optional[_Iterable[int]] = ...) -> None: ...

class LeftSession(_message.Message):
    __slots__ = ("session", "name", "left_ms", "next", "refused", "opened_at", "client_id", "own", "under", "principal")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    UNDER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    session: str
    name: str
    left_ms: int
    next: Positions
    refused: _containers.RepeatedCompositeFieldContainer[RefusedSpans]
    opened_at: int
    client_id: str
    own: Positions
    under: int
    principal: str
    def __init__(self, session: _Optional[str] = ..., name: _Optional[str] = ..., left_ms: _Optional[int] = ..., next: _Optional[_Union[Positions, _Mapping]] = ..., refused: _Optional[_Iterable[_Union[RefusedSpans, _Mapping]]] = ..., opened_at: _Optional[int] = ..., client_id: _Optional[str] = ..., own: _Optional[_Union[Positions, _Mapping]] = ..., under: _Optional[int] = ..., principal: _Optional[str] = ...) -> None: ...

class Serving(_message.Message):
    __slots__ = ("topic_id", "node", "producer_id", "producer_epoch", "session", "name", "generation", "base", "left", "retired_producer_ids", "since_ms", "refused", "former", "ids_from", "client_id", "begins", "own", "under", "principal", "fencing_base")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RETIRED_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    IDS_FROM_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    UNDER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    FENCING_BASE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    node: int
    producer_id: int
    producer_epoch: int
    session: str
    name: str
    generation: int
    base: Positions
    left: _containers.RepeatedCompositeFieldContainer[LeftSession]
    retired_producer_ids: _containers.RepeatedScalarFieldContainer[int]
    since_ms: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedSpans]
    former: _containers.RepeatedCompositeFieldContainer[FormerWriter]
    ids_from: Offsets
    client_id: str
    begins: Offsets
    own: Positions
    under: int
    principal: str
    fencing_base: int
    def __init__(self, topic_id: _Optional[bytes] = ..., node: _Optional[int] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., session: _Optional[str] = ..., name: _Optional[str] = ..., generation: _Optional[int] = ..., base: _Optional[_Union[Positions, _Mapping]] = ..., left: _Optional[_Iterable[_Union[LeftSession, _Mapping]]] = ..., retired_producer_ids: _Optional[_Iterable[int]] = ..., since_ms: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedSpans, _Mapping]]] = ..., former: _Optional[_Iterable[_Union[FormerWriter, _Mapping]]] = ..., ids_from: _Optional[_Union[Offsets, _Mapping]] = ..., client_id: _Optional[str] = ..., begins: _Optional[_Union[Offsets, _Mapping]] = ..., own: _Optional[_Union[Positions, _Mapping]] = ..., under: _Optional[int] = ..., principal: _Optional[str] = ..., fencing_base: _Optional[int] = ...) -> None: ...

class FormerWriter(_message.Message):
    __slots__ = ("producer_id", "last_epoch", "name", "forgotten")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    last_epoch: int
    name: str
    forgotten: bool
    def __init__(self, producer_id: _Optional[int] = ..., last_epoch: _Optional[int] = ..., name: _Optional[str] = ..., forgotten: _Optional[bool] = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("topic_id", "node", "producer_id", "producer_epoch", "session", "name", "base", "retired_producer_ids", "since_ms", "left", "refused", "former", "client_id", "begins", "own", "under", "principal")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    RETIRED_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    UNDER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    node: int
    producer_id: int
    producer_epoch: int
    session: str
    name: str
    base: Positions
    retired_producer_ids: _containers.RepeatedScalarFieldContainer[int]
    since_ms: int
    left: _containers.RepeatedCompositeFieldContainer[LeftSession]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedSpans]
    former: _containers.RepeatedCompositeFieldContainer[FormerWriter]
    client_id: str
    begins: Offsets
    own: Positions
    under: int
    principal: str
    def __init__(self, topic_id: _Optional[bytes] = ..., node: _Optional[int] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., session: _Optional[str] = ..., name: _Optional[str] = ..., base: _Optional[_Union[Positions, _Mapping]] = ..., retired_producer_ids: _Optional[_Iterable[int]] = ..., since_ms: _Optional[int] = ..., left: _Optional[_Iterable[_Union[LeftSession, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[RefusedSpans, _Mapping]]] = ..., former: _Optional[_Iterable[_Union[FormerWriter, _Mapping]]] = ..., client_id: _Optional[str] = ..., begins: _Optional[_Union[Offsets, _Mapping]] = ..., own: _Optional[_Union[Positions, _Mapping]] = ..., under: _Optional[int] = ..., principal: _Optional[str] = ...) -> None: ...

class Tail(_message.Message):
    __slots__ = ("topic_id", "producer_id", "producer_epoch", "last_sequence", "offset", "last", "at_ms", "claim")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    producer_id: int
    producer_epoch: int
    last_sequence: int
    offset: int
    last: _containers.RepeatedCompositeFieldContainer[TailBatch]
    at_ms: int
    claim: TailClaim
    def __init__(self, topic_id: _Optional[bytes] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., offset: _Optional[int] = ..., last: _Optional[_Iterable[_Union[TailBatch, _Mapping]]] = ..., at_ms: _Optional[int] = ..., claim: _Optional[_Union[TailClaim, _Mapping]] = ...) -> None: ...

class TailClaim(_message.Message):
    __slots__ = ("last_sequence", "offset", "leader_epoch")
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    last_sequence: int
    offset: int
    leader_epoch: int
    def __init__(self, last_sequence: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class TailBatch(_message.Message):
    __slots__ = ("first_sequence", "last_sequence", "base_offset")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    last_sequence: int
    base_offset: int
    def __init__(self, first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., base_offset: _Optional[int] = ...) -> None: ...

class SequenceBase(_message.Message):
    __slots__ = ("topic_id", "producer_id", "producer_epoch", "session", "client_epoch", "from_sequence", "base", "base_before")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    BASE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    producer_id: int
    producer_epoch: int
    session: str
    client_epoch: int
    from_sequence: int
    base: int
    base_before: int
    def __init__(self, topic_id: _Optional[bytes] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., session: _Optional[str] = ..., client_epoch: _Optional[int] = ..., from_sequence: _Optional[int] = ..., base: _Optional[int] = ..., base_before: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("topic_id", "covered", "number", "chunk", "chunks", "name", "id", "offset", "seen_s", "at_ms", "position", "rebuilt")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEEN_S_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REBUILT_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    covered: int
    number: int
    chunk: int
    chunks: int
    name: _containers.RepeatedScalarFieldContainer[bytes]
    id: _containers.RepeatedScalarFieldContainer[int]
    offset: _containers.RepeatedScalarFieldContainer[int]
    seen_s: _containers.RepeatedScalarFieldContainer[int]
    at_ms: int
    position: int
    rebuilt: bool
    def __init__(self, topic_id: _Optional[bytes] = ..., covered: _Optional[int] = ..., number: _Optional[int] = ..., chunk: _Optional[int] = ..., chunks: _Optional[int] = ..., name: _Optional[_Iterable[bytes]] = ..., id: _Optional[_Iterable[int]] = ..., offset: _Optional[_Iterable[int]] = ..., seen_s: _Optional[_Iterable[int]] = ..., at_ms: _Optional[int] = ..., position: _Optional[int] = ..., rebuilt: _Optional[bool] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("group", "resource", "generation", "session", "name", "mode", "since_ms", "token", "client", "deposed", "principal")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    DEPOSED_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    group: str
    resource: _control_pb2.Resource
    generation: int
    session: str
    name: str
    mode: _control_pb2.AccessMode
    since_ms: int
    token: bytes
    client: str
    deposed: _containers.RepeatedScalarFieldContainer[str]
    principal: str
    def __init__(self, group: _Optional[str] = ..., resource: _Optional[_Union[_control_pb2.Resource, _Mapping]] = ..., generation: _Optional[int] = ..., session: _Optional[str] = ..., name: _Optional[str] = ..., mode: _Optional[_Union[_control_pb2.AccessMode, str]] = ..., since_ms: _Optional[int] = ..., token: _Optional[bytes] = ..., client: _Optional[str] = ..., deposed: _Optional[_Iterable[str]] = ..., principal: _Optional[str] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("access_mode", "deduplication", "exclusive_reader", "scope", "log_append_time", "version", "at_ms", "by_client")
    ACCESS_MODE_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_READER_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LOG_APPEND_TIME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BY_CLIENT_FIELD_NUMBER: _ClassVar[int]
    access_mode: _control_pb2.AccessMode
    deduplication: bool
    exclusive_reader: bool
    scope: Scope
    log_append_time: bool
    version: int
    at_ms: int
    by_client: bool
    def __init__(self, access_mode: _Optional[_Union[_control_pb2.AccessMode, str]] = ..., deduplication: _Optional[bool] = ..., exclusive_reader: _Optional[bool] = ..., scope: _Optional[_Union[Scope, str]] = ..., log_append_time: _Optional[bool] = ..., version: _Optional[int] = ..., at_ms: _Optional[int] = ..., by_client: _Optional[bool] = ...) -> None: ...

class Shadow(_message.Message):
    __slots__ = ("source", "source_topic_id", "topic_id", "created_ms", "allow", "auto_reset_backlog_entries", "closed")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    AUTO_RESET_BACKLOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_topic_id: bytes
    topic_id: bytes
    created_ms: int
    allow: _containers.RepeatedScalarFieldContainer[str]
    auto_reset_backlog_entries: int
    closed: str
    def __init__(self, source: _Optional[str] = ..., source_topic_id: _Optional[bytes] = ..., topic_id: _Optional[bytes] = ..., created_ms: _Optional[int] = ..., allow: _Optional[_Iterable[str]] = ..., auto_reset_backlog_entries: _Optional[int] = ..., closed: _Optional[str] = ...) -> None: ...

class Redis(_message.Message):
    __slots__ = ("id", "node", "address", "insists", "at_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INSISTS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    node: int
    address: str
    insists: bool
    at_ms: int
    def __init__(self, id: _Optional[str] = ..., node: _Optional[int] = ..., address: _Optional[str] = ..., insists: _Optional[bool] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CursorReset(_message.Message):
    __slots__ = ("group", "limit", "partition", "from_offset", "to_offset")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    group: str
    limit: int
    partition: _containers.RepeatedScalarFieldContainer[int]
    from_offset: _containers.RepeatedScalarFieldContainer[int]
    to_offset: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., limit: _Optional[int] = ..., partition: _Optional[_Iterable[int]] = ..., from_offset: _Optional[_Iterable[int]] = ..., to_offset: _Optional[_Iterable[int]] = ...) -> None: ...

class EventDetails(_message.Message):
    __slots__ = ("by", "deposed", "deleted", "shadow", "long_allow", "closed", "reset", "reason")
    BY_FIELD_NUMBER: _ClassVar[int]
    DEPOSED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    LONG_ALLOW_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    by: str
    deposed: str
    deleted: bool
    shadow: Shadow
    long_allow: bool
    closed: str
    reset: CursorReset
    reason: str
    def __init__(self, by: _Optional[str] = ..., deposed: _Optional[str] = ..., deleted: _Optional[bool] = ..., shadow: _Optional[_Union[Shadow, _Mapping]] = ..., long_allow: _Optional[bool] = ..., closed: _Optional[str] = ..., reset: _Optional[_Union[CursorReset, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "kind", "at_ms", "topic", "partition", "generation", "session", "name", "mode", "client", "node", "producer_id", "producer_epoch", "start", "detail", "details", "client_id")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Event.Kind]
        CLAIMED: _ClassVar[Event.Kind]
        DEPOSED: _ClassVar[Event.Kind]
        RELEASED: _ClassVar[Event.Kind]
        FAILOVER: _ClassVar[Event.Kind]
        SHADOW: _ClassVar[Event.Kind]
        POLICY: _ClassVar[Event.Kind]
        REFUSED: _ClassVar[Event.Kind]
    KIND_UNSPECIFIED: Event.Kind
    CLAIMED: Event.Kind
    DEPOSED: Event.Kind
    RELEASED: Event.Kind
    FAILOVER: Event.Kind
    SHADOW: Event.Kind
    POLICY: Event.Kind
    REFUSED: Event.Kind
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    kind: Event.Kind
    at_ms: int
    topic: str
    partition: int
    generation: int
    session: str
    name: str
    mode: _control_pb2.AccessMode
    client: str
    node: int
    producer_id: int
    producer_epoch: int
    start: Offsets
    detail: str
    details: EventDetails
    client_id: str
    def __init__(self, id: _Optional[bytes] = ..., kind: _Optional[_Union[Event.Kind, str]] = ..., at_ms: _Optional[int] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., generation: _Optional[int] = ..., session: _Optional[str] = ..., name: _Optional[str] = ..., mode: _Optional[_Union[_control_pb2.AccessMode, str]] = ..., client: _Optional[str] = ..., node: _Optional[int] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., start: _Optional[_Union[Offsets, _Mapping]] = ..., detail: _Optional[str] = ..., details: _Optional[_Union[EventDetails, _Mapping]] = ..., client_id: _Optional[str] = ...) -> None: ...
