"""Requests that Schemathesis makes of the OpenAPI document, right and wrong ones, each of which must get an answer that
the document has: no 5xx that says a defect, no status, content type, header or body that is not described, and no
refusal of what is described as right.

The stream of events never ends, so it is not asked here. What a registry answers is described by others.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import negative_data_rejection, not_a_server_error, positive_data_acceptance
from schemathesis.generation import GenerationMode

from sidecar.admin.openapi import document
from tests.http.paper_cli import TOKEN, Running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis import Case

pytestmark = pytest.mark.slow
SCHEMA = schemathesis.openapi.from_dict(document("0.1.0"))
ALL: Any = list(HealthCheck)
FOUND: Any = list(SCHEMA.get_all_operations())
OPERATIONS = {
    operation.label: operation
    for found in FOUND
    if (operation := found.ok()) is not None and operation.path != "/v1/events"
}
NO_DEFECTS = frozenset({501, 502, 503, 504})
"""There is no registry, or what is behind the node is away."""
CONDITIONS = {
    "GET /v1/topics/{topic}": "a partition is asked for of a topic whose scope is partition",
    "PUT /v1/topics/{topic}/policy": "a partition comes with If-Match alone",
    "DELETE /v1/topics/{topic}/policy": "a partition comes with If-Match alone",
    "POST /v1/shadows/{shadow}/cursors/{group}/reset": "Kafka knows no time before 1970",
}
"""What no schema can say: right by the schema, and refused."""
NOTHING_TO_GET_WRONG = frozenset(
    {
        *(f"{method} /schemas/{{path}}" for method in ("DELETE", "GET", "POST", "PUT")),
        "GET /", "GET /livez", "GET /metrics", "GET /openapi.json", "GET /page/{file}", "GET /readyz",
        "GET /v1/settings", "GET /v1/shadows/{shadow}", "GET /v1/status",
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    """One node for all of them: what one deletes another asks for in vain, which is an answer too."""
    with Running() as found:
        yield found


def ask_all(label: str, mode: GenerationMode, url: str) -> int:
    """How many requests were answered."""
    answered = 0

    @settings(
        max_examples=25, deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=ALL,
    )  # fmt: skip
    @given(OPERATIONS[label].as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        nonlocal answered
        answer = case.call(url, headers={"Authorization": f"Bearer {TOKEN}"})
        excluded = [not_a_server_error] if answer.status_code in NO_DEFECTS else []
        if answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:  # refused for its size before it is read
            excluded.append(negative_data_rejection)
        if label in CONDITIONS:
            excluded.append(positive_data_acceptance)
        case.validate_response(answer, excluded_checks=excluded)
        answered += 1

    ask()
    return answered


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_every_request_that_the_document_allows_gets_an_answer_of_the_document(label: str, served: Running) -> None:
    assert ask_all(label, GenerationMode.POSITIVE, served.url)


@pytest.mark.parametrize("label", sorted(OPERATIONS.keys() - NOTHING_TO_GET_WRONG))
def test_every_request_that_the_document_forbids_gets_an_answer_of_the_document(label: str, served: Running) -> None:
    assert ask_all(label, GenerationMode.NEGATIVE, served.url)


@pytest.mark.parametrize("label", sorted(NOTHING_TO_GET_WRONG))
def test_where_nothing_is_asked_nothing_can_be_asked_wrong(label: str, served: Running) -> None:
    with pytest.raises(Unsatisfiable):
        ask_all(label, GenerationMode.NEGATIVE, served.url)
