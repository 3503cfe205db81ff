"""Read the leading strings of a request and nothing else: enough to route it, while its bytes go on as they came."""

from sidecar.protocol import limits
from sidecar.protocol.primitives import Octets, RequestReader


def leading_text(buffer: Octets, body: int, end: int, *, flexible: bool, count: int = 1) -> tuple[str, ...]:
    """The first `count` fields, strings that must not be null, of a request whose body begins at `body`.

    What follows is not looked at. Raises `MalformedFrameError`.
    """
    reader = RequestReader(buffer, body, end, limits.elements(limits.ANY_API))
    reader.tags(flexible)
    return tuple(reader.text(flexible) for _ in range(count))
