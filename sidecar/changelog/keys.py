"""Keys of the ownership topic: readable text. A key's bytes never change, because compaction compares them.

`kind/topic[/slot[/partition]]`; Kafka's topic names contain no slash, so a key is unambiguous. A slot is named `0` (the
owner of a topic), `pN` (the owner of partition N) or `1`, `2`, … (one shared session each).
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, NewType
from urllib.parse import quote, unquote

from google.protobuf.message import Message

from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

SlotName = NewType("SlotName", str)
"""A writer slot of a topic: `0`, `pN` or `1`, `2`, …"""

MASTER_SLOT: Final = SlotName("0")
_SLOT: Final = re.compile(r"0|p(0|[1-9][0-9]*)|[1-9][0-9]*")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]*")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*")
"""What `quote` does not change."""
_READER_PARTS: Final = 4
"""The number of parts in the key of a reader claim to a partition: group, "read", topic, partition."""


def partition_slot(partition: int) -> SlotName:
    """Return the slot of the owner of one partition (scope partition)."""
    if partition < 0:
        raise ValueError(f"partition {partition}")
    return SlotName(f"p{partition}")


def partition_of(slot: SlotName) -> int | None:
    """Return the partition of a slot `pN`; None for any other slot."""
    return int(slot[1:]) if slot.startswith("p") else None


def shared_slot(number: int) -> SlotName:
    """Return the slot of a shared session; `number` is 1 or more."""
    if number < 1:
        raise ValueError(f"shared slots count from 1, not {number}")
    return SlotName(str(number))


class Kind(Enum):
    """The kind of a record: its name in keys, its message class, and the number of parts in its key after the kind.

    A record of a `stamped` kind is valid only under the producer id and epoch of its slot, so that a fence covers it.
    The other kinds are facts (Tail, Redis) or an administrator's settings (Policy, Shadow). An administrator's records
    have a stamp too, except those written by nodes of earlier versions.
    """

    OWNERSHIP = ("ownership", state.Ownership, 2, True)
    SERVING = ("serving", state.Serving, 2, True)
    SLOT = ("slot", state.Slot, 2, True)
    TAIL = ("tail", state.Tail, 3, False)
    SEQUENCE_BASE = ("sequence-base", state.SequenceBase, 3, True)
    CLAIM = ("claim", state.Claim, 1, True)
    POLICY = ("policy", state.Policy, 1, False)
    SHADOW = ("shadow", state.Shadow, 1, False)
    REDIS = ("redis", state.Redis, 1, False)

    def __init__(self, label: str, message: type[Message], parts: int, stamped: bool) -> None:
        self.label = label
        self.message = message
        self.parts = parts
        self.stamped = stamped


_BY_LABEL: Final = {kind.label: kind for kind in Kind}
_BY_MESSAGE: Final = {kind.message: kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Key:
    """Identifies one record. `topic` is the topic, the policy's pattern, the shadow or the claimed resource; `slot` and
    `partition` are set only for kinds that have them.
    """

    kind: Kind
    topic: str
    slot: SlotName | None = None
    partition: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a key whose text could not be decoded to the same key."""
        given = 1 + (self.slot is not None) + (self.partition is not None)
        if given != self.kind.parts or not self.topic or "/" in self.topic:
            raise ValueError(f"not a key: {self!r}")
        if self.slot is not None and not _SLOT.fullmatch(self.slot):
            raise ValueError(f"not a slot: {self.slot!r}")
        if self.partition is not None and (self.slot is None or self.partition < 0):
            raise ValueError(f"not a partition: {self!r}")

    def __hash__(self) -> int:
        """Hash the texts: before Python 3.12 the hash of None is an address, so the order would differ per process."""
        return hash((self.kind.label, self.topic, self.slot or "", -1 if self.partition is None else self.partition))

    def encode(self) -> bytes:
        """Return the bytes of the record's key."""
        parts = [self.kind.label, self.topic]
        if self.slot is not None:
            parts.append(self.slot)
        if self.partition is not None:
            parts.append(str(self.partition))
        return "/".join(parts).encode()

    def __str__(self) -> str:
        return self.encode().decode()


class ForeignKeyError(ValueError):
    """The key is not one of this version: another program wrote it, or it is a kind of a newer node."""


def decode_key(data: bytes) -> Key:
    """Decode a record's key. Raises `ForeignKeyError`."""
    try:
        label, *parts = data.decode().split("/")
    except UnicodeDecodeError:
        raise ForeignKeyError(f"a key that is no text: {data[:40]!r}") from None
    kind = _BY_LABEL.get(label)
    if kind is None or len(parts) != kind.parts:
        raise ForeignKeyError(f"an unknown key: {data[:80]!r}")
    slot = SlotName(parts[1]) if kind.parts > 1 else None
    if kind.parts > 2 and not _NUMBER.fullmatch(parts[2]):
        raise ForeignKeyError(f"a key without a partition: {data[:80]!r}")
    try:
        return Key(kind, parts[0], slot, int(parts[2]) if kind.parts > 2 else None)
    except ValueError as error:
        raise ForeignKeyError(str(error)) from None


def kind_of(message: Message) -> Kind:
    """Return the kind whose values are messages of this class. Raises KeyError if there is none."""
    return _BY_MESSAGE[type(message)]


def claim_key(group: str, resource: control.Resource) -> Key:
    """Return the key of the claim to a free string, or of a reader claim to a topic or partition in a group."""
    if resource.name:
        parts = [group, "name", resource.name] if group else ["name", resource.name]
    else:
        parts = [group, "read", resource.topic]
        if resource.HasField("partition"):
            parts.append(str(resource.partition))
    return Key(Kind.CLAIM, ":".join(part if _PLAIN.fullmatch(part) else quote(part, safe="") for part in parts))


def claimed(key: Key) -> tuple[str, control.Resource]:
    """Return the group and the claimed resource of a key: the inverse of `claim_key`."""
    parts = [unquote(part) for part in key.topic.split(":")]
    if parts[-2] == "name" and len(parts) < _READER_PARTS:
        return parts[0] if len(parts) > 2 else "", control.Resource(name=parts[-1])
    return parts[0], control.Resource(topic=parts[2], partition=int(parts[3]) if len(parts) == _READER_PARTS else None)


def whole_of(key: Key) -> Key | None:
    """Return the key of the reader claim to the whole topic if `key` is one to a partition; None for any other key."""
    parts = key.topic.split(":")
    return Key(Kind.CLAIM, ":".join(parts[:3])) if len(parts) == _READER_PARTS else None


REDIS_KEY: Final = Key(Kind.REDIS, "id")
"""The key of the record that names the Redis of this cluster's nodes."""
