"""What a client's connection calls, and why it may take up no more requests. Neither knows how frames arrive."""

from enum import IntFlag
from typing import Protocol, TypeVar

from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request


class Pause(IntFlag):
    """Why a client's requests are not taken up; reasons add up."""

    NONE = 0
    HELD = 1
    """A request before them is being looked up, or answered as a whole."""
    UPSTREAM_FULL = 2
    """A broker does not take what is sent to it, or cannot be reached yet."""
    UNANSWERED = 4
    """Many requests have no answer yet."""
    BUDGET = 8
    """Many bytes of answers wait, or may come to wait, after an unanswered request."""
    CLIENT_FULL = 16
    """The client does not read its answers."""
    ENDING = 32
    """The node shuts down."""
    THROTTLED = 64
    """The client is over its quota."""
    AUDIENCE = 128
    """The readers of a shadow are, of which it is one."""


class Repeating(Protocol):
    """What knows a client's last request, and takes the same again without reading it anew."""

    def again(self, frame: Frame) -> bool:
        """Whether a request was taken up that came while none waits for an answer; its frame may be borrowed."""
        ...


ConnectionT_contra = TypeVar("ConnectionT_contra", contravariant=True)


class Handler(Protocol[ConnectionT_contra]):
    """What a connection calls; the gateway implements it."""

    def client_connected(self, connection: ConnectionT_contra) -> None: ...

    def request_received(self, connection: ConnectionT_contra, request: Request) -> None:
        """One request; its frame may be borrowed. Raise `RejectError` to close the connection."""
        ...

    def client_full(self, connection: ConnectionT_contra, full: bool) -> None:
        """The socket towards the client is full (or no more): pause what feeds it."""
        ...

    def client_closed(self, connection: ConnectionT_contra) -> None: ...

    def client_rejected(self, connection: ConnectionT_contra, reason: str, detail: str, *, closed: bool) -> None:
        """What the client sent makes no sense: one event for the log. `closed` False: it was answered with an error."""
        ...

    def error_answered(self, exchange: Exchange, code: int) -> None:
        """An answer carries an error code; several codes in one answer are reported one by one."""
        ...

    def exchange_done(self, exchange: Exchange, answer_bytes: int) -> None:
        """An answer was handed to the socket."""
        ...
