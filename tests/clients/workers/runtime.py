"""What every Python worker has in common: it reads cells from stdin, runs the scenario of each and answers on stdout.

A worker is a process of its own, as an application would be: one client library, no warnings turned into errors, and
nothing shared with the tests but lines of JSON. It never decides whether a result is good enough: it says what
happened.

Lines in: a cell (`Cell.from_line`), or `{"go": true}` while a scenario holds still to have its sockets looked at.
Lines out: `{"ready": version, "features": […]}` once, then per cell `{"outcome": "ok" | "n/a" | "failed",
"detail", "trace"}`, and `{"hold": true}` where a scenario asks to be looked at.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

from ..absences import ABSENCES

T = TypeVar("T")


class MismatchError(AssertionError):
    """What the client did is not what the scenario asks of it."""


def check(condition: object, message: str) -> None:
    """Raise `MismatchError` with `message` unless `condition` holds."""
    if not condition:
        raise MismatchError(message)


def same(actual: object, expected: object, what: str) -> None:
    """Raise `MismatchError` unless both are equal; long values are cut in the message."""
    if actual != expected:
        raise MismatchError(f"{what}: {_short(actual)} instead of {_short(expected)}")


def _short(value: object, limit: int = 600) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def until(what: str, look: Callable[[], T], *, within_s: float = 20.0, every_s: float = 0.05) -> T:
    """Call `look` until it returns something true, and return that.

    Raises:
        MismatchError: nothing true within `within_s` seconds; the last value is in the message.
    """
    deadline = time.monotonic() + within_s
    while True:
        value = look()
        if value:
            return value
        if time.monotonic() > deadline:
            raise MismatchError(f"{what}: not within {within_s:g} s; last seen {_short(value)}")
        time.sleep(every_s)


async def until_async(
    what: str, look: Callable[[], Awaitable[T]], *, within_s: float = 20.0, every_s: float = 0.05
) -> T:
    """`until` for coroutines."""
    deadline = time.monotonic() + within_s
    while True:
        value = await look()
        if value:
            return value
        if time.monotonic() > deadline:
            raise MismatchError(f"{what}: not within {within_s:g} s; last seen {_short(value)}")
        await asyncio.sleep(every_s)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell to run: what, against which cluster, under which names.

    `nodes` are the `host:port` a client may know and talk to: the nodes' when going through nodes, else the brokers'.
    `secured` is whether the brokers have an authorizer: without one, Kafka itself refuses all that has to do with ACLs.
    """

    client: str
    feature: str
    bootstrap: str
    nodes: frozenset[str]
    prefix: str
    secured: bool
    hold: Callable[[], None]

    def name(self, suffix: str = "") -> str:
        """A topic, group or principal name that no other cell and no other run uses."""
        return f"{self.prefix}.{suffix}" if suffix else self.prefix

    def argument(self, index: int = -1) -> str:
        """A part of the feature's name: `gzip` of `compression-gzip`."""
        return self.feature.split("-")[index]

    def only_nodes(self, addresses: Iterable[str], where: str) -> None:
        """Check that the client learned of at least one address there, and of none but the nodes'."""
        found = set(addresses)
        check(found, f"{where} names no address at all")
        check(found <= self.nodes, f"{where} names {sorted(found - self.nodes)}; the nodes are {sorted(self.nodes)}")


Answer = str | None
Scenario = Callable[[Cell], Answer | Awaitable[Answer]]
S = TypeVar("S", bound=Scenario)


class Scenarios:
    """The scenarios of one client, by feature."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.by_feature: dict[str, Scenario] = {}
        self.jars: Sequence[Path] = ()

    def __call__(self, *features: str) -> Callable[[S], S]:
        """Register a function, or a coroutine function, as what the client does for these features."""

        def register(scenario: S) -> S:
            for feature in features:
                if feature in self.by_feature:
                    raise ValueError(f"{self.client} has two scenarios for {feature}")
                self.by_feature[feature] = scenario
            return scenario

        return register

    def run(self, cell: Cell) -> dict[str, object]:
        """Run one cell and say what came of it; never raises for what a client does."""
        try:
            if absence := ABSENCES.get((self.client, cell.feature)):
                absence.evidence.verify(self.jars)
                return {"outcome": "n/a", "detail": absence.reason}
            answer = self.by_feature[cell.feature](cell)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  what a client does is the answer
            return {
                "outcome": "failed",
                "detail": f"{type(error).__name__}: {error}",
                "trace": "".join(traceback.format_exception(error)),
            }
        return {"outcome": "ok", "detail": answer or ""}


async def _awaited(answer: Awaitable[Answer]) -> Answer:
    return await answer


def arguments() -> dict[str, Any]:
    """What the worker was started with: `jars`, paths of the Java client; `tools`, the command of their JVM."""
    return json.loads(sys.argv[1])


def serve(scenarios: Scenarios, version: str) -> None:
    """Answer cells until stdin ends. What the libraries print goes to stderr: stdout holds the protocol alone."""
    scenarios.jars = [Path(path) for path in arguments()["jars"]]
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    say({"ready": version, "features": sorted(scenarios.by_feature)})
    while line := sys.stdin.readline():
        say(scenarios.run(_cell(scenarios.client, json.loads(line), say, sys.stdin)))


def _cell(client: str, asked: dict[str, Any], say: Callable[[dict[str, Any]], None], replies: TextIO) -> Cell:
    def hold() -> None:
        say({"hold": True})
        if not json.loads(replies.readline()).get("go"):
            raise MismatchError("told to stop while holding still")

    return Cell(
        client=client,
        feature=asked["feature"],
        bootstrap=asked["bootstrap"],
        nodes=frozenset(asked["nodes"]),
        prefix=asked["prefix"],
        secured=asked["secured"],
        hold=hold,
    )
