"""The records section of a v2 batch, decompressed and compressed by the codec in the batch's attributes (KIP-98).

Uncompressed records cost nothing here: the libraries of `sidecar.protocol.codecs` are loaded with the first compressed
batch, and many nodes never have to decompress one.
"""

from sidecar.protocol.codec import too_large
from sidecar.protocol.primitives import Octets


def decompress(codec: int, data: Octets, limit: int) -> Octets:
    """Return `data` decompressed, at most `limit` bytes; without compression, `data` itself. `codec` is 0 to 7.

    Meanwhile less than twice `limit` bytes are in use, plus the codec's own window (zstd reserves up to 128 MiB and
    uses at most `limit` of them). Successive members or frames are read as one (gzip, zstd, snappy in Java's framing);
    of lz4 only the first frame is read, as in Kafka's `Lz4BlockInputStream`. Bytes after the last one are ignored in
    gzip, as in `java.util.zip.GZIPInputStream` and librdkafka, and in lz4; in zstd and snappy they are an error.

    Raises `KafkaError`: 2 for damaged or cut-off data, 10 for more than `limit` bytes, 76 for an unknown codec.
    """
    if not codec:
        if len(data) > limit:
            raise too_large(limit)
        return data
    from sidecar.protocol import codecs  # noqa: PLC0415 - two libraries, 2 MB: see above

    return codecs.decompress(codec, data, limit)


def compress(codec: int, data: Octets, like: Octets) -> Octets:
    """Compress `data` with the same codec and in the same form as `like`, the compressed records of its batch.

    Snappy is raw or framed as `like` is. The level is a fast one, and a higher one if the result is larger than `like`:
    the client may have chosen its level to stay below the topic's largest batch. Lz4 blocks are independent of each
    other, as Kafka requires (KIP-57). Raises `KafkaError` 76 for an unknown codec.
    """
    if not codec:
        return data
    from sidecar.protocol import codecs  # noqa: PLC0415 - as above

    return codecs.compress(codec, data, like)
