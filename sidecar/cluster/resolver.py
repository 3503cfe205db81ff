"""The kind of a topic by its name on this node: an ordinary topic, a governed one, a shadow of another one, or an
internal one.

Every look-up of a name uses this module, so only one place knows which names are not plain Kafka topics.
Results are cached per name, with a bound, and dropped when policies or shadows change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from sidecar.protocol.errors import ErrorCode, KafkaError

_REMEMBERED: Final = 100_000
INTERNAL_PREFIX: Final = b"__sidecar_"
TRANSACTIONAL_ID_PREFIX: Final = "sidecar."


LONGEST_TOPIC: Final = 249
"""The limit of a topic's name in bytes. Clients may send longer ones, up to 32 KiB; they are not cached."""
_LEGAL: Final = re.compile(rb"[a-zA-Z0-9._-]{1,249}\Z")


def is_legal(topic: bytes) -> bool:
    """Return whether a topic can have this name, by Kafka's rules (`org.apache.kafka.common.internals.Topic`)."""
    return _LEGAL.match(topic) is not None


class TopicKind(Enum):
    """How a node treats a topic."""

    ORDINARY = "passed through"
    GOVERNED = "under a policy"
    SHADOW = "a read-only name over another topic's log"
    INTERNAL = "one of the sidecar's own: clients may read it, never write"

    @property
    def change_refused(self) -> KafkaError | None:
        """The error for every API with which a client would write to or change such a topic; None if clients may."""
        return _READ_ONLY.get(self)


_READ_ONLY: Final = {
    TopicKind.INTERNAL: KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topics of the sidecar are changed by it alone"
    ),
    TopicKind.SHADOW: KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a shadow topic is read-only: write to its source, by the source's name"
    ),
}


HIDDEN: Final = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
"""As a broker refuses a topic that a client may not see."""
ANYBODY: Final = "User:*"
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that did not authenticate, as in Kafka (KafkaPrincipal.ANONYMOUS)."""


class Source(NamedTuple):
    """The topic whose log is read under a shadow's name, while it has this id; `allow`: who may read it. `is_closed`: a
    node found that the topic has another id now. So other nodes refuse readers without asking a broker each time.
    """

    topic: bytes
    topic_id: UUID
    allow: frozenset[str] = frozenset({ANYBODY})
    is_closed: bool = False

    def may_be_read_by(self, principal: str) -> bool:
        """Return whether the shadow's allow list has the principal; nothing else permits reading."""
        return ANYBODY in self.allow or principal in self.allow


class Kinds(dict[bytes, TopicKind]):
    """The kinds of topics by name: `kinds[name]` looks up a name that is not cached. Every Produce reads it; a cached
    name costs no call of Python code.
    """

    __slots__ = ("_look_up",)

    def __init__(self, look_up: Callable[[bytes], TopicKind]) -> None:
        super().__init__()
        self._look_up = look_up

    def __missing__(self, topic: bytes) -> TopicKind:
        found = self._look_up(topic)
        if len(topic) <= LONGEST_TOPIC:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[topic] = found
        return found


class NameResolver:
    """Finds the kind of a topic by its name. Names are bytes, as in requests."""

    __slots__ = ("_exact", "_prefixes", "_shadows", "has_guards", "kinds", "rerouted")

    def __init__(self) -> None:
        self._shadows: Mapping[bytes, Source | None] = {}
        self.has_guards = False
        """Whether there is a shadow that some principal may not read."""
        self.rerouted: Callable[[Mapping[bytes, Source | None]], None] = lambda before: None
        """Called with the names whose source changes: each with its former source, None if it was no shadow."""
        self._exact: frozenset[bytes] = frozenset()
        self._prefixes: tuple[bytes, ...] = ()
        self.kinds = Kinds(self._look_up)

    def set_policies(self, topics: Iterable[str], prefixes: Iterable[str]) -> None:
        """Replace the names of governed topics: exact names, and prefixes (without the star)."""
        self._exact = frozenset(topic.encode() for topic in topics)
        self._prefixes = tuple(prefix.encode() for prefix in prefixes)
        self.kinds.clear()

    def set_shadows(self, shadows: Mapping[bytes, Source | None]) -> None:
        """Replace the shadows: each with its source, None while it is being created."""
        known, self._shadows = self._shadows, dict(shadows)
        self.has_guards = any(source is not None and ANYBODY not in source.allow for source in shadows.values())
        self.kinds.clear()
        before = {name: source for name, source in known.items() if source is not None and shadows.get(name) != source}
        self.rerouted(before | dict.fromkeys(shadows.keys() - known.keys()))

    @property
    def has_shadows(self) -> bool:
        """Whether there are any shadows."""
        return bool(self._shadows)

    def is_shadow(self, topic: bytes) -> bool:
        """Return whether a name belongs to a shadow, even to one that is still being created."""
        return topic in self._shadows

    def source(self, shadow: bytes) -> Source | None:
        """Return a shadow's source; None while the shadow is being created, and for a name of no shadow."""
        return self._shadows.get(shadow)

    def hides(self, topic: bytes, principal: str) -> bool:
        """Return whether a name belongs to a shadow whose allow list lacks the principal."""
        source = self._shadows.get(topic)
        return source is not None and not source.may_be_read_by(principal)

    def may_read_all_shadows(self, principal: str) -> bool:
        """Return whether the principal may read every shadow."""
        return all(source is None or source.may_be_read_by(principal) for source in self._shadows.values())

    def shadows_of(self, topic: bytes) -> list[bytes]:
        """Return the names of a topic's shadows."""
        return sorted(name for name, source in self._shadows.items() if source is not None and source.topic == topic)

    def kind(self, topic: bytes) -> TopicKind:
        """See `TopicKind`."""
        return self.kinds[topic]

    def _look_up(self, topic: bytes) -> TopicKind:
        if topic.startswith(INTERNAL_PREFIX):
            return TopicKind.INTERNAL
        if topic in self._shadows:
            return TopicKind.SHADOW
        if topic in self._exact or (
            topic.startswith(self._prefixes) and not topic.startswith(b"__") and is_legal(topic)
        ):
            return TopicKind.GOVERNED
        return TopicKind.ORDINARY
