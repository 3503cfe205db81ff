"""`sidecar demo`: two rival producers on a real Kafka, and what becomes of a late batch of a dead one.

Starts its own stack on free ports, in a directory that is deleted afterwards. The story follows what really
happens: every figure and refusal is read from the node or from Kafka, and a step that turns out otherwise ends with 1.
With `--secure` everybody logs in, the demo itself too: as the application, which ACLs allow its own topics alone.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import rich_click as click
from rich.console import Console

from sidecar.changelog.records import RawRecord, build_batch, read_batches
from sidecar.cli.api import AdminApi
from sidecar.cli.bench.client import OPEN, Connection
from sidecar.cli.embedded import embedded_parts, start_node
from sidecar.cli.options import examples
from sidecar.cli.output import CommandError
from sidecar.cli.signals import interruptible
from sidecar.local import Endpoints, Stack, StackConfig
from sidecar.local.ports import HOST, free_ports
from sidecar.local.progress import ProgressDisplay
from sidecar.local.secured import APPLICATION, PREFIX
from sidecar.pipeline.security import Security, of_file
from sidecar.protocol.batch import BatchHeader, batch_sizes, read_header
from sidecar.protocol.caller import Request
from sidecar.protocol.calls.admin import CreateTopics, NewTopic
from sidecar.protocol.calls.logs import FetchPartition, ListOffsets, OffsetAt, ProduceBatch
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.settings import AdminAccess

AnswerT = TypeVar("AnswerT")
_PATIENCE_S: Final = 30.0


class KafkaItself:
    """The broker at `address`, host:port; `security`: TLS and a login where it wants them."""

    def __init__(self, address: str, security: Security) -> None:
        host, port = address.rsplit(":", 1)
        self._address = host, int(port)
        self._security = security

    def _ask(self, request: Request[AnswerT]) -> AnswerT:
        with Connection(self._address, "demo", self._security) as connection:
            return connection.ask(request)

    def create_topic(self, topic: str) -> None:
        """One partition; waits until it has a leader."""
        self._ask(CreateTopics((NewTopic(topic, 1, 1),), timeout_ms=10_000))
        partition = TopicPartition(topic, 0)
        deadline = time.monotonic() + _PATIENCE_S
        while self._ask(ListOffsets({partition: OffsetAt.LATEST}))[partition].error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic} has no leader")
            time.sleep(0.05)

    def read_log(self, topic: str) -> list[tuple[BatchHeader, list[str]]]:
        """Every batch of partition 0 of a short log: its header and its values as text."""
        request = FetchPartition(TopicPartition(topic, 0), Offset(0), max_wait_ms=100, max_bytes=10_000_000)
        records = self._ask(request).records
        found: list[tuple[BatchHeader, list[str]]] = []
        for start, size in batch_sizes(records, 0, len(records)):
            header = read_header(records, start, start + size)
            values: list[str] = []
            if not header.is_control:
                (batch,) = read_batches(records[start : start + size])
                values = [(record.value or b"").decode() for _, record in batch.records]
            found.append((header, values))
        return found

    def newest_batch(self, topic: str) -> BatchHeader:
        """The header of the last batch of records."""
        return [header for header, _ in self.read_log(topic) if not header.is_control][-1]

    def send_late(self, topic: str, stale: BatchHeader) -> int:
        """Send what a delayed batch would be: the next sequence under a stamp of before. Returns Kafka's error code."""
        writer = Stamp(ProducerId(stale.producer_id), ProducerEpoch(stale.producer_epoch))
        batch = build_batch([RawRecord(b"", b"alpha, too late")], writer, stale.last_sequence + 1)
        return self._ask(ProduceBatch(TopicPartition(topic, 0), batch, 10_000)).error


_TOPIC: Final = "orders"
_COLOURS: Final = ("cyan", "magenta", "yellow", "green")
_RECORDS: Final = 5
_INVALID_PRODUCER_EPOCH: Final = 47
_POLICY_VIOLATION: Final = 44


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
        """The file with which producers log in."""
        self._generations: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        """Start everything and report it."""
        endpoints, bootstrap, api = self._start()
        say = self._console.print
        say(f"[bold]Kafka[/] {endpoints.kafka}   [bold]Redis[/] {endpoints.redis}   [bold]sidecar[/] {bootstrap}\n")
        if self._login is not None:
            say("All clients log in by SCRAM-SHA-512 over TLS; alpha and beta as the user app.\n")
        security = OPEN if self._login is None else Security.of(of_file(self._login))
        kafka, topic = KafkaItself(endpoints.kafka, security), self._topic
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
        """The generation of the moment; remembers under which stamp its batches go to Kafka."""
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
        """A word and its detail, as `demo_producer` prints them."""
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
        """Wait for more acknowledged records."""
        for _ in range(count):
            word, detail = self._next()
            _require(word == "ack", f"{self._name} was refused: {detail}")

    def expect_refusal(self) -> int:
        """Wait for the refusal; its error code."""
        word, detail = self._next()
        _require(word == "refused", f"{self._name} was let in")
        return int(detail.split(" ", 1)[0])

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
