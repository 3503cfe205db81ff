"""Shared code of the examples: creating a topic, reading a partition, and ending a program.

Apart from this module each program is complete; copy what you need.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar

import click
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from sidecar.client import ProducerBusyError, ProducerFencedError, SidecarError, SidecarUnavailableError

F = TypeVar("F", bound=Callable[..., Any])
ResultT = TypeVar("ResultT")
Record: TypeAlias = "ConsumerRecord[bytes | None, bytes | None]"

FAILED: Final = 1
FENCED: Final = 4
UNREACHABLE: Final = 5

CREATED_LOOKS: Final = 100
"""How often to look for a created topic, every 0.1 s, until every broker knows it."""

HELP: Final = {"help_option_names": ["-h", "--help"], "show_default": True}


def with_bootstrap(command: F) -> F:
    """Add the option `--bootstrap`, which every program has."""
    return click.option(
        "--bootstrap", default="localhost:19092", metavar="HOST:PORT,…", help="Nodes of the sidecar, one or several."
    )(command)


def own_name() -> str:
    """A name of this process for people: its host and process id."""
    return f"{socket.gethostname()}-{os.getpid()}"


def tell(line: str) -> None:
    """Print a line and flush it, also if the output is a file."""
    click.echo(line)
    sys.stdout.flush()


async def in_thread(function: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Like `asyncio.to_thread`, but waits for the thread also when cancelled, so that the caller does not close a
    database that the thread still uses.
    """
    call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(call)
    finally:
        await asyncio.gather(call, return_exceptions=True)


# Topics ---------------------------------------------------------------------------------------------------------------


async def create_topic(bootstrap: str, name: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
    """Create a topic; an existing one is not changed."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
        created = await admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=config)])
        for _, code, message in getattr(created, "topic_errors", ()):  # in any version
            if code not in (0, TopicAlreadyExistsError.errno):
                raise Failure(f"topic {name} cannot be created: {for_code(code).__name__}: {message}")
        for _ in range(CREATED_LOOKS):
            if not (await admin.describe_topics([name]))[0]["error_code"]:
                return
            await asyncio.sleep(0.1)
        raise Failure(f"topic {name} was created, but no broker knows it yet; start again")
    finally:
        await admin.close()


@contextlib.asynccontextmanager
async def opened(consumer: AIOKafkaConsumer) -> AsyncIterator[AIOKafkaConsumer]:
    """Start a consumer of aiokafka and stop it, also if cancelled during the start: no connection stays open."""
    starting = asyncio.ensure_future(consumer.start())
    try:
        await asyncio.shield(starting)
        yield consumer
    finally:
        await asyncio.gather(starting, return_exceptions=True)
        await consumer.stop()


async def read_to_end(bootstrap: str, topic: str, partition: int = 0) -> AsyncGenerator[Record, None]:
    """Yield every record that a partition has at the start of the call. Use it in an `aclosing`, so that a cancelled
    caller closes the consumer.
    """
    at = TopicPartition(topic, partition)
    async with opened(AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")) as consumer:
        consumer.assign([at])
        end = (await consumer.end_offsets([at]))[at]
        await consumer.seek_to_beginning(at)
        while await consumer.position(at) < end:  # not of the last record: a fence may follow it
            for record in (await consumer.getmany(at, timeout_ms=200)).get(at, []):
                if record.offset < end:
                    yield record


# The end of a program -------------------------------------------------------------------------------------------------


class Failure(click.ClickException):
    """Ends a program with a line on standard error and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = code  # pyright: ignore[reportAttributeAccessIssue]  click looks at the instance


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a program and exit with 0 at its end, after Ctrl-C and after SIGTERM, which release its topics. Otherwise
    print the reason in one line and exit with the code of the command `sidecar`: 4 if another session owns the topic,
    5 if no node answers.

    A program that lost a topic does not try again, because its state is out of date. A supervisor restarts it.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # errors that matter are raised as exceptions
    try:
        asyncio.run(_until_told(program))
    except ProducerFencedError as error:
        raise Failure(f"lost the topic, nothing more was written: {error}", FENCED) from error
    except ProducerBusyError as error:
        raise Failure(str(error), FENCED) from error
    except SidecarUnavailableError as error:
        raise Failure(str(error), UNREACHABLE) from error
    except SidecarError as error:
        raise Failure(str(error)) from error
    except KafkaError as error:
        raise Failure(str(error), UNREACHABLE if error.retriable else FAILED) from error


async def _until_told(program: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(program)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        tell("ended")
