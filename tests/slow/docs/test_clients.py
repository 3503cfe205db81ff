"""docs/use/clients.md: what real producers do when an exclusive topic refuses, deposes or delays them."""

# pyright: reportPrivateImportUsage=false, reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.nodes import NodeProcess
from tests.services import Services
from tests.unit.docs.pages import page
from tests.wait import wait_for

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer
    from kafka.errors import KafkaError as PythonError

PATIENCE = 20.0


class Client(Protocol):
    """A producer of some library. `send` tells "ok", or the name of the error; `said` is the text of the last one."""

    said: str

    def send(self, topic: str) -> str: ...
    def close(self) -> None: ...


class Librdkafka:
    message_timeout_ms = 3_000
    said = ""

    def __init__(self, bootstrap: str, client_id: str, idempotent: bool) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": client_id, "log_level": 0}
        self._producer = Producer(
            {**settings, "enable.idempotence": idempotent, "message.timeout.ms": self.message_timeout_ms}
        )

    def send(self, topic: str) -> str:
        told: list[str] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            told.append("ok" if error is None else error.name())
            self.said = "" if error is None else error.str()

        self._producer.produce(topic, b"x", on_delivery=delivered)
        self._producer.flush(PATIENCE)
        return told[0]

    def close(self) -> None:
        self._producer = None


class Aiokafka:
    """On an event loop in a thread of its own, as its connections need one that turns."""

    said = ""

    def __init__(self, bootstrap: str, client_id: str, idempotent: bool) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._producer = self._run(self._make(bootstrap, client_id, idempotent))
        try:
            self._run(self._producer.start())
        except BaseException:
            self.close()
            raise

    @staticmethod
    async def _make(bootstrap: str, client_id: str, idempotent: bool) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, enable_idempotence=idempotent)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def send(self, topic: str) -> str:
        try:
            self._run(self._producer.send_and_wait(topic, b"x"))
        except AioError as error:
            self.said = str(error)
            return type(error).__name__
        return "ok"

    def close(self) -> None:
        with suppress(AioError):
            self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


class KafkaPython:
    said = ""

    def __init__(self, bootstrap: str, client_id: str, idempotent: bool) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, enable_idempotence=idempotent)

    def send(self, topic: str) -> str:
        try:
            self._producer.send(topic, b"x").get(PATIENCE)
        except PythonError as error:
            self.said = str(error)
            return type(error).__name__
        return "ok"

    def close(self) -> None:
        self._producer.close(timeout=1)


@dataclass(frozen=True)
class Row:
    """A row of the page. `after_44` is what the same producer does once the topic is free; `elsewhere` after 90."""

    make: Callable[[str, str, bool], Client]
    idempotent: bool
    refused: str
    after_44: str
    deposed: str
    elsewhere: str


ROWS = {
    "librdkafka-idempotent": Row(Librdkafka, True, "POLICY_VIOLATION", "ok", "PRODUCER_FENCED", "ok"),
    "librdkafka-plain": Row(Librdkafka, False, "POLICY_VIOLATION", "ok", "PRODUCER_FENCED", "ok"),
    "aiokafka-idempotent": Row(Aiokafka, True, "PolicyViolationError", "ok", "UnknownError", "ok"),
    "aiokafka-plain": Row(Aiokafka, False, "PolicyViolationError", "ok", "UnknownError", "ok"),
    "kafka-python-idempotent": Row(
        KafkaPython, True, "PolicyViolationError", "PolicyViolationError", "ProducerFencedError", "ProducerFencedError"
    ),
    "kafka-python-plain": Row(KafkaPython, False, "PolicyViolationError", "ok", "ProducerFencedError", "ok"),
}


_SMOKE = ("librdkafka-idempotent", "kafka-python-plain")
each_row = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.smoke] * (name in _SMOKE)) for name in ROWS]
)


class Ground:
    """A node, topics, and producers that are closed in the end."""

    def __init__(self, node: NodeProcess, kafka: str, closing: ExitStack) -> None:
        self._node = node
        self._kafka = kafka
        self._closing = closing
        self._admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})

    def topic(self, *, exclusive: bool) -> str:
        name = f"recipe-{uuid.uuid4().hex[:10]}"
        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE)
        if exclusive:
            body = b'{"access_mode": "exclusive"}'
            wait_for(lambda: self._ask("PUT", f"/v1/topics/{name}/policy", body) is not None, "the policy")
        return name

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(self._node.admin_url + path, body, method=method)
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def owner(self, topic: str) -> str | None:
        found = self._ask("GET", f"/v1/topics/{topic}")["owner"]
        return None if found is None else found["name"]

    def client(self, row: Row, client_id: str) -> Client:
        client = row.make(self._node.bootstrap, client_id, row.idempotent)
        self._closing.callback(client.close)
        return client

    def somebody(self, client_id: str) -> Librdkafka:
        """The other side, whose own kind is not what the page is about: a plain one is there half a second sooner."""
        return Librdkafka(self._node.bootstrap, client_id, idempotent=False)

    def leave(self, client: Librdkafka, topic: str) -> None:
        client.close()
        wait_for(lambda: self.owner(topic) is None, "the owner to be gone")


