"""Topics by their ids in requests (KIP-516). Rooms know topics by name alone, so a walk puts the name in the place of
the id, and an answer is written by the ids of its request: a topic that was created anew has another one.

An id of which no name is known stands as a name that no topic can have, until it is asked for; then it is refused.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

NO_TOPIC_ID: Final = bytes(16)
"""Kafka's `Uuid.ZERO_UUID`."""
ID_BYTES: Final = 16
Names: TypeAlias = Mapping[bytes, bytes]
"""Topics by id."""
Ids: TypeAlias = dict[bytes, bytes]
"""The ids that a request uses, by the names that stand for them."""
NO_NAMES: Final[Names] = {}
_UNKNOWN: Final = b"\0"


def stand_in(topic_id: bytes) -> bytes:
    """What stands for the name of a topic whose id is not known."""
    return _UNKNOWN + topic_id


def named(topic_id: bytes, names: Names, ids: Ids) -> bytes:
    """The name of a topic that a request names by id, or what stands for it; noted in `ids`."""
    topic = names.get(topic_id) or stand_in(topic_id)
    ids[topic] = topic_id
    return topic


def is_stand_in(topic: bytes) -> bool:
    """Whether a name of a request by ids is none."""
    return topic[:1] == _UNKNOWN


def names_of(ids: Ids | None) -> Names:
    """What stands for each id of a request; nothing where it has names."""
    return {topic_id: name for name, topic_id in ids.items()} if ids else NO_NAMES


def reference(ids: Ids | None, topic: bytes) -> bytes:
    """How a request or its answer calls a topic: by its id, or by its name where it has none."""
    return topic if ids is None else ids[topic]


def unknown_ids(ids: Ids | None) -> list[bytes]:
    """The ids of a request that are not known."""
    return [topic_id for name, topic_id in ids.items() if is_stand_in(name)] if ids else []
