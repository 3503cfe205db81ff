"""Describes the shapes of REST once, for the JSON of answers and for the OpenAPI document. Knows no concrete shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter, itemgetter
from typing import Any, Final

Schema = dict[str, Any]
Step = Callable[[Any], Any]


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a field: its JSON schema, and how a value becomes JSON (`write`).

    `get` reads the value from a fact, by default the attribute with the field's name. An `optional` field is left out
    if the value is None.
    """

    schema: Schema
    write: Step = _as_it_is
    get: Step | None = None
    optional: bool = False

    def said(self, description: str, **limits: int) -> Kind:
        """The same kind with this description in the document, and limits named as in JSON schema."""
        return replace(self, schema={**self.schema, **limits, "description": description})

    def written(self, write: Step) -> Kind:
        """The same kind, whose value is made JSON by a function."""
        return replace(self, write=write)

    def of(self, source: str | Step) -> Kind:
        """The same kind, read from an attribute of another name, or by a function of the fact."""
        return replace(self, get=attrgetter(source) if isinstance(source, str) else source)

    def or_null(self) -> Kind:
        """The same kind, but None is allowed and becomes null."""
        schema, write = self.schema, self.write
        plain = "type" in schema and "enum" not in schema
        found = {**schema, "type": [schema["type"], "null"]} if plain else {"oneOf": [schema, {"type": "null"}]}
        return replace(self, schema=found, write=lambda value: None if value is None else write(value))

    def or_absent(self) -> Kind:
        """The same kind, but None is allowed and left out."""
        return replace(self, optional=True)


@dataclass(frozen=True, slots=True)
class Component:
    """A named schema of the document that is no object with its own fields."""

    name: str
    schema: Schema


class Shape:
    """A JSON object with exactly these fields, in this order. `about`: its description in the document."""

    def __init__(self, name: str, about: str = "", /, **fields: Kind) -> None:
        self.name = name
        self.about = about
        self.fields = fields

    def to_json(self, fact: object, **given: Any) -> dict[str, Any]:
        """A fact as JSON; `given`: values of fields that the fact does not have itself."""
        found: dict[str, Any] = {}
        for label, kind in self.fields.items():
            if label in given:
                value = given[label]
            elif kind.get is not None:
                value = kind.get(fact)
            else:
                value = getattr(fact, label, None) if kind.optional else getattr(fact, label)
            if value is not None or not kind.optional:
                found[label] = kind.write(value)
        return found

    @property
    def properties(self) -> Schema:
        """The schemas of the fields."""
        return {label: kind.schema for label, kind in self.fields.items()}

    @property
    def schema(self) -> Schema:
        """The schema of the component in the document."""
        found = {
            "type": "object",
            "properties": self.properties,
            "required": [label for label, kind in self.fields.items() if not kind.optional],
            "additionalProperties": False,
        }
        return {**found, "description": self.about} if self.about else found

    @property
    def kind(self) -> Kind:
        """The kind of a field that holds this shape: the document refers to the component."""
        return Kind(ref(self.name), self.to_json)

    @property
    def inline(self) -> Kind:
        """The same for a shape that is no component of its own."""
        return Kind(self.schema, self.to_json)


TEXT: Final = Kind({"type": "string"})
NUMBER: Final = Kind({"type": "integer"})
COUNT: Final = Kind({"type": "integer", "minimum": 0})
FLAG: Final = Kind({"type": "boolean"})


def time_to_json(unix_ms: int) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


TIME: Final = Kind({"type": "string", "format": "date-time", "description": "RFC 3339, UTC"}, time_to_json)
"""The kind of a field with Unix milliseconds."""


def one_of(words: type[StrEnum]) -> Kind:
    """The kind of a field with one of these words."""
    return Kind({"type": "string", "enum": list(words)})


def always(value: object) -> Kind:
    """The kind of a field with the same value in every answer."""
    return Kind({"const": value}, get=lambda _: value)


def list_of(kind: Kind) -> Kind:
    """The kind of a field with an array."""
    write = kind.write
    return Kind({"type": "array", "items": kind.schema}, lambda found: [write(each) for each in found])


def by_key(kind: Kind) -> Kind:
    """The kind of a field with an object whose keys are data, such as partitions; sorted by the keys of the fact."""
    write = kind.write
    return Kind(
        {"type": "object", "additionalProperties": kind.schema},
        lambda found: {str(key): write(each) for key, each in sorted(found.items())},
    )


_TOKEN: Final = TEXT.or_null()


def page_of(name: str, items: Shape, token: Kind = _TOKEN) -> Shape:
    """A page of a list. Its fact is a pair: the items, and the token of the next page or None."""
    return Shape(name, items=list_of(items.kind).of(itemgetter(0)), next_page_token=token.of(itemgetter(1)))


def ref(name: str) -> Schema:
    """A reference to the component of this name."""
    return {"$ref": f"#/components/schemas/{name}"}
