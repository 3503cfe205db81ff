"""Shadow topics as the JSON of REST. Pure; `openapi_shadows.py` describes every shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    }


def shadow_from_json(body: object) -> tuple[str, list[str] | None]:
    """Name and allow list (None: not said) of a shadow to be made. Raises ShapeError."""
    if not isinstance(body, dict) or not isinstance(name := body.get("name"), str):
        raise ShapeError('the body has to be a JSON object such as {"name": "orders-audit", "allow": ["User:*"]}')
    if unknown := sorted(set(body) - {"name", "allow"}):
        raise ShapeError(f"unknown fields: {', '.join(unknown)} (known: name, allow)")
    allow = body.get("allow")
    if allow is not None and not (isinstance(allow, list) and all(isinstance(each, str) for each in allow)):
        raise ShapeError('allow has to be a list of principals such as ["User:*"]')
    return name, allow
