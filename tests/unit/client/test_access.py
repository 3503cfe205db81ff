"""Parameters of TLS and logins that do not fit together."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from sidecar.client import ExclusiveProducer, Leadership, ShadowReader
from sidecar.client.access import NodeAccess

NAMED = {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"security_protocol": "TLS"}, "'TLS' is none of PLAINTEXT, SSL"),
    ({"ssl_context": ssl.create_default_context()}, "ssl_context is of no use: security_protocol is PLAINTEXT"),
    ({"security_protocol": "SSL", **NAMED}, "there is no login with security_protocol SSL"),
    ({"security_protocol": "SASL_SSL"}, "PLAIN takes sasl_plain_username and sasl_plain_password"),
    ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", **NAMED}, "'GSSAPI' is no mechanism"),
    ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_provider is missing"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_does_not_fit_together_is_refused(given: dict[str, Any], said: str) -> None:
    for made in (
        lambda: ExclusiveProducer("localhost:1", "orders", **given),
        lambda: Leadership("localhost:1", "x", **given),
        lambda: ShadowReader("localhost:1", "audit", **given),
    ):
        with pytest.raises(ValueError, match=said) as error:
            made()
        assert "secret" not in str(error.value)


def test_without_a_context_the_systems_certificates_are_trusted() -> None:
    tls = NodeAccess("SSL").tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert tls.check_hostname
