"""The document speaks of the routes there are, and of nothing else."""

import re
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest
from aiohttp import web

from sidecar.admin.openapi import document
from sidecar.admin.operations import query_of
from sidecar.admin.server import AdminServer
from sidecar.settings import load
from sidecar.telemetry.hooks import NodeMetrics
from tests.openapi import operations
from tests.unit.admin.paper_node import PaperNode

DOCUMENT = document("0.1.0")
METHODS = {"get", "put", "post", "delete", "patch"}


def references(found: Any) -> set[str]:
    if isinstance(found, dict):
        own = {found["$ref"]} if "$ref" in found else set()
        return own.union(*(references(value) for value in found.values()), set())
    if isinstance(found, list):
        return set().union(*(references(value) for value in found))
    return set()


def test_the_document_is_one_of_openapi_3_1():
    from openapi_spec_validator import OpenAPIV31SpecValidator  # noqa: PLC0415 - takes two seconds

    assert DOCUMENT["openapi"].startswith("3.1.")
    assert [str(error) for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_route_is_described_and_every_description_has_its_route():
    server = AdminServer(PaperNode(), NodeMetrics({}, "0.1.0"), load())
    application: web.Application = server._runner.app
    served = {
        (route.method.lower(), route.resource.canonical)
        for route in application.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    described = {(method, path) for path, item in DOCUMENT["paths"].items() for method in item if method in METHODS}
    assert served == described


def test_every_parameter_is_described_and_every_described_one_is_taken():
    server = AdminServer(PaperNode(), NodeMetrics({}, "0.1.0"), load())
    application: web.Application = server._runner.app
    taken = {
        (route.method, route.resource.canonical): set(query_of(route.handler))
        for route in application.router.routes()
        if route.resource is not None and route.resource.canonical.startswith("/v1/") and route.method != "HEAD"
    }
    described = {
        (each.method, each.path): {found["name"] for found in each.parameters if found["in"] == "query"}
        for each in operations(DOCUMENT)
        if each.path.startswith("/v1/")
    }
    assert taken == described


def test_every_reference_points_at_a_schema_and_every_schema_is_used():
    schemas = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references(DOCUMENT) == schemas


def check_example(told: Mapping[str, Any]) -> None:
    """A parameter or content has one, and it is as its schema says."""
    schema = {**told["schema"], "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(schema, validate_formats=True).validate(told["example"])


OPERATIONS = {each.name: each for each in operations(DOCUMENT)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_examples_and_they_are_right(name: str):
    told, parameters = OPERATIONS[name].told, OPERATIONS[name].parameters
    contents = [each.get("content", {}) for each in (*told["responses"].values(), told.get("requestBody", {}))]
    for content in contents:
        for media in content.values():
            check_example(media)
    for parameter in parameters:
        if parameter["name"] not in ("page_token", "partition"):  # of the page before; of topics of another scope
            check_example(parameter)
    assert contents or parameters


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_error_in_an_example_has_its_status(name: str):
    for status, response in OPERATIONS[name].told["responses"].items():
        example = response.get("content", {}).get("application/json", {}).get("example", {})
        if "error_code" in example:
            assert status in ("default", str(example["error_code"]))


def test_an_example_that_is_wrong_is_found():
    with pytest.raises(jsonschema_rs.ValidationError):
        check_example({"schema": {"$ref": "#/components/schemas/Topic"}, "example": {"topic": "orders"}})


def test_the_one_field_that_is_spelled_as_pulsar_does_says_so():
    fields = {
        (shape, field): told
        for shape, schema in DOCUMENT["components"]["schemas"].items()
        for field, told in schema.get("properties", {}).items()
    }
    strange = {each for each in fields if not re.fullmatch(r"[a-z_]+", each[1])}
    assert strange == {("PulsarProperties", "PULSAR.SHADOW_SOURCE"), ("Topic", "shadowReplication")}
    assert "PIP-180" in fields["Topic", "shadowReplication"]["description"]


def test_operations_have_names_of_their_own():
    names = [
        operation["operationId"]
        for item in DOCUMENT["paths"].values()
        for method, operation in item.items()
        if method in METHODS
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_what_stands_in_braces_is_a_parameter(path: str):
    wanted = {part[1:-1] for part in path.split("/") if part.startswith("{")}
    declared = {each["name"] for each in DOCUMENT["paths"][path].get("parameters", []) if each["in"] == "path"}
    assert declared == wanted
