"""Messages of the rare APIs as tables of fields: a message is read into a dict, changed, and written again.

Unknown content of answers is preserved: error codes stay plain integers, and tagged fields (KIP-482) are stored as
bytes under the key `TAGS` of their record, so that additions of a newer broker pass unchanged. The tagged fields of a
client's request are left out: a broker that knows one of them may read it in another way. Fields that a version does
not have are absent from the dict, and are not written. Hot requests do not use tables: their own modules walk them.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from sidecar.protocol import limits
from sidecar.protocol.api import ApiKey
from sidecar.protocol.kinds import INT8, Fixed, Form, Kind
from sidecar.protocol.primitives import (
    NO_TAGS,
    MalformedFrameError,
    Octets,
    Reader,
    RequestReader,
    Writer,
    answer_frame,
    at_once,
    request_frame,
)

Values: TypeAlias = dict[str, Any]
"""A record: field names are Kafka's own in snake case."""

TAGS: Final = "tags"
NEVER: Final = 32_767
"""Greater than every version."""
_PLAIN_HEADER: Final = ApiKey.API_VERSIONS
"""ApiVersions, whose answers have a header without tags in every version (KIP-511)."""
_SHORT_BYTES: Final = 4096
"""A message of this size is read at once, without a generator for each of its lists: it takes milliseconds at most."""


@dataclass(frozen=True, slots=True)
class Array:
    """A list of one kind; null is malformed before version `nullable_since`."""

    element: Kind
    nullable_since: int = NEVER + 1

    @property
    def absent(self) -> list[Any]:
        """Empty."""
        return []

    def read(self, reader: Reader, form: Form) -> list[Any] | None:
        """A list, or None where the sender wrote null."""
        count = reader.nullable_array(form.flexible)
        if count < 0:
            if form.version < self.nullable_since:
                raise MalformedFrameError("null where a list must be")
            return None
        reader.taken += count
        read = self.element.read
        return [read(reader, form) for _ in range(count)]

    def read_steps(self, reader: Reader, form: Form) -> Generator[None, None, list[Any] | None]:
        """As `read`, in slices."""
        count = reader.nullable_array(form.flexible)
        if count < 0:
            if form.version < self.nullable_since:
                raise MalformedFrameError("null where a list must be")
            return None
        element = self.element
        deep = element if isinstance(element, Record) and element.is_deep else None
        found: list[Any] = []
        for _ in range(count):
            found.append((yield from deep.read_steps(reader, form)) if deep else element.read(reader, form))
            reader.taken += 1
            if reader.taken >= limits.BOUNDS.objects:
                reader.taken = 0
                yield
        return found

    def write_steps(self, writer: Writer, value: Any, form: Form) -> Generator[None, None, None]:
        """As `write`, in slices."""
        writer.array(-1 if value is None else len(value), form.flexible)
        element = self.element
        deep = element if isinstance(element, Record) and element.is_deep else None
        for each in value or ():
            if deep:
                yield from deep.write_steps(writer, each, form)
            else:
                element.write(writer, each, form)
            writer.taken += 1
            if writer.taken >= limits.BOUNDS.objects:
                writer.taken = 0
                yield

    def write(self, writer: Writer, value: Any, form: Form) -> None:
        """Append the length and the elements."""
        at_once(self.write_steps(writer, value, form))


class Field(NamedTuple):
    """A field of a record that some versions have, both ends included."""

    kind: Kind
    since: int = 0
    until: int = NEVER


class Part(NamedTuple):
    """Some of a record's fields as one version has them: numbers that follow each other, with the `struct` of all of
    them, or a single field of another `kind`. `absent`: the value of each field where a record has none.
    """

    names: tuple[str, ...]
    absent: tuple[Any, ...]
    struct: Struct | None
    kind: Kind


