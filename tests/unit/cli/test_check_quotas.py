"""What `sidecar doctor` says of Kafka's client quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.cli.checks.finding import Level
from sidecar.cli.checks.quotas import judged
from sidecar.protocol.calls.security import DescribedQuotas, QuotaEntry
from sidecar.security.client_quotas import Who

if TYPE_CHECKING:
    from collections.abc import Mapping

NODE = Who("node", "sidecar")


def described(*entries: tuple[Mapping[str, str | None], Mapping[str, float]]) -> DescribedQuotas:
    return DescribedQuotas(0, None, tuple(QuotaEntry(*each) for each in entries))


def test_a_node_that_may_not_read_quotas_is_named_with_what_it_lacks() -> None:
    finding = judged(DescribedQuotas(31, "Cluster authorization failed.", ()), NODE)
    assert finding.level is Level.WARN
    assert "CLUSTER_AUTHORIZATION_FAILED" in finding.detail
    assert "DESCRIBE_CONFIGS" in str(finding.remedy)


@pytest.mark.parametrize(
    ("entity", "level"), [({"user": None}, "user"), ({"client-id": None}, "client-id"), ({"user": "node"}, "user")]
)
def test_a_quota_that_holds_for_the_node_itself_is_a_warning(entity: dict[str, str | None], level: str) -> None:
    """Then brokers hold all clients of governed topics together to it."""
    finding = judged(described((entity, {"producer_byte_rate": 1e6})), NODE)
    assert finding.level is Level.WARN
    assert f"producer_byte_rate=1e+06 (by {level})" in finding.detail


def test_quotas_of_clients_alone_are_well() -> None:
    one, other = {"client-id": "billing"}, {"user": "alice"}
    found = described((one, {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}), (other, {"request_percentage": 1}))
    finding = judged(found, NODE)
    assert (finding.level, finding.detail[:20]) == (Level.OK, "2 client quotas for ")
