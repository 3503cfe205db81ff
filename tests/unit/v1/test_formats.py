"""docs/operate/upgrade.md: what nodes store stays readable. `fields.txt` has every field with its number and type.

A field that is added takes a line there. One that is taken away is `reserved` in the proto, and loses its line.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from sidecar.v1 import control_pb2, state_pb2

RECORDED = Path(__file__).with_name("fields.txt")
TYPES = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_") and name != "TYPE_GROUP"
}


def lines_of(message: Descriptor) -> list[str]:
    """`MESSAGE NUMBER TYPE NAME` of each field, `repeated` where it is."""
    found: list[str] = []
    for field in message.fields:
        kind = TYPES[field.type]
        if field.message_type is not None:
            kind = field.message_type.full_name
        elif field.enum_type is not None:
            kind = field.enum_type.full_name
        often = "repeated " if field.is_repeated else ""
        found.append(f"{message.full_name} {field.number} {often}{kind} {field.name}")
    return found


def current() -> list[str]:
    found: list[str] = []
    for file in (state_pb2.DESCRIPTOR, control_pb2.DESCRIPTOR):
        for message in file.message_types_by_name.values():
            found += lines_of(message)
            for enum in message.enum_types:
                found += [f"{enum.full_name} {value.number} {value.name}" for value in enum.values]
        for enum in file.enum_types_by_name.values():
            found += [f"{enum.full_name} {value.number} {value.name}" for value in enum.values]
    return found


def test_no_field_changed_its_number_or_its_type() -> None:
    recorded = RECORDED.read_text(encoding="utf-8").splitlines()
    assert [line for line in recorded if line not in current()] == [], (
        "a node of before could not read what this writes"
    )
    assert [line for line in current() if line not in recorded] == [], "new fields: add these lines to fields.txt"
