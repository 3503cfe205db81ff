"""What may stand in a request, and what is wrong with one, in words for the person who sent it. Decides nothing about
topics that exist. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import islice
from reprlib import Repr
from typing import Final

_NAMED: Final = 5
"""Faults of one kind that one answer names."""
_QUOTED: Final = 100
"""Characters of what was sent."""


HIGHEST: Final = 2**63 - 1
"""The highest number that JSON of ours may hold."""
_EXACT: Final = 2**53
"""Below it a float is exactly the number that was written."""


class ShapeError(ValueError):
    """The request is not what it should be; the message names the faults."""


class _Beginning(Repr):
    def repr_str(self, x: str, level: int) -> str:
        return repr(x[:_QUOTED])

    def repr_dict(self, x: dict[object, object], level: int) -> str:
        return super().repr_dict(dict(islice(x.items(), self.maxdict + 1)), level)  # it sorts all


_beginning: Final = _Beginning()
_beginning.maxlevel = 3


def check_known(body: Mapping[str, object], known: Collection[str]) -> None:
    """Raises ShapeError where fields are not known."""
    if faults := unknown_fields(body, known):
        raise ShapeError(*faults)


def unknown_fields(body: Mapping[str, object], known: Collection[str]) -> list[str]:
    """A fault that names the first fields that are not known; none where all are."""
    unknown = [name for name in body if name not in known]
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    named = ", ".join(map(quoted, unknown[:_NAMED]))
    return [f"unknown fields: {named}{more} (known: {', '.join(known)})"] if unknown else []


def whole_number(found: object) -> int | None:
    """0 to `HIGHEST`, as JSON schema has whole numbers: 5.0 is one. None for anything else."""
    if isinstance(found, float) and found.is_integer() and found < _EXACT:
        return int(found) if found >= 0 else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= HIGHEST else None


def quoted(value: object) -> str:
    """What was sent, for a message; of long values the beginning, whatever they hold."""
    text = _beginning.repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


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
