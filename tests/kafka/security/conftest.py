"""The secured brokers that the tests of this directory share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.security.secured import LENIENT_SESSION_MS, SCRAM, SHARED, Secured, secured_kafka


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured"), **SHARED) as running:
        yield running


@pytest.fixture(scope="session")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Allows what no rule names, makes no delegation tokens, and has every mechanism with TLS, PLAIN alone without."""
    with secured_kafka(
        tmp_path_factory.mktemp("lenient"),
        plain_mechanisms="PLAIN",
        tls_mechanisms=",".join(("PLAIN", *SCRAM, "OAUTHBEARER")),
        tls_session_ms=LENIENT_SESSION_MS,
        allow_everyone_if_no_acl_found="true",
    ) as running:
        yield running
