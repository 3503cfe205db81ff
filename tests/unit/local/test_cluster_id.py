"""The id of a cluster that is formatted."""

from __future__ import annotations

import uuid

import pytest

from sidecar.local.kafka import new_cluster_id


@pytest.mark.parametrize(("drawn", "cluster"), [("fb" + 30 * "0", "0wAA"), ("04" + 30 * "0", "BAAA")])
def test_no_id_begins_as_an_option_does(monkeypatch: pytest.MonkeyPatch, drawn: str, cluster: str) -> None:
    """One in 64 did: Kafka's own tool took it for one, and the container ended."""
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(drawn))
    assert new_cluster_id()[:4] == cluster
