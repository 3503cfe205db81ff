"""A job's own connections at a Kafka with TLS and logins."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from sidecar.local.ports import HOST
from sidecar.pipeline.errors import PipelineError
from sidecar.pipeline.kafka import Kafka
from tests.kafka.security.secured import NODE, PASSWORD, SHORT_REAUTHENTICATION_MS, Secured
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    Unique = Callable[[str], str]


def login(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": NODE,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_mechanism(secured: Secured, unique: Unique, mechanism: str) -> None:
    if mechanism != "PLAIN":
        secured.scram_user(NODE, mechanism)
    topic = unique("orders")
    secured.topics(topic)
    at = f"{HOST}:{secured.ports['SASL_PLAINTEXT']}"
    with Kafka(at, security=login(mechanism)) as kafka:
        assert kafka.ends(topic) == {0: 0}
    with pytest.raises(PipelineError, match="the login is refused") as error:
        Kafka(at, timeout=1.0, security=login(mechanism, "not the one"))
    assert "not the one" not in str(error.value)


def test_a_certificate(secured: Secured) -> None:
    certificate, key = secured.authority.issue(NODE, file="job")
    security = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority.ca),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }
    with Kafka(f"{HOST}:{secured.ports['SSL']}", security=security) as kafka:
        assert kafka.cluster_id


def test_a_job_goes_on_when_a_session_has_ended(secured: Secured, unique: Unique) -> None:
    secured.scram_user(NODE, "SCRAM-SHA-256")
    topic = unique("orders")
    secured.topics(topic)
    security = {**login("SCRAM-SHA-256"), "security.protocol": "SASL_SSL", "ssl.ca.location": str(secured.authority.ca)}
    with Kafka(f"{HOST}:{secured.ports['SASL_SSL']}", security=security) as kafka:
        ended = time.monotonic() + 2 * SHORT_REAUTHENTICATION_MS / 1_000
        assert kafka.ends(topic) == {0: 0}
        wait_for(lambda: time.monotonic() > ended, "the end of the session")
        assert kafka.ends(topic) == {0: 0}
