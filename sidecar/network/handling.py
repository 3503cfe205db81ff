"""The interface that a client's connection calls, and the reasons to pause it. Neither depends on how frames arrive."""

from enum import IntFlag
from typing import Protocol, TypeVar

from sidecar.network.framing import Frame, Framer
from sidecar.network.request import Exchange, Request
from sidecar.protocol.primitives import Octets


class Pause(IntFlag):
    """Why a client's requests are not dispatched; several reasons may apply together."""

    NONE = 0
    HELD = 1
    """A request before them needs a lookup, or must be answered before the next one starts."""
    UPSTREAM_FULL = 2
    """A broker's connection is full, or not open yet."""
    UNANSWERED = 4
    """Many requests have no answer yet."""
    BUDGET = 8
    """The answers after an unanswered request have, or may have, too many bytes."""
    CLIENT_FULL = 16
    """The client does not read its answers."""
    ENDING = 32
    """The node is shutting down."""
    THROTTLED = 64
    """The client is over its quota."""
    AUDIENCE = 128
    """The readers of a shadow, to which this client belongs, are over their common quota."""


class Repeating(Protocol):
    """Recognizes a repetition of a client's last request and handles it without parsing it again."""

    def again(self, frame: Frame) -> bool:
        """Return whether it handled this request. Called only while no request is unanswered; the frame may be
        borrowed.
        """
        ...


class Usual(Protocol):
    """Handles requests that are like earlier ones of its client, without looking at each by itself."""

    def take(self, framer: Framer, most: int) -> int:
        """Handle the next requests, at most `most`, up to the first that is not usual, and take them from the framer's
        `rest`. Returns how many. Called only while no earlier request waits.
        """
        ...


class Meter(Protocol):
    """Counts the traffic of a connection whose client has quotas."""

    def expected(self, exchange: Exchange) -> None:
        """Count a request that will be answered. Requests behind it are not read while the client is over a quota."""
        ...

    def answered(self, exchange: Exchange) -> None:
        """Count an answer before it is written, and write the throttle time into it."""
        ...

    def forwarded(self, exchange: Exchange, frame: Frame, head: Octets) -> Frame | None:
        """As `answered`, for a broker's frame behind a head of the node. Returns the frame to write for both; None if
        they stay as they are.
        """
        ...

    def unanswered(self, request: Request, as_node: int) -> None:
        """Count a request that gets no answer. `as_node`: how many of its bytes the node sends on in its own name."""
        ...


ConnectionT_contra = TypeVar("ConnectionT_contra", contravariant=True)


class Handler(Protocol[ConnectionT_contra]):
    """The interface that a connection calls; the gateway implements it."""

    def client_connected(self, connection: ConnectionT_contra) -> None: ...

    def request_received(self, connection: ConnectionT_contra, request: Request) -> None:
        """Handle one request; its frame may be borrowed. Raise `RejectError` to close the connection."""
        ...

    def client_full(self, connection: ConnectionT_contra, full: bool) -> None:
        """The socket towards the client is full, or no longer full: pause or resume its sources."""
        ...

    def client_closed(self, connection: ConnectionT_contra) -> None: ...

    def client_rejected(self, connection: ConnectionT_contra, reason: str, detail: str, *, closed: bool) -> None:
        """The client sent invalid input: log one event. `closed` False: the input was answered with an error."""
        ...

    def error_answered(self, exchange: Exchange, code: int) -> None:
        """An answer has an error code; called once for each code of an answer."""
        ...

    def exchange_done(self, exchange: Exchange, answer_bytes: int) -> None:
        """An answer was handed to the socket."""
        ...
