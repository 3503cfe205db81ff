"""Virtual time, for polls of a simulated Kafka."""

from __future__ import annotations

from tests.sim.kafka.direct import JumpLoop


def pytest_asyncio_loop_factories() -> dict[str, type[JumpLoop]]:
    return {"jump": JumpLoop}
