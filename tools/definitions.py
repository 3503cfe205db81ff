"""Classes as kio's, made from Kafka's own definitions, for the APIs whose newest versions kio does not have yet.

They are read from the jar of kafka-clients (`common/message`), whose hash is in `sidecar/local/locks/definitions.txt`.
Such an API is read here in all its versions: a field may have been renamed since kio was made. This module goes when
kio has these versions.
"""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from functools import cache
from importlib import import_module
from typing import Any, Final
from zipfile import ZipFile

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64, u16

from sidecar.local.jars import resolve_lock

_NAMES: Final = (
    "ApiVersions", "DeleteGroups", "StreamsGroupDescribe", "StreamsGroupHeartbeat",
    "StreamsGroupTopologyDescriptionUpdate", "TxnOffsetCommit",
)  # fmt: skip
_TYPES: Final[dict[str, Any]] = {
    "bool": bool, "bytes": bytes, "error_code": ErrorCode, "int8": i8, "int16": i16, "int32": i32, "int64": i64,
    "string": str, "timedelta_i32": i32Timedelta, "uint16": u16, "uuid": uuid.UUID | None,
}  # fmt: skip


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _defined(jar: ZipFile, side: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _NAMES:
        lines = jar.read(f"common/message/{name}{side.title()}.json").decode().splitlines()
        found[_snake(name)] = json.loads("\n".join(line for line in lines if line.lstrip()[:2] != "//"))
    return found


def _read() -> dict[str, dict[str, Any]]:
    (path,) = resolve_lock("definitions")
    with ZipFile(path) as jar:
        return {side: _defined(jar, side) for side in ("request", "response")}


_DEFINITIONS: Final = _read()
PACKAGES: Final = {**api_key_map, **{found["apiKey"]: name for name, found in _DEFINITIONS["request"].items()}}
"""By key of an API, its package in `kio.schema`, or its name here."""


def versions(package: str) -> range | None:
    """All versions of an API that is defined here."""
    definition = _DEFINITIONS["request"].get(package)
    return None if definition is None else _range(definition["validVersions"])


def _range(written: str) -> range:
    if written == "none":
        return range(0)
    first, _, last = written.partition("-")
    return range(int(first.rstrip("+")), 2**15 if "+" in written else int(last or first) + 1)


@cache
def entity(package: str, version: int, side: str) -> Any:
    """The class of a request or response. Raises `ModuleNotFoundError` for a version that Kafka does not have."""
    definition = _DEFINITIONS[side][package]
    if version not in _range(definition["validVersions"]):
        raise ModuleNotFoundError(f"{package} has no version {version}")
    records = {found["name"]: found["fields"] for found in definition.get("commonStructs", ())}
    return _Maker(definition, version, records).made(definition["name"], definition["fields"], EntityType[side])


class _Maker:
    def __init__(self, definition: dict[str, Any], version: int, records: dict[str, Any]) -> None:
        self._version = version
        self._records = records
        self._made: dict[str, Any] = {}
        flexible = version in _range(definition["flexibleVersions"])
        side = definition["type"]
        # The header of an answer to ApiVersions has no tagged fields in any version (KIP-511).
        at = flexible + (side == "request") if definition["apiKey"] != 18 or side == "request" else 0
        header = import_module(f"kio.schema.{side}_header.v{at}.header")
        self._shared = {
            "__version__": i16(version),
            "__flexible__": flexible,
            "__api_key__": i16(definition["apiKey"]),
            "__header_schema__": getattr(header, f"{side.title()}Header"),
        }

    def made(self, name: str, fields: list[dict[str, Any]], kind: EntityType = EntityType.nested) -> Any:
        if name not in self._made:
            here = [self._field(found) for found in fields if self._version in _range(found["versions"])]
            self._made[name] = dataclasses.make_dataclass(
                name, here, namespace={"__type__": kind, **self._shared}, frozen=True, slots=True, kw_only=True
            )
        return self._made[name]

    def _field(self, found: dict[str, Any]) -> tuple[str, Any, Any]:
        name, written = _snake(found["name"]), found["type"]
        array, written = written.startswith("[]"), written.removeprefix("[]")
        if written == "int16" and name == "error_code":
            written = "error_code"
        elif written == "int32" and name.endswith("_ms"):
            name, written = name.removesuffix("_ms"), "timedelta_i32"
        is_record = written not in _TYPES
        kind = self.made(written, found.get("fields") or self._records[written]) if is_record else _TYPES[written]
        if array:
            kind = tuple[kind, ...]
        if self._version in _range(found.get("nullableVersions", "none")):
            kind = kind | None
        metadata = {} if is_record else {"kafka_type": written}
        if self._version in _range(found.get("taggedVersions", "none")):
            metadata["tag"] = found["tag"]
        return name, kind, dataclasses.field(metadata=metadata, **self._default(found, array=array))

    def _default(self, found: dict[str, Any], *, array: bool) -> dict[str, Any]:
        written = found.get("default")
        if array and "tag" in found:
            return {"default": ()}
        if written is None:
            return {}
        if written == "null":
            return {"default": None}
        match found["type"]:
            case "bool":
                return {"default": written in (True, "true")}
            case "string":
                return {"default": written}
            case kind:
                return {"default": _TYPES[kind](int(written))}
