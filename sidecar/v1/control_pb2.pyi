from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AccessMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_MODE_UNSPECIFIED: _ClassVar[AccessMode]
    SHARED: _ClassVar[AccessMode]
    EXCLUSIVE: _ClassVar[AccessMode]
    WAIT_FOR_EXCLUSIVE: _ClassVar[AccessMode]
    EXCLUSIVE_WITH_FENCING: _ClassVar[AccessMode]

class Error(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[Error]
    INVALID_REQUEST: _ClassVar[Error]
    NOT_SERVING: _ClassVar[Error]
    UNAVAILABLE: _ClassVar[Error]
    HELD: _ClassVar[Error]
    LOWER_GENERATION: _ClassVar[Error]
    DEPOSED: _ClassVar[Error]
    UNKNOWN_RESOURCE: _ClassVar[Error]
    NOT_AUTHORIZED: _ClassVar[Error]
    TIMED_OUT: _ClassVar[Error]
    QUEUE_FULL: _ClassVar[Error]
ACCESS_MODE_UNSPECIFIED: AccessMode
SHARED: AccessMode
EXCLUSIVE: AccessMode
WAIT_FOR_EXCLUSIVE: AccessMode
EXCLUSIVE_WITH_FENCING: AccessMode
NONE: Error
INVALID_REQUEST: Error
NOT_SERVING: Error
UNAVAILABLE: Error
HELD: Error
LOWER_GENERATION: Error
DEPOSED: Error
UNKNOWN_RESOURCE: Error
NOT_AUTHORIZED: Error
TIMED_OUT: Error
QUEUE_FULL: Error

class Resource(_message.Message):
    __slots__ = ("topic", "partition", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    name: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("resource", "generation")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    generation: int
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class OwnRequest(_message.Message):
    __slots__ = ("group", "claims", "mode", "producer_name", "token", "wait_ms", "producer_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    mode: AccessMode
    producer_name: str
    token: bytes
    wait_ms: int
    producer_id: int
    def __init__(self, group: _Optional[str] = ..., claims: _Optional[_Iterable[_Union[Claim, _Mapping]]] = ..., mode: _Optional[_Union[AccessMode, str]] = ..., producer_name: _Optional[str] = ..., token: _Optional[bytes] = ..., wait_ms: _Optional[int] = ..., producer_id: _Optional[int] = ...) -> None: ...

class Ownership(_message.Message):
    __slots__ = ("resource", "error", "message", "generation", "owner_name", "owner_session", "serving_node", "since_ms", "fencing_token")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OWNER_NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_SESSION_FIELD_NUMBER: _ClassVar[int]
    SERVING_NODE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    error: Error
    message: str
    generation: int
    owner_name: str
    owner_session: str
    serving_node: int
    since_ms: int
    fencing_token: int
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., error: _Optional[_Union[Error, str]] = ..., message: _Optional[str] = ..., generation: _Optional[int] = ..., owner_name: _Optional[str] = ..., owner_session: _Optional[str] = ..., serving_node: _Optional[int] = ..., since_ms: _Optional[int] = ..., fencing_token: _Optional[int] = ...) -> None: ...

class OwnResponse(_message.Message):
    __slots__ = ("error", "message", "ownerships", "producer_name")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIPS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    error: Error
    message: str
    ownerships: _containers.RepeatedCompositeFieldContainer[Ownership]
    producer_name: str
    def __init__(self, error: _Optional[_Union[Error, str]] = ..., message: _Optional[str] = ..., ownerships: _Optional[_Iterable[_Union[Ownership, _Mapping]]] = ..., producer_name: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("group", "resources", "token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    token: bytes
    def __init__(self, group: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., token: _Optional[bytes] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("error", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: Error
    message: str
    def __init__(self, error: _Optional[_Union[Error, str]] = ..., message: _Optional[str] = ...) -> None: ...

class DescribeOwnersRequest(_message.Message):
    __slots__ = ("group", "resources")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    group: str
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, group: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class DescribeOwnersResponse(_message.Message):
    __slots__ = ("error", "message", "ownerships", "waiting")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIPS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    error: Error
    message: str
    ownerships: _containers.RepeatedCompositeFieldContainer[Ownership]
    waiting: _containers.RepeatedCompositeFieldContainer[Waiting]
    def __init__(self, error: _Optional[_Union[Error, str]] = ..., message: _Optional[str] = ..., ownerships: _Optional[_Iterable[_Union[Ownership, _Mapping]]] = ..., waiting: _Optional[_Iterable[_Union[Waiting, _Mapping]]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("resource", "name", "session", "since_ms")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    name: str
    session: str
    since_ms: int
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., name: _Optional[str] = ..., session: _Optional[str] = ..., since_ms: _Optional[int] = ...) -> None: ...

class LastSequenceRequest(_message.Message):
    __slots__ = ("topic", "producer_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    producer_name: str
    def __init__(self, topic: _Optional[str] = ..., producer_name: _Optional[str] = ...) -> None: ...

class LastSequenceResponse(_message.Message):
    __slots__ = ("error", "message", "last_sequence_ids", "last_sequence_id")
    class LastSequenceIdsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    error: Error
    message: str
    last_sequence_ids: _containers.ScalarMap[int, int]
    last_sequence_id: int
    def __init__(self, error: _Optional[_Union[Error, str]] = ..., message: _Optional[str] = ..., last_sequence_ids: _Optional[_Mapping[int, int]] = ..., last_sequence_id: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("token", "wait_ms")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    wait_ms: int
    def __init__(self, token: _Optional[bytes] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("error", "message", "changed")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    error: Error
    message: str
    changed: _containers.RepeatedCompositeFieldContainer[Ownership]
    def __init__(self, error: _Optional[_Union[Error, str]] = ..., message: _Optional[str] = ..., changed: _Optional[_Iterable[_Union[Ownership, _Mapping]]] = ...) -> None: ...
