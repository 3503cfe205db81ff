import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from sidecar.telemetry.logs import configure


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging is a matter of the whole process: leave it as it was, and begin without what others left of it. Where
    warnings are captured already, pytest may have taken them back since.
    """
    logging.captureWarnings(capture=False)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers, root.level = handlers, level


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_with_time_level_name_node_and_fields():
    out = io.StringIO()
    configure("info", "json", node_id=3, stream=out)
    structlog.get_logger().info("client_rejected", peer="10.0.0.1:5", reason="a\nb", address=("h", 1))
    (event,) = events(out)
    assert list(event)[:3] == ["ts", "level", "event"]
    assert event["ts"].endswith("Z")
    assert (event["level"], event["event"], event["node"]) == ("info", "client_rejected", 3)
    assert (event["peer"], event["reason"], event["address"]) == ("10.0.0.1:5", "a\nb", ["h", 1])


def test_nothing_that_a_stranger_says_ends_a_line_or_reaches_a_terminal():
    said = "a\n\x1b[2J\x85b\x9b2J\u2028c\u202e\u200f\ufeff\ud800 \U0001f600 é"
    for form in ("json", "console"):
        out = io.StringIO()
        configure("info", form, stream=out)
        structlog.get_logger().warning("audit", who=said, on=(said, {"by": said}))
        line = out.getvalue().removesuffix("\n")
        assert len(line.splitlines()) == 1
        assert line.isprintable()
        if form == "json":
            assert json.loads(line)["who"] == said
            assert "\U0001f600 é" in line


@pytest.mark.parametrize("said", ["\x9b2J", "\u202eevil", "\u2028x", "\x1b]0;x\x07", "\ud800"])
def test_no_single_control_character_reaches_a_terminal(said: str):
    out = Terminal()
    configure("info", "console", stream=out)
    structlog.get_logger().warning("audit", who=said, exc_info=ValueError(said))
    logging.getLogger("lib").warning(said)
    ours = re.sub(r"\x1b\[[0-9]+m", "", out.getvalue())
    assert "ValueError" in ours
    assert all(line.isprintable() for line in ours.split("\n"))


def test_events_below_the_level_are_not_written():
    out = io.StringIO()
    configure("warning", "json", stream=out)
    log = structlog.get_logger()
    log.info("no")
    log.warning("yes")
    assert [event["event"] for event in events(out)] == ["yes"]


def test_an_exception_stands_in_its_event():
    out = io.StringIO()
    configure("info", "json", stream=out)
    log = structlog.get_logger()
    try:
        raise ValueError("inside")
    except ValueError as error:
        log.exception("first")
        log.warning("second", exc_info=error)
    log.info("third", exc_info=True)  # noqa: LOG014 - what somebody may write by mistake
    first, second, third = events(out)
    assert "ValueError: inside" in first["exception"]
    assert first["exception"] == second["exception"]
    assert "exception" not in third


def test_libraries_and_warnings_take_the_same_way():
    out = io.StringIO()
    configure("info", "json", stream=out)
    logging.getLogger("asyncio").error("Task %s was never retrieved", "x", exc_info=ValueError("inside"))
    logging.getLogger("aiohttp").info("chatter")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    error, warning = events(out)
    assert (error["logger"], error["message"]) == ("asyncio", "Task x was never retrieved")
    assert "ValueError: inside" in error["exception"]
    assert "DeprecationWarning: old" in warning["message"]


@pytest.mark.parametrize(
    ("form", "stream", "json_expected"),
    [
        ("auto", io.StringIO, True),
        ("auto", Terminal, False),
        ("json", Terminal, True),
        ("console", io.StringIO, False),
    ],
)
def test_a_terminal_gets_text_and_everything_else_json(form: str, stream: type[io.StringIO], json_expected: bool):
    out = stream()
    configure("info", form, stream=out)
    structlog.get_logger().info("serving", port=1)
    assert out.getvalue().startswith("{") == json_expected
    assert "serving" in out.getvalue()


def test_color_is_for_terminals_whose_owner_wants_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    colored, plain, piped = Terminal(), Terminal(), io.StringIO()
    configure("info", "console", stream=colored)
    structlog.get_logger().info("serving")
    configure("info", "console", stream=piped)
    structlog.get_logger().info("serving")
    monkeypatch.setenv("NO_COLOR", "1")
    configure("info", "console", stream=plain)
    structlog.get_logger().info("serving")
    assert "\x1b[" in colored.getvalue()
    assert "\x1b[" not in plain.getvalue() + piped.getvalue()


def test_a_reader_that_went_away_does_not_stop_anybody():
    out = io.StringIO()
    configure("info", "json", stream=out)
    log = structlog.get_logger()
    out.close()
    log.info("into_the_void")
