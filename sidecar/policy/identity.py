"""Parses a client.id: `name(;key=value)*` (docs/reference/client-id.md). Pure.

Parts without `=` are ignored, so that frameworks may append to it; an unknown key or value is an error that names it,
never a silent fallback to sharing.
"""

from dataclasses import dataclass, field
from typing import Final

from metadata.ownership import AccessMode
from sidecar.dedup.names import shown_name
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.session import is_default_name

_MAX_GENERATION: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """A parsed client id. `mode` and `generation` are None if the client requests none."""

    raw: bytes
    name: str
    mode: AccessMode | None = None
    generation: int | None = None
    asks: bool = field(init=False, compare=False)
    """Whether the client requests a mode or generation: then its topics become governed."""
    shown: str = field(init=False, compare=False)
    """The name as it is remembered and shown (`shown_name`)."""
    is_named: bool = field(init=False, compare=False)
    """False for the default names of client libraries: two processes would have the same one."""

    def __post_init__(self) -> None:
        """Computed once per connection, as each Produce reads it."""
        object.__setattr__(self, "asks", self.mode is not None or self.generation is not None)
        object.__setattr__(self, "shown", shown_name(self.name))
        object.__setattr__(self, "is_named", not is_default_name(self.name))

    @property
    def has_settings(self) -> bool:
        """Whether what upstream may see differs from what the client sent."""
        return b";" in self.raw


def parse(raw: bytes) -> ClientIdentity:
    """Parse a client id. Raises `KafkaError` 42 INVALID_REQUEST naming what is wrong with it."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "client.id is not UTF-8") from None
    name, *parts = text.split(";")
    mode: AccessMode | None = None
    generation: int | None = None
    seen: set[str] = set()
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            continue
        if key in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"client.id: {key} is given twice")
        seen.add(key)
        if key == "mode":
            mode = _mode(value)
        elif key == "generation":
            generation = _generation(value)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"client.id: unknown setting {key!r} (known: mode, generation)")
    return ClientIdentity(raw, name, mode, generation)


def _mode(value: str) -> AccessMode:
    try:
        return AccessMode(value)
    except ValueError:
        known = ", ".join(mode.value for mode in AccessMode)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"client.id: mode {value!r} is none of {known}") from None


def _generation(value: str) -> int:
    if value.isascii() and value.isdigit() and len(value) <= 19 and int(value) <= _MAX_GENERATION:
        return int(value)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"client.id: generation {value!r} is no integer from 0 to 2^63-1")
