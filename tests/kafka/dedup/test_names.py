"""Producer names and their sequence ids as REST and the command line show and forget them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from tests.conftest import StartNode
from tests.http.paper_cli import run as command
from tests.kafka.dedup.conftest import deduplicate
from tests.kafka.dedup.ids import IdProducer
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

ODD = "zähler/eu 1+{x}%"


def path(topic: str, name: str) -> str:
    return f"/v1/topics/{topic}/dedup/{quote(name, safe='')}"


def test_a_name_is_shown_with_ids_and_offsets(node: NodeProcess, rest: Rest, topic: str) -> None:
    with IdProducer(node.bootstrap, "billing") as billing:
        sent = billing.write(topic, 3, 9)
        assert sent.error == 0
        status, found = rest.call("GET", path(topic, "billing"))
        assert status == 200
        seen = datetime.fromisoformat(found.pop("last_seen")["0"])
        assert datetime.now(UTC) - seen < timedelta(minutes=2)
        assert found == {
            "name": "billing",
            "last_sequence_id": -1,
            "last_sequence_ids": {"0": 9},
            "offsets": {"0": sent.offset + 1},
            "in_use": True,
        }
        sent = billing.write(topic, 12)  # its request goes on whole
        assert rest.call("GET", path(topic, "billing"))[1]["offsets"] == {"0": sent.offset}


def test_a_topic_shows_its_newest_names_and_the_status_counts_it(node: NodeProcess, rest: Rest, topic: str) -> None:
    with IdProducer(node.bootstrap, "billing") as billing:
        assert billing.write(topic, 5, name=b"one").error == 0
        assert billing.write(topic, 6, partition=1, name=b"one").error == 0
        assert billing.write(topic, 7, name=ODD.encode()).error == 0
    shown = rest.topic(topic)
    assert (shown["deduplication_state"], shown["deduplication_detail"]) == ("ready", None)
    assert {each["name"]: each["last_sequence_id"] for each in shown["producers"]} == {"one": 5, ODD: -1}
    assert rest.call("GET", f"/v1/topics/{topic}/dedup")[1] == {"items": shown["producers"], "next_page_token": None}
    counted = rest.call("GET", "/v1/status")[1]["deduplication"]
    assert counted["ready"] >= 1
    assert (counted["reading"], counted["lost"]) == (0, 0)
    listed = rest.call("GET", "/v1/topics?governed=true")[1]["items"]
    assert {each["deduplication_state"] for each in listed if each["topic"] == topic} == {"ready"}


def test_a_name_that_is_not_in_use_is_forgotten_for_good(services: Services, node_process: StartNode) -> None:
    node = node_process(LEASE_MS="1000", RECONNECT_GRACE_MS="0")
    rest = Rest(node.admin_url)
    topic = create_topic(services.kafka_bootstrap, 1)
    deduplicate(rest, topic)
    with IdProducer(node.bootstrap, "app") as writer:
        assert writer.write(topic, 7, name=ODD.encode()).error == 0
        assert writer.write(topic, 7, name=b"other").error == 0
        status, answer = rest.call("DELETE", path(topic, ODD))
        assert (status, "stop it first" in answer["message"]) == (409, True)
    wait_for(lambda: not rest.call("GET", path(topic, ODD))[1]["in_use"], "the session to be gone")
    assert rest.call("DELETE", path(topic, ODD)) == (204, None)
    assert rest.call("DELETE", path(topic, ODD))[0] == 404
    node.kill()  # what was forgotten is forgotten by whoever takes over, too
    node.start()

    def known() -> list[str] | None:
        status, found = rest.call("GET", f"/v1/topics/{topic}/dedup")
        return [each["name"] for each in found["items"]] if status == 200 else None

    wait_for(lambda: known() is not None, "the ids")
    assert known() == ["other"]
    with IdProducer(node.bootstrap, "app") as writer:
        again, duplicate = (writer.write(topic, 7, name=each) for each in (ODD.encode(), b"other"))
    assert (again.error, again.offset > 0) == (0, True)
    assert (duplicate.error, duplicate.offset) == (0, -1)
    assert read_log(services.kafka_bootstrap, topic) == [b"7"] * 3


def test_where_there_are_no_ids_the_answer_says_why(services: Services, rest: Rest, topic: str) -> None:
    ordinary = create_topic(services.kafka_bootstrap)
    for method in ("GET", "DELETE"):
        assert rest.call(method, path(topic, "nobody"))[0] == 404
        assert rest.call(method, path("not-there", "billing"))[0] == 404
        status, answer = rest.call(method, path(ordinary, "billing"))
        assert (status, "topic set" in answer["message"]) == (409, True)
    assert rest.topic(ordinary)["deduplication_state"] == "off"
    assert rest.call("GET", f"/v1/topics/{ordinary}/dedup")[0] == 409


def test_deduplication_ends_and_begins_by_policy(services: Services, node: NodeProcess, rest: Rest) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    deduplicate(rest, topic)
    with IdProducer(node.bootstrap, "billing") as billing:
        assert billing.write(topic, 7).error == 0
    status, answer = rest.call("PUT", f"/v1/topics/{topic}/policy", {"deduplication": False})
    assert (status, answer["deduplication_state"]) == (200, "off")
    assert rest.call("GET", path(topic, "billing"))[0] == 409


# The command line -----------------------------------------------------------------------------------------------------


def sidecar(node: NodeProcess, *arguments: str, code: int = 0) -> str:
    said = command("--admin-url", node.admin_url, *arguments)
    assert said.code == code, said.out + said.err
    return said.out


def test_the_command_line_shows_and_forgets(services: Services, node: NodeProcess) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    sidecar(node, "dedup", "show", topic, code=4)
    set_to = json.loads(sidecar(node, "topic", "set", topic, "--dedup", "-o", "json"))
    assert set_to["policy"]["deduplication"] is True
    with IdProducer(node.bootstrap, "app") as writer:
        sent = writer.write(topic, 7, 8, name=ODD.encode())
        assert sent.error == 0
        assert ODD in sidecar(node, "dedup", "show", topic)
        found = json.loads(sidecar(node, "dedup", "show", topic, ODD, "-o", "json"))
        assert (found["last_sequence_id"], found["offsets"], found["in_use"]) == (8, {"0": sent.offset + 1}, True)
        sidecar(node, "dedup", "forget", topic, ODD, code=4)
        text = sidecar(node, "topic", "show", topic)
        assert [line.split() for line in text.splitlines() if line.startswith("sequence ids")] == [
            ["sequence", "ids", "ready"]
        ]
    wait_for(
        lambda: not json.loads(sidecar(node, "dedup", "show", topic, ODD, "-o", "json"))["in_use"], "it to be gone"
    )
    sidecar(node, "dedup", "forget", topic, ODD)
    sidecar(node, "dedup", "show", topic, ODD, code=3)
    assert json.loads(sidecar(node, "dedup", "show", topic, "-o", "json")) == []


def test_a_node_that_deduplicates_everything_says_so_when_it_starts(node_process: StartNode) -> None:
    node = node_process(DEDUPLICATION="true")
    (line,) = [json.loads(line) for line in node.log.splitlines() if '"deduplication_by_default"' in line]
    assert line["level"] == "warning"
    assert "transactions are refused" in line["problem"]
