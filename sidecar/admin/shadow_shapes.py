"""Shadow topics as the JSON of REST. Pure; `openapi_shadows.py` describes every shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from sidecar.admin.cursor_shapes import backlog_limit
from sidecar.admin.names import is_topic
from sidecar.admin.shapes import ShapeError, check_known, quoted, time_to_json
from sidecar.node.shadow_port import ShadowChange

if TYPE_CHECKING:
    from sidecar.node.shadow_port import Shadow

_EXAMPLE = '{"allow": ["User:*"], "auto_reset_backlog_entries": 100000}'


def shadow_to_json(shadow: Shadow) -> dict[str, Any]:
    """The shape of a shadow."""
    return {
        "name": shadow.name,
        "source": shadow.source,
        "allow": list(shadow.allow),
        "created": time_to_json(shadow.created_ms),
        "is_made": shadow.is_made,
        "auto_reset_backlog_entries": shadow.auto_reset_backlog_entries,
        "state": shadow.state.value,
        "reason": shadow.reason,
        "warning": shadow.warning,
    }


_FIELDS: Final = ("name", "allow", "auto_reset_backlog_entries")


def shadow_from_json(body: object) -> tuple[str, list[str] | None, int]:
    """Name, allow list (None: not said) and limit of backlogs of a shadow to be made. Raises ShapeError."""
    if not isinstance(body, dict) or not isinstance(name := body.get("name"), str):
        raise ShapeError('the body has to be a JSON object such as {"name": "orders-audit", "allow": ["User:*"]}')
    check_known(body, _FIELDS)
    if not is_topic(name):
        raise ShapeError(f"{quoted(name)} is no name for a topic: 1 to 249 of a-z A-Z 0-9 . _ -")
    return name, _allow(body.get("allow")), backlog_limit(body.get("auto_reset_backlog_entries"))


def change_from_json(body: object) -> ShadowChange:
    """What is to be changed in a shadow. Raises ShapeError."""
    if not isinstance(body, dict) or not body:
        raise ShapeError(f"the body has to be a JSON object such as {_EXAMPLE}")
    fields = cast("dict[str, object]", body)
    check_known(fields, _FIELDS[1:])
    limit = fields.get("auto_reset_backlog_entries", 0)
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise ShapeError(
            f"auto_reset_backlog_entries has to be a whole number of records, 0 for never, not {quoted(limit)}"
        )
    if "allow" in fields and fields["allow"] is None:
        raise ShapeError('allow has to be a list of principals such as ["User:*"]; an empty one means nobody')
    return ShadowChange(_allow(fields.get("allow")), limit if "auto_reset_backlog_entries" in fields else None)


def _allow(found: object) -> list[str] | None:
    if found is not None and not (isinstance(found, list) and all(isinstance(each, str) for each in found)):
        raise ShapeError('allow has to be a list of principals such as ["User:*"]')
    return found
