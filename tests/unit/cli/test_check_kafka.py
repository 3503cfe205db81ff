"""What `sidecar doctor` says of a Kafka that asks for a login."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sidecar import settings
from sidecar.cli.checks.kafka import check_kafka
from sidecar.settings import Address
from tests.unit.network.peers import broker, on_uvloop
from tests.unit.network.test_upstream_login import Doorkeeper

if TYPE_CHECKING:
    from sidecar.settings import Settings


def with_login(**changed: str) -> Settings:
    return replace(
        settings.load(),
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="PLAIN",
        kafka_sasl_username="alice",
        **changed,
    )


@on_uvloop
async def test_a_login_that_is_refused_is_told() -> None:
    keeper = Doorkeeper(error=58)
    keeper.may_answer.set()
    async with broker(keeper) as address:
        given = replace(with_login(kafka_sasl_password="wrong"), bootstrap_servers=(Address(*address),))
        (found,) = await check_kafka(given, [])
    assert "cannot log in" in found.detail
    assert "who are you" in found.detail
    assert keeper.told == ["handshake", "login"]


@on_uvloop
async def test_a_login_that_cannot_be_made_is_told() -> None:
    (found,) = await check_kafka(with_login(kafka_sasl_password="a\0b"), [])
    assert "NUL" in found.detail
