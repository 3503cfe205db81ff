"""The whole REST interface of a real node held against its own OpenAPI document: every operation, every parameter, what
is bad in them, and what is not there.
"""

from __future__ import annotations

import http.client
import json
import string
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.admin.openapi import document
from sidecar.admin.operations import TO_OPERATE
from tests.kafka.dedup.ids import IdProducer
from tests.nodes import NodeProcess, running_node
from tests.openapi import METHODS, Answer, ask, check, check_error, filled, operations
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

DOCUMENT = document("0.1.0")
OPERATIONS = {each.name: each for each in operations(DOCUMENT)}
STREAM = "events"
ANY_NAME = {"listCursors", "listGroups"}
"""Lists whose tokens are names that may hold anything."""


@dataclass
class Asked:
    """A node, and what its operations have answered."""

    node: NodeProcess
    values: dict[str, str]
    seen: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def __call__(
        self, name: str, query: str = "", body: object = None, *, raw: bytes | None = None, **headers: str
    ) -> Answer:
        """Ask an operation, and hold the answer against the document. A value in the path goes by the name it has
        there, everything else is a header.
        """
        operation = OPERATIONS[name]
        values = {**self.values, **{key: headers.pop(key) for key in list(headers) if f"{{{key}}}" in operation.path}}
        sent = raw if raw is not None or body is None else json.dumps(body).encode()
        target = filled(operation.path, **values) + (f"?{query}" if query else "")
        answer = ask(self.node.admin_url, operation.method, target, sent, **headers)
        check(DOCUMENT, operation, answer)
        self.seen[name].add(answer.status)
        return answer


@pytest.fixture(scope="module")
def own_node(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("conformance"), services.kafka_bootstrap, services.redis_url) as process:
        yield process


def some_values(services: Services) -> dict[str, str]:
    """What the paths of operations name: a new topic, and names that nothing has yet."""
    topic, unique = create_topic(services.kafka_bootstrap, 2), uuid.uuid4().hex[:8]
    values = {"topic": topic, "shadow": f"shadow-{unique}", "group": f"group-{unique}", "name": "billing"}
    return values | {"tenant": "public", "namespace": "default", "path": "subjects", "file": "main.js"}


@pytest.fixture(scope="module")
def shared_values(services: Services) -> dict[str, str]:
    return some_values(services)


@pytest.fixture
def asked(own_node: NodeProcess, shared_values: dict[str, str]) -> Asked:
    """The topic is that of all tests here: they change nothing."""
    return Asked(own_node, dict(shared_values))


def look_around(asked: Asked) -> None:
    assert "billing" in {each["name"] for each in asked("listClients").body["items"]}
    assert [each["partition"] for each in asked("listPartitions").body["items"]] == [0, 1]
    assert asked("listGroups").body["items"] == []
    (record,) = asked("lastRecords", "limit=1").body["items"]
    assert record["sequence_id"] == 9


