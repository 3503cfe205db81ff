"""Places that are shared out by address."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.network.places import Places


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_address_never_holds_all_places() -> None:
    places = Places(8)
    asking = [asyncio.create_task(places.take("10.0.0.1")) for _ in range(20)]
    await _turns()
    assert sum(each.done() for each in asking) == 2
    assert (places.taken, places.waiting) == (2, 18)
    await asyncio.wait_for(places.take("10.0.0.2"), 1)
    assert places.free == 5
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert places.waiting == 0


async def test_a_free_place_goes_from_address_to_address_however_many_wait_at_one() -> None:
    places = Places(4)
    order: list[str] = []

    async def ask(host: str) -> None:
        await places.take(host)
        order.append(host)

    for host in ("a", "b", "c", "d"):
        await places.take(host)
    waiting = [asyncio.create_task(ask(host)) for host in ("e", "e", "e", "f", "g")]
    await _turns()
    for host in ("a", "b", "c"):
        places.give_back(host)
        await _turns()
    assert order == ["e", "f", "g"]
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_gives_up_takes_no_place_with_it() -> None:
    places = Places(4)
    await places.take("10.0.0.1")
    waits = asyncio.create_task(places.take("10.0.0.1"))
    await _turns()
    places.give_back("10.0.0.1")
    waits.cancel()  # in the very turn in which it got the place
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert (places.free, places.waiting) == (4, 0)


async def test_a_place_that_comes_in_the_turn_in_which_its_waiter_gives_up_goes_to_the_next_one() -> None:
    places = Places(4)
    await places.take("10.0.0.1")
    given_up, next_one = (asyncio.create_task(places.take("10.0.0.1")) for _ in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    places.give_back("10.0.0.1")
    await next_one
    with pytest.raises(asyncio.CancelledError):
        await given_up
    places.give_back("10.0.0.1")
    assert (places.free, places.waiting) == (4, 0)
