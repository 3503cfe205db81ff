"""What an operator should know before topics are governed: settings that delete fences or sequence ids early, and
topics whose readers may not cope with a fence's marker at the end of the log. Changes nothing.

A marker takes an offset and is no record. A program that reads "to the end" by the offsets of records waits for one
more record behind it for ever. Kafka Connect's own topics are not among these: it compares positions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sidecar.dedup.cleaning import LAG, Cleaning
from sidecar.exclusive.cleaning import needed
from sidecar.fencing.expiry import TOPIC_FLOOR_S, KeepAlive, read_keep_alives
from sidecar.protocol.caller import Upstream

_READ_BY_OFFSETS: Final = re.compile(
    r"schema[-_.]?(?:history|changes)|db[-_.]?history|^history[-_.]|schemas$", re.IGNORECASE
)
"""Names of Debezium's schema histories, and of the topics of Karapace and similar schema registries."""
_SHOWN: Final = 5
_ENOUGH_MS: Final = int(4000 * TOPIC_FLOOR_S)


def weak_fence(topic: str, terms: KeepAlive) -> str | None:
    """Return what is weaker on a topic whose settings delete a marker before the next keep-alive; None: nothing."""
    if not terms.short:
        return None
    return (
        f"{', '.join(terms.short)} of {topic}: Kafka may delete a fence's marker before the next regular"
        f" renewal, every {TOPIC_FLOOR_S:.0f} s. A replica that is built from the log in between and becomes leader"
        f" does not know the fence until a node sees that. {_ENOUGH_MS} ms or more is enough"
    )


def unprotected(cleanings: Mapping[str, Cleaning], terms: Mapping[str, KeepAlive]) -> str | None:
    """Return which of these topics, which have sequence ids, compaction may clean too soon; None: none."""
    lags = {name: (each.lag_ms, needed(terms[name])) for name, each in cleanings.items() if name in terms}
    low = [name for name in sorted(lags) if cleanings[name].lacks_lag(lags[name][1])]
    if not low:
        return None
    named = ", ".join(f"{name} ({LAG} {lags[name][0]}, needed {lags[name][1]})" for name in low[:_SHOWN])
    more = f" and {len(low) - _SHOWN} more" if len(low) > _SHOWN else ""
    return f"compaction may take sequence ids of {named}{more} before a snapshot has them"


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
