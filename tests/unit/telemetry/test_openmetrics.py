"""OpenMetrics: for those who accept it, with one request of each bucket as its exemplar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from sidecar.telemetry.exposition import Exposition, takes_exemplars
from sidecar.telemetry.hooks import NodeMetrics
from sidecar.telemetry.series import Example
from tests.unit.deploy.eventful import eventful_metrics
from tests.unit.telemetry.paper_request import PaperClient, PaperRequest

if TYPE_CHECKING:
    from prometheus_client.samples import Exemplar, Sample

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def request(number: int, client_id: bytes = b"billing", peer: str = "10.0.0.7:50112") -> PaperRequest:
    return PaperRequest(client_id, number, PaperClient(peer))


def metrics() -> NodeMetrics:
    return NodeMetrics({0: "Produce", 1: "Fetch"}, "0.1.0")


async def samples(counted: NodeMetrics) -> list[Sample]:
    text = (await Exposition(counted).render(with_exemplars=True)).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


async def exemplars(counted: NodeMetrics) -> dict[str, Exemplar]:
    return {found.labels["le"]: found.exemplar for found in await samples(counted) if found.exemplar is not None}


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("text/plain;version=0.0.4", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_openmetrics_is_for_those_who_ask_for_it(accept: str, wanted: bool):
    assert takes_exemplars(accept) is wanted


async def test_both_formats_say_the_same():
    counted = eventful_metrics()
    text = (await Exposition(counted).render()).decode()
    plain = {(found.name, *sorted(found.labels.items())) for family in text_families(text) for found in family.samples}
    strict = {(found.name, *sorted(found.labels.items())) for found in await samples(counted)}
    assert {found for found in strict if found[0].startswith("sidecar")} == {
        found for found in plain if found[0].startswith("sidecar")
    }


async def test_the_text_format_has_no_exemplars_and_neither_has_series_of_creation_times():
    counted = eventful_metrics()
    text = (await Exposition(counted).render()).decode()
    strict = (await Exposition(counted).render(with_exemplars=True)).decode()
    assert " # {" not in text
    assert " # {" in strict
    assert "_created" not in text + strict
    assert strict.endswith("# EOF\n")
    assert strict.count("# EOF") == 1


async def test_an_exemplar_is_the_first_request_of_its_bucket_since_somebody_asked():
    counted = metrics()
    for number, seconds in enumerate((0.3, 0.4, 0.003)):
        counted.request_done(0, seconds, 1, 1, 0.0, request(number))
    found = await exemplars(counted)
    assert {bound: exemplar.labels["correlation_id"] for bound, exemplar in found.items()} == {"0.5": "0", "0.005": "2"}
    assert found["0.5"].value == 0.3
    counted.request_done(0, 0.31, 1, 1, 0.0, request(3))
    counted.request_done(0, 0.32, 1, 1, 0.0, request(4))
    assert {bound: each.labels["correlation_id"] for bound, each in (await exemplars(counted)).items()} == {
        "0.5": "3",
        "0.005": "2",
    }


@example(b"x" * 300, "y" * 80, -(2**31))
@given(st.binary(max_size=300), st.text(max_size=80), st.integers(-(2**31), 2**31 - 1))
async def test_an_exemplar_fits_and_can_be_read_whatever_the_client_calls_itself(
    client_id: bytes, peer: str, correlation_id: int
):
    labels = Example(0.1, 0.0, client_id, correlation_id, peer).labels()
    assert sum(len(name) + len(value) for name, value in labels.items()) <= 128
    counted = metrics()
    counted.request_done(0, 0.1, 1, 1, 0.0, request(correlation_id, client_id, peer))
    assert (await exemplars(counted))["0.1"].labels == labels
