"""Frames over a log, straight from Kafka and through a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from pyspark.sql import DataFrame, SparkSession

from sidecar.pipeline.source import FORMAT, register
from tests.integration.exclusive.conftest import Rest
from tests.nodes import NodeProcess, running_node
from tests.services import Services


class Frame(Protocol):
    """`frame(topic, view="runs", splitOffsets=5)`: from Kafka, unless told a `bootstrap`."""

    def __call__(self, topic: str, *, bootstrap: str | None = None, **options: Any) -> DataFrame: ...


@pytest.fixture
def frame(spark: SparkSession, services: Services) -> Frame:
    register(spark)

    def load(topic: str, *, bootstrap: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format(FORMAT).option("topic", topic)
        return reader.options(**{"bootstrap.servers": bootstrap or services.kafka_bootstrap, **options}).load()

    return load


@pytest.fixture(scope="session")
def node(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node"), services.kafka_bootstrap, services.redis_url) as process:
        yield process


@pytest.fixture
def rest(node: NodeProcess) -> Rest:
    return Rest(node.admin_url)
