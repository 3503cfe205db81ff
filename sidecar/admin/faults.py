"""The limits for the content of requests, and messages about faults for the sender. Decides nothing about existing
topics. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import islice
from reprlib import Repr
from typing import Final

_NAMED: Final = 5
"""The most faults of one kind that one answer names."""
_QUOTED: Final = 100
"""The most characters that are quoted from a request."""


HIGHEST: Final = 2**63 - 1
"""The highest number in JSON here."""
_EXACT: Final = 2**53
"""Below it a float is exactly the number that was written."""


class ShapeError(ValueError):
    """The request is malformed; the message names the faults."""


class _Beginning(Repr):
    def repr_str(self, x: str, level: int) -> str:
        return repr(x[:_QUOTED])

    def repr_dict(self, x: dict[object, object], level: int) -> str:
        return super().repr_dict(dict(islice(x.items(), self.maxdict + 1)), level)  # super would sort all items


_beginning: Final = _Beginning()
_beginning.maxlevel = 3


def check_known(body: Mapping[str, object], known: Collection[str]) -> None:
    """Raise ShapeError if there are unknown fields."""
    if faults := unknown_fields(body, known):
        raise ShapeError(*faults)


def unknown_fields(body: Mapping[str, object], known: Collection[str]) -> list[str]:
    """A fault that names the first unknown fields; none if all are known."""
    unknown = [name for name in body if name not in known]
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    named = ", ".join(map(quoted, unknown[:_NAMED]))
    return [f"unknown fields: {named}{more} (known: {', '.join(known)})"] if unknown else []


def whole_number(found: object) -> int | None:
    """The number if it is from 0 to `HIGHEST` and an integer in the sense of JSON schema: 5.0 is one. Else None."""
    if isinstance(found, float) and found.is_integer() and found < _EXACT:
        return int(found) if found >= 0 else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= HIGHEST else None


def quoted(value: object) -> str:
    """A sent value as text for a message; of long values only the beginning."""
    text = _beginning.repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


LAST_PARTITION: Final = 2**31 - 1
_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""As in `org.apache.kafka.common.internals.Topic`."""
TOPIC_PATTERN: Final = r"^(?!__)(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$"
"""Names of topics that are not internal, as a pattern of JSON schema."""
GOVERNABLE_PATTERN: Final = r"^(?!__)(?!\.{1,2}$)([A-Za-z0-9._-]{1,249}\*?|\*)$"
"""Names of such topics, or prefixes."""
NAME_OR_NOTHING_PATTERN: Final = r"^(?!\.{1,2}$)([A-Za-z0-9._-]{1,249}\*?|\*|)$"
"""Where a list by names continues: any topic or prefix, or nothing."""


def is_topic(name: str) -> bool:
    """Whether Kafka could have a topic of this name."""
    return _LEGAL.fullmatch(name) is not None and name not in {".", ".."}


def is_prefix(name: str) -> bool:
    """Whether it is `PREFIX*`, which means all topics with that prefix; a bare `*` means all that are not internal."""
    return name.endswith("*") and (name == "*" or _LEGAL.fullmatch(name[:-1]) is not None)


def is_internal(name: str) -> bool:
    """Whether it is a topic of Kafka or of the sidecar, or a prefix that only such names have."""
    return name.startswith("__")
