"""docs/use/clients.md, Debezium: a task of Kafka Connect that was left behind writes nothing behind its successor."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from sidecar.local.java import find_java
from tests.conftest import Unique
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

from .connect import PATIENCE, Postgres, Worker, postgres_programs
from .locks import locked

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]


@pytest.fixture
def programs() -> Path:
    found = postgres_programs()
    if found is None:
        assert not os.environ.get("CI"), "PostgreSQL's initdb and postgres are not on this machine"
        pytest.skip("PostgreSQL's initdb and postgres are not on this machine")
    return found


def names(services: Services, topic: str) -> list[str]:
    return [json.loads(value)["after"]["name"] for value in read_log(services.kafka_bootstrap, topic)]


@pytest.mark.further("debezium")
def test_a_task_that_was_frozen_through_the_start_of_its_successor_is_shut_out(
    programs: Path, node: NodeProcess, services: Services, unique: Unique, tmp_path: Path
) -> None:
    prefix = unique("inventory")
    topic = create_topic(services.kafka_bootstrap, 1, f"{prefix}.public.orders")
    rest, java, path = Rest(node.admin_url), find_java(), locked("debezium").class_path
    assert rest.call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive"})[0] == 200
    with Postgres(programs, tmp_path).running() as database:
        database.sql("CREATE TABLE orders (id serial PRIMARY KEY, name text)", "INSERT INTO orders (name) VALUES ('a')")
        settings = {"bootstrap.servers": node.bootstrap, "database.port": str(database.port), "topic.prefix": prefix}
        first = Worker("first", tmp_path, java, path, settings)
        try:
            wait_for(lambda: first.said("Starting streaming"), "the first task to stream", PATIENCE)
            database.sql("INSERT INTO orders (name) VALUES ('b')")
            wait_for(lambda: names(services, topic) == ["a", "b"], "both rows", PATIENCE)
            os.kill(first.child.pid, signal.SIGSTOP)
            second = Worker("second", tmp_path, java, path, {**settings, "slot.name": "second"})
            try:  # it has a replication slot of its own, as PostgreSQL lends one to a single reader
                wait_for(lambda: names(services, topic) == ["a", "b", "a", "b"], "the second task's snapshot", PATIENCE)
                wait_for(lambda: second.said("Starting streaming"), "the second task to stream", PATIENCE)
                database.sql("INSERT INTO orders (name) VALUES ('c')")  # for both of them
                wait_for(lambda: names(services, topic)[4:] == ["c"], "the second task's row", PATIENCE)
                os.kill(first.child.pid, signal.SIGCONT)
                wait_for(lambda: first.said("ProducerFencedException"), "the first task to be refused", PATIENCE)
                database.sql("INSERT INTO orders (name) VALUES ('d')")
                wait_for(lambda: names(services, topic)[4:] == ["c", "d"], "the second task to go on", PATIENCE)
                assert rest.topic(topic)["generation"] == 2
            finally:
                second.child.kill()
        finally:
            first.child.kill()
