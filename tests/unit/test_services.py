"""Which Kafka and Redis a session of tests gets: the first backend that starts, and a sentence about each that did not.

The engine here speaks HTTP as Docker's does and has neither images nor a registry; containers on a real one are started
by `tests/slow/local/test_containers.py`.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from sidecar.local.kafka_config import KafkaConfig, Ports, broker_properties
from tests import containers
from tests.containers import NotStartedError
from tests.services import BACKENDS, Backend, Choice, Services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def nothing(_text: str) -> None:
    pass


def backend(name: str, *, refusal: str | None = None, image: str | None = None, start: str | None = None) -> Backend:
    """A backend that refuses, or fails to bring its image or to start, with the sentences given."""

    def fail(sentence: str | None) -> None:
        if sentence is not None:
            raise NotStartedError(sentence)

    @contextmanager
    def run(_directory: Path) -> Iterator[Services]:
        fail(start)
        yield Services("kafka", "redis", name, frozenset())

    return Backend(name, lambda: refusal, run, lambda _tell: fail(image))


def choice(name: str, *backends: Backend) -> Choice:
    return Choice(name, {each.name: each for each in backends})


def test_the_first_backend_that_is_usable_is_taken(tmp_path: Path):
    chosen = choice("auto", backend("first", refusal="not set"), backend("second"), backend("third"))

    chosen.bring(nothing)
    with chosen.run(tmp_path) as services:
        assert (services.backend, chosen.name) == ("second", "second")
    assert chosen.given_up == []


@pytest.mark.parametrize("failing", [{"image": "no such host"}, {"start": "no such host"}])
def test_one_that_does_not_start_gives_way_to_the_next_with_a_sentence(tmp_path: Path, failing: dict[str, str]):
    chosen = choice("auto", backend("docker", **failing), backend("other", refusal="not set"), backend("embedded"))

    chosen.bring(nothing)
    with chosen.run(tmp_path) as services:
        assert services.backend == "embedded"
    assert chosen.given_up == ["embedded takes the place of docker: no such host"]


def test_one_that_was_named_gives_way_to_nothing(tmp_path: Path):
    chosen = choice("docker", backend("docker", start="no such host"), backend("embedded"))

    with pytest.raises(NotStartedError, match="no such host"), chosen.run(tmp_path):
        pass
    assert choice("docker", backend("docker", refusal="no engine"), backend("embedded")).refusal == "no engine"


def test_a_failure_while_the_tests_run_is_not_taken_for_one_to_start(tmp_path: Path):
    chosen = choice("auto", backend("docker"), backend("embedded"))

    with pytest.raises(NotStartedError, match="of a test"), chosen.run(tmp_path):
        raise NotStartedError("of a test")
    assert (chosen.name, chosen.given_up) == ("docker", [])


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    """A Docker engine without images; pulls are answered with the error it is called with, with None never."""
    ended = threading.Event()
    error: str | None = None

    class Engine(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith("/version"):
                self._answer(200, {"ApiVersion": "1.41"})
            elif self.path.endswith("/_ping"):
                self._answer(200, "OK")
            else:
                self._answer(404, {"message": "No such image"})

        def do_POST(self) -> None:
            if error is None:
                ended.wait()
            self._answer(500, {"message": error})

        def _answer(self, status: int, body: object) -> None:
            text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    def fails_with(sentence: str | None) -> None:
        nonlocal error
        error = sentence

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Whoever waited for its answer was ended."""

    with Server(("127.0.0.1", 0), Engine) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        yield fails_with
        ended.set()
        server.shutdown()
        serving.join()


def docker_then_embedded() -> Choice:
    return choice("auto", BACKENDS["docker"], backend("embedded"))


def test_an_engine_that_reaches_no_registry_is_given_up_with_its_own_words(engine: Callable[[str | None], None]):
    engine("lookup registry-1.docker.io: no such host")
    chosen = docker_then_embedded()
    assert chosen.name == "docker"

    chosen.bring(nothing)

    (sentence,) = chosen.given_up
    assert sentence.startswith(f"embedded takes the place of docker: {containers.REDIS_IMAGE} cannot be pulled: ")
    assert "lookup registry-1.docker.io: no such host" in sentence
    assert "\n" not in sentence


def test_a_registry_that_is_silent_is_given_up_after_a_bound(
    engine: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(containers, "PULL_SILENCE_S", 1)
    engine(None)
    chosen = docker_then_embedded()

    chosen.bring(nothing)

    assert chosen.given_up == [
        f"embedded takes the place of docker: {containers.REDIS_IMAGE} cannot be pulled: nothing came of it for 1 s"
    ]


def test_an_engine_without_the_images_runs_no_container(engine: Callable[[str | None], None]):
    engine("no such image")
    with pytest.raises(NotStartedError, match="o such image"), containers.running():
        pass


def test_where_no_engine_listens_docker_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    refusal = BACKENDS["docker"].refusal()
    assert refusal is not None
    assert refusal.startswith("no Docker engine answers: ")
    assert choice("auto", BACKENDS["docker"], backend("embedded")).name == "embedded"


def test_the_broker_in_a_container_has_the_properties_of_the_embedded_one(tmp_path: Path):
    environment = containers.kafka_environment()
    found = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()}
    wanted = broker_properties(KafkaConfig(), 1, {1: Ports(9092, 9093)}, tmp_path)

    of_a_container = {
        "advertised.listeners",
        "listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "controller.quorum.voters",
        "log.dirs",
    }
    assert {name for name in wanted if found.get(name) != wanted[name]} == of_a_container
    assert found.keys() - wanted.keys() == {"cluster.id", "heap.opts"}
