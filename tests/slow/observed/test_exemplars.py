"""From a slow bucket to a request that was in it: exemplars in a Prometheus started as the compose file does."""

from __future__ import annotations

import urllib.request

import pytest

from tests.slow.observed.conftest import Observed
from tests.slow.observed.prometheus import instance


@pytest.mark.parametrize(("api", "prefix"), [("Produce", "usurper-"), ("InitProducerId", "payer-")])
def test_a_bucket_leads_to_the_client_that_asked(observed: Observed, api: str, prefix: str) -> None:
    at = observed.scene.at
    query = f'sidecar_request_duration_seconds_bucket{{api="{api}"}}'
    found = observed.prometheus.api("query_exemplars", query=query, start=str(at - 120), end=str(at + 1))
    nodes = {instance(node) for node in observed.scene.nodes}
    assert {series["seriesLabels"]["instance"] for series in found} <= nodes
    exemplars = [exemplar for series in found for exemplar in series["exemplars"]]
    names = {exemplar["labels"]["client_id"] for exemplar in exemplars}
    assert [name for name in names if name.startswith(prefix)], names
    for exemplar in exemplars:
        assert set(exemplar["labels"]) == {"address", "client_id", "correlation_id"}
        assert exemplar["labels"]["address"].startswith("127.0.0.1:")
        assert at - 120 < exemplar["timestamp"] <= at + 1


def test_who_asks_for_text_is_given_text(observed: Observed) -> None:
    address = f"{observed.scene.nodes[0].admin_url}/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b" # {" not in answer.read()
    request = urllib.request.Request(address, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        page = answer.read()
    assert b" # {" in page
    assert page.endswith(b"# EOF\n")
