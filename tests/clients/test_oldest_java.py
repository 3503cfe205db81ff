"""The oldest Java clients that Kafka 4 serves well, on ordinary topics; `test_recipes` has them on governed ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import Unique
from tests.kafka.shadow.test_transactions import committed_values
from tests.topics import create_topic

from . import javabuild
from .applications import Application
from .further import OLD_JAVA
from .locks import locked
from .outcome import Route
from .recipes import SOURCES, Writer, read
from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
RECORDS = 20
_COPIER = javabuild.SOURCES / "matrix" / "Copier.java"


@pytest.mark.parametrize("route", Route, ids=lambda route: route.value)
@pytest.mark.parametrize(
    "version",
    [pytest.param(version, marks=pytest.mark.further(f"old-java-records-{version}")) for version in OLD_JAVA],
)
def test_it_writes_reads_and_copies_by_transactions(
    version: str, route: Route, stage: Stage, unique: Unique, tmp_path: Path
) -> None:
    jars, at = locked(f"kafka-clients-{version}"), stage.at(route)
    recipe = Application("Recipe", jars, SOURCES / "java" / "Recipe.java").command()
    topic = create_topic(stage.behind.bootstrap, 1)
    with Writer(recipe, at, unique("app"), topic, tmp_path / "errors.log") as writer:
        assert [writer.send(number) for number in range(5)] == ["ok"] * 5
        assert writer.close() == 0
    group = unique("group")
    assert read(recipe, at, topic, group, 3)[:3] == ["0", "1", "2"]
    source, target = create_topic(stage.behind.bootstrap, 2), create_topic(stage.behind.bootstrap, 2)
    for commit in (True, False, True):
        write_transaction(stage.behind.bootstrap, source, commit=commit)
    copied = Application("matrix.Copier", jars, _COPIER).run(at, source, target, unique("group"), unique("txn"), "0")
    assert copied == [f"done {2 * RECORDS}"]
    assert committed_values(stage.behind.bootstrap, target) == {b"%d!" % number: 2 for number in range(RECORDS)}


def write_transaction(bootstrap: str, topic: str, *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % 2)
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)