class Record:
    """Fields one after the other, then tagged fields in flexible versions. `is_deep`: with lists or records in it.

    A field has the name of its argument. Its value is a kind for all versions, a `Field` for some versions, or several
    `Field`s if versions have different kinds.
    """

    __slots__ = ("_fields", "_plans", "is_deep")

    def __init__(self, **fields: Kind | Field | list[Field]) -> None:
        self._fields: Final = [(name, each) for name, found in fields.items() for each in _spans(found)]
        self.is_deep: Final = any(isinstance(each.kind, Array | Record | Nullable) for _, each in self._fields)
        self._plans: Final[dict[int, tuple[Part, ...]]] = {}

    def _plan(self, version: int) -> tuple[Part, ...]:
        """The parts of a version, from a cache."""
        plan = self._plans.get(version)
        if plan is None:
            plan = self._plans[version] = tuple(_parts(self.of(version)))
        return plan

    def of(self, version: int) -> dict[str, Kind]:
        """The fields of a version, in their order."""
        return {name: each.kind for name, each in self._fields if each.since <= version <= each.until}

    def read_steps(self, reader: Reader, form: Form) -> Generator[None, None, Values]:
        """As `read`, in slices."""
        values: Values = {}
        for names, _, struct, kind in self._plan(form.version):
            if struct is not None:
                values.update(zip(names, struct.unpack_from(reader.buffer, reader.skip(struct.size)), strict=True))
            elif isinstance(kind, Array | Record | Nullable):
                values[names[0]] = yield from kind.read_steps(reader, form)
            else:
                values[names[0]] = kind.read(reader, form)
        if form.flexible:
            values[TAGS] = reader.tag_section()
        return values

    def write_steps(self, writer: Writer, value: Any, form: Form) -> Generator[None, None, None]:
        """As `write`, in slices."""
        for names, absent, struct, kind in self._plan(form.version):
            if struct is not None:
                writer.out += struct.pack(*map(value.get, names, absent))
            elif isinstance(kind, Array | Record | Nullable):
                yield from kind.write_steps(writer, value.get(names[0], absent[0]), form)
            else:
                kind.write(writer, value.get(names[0], absent[0]), form)
        if form.flexible:
            writer.raw(value.get(TAGS, NO_TAGS))

    @property
    def absent(self) -> Values:
        """All fields at their own absent values."""
        return {}

    def read(self, reader: Reader, form: Form) -> Values:
        """The fields that the version has."""
        values: Values = {}
        for names, _, struct, kind in self._plans.get(form.version) or self._plan(form.version):
            if struct is not None:
                values.update(zip(names, struct.unpack_from(reader.buffer, reader.skip(struct.size)), strict=True))
            else:
                values[names[0]] = kind.read(reader, form)
        if form.flexible:
            values[TAGS] = reader.tag_section()
        return values

    def write(self, writer: Writer, value: Any, form: Form) -> None:
        """Append the fields that the version has; those without a value are written as absent."""
        for names, absent, struct, kind in self._plans.get(form.version) or self._plan(form.version):
            if struct is not None:
                writer.out += struct.pack(*map(value.get, names, absent))
            else:
                kind.write(writer, value.get(names[0], absent[0]), form)
        if form.flexible:
            writer.out += value.get(TAGS, NO_TAGS)


@dataclass(frozen=True, slots=True)
class Nullable:
    """A record after a byte that is 1, or -1 for null."""

    record: Record
    absent: None = None

    def read(self, reader: Reader, form: Form) -> Values | None:
        """The record, or None where the sender wrote null."""
        return self.record.read(reader, form) if INT8.read(reader, form) >= 0 else None

    def read_steps(self, reader: Reader, form: Form) -> Generator[None, None, Values | None]:
        """As `read`, in slices."""
        return (yield from self.record.read_steps(reader, form)) if INT8.read(reader, form) >= 0 else None

    def write(self, writer: Writer, value: Any, form: Form) -> None:
        """Append one."""
        at_once(self.write_steps(writer, value, form))

    def write_steps(self, writer: Writer, value: Any, form: Form) -> Generator[None, None, None]:
        """As `write`, in slices."""
        writer.i8(-1 if value is None else 1)
        if value is not None:
            yield from self.record.write_steps(writer, value, form)


def _spans(found: Kind | Field | list[Field]) -> list[Field]:
    return found if isinstance(found, list) else [found if isinstance(found, Field) else Field(found)]


def _parts(fields: dict[str, Kind]) -> Iterator[Part]:
    """Yield the fields of a version; successive numbers form one part."""
    for is_fixed, run in groupby(fields.items(), lambda field: isinstance(field[1], Fixed)):
        found = list(run)
        for some in [found] if is_fixed else [[field] for field in found]:
            names, kinds = zip(*some, strict=True)
            formats = [kind.struct.format[1:] for kind in kinds if isinstance(kind, Fixed)]
            struct = Struct(">" + "".join(formats)) if formats else None
            yield Part(names, tuple(kind.absent for kind in kinds), struct, kinds[0])


