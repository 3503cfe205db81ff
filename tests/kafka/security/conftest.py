"""The secured broker that the tests of this directory share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.security.secured import Secured, secured_kafka


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running
