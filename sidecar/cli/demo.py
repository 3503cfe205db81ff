"""`sidecar demo`: two rival producers on a real Kafka, and what becomes of a late batch of a dead one.

Starts its own stack on free ports, in a directory that is deleted afterwards. The story follows what really
happens: every figure and refusal is read from the node or from Kafka, and a step that turns out otherwise ends with 1.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import rich_click as click
from rich.console import Console

from sidecar.cli.embedded import embedded_parts, plain_arguments, start_node
from sidecar.cli.examples import examples
from sidecar.cli.failure import CommandError
from sidecar.settings import AdminAccess

if TYPE_CHECKING:
    from types import TracebackType

    from sidecar.cli.api import AdminApi
    from sidecar.local import Endpoints, Stack

_TOPIC: Final = "orders"
_COLOURS: Final = ("cyan", "magenta", "yellow", "green")
_PATIENCE_S: Final = 30.0
_RECORDS: Final = 5
_INVALID_PRODUCER_EPOCH: Final = 47
_POLICY_VIOLATION: Final = 44


@examples("sidecar demo")
@click.command()
def demo() -> None:
    """Show exclusive producers at work on a real Kafka and a real Valkey, in under a minute when warm."""
    console = Console(highlight=False, soft_wrap=True)
    with embedded_parts(), tempfile.TemporaryDirectory(prefix="sidecar-demo-") as directory:
        from sidecar.local import Stack, StackConfig  # noqa: PLC0415 - an extra, and heavy
        from sidecar.local.stack import interruptible  # noqa: PLC0415

        stack = Stack(StackConfig(directory=Path(directory), kafka_port=0, redis_port=0))
        try:
            with interruptible():
                _Demo(console, stack).run()
        except KeyboardInterrupt:
            click.echo(err=True)
        finally:
            stack.stop()


class _Demo:
    """The story, step by step."""

    def __init__(self, console: Console, stack: Stack) -> None:
        self._console = console
        self._stack = stack
        self._generations: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        """Start everything and report it."""
        from sidecar.cli.demo_kafka import create_topic, newest_batch, send_straight_to_kafka  # noqa: PLC0415 - heavy

        endpoints, bootstrap, api = self._start()
        say = self._console.print
        say(f"[bold]Kafka[/] {endpoints.kafka}   [bold]Redis[/] {endpoints.redis}   [bold]sidecar[/] {bootstrap}\n")
        create_topic(endpoints.kafka, _TOPIC)
        api.put(f"/v1/topics/{_TOPIC}/policy", {"access_mode": "exclusive"})
        say(f"1. Topic [bold]{_TOPIC}[/] is exclusive: sidecar topic set {_TOPIC} --access exclusive")
        with _Producer(bootstrap, "alpha") as alpha:
            alpha.expect_acks(_RECORDS)
            owner = self._owner(api, endpoints)
            say(f"2. An unmodified producer, [cyan]alpha[/], writes: it owns the topic, generation {owner}")
            with _Producer(bootstrap, "beta") as beta:
                code = beta.expect_refusal()
            _require(code == _POLICY_VIOLATION, f"beta was answered {code}, not {_POLICY_VIOLATION}")
            say(f"3. A second one, [magenta]beta[/], is refused: {code} POLICY_VIOLATION, the topic has an owner")
            alpha.expect_acks(_RECORDS)
            stale = newest_batch(endpoints.kafka, _TOPIC)
            alpha.kill()
        say("4. alpha is killed (SIGKILL)")
        with _Producer(bootstrap, "beta") as beta:
            beta.expect_acks(_RECORDS)
            now = self._owner(api, endpoints)
            _require(now > owner, f"generation {now} after {owner}")
            say(f"5. [magenta]beta[/] tries again and owns the topic at once, generation {now}")
            code = send_straight_to_kafka(endpoints.kafka, _TOPIC, stale)
            _require(code == _INVALID_PRODUCER_EPOCH, f"Kafka answered {code} to the late batch")
            say(
                "6. A batch of alpha's that was delayed on its way now reaches Kafka, past the sidecar: refused "
                f"by Kafka itself, {code} INVALID_PRODUCER_EPOCH"
            )
            beta.expect_acks(_RECORDS)
            beta.kill()
        self._print_log(endpoints.kafka)

    def _start(self) -> tuple[Endpoints, str, AdminApi]:
        from sidecar.local.ports import free_ports  # noqa: PLC0415
        from sidecar.local.progress import ProgressDisplay  # noqa: PLC0415

        with ProgressDisplay() as progress:
            endpoints = self._stack.start(progress)
            bootstrap, admin = (f"127.0.0.1:{port}" for port in free_ports(2))
            arguments = plain_arguments(endpoints, admin, "--listen", bootstrap)
            api = start_node(self._stack, progress, bootstrap, AdminAccess(f"http://{admin}", None), arguments)
        return endpoints, bootstrap, api

    def _owner(self, api: AdminApi, endpoints: Endpoints) -> int:
        """The generation of the moment; remembers under which stamp its batches go to Kafka."""
        from sidecar.cli.demo_kafka import newest_batch  # noqa: PLC0415 - heavy

        found: dict[str, Any] = api.get(f"/v1/topics/{_TOPIC}")
        newest = newest_batch(endpoints.kafka, _TOPIC)
        self._generations[newest.producer_id, newest.producer_epoch] = found["generation"]
        return found["generation"]

    def _print_log(self, kafka: str) -> None:
        from sidecar.cli.demo_kafka import read_log  # noqa: PLC0415 - heavy

        self._console.print("\n[bold]The log[/], read straight from Kafka:")
        for header, values in read_log(kafka, _TOPIC):
            if header.is_control:
                self._console.print(f"  {header.base_offset:>4}  [dim]fence[/]")
                continue
            generation = self._generations[header.producer_id, header.producer_epoch]
            colour = _COLOURS[(generation - 1) % len(_COLOURS)]
            for index, value in enumerate(values):
                offset = header.base_offset + index
                self._console.print(f"  {offset:>4}  [{colour}]generation {generation}  {value}[/]")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CommandError(f"the demo did not go as it must: {otherwise}")


@dataclass(frozen=True, slots=True)
class _Outcome:
    word: str
    detail: str


class _Producer:
    """A producer in its own process."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sidecar.cli.demo_producer", bootstrap, _TOPIC, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._outcomes: queue.Queue[_Outcome] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, detail = line.strip().partition(" ")
            self._outcomes.put(_Outcome(word, detail))

    def _next(self) -> _Outcome:
        try:
            return self._outcomes.get(timeout=_PATIENCE_S)
        except queue.Empty:
            raise CommandError(f"{self._name} had no answer within {_PATIENCE_S:.0f} s") from None

    def expect_acks(self, count: int) -> None:
        """Wait for more acknowledged records."""
        for _ in range(count):
            outcome = self._next()
            _require(outcome.word == "ack", f"{self._name} was refused: {outcome.detail}")

    def expect_refusal(self) -> int:
        """Wait for the refusal; its error code."""
        outcome = self._next()
        _require(outcome.word == "refused", f"{self._name} was let in")
        return int(outcome.detail.split(" ", 1)[0])

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
