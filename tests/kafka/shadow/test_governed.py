"""A shadow whose name begins as a policy says: nobody writes to it, so it is not governed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sidecar.v1 import control_pb2 as control
from tests.conftest import Unique
from tests.nodes import NodeProcess
from tests.own import OwnClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic


@pytest.fixture
def ledger(services: Services, rest: Rest, unique: Unique) -> Iterator[str]:
    """A topic under a prefix's policy, with the shadow `…-audit`."""
    name = create_topic(services.kafka_bootstrap, 1, unique("ledger"))
    assert rest.call("PUT", f"/v1/topics/{name}*/policy", {"access_mode": "exclusive"})[0] == 200
    assert rest.call("POST", f"/v1/topics/{name}/shadows", {"name": f"{name}-audit"})[0] == 201
    yield name
    assert rest.call("DELETE", f"/v1/topics/{name}*/policy")[0] == 204


def listed(rest: Rest, ledger: str, *, governed: bool) -> dict[str, Any]:
    """Policies by topic."""
    _, found = rest.call("GET", f"/v1/topics?contains={ledger}&governed={str(governed).lower()}")
    return {each["topic"]: each["policy"] for each in found["items"]}


def test_it_is_neither_listed_nor_counted_nor_shown_as_governed(rest: Rest, ledger: str) -> None:
    def count() -> int:
        return rest.call("GET", "/v1/status")[1]["governed_topics"]

    audit, before = f"{ledger}-audit", count()
    assert rest.topic(audit)["policy"] is None
    assert count() <= before  # topics of other tests come to their end
    assert set(listed(rest, ledger, governed=True)) == {ledger, f"{ledger}*"}
    assert listed(rest, ledger, governed=False)[audit] is None


def test_what_the_list_of_policies_holds_can_be_set_again(rest: Rest, ledger: str) -> None:
    for name, policy in listed(rest, ledger, governed=True).items():
        decided = {field: value for field, value in policy.items() if value is not None}
        status, answer = rest.call("PUT", f"/v1/topics/{name}/policy", decided)
        assert status == 200, answer
    assert rest.call("DELETE", f"/v1/topics/{ledger}/policy")[0] == 204


def test_a_policy_that_waited_for_a_topic_of_its_name_is_listed_no_more(
    rest: Rest, services: Services, unique: Unique
) -> None:
    source, name = create_topic(services.kafka_bootstrap, 1), unique("waiting")
    assert rest.call("PUT", f"/v1/topics/{name}/policy", {"access_mode": "exclusive"})[0] == 200
    assert set(listed(rest, name, governed=True)) == {name}
    assert rest.call("POST", f"/v1/topics/{source}/shadows", {"name": name})[0] == 201
    assert listed(rest, name, governed=True) == {}
    assert rest.call("DELETE", f"/v1/topics/{name}/policy")[0] == 204


def test_its_owner_is_not_told_of(node: NodeProcess, ledger: str) -> None:
    audit = control.Resource(topic=f"{ledger}-audit")
    with OwnClient(node.bootstrap) as own:
        told = {each.resource.topic for each in own.owners().ownerships}
        named = own.owners(audit).ownerships
    assert ledger in told
    assert audit.topic not in told
    assert [(each.error, each.owner_name) for each in named] == [(control.NONE, "")]
