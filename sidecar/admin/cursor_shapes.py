"""Cursors and numbers of shadow topics as the JSON of REST. Pure; `openapi_cursors.py` describes every shape."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from sidecar.admin.shapes import LAST_PARTITION, ShapeError, check_known, quoted, time_to_json
from sidecar.node.shadow_port import ResetKind, ResetTo

if TYPE_CHECKING:
    from sidecar.node.shadow_port import Cursor, ShadowStats

_MOST: Final = 2**63 - 1
_LAST_MS: Final = int(datetime.max.replace(tzinfo=UTC).timestamp() * 1000)
_FIELDS: Final = ("to", "partitions")
_EXAMPLES: Final = '"earliest", "latest", {"timestamp": "2026-01-31T12:00:00Z"} or {"offset": 42}'


def cursor_to_json(cursor: Cursor) -> dict[str, Any]:
    """The cursor of one group."""
    partitions = sorted(cursor.partitions.items())
    return {
        "group": cursor.group,
        "state": cursor.state,
        "members": cursor.members,
        "lag": sum(position.lag for _, position in partitions),
        "partitions": {
            str(index): {"offset": position.offset, "end": position.end, "lag": position.lag}
            for index, position in partitions
        },
    }


def stats_to_json(stats: ShadowStats) -> dict[str, Any]:
    """A shadow in numbers."""
    return {
        "readers": stats.readers,
        "bytes": stats.bytes,
        "last_read": None if stats.last_read_ms is None else time_to_json(stats.last_read_ms),
        "cursor_resets": stats.cursor_resets,
        "groups": stats.groups,
        "total_lag": stats.total_lag,
        "max_lag": stats.max_lag,
    }


def reset_from_json(body: object) -> tuple[ResetTo, list[int] | None]:
    """Where to, and in which partitions (None: all). Raises ShapeError."""
    if not isinstance(body, dict) or "to" not in body:
        raise ShapeError(f'the body has to be a JSON object such as {{"to": "latest"}}; "to" is one of {_EXAMPLES}')
    check_known(body, _FIELDS)
    return _target(body["to"]), _partitions(body.get("partitions"))


def _target(to: Any) -> ResetTo:
    match to:
        case "earliest" | "latest":
            return ResetTo(ResetKind(to))
        case {"offset": int(offset), **more} if not more and not isinstance(offset, bool) and 0 <= offset <= _MOST:
            return ResetTo(ResetKind.OFFSET, offset)
        case {"timestamp": str(text), **more} if not more:
            return ResetTo(ResetKind.TIMESTAMP, _milliseconds(text))
        case _:
            raise ShapeError(f"to has to be {_EXAMPLES}, not {quoted(to)}")


def _milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ShapeError(f"{quoted(text)} is no time of RFC 3339 with its zone, such as 2026-01-31T12:00:00Z")
    found = int(at.timestamp() * 1000)
    if not 0 <= found <= _LAST_MS:
        raise ShapeError(f"{quoted(text)} is before 1970 or after 9999 in UTC: Kafka knows no such time")
    return found


def _partitions(found: Any) -> list[int] | None:
    if found is None:
        return None
    legal = (
        isinstance(found, list)
        and found
        and all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= LAST_PARTITION for each in found)
    )
    if not legal:
        raise ShapeError(f"partitions has to be a list of partition numbers such as [0, 3], not {quoted(found)}")
    return found


def backlog_limit(found: Any) -> int:
    """`auto_reset_backlog_entries` of a body; None is 0. Raises ShapeError."""
    if found is None:
        return 0
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= _MOST:
        raise ShapeError(f"auto_reset_backlog_entries has to be a number of records, 0 for never, not {quoted(found)}")
    return found
