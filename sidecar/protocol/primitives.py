"""Read and write the primitive types of Kafka's protocol (https://kafka.apache.org/protocol#protocol_types).

`Reader` never reads beyond its frame and refuses a collection that cannot fit into the remaining bytes, as Kafka's
generated parsers do: a frame of 50 bytes that announces two billion elements costs nothing. Every failure is a
`MalformedFrameError`.
"""

from collections.abc import Callable, Generator
from struct import Struct
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast

Octets: TypeAlias = bytes | bytearray | memoryview

ResultT = TypeVar("ResultT")

I8: Final = Struct(">b")
I16: Final = Struct(">h")
I32: Final = Struct(">i")
_REQUEST_HEAD: Final = Struct(">ihhi")

_MAX_VARINT_BYTES: Final = 5
_MAX_TEXT_BYTES: Final = 0x7FFF
"""Kafka's generated parsers refuse a longer string."""
NO_TAGS: Final = b"\0"

new_tuple: Final = cast(Callable[..., Any], getattr(tuple, "__new__"))  # noqa: B009 - a cast of the typed one stays unknown
"""`new_tuple(Cls, (…))` makes a named tuple without the Python call that its constructor is: for the hot path only."""


def at_once(steps: Generator[None, None, ResultT]) -> ResultT:
    """Run work that is written in slices (`sidecar.network.slices`) to its end in this call; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class MalformedFrameError(ValueError):
    """The bytes are no valid Kafka frame: truncated, a negative length, or a collection longer than the frame."""

    reason: ClassVar[str] = "malformed"
    """The word for it in logs."""


class TooManyElementsError(MalformedFrameError):
    """The collections of a request have more elements than its API may name (`sidecar.protocol.limits`)."""

    reason: ClassVar[str] = "too_many"

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} elements in one request")


class TaggedFieldsError(MalformedFrameError):
    """A request has tagged fields that its reader does not need (KIP-482). Kafka may know one of them, and then ignores
    its announced size: so it would read other elements than the node. `sections`: where the tagged fields of each
    struct begin and end, in order. `without_tags` makes a request that both read alike.
    """

    def __init__(self, sections: list[tuple[int, int]]) -> None:
        super().__init__(f"tagged fields in {len(sections)} structs of one request")
        self.sections = sections


class Reader:
    """A cursor over one frame (or a part of it), from `position` to `end` exclusive, both in bytes. `taken`: elements
    read in this turn, for a caller that reads in slices.
    """

    __slots__ = ("buffer", "end", "position", "taken")

    def __init__(self, buffer: Octets, position: int = 0, end: int | None = None) -> None:
        self.buffer: Octets = buffer
        self.position: int = position
        self.end: int = len(buffer) if end is None else end
        self.taken: int = 0

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return self.end - self.position

    def skip(self, size: int) -> int:
        """Step over `size` bytes and return where they begin."""
        start = self.position
        if size < 0 or size > self.end - start:
            raise MalformedFrameError(f"{size} bytes announced, {self.end - start} left")
        self.position = start + size
        return start

    def skip_compact_array(self, element_bytes: int) -> None:
        """Step over an array of elements of equal size. Fast for short arrays, which nearly all are."""
        start = self.position
        length = self.buffer[start] if start < self.end else 0
        if 0 < length < 0x80:
            self.skip(1 + (length - 1) * element_bytes)
        else:
            self.skip(self.array(True, element_bytes=element_bytes) * element_bytes)

    def i16(self) -> int:
        return I16.unpack_from(self.buffer, self.skip(2))[0]

    def i32(self) -> int:
        return I32.unpack_from(self.buffer, self.skip(4))[0]

    def boolean(self) -> bool:
        return self.buffer[self.skip(1)] != 0

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits; nearly all have one byte."""
        start = self.position
        if start < self.end and (byte := self.buffer[start]) < 0x80:
            self.position = start + 1
            return byte
        value = 0
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            byte = self.buffer[self.skip(1)]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                if value > 0xFFFFFFFF:
                    break
                return value
        raise MalformedFrameError("a varint of more than 32 bits")

    def raw(self, size: int) -> bytes:
        start = self.skip(size)
        return bytes(self.buffer[start : self.position])

    def _text(self, size: int) -> str:
        if size > _MAX_TEXT_BYTES:
            raise MalformedFrameError(f"a string of {size} bytes")
        start = self.skip(size)
        try:
            return str(self.buffer[start : self.position], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedFrameError(f"a string that is not UTF-8: {error.reason}") from None

    def text(self, flexible: bool = False) -> str:
        """A string that must not be null, in the form that the version uses (KIP-482: compact in flexible versions)."""
        size = self.uvarint() - 1 if flexible else self.i16()
        if size == -1:
            raise MalformedFrameError("null where a string must be")
        return self._text(size)

    def nullable_text(self, flexible: bool = False) -> str | None:
        size = self.uvarint() - 1 if flexible else self.i16()
        return None if size == -1 else self._text(size)

    def name(self, flexible: bool) -> bytes:
        """As `text`, but returns the bytes undecoded."""
        return self.raw(self.uvarint() - 1 if flexible else self.i16())

    def nullable_bytes(self, flexible: bool = False) -> bytes | None:
        size = self.uvarint() - 1 if flexible else self.i32()
        return None if size == -1 else self.raw(size)

    def array(self, flexible: bool = False, *, element_bytes: int = 1) -> int:
        """The length of an array; a null one counts as empty. `element_bytes` is the least size of one element."""
        return max(0, self.nullable_array(flexible, element_bytes=element_bytes))

    def nullable_array(self, flexible: bool = False, *, element_bytes: int = 1) -> int:
        """The length of an array, -1 where it is null."""
        count = self.uvarint() - 1 if flexible else self.i32()
        if count < -1 or count * element_bytes > self.end - self.position:
            raise MalformedFrameError(f"a collection of {count} elements, {self.remaining} bytes left")
        return count

    def skip_tags(self) -> None:
        """Step over all tagged fields (KIP-482). Fast if there are none, as nearly always."""
        start = self.position
        if start < self.end and not self.buffer[start]:
            self.position = start + 1
            return
        self.tagged_fields()

    def tagged_fields(self) -> dict[int, tuple[int, int]]:
        """Step over the tagged fields of a struct; return where each begins and ends, by its number. Of two with one
        number the last counts, as in Kafka's generated parsers.
        """
        found: dict[int, tuple[int, int]] = {}
        for _ in range(self.array_of_tags()):
            number = self.uvarint()
            found[number] = self.skip(self.uvarint()), self.position
        return found

    def tag_section(self) -> bytes:
        """The tagged fields of a struct, as they are to be written again."""
        start = self.position
        self.skip_tags()
        return bytes(self.buffer[start : self.position])

    def array_of_tags(self) -> int:
        count = self.uvarint()
        if 2 * count > self.remaining:
            raise MalformedFrameError(f"{count} tagged fields, {self.remaining} bytes left")
        return count

    def tags(self, flexible: bool) -> None:
        """Step over the tagged fields of a struct, if the version has them."""
        if flexible:
            self.skip_tags()


class RequestReader(Reader):
    """A cursor over a stranger's request. All its collections together may have `limit` elements; they are counted by
    their lengths, before they are walked. `tagged`: the sections of tagged fields that it stepped over.
    """

    __slots__ = ("left", "limit", "tagged")

    def __init__(self, buffer: Octets, position: int, end: int, limit: int) -> None:
        super().__init__(buffer, position, end)
        self.limit = self.left = limit
        self.tagged: list[tuple[int, int]] = []

    def tagged_fields(self) -> dict[int, tuple[int, int]]:
        """As `Reader.tagged_fields`, and note the section."""
        start = self.position
        found = super().tagged_fields()
        self.tagged.append((start, self.position))
        return found

    def tag_section(self) -> bytes:
        """None: a request goes on without the tagged fields that the node does not know."""
        self.skip_tags()
        return NO_TAGS

    def finish(self) -> None:
        """Check that the request may be forwarded as it is. Raises `MalformedFrameError` for bytes behind its end,
        `TaggedFieldsError` if it has tagged fields.
        """
        if self.position != self.end:
            raise MalformedFrameError(f"{self.end - self.position} bytes behind the end of the request")
        if self.tagged:
            raise TaggedFieldsError(self.tagged)

    def _count(self, elements: int) -> int:
        self.left -= elements
        if self.left < 0:
            raise TooManyElementsError(self.limit)
        return elements

    def nullable_array(self, flexible: bool = False, *, element_bytes: int = 1) -> int:
        """As `Reader.nullable_array`."""
        found = super().nullable_array(flexible, element_bytes=element_bytes)
        return self._count(found) if found > 0 else found

    def array_of_tags(self) -> int:
        """As `Reader.array_of_tags`."""
        return self._count(super().array_of_tags())


def without_tags(buffer: Octets, start: int, end: int, sections: list[tuple[int, int]]) -> bytearray:
    """Return the frame from its length prefix at `start` to `end`, with each section of tagged fields emptied. Nothing
    in a request has a length that covers such a section, except the frame itself.
    """
    out = bytearray()
    for section_start, section_end in sections:
        out += memoryview(buffer)[start:section_start]
        out += NO_TAGS
        start = section_end
    out += memoryview(buffer)[start:end]
    I32.pack_into(out, 0, len(out) - 4)
    return out


class Writer:
    """Builds one message; `finish()` returns it, `frame()` returns it as a frame with its length. Lengths out of range
    raise `struct.error`, as caller bugs should. `taken` as in `Reader`.
    """

    __slots__ = ("out", "taken")

    def __init__(self) -> None:
        self.out: bytearray = bytearray()
        self.taken: int = 0

    def finish(self) -> bytes:
        return bytes(self.out)

    def frame(self) -> bytes:
        """Return a frame that `request_frame` or `answer_frame` began, with its length."""
        I32.pack_into(self.out, 0, len(self.out) - 4)
        return bytes(self.out)

    def i8(self, value: int) -> None:
        self.out += I8.pack(value)

    def i16(self, value: int) -> None:
        self.out += I16.pack(value)

    def i32(self, value: int) -> None:
        self.out += I32.pack(value)

    def boolean(self, value: bool) -> None:
        self.out.append(1 if value else 0)

    def uvarint(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def raw(self, data: Octets) -> None:
        self.out += data

    def text(self, value: str | None, flexible: bool = False) -> None:
        if value is not None:
            self.name(value.encode(), flexible)
        elif flexible:
            self.out.append(0)
        else:
            self.i16(-1)

    def name(self, name: bytes, flexible: bool) -> None:
        """As `text`, for encoded bytes."""
        if flexible:
            self.uvarint(len(name) + 1)
        else:
            self.i16(len(name))
        self.out += name

    def nullable_bytes(self, data: Octets | None, flexible: bool = False) -> None:
        self.array(-1 if data is None else len(data), flexible)
        self.out += data or b""

    def array(self, count: int, flexible: bool = False) -> None:
        """Write the length of an array; -1 writes a null array."""
        if flexible:
            self.uvarint(count + 1)
        else:
            self.i32(count)

    def tags(self, flexible: bool) -> None:
        """Write an empty tag section, if the version has one."""
        if flexible:
            self.out.append(0)


def request_frame(key: int, version: int, correlation_id: int, client_id: bytes, flexible: bool) -> Writer:
    """A request frame up to its body: header v1, or v2 where the version is flexible."""
    writer = Writer()
    writer.raw(_REQUEST_HEAD.pack(0, key, version, correlation_id))
    writer.name(client_id, False)
    writer.tags(flexible)
    return writer


def answer_frame(correlation_id: int, flexible: bool) -> Writer:
    """An answer frame up to its body."""
    writer = Writer()
    writer.i32(0)
    writer.i32(correlation_id)
    writer.tags(flexible)
    return writer
