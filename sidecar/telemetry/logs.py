"""Structured logs on stderr: one event per line, a name in snake_case and fields. JSON for machines, colour for people.

Events of the standard library's `logging` (asyncio, aiohttp) and warnings take the same way. A log that cannot be
written is lost in silence: nobody's request fails because the reader of stderr went away.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, TextIO

import structlog

from sidecar.telemetry.seldom import Seldom

Event = MutableMapping[str, Any]
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

_UNSAFE: Final = re.compile(
    "[\\x7f-\\x9f\\xad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ud800-\\udfff\\ufeff]"
)
"""What JSON leaves as it is, although some programs end a line there, or obey it: controls of terminals, separators of
lines and paragraphs, directions of writing.
"""
_PASSED_ON: Final = "python_log"
_ALIKE: Final = 20
"""Events of one logger with one text that are written within five seconds."""


def configure(level: str, form: str, *, node_id: int | None = None, stream: TextIO | None = None) -> None:
    """Set up `structlog` and `logging` for this process; may be repeated.

    `level`: the lowest to write (debug, info, warning, error). `form`: json, console or auto; auto is console where
    `stream` (stderr) is a terminal, JSON elsewhere. `node_id` stands in every event as `node`.
    """
    out = sys.stderr if stream is None else stream
    number = logging.getLevelNamesMapping()[level.upper()]
    fixed = {} if node_id is None else {"node": node_id}
    render = _console(out) if form == "console" or (form == "auto" and out.isatty()) else _as_json

    def add_fixed(_logger: object, method: str, event: Event) -> Event:
        return {"ts": _now(), "level": method, **fixed, **event}

    structlog.configure(
        processors=[add_fixed, render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Lines(out),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_PassOn()], level=max(number, logging.WARNING), force=True)
    logging.captureWarnings(capture=True)


class _Lines:
    """What structlog writes to. Its methods are named after the levels."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):  # the other end is gone, or the file closed
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


class _PassOn(logging.Handler):
    """Makes an event of what libraries write to `logging`; the text stands in `message`. Clients can trigger these, so
    similar ones are limited to 20 in five seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._events = Seldom()

    def emit(self, record: logging.LogRecord) -> None:
        left_out = self._events.ask(f"{record.name} {str(record.msg)[:100]}", _ALIKE)
        if left_out is None:
            return
        logger = structlog.get_logger().bind(left_out=left_out) if left_out else structlog.get_logger()
        level = min(record.levelno, logging.ERROR)
        logger.log(level, _PASSED_ON, logger=record.name, message=record.getMessage(), exc_info=record.exc_info or None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _as_json(_logger: object, _method: str, event: Event) -> str:
    failure = _failure(event.pop("exc_info", None))
    if failure is not None:
        event["exception"] = "".join(traceback.format_exception(*failure))
    head = {key: event.pop(key) for key in ("ts", "level", "event")}
    line = json.dumps({**head, **event}, default=str, ensure_ascii=False)
    return line if line.isprintable() else _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def _failure(exc_info: Any) -> ExcInfo | None:
    """What structlog takes: an exception, the triple of `sys.exc_info`, or True for the one being handled."""
    if isinstance(exc_info, BaseException):
        return type(exc_info), exc_info, exc_info.__traceback__
    found = sys.exc_info() if exc_info is True else exc_info
    return found if found and found[0] is not None else None


def _console(stream: TextIO) -> Callable[[Any, str, Event], str]:
    colors = stream.isatty() and not os.environ.get("NO_COLOR")
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        timestamp_key="ts",
        pad_event_to=24,
        exception_formatter=_harmless_traceback,
    )

    def render(logger: Any, method: str, event: Event) -> str:
        harmless = {key: _harmless(each) if isinstance(each, str) else each for key, each in event.items()}
        return renderer(logger, method, harmless)

    return render


def _harmless_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    """Plain, as the pretty one shows local variables, so secrets too; its message may be a stranger's."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    stream.write("\n".join(map(_harmless, text.getvalue().split("\n"))))


def _harmless(text: str) -> str:
    """In one line and without a word to a terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
