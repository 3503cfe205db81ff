"""Cursors of shadows: found, told with their lag, moved, gone with their shadow."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from sidecar.protocol.messages import groups as messages
from tests.conftest import OwnKafka, StartNode, Unique
from tests.http.paper_cli import Said
from tests.http.paper_cli import run as command
from tests.kafka.gateway.requests import request
from tests.kafka.shadow.groups import commit, committed, cursors, member, shadow_of, write
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic, delete_records
from tests.wait import wait_for

NOTHING = -1001


@pytest.fixture
def source(services: Services) -> str:
    """A topic of two partitions with 20 and 10 records."""
    topic = create_topic(services.kafka_bootstrap, 2)
    write(services.kafka_bootstrap, topic, 20, 0)
    write(services.kafka_bootstrap, topic, 10, 1)
    return topic


@pytest.fixture
def shadow(rest: Rest, source: str, unique: Unique) -> str:
    return shadow_of(rest, source, unique("audit"))


def reset(rest: Rest, shadow: str, group: str, to: Any, partitions: Any = None) -> tuple[int, Any]:
    body = {"to": to} | ({} if partitions is None else {"partitions": partitions})
    return rest.call("POST", f"/v1/shadows/{shadow}/cursors/{quote(group, safe='')}/reset", body)


def test_cursors_are_told_with_their_lag_behind_the_source(
    node: NodeProcess, services: Services, rest: Rest, source: str, shadow: str, unique: Unique
) -> None:
    behind, ahead, elsewhere = unique("behind"), unique("ahead"), unique("elsewhere")
    commit(node.bootstrap, behind, shadow, {0: 5})
    commit(node.bootstrap, ahead, shadow, {0: 20, 1: 3})
    commit(node.bootstrap, elsewhere, source, {0: 1})
    found = cursors(rest, shadow, behind, ahead)
    assert set(found) == {behind, ahead}
    assert found[behind] == {
        "group": behind,
        "state": "Empty",
        "members": 0,
        "lag": 15,
        "partitions": {"0": {"offset": 5, "end": 20, "lag": 15}},
    }
    assert found[ahead]["partitions"] == {
        "0": {"offset": 20, "end": 20, "lag": 0},
        "1": {"offset": 3, "end": 10, "lag": 7},
    }


def test_what_retention_took_is_no_lag(
    node: NodeProcess, services: Services, rest: Rest, source: str, shadow: str, unique: Unique
) -> None:
    group = unique("group")
    commit(node.bootstrap, group, shadow, {0: 5})
    delete_records(services.kafka_bootstrap, source)
    write(services.kafka_bootstrap, source, 4)
    assert cursors(rest, shadow, group)[group]["partitions"]["0"] == {"offset": 5, "end": 24, "lag": 4}


def test_cursors_come_in_pages(node: NodeProcess, rest: Rest, shadow: str, unique: Unique) -> None:
    base = unique("team")
    names = [f"{base}/ö & {number}" for number in range(5)]
    for name in names:
        commit(node.bootstrap, name, shadow, {0: 1})
    cursors(rest, shadow, *names)
    seen: list[str] = []
    token: str | None = ""
    while token is not None:
        query = f"?page_size=2&page_token={quote(token, safe='')}"
        status, page = rest.call("GET", f"/v1/shadows/{shadow}/cursors{query}")
        assert status == 200
        assert len(page["items"]) <= 2
        seen += [item["group"] for item in page["items"]]
        token = page["next_page_token"]
    assert seen == names


def test_a_cursor_goes_where_it_is_told(
    node: NodeProcess, services: Services, rest: Rest, source: str, shadow: str, unique: Unique
) -> None:
    """To either end, an offset, a time; a name may hold anything; nothing else moves."""
    group = f"{unique('team')}/audit ü"
    commit(node.bootstrap, group, source, {0: 7})
    between = datetime.now(UTC).isoformat()
    time.sleep(0.05)  # timestamps of records are whole milliseconds
    write(services.kafka_bootstrap, source, 5)
    status, moved = reset(rest, shadow, group, "earliest")
    assert (status, moved["group"], moved["state"], moved["members"], moved["lag"]) == (200, group, "Empty", 0, 35)
    assert moved["partitions"]["0"] == {"offset": 0, "end": 25, "lag": 25}
    assert committed(services.kafka_bootstrap, group, shadow, 2) == [0, 0]
    assert reset(rest, shadow, group, "latest", [0])[1]["partitions"] == {"0": {"offset": 25, "end": 25, "lag": 0}}
    assert committed(services.kafka_bootstrap, group, shadow, 2) == [25, 0]
    assert reset(rest, shadow, group, {"offset": 4}, [0, 1])[0] == 200
    assert committed(services.kafka_bootstrap, group, shadow, 2) == [4, 4]
    assert cursors(rest, shadow, group)[group]["lag"] == 27
    assert reset(rest, shadow, group, {"timestamp": between})[0] == 200
    assert committed(services.kafka_bootstrap, group, shadow, 2) == [20, 10]  # nothing in 1 is that young: its end
    assert cursors(rest, shadow)[group]["lag"] == 5  # what was remembered is forgotten with a reset
    assert committed(services.kafka_bootstrap, group, source, 2) == [7, NOTHING]


def test_a_group_with_members_keeps_its_cursor(
    node: NodeProcess, services: Services, rest: Rest, shadow: str, unique: Unique
) -> None:
    group = unique("live")
    with member(node.bootstrap, group, shadow) as reader:
        reader.poll(10)
        reader.commit(asynchronous=False)
        before = committed(services.kafka_bootstrap, group, shadow, 2)
        found = cursors(rest, shadow, group)[group]
        assert (found["state"], found["members"]) == ("Stable", 1)
        status, told = reset(rest, shadow, group, "latest")
        assert status == 409
        assert "stop them first" in told["message"]
        assert committed(services.kafka_bootstrap, group, shadow, 2) == before
    assert reset(rest, shadow, group, "latest")[0] == 200
    assert committed(services.kafka_bootstrap, group, shadow, 2) == [20, 10]


@pytest.mark.parametrize(
    ("to", "partitions", "said"),
    [
        ({"offset": 21}, [0], "goes from 0 to 20"),
        ({"offset": 11}, None, "partition 1, which goes from 0 to 10"),
        ("latest", [2], "the partitions 0 to 1"),
        ("latest", [], "partitions has to be a list"),
        ("latest", [True], "partitions has to be a list"),
        ("newest", None, "to has to be"),
        ({"offset": -1}, None, "to has to be"),
        ({"offset": True}, None, "to has to be"),
        ({"offset": 1, "timestamp": "x"}, None, "to has to be"),
        ({"timestamp": "yesterday"}, None, "no time of RFC 3339"),
        ({"timestamp": "2026-01-31T12:00:00"}, None, "no time of RFC 3339"),
        ({"timestamp": "1969-12-31T23:59:59.999Z"}, None, "before 1970"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_moves(
    services: Services, rest: Rest, shadow: str, unique: Unique, to: Any, partitions: Any, said: str
) -> None:
    group = unique("group")
    status, told = reset(rest, shadow, group, to, partitions)
    assert (status, said in told["message"]) == (400, True), told
    assert committed(services.kafka_bootstrap, group, shadow) == [NOTHING]


def test_an_offset_that_retention_took_is_refused(services: Services, rest: Rest, source: str, shadow: str) -> None:
    delete_records(services.kafka_bootstrap, source)
    status, told = reset(rest, shadow, "late", {"offset": 19}, [0])
    assert (status, "goes from 20 to 20" in told["message"]) == (400, True), told


def test_there_are_no_cursors_without_a_shadow(rest: Rest, source: str) -> None:
    assert rest.call("GET", f"/v1/shadows/{source}/cursors")[0] == 404
    assert reset(rest, source, "group", "latest")[0] == 404


@pytest.mark.slow
def test_cursors_go_with_their_shadow(
    node: NodeProcess, services: Services, rest: Rest, source: str, shadow: str, unique: Unique
) -> None:
    """A shadow of the same name begins without any; the source's stay."""
    group = unique("group")
    commit(node.bootstrap, group, shadow, {0: 5})
    commit(node.bootstrap, group, source, {0: 6})
    assert group in cursors(rest, shadow, group)
    assert rest.call("DELETE", f"/v1/topics/{source}/shadows/{shadow}")[0] == 204
    made = lambda: rest.call("POST", f"/v1/topics/{source}/shadows", {"name": shadow})[0] == 201  # noqa: E731
    wait_for(made, "the name to be free", 20)
    wait_for(lambda: group not in cursors(rest, shadow), "what was remembered to be forgotten", 10)
    assert committed(node.bootstrap, group, shadow) == [NOTHING]
    assert committed(node.bootstrap, group, source) == [6]


