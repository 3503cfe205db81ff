"""What consoles ask of a cluster, by franz-go's kadm, which Redpanda Console is built on: brokers and nodes agree.

Delegation tokens are left out: nodes leave them to brokers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from sidecar.gateway.apis.table import NOT_SERVED
from tests.conftest import Unique
from tests.topics import create_topic
from tests.wait import wait_for

from . import gobuild
from .outcome import Route
from .recipes import run_tool
from .test_share_librdkafka import committed, group_from_the_beginning, member, polled

if TYPE_CHECKING:
    from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]
SOURCES = Path(__file__).with_name("console")
PATIENCE_S = 60.0
_PLACES = {
    "NodeID",
    "Host",
    "Port",
    "Controller",
    "Leader",
    "Replicas",
    "ISR",
    "Broker",
    "Coordinator",
    "ID",
    "TopicID",
}
"""What may differ: nodes stand in the place of brokers, and each made topic has an id of its own."""
_EACH = {"DescribeBrokerConfigs", "DescribeAllLogDirs", "ApiVersions", "ListConfigResources", "BrokerMetadata"}
"""Answers with a part for each broker, or node."""
_LOOKED_UP = {8, 15, 16, 21, 32, 35, 42, 44, 45, 46, 47, 48, 50, 51}
"""The APIs without which Console (`endpoint_compatibility.go`) and kminion (`ensureCompatibility`) switch parts off."""
_ADD_PARTITIONS_TO_TXN = 24
"""Its newest versions are for brokers."""
Told = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := gobuild.refusal(SOURCES):
        assert not os.environ.get("CI"), reason
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("console") / "program"
    shutil.copytree(SOURCES, home)
    run_tool(home, "go", "vet", "./...")
    run_tool(home, "go", "build", "-o", "console.program", ".")
    return home / "console.program"


def run(console: Path, *arguments: str) -> Told:
    done = subprocess.run([console, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({line["call"] for line in lines}) == len(lines)
    return {line["call"]: line for line in lines}


def placeless(told: Any) -> Any:
    """The same without what names brokers."""
    if isinstance(told, dict):
        return {name: placeless(value) for name, value in told.items() if name not in _PLACES}
    return [placeless(each) for each in told] if isinstance(told, list) else told


def both(console: Path, stage: Stage, *arguments: str) -> list[Told]:
    return [run(console, arguments[0], stage.at(route), *arguments[1:]) for route in Route]


@pytest.fixture
def scene(stage: Stage, unique: Unique) -> list[str]:
    """A topic with a transaction, its transactional id, and a group of each kind that has read it."""
    kafka, txn = stage.behind.bootstrap, unique("txn")
    topic = create_topic(kafka, 2)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": txn, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, str(number), partition=number % 2)
    producer.commit_transaction(30)
    groups = [unique("classic"), unique("consumer"), group_from_the_beginning(kafka, unique("share"))]
    with ExitStack() as reading:
        for protocol, group in zip(("classic", "consumer"), groups, strict=False):
            settings = {"bootstrap.servers": kafka, "group.id": group, "group.protocol": protocol}
            consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
            reading.callback(consumer.close)
            consumer.subscribe([topic])
            assert len(consumer.consume(20, PATIENCE_S)) == 20
            consumer.commit(asynchronous=False)
        sharing, taken = reading.enter_context(member(kafka, groups[2], topic, "implicit")), list[object]()

        def took_all() -> bool:
            taken.extend(polled(sharing))
            committed(sharing)
            return len(taken) == 20

        wait_for(took_all, "the share group to take all", PATIENCE_S)
    return [topic, txn, *groups]


@pytest.mark.further("console-look", compares=True)
def test_what_it_sees_of_nodes_is_what_it_sees_of_brokers(console: Path, stage: Stage, scene: list[str]) -> None:
    through, direct = both(console, stage, "look", *scene)
    assert [told.get("error") for told in direct.values()] == [told.get("error") for told in through.values()]
    for call in direct.keys() - _EACH:
        assert placeless(through[call]) == placeless(direct[call]), call
    nodes, brokers = (told["BrokerMetadata"]["returned"]["Brokers"] for told in (through, direct))
    assert {f"{node['Host']}:{node['Port']}" for node in nodes} == {node.bootstrap for node in stage.nodes}
    [broker] = brokers
    leaders = through["ListTopics"]["returned"][scene[0]]["Partitions"].values()
    assert {each["Leader"] for each in leaders} <= {node["NodeID"] for node in nodes}
    assert through["ApiVersions"]["returned"].keys() == {str(node["NodeID"]) for node in nodes}

    configs = {each["Key"]: each for each in direct["DescribeBrokerConfigs"]["returned"][0]["Configs"]}
    for resource in through["DescribeBrokerConfigs"]["returned"]:
        assert {each["Key"] for each in resource["Configs"]} == configs.keys()
    assert sizes(through) == sizes(direct)
    assert len(sizes(direct)) == 2
    resources = [
        {(each["Type"], each["Name"]) for each in told["ListConfigResources"]["returned"]["Resources"]}
        for told in (through, direct)
    ]
    kinds = ("BROKER", "BROKER_LOGGER")
    assert resources[0] ^ resources[1] <= {(kind, str(node["NodeID"])) for kind in kinds for node in (*nodes, broker)}
    assert {("BROKER", str(node["NodeID"])) for node in nodes} <= resources[0]


@pytest.mark.further("console-versions", compares=True)
def test_it_finds_the_apis_that_it_needs_and_guesses_the_version_from_those_that_nodes_serve(
    console: Path, stage: Stage
) -> None:
    """The guess compares all APIs with those of each release, and takes one that is missing as a sign of an older one.
    Consoles only show it.
    """
    own = [*NOT_SERVED, _ADD_PARTITIONS_TO_TXN]
    through, direct = both(console, stage, "versions", *map(str, own))
    said = [each["returned"] for each in (*through.values(), *direct.values())]
    assert len(through) == len(stage.nodes)
    assert all(set(each["keys"]) >= _LOOKED_UP for each in said)
    assert {each["guess"] for each in said[:-1]} == {"between v0.9.0 and v0.10.0"}
    assert said[-1]["guess"].startswith("v4.")
    assert {each["without"] for each in said} <= {"v4.3", "v4.4"}, "nodes do not serve the newest of each API yet"


def sizes(told: Told) -> dict[str, int]:
    """Of each partition's replica, whichever broker's directory it is in."""
    return {
        partition: each["Size"]
        for directories in told["DescribeAllLogDirs"]["returned"].values()
        for directory in directories.values()
        for topic in directory["Topics"].values()
        for partition, each in topic.items()
    }


@pytest.mark.further("console-edit", compares=True)
def test_what_it_changes_through_nodes_is_as_at_brokers(console: Path, stage: Stage, unique: Unique) -> None:
    names = {route: unique("edited") for route in Route}
    told = {
        route: json.loads(json.dumps(run(console, "edit", stage.at(route), name)).replace(name, "NAME"))
        for route, name in names.items()
    }
    for call in told[Route.DIRECT]:
        assert placeless(told[Route.NODE][call]) == placeless(told[Route.DIRECT][call]), call
