"""The types of simple fields (numbers, texts, bytes) for the tables of `schema`."""

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from sidecar.protocol.primitives import MalformedFrameError, Reader, Writer


class Form(NamedTuple):
    """How one version is written: its number, and whether it is flexible (compact lengths, tagged fields)."""

    version: int
    flexible: bool


class Kind(Protocol):
    """The type of a field."""

    @property
    def absent(self) -> Any:
        """The value that is written if a record has none."""
        ...

    def read(self, reader: Reader, form: Form) -> Any:
        """Raises `MalformedFrameError`."""
        ...

    def write(self, writer: Writer, value: Any, form: Form) -> None:
        """Append one value."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number of fixed size, or 16 bytes of a UUID."""

    struct: Struct
    absent: Any = 0

    def read(self, reader: Reader, form: Form) -> Any:
        return self.struct.unpack_from(reader.buffer, reader.skip(self.struct.size))[0]

    def write(self, writer: Writer, value: Any, form: Form) -> None:
        writer.raw(self.struct.pack(value))


@dataclass(frozen=True, slots=True)
class _Text:
    """A string; null is malformed unless `nullable`."""

    nullable: bool

    @property
    def absent(self) -> str | None:
        return None if self.nullable else ""

    def read(self, reader: Reader, form: Form) -> str | None:
        return reader.nullable_text(form.flexible) if self.nullable else reader.text(form.flexible)

    def write(self, writer: Writer, value: Any, form: Form) -> None:
        writer.text(value, form.flexible)


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes that must not be null."""

    absent: bytes = b""

    def read(self, reader: Reader, form: Form) -> bytes:
        found = reader.nullable_bytes(form.flexible)
        if found is None:
            raise MalformedFrameError("null where bytes must be")
        return found

    def write(self, writer: Writer, value: Any, form: Form) -> None:
        writer.nullable_bytes(value, form.flexible)


BOOLEAN: Final = Fixed(Struct(">?"), False)
INT8: Final = Fixed(Struct(">b"))
INT16: Final = Fixed(Struct(">h"))
UINT16: Final = Fixed(Struct(">H"))
INT32: Final = Fixed(Struct(">i"))
INT64: Final = Fixed(Struct(">q"))
FLOAT64: Final = Fixed(Struct(">d"), 0.0)
UUID_BYTES: Final = Fixed(Struct(">16s"), bytes(16))
TEXT: Final = _Text(nullable=False)
NULLABLE_TEXT: Final = _Text(nullable=True)
BYTES: Final = _Bytes()
