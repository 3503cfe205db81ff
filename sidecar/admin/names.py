"""Which topic names and partitions may stand in a request. Decides nothing about topics that exist."""

from __future__ import annotations

import re
from typing import Final

LAST_PARTITION: Final = 2**31 - 1
_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""As in `org.apache.kafka.common.internals.Topic`."""
TOPIC_PATTERN: Final = r"^(?!__)(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$"
"""A topic that is not internal, as JSON schema has patterns."""
GOVERNABLE_PATTERN: Final = r"^(?!__)(?!\.{1,2}$)([A-Za-z0-9._-]{1,249}\*?|\*)$"
"""Such a topic, or a prefix."""
NAME_OR_NOTHING_PATTERN: Final = r"^(?!\.{1,2}$)([A-Za-z0-9._-]{1,249}\*?|\*|)$"
"""Where a list by names goes on: any topic or prefix, or nothing."""


def is_topic(name: str) -> bool:
    """True where Kafka could have a topic of this name."""
    return _LEGAL.fullmatch(name) is not None and name not in {".", ".."}


def is_prefix(name: str) -> bool:
    """True for `PREFIX*`, which speaks of all topics that begin so; a bare `*` of all that are not internal."""
    return name.endswith("*") and (name == "*" or _LEGAL.fullmatch(name[:-1]) is not None)


def is_internal(name: str) -> bool:
    """True for topics that belong to Kafka or to the sidecar, and for prefixes of such names alone."""
    return name.startswith("__")
