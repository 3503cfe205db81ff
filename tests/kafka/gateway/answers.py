"""Look into answers of kio's whatever their API."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def codes(answer: Any) -> set[int]:
    """All error codes anywhere in an answer."""
    return {
        int(value.value) for name, value in fields(answer) if name.endswith("error_code") and hasattr(value, "value")
    }


def fields(entity: Any) -> Iterator[tuple[str, Any]]:
    """Every field of an entity and of those inside it that is no entity or list itself, with its name."""
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        for found in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(found):
                yield from fields(found)
            else:
                yield field.name, found
