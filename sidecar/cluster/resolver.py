"""What a topic name means on this node: an ordinary topic, a governed one, a shadow of another one, or one of the
sidecar's own.

Every look-up of a name goes through here, so one place knows which names stand for something else.
Answers are remembered per name, bounded, and forgotten when policies or shadows change.
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
"""Bytes of a topic's name. Clients may say longer ones, up to 32 KiB: nothing remembers those."""
_LEGAL: Final = re.compile(rb"[a-zA-Z0-9._-]{1,249}\Z")


def is_legal(topic: bytes) -> bool:
    """Whether a topic can have this name (`org.apache.kafka.common.internals.Topic`): there is none with any other."""
    return _LEGAL.match(topic) is not None


class TopicKind(Enum):
    """How a node treats a topic."""

    ORDINARY = "passed through"
    GOVERNED = "under a policy"
    SHADOW = "a read-only name over another topic's log"
    INTERNAL = "one of the sidecar's own: clients may read it, never write"

    @property
    def change_refused(self) -> KafkaError | None:
        """Why clients may neither write to it nor change it, for every API that would."""
        return _READ_ONLY.get(self)


_READ_ONLY: Final = {
    TopicKind.INTERNAL: KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topics of the sidecar are changed by it alone"
    ),
    TopicKind.SHADOW: KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a shadow topic is read-only: write to its source, by the source's name"
    ),
}


ANYBODY: Final = "User:*"
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that did not authenticate, as Kafka calls it (KafkaPrincipal.ANONYMOUS)."""


class Source(NamedTuple):
    """Whose log is read under a shadow's name: a topic, as long as it has this id; and by whom. `is_closed`: some node
    has found that it has it no more, which others might never notice: Fetch goes by names.
    """

    topic: bytes
    topic_id: UUID
    allow: frozenset[str] = frozenset({ANYBODY})
    is_closed: bool = False

    def may_be_read_by(self, principal: str) -> bool:
        """Whether the shadow's allow list has a principal; nothing else grants it."""
        return ANYBODY in self.allow or principal in self.allow


class Kinds(dict[bytes, TopicKind]):
    """The kinds of topics by name: `kinds[name]` looks up what is not remembered. Every Produce reads it: a name
    that is remembered costs no call.
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
    """Kinds by name. Names are bytes, as requests carry them."""

    __slots__ = ("_exact", "_prefixes", "_shadows", "has_guards", "kinds", "rerouted")

    def __init__(self) -> None:
        self._shadows: Mapping[bytes, Source | None] = {}
        self.has_guards = False
        """Whether there is a shadow that not everybody may read."""
        self.rerouted: Callable[[Mapping[bytes, Source | None]], None] = lambda before: None
        """Called with names that mean something else from now on: each with what it was, None for no shadow."""
        self._exact: frozenset[bytes] = frozenset()
        self._prefixes: tuple[bytes, ...] = ()
        self.kinds = Kinds(self._look_up)

    def set_policies(self, topics: Iterable[str], prefixes: Iterable[str]) -> None:
        """Replace what is governed: exact names, and prefixes (without the star)."""
        self._exact = frozenset(topic.encode() for topic in topics)
        self._prefixes = tuple(prefix.encode() for prefix in prefixes)
        self.kinds.clear()

    def set_shadows(self, shadows: Mapping[bytes, Source | None]) -> None:
        """Replace the shadows: each with its source, None while it is being made."""
        known, self._shadows = self._shadows, dict(shadows)
        self.has_guards = any(source is not None and ANYBODY not in source.allow for source in shadows.values())
        self.kinds.clear()
        before = {name: source for name, source in known.items() if source is not None and shadows.get(name) != source}
        self.rerouted(before | dict.fromkeys(shadows.keys() - known.keys()))

    @property
    def has_shadows(self) -> bool:
        """False where every name is its own log's."""
        return bool(self._shadows)

    def is_shadow(self, topic: bytes) -> bool:
        """Whether a name is a shadow's, be it made or not."""
        return topic in self._shadows

    def source(self, shadow: bytes) -> Source | None:
        """Whose log is read under a shadow's name; None while it is being made, and for what is no shadow."""
        return self._shadows.get(shadow)

    def hides(self, topic: bytes, principal: str) -> bool:
        """Whether a name is a shadow's whose allow list keeps a principal out."""
        source = self._shadows.get(topic)
        return source is not None and not source.may_be_read_by(principal)

    def may_read_all_shadows(self, principal: str) -> bool:
        """Whether no shadow's allow list keeps a principal out."""
        return all(source is None or source.may_be_read_by(principal) for source in self._shadows.values())

    def shadows_of(self, topic: bytes) -> list[bytes]:
        """The shadows of a topic."""
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
