"""A Kafka, the calls to it, and slots whose names nobody else uses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from sidecar.fencing.slot import FencingLimits, WriterSlot
from tests.kafka_calls import KafkaCalls, kafka_calls
from tests.services import Services


@pytest.fixture
async def kafka(services: Services) -> AsyncIterator[KafkaCalls]:
    async with kafka_calls(services.kafka_bootstrap) as calls:
        yield calls


NewSlot = Callable[..., WriterSlot]


@pytest.fixture
def new_slot(kafka: KafkaCalls) -> NewSlot:
    """`new_slot("orders")`: one node's hold on that slot; the same name again is a rival's."""
    return lambda name, **limits: WriterSlot(kafka.upstream, f"sidecar.test.{name}", limits=FencingLimits(**limits))
