"""Shared code of the demo and the load generator: settings from the environment, topics, and a check of progress.

If a part makes no progress for a minute, the program ends with 1, so that its container restarts. Meanwhile a file is
not updated, and the container's health check, `python progress.py`, fails.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

STILL_S: Final = 60.0
FRESH_S: Final = 15.0
AGAIN_S: Final = 1.0
CREATED_LOOKS: Final = 100
RETENTION: Final = {
    "retention.bytes": str(64 * 1024 * 1024),
    "retention.ms": str(60 * 60 * 1000),
    "segment.bytes": str(16 * 1024 * 1024),
}
"""Per partition, so that a forgotten demo does not fill the disk."""


def tell(line: str) -> None:
    """A line of output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def refuse(problem: str) -> NoReturn:
    """End with 2: nothing was begun."""
    sys.stderr.write(problem + "\n")
    sys.exit(2)


def number(name: str, default: float, least: float, most: float) -> float:
    """The environment variable `name` as a number within bounds; empty counts as not set. Ends the program with 2."""
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        refuse(f"{name}={text}: a number from {least:g} to {most:g} is wanted")
    return value


def bootstrap() -> str:
    """Where the nodes are, from CLIENT_BOOTSTRAP."""
    return os.environ.get("CLIENT_BOOTSTRAP") or "127.0.0.1:19092"


def _file() -> Path:
    return Path(os.environ.get("PROGRESS_FILE") or Path(tempfile.gettempdir()) / "progress")


class Progress:
    """When each part did something last. `moved(part)` is what the parts call."""

    def __init__(self, parts: Iterable[str], still_s: float = STILL_S) -> None:
        now = time.monotonic()
        self._last = dict.fromkeys(parts, now)
        self._unmoved = set(self._last)
        self._still_s = still_s

    def moved(self, part: str) -> None:
        """The part did what it is there for."""
        self._last[part] = time.monotonic()
        self._unmoved.discard(part)

    def still(self) -> list[str]:
        """The parts that stand still."""
        now = time.monotonic()
        return sorted(part for part, last in self._last.items() if now - last > self._still_s)

    async def watch(self) -> list[str]:
        """Keeps the file fresh once every part has moved, until one stands still; returns those that do."""
        path = _file()
        while not (still := self.still()):
            if not self._unmoved:
                path.touch()
            await asyncio.sleep(1)
        return still


async def again(name: str, part: Callable[[], Awaitable[None]], expected: tuple[type[Exception], ...]) -> NoReturn:
    """Run a part for ever: an expected failure is printed, and the part begins anew."""
    while True:
        try:
            await part()
        except expected as error:
            tell(f"{name}: {error}")
            await asyncio.sleep(AGAIN_S)


async def run(parts: Sequence[Coroutine[Any, Any, None]], progress: Progress) -> int:
    """All parts until SIGTERM or Ctrl-C (0), until one of them ends (0), or until one stands still (1).

    What a part raises is raised.
    """
    told = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, told.set)
    working = [asyncio.ensure_future(part) for part in parts]
    watching, waiting = asyncio.ensure_future(progress.watch()), asyncio.ensure_future(told.wait())
    await asyncio.wait([*working, watching, waiting], return_when=asyncio.FIRST_COMPLETED)
    still = watching.result() if watching.done() else []
    failed = [task.exception() for task in working if task.done()]
    everyone = [*working, watching, waiting]
    for task in everyone:
        task.cancel()
    await asyncio.gather(*everyone, return_exceptions=True)
    for error in failed:
        if error is not None:
            raise error
    if still:
        sys.stderr.write(f"nothing happens any more: {', '.join(still)}\n")
    return 1 if still else 0


async def create_topics(nodes: str, partitions: dict[str, int]) -> None:
    """Create topics with bounded retention, unless they are there; returns once every one has leaders."""
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # noqa: PLC0415 - a health check needs no Kafka client

    admin = AIOKafkaAdminClient(bootstrap_servers=nodes)
    try:
        await admin.start()
        wanted = [NewTopic(name, count, 1, topic_configs=RETENTION) for name, count in partitions.items()]
        await admin.create_topics(wanted)
        for _ in range(CREATED_LOOKS):
            found = await admin.describe_topics(list(partitions))
            if not any(each["error_code"] for each in found):
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(f"no leaders yet for some of {', '.join(partitions)}")
    finally:
        await admin.close()


def main() -> int:
    """The health check's exit code."""
    try:
        age = time.time() - _file().stat().st_mtime
    except OSError:
        return 1
    return 0 if age < FRESH_S else 1


if __name__ == "__main__":
    sys.exit(main())
