"""The names and access modes that a node accepts from owners. Pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from sidecar.v1 import control_pb2 as control

Mode: TypeAlias = Literal["exclusive", "wait_for_exclusive", "exclusive_with_fencing"]

MODES: Final[Mapping[str, control.AccessMode]] = {
    "exclusive": control.EXCLUSIVE,
    "wait_for_exclusive": control.WAIT_FOR_EXCLUSIVE,
    "exclusive_with_fencing": control.EXCLUSIVE_WITH_FENCING,
}
_NO_NAMES: Final = re.compile(r"(producer-\d+|rdkafka|sarama|kgo|kafkajs|aiokafka-.*|kafka-python-.*|)\Z", re.DOTALL)
_CUT: Final = "…"
_NAME_BYTES: Final = 255


def assigned_name() -> str:
    """A globally unique name for a client that has none."""
    return f"sidecar-{uuid.uuid4()}"


def checked_name(name: str) -> str:
    """Return the name. Raises ValueError if a node would not accept it as a producer name."""
    if not 1 <= len(name.encode()) <= _NAME_BYTES or ";" in name:
        raise ValueError(f"name {name[:50]!r}: 1 to {_NAME_BYTES} bytes of UTF-8 without ;")
    if _NO_NAMES.match(name) or name.endswith(_CUT):
        raise ValueError(f"name {name!r} is a default of client libraries: two producers may bear it")
    return name


def check_mode(mode: str) -> None:
    """Raises ValueError if `mode` is not a `Mode`."""
    if mode not in get_args(Mode):
        raise ValueError(f"mode {mode!r} is none of {', '.join(get_args(Mode))}")
