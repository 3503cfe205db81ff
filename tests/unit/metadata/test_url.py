"""Which URLs and names a store takes; nothing here connects."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Connection, SSLConnection, UnixDomainSocketConnection

from metadata import MetadataStore


@pytest.mark.parametrize(
    ("url", "address", "kind"),
    [
        ("redis://", "localhost:6379", Connection),
        ("redis://redis", "redis:6379", Connection),
        ("redis://:secret@10.0.0.1:7000/2", "10.0.0.1:7000", Connection),
        ("redis://user:secret@[::1]:7000", "::1:7000", Connection),
        ("rediss://redis:6380?ssl_ca_certs=/etc/ca.pem", "redis:6380", SSLConnection),
        ("unix:///run/redis.sock?db=1", "/run/redis.sock", UnixDomainSocketConnection),
    ],
)
def test_a_url_names_the_server_and_how_to_reach_it(url: str, address: str, kind: type):
    store = MetadataStore(url)
    assert store.address == address
    assert store._server._connection_class is kind
    assert kind(**store._server._options) is not None


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://redis:6379", "none of redis://"),
        ("redis:6379", "none of redis://"),
        ("redis://redis:port", "none of redis://"),
        ("redis://redis/first", "must be a number"),
        ("redis://redis?retry_on_timeout=true", "retry_on_timeout"),
        ("redis://redis?socket_timeout=30&decode_responses=yes", "decode_responses, socket_timeout"),
        ("redis://redis?ssl_ca_certs=/etc/ca.pem", "only rediss:// takes ssl_ca_certs"),
        ("rediss://redis?ssl_cert_reqs=none", "ssl_cert_reqs"),
    ],
)
def test_a_url_that_would_not_do_what_it_says_is_refused(url: str, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        MetadataStore(url)


def test_a_password_does_not_get_into_the_complaint():
    with pytest.raises(ValueError, match="none of") as refusal:
        MetadataStore("redis://user:top/secret@redis:6379")
    assert "top" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize("cluster", ["", "a{b", "}"])
def test_a_cluster_name_that_would_break_the_hash_slot_is_refused(cluster: str):
    with pytest.raises(ValueError, match="cluster name"):
        MetadataStore("redis://redis", cluster)


@pytest.mark.parametrize(
    "setting", [{"lease_ms": 0}, {"connect_timeout_ms": 0}, {"command_timeout_ms": 0}, {"connections": 0}]
)
def test_bounds_that_bound_nothing_are_refused(setting: dict[str, Any]):
    with pytest.raises(ValueError, match=r"at least|positive"):
        MetadataStore("redis://redis", **setting)
