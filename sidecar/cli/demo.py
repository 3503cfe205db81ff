"""`sidecar demo`: two rival producers on a real Kafka, and what happens to a late batch of a dead one.

Starts its own stack on free ports, in a directory that is deleted afterwards. The story follows what really happens:
every figure and refusal is read from the node or from Kafka, and a step with another result ends it with exit code 1.
With `--secure` every client logs in, the demo itself too: as the application, whose ACLs allow only its own topics.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import rich_click as click
from rich.console import Console

from sidecar.cli.api import AdminApi
from sidecar.cli.embedded import embedded_parts, start_node
from sidecar.cli.options import examples
from sidecar.cli.output import CommandError
from sidecar.cli.signals import interruptible
from sidecar.local import Endpoints, Stack, StackConfig
from sidecar.local.ports import HOST, free_ports
from sidecar.local.progress import ProgressDisplay
from sidecar.local.secured import APPLICATION, PREFIX
from sidecar.settings import AdminAccess

if TYPE_CHECKING:
    from sidecar.cli.demo_kafka import KafkaItself


_TOPIC: Final = "orders"
_COLOURS: Final = ("cyan", "magenta", "yellow", "green")
_RECORDS: Final = 5
_INVALID_PRODUCER_EPOCH: Final = 47
_POLICY_VIOLATION: Final = 44
_PATIENCE_S: Final = 30.0


@examples("sidecar demo", "sidecar demo --secure")
@click.command()
@click.option("--secure", is_flag=True, help="The same with TLS, logins, ACLs and tokens everywhere.")
def demo(*, secure: bool) -> None:
    """Show exclusive producers at work on a real Kafka and a real Valkey, in under a minute when warm."""
    console = Console(highlight=False, soft_wrap=True)
    with embedded_parts(), tempfile.TemporaryDirectory(prefix="sidecar-demo-") as directory:
        hosts = () if secure else None
        stack = Stack(StackConfig(directory=Path(directory), kafka_port=0, redis_port=0, secured=hosts))
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
        self._topic = _TOPIC
        self._login: Path | None = None
        """The file with the login of producers."""
        self._generations: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        """Start everything and report each step."""
        from sidecar.cli.demo_kafka import KafkaItself  # noqa: PLC0415 - takes 0.2 s to import; --help does not need it

        endpoints, bootstrap, api = self._start()
        say = self._console.print
        say(f"[bold]Kafka[/] {endpoints.kafka}   [bold]Redis[/] {endpoints.redis}   [bold]sidecar[/] {bootstrap}\n")
        if self._login is not None:
            say("All clients log in by SCRAM-SHA-512 over TLS; alpha and beta as the user app.\n")
        kafka, topic = KafkaItself(endpoints.kafka, self._login), self._topic
        kafka.create_topic(topic)
        api.put(f"/v1/topics/{topic}/policy", {"access_mode": "exclusive"})
        say(f"1. Topic [bold]{topic}[/] is exclusive: sidecar topic set {topic} --access exclusive")
        with self._producer(bootstrap, "alpha") as alpha:
            alpha.expect_acks(_RECORDS)
            owner = self._owner(api, kafka)
            say(f"2. An unmodified producer, [cyan]alpha[/], writes: it owns the topic, generation {owner}")
            with self._producer(bootstrap, "beta") as beta:
                code = beta.expect_refusal()
            _require(code == _POLICY_VIOLATION, f"beta was answered {code}, not {_POLICY_VIOLATION}")
            say(f"3. A second one, [magenta]beta[/], is refused: {code} POLICY_VIOLATION, the topic has an owner")
            alpha.expect_acks(_RECORDS)
            stale = kafka.newest_batch(topic)
            alpha.kill()
        say("4. alpha is killed (SIGKILL)")
        with self._producer(bootstrap, "beta") as beta:
            beta.expect_acks(_RECORDS)
            now = self._owner(api, kafka)
            _require(now > owner, f"generation {now} after {owner}")
            say(f"5. [magenta]beta[/] tries again and owns the topic at once, generation {now}")
            code = kafka.send_late(topic, stale)
            _require(code == _INVALID_PRODUCER_EPOCH, f"Kafka answered {code} to the late batch")
            say(
                "6. A batch of alpha's that was delayed on its way now reaches Kafka, past the sidecar: refused "
                f"by Kafka itself, {code} INVALID_PRODUCER_EPOCH"
            )
            beta.expect_acks(_RECORDS)
            beta.kill()
        self._print_log(kafka)

    def _start(self) -> tuple[Endpoints, str, AdminApi]:
        with ProgressDisplay() as progress:
            endpoints = self._stack.start(progress)
            bootstrap, admin = (f"{HOST}:{port}" for port in free_ports(2))
            access = AdminAccess(f"http://{admin}", None)
            if self._stack.config.secured is not None:
                secrets = self._stack.secrets
                self._topic, self._login = f"{PREFIX}{_TOPIC}", secrets.directory / f"{APPLICATION}.conf"
                access = AdminAccess(f"https://{admin}", secrets.text("admin.token"), ca=str(secrets.ca))
            api = start_node(self._stack, endpoints, progress, access, bootstrap, admin, advertised=bootstrap)
        return endpoints, bootstrap, api

    def _producer(self, bootstrap: str, name: str) -> _Producer:
        return _Producer(bootstrap, self._topic, name, self._login)

    def _owner(self, api: AdminApi, kafka: KafkaItself) -> int:
        """The present generation; remembers the stamp of its batches."""
        found: dict[str, Any] = api.get(f"/v1/topics/{self._topic}")
        newest = kafka.newest_batch(self._topic)
        self._generations[newest.producer_id, newest.producer_epoch] = found["generation"]
        return found["generation"]

    def _print_log(self, kafka: KafkaItself) -> None:
        self._console.print("\n[bold]The log[/], read straight from Kafka:")
        for header, values in kafka.read_log(self._topic):
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


class _Producer:
    """A producer in its own process; `login`: the file with its user and password, if it needs one."""

    def __init__(self, bootstrap: str, topic: str, name: str, login: Path | None) -> None:
        self._name = name
        more = () if login is None else (str(login),)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sidecar.cli.demo_producer", bootstrap, topic, name, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._outcomes: queue.Queue[tuple[str, str]] = queue.Queue()
        """An outcome and its detail, as `demo_producer` prints them."""
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, detail = line.strip().partition(" ")
            self._outcomes.put((word, detail))

    def _next(self) -> tuple[str, str]:
        try:
            return self._outcomes.get(timeout=_PATIENCE_S)
        except queue.Empty:
            raise CommandError(f"{self._name} had no answer within {_PATIENCE_S:.0f} s") from None

    def expect_acks(self, count: int) -> None:
        """Wait for `count` more acknowledged records."""
        for _ in range(count):
            word, detail = self._next()
            _require(word == "ack", f"{self._name} was refused: {detail}")

    def expect_refusal(self) -> int:
        """Wait for the refusal; returns its error code."""
        word, detail = self._next()
        _require(word == "refused", f"{self._name} was let in")
        return int(detail.split(" ", 1)[0])

    def kill(self) -> None:
        """Send SIGKILL, which is like a crash."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
