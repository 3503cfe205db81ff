"""A fence whose marker is deleted from the log, on a real broker."""

from __future__ import annotations

from urllib.request import urlopen

from tests.kafka.exclusive.conftest import Connect
from tests.kafka.exclusive.producers import fetch_batches
from tests.nodes import NodeProcess
from tests.services import Services
from tests.topics import delete_records
from tests.wait import wait_for


def markers(services: Services, topic: str, start: int) -> list[tuple[int, int]]:
    """Offset and epoch of each marker in partition 1, which nobody writes to."""
    found = fetch_batches(services.kafka_bootstrap, topic, 1, start)
    return [(batch.base_offset, batch.producer_epoch) for batch in found if batch.is_control]


def renewals(node: NodeProcess) -> float:
    """How often fences were renewed here because their markers had been deleted."""
    with urlopen(f"{node.admin_url}/metrics", timeout=10) as answer:
        (line,) = (
            line for line in answer.read().decode().splitlines() if 'fence_renewals_total{cause="log_start"}' in line
        )
    return float(line.split()[-1])


def test_a_fence_is_written_again_when_its_marker_was_deleted(
    connect: Connect, services: Services, topic: str, node: NodeProcess
) -> None:
    """A replica that is built from the log later would not know it: a stale batch was appended behind it."""
    owner, before = connect("owner"), renewals(node)
    assert owner.send(topic, b"0", sequence=0).error == 0
    ((offset, epoch),) = markers(services, topic, 0)
    delete_records(services.kafka_bootstrap, topic, 1)
    wait_for(lambda: markers(services, topic, offset + 1) == [(offset + 1, epoch)], "the marker to be written again")
    assert owner.send(topic, b"1", sequence=1).error == 0
    wait_for(lambda: renewals(node) > before, "the renewal to be counted")