@lru_cache(maxsize=512)
def _form(version: int, flexible: bool) -> Form:
    """Return a form from a cache."""
    return Form(version, flexible)


@dataclass(frozen=True, slots=True)
class Message:
    """One API: `flexible` is its first version with tagged fields. Frames begin with their length prefix."""

    key: int
    flexible: int
    request: Record
    answer: Record

    def form(self, version: int) -> Form:
        """How this version is written."""
        return _form(version, version >= self.flexible)

    def decode_request(self, buffer: Octets, body: int, end: int, version: int) -> Values:
        """As `request_steps`, at once."""
        return at_once(self.request_steps(buffer, body, end, version))

    def request_steps(
        self, buffer: Octets, body: int, end: int, version: int, *, whole: bool = True
    ) -> Generator[None, None, Values]:
        """A client's request whose body begins at `body` (after the client id). `whole` False: bytes after its
        end are ignored, as by brokers (librdkafka's Metadata has one there). Raises `MalformedFrameError`.
        """
        reader = self.request_reader(buffer, body, end)
        values = yield from self.read_request_steps(reader, version)
        if whole:
            self._check_end(reader, version)
        return values

    def request_reader(self, buffer: Octets, body: int, end: int) -> RequestReader:
        """A cursor over a client's request whose body begins at `body`."""
        return RequestReader(buffer, body, end, limits.elements(self.key))

    def read_request_steps(self, reader: RequestReader, version: int) -> Generator[None, None, Values]:
        """As `request_steps`, with a cursor that shows afterwards what was left out and what follows the end."""
        form = self.form(version)
        reader.tags(form.flexible)
        if reader.remaining <= _SHORT_BYTES:
            return self.request.read(reader, form)
        return (yield from self.request.read_steps(reader, form))

    def answer_steps(self, version: int, correlation_id: int, values: Values) -> Generator[None, None, bytes]:
        """A whole answer frame."""
        form = self.form(version)
        writer = answer_frame(correlation_id, form.flexible and self.key != _PLAIN_HEADER)
        yield from self.answer.write_steps(writer, values, form)
        return writer.frame()

    def read_answer_steps(self, buffer: Octets, start: int, end: int, version: int) -> Generator[None, None, Values]:
        """A broker's answer frame. Raises `MalformedFrameError`."""
        reader, form = Reader(buffer, start, end), self.form(version)
        reader.skip(8)
        reader.tags(form.flexible and self.key != _PLAIN_HEADER)
        if end - start <= _SHORT_BYTES:
            values = self.answer.read(reader, form)
        else:
            values = yield from self.answer.read_steps(reader, form)
        self._check_end(reader, version)
        return values

    def write_request_steps(
        self, version: int, correlation_id: int, client_id: bytes, values: Values
    ) -> Generator[None, None, bytes]:
        """A whole request frame."""
        form = self.form(version)
        writer = request_frame(self.key, version, correlation_id, client_id, form.flexible)
        yield from self.request.write_steps(writer, values, form)
        return writer.frame()

    def decode_answer(self, buffer: Octets, start: int, end: int, version: int) -> Values:
        """As `read_answer_steps`, at once."""
        return at_once(self.read_answer_steps(buffer, start, end, version))

    def _check_end(self, reader: Reader, version: int) -> None:
        if reader.remaining:
            raise MalformedFrameError(f"{reader.remaining} bytes behind the end of api key {self.key} v{version}")

    def encode_request(self, version: int, correlation_id: int, client_id: bytes, values: Values) -> bytes:
        """As `write_request_steps`, at once."""
        return at_once(self.write_request_steps(version, correlation_id, client_id, values))

    def encode_answer(self, version: int, correlation_id: int, values: Values) -> bytes:
        """As `answer_steps`, at once."""
        return at_once(self.answer_steps(version, correlation_id, values))


def leading_text(buffer: Octets, body: int, end: int, *, flexible: bool, count: int = 1) -> tuple[str, ...]:
    """The first `count` fields, strings that must not be null, of a request whose body begins at `body`: enough to
    route a request that is forwarded unchanged. The rest is not read. Raises `MalformedFrameError`.
    """
    reader = RequestReader(buffer, body, end, limits.elements(limits.ANY_API))
    reader.tags(flexible)
    return tuple(reader.text(flexible) for _ in range(count))
