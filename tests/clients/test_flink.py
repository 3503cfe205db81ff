"""Flink's Kafka source and sink, exactly once, on brokers, and through two nodes in front of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.conftest import Unique
from tests.topics import create_topic

from .applications import Application
from .further import FLINK
from .locks import locked
from .outcome import Route
from .stage import committed

if TYPE_CHECKING:
    from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
RECORDS = 300
_OPEN = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.util", "java.time"))
"""Flink's serializers and its cleaning of closures look into these."""


@pytest.fixture(scope="module")
def copying() -> Application:
    return Application("Copying", locked(f"flink-{FLINK}"), options=_OPEN)


@pytest.mark.parametrize("route", Route, ids=lambda route: route.value)
@pytest.mark.parametrize(
    "naming",
    [pytest.param(naming, marks=pytest.mark.further(f"flink-{naming}")) for naming in ("INCREMENTING", "POOLING")],
)
def test_a_job_that_fails_between_checkpoints_copies_each_record_once(
    copying: Application, stage: Stage, naming: str, route: Route, unique: Unique
) -> None:
    kafka = stage.behind.bootstrap
    source, target = create_topic(kafka, 2), create_topic(kafka, 2)
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(RECORDS):
        producer.produce(source, str(number), partition=number % 2)
    assert producer.flush(60) == 0
    told = copying.run(stage.at(route), source, target, unique("flink"), naming, str(RECORDS * 2 // 3))
    assert told == ["fails", "done"]
    copied = Counter(int(message.value() or b"") for message in committed(kafka, target, 2))
    assert copied == Counter(range(RECORDS))
