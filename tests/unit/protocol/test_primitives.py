"""The primitive types: what is written is read again, and nothing is read beyond its frame."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.protocol.primitives import MalformedFrameError, Reader, Writer
from sidecar.protocol.schema import leading_text

_TYPES: dict[str, tuple[st.SearchStrategy[Any], str, str, tuple[bool, ...]]] = {
    "i16": (st.integers(-(2**15), 2**15 - 1), "i16", "i16", ()),
    "i32": (st.integers(-(2**31), 2**31 - 1), "i32", "i32", ()),
    "boolean": (st.booleans(), "boolean", "boolean", ()),
    "uvarint": (st.integers(0, 2**32 - 1), "uvarint", "uvarint", ()),
    "string": (st.text(max_size=300), "text", "text", ()),
    "nullable string": (st.none() | st.text(max_size=300), "text", "nullable_text", ()),
    "compact string": (st.text(max_size=300), "text", "text", (True,)),
    "compact nullable string": (st.none() | st.text(max_size=300), "text", "nullable_text", (True,)),
    "nullable bytes": (st.none() | st.binary(max_size=300), "nullable_bytes", "nullable_bytes", ()),
    "compact nullable bytes": (st.none() | st.binary(max_size=300), "nullable_bytes", "nullable_bytes", (True,)),
}
every_type = pytest.mark.parametrize("name", _TYPES)


@every_type
@given(data=st.data())
def test_a_value_is_read_as_it_was_written_and_not_from_a_part_of_it(name: str, data: st.DataObject) -> None:
    values, write, read, form = _TYPES[name]
    value = data.draw(values)
    writer = Writer()
    getattr(writer, write)(value, *form)
    written = writer.finish()
    reader = Reader(b"front" + written + b"behind", 5, 5 + len(written))
    assert getattr(reader, read)(*form) == value
    assert reader.remaining == 0
    for size in range(len(written)):
        with pytest.raises(MalformedFrameError):
            getattr(Reader(written, 0, size), read)(*form)


@every_type
@given(junk=st.binary(max_size=20))
def test_junk_raises_nothing_but_malformed(name: str, junk: bytes) -> None:
    reader = Reader(junk)
    with contextlib.suppress(MalformedFrameError):
        getattr(reader, _TYPES[name][2])(*_TYPES[name][3])
    assert 0 <= reader.position <= len(junk)


@given(count=st.integers(0, 20), flexible=st.booleans())
def test_an_array_is_as_long_as_it_says(count: int, flexible: bool) -> None:
    writer = Writer()
    writer.array(count, flexible)
    reader = Reader(writer.finish() + bytes(count))
    assert reader.array(flexible) == count
    if count:
        with pytest.raises(MalformedFrameError, match=f"a collection of {count} elements, {count - 1} bytes left"):
            Reader(writer.finish() + bytes(count - 1)).array(flexible)
        with pytest.raises(MalformedFrameError):
            Reader(writer.finish() + bytes(4 * count - 1)).array(flexible, element_bytes=4)


@pytest.mark.parametrize("flexible", [False, True])
def test_a_null_array_is_told_apart_only_where_that_matters(flexible: bool) -> None:
    writer = Writer()
    writer.array(-1, flexible)
    assert Reader(writer.finish()).nullable_array(flexible) == -1
    assert Reader(writer.finish()).array(flexible) == 0


@pytest.mark.parametrize(
    "written",
    [b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00", b"\x7f\xff\xff\xff"],
    ids=["minus two", "the least", "the largest"],
)
def test_lengths_that_cannot_be_are_malformed(written: bytes) -> None:
    for read in ("array", "nullable_array", "nullable_bytes"):
        with pytest.raises(MalformedFrameError):
            getattr(Reader(written + bytes(100)), read)()


def test_a_varint_of_more_than_32_bits_is_malformed() -> None:
    for written in (b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\xff\x01", b"\x80" * 10):
        with pytest.raises(MalformedFrameError, match="more than 32 bits"):
            Reader(written).uvarint()


def test_null_where_a_string_must_be_is_malformed() -> None:
    with pytest.raises(MalformedFrameError, match="null"):
        Reader(b"\xff\xff").text()
    with pytest.raises(MalformedFrameError, match="null"):
        Reader(b"\x00").text(True)


def test_a_string_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedFrameError, match="UTF-8"):
        Reader(b"\x00\x02\xc3\x28").text()


@given(tags=st.dictionaries(st.integers(0, 2**31), st.binary(max_size=200), max_size=4))
def test_tagged_fields_are_stepped_over(tags: dict[int, bytes]) -> None:
    writer = Writer()
    writer.uvarint(len(tags))
    for tag, value in sorted(tags.items()):
        writer.uvarint(tag)
        writer.uvarint(len(value))
        writer.raw(value)
    written = writer.finish()
    reader = Reader(written + b"behind")
    reader.skip_tags()
    assert reader.position == len(written)
    for size in range(len(written)):
        with pytest.raises(MalformedFrameError):
            Reader(written, 0, size).skip_tags()


def test_more_tags_than_the_frame_can_hold_are_malformed() -> None:
    with pytest.raises(MalformedFrameError, match="tagged fields"):
        Reader(b"\xff\xff\xff\xff\x0f" + bytes(100)).skip_tags()


@given(
    texts=st.lists(st.text(max_size=200), min_size=1, max_size=3), flexible=st.booleans(), rest=st.binary(max_size=9)
)
def test_leading_strings_are_read_and_nothing_behind_them(texts: list[str], flexible: bool, rest: bytes) -> None:
    writer = Writer()
    writer.tags(flexible)
    for text in texts:
        writer.text(text, flexible)
    written = writer.finish()
    whole = written + rest
    assert leading_text(whole, 0, len(whole), flexible=flexible, count=len(texts)) == tuple(texts)
    for size in range(len(written)):
        with pytest.raises(MalformedFrameError):
            leading_text(whole, 0, size, flexible=flexible, count=len(texts))
