"""A real client, librdkafka, at a node that checks its tokens by a set of keys: keys that change, tokens that end."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AclOperation, ResourceType
from cryptography.hazmat.primitives.asymmetric import ec

from sidecar.local.ports import HOST
from sidecar.security.jwks import RETRY_S
from tests.conftest import StartNode
from tests.kafka.security.secured import Secured
from tests.kafka.security.test_listener import allow, passes, refusal_of
from tests.nodes import NodeProcess
from tests.unit.security.test_jwks import jwk, key_set, token
from tests.wait import wait_for

Unique = Callable[[str], str]
LIFETIME_S = 10.0
"""Of a token, and so of a session. librdkafka asks for another one after 8 s: a session that begins just before that is
renewed after 1.8 s; within a second of the last login a broker refuses that, and so does a node.
"""
SHORT_S = 3.0
PAUSE_S = 0.02
"""Between records: as many as possible would only take CPU."""


class Issuer:
    """Signs tokens with its newest key, whose public half is in the set that it serves; older ones are taken out."""

    def __init__(self) -> None:
        self.url = ""
        self.asked = 0
        self.rotations = 0
        self.rotate()

    def rotate(self) -> None:
        self.rotations += 1
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def key_set(self) -> bytes:
        self.asked += 1
        return key_set(jwk(self._key, str(self.rotations)))

    def sign(self, lifetime_s: float = LIFETIME_S, **claims: Any) -> tuple[str, float]:
        """What librdkafka takes: a token and when it ends."""
        until = time.time() + lifetime_s
        said: dict[str, Any] = {"exp": until, **claims}
        return token(self._key, str(self.rotations), **said), until


@contextmanager
def serving_keys() -> Iterator[Issuer]:
    """An issuer whose key set is at its `url`."""
    made = Issuer()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = made.key_set
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing: the tests' output is not its log."""

    server = ThreadingHTTPServer((HOST, 0), Answer)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    made.url = f"http://{HOST}:{server.server_port}/keys"
    try:
        yield made
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving_keys() as made:
        yield made


@pytest.fixture
def topic(secured: Secured, unique: Unique) -> Iterator[str]:
    """Alice may write and read it."""
    name = unique("tokens")
    secured.topics(name)
    allow(secured, ResourceType.TOPIC, name, AclOperation.READ, AclOperation.WRITE)
    allow(secured, ResourceType.GROUP, name, AclOperation.READ)
    yield name
    secured.forget_acls()


@pytest.fixture
def node(secured: Secured, node_process: StartNode, issuer: Issuer, topic: str) -> NodeProcess:
    """It enforces the rules of `topic` from its start."""
    assert topic
    return node_process(
        kafka=f"{HOST}:{secured.ports['PLAINTEXT']}",
        SECURITY_PROTOCOL="SASL_PLAINTEXT",
        SASL_AUTHENTICATION="jwks",
        SASL_JWKS_URL=issuer.url,
        SASL_AUDIENCE="kafka",
        SASL_ISSUER="https://idp.example",
        AUTHORIZER="kafka",
    )


def by_token(node: NodeProcess, give: Callable[[], tuple[str, float]]) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: give(),  # pyright: ignore[reportUnknownLambdaType]
    }


def metric(node: NodeProcess, name: str) -> float:
    text = urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=10).read().decode()
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE))


class Writing:
    """A producer that writes numbers and hears of each; `refused` are the errors."""

    def __init__(self, settings: dict[str, Any], topic: str, timeout_s: float = 30) -> None:
        self.delivered = 0
        self.refused: list[KafkaError] = []
        self.heard: list[KafkaError] = []
        self._topic = topic
        self._producer = Producer(
            {**settings, "linger.ms": 0, "message.timeout.ms": int(timeout_s * 1_000), "error_cb": self.heard.append}
        )

    def write_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                self._producer.produce(self._topic, b"x", on_delivery=self._told)
            except KafkaException as error:  # it has heard that the topic is not its own
                self.refused.append(error.args[0])
            after = time.monotonic() + PAUSE_S
            while (left := after - time.monotonic()) > 0:  # it returns as soon as a record is delivered
                self._producer.poll(left)
        assert self._producer.flush(60) == 0

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.refused.append(error)


def test_a_client_goes_on_while_tokens_end_and_the_key_is_another(
    node: NodeProcess, issuer: Issuer, topic: str
) -> None:
    """Each token is replaced on the open connection (KIP-368); the new key is fetched when the first token names it."""
    successes = 'sidecar_authentications_total{mechanism="OAUTHBEARER",result="success"}'
    writing = Writing(by_token(node, issuer.sign), topic)
    writing.write_for(RETRY_S)  # sooner after the last time a node asks for no keys
    assert issuer.asked == 1
    logins, connections = metric(node, successes), metric(node, "sidecar_client_connections")
    issuer.rotate()
    writing.write_for(1.5 * LIFETIME_S)
    assert issuer.asked == 2
    assert metric(node, successes) > logins
    assert metric(node, "sidecar_client_connections") == connections
    assert (writing.refused, writing.heard) == ([], [])
    assert writing.delivered > 0
    assert "session_ended" not in node.log


def test_a_client_without_a_new_token_is_cut_off_when_its_own_ends(
    node: NodeProcess, issuer: Issuer, topic: str
) -> None:
    """It says that its token is good for longer than it is, so that it does not ask for another one."""
    writing = Writing(by_token(node, lambda: (issuer.sign(SHORT_S)[0], time.time() + 3_600)), topic, timeout_s=5)
    writing.write_for(1)
    assert writing.delivered > 0
    time.sleep(SHORT_S)
    delivered = writing.delivered
    writing.write_for(0.1)
    assert writing.delivered == delivered
    assert any(error.code() == KafkaError._AUTHENTICATION for error in writing.heard)
    wait_for(lambda: "expired" in node.log, "the end of the session", 10)


def test_each_wrong_token_is_refused(node: NodeProcess, issuer: Issuer, topic: str) -> None:
    passes(by_token(node, lambda: issuer.sign(600)), topic)
    stranger = Issuer()
    wrong: dict[str, tuple[str, float]] = {
        "expired": issuer.sign(-60),
        "of another key by that name": stranger.sign(),
        "for somebody else": issuer.sign(aud="mail"),
        "of another issuer": issuer.sign(iss="https://other.example"),
        "of nobody": issuer.sign(sub=None),
    }
    for what, (text, _) in wrong.items():
        said = refusal_of(by_token(node, lambda text=text: (text, time.time() + 3_600)))
        assert "Authentication failed" in said, what
        assert text not in node.log
    stranger.rotate()
    assert "Authentication failed" in refusal_of(by_token(node, lambda: stranger.sign(600)))
    assert issuer.asked <= 2, "a token that names an unknown key makes a node ask, not twice within ten seconds"
    assert json.dumps("a key that is not in the set")[1:-1] in node.log


def test_a_token_gives_the_rights_of_its_owner_alone(node: NodeProcess, issuer: Issuer, topic: str) -> None:
    writing = Writing(by_token(node, lambda: issuer.sign(600, sub="mallory")), topic)
    writing.write_for(0.2)
    assert writing.delivered == 0
    assert {error.code() for error in writing.refused} == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
