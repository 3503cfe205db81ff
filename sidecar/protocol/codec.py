"""The codecs of a batch (KIP-98), and the error for records that are too large when decompressed."""

from enum import IntEnum

from sidecar.protocol.errors import ErrorCode, KafkaError


class Codec(IntEnum):
    """Names as in `org.apache.kafka.common.record.CompressionType`; the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def too_large(limit: int) -> KafkaError:
    """Error 10, for records of more than `limit` bytes."""
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"more than {limit} bytes of records when decompressed")
