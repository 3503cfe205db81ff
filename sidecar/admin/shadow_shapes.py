"""Shadow topics as the JSON of REST. Pure; `openapi_shadows.py` describes every shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sidecar.admin.cursor_shapes import backlog_limit
from sidecar.admin.shapes import ShapeError, time_to_json

if TYPE_CHECKING:
    from sidecar.shadow_port import Shadow


def shadow_to_json(shadow: Shadow) -> dict[str, Any]:
    """The shape of a shadow."""
    return {
        "name": shadow.name,
        "source": shadow.source,
        "allow": list(shadow.allow),
        "created": time_to_json(shadow.created_ms),
        "is_made": shadow.is_made,
        "auto_reset_backlog_entries": shadow.auto_reset_backlog_entries,
    }


_FIELDS: Final = ("name", "allow", "auto_reset_backlog_entries")


def shadow_from_json(body: object) -> tuple[str, list[str] | None, int]:
    """Name, allow list (None: not said) and limit of backlogs of a shadow to be made. Raises ShapeError."""
    if not isinstance(body, dict) or not isinstance(name := body.get("name"), str):
        raise ShapeError('the body has to be a JSON object such as {"name": "orders-audit", "allow": ["User:*"]}')
    if unknown := sorted(set(body) - {*_FIELDS}):
        raise ShapeError(f"unknown fields: {', '.join(unknown)} (known: {', '.join(_FIELDS)})")
    allow = body.get("allow")
    if allow is not None and not (isinstance(allow, list) and all(isinstance(each, str) for each in allow)):
        raise ShapeError('allow has to be a list of principals such as ["User:*"]')
    return name, allow, backlog_limit(body.get("auto_reset_backlog_entries"))
