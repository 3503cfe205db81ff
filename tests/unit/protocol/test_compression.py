"""Compressed records as others write them: read within a bound, refused when damaged, written in the form they had."""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aiokafka.codec
import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sidecar.protocol.codec import Codec
from sidecar.protocol.compression import compress, decompress
from sidecar.protocol.errors import ErrorCode, KafkaError
from tests.unit.protocol import kafka_python

ROOT = Path(__file__).parents[3]
TEXT = b"".join(b"line %d of the same old story\n" % number for number in range(5_000))
LIMIT = 1 << 20


def _streamed_zstd(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


ENCODERS: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "none": (Codec.NONE, bytes),
    "gzip": (Codec.GZIP, gzip.compress),
    "snappy, raw": (Codec.SNAPPY, lambda data: bytes(aiokafka.codec.snappy_encode(data, xerial_compatible=False))),
    "snappy, framed by aiokafka": (Codec.SNAPPY, aiokafka.codec.snappy_encode),
    "snappy, framed by kafka-python": (Codec.SNAPPY, kafka_python.codec.snappy_encode),
    "lz4 of aiokafka": (Codec.LZ4, aiokafka.codec.lz4_encode),
    "lz4 of kafka-python": (Codec.LZ4, kafka_python.codec.lz4_encode),
    "zstd with its size": (Codec.ZSTD, aiokafka.codec.zstd_encode),
    "zstd in a stream": (Codec.ZSTD, _streamed_zstd),
    "zstd with a checksum": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
}
COMPRESSED = [name for name, (codec, _) in ENCODERS.items() if codec]
each_encoder = pytest.mark.parametrize("name", ENCODERS)
each_compressed = pytest.mark.parametrize("name", COMPRESSED)
LZ4 = [name for name in COMPRESSED if "lz4" in name]
FRAMES = [name for name in COMPRESSED if name not in {"snappy, raw", *LZ4}]
"""Formats in which one may stand behind another."""


def encoded(name: str, data: bytes = TEXT) -> tuple[Codec, bytes]:
    codec, encode = ENCODERS[name]
    return codec, encode(data)


def refusal(codec: int, data: bytes, limit: int = LIMIT) -> int:
    with pytest.raises(KafkaError) as refused:
        decompress(codec, data, limit)
    return refused.value.code


def assert_bounded(codec: int, data: bytes | bytearray, limit: int) -> None:
    """Whatever `data` is: at most `limit` bytes, or a refusal that a client understands."""
    try:
        made = len(decompress(codec, data, limit))
    except KafkaError as refused:
        made, code = 0, refused.code
    else:
        code = ErrorCode.NONE
    assert made <= limit
    assert code in {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE}


@each_encoder
@pytest.mark.parametrize("size", [1, 100, 65_536, len(TEXT)])
def test_what_others_compress_is_read(name: str, size: int) -> None:
    codec, data = encoded(name, TEXT[:size])
    assert bytes(decompress(codec, data, LIMIT)) == TEXT[:size]
    assert bytes(decompress(codec, memoryview(bytearray(data)), LIMIT)) == TEXT[:size]


@each_encoder
def test_what_is_compressed_here_is_read_by_others_in_the_form_it_had(name: str) -> None:
    codec, like = encoded(name)
    changed = TEXT[1000:]
    data = bytes(compress(codec, memoryview(bytearray(changed)), memoryview(like)))
    readers: dict[Codec, Callable[[bytes], bytes]] = {
        Codec.NONE: bytes,
        Codec.GZIP: gzip.decompress,
        Codec.SNAPPY: kafka_python.codec.snappy_decode,
        Codec.LZ4: kafka_python.codec.lz4_decode,
        Codec.ZSTD: lambda frame: zstandard.ZstdDecompressor().decompressobj().decompress(frame),
    }
    assert readers[codec](data) == changed
    if codec == Codec.SNAPPY:
        assert (data[:8] == b"\x82SNAPPY\x00") == ("framed" in name)
        assert data[:16] == like[:16] or "framed" not in name