def test_every_operation_answers_as_the_document_says_with_every_success_it_promises(
    services: Services, own_node: NodeProcess
) -> None:
    asked = Asked(own_node, some_values(services))
    topic, shadow = asked.values["topic"], asked.values["shadow"]
    for read in ("livez", "readyz", "metrics", "openapi", "status", "listSettings", "listRefusals", "page", "pageFile"):
        assert asked(read).status == 200, read
    for cached in ("page", "pageFile"):
        assert asked(cached, If_None_Match=asked(cached).headers["etag"]).status == 304
    assert asked("putPolicy", body={"access_mode": "exclusive", "deduplication": True}).status == 200

    with IdProducer(asked.node.bootstrap, "billing") as billing:
        assert billing.write(topic, 3, 9).error == 0
        found = asked("getTopic").body
        assert (found["owner"]["name"], found["producers"][0]["name"]) == ("billing", "billing")
        assert [each["name"] for each in asked("listProducers").body["items"]] == ["billing"]
        assert asked("getProducer").body["in_use"] is True
        assert asked("forgetProducer").status == 409
        look_around(asked)
        assert topic in {each["topic"] for each in asked("listTopics", f"contains={topic}&governed=true").body["items"]}
        assert asked("fence", If_Match='"9"').status == 412
        assert [asked("release", If_Match='"1"').status, asked("release").status] == [200, 409]
    with IdProducer(asked.node.bootstrap, "other") as other:
        assert other.write(topic, 1).error == 0
        assert asked("fence").status == 200
    wait_for(lambda: not asked("getProducer").body["in_use"], "the session to be gone", 60)
    assert asked("forgetProducer").status == 204
    assert asked("getProducer").status == 404

    assert asked("createTopic", body={"topic": f"{topic}-new", "partitions": 2}).body["partitions"] == 2
    assert asked("createTopic", body={"topic": topic}).status == 409
    new = {"name": shadow, "allow": ["User:*"], "auto_reset_backlog_entries": 5}
    assert asked("createShadow", body=new).status == 201
    assert asked("createShadow", body=new).status == 409
    for listed in ("listShadows", "listEveryShadow"):
        assert shadow in {each["name"] for each in asked(listed).body["items"]}
    assert asked("changeShadow", body={"allow": ["User:audit"]}).body["allow"] == ["User:audit"]
    assert asked("resetCursor", body={"to": "earliest"}).body["group"] == asked.values["group"]
    wait_for(lambda: asked("listCursors").body["items"], "the cursor to be told", 30)
    assert asked("getShadow").body["stats"]["readers"] == 0
    assert asked("getProperties", topic=shadow).body
    assert asked("deleteTopic").status == 409
    assert asked("deleteShadow").status == 204
    assert asked("getShadow").status == 404
    assert asked("replaceShadows", body=[f"{shadow}-a"]).status == 204
    assert asked("addShadows", body=[f"{shadow}-b"]).status == 204
    assert asked("listShadowsOfPulsar").body == [f"{shadow}-a", f"{shadow}-b"]
    assert asked("removeShadows").status == 204

    events = list(streamed(asked.node, f"/v1/events?last=1000&topic={topic}", 4))
    assert {"policy", "claimed", "released"} <= {each["kind"] for each in events}
    asked.seen[STREAM].add(200)
    for method in ("get", "post", "put", "delete"):
        assert asked(f"{method}Schemas").status == 501, "there is no registry"
    assert asked("deletePolicy").status == 204
    assert asked("deletePolicy").status == 404
    assert asked("deleteTopic").status == 204

    assert OPERATIONS.keys() == asked.seen.keys()
    missing = {name: OPERATIONS[name].successes - found for name, found in asked.seen.items()}
    assert not {name: statuses for name, statuses in missing.items() if statuses}


