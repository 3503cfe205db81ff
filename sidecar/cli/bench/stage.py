"""The targets of a measurement: a Kafka, a node in front of it, and an own topic at each, which is deleted in the end.

Other topics are never changed. If an own topic cannot be deleted, a message names it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeVar

import rich_click as click

from sidecar.cli.api import AdminApi, ApiError, topic_path
from sidecar.cli.bench.client import OPEN, Connection, DeleteTopic, RefusedError
from sidecar.cli.output import CommandError, Exit, complain
from sidecar.cli.signals import ENDING, handled_by
from sidecar.pipeline.security import Security
from sidecar.protocol.caller import Request
from sidecar.protocol.calls.admin import ClusterDescription, CreateTopics, DescribeTopics, NewTopic
from sidecar.protocol.errors import ErrorCode

AnswerT = TypeVar("AnswerT")

_READY_S: Final = 30.0
_TIMEOUT_MS: Final = 10_000
_GONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def describe(addresses: Sequence[tuple[str, int]], *topics: str, security: Security = OPEN) -> ClusterDescription:
    """The cluster as the first address that answers describes it. Raises OSError of the last one."""
    failure = OSError("no address")
    for address in addresses:
        try:
            with Connection(address, security=security) as connection:
                return connection.ask(DescribeTopics(topics))
        except OSError as error:
            failure = error
    raise failure


def _ask_controller(
    addresses: Sequence[tuple[str, int]], security: Security, request: Request[AnswerT], code: Callable[[AnswerT], int]
) -> AnswerT:
    """The first answer other than error 41, which brokers return that are not the controller of a ZooKeeper cluster;
    else the last one. Raises OSError.
    """
    *others, last = describe(addresses, security=security).brokers.values()
    for address in (*others, last):
        with Connection(address, security=security) as connection:
            answer = connection.ask(request)
        if address == last or code(answer) != ErrorCode.NOT_CONTROLLER:
            return answer
    raise AssertionError  # the last one returns in the loop


class Stage:
    """A topic at each target, by the target's name; a context manager. `securities`: how connections to each target
    begin, plain TCP if it is not in there.
    """

    def __init__(
        self,
        targets: Mapping[str, Sequence[tuple[str, int]]],
        api: AdminApi,
        securities: Mapping[str, Security] = MappingProxyType({}),
    ) -> None:
        run = uuid.uuid4().hex[:12]
        self._targets = targets
        self._securities = securities
        self._api = api
        self.topics = {name: f"sidecar-bench-{run}-{name}" for name in targets}
        self._governed: str | None = None

    def create(self, name: str, partitions: int, replication_factor: int) -> dict[int, tuple[str, int]]:
        """Create the topic of a target; returns the leaders' addresses there, by partition. Raises CommandError,
        OSError.
        """
        topic, addresses, security = self.topics[name], self._targets[name], self._securities.get(name, OPEN)
        wanted = CreateTopics((NewTopic(topic, partitions, replication_factor),), _TIMEOUT_MS)
        outcome = _ask_controller(addresses, security, wanted, lambda answer: answer[topic].error)[topic]
        if outcome.error:
            raise RefusedError(f"CreateTopics of {topic} ({outcome.message})", outcome.error)
        deadline = time.monotonic() + _READY_S
        while True:
            found = describe(addresses, topic, security=security)
            leaders = found.topic(topic).leaders
            known = {each: found.brokers[leader] for each, leader in leaders.items() if leader in found.brokers}
            if len(known) == partitions:
                return known
            if time.monotonic() > deadline:
                raise CommandError(f"{topic} has no leaders after {_READY_S:.0f} s", Exit.UNREACHABLE)
            time.sleep(0.05)

    def govern(self, name: str, policy: Mapping[str, Any]) -> None:
        """Set a policy for the topic of a target. Raises CommandError."""
        self._governed = self.topics[name]
        self._api.put(topic_path(self.topics[name], "policy"), policy)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with handled_by(_say_deleting, ENDING):  # a second Ctrl-C leaves no topics behind; this takes a limited time
            left: list[str] = []
            if self._governed is not None and not self._forget(self._governed):  # first: nodes stop serving the topic
                left.append(f"the policy of {self._governed}")
            left += [topic for name, topic in self.topics.items() if not self._delete(name, topic)]
        if left:
            complain("warning", f"left behind: {', '.join(left)}")

    def _delete(self, name: str, topic: str) -> bool:
        """Delete a topic if it exists; returns whether it no longer exists."""
        try:
            security = self._securities.get(name, OPEN)
            return _ask_controller(self._targets[name], security, DeleteTopic(topic), int) in _GONE
        except OSError:
            return False

    def _forget(self, topic: str) -> bool:
        try:
            self._api.delete(topic_path(topic, "policy"))
        except ApiError as error:
            return error.exit_code == Exit.NOT_FOUND
        except CommandError:
            return False
        return True


def _say_deleting(_: int, __: object) -> None:
    with suppress(OSError):  # the terminal may be closed
        click.echo("deleting what was created", err=True)
