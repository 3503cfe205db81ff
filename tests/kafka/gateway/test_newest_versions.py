"""What only brokers of the newest Kafka offer, through a node and at the broker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.gateway.apis.table import APIS
from tests import raw
from tests.kafka.gateway.requests import request
from tests.raw import RawClient

if TYPE_CHECKING:
    from sidecar.local import Kafka
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
