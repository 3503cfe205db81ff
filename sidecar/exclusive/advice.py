"""What an operator should know before topics are governed: settings that delete fences early, and topics whose readers
may not cope with a fence's marker at the end of the log. Changes nothing.

A marker takes an offset and is no record. A program that reads "to the end" by the offsets of records waits for one
more record behind it for ever. Kafka Connect's own topics are not among these: it compares positions.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from sidecar.fencing.expiry import TOPIC_FLOOR_S, KeepAlive, read_keep_alives
from sidecar.protocol.caller import Upstream

_READ_BY_OFFSETS: Final = re.compile(r"schema[-_.]?history|db[-_.]?history|schemas$", re.IGNORECASE)
"""Names of Debezium's schema histories, and of the topics of Karapace and similar schema registries."""
_SHOWN: Final = 5
_ENOUGH_MS: Final = int(4000 * TOPIC_FLOOR_S)


def weak_fence(topic: str, terms: KeepAlive) -> str | None:
    """Return what is weaker on a topic whose settings delete a marker before the next keep-alive; None: nothing."""
    if not terms.short:
        return None
    return (
        f"{', '.join(terms.short)} of {topic}: Kafka may delete a fence's marker before it is renewed, every"
        f" {TOPIC_FLOOR_S:.0f} s at the most. A replica that is built from the log in between and becomes leader does"
        f" not know the fence until a node sees that. {_ENOUGH_MS} ms or more is enough"
    )


def read_by_offsets(topics: Iterable[str]) -> str | None:
    """Return what may happen to readers of such topics, going by their names; None: there are none."""
    found = sorted(topic for topic in topics if _READ_BY_OFFSETS.search(topic))
    if not found:
        return None
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"{', '.join(found[:_SHOWN])}{more}: a fence's marker may be last in the log. Debezium's schema history,"
        " Karapace before August 2026 and other programs that read up to the last record's offset then never reach the"
        " end: leave their topics without a policy"
    )


async def advice(upstream: Upstream, topics: Sequence[str]) -> list[str]:
    """Return what there is to say of these topics, which exist. Raises as `read_keep_alives`."""
    terms = await read_keep_alives(upstream, topics)
    found = [weak_fence(topic, each) for topic, each in terms.items()]
    return [each for each in (*found, read_by_offsets(topics)) if each is not None]
