"""What a topic name means on this node: an ordinary topic, a governed one, or one of the sidecar's own.

Every look-up of a name goes through here, so that a name that stands for something else is told apart in one place.
Answers are remembered per name, bounded, and forgotten when policies change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final

_REMEMBERED: Final = 100_000
INTERNAL_PREFIX: Final = b"__sidecar_"
TRANSACTIONAL_ID_PREFIX: Final = "sidecar."


_LEGAL: Final = re.compile(rb"[a-zA-Z0-9._-]{1,249}\Z")


def is_legal(topic: bytes) -> bool:
    """Whether a topic can have this name (`org.apache.kafka.common.internals.Topic`): there is none with any other."""
    return _LEGAL.match(topic) is not None


class TopicKind(Enum):
    """How a node treats a topic."""

    ORDINARY = "passed through"
    GOVERNED = "under a policy"
    INTERNAL = "one of the sidecar's own: clients may read it, never write"


class NameResolver:
    """Kinds by name. Names are bytes, as requests carry them."""

    __slots__ = ("_exact", "_kinds", "_prefixes")

    def __init__(self) -> None:
        self._exact: frozenset[bytes] = frozenset()
        self._prefixes: tuple[bytes, ...] = ()
        self._kinds: dict[bytes, TopicKind] = {}

    def set_policies(self, topics: Iterable[str], prefixes: Iterable[str]) -> None:
        """Replace what is governed: exact names, and prefixes (without the star)."""
        self._exact = frozenset(topic.encode() for topic in topics)
        self._prefixes = tuple(prefix.encode() for prefix in prefixes)
        self._kinds.clear()

    def kind(self, topic: bytes) -> TopicKind:
        found = self._kinds.get(topic)
        if found is None:
            found = self._look_up(topic)
            if len(self._kinds) >= _REMEMBERED:
                self._kinds.clear()
            self._kinds[topic] = found
        return found

    def _look_up(self, topic: bytes) -> TopicKind:
        if topic.startswith(INTERNAL_PREFIX):
            return TopicKind.INTERNAL
        if topic in self._exact or (
            topic.startswith(self._prefixes) and not topic.startswith(b"__") and is_legal(topic)
        ):
            return TopicKind.GOVERNED
        return TopicKind.ORDINARY