@pytest.mark.parametrize(
    ("codec", "dense"),
    [
        (Codec.GZIP, lambda data: gzip.compress(data, 9)),
        (Codec.LZ4, lambda data: lz4.frame.compress(data, compression_level=9, block_linked=False)),
        (Codec.ZSTD, zstandard.ZstdCompressor(level=9).compress),
    ],
)
def test_a_part_of_what_was_compressed_with_pains_is_not_larger_than_the_whole(
    codec: Codec, dense: Callable[[bytes], bytes]
) -> None:
    """Kafka refuses what is larger than the topic allows, and the whole was not."""
    dice = random.Random(1)
    words = [bytes(dice.choices(b"abcdefghijklmnop", k=dice.randrange(3, 9))) for _ in range(4_000)]
    text = b" ".join(dice.choices(words, k=40_000))
    like, part = dense(text), text[len(text) // 50 :]
    data = compress(codec, part, like)
    assert len(data) <= len(like)
    assert bytes(decompress(codec, data, LIMIT)) == part


def test_blocks_of_lz4_written_here_do_not_depend_on_one_another() -> None:
    codec, like = encoded("lz4 of aiokafka")
    assert compress(codec, TEXT, like)[4] & 0x20


@each_encoder
def test_the_limit_is_met_to_the_byte(name: str) -> None:
    codec, data = encoded(name)
    assert len(decompress(codec, data, len(TEXT))) == len(TEXT)
    assert refusal(codec, data, len(TEXT) - 1) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("name", [name for name in COMPRESSED if "zstd" in name])
def test_blocks_of_zstd_that_repeat_a_byte_or_are_stored_are_read(name: str) -> None:
    for data in (bytes(300_000), os.urandom(300_000), bytes(200_000) + os.urandom(200_000) + TEXT):
        codec, compressed = encoded(name, data)
        assert bytes(decompress(codec, compressed, LIMIT)) == data


@pytest.mark.parametrize("name", FRAMES)
def test_frames_in_a_row_are_read_as_one(name: str) -> None:
    codec, data = encoded(name)
    assert bytes(decompress(codec, data * 3, LIMIT)) == TEXT * 3
    assert refusal(codec, data * 3, len(TEXT) * 3 - 1) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("name", LZ4)
@pytest.mark.parametrize("behind", [b"garbage", bytes(100), cramjam.lz4.compress(b"another frame")], ids=len)
def test_what_stands_behind_the_first_frame_of_lz4_is_ignored_as_kafka_does(name: str, behind: bytes) -> None:
    codec, data = encoded(name)
    assert bytes(decompress(codec, data + bytes(behind), LIMIT)) == TEXT


@pytest.mark.parametrize("parts", range(8))
def test_an_lz4_frame_may_carry_checksums_and_its_size(parts: int) -> None:
    stored, block_sum, total_sum = parts & 1, bool(parts & 2), bool(parts & 4)
    frame = lz4.frame.compress(
        TEXT, block_linked=False, store_size=bool(stored), block_checksum=block_sum, content_checksum=total_sum
    )
    assert bytes(decompress(Codec.LZ4, frame + b"behind", LIMIT)) == TEXT


def test_blocks_of_lz4_that_depend_on_one_another_are_refused_as_kafka_does() -> None:
    assert refusal(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True)) == ErrorCode.CORRUPT_MESSAGE


def test_what_stands_behind_the_last_member_of_gzip_is_ignored_as_java_does() -> None:
    data = gzip.compress(TEXT)
    for behind in (b"garbage", b"\x1f", b"\x1f\x8b\x08", bytes(100), b"much more garbage than a member needs"):
        assert bytes(decompress(Codec.GZIP, data + behind, LIMIT)) == TEXT
    assert refusal(Codec.GZIP, data + data[:-1]) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("name", [name for name in COMPRESSED if name not in {"gzip", *LZ4}])
def test_garbage_behind_the_others_is_corrupt(name: str) -> None:
    codec, data = encoded(name)
    assert refusal(codec, data + b"garbage") == ErrorCode.CORRUPT_MESSAGE


@each_compressed
def test_what_is_cut_off_is_corrupt(name: str) -> None:
    codec, data = encoded(name, TEXT[:1000])  # of framed snappy one block
    for size in range(len(data)):
        if "framed" in name and size == 16:
            continue  # the framing of nothing
        assert refusal(codec, data[:size]) == ErrorCode.CORRUPT_MESSAGE, size


