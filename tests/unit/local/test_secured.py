"""Secrets of a stack: made once, in files; what clients and Redis are told of them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from sidecar.local.secured import REDIS_RIGHTS, Secrets
from tests.unit.docs.pages import page


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path / "secured")


def test_a_secret_is_made_once_and_is_another_for_everybody(secrets: Secrets) -> None:
    made = {user: secrets.password(user) for user in ("sidecar", "admin", "app")}
    assert len(set(made.values())) == 3
    assert all(re.fullmatch(r"[0-9a-f]{64}", each) for each in made.values())
    again = Secrets(secrets.directory)
    assert {user: again.password(user) for user in made} == made
    assert again.ca.read_bytes() == secrets.ca.read_bytes()


def test_a_node_may_do_in_redis_what_the_page_says_and_others_may_ask_whether_it_is_there(secrets: Secrets) -> None:
    default, node = secrets.redis_users().read_text().splitlines()
    assert default == "user default on nopass resetkeys resetchannels -@all +ping +info|server"
    digest = hashlib.sha256(secrets.text("redis.password").encode()).hexdigest()
    assert node == f"user sidecar on #{digest} {REDIS_RIGHTS}"
    said = re.search(r"^ACL SETUSER sidecar on >PASSWORD (.*)$", page("docs/operate/operations.md").text, re.MULTILINE)
    assert said is not None
    assert said[1] == REDIS_RIGHTS


def test_clients_are_told_who_they_are_and_whom_they_trust(secrets: Secrets) -> None:
    files = secrets.client_files("node:19092", "/elsewhere/ca.pem")
    assert files.keys() == {f"{user}.{kind}" for user in ("app", "admin") for kind in ("properties", "conf")}
    told = {name: dict(line.split("=", 1) for line in text.splitlines()) for name, text in files.items()}
    for each in told.values():
        assert (each["bootstrap.servers"], each["security.protocol"]) == ("node:19092", "SASL_SSL")
    java, librdkafka = told["app.properties"], told["app.conf"]
    assert f'username="app" password="{secrets.password("app")}";' in java["sasl.jaas.config"]
    assert java["ssl.truststore.location"] == librdkafka["ssl.ca.location"] == "/elsewhere/ca.pem"
    assert librdkafka["sasl.password"] == secrets.password("app")
