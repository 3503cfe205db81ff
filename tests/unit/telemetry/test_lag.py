import time

from sidecar.telemetry.lag import LagSampler
from tests.wait import wait_for_async


async def test_a_blocked_loop_shows_as_lag():
    seen: list[float] = []
    sampler = LagSampler(seen.append, interval=0.01)
    sampler.start()

    async def sampled() -> bool:
        return bool(seen)

    await wait_for_async(sampled, "a first sample")
    time.sleep(0.1)  # noqa: ASYNC251 - blocking the loop is what is measured
    count = len(seen)

    async def sampled_again() -> bool:
        return len(seen) > count

    await wait_for_async(sampled_again, "a sample of the blocked time")
    assert max(seen) >= 0.05
    sampler.stop()


async def test_a_stopped_sampler_is_silent():
    seen: list[float] = []
    sampler = LagSampler(seen.append, interval=0.001)
    sampler.start()
    sampler.stop()
    sampler.stop()
    others: list[float] = []
    running = LagSampler(others.append, interval=0.001)
    running.start()

    async def fired_often() -> bool:
        return len(others) > 5

    await wait_for_async(fired_often, "samples of another sampler")
    running.stop()
    assert seen == []