@each_compressed
@given(at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_changed_byte_raises_nothing_but_an_error_for_the_client(name: str, at: int, byte: int) -> None:
    codec, data = encoded(name, TEXT[:10_000])
    changed = bytearray(data)
    changed[at % len(data)] = byte
    assert_bounded(codec, changed, 20_000)


@given(codec=st.integers(1, 4), junk=st.binary(max_size=100))
def test_junk_raises_nothing_but_an_error_for_the_client(codec: int, junk: bytes) -> None:
    assert_bounded(codec, junk, 1000)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 8])
def test_a_block_of_snappy_must_fit_into_its_frame(size: int) -> None:
    framing = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    assert refusal(Codec.SNAPPY, framing + struct.pack(">i", size) + b"\x03\x08abc") == ErrorCode.CORRUPT_MESSAGE


def test_a_framing_of_snappy_that_never_was_is_corrupt() -> None:
    data = b"\x82SNAPPY\x00" + struct.pack(">ii", 0, 1) + struct.pack(">i", 5) + b"\x03\x08abc"
    assert refusal(Codec.SNAPPY, data) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_kafka_has_not_are_unsupported(codec: int) -> None:
    assert refusal(codec, b"") == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(KafkaError, match="UNSUPPORTED_COMPRESSION_TYPE"):
        compress(codec, b"", b"")


def test_cramjam_says_of_a_full_buffer_what_it_always_said() -> None:
    for module in (cramjam.lz4, cramjam.zstd):
        with pytest.raises(cramjam.DecompressionError, match=r"^failed to write whole buffer$"):
            module.decompress_into(module.compress(TEXT), bytearray(10))


# Bombs: a few KB that are 128 MB --------------------------------------------------------------------------------------

_BOMB_MB = 128
_CHILD = """
import json, sys
from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import KafkaError

def most():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))

codec, limit = int(sys.argv[1]), int(sys.argv[2])
data = sys.stdin.buffer.read()
before, code = most(), 0
try:
    decompress(codec, data, limit)
except KafkaError as refused:
    code = refused.code
print(json.dumps([code, (most() - before) // 1024]))
"""


def bomb(name: str) -> tuple[Codec, bytes]:
    if name == "zstd with a window of 128 MB":
        parameters = zstandard.ZstdCompressionParameters(window_log=27)
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        return Codec.ZSTD, stream.compress(bytes(_BOMB_MB << 20)) + stream.flush()
    if name == "many members of gzip":
        return Codec.GZIP, gzip.compress(bytes(1 << 20)) * _BOMB_MB
    if "framed" in name:
        return Codec.SNAPPY, encoded(name, bytes(1 << 20))[1] * _BOMB_MB
    return encoded(name, bytes(_BOMB_MB << 20))


def detonate(codec: Codec, data: bytes, limit: int) -> tuple[int, int]:
    """Error code and how many MiB the process grew, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(int(codec)), str(limit)],
        input=data,
        capture_output=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    code, grown = json.loads(done.stdout)
    return code, grown


BOMBS = ["gzip", "many members of gzip", "snappy, raw", "snappy, framed by aiokafka", "lz4 of kafka-python"]
BOMBS += ["zstd with its size", "zstd in a stream", "zstd with a window of 128 MB"]


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_long_before_it_has_eaten_memory(name: str) -> None:
    codec, data = bomb(name)
    code, grown = detonate(codec, data, limit=LIMIT)
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert grown < 16


def test_without_a_limit_the_bomb_would_have_eaten_it() -> None:
    code, grown = detonate(*bomb("zstd in a stream"), limit=1 << 30)
    assert code == 0
    assert grown >= _BOMB_MB


@pytest.mark.parametrize("name", ["gzip", "lz4 of kafka-python", "zstd with its size"])
def test_a_great_many_empty_frames_cost_no_more_than_their_bytes(name: str) -> None:
    codec, data = encoded(name, b"")
    many = data * (LIMIT // len(data))
    assert len(decompress(codec, many, LIMIT)) == 0


def test_members_of_gzip_that_are_larger_than_what_is_made_at_a_time_are_read_whole() -> None:
    parts = [bytes(3_000_000), b"x", random.Random(1).randbytes(700_000) + bytes(900_000), b"", b"y" * 300_000]
    data = b"".join(gzip.compress(part) for part in parts)
    assert bytes(decompress(Codec.GZIP, data, 64 * 1024 * 1024)) == b"".join(parts)