def streamed(node: NodeProcess, target: str, most: int) -> Iterator[dict[str, Any]]:
    """The first events of a stream, each as the document has it."""
    connection = http.client.HTTPConnection(urlsplit(node.admin_url).netloc, timeout=30)
    connection.request("GET", target)
    answer = connection.getresponse()
    (kind,) = DOCUMENT["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]
    assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (200, kind)
    schema = {"$ref": "#/components/schemas/Event", "components": DOCUMENT["components"]}
    event: dict[str, str] = {}
    while most:
        found = answer.readline()
        assert found, "the stream ended"
        line = found.decode().rstrip("\n")
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            assert event.keys() == {"id", "event", "data"}
            data = json.loads(event["data"])
            jsonschema_rs.Draft202012Validator(schema).validate(data)
            assert event["event"] == data["kind"]
            assert int(event["id"]) >= 0
            yield data
            event, most = {}, most - 1
    connection.close()


# What is bad ----------------------------------------------------------------------------------------------------------


def bad_values(operation: str, parameter: Mapping[str, Any]) -> list[str]:
    """Such as the parameter's schema has not, percent-encoded where they stand in a path or a query."""
    schema, name = parameter["schema"], parameter["name"]
    if name == "page_token" and operation not in ANY_NAME:
        return ["a%20b", "-1", "%00", "%2F", "%F0%9F%90%9F"] if schema["type"] == "integer" else ["a%20b", "%00", "%2F"]
    if schema["type"] == "integer":
        bad = ["x", "", "1.5", "9" * 30] if parameter["in"] == "query" else ["x", "1.5", "9" * 30]
        bad += ["-1"] if schema.get("minimum") is not None else []
        bad += [str(schema["minimum"] - 1)] if schema.get("minimum", 0) > 0 else []
        bad += [str(schema["maximum"] + 1)] if "maximum" in schema else []
        return [*bad, "%D9%A3"] if parameter["in"] == "query" else bad
    if schema["type"] == "boolean":
        return ["maybe", "1", ""]
    if name == "If-Match":
        return ["7", "'7'", '"7']
    if name == "topic" and parameter["in"] == "path":
        return ["a%20b", "x" * 250, "%00", "%FF", "a%2Fb", "%C3%A4", "**"]
    return []


CASES = [
    (each.name, parameter)
    for each in OPERATIONS.values()
    for parameter in each.parameters
    if bad_values(each.name, parameter)
]


@pytest.mark.parametrize(("name", "parameter"), CASES, ids=[f"{name}-{each['name']}" for name, each in CASES])
def test_a_parameter_that_cannot_be_is_refused_with_its_name(
    asked: Asked, name: str, parameter: Mapping[str, Any]
) -> None:
    place, body = parameter["in"], {"putPolicy": {}, "resetCursor": {"to": "latest"}}.get(name)
    for bad in bad_values(name, parameter):
        if place == "query":
            answer = asked(name, f"{parameter['name']}={bad}", body)
        elif place == "header":
            answer = asked(name, body=body, **{parameter["name"].replace("-", "_"): bad})
        else:
            answer = asked(name, body=["a"] if "OfPulsar" in name or name.endswith("eShadows") else body, topic=bad)
            assert answer.status == 400 or (answer.status == 404 and name == "getTopic"), (bad, answer)
            continue
        assert answer.status == 400, (bad, answer)
        assert parameter["name"] in check_error(answer), bad
    assert asked("getTopic").status == 200, "nothing was done"


def body_cases() -> Iterator[tuple[str, str, bytes, str]]:
    for operation in OPERATIONS.values():
        content = operation.told.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        for raw in (b"{", b"null", b'"x"', b"\xff", b"17", b'{"a": NaN}', b"[" * 5000):
            yield operation.name, "", raw, repr(raw[:10])
        schema = DOCUMENT["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
        if schema["type"] == "array":
            for item in (17, None, "", "a b", "a/b/c/d", "__internal"):
                yield operation.name, "", json.dumps([item]).encode(), repr(item)
            continue
        needed = {"createTopic": {"topic": "x"}, "createShadow": {"name": "x"}, "resetCursor": {"to": "latest"}}
        valid = needed.get(operation.name, {})
        yield operation.name, "no_such_field", json.dumps({**valid, "no_such_field": 1}).encode(), "unknown field"
        for required in schema.get("required", ()):
            rest = {key: value for key, value in valid.items() if key != required}
            yield operation.name, required, json.dumps(rest).encode(), f"without {required}"
        for key, wanted in schema["properties"].items():
            checker = jsonschema_rs.Draft202012Validator({**wanted, "components": DOCUMENT["components"]})
            for wrong in (17.5, "\0", [], [17], {}, -1, True, 10**30, {"offset": "x"}, {"timestamp": "yesterday"}):
                if not checker.is_valid(wrong):
                    yield operation.name, key, json.dumps({**valid, key: wrong}).encode(), f"{key}={wrong!r}"


BODIES = list(body_cases())


@pytest.mark.parametrize("name", sorted({name for name, *_ in BODIES}))
def test_a_body_that_cannot_be_is_refused_and_says_what_is_wrong_with_it(asked: Asked, name: str) -> None:
    asked("createShadow", body={"name": asked.values["shadow"]})
    before = asked("getTopic").body
    for _, field_name, raw, told in [each for each in BODIES if each[0] == name]:
        answer = asked(name, raw=raw)
        assert answer.status == 400, (told, answer)
        assert field_name in check_error(answer), told
    assert asked("getTopic").body == before, "nothing was done"


NASTY = st.text(string.printable + "äß日\0\x7f\u202e", max_size=40) | st.sampled_from(["..", ".", "%", "__x", "a*"])
READS = sorted(name for name, each in OPERATIONS.items() if each.method == "GET" and name != STREAM)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_read_names_its_answer_is_one_of_the_document(asked: Asked, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(READS))
    operation = OPERATIONS[name]
    values, query = {}, []
    for each in operation.parameters:
        text = quote(data.draw(NASTY, label=each["name"]), safe="")
        if each["in"] == "path":
            values[each["name"]] = text or "x"
        elif each["in"] == "query" and data.draw(st.booleans()):
            query.append(f"{each['name']}={text}")
    answer = ask(asked.node.admin_url, "GET", filled(operation.path, **values) + "?" + "&".join(query))
    assert answer.status in (200, 400, 404, 409, 501, 503), answer
    check(DOCUMENT, operation, answer)


# What is not there ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_a_method_that_a_path_has_not_is_405_with_those_it_has(asked: Asked, path: str) -> None:
    described = {method.upper() for method in METHODS if method in DOCUMENT["paths"][path]}
    allowed = described | ({"HEAD"} if "GET" in described and path != "/v1/events" else set())
    for method in {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"} - allowed:
        answer = ask(asked.node.admin_url, method, filled(path, **asked.values))
        assert answer.status == 405, answer
        assert {each.strip() for each in answer.headers["allow"].split(",")} == allowed
        assert answer.kind == "application/json"
        if method == "HEAD":
            assert not answer.text
        else:
            assert all(each in check_error(answer) for each in allowed)


@pytest.mark.parametrize("name", READS)
def test_head_tells_what_get_would_without_its_body(asked: Asked, name: str) -> None:
    target = filled(OPERATIONS[name].path, **asked.values)
    get, head = (ask(asked.node.admin_url, method, target) for method in ("GET", "HEAD"))
    assert (head.status, head.kind, head.headers.get("etag")) == (get.status, get.kind, get.headers.get("etag"))
    assert get.text
    assert not head.text


@pytest.mark.parametrize(
    "path",
    [
        *("/v1", "/v1/", "/v1/topics/", "/v1/topic/x", "/V1/status", "//v1/status", "/v1/status/", "/%00"),
        *("/v1/topics/x/shadows/y/z", "/v1/shadows/x/cursors/g", "/admin/v2/persistent/a/b/c"),
        *("/%zz", "/%FF", "/a?b=c", "/v2/topics"),
    ],
)
def test_what_is_not_there_is_404_in_json(own_node: NodeProcess, path: str) -> None:
    for method in ("GET", "PUT", "POST", "DELETE", "PATCH"):
        answer = ask(own_node.admin_url, method, path)
        assert answer.status == 404, answer
        assert "/openapi.json" in check_error(answer)


@pytest.mark.parametrize(
    "name", sorted(name for name, each in OPERATIONS.items() if each.told["security"] == TO_OPERATE)
)
def test_a_write_that_a_proxy_passes_on_is_403_in_json(asked: Asked, name: str) -> None:
    if name == "postSchemas":
        asked.values["path"] = "subjects/x/versions"  # a look-up by POST is a read
    assert asked(name, X_Forwarded_For="192.0.2.1").status == 403


def test_the_document_that_is_served_is_the_one_that_is_tested(asked: Asked) -> None:
    served = asked("openapi").body
    assert served == document(served["info"]["version"])
