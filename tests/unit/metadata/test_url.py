"""Which URLs and names a store takes; nothing here connects."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest

from metadata import MetadataStore
from metadata.target import Target, parse_url

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("redis://", Target()),
        ("redis://redis", Target(host="redis")),
        ("redis://redis:7000/", Target(host="redis", port=7000)),
        ("redis://:secret@10.0.0.1:7000/2", Target(host="10.0.0.1", port=7000, password="secret", database=2)),
        ("redis://user:p%40ss%2Fword@[::1]", Target(host="::1", user="user", password="p@ss/word")),
        ("redis://redis?db=3", Target(host="redis", database=3)),
        ("unix:///run/redis.sock", Target(path="/run/redis.sock")),
        ("unix://:secret@/run/redis.sock?db=1", Target(path="/run/redis.sock", password="secret", database=1)),
    ],
)
def test_a_url_names_the_server_and_the_login(url: str, target: Target):
    assert parse_url(url) == target


def test_the_address_holds_no_credentials():
    store = MetadataStore("redis://user:secret@redis:7000/2")
    assert store.address == "redis:7000"
    assert "secret" not in repr(store._server.target)


def test_tls_verifies_the_certificate_and_the_name():
    context = parse_url("rediss://redis:6380").tls
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    relaxed = parse_url("rediss://redis?ssl_check_hostname=false").tls
    assert isinstance(relaxed, ssl.SSLContext)
    assert (relaxed.verify_mode, relaxed.check_hostname) == (ssl.CERT_REQUIRED, False)


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile"])
def test_a_certificate_that_cannot_be_read_is_refused_at_once(option: str, tmp_path: Path):
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for path in (garbage, tmp_path / "missing.pem"):
        with pytest.raises(ValueError, match="certificate"):
            parse_url(f"rediss://redis?{option}={path}")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://redis:6379", "none of redis://"),
        ("redis:6379", "none of redis://"),
        ("", "none of redis://"),
        ("unix://", "none of redis://"),
        ("redis://redis:port", "none of redis://"),
        ("redis://[::1", "none of redis://"),
        ("redis://redis/first", "must be a number"),
        ("redis://redis?db=-1", "must be a number"),
        ("redis://user@redis", "user without a password"),
        ("redis://redis?retry_on_timeout=true", "retry_on_timeout"),
        ("redis://redis?socket_timeout=30&decode_responses=yes", "decode_responses, socket_timeout"),
        ("redis://redis?ssl_ca_certs=/etc/ca.pem", "only rediss:// takes ssl_ca_certs"),
        ("rediss://redis?ssl_cert_reqs=none", "ssl_cert_reqs"),
        ("rediss://redis?ssl_check_hostname=maybe", "true or false"),
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
    assert refusal.value.__suppress_context__


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
