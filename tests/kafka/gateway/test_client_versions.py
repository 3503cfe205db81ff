"""Java clients of other versions at a node: the first and the last that differ. `tests/clients/test_versions.py` has
every minor version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.versions import JAVA, java_round

if TYPE_CHECKING:
    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster

_NO_RANGE_FROM_0 = ("3.3.2", "3.7.2")
"""These cannot read a feature whose range begins at 0 (KAFKA-17011)."""


@pytest.mark.parametrize(
    "version",
    [JAVA[0], *(pytest.param(version, marks=pytest.mark.slow) for version in _NO_RANGE_FROM_0), JAVA[-1]],
)
def test_a_java_client_administers_writes_and_reads_at_a_node(
    version: str, one_node: VirtualCluster, unique: Unique
) -> None:
    assert java_round(version)(unique("round"), one_node.bootstrap) == [f"nodes {one_node.bootstrap}"]
    assert one_node.events.rejected == one_node.events.failed == []
