"""What only brokers of the newest Kafka offer, through a node and at the broker itself."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sidecar.gateway.apis.table import APIS
from tests import raw
from tests.kafka.gateway.by_id import create, id_of
from tests.kafka.gateway.requests import request
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster

pytestmark = pytest.mark.slow
OWN, OTHER = "own", "other"


@pytest.mark.parametrize(
    ("cluster", "node", "error"),
    [
        (None, None, 0),
        (OWN, OWN, 0),
        (OWN, OTHER, 129),
        (OTHER, OWN, 129),
        (OTHER, OTHER, 129),
        (OWN, None, 42),
        (None, OWN, 42),
    ],
)
def test_a_client_that_means_another_broker_is_sent_back_to_its_bootstrap_servers(
    newest: VirtualCluster, newest_kafka: Kafka, cluster: str | None, node: str | None, error: int
) -> None:
    """KIP-1242. A node is meant by its own number, not by a broker's."""
    answers = []
    for bootstrap in (newest.bootstrap, newest_kafka.bootstrap):
        with RawClient(bootstrap) as wire:
            described = wire.ask(raw.metadata([], version=12))
            ids = {None: -1, OWN: described.brokers[0].node_id, OTHER: 4711}
            clusters = {None: None, OWN: described.cluster_id, OTHER: "another-cluster"}
            named = {"cluster_id": clusters[cluster], "node_id": ids[node]}
            software = {"client_software_name": "raw", "client_software_version": "1"}
            answers.append(wire.ask(request(18, 5, **software, **named)))
    mine, theirs = answers
    assert (raw.code(mine), raw.code(theirs)) == (error, error)
    assert [(found.api_key, found.max_version) for found in mine.api_keys] == [
        (found.api_key, min(found.max_version, APIS[found.api_key].last))
        for found in theirs.api_keys
        if found.api_key in APIS
    ]
    assert (mine.supported_features, mine.finalized_features, mine.finalized_features_epoch) == (
        theirs.supported_features,
        theirs.finalized_features,
        theirs.finalized_features_epoch,
    )


# TxnOffsetCommit 6 ----------------------------------------------------------------------------------------------------


def test_offsets_are_committed_by_id_in_a_transaction_as_at_a_broker(
    newest: VirtualCluster, newest_kafka: Kafka, unique: Unique
) -> None:
    """KIP-1319. A node finds names by ids: rights and shadows go by names."""
    topic, other = unique("orders"), unique("payments")
    create(newest_kafka.bootstrap, topic, other)
    ids = [id_of(newest_kafka.bootstrap, name) for name in (topic, other)]
    mine, theirs = (
        _committed_in_a_transaction(bootstrap, unique("txn"), unique("group"), [*ids, UUID(int=0x1234)])
        for bootstrap in (newest.bootstrap, newest_kafka.bootstrap)
    )
    assert mine == theirs
    assert mine[1] == {ids[0]: 3, ids[1]: 3}


def _committed_in_a_transaction(bootstrap: str, name: str, group: str, ids: list[UUID]) -> tuple[Any, dict[Any, int]]:
    """The codes of a commit of offset 3 in partitions 0 and 77 of each topic, and what the group has then."""
    with RawClient(bootstrap) as wire:
        codes = raw.code(wire.ask(request(10, 3, key=name, key_type=1))), raw.code(wire.ask(request(10, 3, key=group)))
        assert codes == (0, 0)
        begun = wire.ask(request(22, 4, transactional_id=name, transaction_timeout=60_000, producer_id=-1))
        whose = {
            "transactional_id": name,
            "producer_id": begun.producer_id,
            "producer_epoch": begun.producer_epoch,
            "group_id": group,
        }
        assert raw.code(wire.ask(request(25, 4, **whose))) == 0
        places = [{"partition_index": index, "committed_offset": 3, "committed_metadata": ""} for index in (0, 77)]
        asked = request(28, 6, **whose, topics=[{"topic_id": topic, "partitions": places} for topic in ids])
        answer = wire.ask(asked)
        found = {
            (topic.topic_id, each.partition_index): raw.code(each)
            for topic in answer.topics
            for each in topic.partitions
        }
        assert raw.code(wire.ask(request(26, 4, **{**whose, "committed": True}))) == 0
        asked = request(9, 10, groups=[{"group_id": group, "topics": None}], require_stable=True)
        fetched: dict[Any, int] = {}

        def is_committed() -> bool:  # once the coordinator has the transaction's marker
            topics = wire.ask(asked).groups[0].topics
            fetched.update((topic.topic_id, each.committed_offset) for topic in topics for each in topic.partitions)
            return len(fetched) == len(ids) - 1 and set(fetched.values()) == {3}

        wait_for(is_committed, "the offsets of the known topics", 20)
        return found, fetched


# DeleteGroups 3 -------------------------------------------------------------------------------------------------------


def test_why_a_group_is_not_deleted_is_said_as_the_coordinator_says_it(
    newest: VirtualCluster, newest_kafka: Kafka, unique: Unique
) -> None:
    used, absent = unique("used"), unique("absent")
    member = {"group_id": used, "member_id": str(uuid.uuid4()), "member_epoch": 0, "subscribed_topic_names": ["t"]}
    with RawClient(newest_kafka.bootstrap) as wire:
        assert raw.code(wire.ask(request(10, 3, key=used))) == 0
        assert raw.code(wire.ask(request(76, 1, **member))) == 0
    mine, theirs = (
        {found.group_id: (raw.code(found), found.error_message) for found in _deleted(bootstrap, used, absent)}
        for bootstrap in (newest.bootstrap, newest_kafka.bootstrap)
    )
    assert mine == theirs
    assert {name: code for name, (code, _) in mine.items()} == {used: 68, absent: 69}


def _deleted(bootstrap: str, *groups: str) -> Any:
    with RawClient(bootstrap) as wire:
        return wire.ask(request(42, 3, groups_names=groups)).results
