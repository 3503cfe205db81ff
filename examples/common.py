"""What the examples have in common: a topic of their own, what a partition holds, and how a program ends.

Each program is whole but for this; copy what you need.
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
"""Every broker has to hear of a topic that was created: so often it is looked for, every 0.1 s."""

HELP: Final = {"help_option_names": ["-h", "--help"], "show_default": True}


def with_bootstrap(command: F) -> F:
    """The option that every program has."""
    return click.option(
        "--bootstrap", default="localhost:19092", metavar="HOST:PORT,…", help="Nodes of the sidecar, one or several."
    )(command)


def own_name() -> str:
    """Who this process is, for people: its host and process id."""
    return f"{socket.gethostname()}-{os.getpid()}"


def tell(line: str) -> None:
    """A line of output, at once, also where it goes to a file."""
    click.echo(line)
    sys.stdout.flush()


async def in_thread(function: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Like `asyncio.to_thread`, but waits for the thread where it is cancelled too, so that nobody closes a
    database under it.
    """
    call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(call)
    finally:
        await asyncio.gather(call, return_exceptions=True)


# Topics ---------------------------------------------------------------------------------------------------------------


async def create_topic(bootstrap: str, name: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
    """Create a topic unless it is there already; then it stays as it is."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
        created = await admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=config)])
        for _, code, message in getattr(created, "topic_errors", ()):  # of whichever version was spoken
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
    """A consumer of aiokafka, started and stopped. Cancelled while it starts, it would leave connections open."""
    starting = asyncio.ensure_future(consumer.start())
    try:
        await asyncio.shield(starting)
        yield consumer
    finally:
        await asyncio.gather(starting, return_exceptions=True)
        await consumer.stop()


async def read_to_end(bootstrap: str, topic: str, partition: int = 0) -> AsyncGenerator[Record, None]:
    """Every record that a partition holds at this moment; records that come later are left out. To be used in an
    `aclosing`: who is cancelled in the midst would leave its consumer open.
    """
    at = TopicPartition(topic, partition)
    async with opened(AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")) as consumer:
        consumer.assign([at])
        end = (await consumer.end_offsets([at]))[at]
        await consumer.seek_to_beginning(at)
        while await consumer.position(at) < end:  # by position: the last offset may be a fence, which is no record
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
    """Run a program and exit: 0 behind its end, Ctrl-C and SIGTERM, which give its topics up; else one line says why,
    and the exit code is that of the command `sidecar`: 4 where the topic is somebody else's, 5 where no node answers.

    Whoever lost a topic does not try again by itself: what it knows is old. A supervisor starts it anew.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters comes as an exception
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
