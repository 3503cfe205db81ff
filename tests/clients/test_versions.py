"""Every minor version of Java's client and of librdkafka: one round at brokers, and one through two nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .outcome import Route
from .versions import CELLS, java_round, librdkafka_round, shown

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Unique

    from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("library", "version"), CELLS)
def test_a_version_administers_writes_and_reads_as_at_brokers(
    library: str, version: str, stage: Stage, unique: Unique, tmp_path: Path
) -> None:
    run = java_round(version) if library == "java" else librdkafka_round(version, tmp_path)
    told = run(unique("round"), stage.at(Route.DIRECT), stage.at(Route.NODE))
    assert told == [f"nodes {stage.behind.bootstrap}", shown(stage.nodes)]
