"""Why a frame is refused by its length, before it is received: for the log. Pure."""

from typing import Final

from sidecar.protocol import limits
from sidecar.protocol.api import api_name
from sidecar.protocol.primitives import I16

_KEY_BEHIND: Final = 6
"""Length prefix and API key."""
_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN")
_TLS: Final = b"\x16\x03"


def reason_of(size: int, head: bytes, largest: int) -> tuple[str, str]:
    """A word for the metrics and a sentence for people. `size`: what the first four bytes announce; `head`: what has
    arrived; `largest`: the frame limit of this connection, in bytes.
    """
    if head.startswith(_HTTP):
        return "http", "an HTTP request on the Kafka port"
    if head.startswith(_TLS):
        return "tls", "a TLS handshake on a plaintext Kafka port"
    if size < 0:
        return "malformed", f"a frame of {size} bytes"
    key = I16.unpack_from(head, 4)[0] if len(head) >= _KEY_BEHIND else limits.PRODUCE
    limit = limits.frame_bytes(key, largest)
    return "too_large", f"a frame of {size} bytes, the limit is {limit} for {api_name(key)}"
