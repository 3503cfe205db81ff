"""A client's request: its frame and header, and the place of its answer among the connection's answers."""

from time import perf_counter
from typing import ClassVar, Protocol

from sidecar.network.framing import Frame
from sidecar.network.turn import TURN
from sidecar.protocol.primitives import Octets, without_tags


class Request:
    """One request and its fixed header. `body` is the offset after the client id in the frame's buffer. `is_read`:
    whether the node has read each byte of it as Kafka does, so that it may be forwarded unchanged.

    The frame may be borrowed (see `sidecar.network`): code that stores the request beyond the callback calls `own`
    first.
    """

    __slots__ = ("body", "client_id", "correlation_id", "frame", "is_read", "key", "version")

    def __init__(self, key: int, version: int, correlation_id: int, client_id: bytes, frame: Frame, body: int) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.frame = frame
        self.body = body
        self.is_read = False

    def drop_tags(self, sections: list[tuple[int, int]], end: int | None = None) -> None:
        """Replace the frame by a copy in which these sections of tagged fields are empty, and which ends at `end` (by
        default, as before).
        """
        frame = self.frame
        data = without_tags(frame.buffer, frame.start, frame.end if end is None else end, sections)
        self.body -= frame.start
        self.frame = Frame(data, 0, len(data), True)

    def own(self) -> int:
        """Copy a borrowed frame into its own memory. Returns the number (0 or less) to add to positions in the frame
        that were found before.
        """
        frame = self.frame
        owned = frame.own()
        if owned is frame:
            return 0
        self.frame = owned
        self.body -= frame.start
        return -frame.start


class RejectError(Exception):
    """The request cannot be answered within the protocol: the connection is closed, as a broker does."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Connection(Protocol):
    """A client's connection, as the code that answers its requests sees it
    (`sidecar.network.client.ClientConnection`).
    """

    id: int
    peer: str
    closed: bool

    def answer_ready(self, exchange: "Exchange") -> None:
        """An exchange has its answer, which is written when its turn comes."""
        ...

    def forward_now(self, exchange: "Exchange", frame: Frame, head: Octets = b"") -> bool:
        """Write `head` and a broker's answer at once. Returns False if it is not this exchange's turn."""
        ...

    def error_answered(self, exchange: "Exchange", code: int) -> None:
        """An answer carries an error code."""
        ...

    def report(self, reason: str, detail: str) -> None:
        """Report input that is answered with an error, once per connection and reason."""
        ...

    def close(self) -> None:
        """Close after the answers written so far."""
        ...


class Exchange:
    """A request and the place of its answer. Rooms above derive from it to keep what they need until the answer comes.

    `weight`: bytes that the answer may have, if that can be many; once the answer waits for its turn, its size.
    `answer_bytes`: size of the answer. `parts`: the answer, from `answered` on until it is written. `started`: when the
    request was read, in seconds of `perf_counter`. `upstream`: seconds for which the node waited for the broker whose
    answer completed this one; infinite if that was the whole time.
    """

    __slots__ = (
        "answer_bytes",
        "answered",
        "client_id",
        "connection",
        "correlation_id",
        "key",
        "parts",
        "request_bytes",
        "started",
        "upstream",
        "version",
        "weight",
    )
    is_patient: ClassVar[bool] = False
    """Whether the answer may wait longer than the client asked, until the client sends another request: see `hurry`."""

    def __init__(self, connection: Connection, request: Request) -> None:
        self.connection = connection
        self.key = request.key
        self.version = request.version
        self.correlation_id = request.correlation_id
        self.client_id = request.client_id
        frame = request.frame
        self.request_bytes = frame.end - frame.start
        self.started = TURN.began if TURN.running else perf_counter()
        self.upstream = 0.0
        self.answered = False
        self.weight = self.answer_bytes = 0
        self.parts: list[Octets] | None = None

    def renew(self, correlation_id: int) -> None:
        """Use this exchange for a repetition of the same request, after the client has its answer."""
        self.correlation_id = correlation_id
        self.started = TURN.began if TURN.running else perf_counter()
        self.upstream = 0.0
        self.answered = False

    def answer(self, parts: list[Octets]) -> None:
        """Set the whole answer, length prefix included. A second answer is a bug."""
        assert not self.answered, "answered twice"
        self.answered = True
        if TURN.waited > self.upstream:  # noqa: PLR1730 - calling max() takes longer
            self.upstream = TURN.waited
        self.parts = parts
        self.answer_bytes = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        self.connection.answer_ready(self)

    def hurry(self) -> None:
        """The client sent another request, which is answered after this one: wait no longer than the client asked."""

    def note_error(self, code: int) -> None:
        """Report that the answer carries an error code."""
        self.connection.error_answered(self, code)

    def answer_frame(self, frame: Frame) -> None:
        """Answer with a broker's frame, unchanged."""
        assert not self.answered, "answered twice"
        self.answered = True
        self.upstream = TURN.waited
        if not self.connection.forward_now(self, frame):
            self.replace_answer([frame.own().buffer] if not frame.owned else [frame.view(frame.start, frame.end)])
            self.connection.answer_ready(self)

    def answer_behind(self, head: Octets, frame: Frame, rest: int) -> None:
        """Answer with a head of this node's own and a broker's answer from `rest` on."""
        assert not self.answered, "answered twice"
        self.answered = True
        self.upstream = TURN.waited
        tail = Frame(frame.buffer, rest, frame.end, frame.owned)
        if not self.connection.forward_now(self, tail, head):
            tail = tail.own()
            self.replace_answer([head, tail.view(tail.start, tail.end)])
            self.connection.answer_ready(self)

    def replace_answer(self, parts: list[Octets]) -> None:
        """Replace an answer that has not been written yet."""
        assert self.answered, "not answered yet"
        self.parts = parts
        self.answer_bytes = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
