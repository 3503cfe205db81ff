"""The records section of a v2 batch, decompressed and compressed by the codec in the batch's attributes (KIP-98).

What is not compressed costs nothing here: the libraries behind `sidecar.protocol.codecs` are loaded with the first
compressed batch, and many a node never sees one that it has to look into.
"""

from sidecar.protocol.codec import too_large
from sidecar.protocol.primitives import Octets


def decompress(codec: int, data: Octets, limit: int) -> Octets:
    """The bytes after `data`, at most `limit` of them; where nothing is compressed, `data` itself. `codec` is 0 to 7.

    Less than twice `limit` bytes are held meanwhile, plus the codec's own window (zstd: up to 128 MiB are reserved, and
    touched as far as `limit`). Members and frames in a row are read as one (gzip, zstd, snappy in Java's framing), but
    of lz4 the first frame alone, as Kafka's `Lz4BlockInputStream` does. What stands after the last one is ignored in
    gzip, as `java.util.zip.GZIPInputStream` and librdkafka do, and in lz4; with zstd and snappy it is an error.

    Raises `KafkaError`: 2 for what is damaged or cut off, 10 for more than `limit` bytes, 76 for an unknown codec.
    """
    if not codec:
        if len(data) > limit:
            raise too_large(limit)
        return data
    from sidecar.protocol import codecs  # noqa: PLC0415 - two libraries, 2 MB: see above

    return codecs.decompress(codec, data, limit)


def compress(codec: int, data: Octets, like: Octets) -> Octets:
    """`data` by the same codec and in the same form as `like`, the compressed records of the batch it comes from.

    Snappy is raw or framed as `like` is. Levels are the fast ones, and higher where the result is larger than `like`,
    as its client may have taken pains to stay below a topic's largest size. Lz4 blocks are independent of one another,
    as Kafka demands (KIP-57). Raises `KafkaError` 76 for an unknown codec.
    """
    if not codec:
        return data
    from sidecar.protocol import codecs  # noqa: PLC0415 - as above

    return codecs.compress(codec, data, like)
