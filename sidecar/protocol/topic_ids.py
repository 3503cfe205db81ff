"""Topics by their ids in requests (KIP-516). Rooms know topics only by name, so a walk replaces each id by its name. An
answer is written with the ids of its request, as a topic that was recreated has another id.

An unknown id is replaced by a stand-in: a name that no topic can have. Its use is refused.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

NO_TOPIC_ID: Final = bytes(16)
"""Kafka's `Uuid.ZERO_UUID`."""
ID_BYTES: Final = 16
Names: TypeAlias = Mapping[bytes, bytes]
"""Topics by id."""
Ids: TypeAlias = dict[bytes, bytes]
"""The ids that a request uses, by their names or stand-ins."""
NO_NAMES: Final[Names] = {}
_UNKNOWN: Final = b"\0"


def stand_in(topic_id: bytes) -> bytes:
    """Return the stand-in for the name of a topic whose id is not known."""
    return _UNKNOWN + topic_id


def named(topic_id: bytes, names: Names, ids: Ids) -> bytes:
    """The name of a topic that a request names by id, or its stand-in. Adds it to `ids`."""
    topic = names.get(topic_id) or stand_in(topic_id)
    ids[topic] = topic_id
    return topic


def is_stand_in(topic: bytes) -> bool:
    """Whether a topic in a walked request is a stand-in."""
    return topic[:1] == _UNKNOWN


def names_of(ids: Ids | None) -> Names:
    """Return the name or stand-in of each id of a request; empty if it has names."""
    return {topic_id: name for name, topic_id in ids.items()} if ids else NO_NAMES


def reference(ids: Ids | None, topic: bytes) -> bytes:
    """Return the id of a topic in a request or its answer, or its name if they have names."""
    return topic if ids is None else ids[topic]


def unknown_ids(ids: Ids | None) -> list[bytes]:
    """The ids of a request that are not known."""
    return [topic_id for name, topic_id in ids.items() if is_stand_in(name)] if ids else []