def test_one_cursor_is_deleted_as_of_any_topic(
    node: NodeProcess, services: Services, source: str, shadow: str, unique: Unique
) -> None:
    group = unique("group")
    commit(node.bootstrap, group, shadow, {0: 5, 1: 4})
    commit(node.bootstrap, group, source, {0: 6})
    with RawClient(node.bootstrap) as wire:
        topics = [{"name": shadow, "partitions": [{"partition_index": 0}]}]
        answer = wire.ask(request(messages.OFFSET_DELETE.key, 0, group_id=group, topics=topics))
    assert int(answer.error_code) == 0
    assert [int(found.error_code) for found in answer.topics[0].partitions] == [0]
    assert committed(services.kafka_bootstrap, group, shadow, 2) == [NOTHING, 4]
    assert committed(services.kafka_bootstrap, group, source) == [6]


def test_the_command_line_lists_and_moves_cursors(
    node: NodeProcess, services: Services, shadow: str, unique: Unique
) -> None:
    group = f"{unique('team')}/audit"

    def run(*words: str) -> Said:
        return command("--admin-url", node.admin_url, "cursor", *words)

    done = run("reset", shadow, "--group", group, "--to", "3")
    assert (done.code, group in done.out) == (0, True), done.err
    assert committed(services.kafka_bootstrap, group, shadow, 2) == [3, 3]
    assert run("reset", shadow, "--group", group, "--to", "latest", "--partition", "1", "--yes").code == 0
    assert committed(services.kafka_bootstrap, group, shadow, 2) == [3, 10]
    assert run("reset", shadow, "--group", group, "--to", "2020-01-01T00:00:00Z").code == 0
    assert committed(services.kafka_bootstrap, group, shadow, 2) == [0, 0]
    listed = run("list", shadow)
    rows = [line.split() for line in listed.out.splitlines() if line.startswith(group)]
    assert rows == [[group, "Empty", "0", "0", "0", "20", "20"], [group, "Empty", "0", "1", "0", "10", "10"]]
    assert group in run("list", shadow, "-o", "json").out
    assert run("list", unique("nothing")).code == 3
    assert run("reset", shadow, "--group", group, "--to", "99").code == 2
    assert run("reset", shadow, "--to", "1").code == 2
    with member(node.bootstrap, group, shadow):
        assert run("reset", shadow, "--group", group, "--to", "latest").code == 4


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_cursors_are_found_and_moved_on_every_kafka(
    own_kafka: OwnKafka, services: Services, node_process: StartNode, unique: Unique, version: str
) -> None:
    kafka = own_kafka(version=version).bootstrap
    node = node_process(kafka=kafka, redis=services.redis_url)
    rest, source, group = Rest(node.admin_url), create_topic(kafka, 2), unique("group")
    write(kafka, source, 20)
    shadow = shadow_of(rest, source, unique("audit"), auto_reset_backlog_entries=5)
    assert reset(rest, shadow, group, {"offset": 18}, [0])[0] == 200
    assert cursors(rest, shadow, group)[group]["partitions"] == {"0": {"offset": 18, "end": 20, "lag": 2}}
    with member(node.bootstrap, group, shadow):
        assert reset(rest, shadow, group, "latest")[0] == 409
    assert reset(rest, shadow, group, "earliest")[0] == 200
    assert committed(kafka, group, shadow, 2) == [0, 0]
    assert committed(node.bootstrap, group, shadow, 2) == [20, 0]
