"""Java's KafkaShareConsumer (KIP-932) on brokers, and through two nodes in front of them."""

from __future__ import annotations

import pytest

from sidecar.local.jars import resolve
from tests.conftest import Unique
from tests.topics import create_topic

from .applications import Application
from .further import KAFKA
from .outcome import Route
from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
SHADOW_REFUSED = "a share group cannot read a shadow topic: subscribe to its source"
each_route = pytest.mark.parametrize("route", Route, ids=lambda route: route.value)


@pytest.fixture(scope="module")
def shares() -> Application:
    return Application("Shares", resolve(KAFKA))


@pytest.mark.further("share-acknowledge")
@each_route
def test_records_are_accepted_released_rejected_and_renewed(
    shares: Application, stage: Stage, route: Route, unique: Unique
) -> None:
    topic = create_topic(stage.behind.bootstrap, 2)
    told = shares.run("acknowledge", stage.at(route), topic, unique("group"))
    kinds = ("accept 1", "renew 1, accept 1", "reject 1", "release 1, accept 2")
    assert told == [
        *(f"{number}: {kinds[number % 4]}" for number in range(16)),
        "later: [16, 17, 18, 19]",
        "the next member: [20, 21, 22, 23]",
    ]


@pytest.mark.further("share-together")
@each_route
def test_two_members_share(shares: Application, stage: Stage, route: Route, unique: Unique) -> None:
    topic = create_topic(stage.behind.bootstrap, 2)
    told = shares.run("together", stage.at(route), topic, unique("group"))
    assert told == ["200 records, 200 different ones", "both members took some: true"]


@pytest.mark.further("share-shadow")
def test_a_member_is_refused_on_a_shadow_and_raises_the_reason(
    shares: Application, stage: Stage, unique: Unique
) -> None:
    """Once: a client that is told 29 TOPIC_AUTHORIZATION_FAILED joins again without a pause."""
    source, shadow = create_topic(stage.behind.bootstrap, 2), unique("audit")
    assert stage.rest.call("POST", f"/v1/topics/{source}/shadows", {"name": shadow})[0] == 201
    told = shares.run("refused", stage.at(Route.NODE), shadow, unique("group"))
    assert told == [f"InvalidRequestException: {SHADOW_REFUSED}"]
    assert stage.refusals(shadow) == [("INVALID_REQUEST", SHADOW_REFUSED, 1)]
