"""The programs of `examples/` as processes, and what they left in Kafka's log, read past every node."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import uuid
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from sidecar.local.process import Child, Command
from tests.logs import watermarks
from tests.wait import wait_for

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PATIENCE = 60.0


class Program:
    """An example under way. Its output, standard error included, is a log."""

    def __init__(self, name: str, directory: Path, arguments: tuple[str, ...]) -> None:
        log = directory / f"{name}-{random.randrange(2**32):08x}.log"
        program = (sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments)
        self.child = Child.start(Command(name, program, log, {}, directory))

    @property
    def output(self) -> str:
        return self.child.log_text()

    def wait_for(self, pattern: str, count: int = 1) -> list[str]:
        """Every match of a pattern in its output, once there are so many. Fails where it ends before."""

        def found() -> list[str]:
            matches = re.findall(pattern, self.output)
            assert len(matches) >= count or self.child.alive, f"ended with {self.child.exit_code}:\n{self.output}"
            return matches if len(matches) >= count else []

        try:
            return wait_for(found, f"{pattern!r}, {count} times", PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None

    def end(self) -> int:
        """Wait until it ends by itself; the exit code."""
        return self.child.wait(PATIENCE)

    def kill(self) -> None:
        """SIGKILL, to a program that is at work: one that had ended by itself proves nothing."""
        assert self.child.kill() == -signal.SIGKILL, self.output

    def stop(self) -> None:
        """SIGTERM, which it takes in good order."""
        assert self.child.stop(PATIENCE) == 0, self.output


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the log."""

    partition: int
    offset: int
    key: str | None
    value: Any
    """What its JSON says; None for a tombstone."""
    headers: dict[str, str]

    @property
    def sequence_id(self) -> int | None:
        found = self.headers.get("sidecar-sequence-id")
        return None if found is None else int(found)

    @property
    def generation(self) -> int:
        """Under which its writer says that it owned the topic."""
        return int(self.headers["generation"])


def entry_of(message: Message) -> Entry:
    key, value, partition, offset = message.key(), message.value(), message.partition(), message.offset()
    assert partition is not None and offset is not None  # noqa: PT018  for the type checker
    headers = {name: os.fsdecode(text or b"") for name, text in message.headers() or []}
    decoded = None if value is None else json.loads(value)
    return Entry(partition, offset, None if key is None else os.fsdecode(key), decoded, headers)


def check_history(log: list[Entry]) -> list[str]:
    """The names of those who wrote, in turn. Fails where two of them are interleaved, or a generation falls or has two
    writers.
    """
    turns = [turn for turn, _ in groupby((entry.generation, entry.headers["leader"]) for entry in log)]
    assert [generation for generation, _ in turns] == sorted({generation for generation, _ in turns})
    return [leader for _, leader in turns]


class Logs:
    """`logs(topic, partition)`: every record of a partition, straight from Kafka. What was read is not read again, so
    that waiting for a log costs those little who write it.
    """

    def __init__(self, kafka: str) -> None:
        self.kafka = kafka
        self._readers: dict[tuple[str, int], Reader] = {}

    def __call__(self, topic: str, partition: int = 0) -> list[Entry]:
        if (topic, partition) not in self._readers:
            self._readers[topic, partition] = Reader(self.kafka, topic, partition)
        return self._readers[topic, partition].read()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


class Reader:
    """One partition."""

    def __init__(self, kafka: str, topic: str, partition: int) -> None:
        settings = {"group.id": uuid.uuid4().hex, "enable.auto.commit": False, "fetch.wait.max.ms": 10}
        self._consumer = Consumer({"bootstrap.servers": kafka, **settings, "enable.partition.eof": True})
        self._topic, self._partition = topic, partition
        self._entries: list[Entry] = []
        self._next = -1

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> list[Entry]:
        first, end = watermarks(self._consumer, TopicPartition(self._topic, self._partition))
        if self._next < first:  # at the beginning, and where retention was faster than this
            self._consumer.assign([TopicPartition(self._topic, self._partition, first)])
        self._next = max(self._next, first)
        while self._next < end:
            message = self._consumer.poll(0.5)  # which returns at the end of the log too, as an error
            if message is not None and not message.error():
                self._entries.append(entry_of(message))
            self._next = max(self._next, self._position())
        self._entries = [entry for entry in self._entries if entry.offset >= first]
        return list(self._entries)

    def _position(self) -> int:
        """The next offset; negative before the first record."""
        return self._consumer.position([TopicPartition(self._topic, self._partition)])[0].offset
