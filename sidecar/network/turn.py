"""What one turn of the event loop does together: it handles the frames of one read, then writes all their output.

Writing per turn instead of per frame is worth a factor of six at a pipelining depth of eight.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, Protocol


class Flushed(Protocol):
    """The data to be written to one transport (`framing.Outbox`)."""

    def flush(self) -> None: ...


@dataclass(slots=True, eq=False)
class Turn:
    """The outboxes that this turn of the event loop has filled.

    `began`: when this turn's data was read, in seconds of `perf_counter`; one look at the clock for all of it.
    `waited`: seconds for which the node waited for the broker's answer that is being handled; 0.0 if there is none.
    `elements`: the extra cost of this read's requests, in array elements (10 µs each). `opened`: bytes of their records
    that were read. `cut`: how often since the start a connection gave up its turn although it had requests left.
    """

    running: bool = False
    began: float = 0.0
    waited: float = 0.0
    elements: int = 0
    opened: int = 0
    cut: int = 0
    _actions: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    _dirty: list[Flushed] = field(default_factory=list[Flushed])
    _notes: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=list[Any])
    _scheduled: bool = False

    def begin(self) -> None:
        self.running = True
        self.elements = self.opened = 0
        self.began = perf_counter()

    def end(self) -> None:
        """Flush the output of one read's frames. Errors go to the loop's handler: they may be another connection's."""
        self.waited = 0.0
        while self._actions:
            actions, self._actions = self._actions, []
            for action in actions:
                try:
                    action()
                except Exception as error:  # noqa: BLE001
                    _failed(error)
        self.running = False
        if self._dirty:
            dirty, self._dirty = self._dirty, []
            for outbox in dirty:
                try:
                    outbox.flush()
                except Exception as error:  # noqa: BLE001
                    _failed(error)
        if self._notes:
            notes, self._notes = self._notes, []
            for note, found in notes:
                note(*found)

    def note(self, note: Callable[..., None], found: tuple[Any, ...]) -> None:
        """Call `note` (metrics, logs) after the output of this read's frames is written, as no client waits for it.
        `note` must not raise.
        """
        if self.running:
            self._notes.append((note, found))
        else:
            note(*found)

    def at_end(self, action: Callable[[], None]) -> None:
        """Call `action` when all frames of this read are handled, before their output is flushed."""
        if self.running:
            self._actions.append(action)
        else:
            asyncio.get_running_loop().call_soon(self.run, action)

    def run(self, action: Callable[[], None]) -> None:
        """Run `action` as a separate turn: its output is flushed at once. Inside a turn it is part of that turn."""
        if self.running:
            action()
            return
        self.begin()
        try:
            action()
        finally:
            self.end()

    def touched(self, outbox: Flushed) -> None:
        """Remember an outbox to flush at the end of the turn; outside a read, in the next step of the loop."""
        self._dirty.append(outbox)
        if not self.running and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._scheduled = False
        self.end()


def _failed(error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": "the end of a turn failed", "exception": error})


TURN: Final = Turn()
