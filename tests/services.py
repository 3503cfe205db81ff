"""The Kafka and the Redis that tests run on, from whichever provider this machine has: external > docker > embedded.

A test asks the fixture `services` for addresses, never for a provider; what not all providers allow is a `Capability`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

import pytest

from sidecar.local import Kafka, KafkaConfig, Valkey
from tests import containers
from tests.containers import NotStartedError

KAFKA_VARIABLE = "SIDECAR_TEST_KAFKA"
REDIS_VARIABLE = "SIDECAR_TEST_REDIS"

T = TypeVar("T")


class Capability(Enum):
    """What a provider allows beyond talking to its servers."""

    DISPOSABLE = "nobody else uses it: all its data may be thrown away"


@dataclass(frozen=True, slots=True)
class Services:
    """Where they are: `host:port,…` of Kafka, a URL of Redis, and which provider they came from."""

    kafka_bootstrap: str
    redis_url: str
    backend: str
    capabilities: frozenset[Capability]


def _nothing_to_bring(_tell: Callable[[str], None]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Backend:
    """A provider. `refusal` is None where it can be used, else why not; `run` is for the whole session.

    `bring` gets what `run` needs, which may take minutes; both raise NotStartedError.
    """

    name: str
    refusal: Callable[[], str | None]
    run: Callable[[Path], AbstractContextManager[Services]]
    bring: Callable[[Callable[[str], None]], None] = _nothing_to_bring


class Choice:
    """The backend of one session: the one that was named, or for `auto` the first that is usable and starts.

    `refusal` says why it cannot be used, where it was named. `given_up` has a sentence for each backend that seemed
    usable and was not.
    """

    def __init__(self, name: str, backends: Mapping[str, Backend]) -> None:
        self._rest = list(backends.values()) if name == "auto" else [backends[name]]
        self.refusal: str | None = None
        self.given_up: list[str] = []
        self._pass_over_unusable()

    @property
    def name(self) -> str:
        """Of the backend that is used as far as is known now."""
        return self._rest[0].name

    def bring(self, tell: Callable[[str], None]) -> None:
        """Get what `run` needs. Raises NotStartedError where no other backend is left."""
        self._first_that(lambda backend: backend.bring(tell))

    @contextmanager
    def run(self, directory: Path) -> Iterator[Services]:
        """The servers. Raises NotStartedError where no other backend is left."""
        with ExitStack() as running:
            yield self._first_that(lambda backend: running.enter_context(backend.run(directory)))

    def _first_that(self, works: Callable[[Backend], T]) -> T:
        while True:
            try:
                return works(self._rest[0])
            except NotStartedError as error:
                if len(self._rest) == 1:
                    raise
                given_up = self._rest.pop(0).name
                self._pass_over_unusable()
                self.given_up.append(f"{self.name} takes the place of {given_up}: {error}")

    def _pass_over_unusable(self) -> None:
        while (refusal := self._rest[0].refusal()) is not None and len(self._rest) > 1:
            del self._rest[0]
        self.refusal = refusal


CHOICE = pytest.StashKey[Choice]()
"""Where the session's configuration keeps it."""


def _external_refusal() -> str | None:
    missing = [name for name in (KAFKA_VARIABLE, REDIS_VARIABLE) if not os.environ.get(name)]
    return f"{' and '.join(missing)} not set" if missing else None


@contextmanager
def _external(_directory: Path) -> Iterator[Services]:
    yield Services(os.environ[KAFKA_VARIABLE], os.environ[REDIS_VARIABLE], "external", frozenset())


@contextmanager
def _docker(_directory: Path) -> Iterator[Services]:
    with containers.running() as (kafka, redis):
        yield Services(kafka, redis, "docker", frozenset({Capability.DISPOSABLE}))


_AT_REST = {
    "metadata.max.idle.interval.ms": "0",  # no record twice a second for standbys, which are not there
    "broker.heartbeat.interval.ms": "2000",  # Kafka's own values: this broker is never killed
    "broker.session.timeout.ms": "9000",
}
"""Four of these brokers run beside each other to the end: what one does without being asked took 3 % of a core each."""


@contextmanager
def _embedded(directory: Path) -> Iterator[Services]:
    config = KafkaConfig(leave_archive=True, overrides=_AT_REST)
    with Kafka(directory / "kafka", config) as kafka, Valkey(directory / "valkey") as valkey:
        yield Services(kafka.bootstrap, valkey.url, "embedded", frozenset({Capability.DISPOSABLE}))


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("external", _external_refusal, _external),
        Backend("docker", containers.refusal, _docker, containers.pull),
        Backend("embedded", lambda: None, _embedded),
    )
}