@pytest.fixture
def ground(node: NodeProcess, services: Services) -> Iterator[Ground]:
    with ExitStack() as closing:
        yield Ground(node, services.kafka_bootstrap, closing)


@each_row
def test_a_refused_producer_fails_the_record_and_writes_once_the_topic_is_free(name: str, ground: Ground) -> None:
    row, topic = ROWS[name], ground.topic(exclusive=True)
    owner = ground.somebody("owner")
    assert owner.send(topic) == "ok"
    client = ground.client(row, "client")
    assert [client.send(topic), client.send(topic)] == [row.refused] * 2
    ground.leave(owner, topic)
    assert client.send(topic) == row.after_44
    assert ground.owner(topic) == ("client" if row.after_44 == "ok" else None)


SAID = {
    "librdkafka-idempotent": "Broker: Policy violation",
    "aiokafka-plain": "[Error 44] PolicyViolationError",
    "kafka-python-plain": "Topic has an existing exclusive producer: owner (generation 1)",
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", SAID)
def test_a_library_shows_or_hides_the_reason_as_the_page_says(name: str, ground: Ground) -> None:
    topic = ground.topic(exclusive=True)
    assert ground.client(ROWS["librdkafka-plain"], "owner").send(topic) == "ok"
    rival = ground.client(ROWS[name], "rival")
    assert rival.send(topic) == ROWS[name].refused
    assert SAID[name] in rival.said
    shown = page("docs/use/clients.md").text.replace("producer: billing", "producer: owner")
    assert SAID[name] in shown
    assert ("existing exclusive producer" in rival.said) == (name == "kafka-python-plain")


@each_row
def test_a_deposed_producer_is_told_so_and_some_lose_their_other_topics_by_it(name: str, ground: Ground) -> None:
    row, topic, other = ROWS[name], ground.topic(exclusive=True), ground.topic(exclusive=False)
    client = ground.client(row, "client")
    assert [client.send(topic), client.send(other)] == ["ok", "ok"]
    usurper = ground.somebody("usurper;mode=exclusive_with_fencing")
    assert usurper.send(topic) == "ok"
    assert client.send(topic) == row.deposed
    assert client.send(other) == row.elsewhere
    usurper.close()


@each_row
def test_a_waiting_producer_retries_until_the_topic_is_its_own(name: str, ground: Ground) -> None:
    row, topic = ROWS[name], ground.topic(exclusive=True)
    owner = ground.somebody("owner")
    assert owner.send(topic) == "ok"
    client = ground.client(row, "client;mode=wait_for_exclusive")
    told: list[str] = []
    waiting = threading.Thread(target=lambda: told.append(client.send(topic)))
    waiting.start()
    wait_for(
        lambda: [each["name"] for each in ground._ask("GET", f"/v1/topics/{topic}")["waiting"]] == ["client"],
        "it to wait",
    )
    assert not told
    ground.leave(owner, topic)
    waiting.join(PATIENCE)
    assert told == ["ok"]


@pytest.mark.parametrize(
    ("make", "idempotent", "outcome"),
    [
        pytest.param(Librdkafka, True, "_MSG_TIMED_OUT", id="librdkafka-idempotent"),
        pytest.param(Librdkafka, False, "INVALID_REQUEST", id="librdkafka-plain", marks=pytest.mark.smoke),
        pytest.param(Aiokafka, True, "InvalidRequestError", id="aiokafka-idempotent"),
        pytest.param(Aiokafka, False, "InvalidRequestError", id="aiokafka-plain"),
        pytest.param(KafkaPython, True, "KafkaError", id="kafka-python-idempotent"),
        pytest.param(KafkaPython, False, "InvalidRequestError", id="kafka-python-plain"),
    ],
)
def test_a_wrong_client_id_shows_in_each_clients_own_way(
    make: Callable[[str, str, bool], Client],
    idempotent: bool,
    outcome: str,
    ground: Ground,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Librdkafka, "message_timeout_ms", 1_000)
    topic = ground.topic(exclusive=False)
    try:
        client = ground.client(Row(make, idempotent, "", "", "", ""), "client;mod=exclusive")
        told = client.send(topic)
    except (AioError, PythonError) as error:
        told = type(error).__name__
    assert told == outcome
